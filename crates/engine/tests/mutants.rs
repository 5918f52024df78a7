//! Every bug that can be switched on in the reference is found; without one it is never accused.

mod common;

use std::time::Duration;

use common::plan;
use fathom_engine::{ReplayVerdict, Silent, Strategy, check, replay};
use fathom_model::{Config, ModelSubject, Mutant, Quirks};

fn subject(config: Config) -> ModelSubject {
    ModelSubject::new(config).expect("the configuration works")
}

#[test]
fn a_walk_finds_every_mutant_and_its_trace_replays() {
    every_mutant_is_found(Strategy::Walk, 200_000);
}

#[test]
fn a_tour_finds_every_mutant_and_its_trace_replays() {
    every_mutant_is_found(Strategy::Tour, 400_000);
}

fn every_mutant_is_found(strategy: Strategy, ops: u64) {
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        let mut plan = plan(1, ops);
        plan.explore.strategy = strategy;
        plan.reference.quirks = Quirks::profile("model").expect("it is built in");
        plan.budget = Some(Duration::from_secs(60));
        let mut subject = subject(Config { mutant: Some(*mutant), ..plan.reference.clone() });
        let report = check(&mut subject, &plan, &mut Silent).expect("the harness works");
        let Some(finding) = report.findings.first() else {
            missed.push(mutant.name());
            continue;
        };
        println!(
            "{:32} {:>6} ops, minimal {:>2}: {}",
            mutant.name(),
            report.stats.ops,
            finding.minimal.steps.len(),
            finding.signature
        );
        let verdict = replay(&mut subject, &finding.minimal).unwrap().verdict;
        assert_eq!(verdict, ReplayVerdict::Reproduced, "{}: {finding}", mutant.name());
    }
    assert_eq!(missed, Vec::<&str>::new());
}

#[test]
fn the_unmutated_model_is_never_accused() {
    for (seed, strategy) in (1..=5).flat_map(|seed| {
        [Strategy::Walk, Strategy::Tour, Strategy::Dfs].map(|strategy| (seed, strategy))
    }) {
        let mut plan = plan(seed, 20_000);
        plan.explore.strategy = strategy;
        plan.reference.quirks = Quirks::profile("model").expect("it is built in");
        let report = check(&mut subject(plan.reference.clone()), &plan, &mut Silent).unwrap();
        assert!(report.findings.is_empty(), "{}", report.findings[0]);
    }
}
