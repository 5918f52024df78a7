//! The campaign: search, then look closely at what was found.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use fathom_block::disks::MemoCounts;
use fathom_block::{BlockBacked, Level};
use fathom_core::{HarnessFault, Supervision};

use super::config::{ConfigError, CrashConfig};
use super::finding::{CrashFinding, investigate};
use super::judge::Cause;
use super::system::CrashSystem;
use crate::coverage::OpCoverage;
use crate::search::{
    self, Checkpoints, Discovery, Observer, Plan, Progress, SearchError, Strategy, search,
};

/// What is to be done.
#[derive(Clone, Debug)]
pub struct CrashPlan {
    /// What is explored.
    pub config: CrashConfig,
    /// bfs, dfs or random walks.
    pub strategy: Strategy,
    /// Threads; 0: one per core.
    pub threads: usize,
    /// Stop after this time.
    pub time_max: Option<Duration>,
    /// Stop before visiting more states.
    pub states_max: Option<u64>,
    /// Stop when the process occupies so much memory.
    pub memory_max_bytes: Option<u64>,
    /// Stop as soon as something was found.
    pub stop_at_first: bool,
    /// Where the search is saved, and whether to go on from there.
    pub checkpoint: Option<(PathBuf, bool)>,
    /// Time between two checkpoints.
    pub checkpoint_every: Duration,
    /// Time for shrinking one finding.
    pub shrink_budget: Duration,
    /// Kernel version and the like, for the records.
    pub labels: BTreeMap<String, String>,
    /// Who reads along, and may ask for the end.
    pub supervision: Supervision,
}

/// Where a check is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Since the start.
    pub elapsed: Duration,
    /// Different states.
    pub states: u64,
    /// Steps taken.
    pub transitions: u64,
    /// The longest workload so far.
    pub depth: usize,
    /// States that wait.
    pub open: u64,
    /// Distinct images judged.
    pub crash_images: u64,
    /// Causes found.
    pub findings: u64,
}

/// Is told how it goes.
pub trait CrashObserver {
    /// A few times per second; `Break` stops (and saves) the search.
    fn progress(&mut self, sample: &Sample) -> ControlFlow<()>;

    /// A finding is being verified and shrunk.
    fn investigating(&mut self, cause: &Cause);
}

/// What came out.
#[derive(Clone, Debug)]
pub struct CrashReport {
    /// States, transitions, why it ended.
    pub search: search::Report,
    /// Levels that were enumerated.
    pub levels: Vec<Level>,
    /// Distinct images judged.
    pub crash_images: u64,
    /// How many images were examined, and how many answered from the memo.
    pub memo: MemoCounts,
    /// How it went.
    pub samples: Vec<Sample>,
    /// What is wrong, worst first.
    pub findings: Vec<CrashFinding>,
    /// What a good run reaches and this one did not.
    pub goals_missed: Vec<&'static str>,
    /// The inputs and outputs that the workloads have exercised.
    pub coverage: OpCoverage,
}

/// What every run should reach: otherwise it has tested less than it seems.
const GOALS: [&str; 2] = ["recovery wrote to the device", "the disk was full"];

/// Why a check could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CrashError {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The search could not be made or resumed.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// The harness failed.
    #[error(transparent)]
    Harness(#[from] HarnessFault),
}

/// Checks a subject.
///
/// # Errors
/// If the plan cannot work or the harness fails.
pub fn crash(
    subject: &dyn BlockBacked,
    plan: &CrashPlan,
    observer: &mut dyn CrashObserver,
) -> Result<CrashReport, CrashError> {
    plan.config.validate()?;
    let system = CrashSystem::new(subject, &plan.config)?.supervised(&plan.supervision);
    let mut watcher = Watcher {
        system: &system,
        observer,
        samples: Vec::new(),
        stop_at_first: plan.stop_at_first,
        supervision: &plan.supervision,
    };
    let search_plan = Plan {
        threads: plan.threads,
        depth_max: Some(plan.config.depth),
        states_max: plan.states_max,
        memory_max_bytes: plan.memory_max_bytes,
        time_max: plan.time_max,
        stop_at_first: false,
        checkpoints: plan.checkpoint.as_ref().map(|(path, resume)| Checkpoints {
            path: path.clone(),
            label: label(subject, &plan.config),
            every: plan.checkpoint_every,
            resume: *resume,
        }),
        ..Plan::default()
    };
    let report = search(&system, &plan.strategy, &search_plan, &mut watcher)?;
    if let Some(fault) = system.fault() {
        return Err(fault.into());
    }
    let mut samples = watcher.samples;
    samples.push(Sample {
        elapsed: report.elapsed,
        states: report.states,
        transitions: report.transitions,
        depth: report.states_by_depth.len().saturating_sub(1),
        open: report.states_open,
        crash_images: system.ledger.images.len(),
        findings: system.ledger.groups.len() as u64,
    });
    let (crash_images, memo) = (system.ledger.images.len(), system.memo.counts());
    let (reached, coverage) = (system.ledger.reached(), system.ledger.recorded());
    let mut findings = Vec::new();
    for (cause, group) in system.ledger.groups.snapshot() {
        observer.investigating(&cause);
        // Who wants the end does not wait for the shortest way.
        let hurry = plan.supervision.as_ref().is_some_and(|by| by.wants_the_end());
        let shrink_budget = if hurry { Duration::ZERO } else { plan.shrink_budget };
        let plan = &CrashPlan { shrink_budget, ..plan.clone() };
        findings.push(investigate(&system, subject, cause, &group, plan)?);
    }
    Ok(CrashReport {
        levels: system.levels().to_vec(),
        crash_images,
        memo,
        samples,
        findings,
        goals_missed: GOALS.into_iter().filter(|goal| !reached.iter().any(|r| r == goal)).collect(),
        search: report,
        coverage,
    })
}

/// Names a search: what a checkpoint must have in common with the run that resumes it. A deeper
/// search may go on from a shallower one.
fn label(subject: &dyn BlockBacked, config: &CrashConfig) -> String {
    let config = CrashConfig { depth: 0, ..config.clone() };
    let config = serde_json::to_string(&config).expect("plain data");
    let geometry = serde_json::to_string(&subject.geometry()).expect("plain data");
    format!("crash {} {} {geometry} {config}", subject.name(), subject.version())
}

/// Samples of a chart; beyond this every second one is dropped.
const SAMPLES_MAX: usize = 2000;

struct Watcher<'a, 'o> {
    system: &'a CrashSystem<'a>,
    observer: &'o mut dyn CrashObserver,
    samples: Vec<Sample>,
    stop_at_first: bool,
    supervision: &'a Supervision,
}

impl Observer for Watcher<'_, '_> {
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()> {
        let ledger = &self.system.ledger;
        let sample = Sample {
            elapsed: progress.elapsed,
            states: progress.states,
            transitions: progress.transitions,
            depth: progress.depth,
            open: progress.open,
            crash_images: ledger.images.len(),
            findings: ledger.groups.len() as u64,
        };
        if self.samples.len() == SAMPLES_MAX {
            let mut index = 0;
            self.samples.retain(|_| {
                index += 1;
                index % 2 == 0
            });
        }
        self.samples.push(sample);
        let asked = self.supervision.as_ref().is_some_and(|by| by.wants_the_end());
        if asked || self.stop_at_first && sample.findings > 0 {
            return ControlFlow::Break(());
        }
        self.observer.progress(&sample)
    }

    fn discovery(&mut self, _: &Discovery) {}
}
