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
    // The study needs a trace of 8 with the crash; this one has 6 operations and the crash.
    assert_eq!(found.path.steps(), 6, "{story}");
    assert!(story.contains("directory node 1 holds no names"), "{story}");
}

#[test]
fn with_separate_logs_it_loses_the_data_of_a_file() {
    let (explorer, report) = explore(&[Switch::ReuseEarly], 8, Limits::default());
    let found = report.discovery(KEEPS).expect("the finding of the study");
    let story = explorer.tell(&found.path);
    assert_eq!(found.path.steps(), 6, "{story}");
    assert!(story.contains("expected a file holding [3, 4, 5, 6]"), "{story}");
}

#[test]
fn a_segment_held_until_the_next_checkpoint_loses_nothing() {
    for (switches, states) in
        [(&[][..], 29_592), (&[Switch::OneLog], 29_592), (&[Switch::Fifo], 29_592)]
    {
        let (explorer, report) = explore(switches, 6, Limits::default());
        assert_eq!(report.stop, Stop::Depth, "{switches:?}");
        assert_eq!(report.violations().count(), 0, "{switches:?}");
        assert_eq!(report.states, states, "{switches:?}");
        if switches.is_empty() {
            assert_eq!(report.states_by_depth, [1, 4, 23, 164, 1177, 5989, 22_234]);
            assert_eq!((report.transitions, explorer.recoveries()), (89_540, 305_898));
        }
    }
}

#[test]
fn first_in_first_out_only_hides_the_flaw() {
    let (_, report) = explore(&[Switch::ReuseEarly, Switch::Fifo], 6, Limits::default());
    assert_eq!((report.stop, report.violations().count()), (Stop::Depth, 0));
}

/// The study: journals alone do not suffice, because they cannot hold everything.
#[test]
fn journals_without_version_bitmaps_are_enough_only_while_they_have_room() {
    let (_, report) = explore(&[Switch::NoVersions], 3, Limits::default());
    assert_eq!((report.stop, report.violations().count()), (Stop::Depth, 0));
    let (explorer, report) = explore(&[Switch::NoVersions], 4, Limits::default());
    let found = report.discovery("every node is where NAT says, and valid").expect("as the study");
    assert_eq!(found.path.steps(), 4, "{}", explorer.tell(&found.path));
}

#[test]
fn an_fsync_must_mark_what_close_has_written() {
    let (explorer, report) = explore(&[Switch::SkipWritten], 7, Limits::default());
    let found = report.discovery(KEEPS).expect("what was fsynced is lost");
    let story = explorer.tell(&found.path);
    assert_eq!(found.path.steps(), 7, "{story}");
    assert!(story.contains("close(/a)") && story.contains("fsync(/a)"), "{story}");
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
fn recovering_only_what_can_be_told_apart_finds_the_same() {
    for switches in [&[][..], &[Switch::ReuseEarly, Switch::OneLog], &[Switch::NoVersions]] {
        let run = |thorough| {
            let design = Logfs { switches: switches.to_vec(), ..Logfs::default() };
            let explorer = Explorer::new(design, Limits::default()).expect("a sound design");
            let explorer = if thorough { explorer.thorough() } else { explorer };
            let plan = Plan { depth_max: Some(6), stop_at_first: false, ..Plan::default() };
            let report = search(&explorer, &Strategy::Bfs, &plan, &mut Unobserved).expect("a plan");
            (report.states, report.transitions, report.discoveries, explorer.recoveries())
        };
        assert_eq!(run(false), run(true), "{switches:?}");
    }
}

#[test]
fn states_that_were_forgotten_are_made_again_with_their_violations() {
    let run = |waiting_max| {
        let switches = vec![Switch::ReuseEarly, Switch::OneLog];
        let mut design = Logfs { switches, ..Logfs::default() };
        design.menu.entries_max = 2;
        let explorer = Explorer::new(design, Limits::default()).expect("a sound design");
        let plan =
            Plan { waiting_max, depth_max: Some(7), stop_at_first: false, ..Plan::default() };
        let report = search(&explorer, &Strategy::Bfs, &plan, &mut Unobserved).expect("a plan");
        (report.states, report.transitions, report.discoveries, explorer.recoveries())
    };
    let whole = run(None);
    assert!(whole.2[0].count > 100, "violations among those made again: {:?}", whole.2);
    assert_eq!(whole, run(Some(500)));
}

#[test]
fn the_longer_the_remembered_trace_the_more_states_and_no_fewer_findings() {
    let counts: Vec<(u64, bool)> = (0..=3)
        .map(|remember| {
            let limits = Limits { remember, ..Limits::default() };
            let (_, report) = explore(&[Switch::ReuseEarly, Switch::OneLog], 6, limits);
            (report.states, report.discovery(KEEPS).is_some())
        })
        .collect();
    assert!(counts.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{counts:?}");
    assert!(counts[2].1 && counts[3].1, "{counts:?}");
    println!("{counts:?}");
}
