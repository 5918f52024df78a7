//! Episodes of layered workloads: each is one long workload on an empty file system.
//!
//! Every answer is compared. Looking is bounded, so that it costs no more with a hundred thousand entries than
//! with a hundred: a directory with many entries is listed in so many calls that each costs as much as a small
//! one, of a command that is a thousand calls only some are looked at, and the whole tree is compared when as
//! many calls as it has entries have been made since the last time, and at the end.

use std::time::{Duration, Instant};

use fathom_core::{Capability, HarnessFault, Op, Operand, Target};
use fathom_record::minimise;

use super::finding::investigate::Case;
use super::rerun::CompareTrees;
use super::side_by_side::Inspection;
use super::{Campaign, StepResult};
use crate::check::oracle::Signature;
use fathom_generate::layered::{Call, Grower, Preset, PrintedWorkload, Refiner};

/// Directories with more subdirectories are not listed after every call.
const SMALL_DIR: u32 = 64;

/// Of the calls of one command, so many are looked at.
const LOOKS_PER_COMMAND: usize = 8;

/// Calls for each entry of the tree, between two comparisons of the whole.
const CALLS_PER_ENTRY: u64 = 4;

/// The workload that is being executed.
#[derive(Clone, Debug)]
pub(super) struct LayeredRun {
    preset: Preset,
    devices: bool,
    calls: Vec<Call>,
}

/// How much looking has been saved up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LookBudget(f64);

impl Campaign<'_, '_> {
    pub(super) fn layered(&mut self, preset: &Preset) -> Result<(), HarnessFault> {
        while !self.over {
            self.layered_episode(preset)?;
            self.layered_run = None;
        }
        Ok(())
    }

    /// The workloads of the paper, call by call: nothing is done between them that is not printed.
    pub(super) fn printed(&mut self) -> Result<(), HarnessFault> {
        for PrintedWorkload { calls, preset, .. } in PrintedWorkload::all() {
            self.episode_of(&preset, calls, false)?;
            self.layered_run = None;
        }
        self.over = true;
        Ok(())
    }

    fn layered_episode(&mut self, preset: &Preset) -> Result<(), HarnessFault> {
        let seed = fathom_core::pattern::word(self.plan.seed, self.stats.episodes);
        let remounts = self.can(Capability::Remount);
        self.episode_of(preset, Grower::new(seed, preset, remounts).workload(), true)
    }

    fn can(&mut self, capability: Capability) -> bool {
        let mut pairs = self.lineup.pairs.iter_mut();
        pairs.all(|pair| pair.subject().capabilities().contains(&capability))
    }

    /// Executes a workload on an empty file system, with maintenance in between if it is wanted.
    fn episode_of(
        &mut self,
        preset: &Preset,
        calls: Vec<Call>,
        maintained: bool,
    ) -> Result<(), HarnessFault> {
        self.restart()?;
        let devices = self.can(Capability::Devices);
        let mut refiner = Refiner::new(preset, devices);
        self.layered_run = Some(LayeredRun { preset: preset.clone(), devices, calls: Vec::new() });
        for call in calls {
            if self.is_over() {
                break;
            }
            let ops = refiner.refine(&call);
            if let Some(run) = &mut self.layered_run {
                run.calls.push(call);
            }
            if self.perform_command(&ops)? != StepResult::AsExpected {
                return Ok(());
            }
            if maintained && self.maintain(ops.len())? == StepResult::Diverged {
                return Ok(());
            }
        }
        // It is hardly ever larger than at its end.
        self.structure.take(self.lineup.model(), self.stats.ops);
        let _ = self.last_look()?;
        Ok(())
    }

    /// Executes the calls of one command.
    fn perform_command(&mut self, ops: &[Op]) -> Result<StepResult, HarnessFault> {
        self.stats.metas += 1;
        let every = ops.len().div_ceil(LOOKS_PER_COMMAND).max(1);
        for (index, op) in ops.iter().enumerate() {
            if self.is_out_of_ops() {
                self.over = true;
                return Ok(StepResult::OutOfOps);
            }
            if index % 256 == 255 && self.is_over() {
                return Ok(StepResult::OutOfOps);
            }
            let due = index + 1 == ops.len() || index % every == 0;
            let look = if due { self.bounded_look(op) } else { Inspection::Answer };
            self.since_tree += 1;
            if let Some(accusation) = self.act_looking(op, look)? {
                return self.look_closer(accusation);
            }
        }
        Ok(StepResult::AsExpected)
    }

    /// Calls of a layered workload that cost as much as looking at the whole tree; none without such a workload.
    pub(super) fn calls_per_tree(&self) -> u64 {
        let counts = self.lineup.model().volume().statfs();
        let entries = counts.files.saturating_sub(counts.files_free);
        if self.layered_run.is_some() { entries * CALLS_PER_ENTRY } else { 0 }
    }

    /// How closely to look after a call, for what has been saved up.
    fn bounded_look(&mut self, op: &Op) -> Inspection {
        let tree_every = self.plan.config.check.tree_every.max(self.calls_per_tree());
        if *op == Op::Remount || self.since_tree >= tree_every {
            return Inspection::Whole;
        }
        let subdirs = f64::from(self.subdirectories(op).max(1));
        self.look_budget.0 += 1.0;
        if subdirs <= f64::from(SMALL_DIR) || self.look_budget.0 * f64::from(SMALL_DIR) >= subdirs {
            self.look_budget.0 = (self.look_budget.0 - subdirs / f64::from(SMALL_DIR)).max(0.0);
            return Inspection::Touched;
        }
        Inspection::Answer
    }

    /// Subdirectories of the directories that looking at a call would list.
    fn subdirectories(&self, op: &Op) -> u32 {
        let volume = self.lineup.model().volume();
        let mut most = 0;
        op.operands(|operand| {
            let path = match operand {
                Operand::Path(path, ..) => path,
                Operand::Target(Target::Path(path) | Target::Link(path), ..) => path,
                _ => return,
            };
            for path in [Some(path.clone()), path.parent()].into_iter().flatten() {
                let node = volume.find(&path, false).and_then(|ino| volume.attr(ino).ok());
                let links = node.filter(|node| node.kind == fathom_core::Kind::Dir);
                most = most.max(links.map_or(0, |node| node.nlink.saturating_sub(2)));
            }
        });
        most
    }

    /// A shorter run with the same signature: fewer commands, with what depends on each left out with it, then
    /// smaller numbers.
    pub(super) fn shorter_by_commands(
        &mut self,
        participant: usize,
        signature: &Signature,
        seconds: u64,
    ) -> Option<Case> {
        let LayeredRun { preset, devices, calls } = self.layered_run.take()?;
        let deadline = Instant::now() + Duration::from_secs(seconds.max(1));
        let mut runner = self.lineup.pairs[participant].runner(signature);
        let mut best = None;
        let mut shows = |calls: &[Call]| {
            let ops = Refiner::ops(&preset, devices, calls);
            let run = runner.run(&ops, CompareTrees::AfterEach).ok()?;
            let same = run.signature().as_ref() == Some(signature);
            let case = Case { steps: run.steps, violation: run.violation?, planned: run.planned };
            same.then(|| best = Some(case))
        };
        let kept = minimise(calls, deadline, |kept: &[Call]| {
            Ok::<_, std::convert::Infallible>(shows(kept).map(|()| kept.to_vec()))
        });
        let mut calls = kept.unwrap_or_default();
        for at in 0..calls.len() {
            for size in [1, 2, 4, 16, 64, 256, 1024] {
                if Instant::now() >= deadline {
                    break;
                }
                let mut smaller = calls.clone();
                smaller[at].size = Some(size);
                let changes = Refiner::ops(&preset, devices, &smaller).len()
                    < Refiner::ops(&preset, devices, &calls).len();
                if changes && shows(&smaller).is_some() {
                    calls = smaller;
                    break;
                }
            }
        }
        best
    }
}
