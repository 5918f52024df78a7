//! The crash checker on a toy file system: clean while the toy is correct, and every mutant found.

mod bug;
mod clean;
mod imported;
mod interruption;
mod memo;
mod mutants;
mod promise;
mod records;
mod seams;
mod toy;
mod twice;

use std::collections::BTreeMap;
use std::sync::Once;
use std::time::Duration;

use fathom_block::{Bounds, InProcess};
use fathom_core::partition::{Coverage, Granularity, Hit};
use fathom_engine::Silent;
use fathom_engine::crash::config::{Identity, Points};
use fathom_engine::crash::workload::StepKind;
use fathom_engine::crash::{
    Class, CrashConfig, CrashFinding, CrashPlan, CrashReport, crash, quiet_panics,
};
use fathom_engine::search::Strategy;

use toy::Toy;

const THREADS: [usize; 3] = [1, 2, 4];

/// The settings that the numbers in these tests belong to, whatever the defaults of the program are.
fn base() -> CrashConfig {
    use StepKind::{Mkdir, Move, Put, Remount, Rename, Replace, Rewrite, Rmdir, Unlink};
    CrashConfig {
        depth: 4,
        crashes: 1,
        levels: Vec::new(),
        points: Points::All,
        prefixes: true,
        workload_states_max: 0,
        bounds: Bounds::default(),
        identity: Identity::Shape,
        remember: 2,
        steps: vec![Put, Mkdir, Rewrite, Rename, Replace, Move, Unlink, Rmdir, Remount],
        names: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
        sizes: vec![10, 300],
        dirs_deep_max: 1,
        open_max: 1,
        probe: true,
        fsck: true,
        recheck: true,
    }
}

fn plan(config: &CrashConfig) -> CrashPlan {
    CrashPlan {
        config: config.clone(),
        strategy: Strategy::Bfs,
        threads: 1,
        time_max: None,
        states_max: None,
        memory_max_bytes: None,
        stop_at_first: false,
        checkpoint: None,
        checkpoint_every: Duration::from_millis(1),
        shrink_budget: Duration::from_secs(10),
        labels: BTreeMap::new(),
        group: false,
        supervision: None,
        states: Default::default(),
        order: Default::default(),
    }
}

fn run(toy: &Toy, plan: &CrashPlan) -> CrashReport {
    static QUIET: Once = Once::new();
    QUIET.call_once(quiet_panics);
    crash(&InProcess::new(toy), plan, &mut Silent).expect("a sound plan")
}

fn check(toy: &Toy, config: &CrashConfig) -> CrashReport {
    run(toy, &plan(config))
}

/// What a report says, as far as it must be the same in every run.
#[derive(Debug, PartialEq)]
struct Result {
    states: u64,
    transitions: u64,
    crash_images: u64,
    /// The ids with the number of images, and the whole story.
    findings: Vec<(String, u64, String)>,
    /// The partitions that were exercised.
    coverage: Vec<Hit>,
}

/// How often each partition was exercised. A search that is interrupted may try a step again.
fn counts(report: &CrashReport) -> Coverage {
    report.coverage.partitions(Granularity::Boundaries)
}

impl From<&CrashReport> for Result {
    fn from(report: &CrashReport) -> Result {
        let told = |finding: &CrashFinding| {
            (finding.record.id.clone(), finding.record.count, finding.to_string())
        };
        Result {
            states: report.search.states,
            transitions: report.search.transitions,
            crash_images: report.crash_images,
            findings: report.findings.iter().map(told).collect(),
            coverage: counts(report).hits().map(|(hit, _)| *hit).collect(),
        }
    }
}

/// The finding of a class in an operation.
fn find(report: &CrashReport, class: Class, op: &str) -> CrashFinding {
    let found = report
        .findings
        .iter()
        .find(|finding| finding.record.cause.class == class && finding.record.cause.op == op);
    let causes: Vec<String> =
        report.findings.iter().map(|finding| finding.record.cause.to_string()).collect();
    found.unwrap_or_else(|| panic!("no {class} in {op}: {causes:?}")).clone()
}
