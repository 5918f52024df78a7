//! The log-structured design: the finding of the study, its repair, and the variants.

use fathom_designs::logfs::{Logfs, Switch};
use fathom_designs::volume::{Explorer, Limits, Variant};
use fathom_engine::search::{Plan, Report, Stop, Strategy, Unobserved, search};

const KEEPS: &str = "keeps what it promised";

fn explore(switches: &[Switch], depth: u32, limits: Limits) -> (Explorer<Logfs>, Report) {
    let design = Logfs { switches: switches.to_vec(), ..Logfs::default() };
    let explorer = Explorer::new(design, limits).expect("a sound design");
    let plan = Plan { depth_max: Some(depth), ..Plan::default() };
    let report = search(&explorer, &Strategy::Bfs, &plan, &mut Unobserved).expect("a sound plan");
    (explorer, report)
}

#[test]
fn a_segment_reused_before_the_next_checkpoint_loses_the_root_directory() {
    let (explorer, report) = explore(&[Switch::ReuseEarly, Switch::OneLog], 8, Limits::default());
    let found = report.discovery(KEEPS).expect("the finding of the study");
    let story = explorer.tell(&found.path);
    // The study needs a trace of 8 with the crash; this one has 5 operations and the crash.
    assert_eq!(found.path.steps(), 5, "{story}");
    assert!(story.contains("directory node 1 holds no names"), "{story}");
}

#[test]
fn with_separate_logs_it_loses_the_data_of_a_file() {
    let (explorer, report) = explore(&[Switch::ReuseEarly], 8, Limits::default());
    let found = report.discovery(KEEPS).expect("the finding of the study");
    assert_eq!(found.path.steps(), 6, "{}", explorer.tell(&found.path));
}

#[test]
fn a_segment_held_until_the_next_checkpoint_loses_nothing() {
    for switches in [&[][..], &[Switch::OneLog], &[Switch::Fifo]] {
        let (_, report) = explore(switches, 6, Limits::default());
        assert_eq!(report.stop, Stop::Depth, "{switches:?}");
        assert_eq!(report.violations().count(), 0, "{switches:?}");
    }
}

#[test]
fn first_in_first_out_only_hides_the_flaw() {
    let (_, report) = explore(&[Switch::ReuseEarly, Switch::Fifo], 6, Limits::default());
    assert_eq!((report.stop, report.violations().count()), (Stop::Depth, 0));
}

#[test]
fn one_copy_of_nat_and_sit_is_not_enough() {
    let (explorer, report) = explore(&[Switch::NoVersions], 4, Limits::default());
    let found = report.discovery("every valid block is used exactly once").expect("inconsistent");
    assert_eq!(found.path.steps(), 2, "{}", explorer.tell(&found.path));
}

#[test]
fn without_power_failures_nothing_is_wrong_even_with_all_flaws() {
    let limits = Limits { crashes: 0, ..Limits::default() };
    let (explorer, report) = explore(Switch::ALL, 6, limits);
    assert_eq!((report.violations().count(), explorer.recoveries()), (0, 0));
}

#[test]
fn any_number_of_threads_finds_the_same() {
    let run = |threads| {
        let design = Logfs { switches: vec![Switch::ReuseEarly], ..Logfs::default() };
        let explorer = Explorer::new(design, Limits::default()).expect("a sound design");
        let plan = Plan { threads, depth_max: Some(7), ..Plan::default() };
        search(&explorer, &Strategy::Bfs, &plan, &mut Unobserved).expect("a sound plan")
    };
    let (one, three) = (run(1), run(3));
    assert_eq!((one.states, &one.discoveries), (three.states, &three.discoveries));
}

#[test]
fn the_longer_the_remembered_trace_the_more_states_and_no_fewer_findings() {
    let counts: Vec<(u64, bool)> = (0..=3)
        .map(|remember| {
            let limits = Limits { remember, ..Limits::default() };
            let (_, report) = explore(&[Switch::ReuseEarly, Switch::OneLog], 5, limits);
            (report.states, report.discovery(KEEPS).is_some())
        })
        .collect();
    assert!(counts.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{counts:?}");
    assert!(counts[2].1 && counts[3].1, "{counts:?}");
    println!("{counts:?}");
}
