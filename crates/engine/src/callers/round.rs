//! One round: what callers do at once, and what was seen of it.

use fathom_core::schedule::{Affinity, DiskDelays, Planned};
use fathom_core::{Activity, Caller, CheckerReport, HarnessFault, Op, Schedule, Step, Testbed};
use fathom_model::Model;
use serde::{Deserialize, Serialize};

use super::CallersPlan;
use super::finding::Wrong;
use crate::check::call_monitor::CallMonitor;
use crate::linear::{Effort, History, HistoryError, Judge, Judgement, explain, judge};
use fathom_generate::callers::{CallerGenerator, Theme};
use fathom_generate::choice::Choices;

/// Share of calls before which a caller waits.
const DELAY_PERCENT: u32 = 50;

/// Share of rounds in which one more caller does nothing but sync.
const SYNC_PERCENT: u32 = 25;

/// Share of rounds beside which somebody syncs and remounts.
const REMOUNT_PERCENT: u32 = 25;

/// Share of rounds in which the disk is late, if the plan lets it be.
const SLOW_PERCENT: u32 = 75;

/// What is done in one round, from an empty file system on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// Which operations of the campaign.
    pub number: u64,
    /// Which schedule of these operations.
    #[serde(default)]
    pub attempt: u64,
    /// What it is about.
    pub theme: String,
    /// What is done first, by one caller after the other.
    pub setup: Vec<(Caller, Op)>,
    /// What is done at once.
    pub schedule: Schedule,
}

/// What was seen of a round.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Every call, and the tree at the end.
    pub history: History,
    /// What the kernel logged.
    pub complaints: Vec<String>,
}

/// What is thought of a round.
#[derive(Clone, Debug)]
pub(super) enum Seems {
    Right,
    Wrong(Wrong),
    /// The search gave up.
    Unknown,
}

/// Makes the rounds of a campaign; each has choices of its own, so that it can be made alone. What callers do comes
/// from the seed and the number of the round; when they do it, and what happens beside them, from the number of
/// the schedule as well.
#[derive(Clone, Debug)]
pub(super) struct RoundMaker {
    plan: CallersPlan,
}

impl RoundMaker {
    pub(super) fn new(plan: &CallersPlan) -> RoundMaker {
        RoundMaker { plan: plan.clone() }
    }

    /// The operations of a round, under one of its schedules.
    pub(super) fn round(&self, number: u64, attempt: u64) -> Round {
        let (theme, setup, scripts) = self.operations(number);
        let seed = fathom_core::pattern::word(self.plan.seed, number);
        let mut choices = Choices::of_episode(seed, attempt);
        let lanes = scripts.into_iter().map(|ops| {
            ops.into_iter().map(|op| self.planned(op, &mut choices)).collect::<Vec<_>>()
        });
        let lanes: Vec<_> = lanes.collect();
        let affinity = affinity(lanes.len(), &mut choices);
        let remounts = self.remounts(&mut choices);
        let max_ns = self.plan.disk_delay_ns_max.filter(|_| choices.percent(SLOW_PERCENT));
        let seed = choices.below(u64::MAX);
        let disk = max_ns.map(|max_ns| DiskDelays { seed, max_ns });
        let theme = theme.name().to_owned();
        let schedule = Schedule { lanes, remounts, disk, affinity };
        Round { number, attempt, theme, setup, schedule }
    }

    /// What is done in a round: its theme, what comes first, and the operations of each caller.
    fn operations(&self, number: u64) -> (Theme, Vec<(Caller, Op)>, Vec<Vec<Op>>) {
        let plan = &self.plan;
        let mut choices = Choices::of_episode(plan.seed, number);
        let mut generator = CallerGenerator::new(choices.below(u64::MAX));
        let theme: Theme = plan.theme.unwrap_or_else(|| generator.theme());
        let setup = self.specified(generator.setup(plan.callers));
        let model = after(&plan.reference, &setup);
        let mut scripts = generator.round(theme, plan.callers, plan.calls);
        for ops in &mut scripts {
            ops.retain(|op| is_specified(model.as_ref(), op));
        }
        if choices.percent(SYNC_PERCENT) {
            scripts.push((0..plan.calls / 2).map(|_| Op::Sync).collect());
        }
        (theme, setup, scripts)
    }

    /// The delays before remounts beside the callers, in some of the rounds.
    fn remounts(&self, choices: &mut Choices) -> Vec<u64> {
        if !choices.percent(REMOUNT_PERCENT) || !self.plan.remounts {
            return Vec::new();
        }
        let longest = self.plan.delay_ns_max.saturating_mul(2);
        (0..self.plan.calls / 4).map(|_| choices.below(longest + 1)).collect()
    }

    fn planned(&self, op: Op, choices: &mut Choices) -> Planned {
        let waits = choices.percent(DELAY_PERCENT);
        let delay_ns = if waits { choices.below(self.plan.delay_ns_max + 1) } else { 0 };
        Planned { delay_ns, op }
    }

    /// Leaves out what says nothing about this file system.
    fn specified(&self, setup: Vec<(Caller, Op)>) -> Vec<(Caller, Op)> {
        let model = after(&self.plan.reference, &[]);
        setup.into_iter().filter(|(_, op)| is_specified(model.as_ref(), op)).collect()
    }
}

/// Half of the schedules have callers on different processors; in the others the machine decides, or chance.
fn affinity(callers: usize, choices: &mut Choices) -> Affinity {
    match choices.below(4) {
        0 => Affinity::Anywhere,
        1 => Affinity::On((0..callers).map(|_| choices.below(64) as u32).collect()),
        _ => Affinity::Spread,
    }
}

fn after(reference: &fathom_model::Config, setup: &[(Caller, Op)]) -> Option<Model> {
    let mut model = Model::new(reference.clone()).ok()?;
    for (caller, op) in setup {
        model.execute_as(*caller, op);
    }
    Some(model)
}

/// Every caller has the same slots, so those of the first one stand for all.
fn is_specified(model: Option<&Model>, op: &Op) -> bool {
    model.is_none_or(|model| model.unspecified(op).is_none())
}

impl Round {
    /// Runs the round.
    ///
    /// # Errors
    /// If the harness fails.
    pub(super) fn run(
        &self,
        subject: &mut dyn Testbed,
        monitor: &CallMonitor,
    ) -> Result<Seen, HarnessFault> {
        monitor.begin_activity(Activity::Restoring);
        subject.expect_callers(&self.schedule);
        let reset = subject.reset();
        monitor.end();
        reset?;
        monitor.clear();
        let mut steps = Vec::new();
        for (caller, op) in &self.setup {
            monitor.begin(op);
            let outcome = subject.apply_as(*caller, op);
            monitor.end();
            let step = Step::new(steps.len() as u64, op.clone(), outcome?);
            steps.push(Step { caller: *caller, ..step });
        }
        // All of them may be what never returns; the last one stands for them.
        for planned in self.schedule.lanes.iter().flatten() {
            monitor.begin(&planned.op);
        }
        let run = subject.run_callers(&self.schedule);
        monitor.end();
        let setup = steps.len() as u64;
        steps.extend(run?.into_iter().map(|step| Step { n: setup + step.n, ..step }));
        monitor.begin_activity(Activity::Looking);
        let last = subject.observe();
        monitor.end();
        let complaints = subject.complaints()?;
        Ok(Seen { history: History { steps, last: Some(last?) }, complaints })
    }
}

/// Lets the checker look at the disk; nothing if there is no checker. What it is not content with comes with it.
///
/// # Errors
/// If the harness fails.
pub(super) fn check_disk(
    subject: &mut dyn Testbed,
    monitor: &CallMonitor,
) -> Result<Option<Option<Wrong>>, HarnessFault> {
    monitor.begin_activity(Activity::Checking);
    let checked = subject.fsck();
    monitor.end();
    let wrong = |checked: CheckerReport| {
        let CheckerReport { clean, command, code, output } = checked;
        (!clean).then_some(Wrong::Checker { command, code, output })
    };
    Ok(checked?.map(wrong))
}

impl Seen {
    /// What is wrong with it, if something is.
    ///
    /// # Errors
    /// If the history contradicts itself.
    pub(super) fn judge(&self, plan: &CallersPlan) -> Result<Seems, HarnessFault> {
        if !self.complaints.is_empty() {
            return Ok(Seems::Wrong(Wrong::KernelLog { lines: self.complaints.clone() }));
        }
        let by = judge_of(plan);
        match judge(&self.history, &by).map_err(fault)? {
            Judgement::Explained(_) => Ok(Seems::Right),
            Judgement::Unknown => Ok(Seems::Unknown),
            Judgement::NoOrder => {
                let conflict = explain(&self.history, &by).map_err(fault)?;
                Ok(conflict
                    .map_or(Seems::Unknown, |conflict| Seems::Wrong(Wrong::NoOrder(conflict))))
            }
        }
    }
}

/// Calls of the reference after which the search gives up on a round: seconds.
const CALLS_MAX: u64 = 2_000_000;

fn judge_of(plan: &CallersPlan) -> Judge<'_> {
    let effort = Effort { calls_max: CALLS_MAX, ..Effort::FAST };
    Judge { reference: &plan.reference, relaxations: &plan.relaxations, effort }
}

fn fault(error: HistoryError) -> HarnessFault {
    HarnessFault::new("judging a history", error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ops(round: &Round) -> Vec<Vec<&Op>> {
        let lanes = round.schedule.lanes.iter();
        lanes.map(|lane| lane.iter().map(|planned| &planned.op).collect()).collect()
    }

    #[test]
    fn schedules_of_a_round_have_the_same_operations() {
        let mut plan = CallersPlan::new(3, 4, fathom_model::Config::default());
        (plan.remounts, plan.disk_delay_ns_max) = (true, Some(50_000));
        let maker = RoundMaker::new(&plan);
        for number in 0..20 {
            let rounds: Vec<Round> = (0..6).map(|attempt| maker.round(number, attempt)).collect();
            assert_eq!(rounds[0], maker.round(number, 0), "a round can be made alone");
            for (at, round) in rounds.iter().enumerate() {
                assert_eq!((ops(round), &round.setup), (ops(&rounds[0]), &rounds[0].setup));
                let others = rounds[..at].iter();
                assert!(others.into_iter().all(|other| other.schedule != round.schedule));
            }
        }
        assert_ne!(ops(&maker.round(0, 0)), ops(&maker.round(1, 0)));
    }
}
