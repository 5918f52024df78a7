//! Running a given list of operations from the beginning: what verifying, shrinking and replaying
//! have in common.

use fathom_core::{HarnessFault, Op, Outcome, Step, Tree, Verdict, Violation};
use fathom_model::Config;

use crate::duel::{Duel, Judged};
use crate::oracle::{Oracle, Signature};
use fathom_core::Territory;

/// When the trees are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// After every operation.
    Each,
    /// After the last one.
    Last,
}

/// Executes lists of operations, each from an empty file system.
pub struct Runner<'a> {
    /// What is tested.
    pub subject: &'a mut dyn Territory,
    /// How the reference is set up.
    pub reference: &'a Config,
    /// The judge.
    pub oracle: &'a Oracle,
}

/// How a run went. It ends with the first violation.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// What was executed.
    pub steps: Vec<Step>,
    /// What the last step violates.
    pub violation: Option<Violation>,
    /// Why the run ended early without a verdict.
    pub inconclusive: Option<String>,
}

/// What the file system showed around the last operation of a run.
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
    pub fn run(&mut self, ops: &[Op], walk: Walk) -> Result<Run, HarnessFault> {
        let mut duel = Duel::start(self.subject, self.reference, self.oracle)?;
        let mut run = Run::default();
        for (index, op) in ops.iter().enumerate() {
            let walk_now = walk == Walk::Each || index + 1 == ops.len();
            let judged = duel.step(op, walk_now)?;
            match judged.verdict.clone() {
                Verdict::Ok => run.steps.push(step(index, op, judged)),
                Verdict::Violation(violation) => {
                    run.steps.push(step(index, op, judged));
                    run.violation = Some(violation);
                    return Ok(run);
                }
                Verdict::Inconclusive(why) => {
                    run.inconclusive = Some(why);
                    return Ok(run);
                }
                Verdict::HarnessFault(why) => return Err(HarnessFault::new(op.name(), why)),
            }
        }
        Ok(run)
    }

    /// Runs the operations and looks at the trees around the last one.
    ///
    /// # Errors
    /// If the harness fails.
    pub fn trees(&mut self, ops: &[Op]) -> Result<Trees, HarnessFault> {
        let mut duel = Duel::start(self.subject, self.reference, self.oracle)?;
        let mut before = Tree::default();
        for (index, op) in ops.iter().enumerate() {
            if index + 1 == ops.len() {
                before = duel.subject_tree()?;
            }
            duel.step(op, false)?;
        }
        Ok(Trees { before, expected: duel.expected_tree(), after: duel.subject_tree()? })
    }

    /// The first step that two runs of the same operations answered differently.
    pub fn first_disagreement(
        &self,
        one: &[Step],
        other: &[Step],
    ) -> Option<(usize, Outcome, Outcome)> {
        one.iter().zip(other).enumerate().find_map(|(index, (a, b))| {
            let agree = self.oracle.same_answer(&a.op, &a.outcome, &b.outcome);
            (!agree).then(|| (index, a.outcome.clone(), b.outcome.clone()))
        })
    }
}

/// The record of one executed operation.
pub(crate) fn step(index: usize, op: &Op, judged: Judged) -> Step {
    let differs = judged.expected != judged.found;
    Step {
        n: index as u64,
        op: op.clone(),
        outcome: judged.found,
        expected: differs.then_some(judged.expected),
        tree: judged.tree,
    }
}
