//! Runs what a worker died of again, every time in a worker or a guest of its own, and looks for less
//! that shows the same.

use std::convert::Infallible;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use fathom_core::{Op, Violation};
use fathom_engine::check::finding::investigate::FindingSource;
use fathom_engine::check::finding::{Finding, RunRecord};
use fathom_engine::crash::last_words::CrashSource;
use fathom_engine::crash::{CrashFinding, Event, Script};
use fathom_record::minimise;
use fathom_subjects::supervise::{Board, LaneState, Output, SignalSource};

use super::death::{Death, NO_RECORD, how};
use super::watch::{EndedWorker, Limits, WorkerEnd, watch};

/// Running a death again and shrinking it may take so long, beyond the last run.
pub(super) const CONFIRM_WITHIN: Duration = Duration::from_secs(20);

/// What a death is known from: the operations that a worker has left.
pub(super) enum Fatal<'a> {
    /// Of `fathom check`.
    Check(&'a FindingSource, Vec<Op>),
    /// Of `fathom crash`.
    Crash(&'a CrashSource, Script),
}

/// A finding that was made of a death.
pub(super) enum DeathFinding {
    Check(Box<Finding>),
    Crash(Box<CrashFinding>),
}

impl DeathFinding {
    pub(super) fn record(&self) -> fathom_record::Finding {
        match self {
            DeathFinding::Check(finding) => finding.record(),
            DeathFinding::Crash(finding) => finding.record(),
        }
    }

    /// Notes something for whoever reads the finding.
    pub(super) fn note(&mut self, key: &str, text: String) {
        let labels = match self {
            DeathFinding::Check(finding) => &mut finding.labels,
            DeathFinding::Crash(finding) => &mut finding.record.labels,
        };
        labels.insert(key.to_owned(), text);
    }

    /// Operations of the shortest run.
    pub(super) fn ops(&self) -> usize {
        match self {
            DeathFinding::Check(finding) => finding.minimal.steps.len(),
            DeathFinding::Crash(finding) => finding.minimal.ops_len(),
        }
    }
}

impl<'a> Fatal<'a> {
    /// Reads what the lane of a worker has left.
    pub(super) fn read(
        sources: &'a [FindingSource],
        crash: Option<&'a CrashSource>,
        board: &Board,
        lane: &LaneState,
    ) -> Result<Option<Fatal<'a>>, String> {
        let records = board.records(lane.index);
        if let Some(source) = sources.get(lane.subject) {
            let ops: Option<Vec<Op>> = records.iter().map(|record| Op::unpack(record)).collect();
            let ops = ops.ok_or(NO_RECORD)?;
            return Ok(Some(Fatal::Check(source, ops)));
        }
        let Some(source) = crash else { return Ok(None) };
        let events: Option<_> = records.iter().map(|record| Event::unpack(record)).collect();
        Ok(Some(Fatal::Crash(source, Script(events.ok_or(NO_RECORD)?))))
    }

    /// A death before the first operation.
    pub(super) fn nothing(
        sources: &'a [FindingSource],
        crash: Option<&'a CrashSource>,
    ) -> Option<Fatal<'a>> {
        let check = sources.first().map(|source| Fatal::Check(source, Vec::new()));
        check.or_else(|| crash.map(|source| Fatal::Crash(source, Script(Vec::new()))))
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Fatal::Check(_, ops) => ops.is_empty(),
            Fatal::Crash(_, script) => script.0.is_empty(),
        }
    }

    /// The finding as it was first seen.
    pub(super) fn finding(&self, violation: &Violation) -> DeathFinding {
        match self {
            Fatal::Check(source, ops) => {
                DeathFinding::Check(Box::new(source.last_words(ops, violation.clone())))
            }
            Fatal::Crash(source, script) => {
                DeathFinding::Crash(Box::new(source.last_words(script.clone(), &how(violation))))
            }
        }
    }
}

/// Somebody interrupted, or nothing can be run.
pub(crate) struct NotRun;

/// Whoever runs this program once more, where what it dies of does no harm.
pub(crate) trait Rerun {
    /// Why a death is not run again, if it is not.
    fn refuses(&self, violation: &Violation) -> Option<String>;

    /// Runs the program with these arguments to its end; it may write to `out`. If it dies, `died` is
    /// told of what, and what it was doing.
    fn rerun(
        &self,
        arguments: Vec<OsString>,
        out: &Path,
        died: &mut dyn FnMut(&Board, &Violation, &LaneState),
    ) -> Result<(), NotRun>;
}

/// Runs operations again.
pub(crate) struct Confirmation<'a> {
    /// Time for one call.
    pub(super) deadline: Duration,
    /// Time for shrinking, beyond the last run.
    pub(super) within: Duration,
    pub(super) place: &'a dyn Rerun,
}

/// Workers of this machine.
pub(super) struct InWorkers<'a> {
    pub(super) limits: Limits,
    pub(super) signals: &'a SignalSource,
}

impl Rerun for InWorkers<'_> {
    fn refuses(&self, violation: &Violation) -> Option<String> {
        match violation {
            Violation::Oops { .. } => Some(
                "not run again by itself: a kernel that has oopsed is not to be trusted, and doing \
                 it once more may stop the machine"
                    .to_owned(),
            ),
            Violation::Hang { seconds } if *seconds > CONFIRM_WITHIN.as_secs() => {
                Some(format!("not run again by itself: that takes {seconds} s each time"))
            }
            _ => None,
        }
    }

    fn rerun(
        &self,
        mut arguments: Vec<OsString>,
        _out: &Path,
        died: &mut dyn FnMut(&Board, &Violation, &LaneState),
    ) -> Result<(), NotRun> {
        // Not in guests: what one does with files of the host moves its clock, for every replay in the same way.
        arguments.push("--scratch".into());
        let limits = Limits { end: Some(CONFIRM_WITHIN), ..self.limits };
        let ended = watch(arguments, Output::Discarded, limits, self.signals);
        let EndedWorker { how, board, interrupted, .. } = ended.map_err(|_| NotRun)?;
        if interrupted {
            return Err(NotRun);
        }
        if let WorkerEnd::Death(Death::Caused { violation, lane: Some(lane) }) = how {
            died(&board, &violation, &lane);
        }
        Ok(())
    }
}

/// The answer of one more run.
struct Again {
    signature: String,
    /// Operations or events that were executed.
    items: usize,
}

impl Confirmation<'_> {
    /// Why a death is not run again, if it is not.
    pub(super) fn refuses(&self, violation: &Violation, held: &[String]) -> Option<String> {
        match held {
            [] => self.place.refuses(violation),
            _ => Some("not run again: the kernel still holds what the first run left".to_owned()),
        }
    }

    /// Runs it again and, if it shows again, looks for less of it. `None` if somebody interrupts.
    pub(super) fn confirm(
        &self,
        fatal: &Fatal<'_>,
        violation: &Violation,
        first: &DeathFinding,
    ) -> Option<DeathFinding> {
        let signature = first.record().signature;
        let again = self.run(first, fatal).ok()?;
        let shown = again.as_ref().is_some_and(|again| again.signature == signature);
        let deadline = Instant::now() + if shown { self.within } else { Duration::ZERO };
        match (fatal, first) {
            (Fatal::Check(source, ops), DeathFinding::Check(first)) => {
                let minimal = self.minimise(
                    ops.clone(),
                    deadline,
                    &signature,
                    |ops| Fatal::Check(source, ops.to_vec()),
                    violation,
                );
                let seen = again.map_or_else(|| "nothing".to_owned(), |again| again.signature);
                let runs = vec![RunRecord { run: "again".to_owned(), ops: ops.len(), seen }];
                let finding = source.confirmed((**first).clone(), &minimal, runs);
                Some(DeathFinding::Check(Box::new(finding)))
            }
            (Fatal::Crash(source, script), DeathFinding::Crash(first)) => {
                let minimal = self.minimise(
                    script.0.clone(),
                    deadline,
                    &signature,
                    |events| Fatal::Crash(source, Script(events.to_vec())),
                    violation,
                );
                let finding = source.confirmed(first, Script(minimal), 1, usize::from(shown));
                Some(DeathFinding::Crash(Box::new(finding)))
            }
            _ => None,
        }
    }

    fn minimise<'f, T: Clone>(
        &self,
        items: Vec<T>,
        deadline: Instant,
        signature: &str,
        fatal: impl Fn(&[T]) -> Fatal<'f>,
        violation: &Violation,
    ) -> Vec<T> {
        let mut interrupted = false;
        let shortest = minimise(items.clone(), deadline, |candidate: &[T]| {
            let part = fatal(candidate);
            if interrupted || part.is_empty() {
                return Ok::<_, Infallible>(None);
            }
            let again = self.run(&part.finding(violation), &part);
            interrupted = again.is_err();
            let shows = again.ok().flatten().filter(|again| again.signature == signature);
            Ok(shows.map(|again| candidate[..again.items.min(candidate.len())].to_vec()))
        });
        shortest.unwrap_or(items)
    }

    /// One more run; `None` if it does not die.
    fn run(&self, finding: &DeathFinding, fatal: &Fatal<'_>) -> Result<Option<Again>, NotRun> {
        let place = tempfile::tempdir().map_err(|_| NotRun)?;
        // Thrown away with its directory: others may need the disk.
        let dir = finding.record().write_scratch(place.path()).map_err(|_| NotRun)?;
        let deadline = format!("{}ms", self.deadline.as_millis());
        let arguments: [OsString; 7] = [
            "replay".into(),
            dir.into(),
            "--json".into(),
            "--deadline".into(),
            deadline.into(),
            "--out".into(),
            place.path().into(),
        ];
        let (sources, crash) = match fatal {
            Fatal::Check(source, _) => (vec![(*source).clone()], None),
            Fatal::Crash(source, _) => (Vec::new(), Some(*source)),
        };
        let mut again = None;
        let mut died = |board: &Board, violation: &Violation, lane: &LaneState| {
            // A replay has one subject, whichever it was in the campaign.
            let lane = LaneState { subject: 0, ..lane.clone() };
            let Ok(Some(died)) = Fatal::read(&sources, crash, board, &lane) else { return };
            let items = match &died {
                Fatal::Check(_, ops) => ops.len(),
                Fatal::Crash(_, script) => script.0.len(),
            };
            again = Some(Again { signature: died.finding(violation).record().signature, items });
        };
        self.place.rerun(arguments.to_vec(), place.path(), &mut died)?;
        Ok(again)
    }
}
