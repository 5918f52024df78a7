//! The campaign: search, then look closely at what was found.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use fathom_block::disks::{MemoCounts, PruneCounts};
use fathom_block::{DiskFileSystem, Level};
use fathom_core::partition::Granularity;
use fathom_core::{HarnessFault, Supervision};
use fathom_record::{Variant, VisitedStates};
use serde::{Deserialize, Serialize};

use super::config::{ConfigError, CrashConfig};
use super::finding::{CrashFinding, first_seen, investigate};
use super::flushes::FlushPlace;
use super::judge::{Cause, Class};
use super::ledger::Group;
use super::prefixes::PrefixCounts;
use super::system::CrashSystem;
use crate::coverage::OpCoverage;
use crate::search::{
    self, ActionOrder, Checkpoints, Discovery, Observer, Plan, Progress, SearchError, Strategy,
    search,
};

/// The settings of a crash check.
#[derive(Clone, Debug)]
pub struct CrashPlan {
    /// The workloads, the power failures and the checks.
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
    /// The file in which the search is saved, and whether to go on from it.
    pub checkpoint: Option<(PathBuf, bool)>,
    /// Time between two checkpoints.
    pub checkpoint_every: Duration,
    /// Time for shrinking one finding.
    pub shrink_budget: Duration,
    /// Kernel version and the like, for the records.
    pub labels: BTreeMap<String, String>,
    /// Whether sightings with the same cause are one finding with variants; otherwise every signature
    /// is verified and shrunk for itself.
    pub group: bool,
    /// Reads along, and may ask for the end.
    pub supervision: Supervision,
    /// Receives every state that is visited.
    pub states: VisitedStates,
    /// The order in which the steps of a workload are tried.
    pub order: ActionOrder,
}

/// The result of a crash check.
#[derive(Clone, Debug)]
pub struct CrashReport {
    /// States, transitions, why it ended.
    pub search: search::Report,
    /// Levels that were enumerated.
    pub levels: Vec<Level>,
    /// Distinct images judged.
    pub crash_images: u64,
    /// Images that were enumerated, equal ones included.
    pub enumerated: u64,
    /// The number of workloads, in a check of given ones.
    pub workloads: Option<WorkloadCounts>,
    /// The numbers of images that were examined and that the memo answered.
    pub memo: MemoCounts,
    /// The number of images that differ from an examined one only where that was not read.
    pub pruned: PruneCounts,
    /// How often the rest of an examination, after the first look, was known from another one.
    pub rests: PruneCounts,
    /// What was known of the beginnings of workloads.
    pub prefixes: PrefixCounts,
    /// The findings, the worst first.
    pub findings: Vec<CrashFinding>,
    /// Goals that a good run reaches and this one did not.
    pub goals_missed: Vec<&'static str>,
    /// The inputs and outputs that the workloads have exercised.
    pub coverage: OpCoverage,
}

/// The number of workloads that a check executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadCounts {
    /// All of them.
    pub workloads: u64,
    /// Those that the file system could not follow: an operation that it does not have, a full disk.
    pub not_followed: u64,
    /// Operations.
    pub ops: u64,
    /// The last one, if the time was over before all of its disks were examined: the power failed only in its
    /// beginning.
    pub cut_short: u64,
    /// Crash states that were left out: [`CrashConfig::workload_states_max`].
    pub left_out: u64,
    /// Operations that were left out before, by whoever made the workloads fit the file system.
    pub ops_left_out: u64,
}

/// Goals that every run should reach: otherwise it has tested less than it seems.
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
    subject: &dyn DiskFileSystem,
    plan: &CrashPlan,
    observer: &mut dyn fathom_record::Observer,
) -> Result<CrashReport, CrashError> {
    plan.config.validate()?;
    let system = CrashSystem::on(Box::new(subject), &plan.config)?.supervised(&plan.supervision);
    let mut watcher = Watcher::new(&system, subject, plan, observer);
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
        order: plan.order,
        states: plan.states.clone(),
        ..Plan::default()
    };
    let report = search(&system, &plan.strategy, &search_plan, &mut watcher);
    // Whatever comes next: what was found is told.
    watcher.tell_new();
    let told = watcher.told;
    let report = report?;
    if let Some(fault) = system.fault() {
        return Err(fault.into());
    }
    conclude(&system, subject, plan, &told, report, observer)
}

/// Looks closely at what a check has found, and reports it.
pub(super) fn conclude(
    system: &CrashSystem<'_>,
    subject: &dyn DiskFileSystem,
    plan: &CrashPlan,
    told: &BTreeMap<Cause, Told>,
    report: search::Report,
    observer: &mut dyn fathom_record::Observer,
) -> Result<CrashReport, CrashError> {
    let end = Progress {
        states: report.states,
        transitions: report.transitions,
        depth: report.states_by_depth.len().saturating_sub(1),
        open: report.states_open,
        elapsed: report.elapsed,
        ..Progress::default()
    };
    // The search is over: nothing can be stopped any more.
    let _ = observer.progress(&progress(system, plan, &end));
    let (crash_images, memo) = (system.ledger.images.len(), system.memo.counts());
    let (reached, coverage) = (system.ledger.reached(), system.ledger.recorded());
    let mut findings = Vec::new();
    for (cause, group, others) in causes(system, plan.group) {
        let told_as = |cause| told.get(cause).and_then(|told| told.id.as_deref());
        let members = || std::iter::once(&cause).chain(others.iter().map(|(cause, _)| cause));
        let seen_as: Vec<&str> = members().filter_map(told_as).collect();
        let variants = others.iter().map(variant).collect();
        // Whoever wants the end does not wait for the shortest way.
        let hurry = plan.supervision.as_ref().is_some_and(|by| by.wants_the_end());
        let shrink_budget = if hurry { Duration::ZERO } else { plan.shrink_budget };
        let plan = &CrashPlan { shrink_budget, ..plan.clone() };
        let finding = investigate(system, subject, cause.clone(), &group, variants, plan)?;
        let record = finding.record();
        observer.finding(&record, seen_as.first().copied());
        // At first it seemed to be more than one.
        seen_as.iter().skip(1).for_each(|id| observer.finding(&record, Some(id)));
        findings.push(finding);
    }
    Ok(CrashReport {
        levels: system.levels().to_vec(),
        crash_images,
        enumerated: system.enumerated(),
        workloads: None,
        memo,
        pruned: system.memo.pruned(),
        rests: system.rests(),
        prefixes: system.prefixes.counts(),
        findings,
        goals_missed: GOALS.into_iter().filter(|goal| !reached.iter().any(|r| r == goal)).collect(),
        search: report,
        coverage,
    })
}

/// Names a search: what a checkpoint must have in common with the run that resumes it. A deeper
/// search may go on from a shallower one.
fn label(subject: &dyn DiskFileSystem, config: &CrashConfig) -> String {
    let config = CrashConfig { depth: 0, ..config.clone() };
    let config = serde_json::to_string(&config).expect("plain data");
    let geometry = serde_json::to_string(&subject.geometry()).expect("plain data");
    format!("crash {} {} {geometry} {config}", subject.name(), subject.version())
}

/// The key by which sightings become one finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GroupKey {
    /// A flush is missing: of which class its consequences are is chance, and which operation was
    /// interrupted, too.
    MissingFlush(FlushPlace),
    /// The kind of power failure that is needed, and the class of what it leaves.
    Class(Option<Level>, Class),
    /// Also what is wrong, and what was done last to what is wrong; when the power failed is chance. For
    /// workloads that somebody else has made, where one class has many causes.
    Place(Option<Level>, Class, String),
    /// A cause by itself: nothing is grouped.
    Single(Cause),
}

fn key(system: &CrashSystem<'_>, cause: &Cause, level: Option<Level>, group: bool) -> GroupKey {
    let reordered = matches!(level, Some(Level::Epoch | Level::Lost));
    match &cause.unflushed {
        _ if !group => GroupKey::Single(cause.clone()),
        Some(unflushed) if reordered => GroupKey::MissingFlush(system.ledger.place_of(unflushed)),
        _ if !system.is_deterministic() => GroupKey::Place(level, cause.class, cause.place.clone()),
        _ => GroupKey::Class(level, cause.class),
    }
}

/// A signature of a cause with all its sightings.
type Member = (Cause, Group);

/// Groups what was found by cause: the best sighting of each, and the others that have the same cause.
fn causes(system: &CrashSystem<'_>, group: bool) -> Vec<(Cause, Group, Vec<Member>)> {
    let mut causes: BTreeMap<_, Vec<Member>> = BTreeMap::new();
    for (cause, sightings) in system.ledger.groups.snapshot() {
        let key = key(system, &cause, sightings.level_needed(), group);
        causes.entry(key).or_default().push((cause, sightings));
    }
    let mut found = Vec::new();
    for (_, mut members) in causes {
        let best = (1..members.len()).fold(0, |best, index| {
            if members[index].1.is_better_than(&members[best].1) { index } else { best }
        });
        let (cause, sightings) = members.remove(best);
        found.push((cause, sightings, members));
    }
    found.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    found
}

fn variant((cause, group): &Member) -> Variant {
    Variant {
        signature: cause.to_string(),
        class: cause.class.name(),
        sightings: group.images.len() as u64,
        run: group.best.script.0.iter().map(|event| format!("{event}\n")).collect(),
    }
}

/// Describes the progress of a check for an observer.
fn progress(
    system: &CrashSystem<'_>,
    plan: &CrashPlan,
    search: &Progress,
) -> fathom_record::Progress {
    fathom_record::Progress {
        elapsed: search.elapsed,
        counts: vec![
            ("crash_images", system.ledger.images.len()),
            ("states", search.states),
            ("transitions", search.transitions),
            ("waiting", search.open),
            ("depth", search.depth as u64),
        ],
        share: plan.time_max.map(|max| search.elapsed.as_secs_f64() / max.as_secs_f64()),
        findings: system.ledger.groups.len() as u64,
    }
}

/// Tells what a check finds while it runs.
pub(super) struct Watcher<'a, 'o> {
    system: &'a CrashSystem<'a>,
    subject: &'a dyn DiskFileSystem,
    plan: &'a CrashPlan,
    observer: &'o mut dyn fathom_record::Observer,
    pub(super) told: BTreeMap<Cause, Told>,
}

/// A record of what was told of a cause when it was first seen.
pub(super) struct Told {
    level: Option<Level>,
    /// The id under which it was told; none if another cause of its group was told before.
    id: Option<String>,
    /// It was not known before.
    news: bool,
}

impl<'a, 'o> Watcher<'a, 'o> {
    /// Nothing was told yet.
    pub(super) fn new(
        system: &'a CrashSystem<'a>,
        subject: &'a dyn DiskFileSystem,
        plan: &'a CrashPlan,
        observer: &'o mut dyn fathom_record::Observer,
    ) -> Watcher<'a, 'o> {
        Watcher { system, subject, plan, observer, told: BTreeMap::new() }
    }
}

impl Watcher<'_, '_> {
    /// Tells what was found since the last time, so that nothing that ends the search loses it.
    pub(super) fn tell_new(&mut self) {
        if self.system.ledger.groups.len() == self.told.len() {
            return;
        }
        for (cause, group) in self.system.ledger.groups.snapshot() {
            if self.told.contains_key(&cause) {
                continue;
            }
            let level = group.level_needed();
            let is_same = |(told, about): (&Cause, &Told)| {
                let key = |cause, level| key(self.system, cause, level, self.plan.group);
                key(told, about.level) == key(&cause, level)
            };
            let (mut id, mut news) = (None, false);
            if !self.told.iter().any(is_same) {
                let first = first_seen(self.subject, cause.clone(), &group, self.plan);
                news = self.observer.seen(&first.record());
                id = Some(first.record.id);
            }
            self.told.insert(cause, Told { level, id, news });
        }
    }
}

impl Observer for Watcher<'_, '_> {
    fn progress(&mut self, search: &Progress) -> ControlFlow<()> {
        self.tell_new();
        let asked = self.plan.supervision.as_ref().is_some_and(|by| by.wants_the_end());
        if asked || self.plan.stop_at_first && self.told.values().any(|told| told.news) {
            return ControlFlow::Break(());
        }
        let ledger = &self.system.ledger;
        self.observer.coverage(&|| ledger.recorded().partitions(Granularity::Powers));
        self.observer.progress(&progress(self.system, self.plan, search))
    }

    fn discovery(&mut self, _: &Discovery) {}
}
