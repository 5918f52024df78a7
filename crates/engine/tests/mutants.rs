//! Every bug that can be switched on in the reference is found; without one it is never accused.

mod common;

use std::time::Duration;

use common::plan;
use fathom_core::Subject;
use fathom_engine::{ReplayVerdict, Silent, Strategy, check, replay};
use fathom_generate::Generator;
use fathom_generate::choice::Choices;
use fathom_model::{Config, Model, ModelSubject, Mutant, Quirks};

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

/// Operations per seed: with fewer, the mutants that go wrong only late are not met.
const OPS_WITHOUT_JUDGE: u64 = 4_000;

/// A campaign ends at the first finding; a served file system with a bug goes on. So do these: nobody
/// judges, and the bug goes on being wrong on top of what it did before.
#[test]
fn no_mutant_panics_however_long_it_goes_on() {
    let mut panics = Vec::new();
    std::panic::set_hook(Box::new(|_| {}));
    for mutant in Mutant::ALL {
        for seed in 1..=20 {
            let done = std::panic::catch_unwind(|| go_on(*mutant, seed));
            if done.is_err() {
                panics.push((mutant.name(), seed));
            }
        }
    }
    let _ = std::panic::take_hook();
    assert_eq!(panics, Vec::<(&str, u64)>::new());
}

fn go_on(mutant: Mutant, seed: u64) {
    let quirks = Quirks::profile("model").expect("it is built in");
    let reference = Config { quirks, ..plan(seed, 1).reference };
    let mut right = Model::new(reference.clone()).expect("the configuration works");
    let mut wrong = subject(Config { mutant: Some(mutant), ..reference });
    let config = plan(seed, 1).config;
    let mut generator = Generator::new(Choices::new(seed), config, wrong.capabilities());
    for _ in 0..OPS_WITHOUT_JUDGE {
        let op = generator.next(&right);
        if right.unspecified(&op).is_some() {
            continue;
        }
        let expected = right.execute(&op);
        generator.note(&op, &expected, &right);
        wrong.apply(&op).expect("the harness works");
        wrong.observe().expect("the harness works");
    }
}
