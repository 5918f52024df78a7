//! Running a given list of operations from the beginning: what verifying, shrinking and replaying
//! have in common.

use std::sync::Arc;

use fathom_core::{HarnessFault, Op, Outcome, Step, Testbed, Tree, Verdict, Violation};
use fathom_model::Config;

use crate::check::call_monitor::CallMonitor;
use crate::check::oracle::{Oracle, Signature};
use crate::check::side_by_side::{Inspection, SideBySide};

/// Runs of so many operations are compared as a whole after each.
const WHOLE_OPS_MAX: usize = 200;

/// The rule by which a run compares trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareTrees {
    /// After every operation.
    AfterEach,
    /// After the last one.
    AtTheEnd,
}

/// Executes lists of operations, each from an empty file system.
pub struct Runner<'a> {
    /// The subject under test.
    pub subject: &'a mut dyn Testbed,
    /// The configuration of the reference.
    pub reference: &'a Config,
    /// The judge.
    pub oracle: &'a Oracle,
    /// Watches over calls that do not return.
    pub monitor: Option<Arc<CallMonitor>>,
    /// Whether the file system's checker has the last word.
    pub fsck: bool,
    /// Whether what differs is given the time to become right (for what is only old).
    pub patient: bool,
}

/// The result of a run, which ends with the first violation.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The steps that were executed.
    pub steps: Vec<Step>,
    /// The violation of the last step.
    pub violation: Option<Violation>,
    /// The number of operations that it was to have.
    pub planned: usize,
    /// Why the run ended early without a verdict.
    pub inconclusive: Option<String>,
}

/// The trees around the last operation of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trees {
    /// The subject before the operation.
    pub before: Tree,
    /// The reference after it.
    pub expected: Tree,
    /// The subject after it.
    pub after: Tree,
}

impl Run {
    fn of(pair: SideBySide<'_>) -> Run {
        Run { steps: pair.into_steps(), ..Run::default() }
    }

    fn ended(pair: SideBySide<'_>, violation: Violation) -> Run {
        Run { violation: Some(violation), ..Run::of(pair) }
    }

    /// The signature of the violation, if there is one.
    pub fn signature(&self) -> Option<Signature> {
        let violation = self.violation.as_ref()?;
        Some(Signature::of(&self.steps.last()?.op, violation))
    }
}

impl Runner<'_> {
    /// Runs the operations until the first violation.
    ///
    /// # Errors
    /// If the harness fails.
    pub fn run(&mut self, ops: &[Op], compare: CompareTrees) -> Result<Run, HarnessFault> {
        self.run_planned(ops, compare, ops.len())
    }

    /// Like [`Runner::run`], looking where a run of `planned` operations that ended early looked.
    ///
    /// # Errors
    /// If the harness fails.
    pub(crate) fn run_planned(
        &mut self,
        ops: &[Op],
        compare: CompareTrees,
        planned: usize,
    ) -> Result<Run, HarnessFault> {
        let fsck = self.fsck;
        let planned = planned.max(ops.len());
        let run = finish(self.start()?, ops, compare, fsck, planned)?;
        Ok(Run { planned, ..run })
    }

    /// Runs the operations that come after the disk was what it is; `before` came earlier.
    ///
    /// # Errors
    /// If the harness fails, or the subject cannot take the disk over.
    pub(crate) fn run_from(
        &mut self,
        disk: &[u8],
        before: &[Op],
        ops: &[Op],
    ) -> Result<Run, HarnessFault> {
        let fsck = self.fsck;
        let pair = SideBySide::start_from(self.subject, self.reference, self.oracle, disk, before)?;
        finish(pair, ops, CompareTrees::AfterEach, fsck, ops.len())
    }

    /// Starts with both sides empty.
    pub(crate) fn start(&mut self) -> Result<SideBySide<'_>, HarnessFault> {
        let monitor = self.monitor.clone();
        let pair = SideBySide::start(self.subject, self.reference, self.oracle, monitor)?;
        Ok(if self.patient { pair.patient() } else { pair })
    }

    /// The first step that two runs of the same operations answered differently.
    pub(crate) fn first_disagreement(
        &self,
        one: &[Step],
        other: &[Step],
    ) -> Option<(usize, Outcome, Outcome)> {
        one.iter().zip(other).enumerate().find_map(|(index, (a, b))| {
            let agree = self.oracle.same_answer(&a.op, &a.outcome, &b.outcome)
                || is_judged_alone(&a.op, &a.outcome, &b.outcome);
            (!agree).then(|| (index, a.outcome.clone(), b.outcome.clone()))
        })
    }
}

/// Whether an answer says nothing about another one: what a piece of a listing has of names that come and go while
/// the directory is open depends on what is in memory, and so on who has looked meanwhile. Each is judged by the
/// pieces before it.
fn is_judged_alone(op: &Op, one: &Outcome, other: &Outcome) -> bool {
    matches!(op, Op::ListPiece { .. }) && one.result.is_ok() && other.result.is_ok()
}

/// How closely to look when `left` of `ops` operations are left, the present one included. Comparing whole
/// trees after each of thousands would take longer than finding the violation did: far from the end,
/// what was touched is enough most of the time.
fn inspection(compare: CompareTrees, left: usize, ops: usize) -> Inspection {
    match compare {
        _ if left == 1 => Inspection::Whole,
        CompareTrees::AtTheEnd => Inspection::Answer,
        CompareTrees::AfterEach if ops <= WHOLE_OPS_MAX || left <= WHOLE_OPS_MAX => {
            Inspection::Whole
        }
        CompareTrees::AfterEach if left.is_multiple_of(WHOLE_OPS_MAX) => Inspection::Whole,
        CompareTrees::AfterEach => Inspection::Touched,
    }
}

/// Executes the operations until the first violation.
fn finish(
    mut pair: SideBySide<'_>,
    ops: &[Op],
    compare: CompareTrees,
    fsck: bool,
    planned: usize,
) -> Result<Run, HarnessFault> {
    for (index, op) in ops.iter().enumerate() {
        let judged = pair.step(op, inspection(compare, planned - index, planned))?;
        match judged.verdict {
            Verdict::Ok => {}
            Verdict::Violation(violation) => return Ok(Run::ended(pair, violation)),
            Verdict::Inconclusive(why) => {
                return Ok(Run { inconclusive: Some(why), ..Run::of(pair) });
            }
            Verdict::HarnessFault(why) => return Err(HarnessFault::new(op.name(), why)),
        }
    }
    if fsck && let (_, Verdict::Violation(violation)) = pair.fsck()? {
        return Ok(Run::ended(pair, violation));
    }
    Ok(Run::of(pair))
}

#[cfg(test)]
mod tests {
    use fathom_core::Errno;

    use super::*;

    #[test]
    fn only_pieces_of_listings_are_judged_alone() {
        let piece = Op::ListPiece { slot: 0, back: 0, len: 4096 };
        let (two, three, failed) = (Outcome::ok(2), Outcome::ok(3), Outcome::err(Errno::EINVAL));
        assert!(is_judged_alone(&piece, &two, &three));
        assert!(!is_judged_alone(&piece, &two, &failed));
        let whole = Op::Getdents { slot: 0 };
        assert!(!is_judged_alone(&whole, &two, &three));
    }
}
