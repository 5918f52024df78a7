//! The journaling design: clean as it should be, and each precaution is needed.

use fathom_designs::journal::{Journal, Switch};
use fathom_designs::volume::{Explorer, Limits, Menu};
use fathom_engine::search::{Plan, Report, Stop, Strategy, Unobserved, search};

/// Few files, so that long workloads are cheap.
const FEW: Menu = Menu { entries_max: 2, dirs_deep_max: 1, write_blocks: 1, overwrite: false };

fn explore(without: &[Switch], depth: u32) -> (Explorer<Journal>, Report) {
    let design = Journal { without: without.to_vec(), menu: FEW };
    let explorer = Explorer::new(design, Limits::default()).expect("a sound design");
    let plan = Plan { depth_max: Some(depth), ..Plan::default() };
    let report = search(&explorer, &Strategy::Bfs, &plan, &mut Unobserved).expect("a sound plan");
    (explorer, report)
}

#[test]
fn the_whole_design_is_clean() {
    let (explorer, report) = explore(&[], 6);
    assert_eq!(report.stop, Stop::Depth);
    assert_eq!(report.violations().count(), 0);
    assert!(explorer.recoveries() > 20_000, "{} power failures", explorer.recoveries());
}

#[test]
fn each_precaution_is_needed() {
    for (switch, steps, property) in [
        (Switch::NoBarrier, 3, "keeps what it promised"),
        (Switch::NoChecksum, 2, "keeps what it promised"),
        (Switch::NoRevoke, 7, "keeps what it promised"),
    ] {
        let (explorer, report) = explore(&[switch], 7);
        let found =
            report.discovery(property).unwrap_or_else(|| panic!("{switch:?} is not caught"));
        let story = explorer.tell(&found.path);
        assert_eq!(found.path.steps(), steps, "{switch:?}:\n{story}");
        assert!(story.contains("POWER FAILURE"), "{story}");
    }
}
