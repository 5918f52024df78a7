//! A running digest of what a subject in a guest does: every operation, its answer and the guest's clock
//! after it, and the disk at the end. A guest is a function of its seed, so the same command with the same
//! kernel and seed has the same digest; where it has not, [`Execution`] says from which operation on.

use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use fathom_core::{
    Caller, HarnessFault, Op, Outcome, RestoreMethod, Schedule, Slot, Step, Testbed, Wrapper,
};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash64;

/// The label of a finding with the point of the execution at which it was seen.
pub(crate) const LABEL: &str = "execution";

/// The label of a finding with the command that repeats its whole execution.
pub(crate) const COMMAND_LABEL: &str = "guest_command";

/// Digests of single operations that are kept; beyond that only the running one is.
const STEPS_MAX: usize = 100_000;

/// What a subject did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Execution {
    /// Operations that were executed, those of verifying and shrinking included.
    pub(crate) operations: u64,
    /// The guest's clock after the last one, in nanoseconds.
    pub(crate) clock_ns: u64,
    /// Of all operations, their answers and the time from the first one to each.
    pub(crate) digest: u64,
    /// The guest's clock after the first one.
    #[serde(skip)]
    began_ns: Option<u64>,
    /// Of the disk at the end, where there is one.
    pub(crate) disk: Option<u64>,
    /// The running digest after each operation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) steps: Vec<u64>,
}

/// How an execution compares with the recorded one.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "execution")]
pub(crate) enum Comparison {
    /// None was recorded; this one is now.
    Recorded,
    /// The same.
    Same {
        /// How many operations.
        operations: u64,
    },
    /// Not the same.
    Left {
        /// The first operation that went another way; none if only the disk differs.
        operation: Option<u64>,
    },
}

impl Execution {
    fn step(&mut self, op: &Op, outcome: &Outcome, clock_ns: u64) {
        // What came before the first operation (a directory that had to be made, say) moves the clock and
        // is no part of the execution.
        let since_first = clock_ns.wrapping_sub(*self.began_ns.get_or_insert(clock_ns));
        let text = format!("{op} = {outcome} at {since_first}");
        self.digest = XxHash64::oneshot(self.digest, text.as_bytes());
        self.operations += 1;
        self.clock_ns = clock_ns;
        if self.steps.len() < STEPS_MAX {
            self.steps.push(self.digest);
        }
    }

    /// Without the digests of single operations.
    pub(crate) fn summary(&self) -> Execution {
        Execution { steps: Vec::new(), began_ns: None, ..self.clone() }
    }

    /// Compares it with the one in a file, or writes it there if there is none.
    pub(crate) fn compare_or_record(&self, path: &Path) -> Result<Comparison> {
        if !path.exists() {
            let text = serde_json::to_string(self)?;
            fs::write(path, text).with_context(|| path.display().to_string())?;
            return Ok(Comparison::Recorded);
        }
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let recorded: Execution =
            serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        Ok(self.compare(&recorded))
    }

    fn compare(&self, recorded: &Execution) -> Comparison {
        let differs = |(one, two): (&u64, &u64)| one != two;
        let at = self.steps.iter().zip(&recorded.steps).position(differs);
        let shorter = self.steps.len().min(recorded.steps.len());
        match at {
            Some(at) => Comparison::Left { operation: Some(at as u64 + 1) },
            None if self.operations != recorded.operations => {
                Comparison::Left { operation: Some(shorter as u64 + 1) }
            }
            None if self.summary() != recorded.summary() => Comparison::Left { operation: None },
            None => Comparison::Same { operations: self.operations },
        }
    }
}

impl Comparison {
    /// In words for people.
    pub(crate) fn text(&self) -> String {
        match self {
            Comparison::Recorded => {
                "the execution was recorded: the next replay is compared with it\n".to_owned()
            }
            Comparison::Same { operations } => format!(
                "the same execution as recorded: {operations} operations with their answers, the clock, the disk\n"
            ),
            Comparison::Left { operation: Some(operation) } => {
                format!(
                    "NOT the recorded execution: it went another way at operation {operation}\n"
                )
            }
            Comparison::Left { operation: None } => {
                "NOT the recorded execution: the disk at the end is another one\n".to_owned()
            }
        }
    }
}

/// How far the subject of this process has come: operations, and the digest of them.
static POINT: Mutex<Option<(u64, u64)>> = Mutex::new(None);

/// How far the subject of this process has come, in words that two executions can be compared by. `None`
/// if it is not recorded.
pub(crate) fn point() -> Option<String> {
    let point = *POINT.lock().unwrap_or_else(PoisonError::into_inner);
    point.map(|(operations, digest)| format!("{digest:016x} after {operations} operations"))
}

/// What the subject of this process did last.
static LAST: Mutex<Option<Execution>> = Mutex::new(None);

/// What the subject of this process did, once it is gone.
pub(crate) fn take() -> Option<Execution> {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn clock_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// A subject whose execution is recorded.
pub(crate) struct RecordedSubject {
    inner: Box<dyn Testbed>,
    execution: Execution,
}

impl RecordedSubject {
    pub(crate) fn new(inner: Box<dyn Testbed>) -> RecordedSubject {
        RecordedSubject { inner, execution: Execution::default() }
    }

    /// The campaign is over: looks at the disk, and leaves what was recorded to [`take`].
    pub(crate) fn finish(mut self) {
        self.execution.disk = self.disk();
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = Some(self.execution);
    }

    fn disk(&mut self) -> Option<u64> {
        if !self.inner.restore_methods().contains(&RestoreMethod::Remount) {
            return None;
        }
        // What is open cannot be unmounted; the execution is over, so this is not part of it.
        for slot in 0..=Slot::MAX {
            self.inner.apply(&Op::Close { slot }).ok()?;
        }
        let saved = self.inner.save(RestoreMethod::Remount).ok()?;
        let digest = self.inner.image_digest(saved).ok().flatten();
        self.inner.forget(saved);
        digest.map(|digest| digest.0 as u64)
    }
}

impl Wrapper for RecordedSubject {
    type Inner = dyn Testbed;

    fn inner(&self) -> &(dyn Testbed + 'static) {
        &*self.inner
    }

    fn inner_mut(&mut self) -> &mut (dyn Testbed + 'static) {
        &mut *self.inner
    }

    fn execute(&mut self, caller: Caller, op: &Op) -> Result<Outcome, HarnessFault> {
        let outcome = self.inner.apply_as(caller, op);
        if let Ok(outcome) = &outcome {
            self.execution.step(op, outcome, clock_ns());
            let point = (self.execution.operations, self.execution.digest);
            *POINT.lock().unwrap_or_else(PoisonError::into_inner) = Some(point);
        }
        outcome
    }

    /// The order of invocations and returns is part of the execution.
    fn execute_at_once(&mut self, schedule: &Schedule) -> Result<Vec<Step>, HarnessFault> {
        let steps = self.inner.run_callers(schedule)?;
        for step in &steps {
            let returned = step.interval.map_or(0, |interval| interval.returned());
            self.execution.step(&step.op, &step.outcome, returned);
        }
        self.execution.clock_ns = clock_ns();
        Ok(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn execution(clocks: &[u64], disk: u64) -> Execution {
        let mut execution = Execution { disk: Some(disk), ..Execution::default() };
        for clock in clocks {
            execution.step(&Op::Rmdir { path: "d".into() }, &Outcome::ok(0), *clock);
        }
        execution
    }

    #[test]
    fn the_first_operation_that_went_another_way_is_named() {
        let recorded = execution(&[1, 2, 3], 9);
        let compare = |clocks: &[u64], disk| execution(clocks, disk).compare(&recorded);
        assert_eq!(compare(&[1, 2, 3], 9), Comparison::Same { operations: 3 });
        assert_eq!(compare(&[1, 7, 3], 9), Comparison::Left { operation: Some(2) });
        assert_eq!(compare(&[1, 2], 9), Comparison::Left { operation: Some(3) });
        assert_eq!(compare(&[1, 2, 3], 8), Comparison::Left { operation: None });
    }

    #[test]
    fn what_is_not_recorded_yet_is_recorded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("execution.json");
        let one = execution(&[1, 2], 9);
        assert_eq!(one.compare_or_record(&path).unwrap(), Comparison::Recorded);
        assert_eq!(one.compare_or_record(&path).unwrap(), Comparison::Same { operations: 2 });
    }
}
