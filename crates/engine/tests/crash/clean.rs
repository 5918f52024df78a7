//! A correct file system is not accused, and every number is the same in every run.

use fathom_block::Level;
use fathom_block::backed::Durable;
use fathom_engine::crash::CrashConfig;
use fathom_engine::crash::config::Identity;
use fathom_engine::crash::workload::StepKind;

use super::toy::Toy;
use super::{Result, THREADS, base, check, counts, plan, run};

const PROMISES: [Durable; 3] = [Durable::Operation, Durable::Close, Durable::Sync];

/// Both designs for every promise.
fn all() -> Vec<Toy> {
    let mut all: Vec<Toy> = PROMISES.map(Toy::new).into();
    all.extend(PROMISES.map(|durable| Toy::new(durable).ordered()));
    all.push(Toy::new(Durable::Sync).loose());
    all
}

/// States, transitions and images of a check that finds nothing.
fn clean(toy: &Toy, config: &CrashConfig) -> (u64, u64, u64) {
    let report = check(toy, config);
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    (report.search.states, report.search.transitions, report.crash_images)
}

#[test]
fn at_every_level() {
    let steps =
        vec![StepKind::Put, StepKind::Rewrite, StepKind::Rename, StepKind::Unlink, StepKind::Sync];
    let config = CrashConfig { steps, sizes: vec![300], remember: 1, ..base() };
    for level in Level::ALL {
        let config = CrashConfig { levels: vec![level], ..config.clone() };
        for toy in all() {
            let (states, transitions, images) = clean(&toy, &config);
            assert_eq!((states, transitions), (18, 74), "{level}");
            assert!(images > 0, "{level}");
        }
    }
}

#[test]
fn with_files_that_stay_open() {
    use StepKind::{Close, Create, Fsync, Open, Remount, Rename, Sync, Write};
    let steps = vec![Create, Open, Write, Fsync, Close, Rename, Sync, Remount];
    let config = CrashConfig { steps, sizes: vec![10], open_max: 2, remember: 1, ..base() };
    let found = PROMISES.map(|durable| clean(&Toy::new(durable), &config));
    assert_eq!(found, [(37, 112, 85), (37, 112, 69), (37, 112, 21)]);
}

#[test]
fn the_numbers_are_known_and_those_of_any_number_of_threads() {
    let config = base();
    let small = CrashConfig { depth: 3, ..config.clone() };
    for (toy, config, known) in [
        (Toy::new(Durable::Operation), &small, (171, 264, 932)),
        (Toy::new(Durable::Operation).ordered(), &small, (171, 264, 926)),
        (Toy::new(Durable::Close), &small, (171, 264, 870)),
        (Toy::new(Durable::Sync), &config, (669, 2075, 321)),
        (Toy::new(Durable::Sync).ordered(), &config, (669, 2075, 320)),
    ] {
        let exercised = counts(&run(&toy, &plan(config)));
        for threads in THREADS {
            let report = run(&toy, &super::CrashPlan { threads, ..plan(config) });
            assert_eq!(counts(&report), exercised);
            let result = Result::from(&report);
            let numbers = (result.states, result.transitions, result.crash_images);
            assert_eq!((numbers, result.findings.len()), (known, 0), "{threads} threads");
            assert_eq!(report.goals_missed, ["the disk was full"]);
        }
    }
}

#[test]
fn a_full_disk_is_reached_and_is_no_fault() {
    let steps = vec![StepKind::Put, StepKind::Append, StepKind::Unlink];
    let config = CrashConfig { steps, sizes: vec![1500], depth: 3, ..base() };
    for durable in PROMISES {
        let report = check(&Toy::new(durable), &config);
        assert!(report.findings.is_empty(), "{}", report.findings[0]);
        assert!(!report.goals_missed.contains(&"the disk was full"));
    }
}

#[test]
fn after_a_first_crash() {
    let steps = vec![StepKind::Create, StepKind::Rename, StepKind::Unlink, StepKind::Sync];
    let levels = vec![Level::Linear, Level::Torn];
    let config = CrashConfig { crashes: 2, depth: 3, steps, levels, ..base() };
    let found = PROMISES.map(|durable| clean(&Toy::new(durable), &config));
    assert_eq!(found, [(162, 242, 55), (162, 242, 55), (58, 100, 12)]);
}

/// The finer the identity, the more states.
#[test]
fn identities_are_ordered() {
    let config = CrashConfig { depth: 3, levels: vec![Level::Linear], ..base() };
    let states = |durable, identity, remember| {
        let config = CrashConfig { identity, remember, ..config.clone() };
        clean(&Toy::new(durable), &config).0
    };
    let shapes = [0, 1, 2, 3].map(|remember| states(Durable::Close, Identity::Shape, remember));
    assert_eq!(shapes, [31, 87, 171, 195]);
    // Names and contents count in a tree, and in an image also how often it was written.
    assert_eq!(states(Durable::Close, Identity::Tree, 0), 115);
    assert_eq!(states(Durable::Close, Identity::Image, 0), 199);
    // What is only in memory counts although the device does not show it.
    assert_eq!(states(Durable::Sync, Identity::Tree, 0), 115);
    assert_eq!(states(Durable::Sync, Identity::Image, 0), 155);
}
