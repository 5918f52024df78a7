//! A campaign: all cases of a disk, on several threads, as a stream.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fathom_record::pace::Moment;
use fathom_record::{Observer, Progress};
use serde::{Deserialize, Serialize};

use crate::behaviour::Coverage;
use crate::case::{Case, Cases, Choice, Corruption};
use crate::finding;
use crate::judge::Class;
use crate::kernel::Kernel;
use crate::look::DiskLooker;
use crate::run::RunError;
use crate::runner::{CaseRunner, Judged};
use crate::subject::Subject;

/// Results that wait for the main thread: more would only use memory.
const WAITING_MAX: usize = 64;
/// Results that wait for a kernel at most.
const READY_MAX: usize = 2000;
/// Time between two reports of progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);
/// Time between two states on disk.
const SAVE_EVERY: Duration = Duration::from_secs(2);
/// Names of fields that a cause remembers.
const FIELDS_MAX: usize = 40;

/// What a campaign does.
#[derive(Clone, Default)]
pub struct Plan {
    /// Which cases.
    pub choice: Choice,
    /// These cases instead of those of the fields: disks that power failures left.
    pub given: Option<Arc<Vec<Case>>>,
    /// Threads; 0 is one per core.
    pub jobs: usize,
    /// When to stop.
    pub budget: Option<Duration>,
    /// Stop after so many cases.
    pub cases_max: Option<u64>,
    /// The state of a campaign that was interrupted.
    pub resume: Option<State>,
    /// Has disks that are said to be fine mounted by a kernel.
    pub looker: Option<Arc<dyn DiskLooker>>,
}

/// A cause, and everything seen of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cause {
    /// The class of its violations.
    pub class: Class,
    /// What was seen, for example "repaired → repaired".
    pub what: String,
    /// What its violations have in common.
    pub cause: String,
    /// How many cases showed it.
    pub cases: u64,
    /// The simplest of them.
    pub case: Case,
    /// How the runs of that case ended: looking, first repair, second repair.
    pub ends: [String; 3],
    /// What they printed.
    pub story: String,
    /// What was lost.
    pub losses: Vec<String>,
    /// Fields that showed it, with how often each.
    pub fields: BTreeMap<String, u64>,
}

/// Everything a campaign has found out so far; on disk it is what `--resume` goes on from.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct State {
    /// What the campaign is about: another one cannot be resumed.
    pub identity: String,
    /// Cases that are done: all before this number, in the order of the plan.
    pub done: u64,
    /// All cases of the plan.
    pub total: u64,
    /// Fields that are tried.
    pub fields: u64,
    /// Runs that were made.
    pub runs: u64,
    /// Runs that were answered from memory.
    pub runs_saved: u64,
    /// Cases with a violation.
    pub violations: u64,
    /// Cases with a violation of each class.
    pub by_class: BTreeMap<String, u64>,
    /// How often the first and the second repair ended so.
    pub matrix: BTreeMap<String, u64>,
    /// What was found, by signature.
    pub causes: BTreeMap<String, Cause>,
    /// The worst outcome of each field, for the map of the disk: field, class.
    pub outcomes: BTreeMap<String, String>,
    /// What the checker was seen to do.
    #[serde(default)]
    pub coverage: Coverage,
    /// Time that the campaign has taken.
    pub seconds: f64,
    /// Whether all cases are done.
    pub complete: bool,
}

/// One case that is done.
struct Done {
    number: u64,
    case: Case,
    judged: Judged,
    runs: u64,
    runs_saved: u64,
}

/// What the threads share.
struct Shared<'a> {
    subject: &'a Subject,
    cases: Mutex<(u64, Source)>,
    stop: AtomicBool,
    cases_max: u64,
}

/// Where the cases of a campaign come from.
enum Source {
    /// Fields and their values.
    Fields(Cases),
    /// A list, and how many of it were taken.
    Given(Arc<Vec<Case>>, usize),
}

/// A case that is next: fields are corrupted by the thread that runs it.
enum Next {
    Corruption(Corruption),
    Case(Case),
}

impl Source {
    /// How many cases there are, of how many fields or disks.
    fn total(&self) -> (u64, u64) {
        match self {
            Source::Fields(cases) => (cases.total(), cases.fields() as u64),
            Source::Given(cases, _) => (cases.len() as u64, cases.len() as u64),
        }
    }

    fn next(&mut self) -> Option<Next> {
        match self {
            Source::Fields(cases) => cases.next().map(Next::Corruption),
            Source::Given(cases, taken) => {
                let case = cases.get(*taken).cloned();
                *taken += 1;
                case.map(Next::Case)
            }
        }
    }
}

/// Identifies a campaign: the same cases in the same order on the same disk with the same checker.
pub fn identity(subject: &Subject, choice: &Choice) -> String {
    let program = std::fs::read(&subject.program).unwrap_or_default();
    let sum = |bytes: &[u8]| twox_hash::XxHash3_128::oneshot(bytes) >> 64;
    // The number is that of the order of cases: whoever changes the order counts it up.
    format!("{} {:x} {:x} {choice:?} 2", subject.checker.name, sum(&program), sum(subject.base()))
}

/// Runs a campaign. `save` is given the state every few seconds.
///
/// # Errors
/// If the harness fails; what was found until then has been told.
pub fn run(
    subject: &Subject,
    plan: &Plan,
    observer: &mut dyn Observer,
    mut save: impl FnMut(&State),
) -> Result<State, RunError> {
    let start = Moment::now();
    let mut cases = match &plan.given {
        Some(given) => Source::Given(given.clone(), 0),
        None => Source::Fields(Cases::new(&subject.map, subject.base(), &plan.choice)),
    };
    let (total, fields) = cases.total();
    let mut state = plan.resume.clone().unwrap_or_default();
    state.identity = identity(subject, &plan.choice);
    (state.total, state.fields) = (total, fields);
    if fields == 0 {
        // There is nothing to do, and nothing to go on from.
        return Ok(state);
    }
    let from = state.done;
    for _ in 0..from {
        cases.next();
    }
    let shared = Shared {
        subject,
        cases: Mutex::new((from, cases)),
        stop: AtomicBool::new(false),
        cases_max: plan.cases_max.map_or(u64::MAX, |most| from.saturating_add(most)),
    };
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = if plan.jobs == 0 { cores() } else { plan.jobs };
    let before = state.seconds;
    let kernel = match &plan.looker {
        Some(looker) => Some(Kernel::new(subject, looker.clone())?),
        None => None,
    };
    let (late, told, ready) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
    let mut collector = Collector { state, late, told, ready, kernel, subject };
    let result = std::thread::scope(|scope| {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        for _ in 0..jobs {
            let (sender, shared) = (sender.clone(), &shared);
            scope.spawn(move || work(shared, &sender));
        }
        drop(sender);
        let clock = Clock { start, before, budget: plan.budget };
        collect(&mut collector, &receiver, &shared, &clock, observer, &mut save)
    });
    let mut state = collector.state;
    state.seconds = before + start.elapsed().as_secs_f64();
    state.complete = state.done >= state.total;
    save(&state);
    result.map(|()| state)
}

/// Runs cases until there are none.
fn work(shared: &Shared<'_>, sender: &SyncSender<Result<Done, RunError>>) {
    let mut runner = match CaseRunner::new(shared.subject) {
        Ok(runner) => runner,
        Err(error) => return drop(sender.send(Err(error))),
    };
    while !shared.stop.load(Ordering::Relaxed) {
        let next = {
            let mut cases = shared.cases.lock().unwrap_or_else(|error| error.into_inner());
            if cases.0 >= shared.cases_max {
                return;
            }
            cases.0 += 1;
            let number = cases.0 - 1;
            cases.1.next().map(|what| (number, what))
        };
        let Some((number, what)) = next else { return };
        let case = match what {
            Next::Corruption(what) => runner.case(&what),
            Next::Case(case) => case,
        };
        let (runs, saved) = (runner.runs, runner.runs_saved);
        let done = runner.try_case(&case).map(|judged| Done {
            number,
            case,
            judged,
            runs: runner.runs - runs,
            runs_saved: runner.runs_saved - saved,
        });
        let failed = done.is_err();
        if sender.send(done).is_err() || failed {
            return;
        }
    }
}

/// When a campaign began, and when it should end.
struct Clock {
    start: Moment,
    /// Seconds of the campaign that this one goes on from.
    before: f64,
    budget: Option<Duration>,
}

fn collect(
    collector: &mut Collector<'_>,
    receiver: &Receiver<Result<Done, RunError>>,
    shared: &Shared<'_>,
    clock: &Clock,
    observer: &mut dyn Observer,
    save: &mut dyn FnMut(&State),
) -> Result<(), RunError> {
    let (mut told, mut saved) = (Moment::now(), Moment::now());
    loop {
        match receiver.recv_timeout(PROGRESS_EVERY) {
            Ok(Ok(done)) => collector.add(done, observer)?,
            Ok(Err(error)) => {
                shared.stop.store(true, Ordering::Relaxed);
                // Threads may wait for us to take their results.
                while receiver.recv().is_ok() {}
                return Err(error);
            }
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
        }
        if told.elapsed() >= PROGRESS_EVERY {
            told = Moment::now();
            let progress = collector.progress(clock);
            let over = clock.budget.is_some_and(|budget| clock.start.elapsed() >= budget);
            if observer.progress(&progress) == ControlFlow::Break(()) || over {
                shared.stop.store(true, Ordering::Relaxed);
            }
        }
        if saved.elapsed() >= SAVE_EVERY {
            saved = Moment::now();
            collector.state.seconds = clock.before + clock.start.elapsed().as_secs_f64();
            save(&collector.state);
        }
    }
    collector.flush(observer)?;
    collector.tell_all(observer);
    Ok(())
}

/// Puts results together, in the order of the cases.
struct Collector<'a> {
    state: State,
    /// Results that came before an earlier one.
    late: BTreeMap<u64, Done>,
    /// Signatures that were told, with the number of cases then.
    told: BTreeMap<String, u64>,
    /// Results in order that wait for a kernel to look at their disks.
    ready: Vec<Done>,
    kernel: Option<Kernel>,
    subject: &'a Subject,
}

impl Collector<'_> {
    fn add(&mut self, done: Done, observer: &mut dyn Observer) -> Result<(), RunError> {
        self.late.insert(done.number, done);
        let mut next = self.state.done + self.ready.len() as u64;
        while let Some(done) = self.late.remove(&next) {
            next += 1;
            let kernel = self.kernel.as_mut();
            let waits = kernel.is_some_and(|kernel| kernel.is_full(done.judged.fine.as_ref()));
            self.ready.push(done);
            if waits || self.kernel.is_none() || self.ready.len() >= READY_MAX {
                self.flush(observer)?;
            }
        }
        Ok(())
    }

    /// Has the disks that wait looked at, and counts their cases.
    fn flush(&mut self, observer: &mut dyn Observer) -> Result<(), RunError> {
        let mut ready = std::mem::take(&mut self.ready);
        if let Some(kernel) = &mut self.kernel {
            let disks = ready.iter().filter_map(|done| done.judged.fine.as_ref());
            kernel.look_at(self.subject, &disks.collect::<Vec<_>>())?;
            for done in &mut ready {
                kernel.judge(&done.case, &mut done.judged);
            }
        }
        for done in ready {
            self.state.done += 1;
            self.count(done, observer);
        }
        Ok(())
    }

    fn count(&mut self, done: Done, observer: &mut dyn Observer) {
        let state = &mut self.state;
        state.runs += done.runs;
        state.runs_saved += done.runs_saved;
        let [_, first, second] = &done.judged.ends;
        *state.matrix.entry(format!("{first} → {second}")).or_default() += 1;
        state.coverage.add(state.done, done.judged.behaviour, &done.judged.branches);
        let worst = done.judged.violations.iter().map(|found| found.class).min();
        let known = state.outcomes.entry(done.case.field.clone()).or_default();
        if let Some(worst) =
            worst.filter(|worst| Class::named(known).is_none_or(|known| *worst < known))
        {
            *known = worst.name().to_owned();
        }
        let Some(_) = worst else { return };
        state.violations += 1;
        let mut classes: Vec<Class> =
            done.judged.violations.iter().map(|found| found.class).collect();
        classes.sort_unstable();
        classes.dedup();
        for class in classes {
            *state.by_class.entry(class.name().to_owned()).or_default() += 1;
        }
        // Two runs of a case may show the same: it is one case of that cause.
        let mut counted = BTreeSet::new();
        for found in &done.judged.violations {
            let signature = finding::signature(&self.subject.checker.name, found);
            if counted.insert(signature.clone()) {
                self.cause(signature, found, &done, observer);
            }
        }
    }

    fn cause(
        &mut self,
        signature: String,
        found: &crate::runner::Found,
        done: &Done,
        observer: &mut dyn Observer,
    ) {
        let fresh = !self.state.causes.contains_key(&signature);
        let cause = self.state.causes.entry(signature.clone()).or_insert_with(|| Cause {
            class: found.class,
            what: found.what.clone(),
            cause: found.cause.clone(),
            cases: 0,
            case: done.case.clone(),
            ends: done.judged.ends.clone(),
            story: done.judged.story.clone(),
            losses: done.judged.losses.clone(),
            fields: BTreeMap::new(),
        });
        cause.cases += 1;
        if cause.fields.len() < FIELDS_MAX || cause.fields.contains_key(&done.case.field) {
            *cause.fields.entry(done.case.field.clone()).or_default() += 1;
        }
        if simpler(&done.case, &cause.case) {
            cause.what = found.what.clone();
            cause.case = done.case.clone();
            cause.ends = done.judged.ends.clone();
            cause.story = done.judged.story.clone();
            cause.losses = done.judged.losses.clone();
        }
        if fresh && observer.seen(&finding::finding(self.subject, &signature, cause)) {
            self.told.insert(signature, 1);
        }
    }

    fn progress(&self, clock: &Clock) -> Progress {
        let share_of_cases = self.state.done as f64 / self.state.total.max(1) as f64;
        let share_of_time = clock
            .budget
            .map_or(0.0, |budget| clock.start.elapsed().as_secs_f64() / budget.as_secs_f64());
        Progress {
            elapsed: clock.start.elapsed(),
            counts: vec![
                ("cases", self.state.done),
                ("violations", self.state.violations),
                ("runs", self.state.runs),
            ],
            share: Some(share_of_cases.max(share_of_time)),
            findings: self.state.causes.len() as u64,
        }
    }

    /// Tells every cause once more, with all its cases; the most frequent of the worst first.
    fn tell_all(&mut self, observer: &mut dyn Observer) {
        let mut causes: Vec<(&String, &Cause)> = self.state.causes.iter().collect();
        causes.sort_by_key(|(_, cause)| (cause.class, std::cmp::Reverse(cause.cases)));
        for (signature, cause) in causes {
            observer.finding(&finding::finding(self.subject, signature, cause), None);
        }
    }
}

/// Whether a case is simpler than another: fewer bytes, checksums right, a smaller value.
fn simpler(case: &Case, than: &Case) -> bool {
    let size = |case: &Case| {
        let bytes: usize = case.writes.iter().map(|(_, bytes)| bytes.len()).sum();
        (bytes, !case.sums_right, case.value)
    };
    size(case) < size(than)
}

/// A case that was run again.
#[derive(Clone, Debug)]
pub struct Again {
    /// The signatures of its violations.
    pub signatures: Vec<String>,
    /// How the runs ended: looking, first repair, second repair.
    pub ends: [String; 3],
    /// What they printed, where something is wrong.
    pub story: String,
    /// What was lost that was not hit.
    pub losses: Vec<String>,
}

/// Runs one case.
///
/// # Errors
/// If the harness fails.
pub fn again(subject: &Subject, case: &Case) -> Result<Again, RunError> {
    let judged = CaseRunner::new(subject)?.try_case(case)?;
    let name = &subject.checker.name;
    Ok(Again {
        signatures: judged.violations.iter().map(|found| finding::signature(name, found)).collect(),
        ends: judged.ends,
        story: judged.story,
        losses: judged.losses,
    })
}
