//! The journaling design: clean as it should be, and each precaution is needed.

use fathom_designs::journal::{Journal, Switch};
use fathom_designs::shrink::play;
use fathom_designs::story::ExplainedSystem;
use fathom_designs::volume::{Action, Call, Explorer, Limits, OperationSet, Path, Variant};
use fathom_engine::search::{Plan, Report, Stop, Strategy, Unobserved, search};

const KEEPS: &str = "keeps what it promised";

fn explore(design: Journal, depth: u32) -> (Explorer<Journal>, Report) {
    explore_with(design, Limits::default(), depth)
}

fn explore_with(design: Journal, limits: Limits, depth: u32) -> (Explorer<Journal>, Report) {
    let explorer = Explorer::new(design, limits).expect("a sound design");
    let plan = Plan { depth_max: Some(depth), ..Plan::default() };
    let report = search(&explorer, &Strategy::Bfs, &plan, &mut Unobserved).expect("a sound plan");
    (explorer, report)
}

/// Few files, so that long workloads are cheap.
fn few() -> Journal {
    let journal = Journal::default();
    Journal { menu: OperationSet { entries_max: 2, ..journal.menu }, ..journal }
}

#[test]
fn the_whole_design_is_clean_on_its_whole_menu() {
    let (explorer, report) = explore(Journal::default(), 6);
    if let Some(found) = report.violations().next() {
        panic!("{}:\n{}", found.property, explorer.tell(&found.path));
    }
    assert_eq!(report.stop, Stop::Depth);
    assert_eq!((report.states, explorer.recoveries()), (12_791, 1_029_089));
    // Recovered volumes are used and interrupted again.
    let twice = Limits { crashes: 2, ..Limits::default() };
    let (explorer, report) = explore_with(few(), twice, 3);
    if let Some(found) = report.violations().next() {
        panic!("{}:\n{}", found.property, explorer.tell(&found.path));
    }
}

#[test]
fn each_precaution_is_needed() {
    for (switch, steps, states) in
        [(Switch::NoBarrier, 3, 52), (Switch::NoChecksum, 2, 9), (Switch::NoRevoke, 7, 20_864)]
    {
        let design = Journal { without: vec![switch], ..Journal::default() };
        let explorer = Explorer::new(design, Limits::default()).expect("a sound design");
        let plan = Plan { depth_max: Some(7), stop_at_first: true, threads: 1, ..Plan::default() };
        let report =
            search(&explorer, &Strategy::Bfs, &plan, &mut Unobserved).expect("a sound plan");
        let name = switch.name();
        let found = report.discovery(KEEPS).unwrap_or_else(|| panic!("{name} is not caught"));
        let story = explorer.tell(&found.path);
        assert_eq!((found.path.steps(), report.states), (steps, states), "{name}:\n{story}");
        assert!(story.contains("POWER FAILURE"), "{story}");
    }
}

#[test]
fn without_power_failures_no_flaw_shows() {
    for switch in [Switch::NoBarrier, Switch::NoChecksum] {
        let design = Journal { without: vec![switch], ..few() };
        let limits = Limits { crashes: 0, ..Limits::default() };
        let (explorer, report) = explore_with(design, limits, 5);
        let found = (report.violations().count(), explorer.recoveries());
        assert_eq!(found, (0, 0), "{}", switch.name());
    }
}

#[test]
fn overwritten_data_is_not_protected_by_ordered_mode() {
    // ext4(5), data=ordered: data is written in place before the commit. So a commit that did not
    // complete may leave new data in an old file; the menu of the design leaves that out.
    let [a, b] = *b"ab";
    let path = |name| Path::ROOT.join(name).expect("not deep");
    let write = Call::Write { path: path(a), place: 0, blocks: 1 };
    let other = Call::Create(path(b));
    let explorer = Explorer::new(few(), Limits::default()).expect("a sound design");
    let shows = |calls: &[Call]| {
        let actions: Vec<Action> = calls.iter().copied().map(Action::Call).collect();
        play(&explorer, KEEPS, &actions).map(|trace| explorer.story(&trace, KEEPS).to_string())
    };
    let before = [Call::Create(path(a)), write, Call::Sync];
    // Old or new data is fine; new data without the older change beside it is not.
    assert_eq!(shows(&[&before[..], &[write, Call::Sync]].concat()), None);
    assert_eq!(shows(&[&before[..], &[write, other, Call::Sync]].concat()), None);
    let story = shows(&[&before[..], &[other, write, Call::Sync]].concat()).expect("it shows");
    assert!(story.contains("there is /a [4]\n"), "{story}");
}
