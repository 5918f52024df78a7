//! Layered workloads in a check: nothing false is said, and what is found becomes short.

use fathom_engine::{Plan, Silent, Workload, check};
use fathom_generate::Config;
use fathom_generate::layered::Preset;
use fathom_model::{ModelSubject, Mutant};

fn checked(config: fathom_model::Config, ops: u64) -> fathom_engine::Report {
    let mut subject = ModelSubject::new(config).unwrap();
    let mut plan = Plan::new(1, Config::default(), fathom_model::Config::default());
    plan.workload = Workload::Layered(Box::new(Preset::named("default").unwrap()));
    plan.ops_max = Some(ops);
    plan.config.check.findings_max = 1;
    // Shrinking ends by itself; a busy machine must not end it.
    plan.config.check.shrink_seconds = 120;
    check(&mut subject, &plan, &mut Silent).unwrap()
}

#[test]
fn a_correct_file_system_is_not_accused() {
    let report = checked(fathom_model::Config::default(), 30_000);
    let found: Vec<String> = report.findings.iter().map(|f| f.signature.to_string()).collect();
    assert!(found.is_empty(), "{found:?}");
    assert!(report.stats.ops >= 30_000);
    // Samples are rare, and the last workload is cut short: 45 entries and 5 levels with this seed.
    let grown = report.structure.iter().any(|tree| tree.depth > 3 && tree.entries > 40);
    assert!(grown, "{:?}", report.structure);
}

/// What only a rename over a name shows, what only attributes of what is renamed do, and what their flags do.
#[test]
fn replaced_names_and_attributes_are_part_of_it() {
    for mutant in [Mutant::RenameNlink, Mutant::XattrLostOnRename, Mutant::XattrReplaceCreates] {
        let mutant = Some(mutant);
        let config = fathom_model::Config { mutant, ..fathom_model::Config::default() };
        let report = checked(config, 100_000);
        let [finding] = &report.findings[..] else { panic!("{mutant:?} was not found") };
        assert!(finding.minimal.steps.len() <= 6, "{mutant:?}: {:#?}", finding.minimal.steps);
    }
}

/// A finding of thousands of calls becomes a few lines.
#[test]
fn a_finding_is_shrunk_by_commands_first() {
    let config = fathom_model::Config {
        mutant: Some(Mutant::RenameDirNlink),
        ..fathom_model::Config::default()
    };
    let report = checked(config, 100_000);
    let [finding] = &report.findings[..] else { panic!("not found: {:?}", report.findings.len()) };
    assert!(finding.minimal.steps.len() <= 4, "{:#?}", finding.minimal.steps);
}
