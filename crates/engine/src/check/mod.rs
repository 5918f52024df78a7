//! The campaign: generate, execute on all sides, judge, and look closer at what is wrong.
//!
//! [`Exploration`] says in which order states are visited: a [`tour`], depth first ([`dfs`]) or a
//! random [`walk`]. All of them share what is here: one step, the maintenance between steps, and what
//! happens when something is wrong.

pub mod call_monitor;
mod dfs;
pub mod explore;
pub mod finding;
pub mod goals;
mod layered;
mod lineup;
mod maintenance;
mod map;
pub mod oracle;
pub mod replay;
pub mod rerun;
pub mod side_by_side;
pub mod stats;
pub mod structure;
mod tour;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fathom_core::partition::Granularity;
use fathom_core::{Capability, HarnessFault, Op, RestoreMethod, Supervision, Testbed, Violation};
use fathom_record::pace::Moment;
use fathom_record::{Observer, Progress, VisitedStates};

use crate::check::call_monitor::OnStuck;
use crate::check::finding::investigate::{Case, first_seen, hang, investigate};
use crate::check::finding::{Disks, Finding};
use crate::check::oracle::Signature;
use crate::check::side_by_side::Inspection;
use crate::check::stats::{Goals, Stats};
use crate::check::structure::{Samples, Structure};
use crate::coverage::OpCoverage;
use fathom_generate::choice::Choices;
use fathom_generate::layered::Preset;
use fathom_generate::{Config, Generator};
use layered::{LayeredRun, LookBudget};
use lineup::{Accusation, Lineup};
use maintenance::MaintenanceSchedule;

pub use explore::{Exploration, Remounts, RestorePolicy, Strategy};
pub use lineup::Participant;

/// The interval at which an observer is told of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Time for shrinking a finding, however little is left.
const SHRINK_SECONDS_MIN: u64 = 1;

/// Looking at the clock takes as long as a cheap operation; it is looked at once in so many.
const CLOCK_EVERY: u64 = 16;

/// Everything that decides a campaign.
#[derive(Clone)]
pub struct Plan {
    /// Seed of the one choice stream.
    pub seed: u64,
    /// The workload.
    pub config: Config,
    /// The reference of the first participant.
    pub reference: fathom_model::Config,
    /// The exploration: strategy and bounds.
    pub explore: Exploration,
    /// Ends after so many operations.
    pub ops_max: Option<u64>,
    /// Ends after this time; verifying and shrinking a finding may take longer.
    pub budget: Option<Duration>,
    /// Looking for a shorter way to a finding ends after so many operations: where the clock stands still, the
    /// time for it never ends.
    pub shrink_ops_max: Option<u64>,
    /// Where operations come from.
    pub workload: Workload,
    /// The file in which the map of a tour is kept, and whether to go on with it.
    pub map: Option<(PathBuf, bool)>,
    /// Labels of every finding: kernel version, profile, ….
    pub labels: BTreeMap<String, String>,
    /// What to do when a call does not return even after the rescue; by default nothing but to go on
    /// waiting.
    pub on_stuck: OnStuck,
    /// The supervisor, who reads along and may ask for the end.
    pub supervision: Supervision,
    /// Receives the digest of every tree.
    pub states: VisitedStates,
}

impl Plan {
    /// A plan without limits.
    pub fn new(seed: u64, config: Config, reference: fathom_model::Config) -> Plan {
        Plan {
            seed,
            config,
            reference,
            explore: Exploration::default(),
            ops_max: None,
            budget: None,
            shrink_ops_max: None,
            workload: Workload::Ops,
            map: None,
            labels: BTreeMap::new(),
            on_stuck: Arc::new(|_, _| {}),
            supervision: None,
            states: VisitedStates::default(),
        }
    }
}

/// Where operations come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Workload {
    /// Single operations and short sequences of them, by the strategy.
    #[default]
    Ops,
    /// Long layered workloads, one after the other.
    Layered(Box<Preset>),
    /// The workloads that the paper of layered workloads prints, once each.
    Printed,
}

/// The result of a campaign.
#[derive(Clone, Debug)]
pub struct Report {
    /// The counts of what was done.
    pub stats: Stats,
    /// The images and the findings so far.
    pub findings: Vec<Finding>,
    /// Goals of the workload that were never reached.
    pub never: Vec<String>,
    /// The inputs and outputs that the first subject has seen.
    pub coverage: OpCoverage,
    /// Every operation with the errors that it should meet in a long run.
    pub goals: Goals,
    /// The largest structures over time.
    pub structure: Vec<Structure>,
    /// When each of the findings was seen first.
    pub seen_first: Vec<SeenFirst>,
    /// The observer ended it.
    pub stopped: bool,
}

/// When something was seen first in a campaign.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SeenFirst {
    /// Operations until then.
    pub ops: u64,
    /// Seconds since the start, for whoever waits outside of a guest.
    pub seconds: f64,
}

/// Compares `subject` with the reference until a limit of the plan is reached.
///
/// # Errors
/// If the harness fails; that is never a finding.
pub fn check(
    subject: &mut dyn Testbed,
    plan: &Plan,
    observer: &mut dyn Observer,
) -> Result<Report, HarnessFault> {
    check_all(vec![Participant { subject, reference: plan.reference.clone() }], plan, observer)
}

/// Compares all participants, each with its own reference, and lets them vote on who is wrong. The first
/// one decides the workload's reference.
///
/// # Errors
/// If the harness fails; that is never a finding.
pub fn check_all(
    participants: Vec<Participant<'_>>,
    plan: &Plan,
    observer: &mut dyn Observer,
) -> Result<Report, HarnessFault> {
    // Only what all of them can do is asked of any.
    let can = |participant: &Participant<'_>| participant.subject.capabilities();
    let capabilities: BTreeSet<Capability> = participants
        .iter()
        .map(can)
        .reduce(|all, some| all.intersection(&some).copied().collect())
        .unwrap_or_default();
    let mut config = plan.config.clone();
    if plan.explore.strategy != Strategy::Walk && config.data.patterns == 0 {
        config.data.patterns = explore::PATTERNS;
    }
    let disks = participants.iter().map(|_| Disks::default()).collect();
    let remountable = capabilities.contains(&Capability::Remount);
    let times = plan.config.check.times;
    let campaign = Campaign {
        plan,
        generator: Generator::new(Choices::new(plan.seed), config.clone(), capabilities),
        config,
        lineup: Lineup::start(
            participants,
            times,
            &plan.explore,
            &plan.on_stuck,
            &plan.supervision,
        )?,
        maintenance: MaintenanceSchedule::new(&plan.explore, remountable, plan.seed),
        observer,
        started: Instant::now(),
        told: Instant::now(),
        asked: 0,
        over: false,
        stopped: false,
        since_tree: 0,
        since_disk: 0,
        disks,
        stats: Stats::default(),
        seen: BTreeMap::new(),
        findings: Vec::new(),
        coverage: OpCoverage::default(),
        layered_run: None,
        look_budget: LookBudget::default(),
        structure: Samples::start(),
        began: Moment::now(),
        seen_first: Vec::new(),
        accused: SeenFirst::default(),
    };
    campaign.run()
}

struct Campaign<'a, 'b> {
    plan: &'a Plan,
    config: Config,
    generator: Generator,
    lineup: Lineup<'b>,
    maintenance: MaintenanceSchedule,
    observer: &'a mut dyn Observer,
    started: Instant,
    /// The moment at which the observer was last told of progress.
    told: Instant,
    /// The number of times that it was asked whether it is over.
    asked: u64,
    over: bool,
    /// The observer wants no more.
    stopped: bool,
    /// Operations since the whole trees were compared.
    since_tree: u64,
    /// Operations since the disks were kept.
    since_disk: u64,
    /// The kept disks of each participant.
    disks: Vec<Disks>,
    stats: Stats,
    /// The index of each finding, by every signature that it was seen as.
    seen: BTreeMap<Signature, usize>,
    findings: Vec<Finding>,
    coverage: OpCoverage,
    /// The layered workload that is being executed.
    layered_run: Option<LayeredRun>,
    look_budget: LookBudget,
    /// The largest structures over time.
    structure: Samples,
    /// The start, for whoever waits outside of a guest.
    began: Moment,
    /// When each finding was seen first.
    seen_first: Vec<SeenFirst>,
    /// When the accusation came that is being looked at.
    accused: SeenFirst,
}

/// The end of a meta-operation, of the maintenance after it or of a last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "after a divergence the subjects are in an unknown state"]
enum StepResult {
    /// Everything was as expected.
    AsExpected,
    /// Something is wrong, and was looked at closely: the subjects are in an unknown state, and must
    /// start again or go back before anything else is done with them.
    Diverged,
    /// The operations are used up in the middle of it.
    OutOfOps,
}

impl Campaign<'_, '_> {
    fn run(mut self) -> Result<Report, HarnessFault> {
        self.compare_empty()?;
        let ended = match (&self.plan.workload, self.plan.explore.strategy) {
            (Workload::Layered(preset), _) => self.layered(preset),
            (Workload::Printed, _) => self.printed(),
            (Workload::Ops, Strategy::Tour) => self.tour(),
            (Workload::Ops, Strategy::Dfs) => self.dfs(),
            (Workload::Ops, Strategy::Walk) => self.walk(),
        };
        // What was done and found so far is told also if the harness has failed.
        self.tell();
        self.structure.take(self.lineup.model(), self.stats.ops);
        self.tell_sightings();
        ended?;
        let calls: Vec<&str> = self.generator.calls().map(|call| call.name()).collect();
        let (never, goals) = (self.stats.never(&calls), self.stats.goals(&calls));
        let structure = self.structure.into_taken();
        let Campaign { stats, findings, coverage, seen_first, stopped, .. } = self;
        Ok(Report { stats, findings, never, coverage, goals, structure, seen_first, stopped })
    }

    /// Compares the empty file systems, and says once what differs from the start.
    fn compare_empty(&mut self) -> Result<(), HarnessFault> {
        for pair in &mut self.lineup.pairs {
            let name = pair.subject().name();
            for difference in pair.compare_empty()? {
                self.observer.note(&format!(
                    "{name} differs when it is empty, which is not compared: {difference}"
                ));
            }
        }
        Ok(())
    }

    /// Executes one operation on all, looks as closely as it is time for, and counts it.
    fn act(&mut self, op: &Op) -> Result<Option<Accusation>, HarnessFault> {
        self.since_tree += 1;
        let settles = matches!(op, Op::Remount | Op::Wait { .. } | Op::Server { .. });
        let whole = self.since_tree >= self.plan.config.check.tree_every || settles;
        let look = if whole { Inspection::Whole } else { Inspection::Touched };
        self.act_looking(op, look)
    }

    /// Executes one operation on all, looks as closely as is said, and counts it.
    fn act_looking(
        &mut self,
        op: &Op,
        look: Inspection,
    ) -> Result<Option<Accusation>, HarnessFault> {
        let tried = self.lineup.step(op, look)?;
        if tried.skipped {
            return Ok(None);
        }
        if tried.tree_compared {
            self.since_tree = 0;
            self.stats.trees_compared += 1;
        }
        let state = self.lineup.model().digest();
        if self.stats.count(op, &tried.found, state) {
            self.plan.states.add(state.0);
        }
        if self.structure.are_due(self.stats.ops) {
            self.structure.take(self.lineup.model(), self.stats.ops);
        }
        self.coverage.record(op, &tried.found);
        self.generator.note(op, &tried.expected, self.lineup.model());
        Ok(tried.accusation)
    }

    /// Executes a meta-operation.
    fn perform(&mut self, ops: &[Op]) -> Result<StepResult, HarnessFault> {
        self.stats.metas += 1;
        for op in ops {
            if self.is_out_of_ops() {
                self.over = true;
                return Ok(StepResult::OutOfOps);
            }
            if let Some(accusation) = self.act(op)? {
                return self.look_closer(accusation);
            }
        }
        Ok(StepResult::AsExpected)
    }

    /// Remounts, checks and keeps the disk, if it is time.
    fn maintain(&mut self, ops: usize) -> Result<StepResult, HarnessFault> {
        self.since_disk += ops as u64;
        let due = self.since_disk >= self.config.check.disk_every;
        if due && !self.lineup.model().has_open_files() {
            self.since_disk = 0;
            self.keep_disks()?;
        }
        let due = self.maintenance.after(ops as u64, self.calls_per_tree());
        if due.remount
            && !self.is_out_of_ops()
            && let Some(accusation) = self.act(&Op::Remount)?
        {
            return self.look_closer(accusation);
        }
        if due.fsck { self.fsck() } else { Ok(StepResult::AsExpected) }
    }

    /// Keeps the present disks for a finding, where there are disks.
    fn keep_disks(&mut self) -> Result<(), HarnessFault> {
        let max = self.plan.explore.images;
        for (pair, disks) in self.lineup.pairs.iter_mut().zip(&mut self.disks) {
            let methods = pair.subject().restore_methods();
            let Some(method) = methods
                .iter()
                .find(|method| matches!(method, RestoreMethod::Freeze | RestoreMethod::Remount))
            else {
                continue;
            };
            if max > 0 {
                let ops = pair.steps().len();
                let saved = pair.subject().save(*method)?;
                disks.push(pair.subject(), ops, saved, max);
            }
        }
        Ok(())
    }

    fn fsck(&mut self) -> Result<StepResult, HarnessFault> {
        let (checkers, accusation) = self.lineup.fsck()?;
        self.stats.fscks += checkers;
        match accusation {
            Some(accusation) => self.look_closer(accusation),
            None => Ok(StepResult::AsExpected),
        }
    }

    /// Compares the whole trees, unless that has just been done; a server that has ended meanwhile is
    /// noticed in any case.
    fn last_look(&mut self) -> Result<StepResult, HarnessFault> {
        if let Some(accusation) = self.lineup.without_server() {
            return self.look_closer(accusation);
        }
        if self.since_tree == 0 {
            return Ok(StepResult::AsExpected);
        }
        self.since_tree = 0;
        self.stats.trees_compared += 1;
        match self.lineup.walk()? {
            Some(accusation) => self.look_closer(accusation),
            None => Ok(StepResult::AsExpected),
        }
    }

    /// All start again with empty file systems.
    fn restart(&mut self) -> Result<(), HarnessFault> {
        self.stats.episodes += 1;
        self.since_tree = 0;
        self.since_disk = 0;
        self.generator.forget_held();
        for (pair, disks) in self.lineup.pairs.iter_mut().zip(&mut self.disks) {
            disks.clear(pair.subject());
        }
        self.lineup.restart()
    }

    /// Tells, verifies, shrinks and tells again, unless the same was found before.
    fn look_closer(&mut self, accusation: Accusation) -> Result<StepResult, HarnessFault> {
        // Whatever comes next, these trees are not compared any more.
        self.since_tree = 0;
        let seconds = self.began.elapsed().as_secs_f64();
        self.accused = SeenFirst { ops: self.stats.ops, seconds };
        let pair = &mut self.lineup.pairs[accusation.participant];
        if pair.steps().is_empty() {
            return Err(HarnessFault::new(
                format!("{} is wrong before the first operation", pair.subject().name()),
                format!("{:?}", accusation.violation),
            ));
        }
        let steps = pair.steps().to_vec();
        let planned = steps.len();
        let case = Case { steps, violation: accusation.violation, planned };
        let signature = case.signature();
        if let Some(known) = self.seen.get(&signature) {
            self.findings[*known].sightings += 1;
            return Ok(StepResult::Diverged);
        }
        let name = pair.subject().name();
        let disks = self.disks[accusation.participant].read(pair.subject())?;
        self.disks[accusation.participant].clear(pair.subject());
        let mut plan = self.plan.clone();
        plan.labels.extend(accusation.vote.map(|vote| ("vote".to_owned(), vote)));
        plan.config.check.shrink_seconds = self.shrink_seconds();
        plan.reference = self.lineup.pairs[accusation.participant].reference().clone();
        let first = first_seen(&name, &plan, self.stats.episodes, &case, disks.clone());
        if !self.observer().seen(&first.record()) {
            self.seen.insert(signature, self.findings.len());
            self.push(first);
            return Ok(StepResult::Diverged);
        }
        let began = Instant::now();
        if self.is_out_of_time() {
            // The first one is worth more time than was given; others are told as they were seen.
            self.add(first, signature);
            return Ok(StepResult::Diverged);
        }
        let seconds = plan.config.check.shrink_seconds / 2;
        let shorter = self.shorter_by_commands(accusation.participant, &signature, seconds);
        let case = shorter.unwrap_or(case);
        let mut runner = self.lineup.pairs[accusation.participant].runner(&signature);
        let hung = matches!(case.violation, Violation::Hang { .. });
        let ops = case.ops();
        let finding = match investigate(&mut runner, &plan, self.stats.episodes, case, disks) {
            // What has hung once need not come up again; the finding is not lost for that.
            Err(_) if hung => hang(&name, &plan, &ops, plan.explore.deadline),
            // It was seen: a harness that fails afterwards does not undo that.
            Err(fault) => {
                self.add(first, signature);
                return Err(fault);
            }
            Ok(finding) => finding,
        };
        self.stats.investigating += began.elapsed();
        self.settle(finding, signature, &first.id);
        Ok(StepResult::Diverged)
    }

    /// Takes over a finding that was looked at closely, and tells it.
    fn settle(&mut self, finding: Finding, seen: Signature, seen_as: &str) {
        // With rare walks the guilty operation is only known now.
        let same = self.seen.get(&finding.signature).copied();
        let index = match same {
            Some(same) => {
                self.findings[same].sightings += 1;
                self.seen.insert(seen, same);
                same
            }
            None => self.add(finding, seen),
        };
        let record = self.findings[index].record();
        self.observer().finding(&record, Some(seen_as));
    }

    /// Adds a finding; what it was seen as is the same one.
    fn add(&mut self, finding: Finding, seen: Signature) -> usize {
        let index = self.findings.len();
        self.seen.insert(seen, index);
        self.seen.insert(finding.signature.clone(), index);
        self.push(finding);
        self.stats.findings += 1;
        self.over |= self.stats.findings >= self.plan.config.check.findings_max;
        index
    }

    fn push(&mut self, finding: Finding) {
        self.findings.push(finding);
        self.seen_first.push(self.accused);
    }

    /// Time for shrinking the next finding. All of it is part of the budget; only the first finding may
    /// exceed it, by a quarter.
    fn shrink_seconds(&self) -> u64 {
        let seconds = self.plan.config.check.shrink_seconds;
        let Some(budget) = self.plan.budget else { return seconds };
        let left = budget.saturating_sub(self.started.elapsed()).as_secs();
        let least = match self.findings.is_empty() {
            true => (budget / 4).as_secs(),
            false => 0,
        };
        seconds.min(left.max(least).max(SHRINK_SECONDS_MIN))
    }

    /// Whether the budget is used up, and something has been found and looked at already.
    fn is_out_of_time(&self) -> bool {
        !self.findings.is_empty()
            && self.plan.budget.is_some_and(|budget| self.started.elapsed() >= budget)
    }

    /// Whoever is told may write files, as the user who runs the program.
    fn observer(&mut self) -> &mut dyn Observer {
        for pair in &mut self.lineup.pairs {
            pair.subject().step_aside();
        }
        &mut *self.observer
    }

    fn is_out_of_ops(&self) -> bool {
        self.plan.ops_max.is_some_and(|ops_max| self.stats.ops >= ops_max)
    }

    fn is_over(&mut self) -> bool {
        self.asked += 1;
        self.over |= self.is_out_of_ops();
        let stopped = self.plan.supervision.as_ref().is_some_and(|by| by.wants_the_end());
        self.stats.interrupted |= stopped;
        self.over |= stopped;
        if self.asked % CLOCK_EVERY == 1 {
            let elapsed = self.started.elapsed();
            self.stats.elapsed = elapsed;
            self.over |= self.plan.budget.is_some_and(|budget| elapsed >= budget);
            if self.told.elapsed() >= PROGRESS_EVERY {
                self.tell();
            }
        }
        self.over
    }

    /// Returns the counts, with the kinds of inputs and outputs that were exercised.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        let mut counts = self.stats.counts();
        counts.push(("inputs_and_outputs", self.coverage.seen().len() as u64));
        counts
    }

    fn tell(&mut self) {
        self.told = Instant::now();
        self.stats.elapsed = self.started.elapsed();
        let seconds = self.stats.elapsed.as_secs_f64();
        let share = match (self.plan.ops_max, self.plan.budget) {
            (Some(ops_max), _) => Some(self.stats.ops as f64 / ops_max as f64),
            (None, Some(budget)) => Some(seconds / budget.as_secs_f64()),
            (None, None) => None,
        };
        let progress = Progress {
            elapsed: self.stats.elapsed,
            counts: self.counts(),
            share,
            findings: self.stats.findings,
        };
        if self.observer().progress(&progress).is_break() {
            self.over = true;
            self.stopped = true;
        }
        let coverage = &self.coverage;
        self.observer.coverage(&|| coverage.partitions(Granularity::Powers));
    }

    /// Tells the findings that were seen again since they were told.
    fn tell_sightings(&mut self) {
        for finding in self.findings.iter().filter(|finding| finding.sightings > 1) {
            self.observer.finding(&finding.record(), None);
        }
    }
}
