//! The shortest run that shows the same violation: fewer operations, smaller arguments, fewer
//! directories, short names.
//!
//! Every candidate runs from an empty file system and through the reference again, so that the
//! expected answers are those of the candidate. A candidate counts if its violation has the same
//! signature; one that would block, or that the harness refuses, does not.

use std::convert::Infallible;
use std::time::Instant;

use fathom_core::{FsPath, Op, Supervision, Violation};
use fathom_model::Model;
use fathom_record::minimise;

use super::rebuild::{rebuilt, since_last_remount};
use super::shorten_paths::{shorten_names, shorten_paths};
use super::slice::slice;
use super::smaller::smaller;
use crate::check::oracle::Signature;
use crate::check::rerun::{CompareTrees, Run, Runner};

/// Looks for a shorter run until a deadline.
pub(crate) struct Shrinker<'a, 'b> {
    runner: &'a mut Runner<'b>,
    signature: Signature,
    deadline: Instant,
    /// Operations that may still be executed, where no clock tells when to end.
    ops_left: Option<u64>,
    /// The supervisor, who may ask for an earlier end.
    supervision: Supervision,
    /// The runner that tries candidates.
    compare: CompareTrees,
    /// The paths that the violation is about, if it is about any.
    paths: Vec<FsPath>,
}

impl<'a, 'b> Shrinker<'a, 'b> {
    /// A shrinker that keeps `signature`.
    pub(crate) fn new(runner: &'a mut Runner<'b>, signature: Signature, deadline: Instant) -> Self {
        let (supervision, compare) = (None, CompareTrees::AtTheEnd);
        let (ops_left, paths) = (None, Vec::new());
        Shrinker { runner, signature, deadline, ops_left, supervision, compare, paths }
    }

    /// Ends after so many operations, too.
    pub(crate) fn within(self, ops_max: Option<u64>) -> Self {
        Shrinker { ops_left: ops_max, ..self }
    }

    /// Looks first at what has to do with the paths that `violation` names.
    pub(crate) fn about(self, violation: &Violation) -> Self {
        let paths = match violation {
            Violation::Tree { differences } | Violation::Stale { differences } => {
                differences.iter().map(|difference| difference.path.clone()).collect()
            }
            _ => Vec::new(),
        };
        Shrinker { paths, ..self }
    }

    /// Ends early if the supervisor wants that.
    pub(crate) fn supervised(self, supervision: &Supervision) -> Self {
        Shrinker { supervision: supervision.clone(), ..self }
    }

    /// The shortest run found; `None` if nothing shorter than `ops` shows the violation.
    ///
    /// The tree is compared only at the end of a candidate, which is fast. If the result, compared after
    /// every operation, turns out to show something else first, everything is done again with care.
    pub(crate) fn shrink(&mut self, ops: &[Op]) -> Option<Run> {
        for compare in [CompareTrees::AtTheEnd, CompareTrees::AfterEach] {
            self.compare = compare;
            let shorter = self.shorten(ops.to_vec());
            if shorter != ops {
                let run = self.runner.run(&shorter, CompareTrees::AfterEach).ok()?;
                if run.signature().as_ref() == Some(&self.signature) {
                    return Some(run);
                }
            }
        }
        None
    }

    fn shorten(&mut self, ops: Vec<Op>) -> Vec<Op> {
        let mut ops = self.without_history(ops);
        loop {
            let before = ops.clone();
            ops = self.drop_chunks(ops);
            ops = self.reduce_arguments(ops);
            ops = self.simplify_paths(ops);
            if ops == before || self.is_late() {
                return ops;
            }
        }
    }

    /// One try each: without the history; with the history since the last remount only; with what has
    /// to do with the paths in question; if none is enough, without what had no effect.
    fn without_history(&mut self, ops: Vec<Op>) -> Vec<Op> {
        let reference = self.runner.reference;
        let candidates =
            [rebuilt(reference, &ops), self.about_paths(&ops), since_last_remount(reference, &ops)];
        for candidate in candidates.into_iter().flatten() {
            if candidate.len() < ops.len()
                && let Some(short) = self.attempt(&candidate)
            {
                // What is left has fewer other files in it, and may be cut once more.
                let shorter =
                    self.about_paths(&short).filter(|shorter| shorter.len() < short.len());
                return shorter.and_then(|shorter| self.attempt(&shorter)).unwrap_or(short);
            }
        }
        self.drop_idle(ops)
    }

    fn about_paths(&self, ops: &[Op]) -> Option<Vec<Op>> {
        match self.paths.is_empty() {
            true => None,
            false => slice(self.runner.reference, ops, &self.paths),
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

    /// Leaves out operations, many at a time first.
    fn drop_chunks(&mut self, ops: Vec<Op>) -> Vec<Op> {
        let deadline = self.deadline;
        match minimise(ops, deadline, |ops| Ok::<_, Infallible>(self.attempt(ops))) {
            Ok(shorter) => shorter,
        }
    }

    /// Tries smaller arguments for one operation after the other.
    fn reduce_arguments(&mut self, mut ops: Vec<Op>) -> Vec<Op> {
        let mut at = 0;
        // With thousands of operations, only making the candidates takes minutes.
        while at < ops.len() && !self.is_late() {
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

    /// Tries to do without directories and with short names.
    fn simplify_paths(&mut self, mut ops: Vec<Op>) -> Vec<Op> {
        for simpler in [shorten_paths, shorten_names] {
            while !self.is_late()
                && let Some(simple) = simpler(&ops).iter().find_map(|version| self.attempt(version))
            {
                ops = simple;
            }
        }
        ops
    }

    /// The operations up to the violation, if the candidate shows the one that is wanted.
    fn attempt(&mut self, ops: &[Op]) -> Option<Vec<Op>> {
        if ops.is_empty() || self.is_late() {
            return None;
        }
        let run = self.runner.run(ops, self.compare);
        let executed = run.as_ref().map_or(ops.len(), |run| run.steps.len()) as u64;
        self.ops_left = self.ops_left.map(|left| left.saturating_sub(executed));
        let run = run.ok()?;
        (run.signature().as_ref() == Some(&self.signature))
            .then(|| run.steps.into_iter().map(|step| step.op).collect())
    }

    fn is_late(&self) -> bool {
        self.supervision.as_ref().is_some_and(|by| by.wants_the_end())
            || self.ops_left == Some(0)
            || Instant::now() >= self.deadline
    }
}
