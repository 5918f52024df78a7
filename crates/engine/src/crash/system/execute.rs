//! Executes steps: on the subject, which is recorded, and on the reference; the answers are compared.

use fathom_block::Image;
use fathom_block::disks::{End, Recording, SubjectFailure, Workload, borrow_all};
use fathom_core::{Difference, Digest, Errno, Op, Outcome, Subject};
use fathom_model::Model;

use super::CrashSystem;
use super::state::State;
use crate::crash::flushes::Issued;
use crate::crash::judge::{Cause, Class, anonymous};
use crate::crash::last_words;
use crate::crash::ledger::Sighting;
use crate::crash::promise::Promise;
use crate::crash::script::Event;
use crate::crash::workload::Step;

/// A step that was taken on the subject and on the reference.
pub(super) struct ExecutedStep {
    pub(super) recording: Recording,
    /// The number of operations that were repeated before the step.
    pub(super) repeated: usize,
    pub(super) model: Model,
    /// The promises during each operation of the step, and after it.
    pub(super) promises: Vec<(Promise, Promise)>,
}

impl ExecutedStep {
    /// The marks of the step: before it, and after each of its operations.
    pub(super) fn marks(&self) -> &[usize] {
        &self.recording.marks[self.repeated..]
    }

    /// The disk after a clean unmount, if the step was one.
    pub(super) fn unmounted(&self, base: &Image) -> Option<Image> {
        self.recording.unmounted.is_some().then(|| self.recording.disk_after(base))
    }
}

/// A step that could not be taken.
pub(super) enum Refusal {
    /// No space: this way ends.
    Full,
    /// The subject does not have the operation: this way ends.
    Unsupported,
    /// The harness failed: the fault is with the system.
    Fault,
    /// The subject does something else than the reference, without any power failure.
    Wrong {
        cause: Cause,
        what: String,
        /// Operations of the step up to there.
        ops: usize,
    },
}

impl Refusal {
    fn wrong(op: &Op, what: String, ops: usize) -> Refusal {
        let cause = Cause::new(Class::WrongAnswer, op, anonymous(&what));
        Refusal::Wrong { cause, what, ops }
    }
}

/// The operations of a step, and what the subject answered to each.
fn answers<'a>(
    state: &State,
    step: &'a Step,
    recording: &'a Recording,
) -> impl Iterator<Item = (&'a Op, &'a Outcome)> {
    let outcomes = recording.outcomes[state.since.len()..].iter().chain(&recording.unmounted);
    step.ops.iter().zip(outcomes)
}

impl CrashSystem<'_> {
    /// Records a step on the subject, after what was done since the last mount.
    fn record(&self, state: &State, step: &Step, look: bool) -> Result<Recording, Refusal> {
        let remounts = matches!(step.ops.as_slice(), [Op::Remount]);
        let (ops, end): (&[Op], _) =
            if remounts { (&[], End::Unmount) } else { (&step.ops, End::PowerOff) };
        let ops = borrow_all(state.since.iter().chain(ops));
        last_words::begin_script(&self.supervision, || {
            state.script(step.ops.iter().cloned().map(Event::Op))
        });
        let recorded = self.subject.record(&state.base, &Workload { ops: &ops, end, look });
        last_words::end(&self.supervision);
        let failure = match recorded {
            Ok(Ok(recording)) => return Ok(recording),
            Ok(Err(failure)) => failure,
            Err(fault) => {
                self.note_fault(fault);
                return Err(Refusal::Fault);
            }
        };
        let what = match failure {
            SubjectFailure::Mount(errno) => format!("a clean image does not mount: {errno}"),
            SubjectFailure::Panic(message) => format!("panics: {message}"),
        };
        Err(Refusal::wrong(&step.ops[0], what, step.ops.len()))
    }

    /// Takes a step on both sides and compares the answers. What is visible is not looked at: while a
    /// file is open nothing is said about what its name shows.
    pub(super) fn take(&self, state: &State, step: &Step) -> Result<ExecutedStep, Refusal> {
        self.compare(state, step, self.record(state, step, false)?)
    }

    /// Takes the step on the reference too, and compares the answers.
    fn compare(
        &self,
        state: &State,
        step: &Step,
        recording: Recording,
    ) -> Result<ExecutedStep, Refusal> {
        let (mut model, mut promise) = (state.model.clone(), state.promise.clone());
        let mut promises = Vec::new();
        for (index, (op, found)) in answers(state, step, &recording).enumerate() {
            let expected = model.execute(op);
            match (&expected.result, &found.result) {
                (_, Err(Errno::ENOSPC | Errno::ENOMEM)) => return Err(Refusal::Full),
                (_, Err(Errno::EOPNOTSUPP)) => return Err(Refusal::Unsupported),
                (Ok(_), Ok(_)) | (Err(_), Err(_)) => {}
                _ => {
                    let what = format!("{op}: expected {expected}, found {found}");
                    return Err(Refusal::wrong(op, what, index + 1));
                }
            }
            let during = promise.step(self.subject.guarantee(), op, &model);
            promises.push((during, promise.clone()));
        }
        Ok(ExecutedStep { recording, repeated: state.since.len(), model, promises })
    }

    /// Takes a step on both sides; compares the answers, and the trees after the whole step.
    pub(super) fn take_whole(&self, state: &State, step: &Step) -> Result<ExecutedStep, Refusal> {
        self.compare_whole(state, step, self.record(state, step, true)?)
    }

    fn compare_whole(
        &self,
        state: &State,
        step: &Step,
        recording: Recording,
    ) -> Result<ExecutedStep, Refusal> {
        let taken = self.compare(state, step, recording)?;
        let Some(tree) = &taken.recording.tree else { return Ok(taken) };
        let (during, after) = taken.promises.last().expect("a step has operations");
        // The last look at a mount is before its end: open files may not be visible yet.
        let promise = if taken.recording.unmounted.is_some() { during } else { after };
        let (found, model) = (tree.digest(), &taken.model);
        if found == model.digest() || promise.matching(found).is_some() {
            return Ok(taken);
        }
        let expected = model.clone().observe().expect("the model can always be observed");
        let tell = |difference: &Difference| {
            let Difference { path, what, expected, found } = difference;
            format!("{path:?}: {what}: expected {expected}, found {found}")
        };
        let what = expected.differences(tree).first().map(tell);
        let last = &step.ops[step.ops.len() - 1];
        Err(Refusal::wrong(last, what.unwrap_or_default(), step.ops.len()))
    }

    /// Takes a step and notes what went wrong without any power failure.
    pub(super) fn take_noting(&self, state: &State, step: &Step) -> Option<ExecutedStep> {
        let taken = self.record(state, step, true).and_then(|recording| {
            self.ledger.record(answers(state, step, &recording));
            let issued = Issued { since: &state.since, step: &step.ops, marks: &recording.marks };
            self.ledger.note_flushes(&issued, &recording.log);
            self.compare_whole(state, step, recording)
        });
        match taken {
            Ok(taken) => Some(taken),
            Err(Refusal::Full) => {
                self.ledger.reach("the disk was full");
                None
            }
            Err(Refusal::Unsupported | Refusal::Fault) => None,
            Err(Refusal::Wrong { cause, what, ops }) => {
                let events = step.ops[..ops].iter().cloned().map(Event::Op);
                let sighting = Sighting { script: state.script(events), what, recording: None };
                self.ledger.groups.add(cause, Digest::default(), None, sighting, &|| None);
                None
            }
        }
    }
}
