//! What shows only after a remount is shrunk to what it needs, within its time.

use std::time::{Duration, Instant};

use fathom_engine::{Plan, Remounts, Silent, Strategy, check};
use fathom_generate::Config as Workload;
use fathom_model::{Config, ModelSubject, Mutant, Quirks};

/// Stale bytes after a truncation, a block left by a punch, a leaked reservation, and what comes back.
const MUTANTS: [Mutant; 5] = [
    Mutant::ShrinkLostOnRemount,
    Mutant::PunchLostOnRemount,
    Mutant::ReservationLeak,
    Mutant::OrphanReturns,
    Mutant::XattrLostOnRemount,
];

#[test]
fn findings_that_need_a_remount_have_less_than_30_operations() {
    for mutant in MUTANTS {
        let quirks = Quirks::profile("model").unwrap();
        let reference = Config { quirks, ..Config::default() };
        let config = Config { mutant: Some(mutant), ..reference.clone() };
        let mut subject = ModelSubject::new(config).unwrap();
        let mut plan = Plan::new(7, Workload::default(), reference);
        plan.explore.strategy = Strategy::Walk;
        plan.explore.remounts = Some(Remounts::Every(500));
        plan.config.check.findings_max = 1;
        plan.config.check.shrink_seconds = 60;
        plan.ops_max = Some(60_000);
        let report = check(&mut subject, &plan, &mut Silent).unwrap();
        let finding = report.findings.first().unwrap_or_else(|| panic!("{mutant} was not found"));
        let (found, shrunk) = (finding.trace.steps.len(), finding.minimal.steps.len());
        assert!(shrunk < 30, "{mutant}: {found} operations shrunk to {shrunk}\n{finding}");
        println!("{mutant}: {} with {found} operations, shrunk to {shrunk}", finding.signature);
    }
}

#[test]
fn confirming_and_shrinking_is_part_of_the_budget() {
    let quirks = Quirks::profile("model").unwrap();
    let reference = Config { quirks, ..Config::default() };
    let config = Config { mutant: Some(Mutant::LinkCountStuck), ..reference.clone() };
    let mut subject = ModelSubject::new(config).unwrap();
    let mut plan = Plan::new(7, Workload::default(), reference);
    plan.budget = Some(Duration::from_secs(2));
    plan.config.check.shrink_seconds = 600;
    let began = Instant::now();
    let report = check(&mut subject, &plan, &mut Silent).unwrap();
    assert!(!report.findings.is_empty());
    let stats = &report.stats;
    assert!(!stats.investigating.is_zero() && stats.investigating <= stats.elapsed);
    // A quarter more for the first finding, a second for each of the others' ends, and a slow machine.
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
}

/// In a guest with a clock of its own the time for shrinking never ends, and such a campaign did not, either.
#[test]
fn shrinking_ends_after_so_many_operations_where_the_clock_stands_still() {
    let shrunk = |ops_max: Option<u64>| {
        let quirks = Quirks::profile("model").unwrap();
        let reference = Config { quirks, ..Config::default() };
        let mutant = Some(Mutant::ShrinkLostOnRemount);
        let mut subject = ModelSubject::new(Config { mutant, ..reference.clone() }).unwrap();
        let mut plan = Plan::new(7, Workload::default(), reference);
        plan.explore.strategy = Strategy::Walk;
        plan.explore.remounts = Some(Remounts::Every(500));
        plan.config.check.findings_max = 1;
        plan.config.check.shrink_seconds = 600;
        plan.shrink_ops_max = ops_max;
        plan.ops_max = Some(60_000);
        let report = check(&mut subject, &plan, &mut Silent).unwrap();
        report.findings[0].minimal.steps.len()
    };
    let (none, few, all) = (shrunk(Some(0)), shrunk(Some(500)), shrunk(None));
    assert!(none > few && few > all, "{none}, {few}, {all}");
    assert_eq!(shrunk(Some(10_000_000)), all);
}
