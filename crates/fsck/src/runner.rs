//! Runs one case after the other: corrupt, look, repair, repair again, judge.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::behaviour::behaviour;
use crate::case::{Case, Corruption};
use crate::cause;
use crate::cover::{RECORD_BYTES, Record};
use crate::judge::{self, Class, Observation, Seen, judge, not_hit, says};
use crate::objects::Objects;
use crate::run::{DiskDelta, DiskFile, Outcome, RunError, Sandbox, place_of_death, spawn};
use crate::subject::{CHECK, REPAIR, Subject};

/// The files and the sandbox of one thread.
pub(crate) struct CaseRunner<'a> {
    subject: &'a Subject,
    disk: DiskFile,
    sandbox: Sandbox,
    /// A copy of the healthy disk, changed and changed back.
    scratch: Vec<u8>,
    /// Runs that were made, and runs that were answered from memory.
    pub(crate) runs: u64,
    pub(crate) runs_saved: u64,
    nondeterministic: bool,
    /// Branches that the runs of the present case took; nothing if the checker is not instrumented.
    branches: BTreeSet<u32>,
}

/// What came of a case.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) violations: Vec<Found>,
    /// How the runs ended: looking, the first repair, the second.
    pub(crate) ends: [String; 3],
    /// The outputs of the runs, where something is wrong.
    pub(crate) story: String,
    /// What was lost, one line each.
    pub(crate) losses: Vec<String>,
    /// The disk that the first repair left, if it says that it is fine.
    pub(crate) fine: Option<DiskDelta>,
    /// A number that cases share on which the checker does the same.
    pub(crate) behaviour: u64,
    /// Branches that were taken in runs that were not answered from memory.
    pub(crate) branches: BTreeSet<u32>,
}

/// A violation with its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) class: Class,
    pub(crate) what: String,
    /// What violations of the same cause have in common.
    pub(crate) cause: String,
}

impl<'a> CaseRunner<'a> {
    pub(crate) fn new(subject: &'a Subject) -> Result<CaseRunner<'a>, RunError> {
        CaseRunner::on(subject, subject.base().clone())
    }

    /// The same checker on another disk.
    ///
    /// # Errors
    /// If memory or descriptors are short.
    pub(crate) fn on(subject: &'a Subject, base: Arc<Vec<u8>>) -> Result<CaseRunner<'a>, RunError> {
        let scratch = (*base).clone();
        let mut disk = DiskFile::new(base)?;
        disk.answer_with(&subject.checker.input)?;
        Ok(CaseRunner {
            subject,
            scratch,
            disk,
            sandbox: Sandbox::new(),
            runs: 0,
            runs_saved: 0,
            nondeterministic: false,
            branches: BTreeSet::new(),
        })
    }

    /// Runs a command on a disk; the disk afterwards, and whether it was answered from memory.
    ///
    /// # Errors
    /// If the harness fails.
    pub(crate) fn run(
        &mut self,
        which: u8,
        before: &DiskDelta,
    ) -> Result<(Outcome, DiskDelta, bool), RunError> {
        let key = (which, before.digest());
        let known = self.subject.memo.as_ref().and_then(|memo| memo.get(key));
        if let Some(((outcome, after), false)) = known {
            self.runs_saved += 1;
            return Ok((outcome, after, true));
        }
        let (outcome, after) = match self.subject.is_instrumented {
            true => {
                let (outcome, record, after) = self.record_and_look(which, before)?;
                self.branches.extend(record.unwrap_or_default().edges);
                (outcome, after)
            }
            false => self.run_and_look(which, before)?,
        };
        if let Some(((then, disk_then), true)) = &known
            && (then.end, disk_then) != (outcome.end, &after)
        {
            self.nondeterministic = true;
        }
        if let Some(memo) = &self.subject.memo {
            memo.put(key, &outcome, &after);
        }
        Ok((outcome, after, false))
    }

    /// Runs a command on a disk; the disk afterwards.
    fn run_and_look(
        &mut self,
        which: u8,
        before: &DiskDelta,
    ) -> Result<(Outcome, DiskDelta), RunError> {
        let command = &self.subject.commands[usize::from(which)];
        self.disk.set(before)?;
        let outcome = spawn(command, &self.disk, &self.subject.limits, &self.sandbox)?;
        let after = self.disk.look()?;
        self.runs += 1;
        Ok((outcome, after))
    }

    /// Runs a command on a disk and reads what an instrumented checker recorded.
    ///
    /// # Errors
    /// If the harness fails.
    pub(crate) fn record(
        &mut self,
        which: u8,
        before: &DiskDelta,
    ) -> Result<(Outcome, Option<Record>), RunError> {
        let (outcome, record, _) = self.record_and_look(which, before)?;
        Ok((outcome, record))
    }

    /// The same, with the disk afterwards.
    ///
    /// # Errors
    /// If the harness fails.
    pub(crate) fn record_and_look(
        &mut self,
        which: u8,
        before: &DiskDelta,
    ) -> Result<(Outcome, Option<Record>, DiskDelta), RunError> {
        self.disk.clear_record(RECORD_BYTES)?;
        let (outcome, after) = self.run_and_look(which, before)?;
        Ok((outcome, Record::parse(&self.disk.record()?), after))
    }

    /// The case of a corruption.
    pub(crate) fn case(&mut self, what: &Corruption) -> Case {
        Case::of(&self.subject.map, &mut self.scratch, what)
    }

    /// Runs and judges a case.
    ///
    /// # Errors
    /// If the harness fails.
    pub(crate) fn try_case(&mut self, case: &Case) -> Result<Judged, RunError> {
        self.nondeterministic = false;
        self.branches.clear();
        let corrupt = DiskDelta::written(self.subject.base(), &case.writes);
        let (seen, disks) = self.observe(case, &corrupt)?;
        let mut control = self.subject.control;
        control.journal_to_replay |= case.crashed;
        let violations = judge(&seen, control);
        let mut found = Vec::new();
        for violation in &violations {
            let cause = self.cause(case, violation, &seen, &disks)?;
            found.push(Found { class: violation.class, what: violation.what.clone(), cause });
        }
        let end =
            |run: Option<&Seen>| run.map_or_else(String::new, |run| run.outcome.end.to_string());
        let ends = [end(Some(&seen.check)), end(seen.repairs.first()), end(seen.repairs.get(1))];
        let fine = fine(&seen, &disks);
        // A kernel may still find something on a disk that is said to be fine.
        let told = !found.is_empty() || fine.is_some();
        let story = if told { cause::story(&seen) } else { String::new() };
        let losses = match &seen.losses {
            Some(Ok(losses)) => {
                losses.iter().map(|(path, loss)| format!("{path}: {loss}")).collect()
            }
            _ => Vec::new(),
        };
        let behaviour = behaviour(&seen, &self.subject.sorts);
        let branches = std::mem::take(&mut self.branches);
        Ok(Judged { violations: found, ends, story, losses, fine, behaviour, branches })
    }

    /// Looks once, repairs twice, and a third time if the second was not the end of it. The disks
    /// before each run come with it.
    fn observe(
        &mut self,
        case: &Case,
        corrupt: &DiskDelta,
    ) -> Result<(Observation, Vec<DiskDelta>), RunError> {
        let mut disks = vec![corrupt.clone()];
        let check = self.seen(CHECK, corrupt)?.0;
        let mut repairs = Vec::new();
        let mut before = corrupt.clone();
        for number in 0..3 {
            disks.push(before.clone());
            let (seen, after) = self.seen(REPAIR, &before)?;
            let goes_on = seen.says.is_some();
            let settled = number == 1
                && seen.changed.is_empty()
                && seen.says == Some(crate::checker::Says::Clean);
            repairs.push(seen);
            before = after;
            if !goes_on || settled {
                break;
            }
        }
        // The disk after the last run, where others may have begun.
        disks.push(before.clone());
        let losses = self.losses(case, &repairs, &disks);
        let nondeterministic = self.nondeterministic;
        Ok((Observation { check, repairs, losses, nondeterministic }, disks))
    }

    fn seen(&mut self, which: u8, before: &DiskDelta) -> Result<(Seen, DiskDelta), RunError> {
        let (outcome, after, _) = self.run(which, before)?;
        let mut changed = before.changes(self.subject.base(), &after);
        let anyway = match which {
            REPAIR => &self.subject.written_anyway,
            _ => &self.subject.written_by_looking,
        };
        changed.retain(|(at, _, _)| !within(anyway, *at));
        let checker = &self.subject.checker;
        let says = says(checker, &outcome, which == REPAIR, !changed.is_empty());
        let replayed = which == CHECK && checker.has_replayed(&outcome.output);
        Ok((Seen { outcome, says, changed, replayed }, after))
    }

    /// What the disk lost that was not hit, if the checker says that it is fine now.
    fn losses(
        &mut self,
        case: &Case,
        repairs: &[Seen],
        disks: &[DiskDelta],
    ) -> Option<Result<Vec<(String, judge::Loss)>, String>> {
        let healthy = self.subject.objects.as_ref()?;
        if !judge::is_said_to_be_fine(repairs) {
            return None;
        }
        // The disk after the first repair.
        let after = disks.get(2)?;
        after.apply(&mut self.scratch);
        let now = Objects::of(&self.scratch, &self.subject.map.file_system);
        after.revert(&mut self.scratch, self.subject.base());
        let left = |losses| case.fields().fold(losses, |left, field| not_hit(field, healthy, left));
        Some(now.map(|now| left(healthy.losses(&now))))
    }

    /// What a violation has in common with others of the same cause.
    fn cause(
        &mut self,
        case: &Case,
        violation: &judge::Violation,
        seen: &Observation,
        disks: &[DiskDelta],
    ) -> Result<String, RunError> {
        let run = std::iter::once(&seen.check).chain(&seen.repairs).nth(violation.run);
        let shape = run.map_or_else(String::new, |run| cause::shape(&run.outcome.output));
        let frames = run.map_or_else(String::new, |run| cause::frames(&run.outcome.output));
        match violation.class {
            Class::Loss | Class::Unreadable => Ok(cause::field_sort(&case.field)),
            Class::Sanitizer if !frames.is_empty() => Ok(frames),
            Class::Signal => {
                let place = match disks.get(violation.run) {
                    Some(before) => self.place_of_death(violation.run, before)?,
                    None => None,
                };
                // Messages before a death differ from case to case; the place does not.
                Ok(place.unwrap_or(shape))
            }
            Class::Hang | Class::Output | Class::Memory | Class::Sanitizer => Ok(shape),
            _ => {
                let codes = match disks.get(violation.run) {
                    Some(before) => self.problem_codes(violation.run, before)?,
                    None => String::new(),
                };
                Ok(if codes.is_empty() { shape } else { codes })
            }
        }
    }

    /// Where in the program a run dies of a signal.
    fn place_of_death(
        &mut self,
        run: usize,
        before: &DiskDelta,
    ) -> Result<Option<String>, RunError> {
        let which = if run == 0 { CHECK } else { REPAIR };
        self.disk.set(before)?;
        let command = &self.subject.commands[usize::from(which)];
        let place = place_of_death(command, &self.disk, &self.subject.limits, &self.sandbox)?;
        self.disk.look()?;
        Ok(place)
    }

    /// The codes in the checker's own log of problems, if it has one.
    fn problem_codes(&mut self, run: usize, before: &DiskDelta) -> Result<String, RunError> {
        let Some(logged) = &self.subject.logged else { return Ok(String::new()) };
        let which = if run == 0 { CHECK } else { REPAIR };
        self.disk.set(before)?;
        self.disk.take_log()?;
        spawn(&logged[usize::from(which)], &self.disk, &self.subject.limits, &self.sandbox)?;
        self.disk.look()?;
        Ok(cause::codes(&self.disk.take_log()?))
    }
}

/// The disk that the first repair left, if it is said to be fine.
fn fine(seen: &Observation, disks: &[DiskDelta]) -> Option<DiskDelta> {
    disks.get(2).filter(|_| judge::is_said_to_be_fine(&seen.repairs)).cloned()
}

/// Whether a place lies in one of the ranges, which are in order.
fn within(ranges: &[Range<u64>], at: u64) -> bool {
    ranges.iter().any(|range| range.contains(&at))
}
