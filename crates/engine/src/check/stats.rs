//! What a campaign has done so far, and what it has never reached.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use fathom_core::{Digest, Errno, Op, Outcome};
use serde::Serialize;

use crate::check::goals::GOALS;

/// Counts of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Operations executed on both sides and compared.
    pub ops: u64,
    /// Whole trees compared.
    pub trees_compared: u64,
    /// Times the file system was mounted again by an operation.
    pub remounts: u64,
    /// Fresh file systems.
    pub episodes: u64,
    /// Meta-operations.
    pub metas: u64,
    /// States on the map of a tour or a depth-first search.
    pub known: u64,
    /// Those of them in which something is untried.
    pub open: u64,
    /// Meta-operations from the empty file system to the farthest state.
    pub depth: u32,
    /// Times the file system was taken back to an earlier state, the empty one included.
    pub restores: u64,
    /// Times a tour walked to a state with something untried.
    pub routes: u64,
    /// Times a tour removed everything.
    pub sweeps: u64,
    /// States that were not where the map has them.
    pub given_up: u64,
    /// Times the file system's checker looked at the disk.
    pub fscks: u64,
    /// Everything within the bounds was tried.
    pub complete: bool,
    /// It was asked to end before it was over.
    pub interrupted: bool,
    /// Findings with different signatures.
    pub findings: u64,
    /// Time that running findings again and shrinking them took, of all time.
    pub investigating: Duration,
    /// Time since the start.
    pub elapsed: Duration,
    states: HashSet<Digest>,
    answers: BTreeMap<&'static str, BTreeMap<Answer, u64>>,
}

/// The answer of an operation, without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Answer {
    Success,
    Failure(Errno),
}

/// The number of times that one operation ended in one way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AnswerCount {
    /// The operation.
    pub op: &'static str,
    /// `ok` or the name of the error.
    pub answer: String,
    /// The count.
    pub count: u64,
}

/// The goals of a campaign: answers that should be seen at least once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Goals {
    /// Pairs of an operation and an answer that were seen.
    pub reached: usize,
    /// Those that were not.
    pub missing: Vec<String>,
}

impl Stats {
    /// Counts an operation; whether it led to a state for the first time.
    pub(crate) fn count(&mut self, op: &Op, found: &Outcome, state: Digest) -> bool {
        self.ops += 1;
        self.remounts += u64::from(matches!(op, Op::Remount));
        let is_new = self.states.insert(state);
        let answer = found.result.map_or_else(Answer::Failure, |_| Answer::Success);
        *self.answers.entry(op.name()).or_default().entry(answer).or_default() += 1;
        is_new
    }

    /// The counts that every report shows, by name.
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("operations", self.ops),
            ("states", self.states() as u64),
            ("trees_compared", self.trees_compared),
            ("remounts", self.remounts),
            ("fscks", self.fscks),
        ]
    }

    /// Different trees reached.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    /// Every way in which an operation ended.
    pub fn answers(&self) -> Vec<AnswerCount> {
        let mut rows = Vec::new();
        for (op, answers) in &self.answers {
            for (answer, count) in answers {
                let answer = match answer {
                    Answer::Success => "ok".to_owned(),
                    Answer::Failure(errno) => errno.to_string(),
                };
                rows.push(AnswerCount { op, answer, count: *count });
            }
        }
        rows
    }

    /// Operations that succeeded at least once.
    pub fn ops_succeeded(&self) -> usize {
        self.answers.values().filter(|answers| answers.contains_key(&Answer::Success)).count()
    }

    /// Different errors seen.
    pub fn errnos(&self) -> usize {
        let errors = self.answers.values().flat_map(BTreeMap::keys);
        errors.filter(|answer| **answer != Answer::Success).collect::<HashSet<_>>().len()
    }

    /// The goals that were never reached: each of `ops` should succeed sometimes, and a workload
    /// with odd operations should meet each of [`ERRNO_GOALS`] sometimes.
    pub fn never(&self, ops: &[&'static str]) -> Vec<String> {
        let mut never = Vec::new();
        for op in ops {
            let succeeded =
                self.answers.get(op).is_some_and(|answers| answers.contains_key(&Answer::Success));
            if !succeeded {
                never.push(format!("{op} ok"));
            }
        }
        for errno in ERRNO_GOALS {
            let failure = Answer::Failure(*errno);
            if !self.answers.values().any(|answers| answers.contains_key(&failure)) {
                never.push(errno.to_string());
            }
        }
        never
    }

    /// Answers of [`GOALS`] that the operations of `ops` gave, and those that they never gave.
    pub fn goals(&self, ops: &[&str]) -> Goals {
        let mut goals = Goals::default();
        for (op, errnos) in GOALS.iter().filter(|(op, _)| ops.contains(op)) {
            let failures = errnos.iter().map(|errno| Answer::Failure(*errno));
            for answer in std::iter::once(Answer::Success).chain(failures) {
                let given = self.answers.get(op).is_some_and(|all| all.contains_key(&answer));
                match (given, answer) {
                    (true, _) => goals.reached += 1,
                    (false, Answer::Success) => goals.missing.push(format!("{op} ok")),
                    (false, Answer::Failure(errno)) => goals.missing.push(format!("{op} {errno}")),
                }
            }
        }
        goals
    }

    /// Operations per second.
    pub fn rate(&self) -> f64 {
        self.ops as f64 / self.elapsed.as_secs_f64().max(1e-6)
    }
}

/// Errors that every POSIX file system can give; a campaign that never saw one says so.
pub const ERRNO_GOALS: &[Errno] = &[
    Errno::ENOENT,
    Errno::EBADF,
    Errno::EEXIST,
    Errno::ENOTDIR,
    Errno::EISDIR,
    Errno::EINVAL,
    Errno::ENOTEMPTY,
    Errno::ELOOP,
    Errno::ENAMETOOLONG,
    Errno::ENODATA,
];
