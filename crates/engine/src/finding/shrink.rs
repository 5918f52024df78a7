//! The shortest run that shows the same violation: first fewer operations, then smaller arguments.
//!
//! Every candidate runs from an empty file system and through the reference again, so that the
//! expected answers are those of the candidate. A candidate counts if its violation has the same
//! signature; one that would block, or that the harness refuses, does not.

use std::time::Instant;

use fathom_core::Op;
use fathom_model::Model;

use super::smaller::smaller;
use crate::oracle::Signature;
use crate::run::{Run, Runner, Walk};

/// Looks for a shorter run until a deadline.
pub struct Shrinker<'a, 'b> {
    runner: &'a mut Runner<'b>,
    signature: Signature,
    deadline: Instant,
    best: Option<Run>,
}

impl<'a, 'b> Shrinker<'a, 'b> {
    /// A shrinker that keeps `signature`.
    pub fn new(runner: &'a mut Runner<'b>, signature: Signature, deadline: Instant) -> Self {
        Shrinker { runner, signature, deadline, best: None }
    }

    /// The shortest run found; `None` if nothing shorter than `ops` shows the violation.
    pub fn shrink(&mut self, ops: Vec<Op>) -> Option<Run> {
        let mut ops = self.drop_idle(ops);
        loop {
            let before = ops.clone();
            ops = self.drop_chunks(ops);
            ops = self.reduce_arguments(ops);
            if ops == before || self.is_late() {
                return self.best.take();
            }
        }
    }

    /// Operations that leave the reference as it is are rarely needed: one try without all of them.
    fn drop_idle(&mut self, ops: Vec<Op>) -> Vec<Op> {
        let Ok(mut model) = Model::new(self.runner.reference.clone()) else { return ops };
        let last = ops.len() - 1;
        let mut busy = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            let before = model.state_digest();
            model.execute(op);
            if index == last || model.state_digest() != before {
                busy.push(op.clone());
            }
        }
        self.attempt(&busy).unwrap_or(ops)
    }

    /// Delta debugging: leaves out chunks of operations, from halves down to single ones.
    fn drop_chunks(&mut self, mut ops: Vec<Op>) -> Vec<Op> {
        let mut chunk = ops.len().div_ceil(2);
        while chunk > 0 {
            let mut at = 0;
            while at < ops.len() && !self.is_late() {
                let mut candidate = ops.clone();
                candidate.drain(at..(at + chunk).min(ops.len()));
                match self.attempt(&candidate) {
                    Some(shorter) => ops = shorter,
                    None => at += chunk,
                }
            }
            chunk /= 2;
        }
        ops
    }

    /// Tries smaller arguments for one operation after the other.
    fn reduce_arguments(&mut self, mut ops: Vec<Op>) -> Vec<Op> {
        let mut at = 0;
        while at < ops.len() {
            let mut tries = smaller(&ops[at]);
            let reduced = tries.find_map(|op| {
                let mut candidate = ops.clone();
                candidate[at] = op;
                self.attempt(&candidate)
            });
            match reduced {
                Some(smaller_ops) => ops = smaller_ops,
                None => at += 1,
            }
        }
        ops
    }

    /// The operations up to the violation, if the candidate shows the one that is wanted. The first
    /// run only walks at the end, which is fast; a candidate that seems right runs again with a walk
    /// after every operation, so that the guilty one is the last.
    fn attempt(&mut self, ops: &[Op]) -> Option<Vec<Op>> {
        if ops.is_empty() || self.is_late() || !self.shows(ops, Walk::Last)? {
            return None;
        }
        if !self.shows(ops, Walk::Each)? {
            return None;
        }
        let run = self.best.as_ref()?;
        Some(run.steps.iter().map(|step| step.op.clone()).collect())
    }

    fn shows(&mut self, ops: &[Op], walk: Walk) -> Option<bool> {
        let run = self.runner.run(ops, walk).ok()?;
        if run.signature().as_ref() != Some(&self.signature) {
            return Some(false);
        }
        if walk == Walk::Each {
            self.best = Some(run);
        }
        Some(true)
    }

    fn is_late(&self) -> bool {
        Instant::now() >= self.deadline
    }
}
