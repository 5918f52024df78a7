//! [`GuestDisks`]: a kernel file system behind `Record` and `Examine`, for a campaign that runs outside
//! of the kernel that it tests. No root is needed.
//!
//! Questions are put as one file into a directory; a guest is booted, `fathom guest answer` (the same
//! build of this program) answers one after the other, each into a file of its own, and halts. A guest
//! that dies accuses the question that it was asked last; the rest is asked in a new one. Boot and halt
//! take half a second, so whoever asks much should ask at once ([`GuestDisks::ask`]).

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fathom_block::disks::{
    Answer, Description, Examine, Facts, Question, Questions, Record, Recording, SubjectFailure,
    Workload, write_questions,
};
use fathom_block::{DiskFileSystem, Geometry, Guarantee, Image};
use fathom_core::HarnessFault;
use fathom_guest::{GuestEnd, Job, JobEnd, Kernel, report, run_job};

use crate::command::guest::answer::{QUESTIONS, answer_file};

/// A guest may take so long, and so much longer for each question.
const DEADLINE: Duration = Duration::from_secs(60);
const DEADLINE_EACH: Duration = Duration::from_secs(5);

/// Disks that are examined in one guest: work for about a second beside half a second of boot.
const BATCH_DISKS: usize = 512;

/// See the module documentation.
pub(crate) struct GuestDisks {
    kernel: Kernel,
    seed: u64,
    /// The subject with all its options, as it is typed.
    subject: String,
    described: Description,
}

impl GuestDisks {
    /// A file system of a guest's kernel, and what it is like there.
    ///
    /// # Errors
    /// If the kernel does not boot, or has no such file system.
    pub(crate) fn new(kernel: &str, seed: u64, subject: &str) -> Result<GuestDisks> {
        let kernel = fathom_guest::resolve(kernel)?;
        let mut answers = ask(&kernel, seed, subject, &[Question::Describe])?;
        match answers.pop() {
            Some(Answer::Described(described)) => {
                Ok(GuestDisks { kernel, seed, subject: subject.to_owned(), described: *described })
            }
            Some(Answer::Failed(why)) => bail!("{subject} in a guest: {why}"),
            _ => bail!("{subject} does not answer in a guest with {}", kernel.release),
        }
    }

    /// Asks in one guest, or in one more for each that dies. A question that a guest died of has the
    /// report of its kernel as the answer.
    ///
    /// # Errors
    /// If a guest cannot be booted, or does not get to the first question.
    pub(crate) fn ask(&self, questions: &[Question]) -> Result<Vec<Answer>, HarnessFault> {
        ask(&self.kernel, self.seed, &self.subject, questions)
            .map_err(|error| HarnessFault::new("asking a guest", format!("{error:#}")))
    }
}

fn ask(kernel: &Kernel, seed: u64, subject: &str, questions: &[Question]) -> Result<Vec<Answer>> {
    let mut answers: Vec<Answer> = Vec::new();
    while answers.len() < questions.len() {
        let rest = &questions[answers.len()..];
        let place = tempfile::tempdir().context("making a directory for a guest's questions")?;
        fs::write(place.path().join(QUESTIONS), write_questions(rest)?)
            .context("writing a guest's questions")?;
        let arguments = ["guest", "answer", subject].map(OsString::from);
        let mut job =
            Job::new([&arguments[..], &[place.path().into()]].concat(), place.path().to_owned());
        job.deadline = DEADLINE + DEADLINE_EACH * u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let end = run_job(kernel, seed, &job)?;
        let before = answers.len();
        read_answers(place.path(), rest.len(), &mut answers)?;
        if answers.len() == questions.len() {
            break;
        }
        let died = died_of(&end).with_context(|| format!("{subject} in a guest"))?;
        // A guest that dies before it has mounted anything says nothing about a disk.
        if answers.len() == before && matches!(rest[0], Question::Describe) {
            bail!("the guest died when {subject} was made: {died}");
        }
        let lines = end.console.lines().map(str::to_owned).collect();
        answers.push(accusation(&questions[answers.len()], died, lines));
    }
    Ok(answers)
}

/// The answers that are there, in order.
fn read_answers(place: &Path, count: usize, answers: &mut Vec<Answer>) -> Result<()> {
    for nth in 0..count {
        let Ok(bytes) = fs::read(answer_file(place, nth)) else { return Ok(()) };
        answers.push(Answer::from_bytes(&bytes)?);
    }
    Ok(())
}

/// How a guest ended that did not answer everything, if its kernel is the cause.
fn died_of(end: &JobEnd) -> Result<String> {
    let report = report::read(&end.console);
    match (&end.end, report) {
        (_, Some(report)) => Ok(report.title),
        (None, None) => Ok(format!("no answer within {:.0} s", end.elapsed.as_secs_f64())),
        (Some(GuestEnd::Signal(signal)), None) => {
            let name = fathom_subjects::supervise::process::signal_name(*signal);
            Ok(format!("the process that asked was ended by {name}"))
        }
        (Some(GuestEnd::Died(status)), None) => {
            Ok(match status.signal.map(fathom_subjects::supervise::process::signal_name) {
                Some(name) => format!("the guest was killed by {name}"),
                None => "the guest halted".to_owned(),
            })
        }
        (Some(GuestEnd::Code(_) | GuestEnd::Refused(_)), None) => {
            let words = end.stderr.trim();
            bail!("{}", words.strip_prefix("fathom: ").unwrap_or(words))
        }
    }
}

/// The answer to a question that a guest died of.
fn accusation(question: &Question, died: String, lines: Vec<String>) -> Answer {
    let failure = SubjectFailure::Panic(died);
    match question {
        Question::Examine { .. } => {
            let mut facts = Facts::new(Err(failure));
            facts.kernel_lines = lines;
            Answer::Examined(Box::new(facts))
        }
        _ => Answer::Recorded(Err(failure)),
    }
}

/// Said of an answer of another kind.
fn unexpected(answer: Option<Answer>) -> HarnessFault {
    match answer {
        Some(Answer::Failed(why)) => HarnessFault::new("in a guest", why),
        _ => HarnessFault::new("asking a guest", "it answered something else"),
    }
}

impl Record for GuestDisks {
    fn record(
        &self,
        base: &Image,
        workload: &Workload<'_>,
    ) -> Result<Result<Recording, SubjectFailure>, HarnessFault> {
        let ops = workload.ops.iter().map(|op| (*op).clone()).collect();
        let (base, end, look) = (base.clone(), workload.end, workload.look);
        match self.ask(&[Question::Record { base, ops, end, look }])?.pop() {
            Some(Answer::Recorded(recorded)) => Ok(recorded.map(|recording| *recording)),
            other => Err(unexpected(other)),
        }
    }
}

impl Examine for GuestDisks {
    fn examine(
        &self,
        disks: &[Image],
        questions: &Questions,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        let ask = |disk: &Image| Question::Examine { disk: disk.clone(), questions: *questions };
        let asked: Vec<Question> = disks.iter().map(ask).collect();
        let answers = self.ask(&asked)?.into_iter();
        let facts = answers.map(|answer| match answer {
            Answer::Examined(facts) => Ok(Arc::new(*facts)),
            other => Err(unexpected(Some(other))),
        });
        facts.collect()
    }

    fn batch_disks(&self) -> usize {
        BATCH_DISKS
    }
}

impl DiskFileSystem for GuestDisks {
    fn name(&self) -> &str {
        &self.subject
    }

    fn version(&self) -> &str {
        &self.described.version
    }

    fn geometry(&self) -> Geometry {
        self.described.geometry
    }

    fn guarantee(&self) -> &Guarantee {
        &self.described.guarantee
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        Ok(self.described.blank.clone())
    }

    /// A guest with a clock of its own that is asked the same from its boot on writes the same; what was
    /// recorded is kept with findings all the same, since they may be replayed in another kernel.
    fn is_deterministic(&self) -> bool {
        false
    }
}
