//! The system that the search explores: a file system under a workload, whose power fails all the
//! time.
//!
//! Taking a step means: mount, repeat the operations since the last mount, execute the step, and
//! judge every image that a power failure during the step could leave. Violations go to the
//! [`Ledger`]; the search itself goes on.

mod play;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use fathom_block::{BlockBacked, CrashPoint, Image, Level, Window};
use fathom_core::{
    Difference, Digest, Errno, FsPath, HarnessFault, Op, Outcome, Slot, Subject, Supervision, Tree,
};
use fathom_model::{Config, Model};

use crate::crash::config::{CrashConfig, Identity};
use crate::crash::judge::{Cause, Class, anonymous, classify, describe};
use crate::crash::last_words;
use crate::crash::ledger::{Ledger, Sighting};
use crate::crash::promise::Promise;
use crate::crash::recovery::{Recovered, Treatment, recover, visible};
use crate::crash::script::{Event, Script};
use crate::crash::session::{End, Session, SubjectFailure, session};
use crate::crash::shape;
use crate::crash::workload::{Step, StepKind, View};
use crate::search::System;

pub use play::ExecutedScript;

/// Domain of the digest that identifies a state.
const DOMAIN_STATE: u64 = 18;

/// Everything that led to a state, newest first.
struct History {
    before: Option<Arc<History>>,
    events: Vec<Event>,
}

/// A file system in use.
#[derive(Clone)]
pub struct State {
    /// What was mounted last.
    base: Image,
    /// The operations since.
    since: Arc<[Op]>,
    trail: Option<Arc<History>>,
    /// The reference, as a program sees it.
    model: Model,
    open: BTreeMap<Slot, FsPath>,
    promise: Promise,
    recent: Vec<StepKind>,
    crashes: u32,
    /// Seed of the next written data.
    seed: u64,
    /// Digest of the device, if states are identified by it.
    image: Digest,
}

impl State {
    /// The events up to here, and more.
    fn script(&self, more: impl IntoIterator<Item = Event>) -> Script {
        let mut parts = Vec::new();
        let mut at = self.trail.as_deref();
        while let Some(trail) = at {
            parts.push(&trail.events);
            at = trail.before.as_deref();
        }
        let events = parts.into_iter().rev().flatten().cloned();
        Script(events.chain(more).collect())
    }

    fn tree(&self) -> Tree {
        self.model.clone().observe().expect("the model can always be observed")
    }
}

/// What can happen.
#[derive(Clone, Debug)]
pub enum Action {
    /// A step of the workload.
    Step(Step),
    /// The power fails in operation `op` of the step, and the file system recovers.
    Crash {
        /// The step.
        step: Step,
        /// Which of its operations.
        op: usize,
        /// What is left.
        point: CrashPoint,
    },
}

/// A subject under crash checking.
pub struct CrashSystem<'a> {
    subject: &'a dyn BlockBacked,
    config: &'a CrashConfig,
    levels: Vec<Level>,
    blank: Image,
    /// What was found.
    pub ledger: Ledger,
    fault: Mutex<Option<HarnessFault>>,
    /// Who reads along.
    supervision: Supervision,
}

/// A step that was taken on the subject and on the reference.
struct ExecutedStep {
    session: Session,
    /// How many operations were repeated before the step.
    repeated: usize,
    model: Model,
    /// What is legal during each operation of the step, and after it.
    promises: Vec<(Promise, Promise)>,
}

/// A step that could not be taken.
enum Refusal {
    /// No space: this way ends.
    Full,
    /// The subject does not have the operation: this way ends.
    Unsupported,
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
        let cause = Cause { class: Class::WrongAnswer, op: describe(op), place: anonymous(&what) };
        Refusal::Wrong { cause, what, ops }
    }
}

/// The operations of a step, and what the subject answered to each.
fn answers<'a>(
    state: &State,
    step: &'a Step,
    session: &'a Session,
) -> impl Iterator<Item = (&'a Op, &'a Outcome)> {
    let unmounted = session.unmounted.as_ref().map(|(outcome, _)| outcome);
    step.ops.iter().zip(session.outcomes[state.since.len()..].iter().chain(unmounted))
}

/// Where in a run the power fails.
struct Interruption<'a> {
    window: Window<'a>,
    promise: &'a Promise,
    op: &'a Op,
}

impl<'a> CrashSystem<'a> {
    /// Formats the subject.
    ///
    /// # Errors
    /// If it cannot be formatted.
    pub fn new(
        subject: &'a dyn BlockBacked,
        config: &'a CrashConfig,
    ) -> Result<CrashSystem<'a>, HarnessFault> {
        let levels = match config.levels.as_slice() {
            [] => subject.guarantee().survives.is.clone(),
            levels => levels.to_vec(),
        };
        let (blank, ledger, fault) = (subject.format()?, Ledger::default(), Mutex::default());
        Ok(CrashSystem { subject, config, levels, blank, ledger, fault, supervision: None })
    }

    /// Lets a supervisor read along.
    pub fn supervised(self, supervision: &Supervision) -> CrashSystem<'a> {
        CrashSystem { supervision: supervision.clone(), ..self }
    }

    /// The levels that are enumerated.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The failure of our own that stopped the judging, if there was one.
    pub fn fault(&self) -> Option<HarnessFault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Runs a step on the subject, after what was done since the last mount.
    fn run(&self, state: &State, step: &Step) -> Result<Session, Refusal> {
        let remounts = matches!(step.ops.as_slice(), [Op::Remount]);
        let (ops, end): (&[Op], _) =
            if remounts { (&[], End::Unmount) } else { (&step.ops, End::PowerOff) };
        let all = state.since.iter().chain(ops);
        last_words::begin_script(&self.supervision, || {
            state.script(step.ops.iter().cloned().map(Event::Op))
        });
        let session = session(self.subject, &state.base, all, end);
        last_words::end(&self.supervision);
        session.map_err(|broke| {
            let what = match broke {
                SubjectFailure::Mount(errno) => format!("a clean image does not mount: {errno}"),
                SubjectFailure::Panic(message) => format!("panics: {message}"),
            };
            Refusal::wrong(&step.ops[0], what, step.ops.len())
        })
    }

    /// Runs a step on both sides and compares the answers. What is visible is not looked at: while a
    /// file is open nothing is said about what its name shows.
    fn take(&self, state: &State, step: &Step) -> Result<ExecutedStep, Refusal> {
        self.compare(state, step, self.run(state, step)?)
    }

    /// Takes the step on the reference too, and compares the answers.
    fn compare(
        &self,
        state: &State,
        step: &Step,
        session: Session,
    ) -> Result<ExecutedStep, Refusal> {
        let (mut model, mut promise) = (state.model.clone(), state.promise.clone());
        let mut promises = Vec::new();
        for (index, (op, found)) in answers(state, step, &session).enumerate() {
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
        Ok(ExecutedStep { session, repeated: state.since.len(), model, promises })
    }

    /// Runs a step on both sides; compares the answers, and the trees after the whole step.
    fn take_whole(&self, state: &State, step: &Step) -> Result<ExecutedStep, Refusal> {
        self.compare_whole(state, step, self.run(state, step)?)
    }

    fn compare_whole(
        &self,
        state: &State,
        step: &Step,
        ran: Session,
    ) -> Result<ExecutedStep, Refusal> {
        let taken = self.compare(state, step, ran)?;
        let (tree, model) = (&taken.session.tree, &taken.model);
        let (during, after) = taken.promises.last().expect("a step has operations");
        // The last look at a mount is before its end: open files may not be visible yet.
        let promise = if taken.session.unmounted.is_some() { during } else { after };
        let found = tree.digest();
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
    fn take_noting(&self, state: &State, step: &Step) -> Option<ExecutedStep> {
        let taken = self.run(state, step).and_then(|session| {
            self.ledger.record(answers(state, step, &session));
            self.compare_whole(state, step, session)
        });
        match taken {
            Ok(taken) => Some(taken),
            Err(Refusal::Full) => {
                self.ledger.reach("the disk was full");
                None
            }
            Err(Refusal::Unsupported) => None,
            Err(Refusal::Wrong { cause, what, ops }) => {
                let events = step.ops[..ops].iter().cloned().map(Event::Op);
                let sighting = Sighting { script: state.script(events), what };
                self.ledger.groups.add(cause, Digest::default(), None, sighting);
                None
            }
        }
    }

    /// The interruptions of a step in which the power may fail: during each operation, and after it.
    fn interruptions<'t>(
        &self,
        base: &'t Image,
        step: &'t Step,
        taken: &'t ExecutedStep,
    ) -> impl Iterator<Item = (usize, Interruption<'t>)> {
        let atomic_bytes = self.subject.geometry().atomic_bytes;
        let positions = &taken.session.positions[taken.repeated..];
        let log = &taken.session.log;
        step.ops.iter().zip(&taken.promises).enumerate().flat_map(move |(index, (op, promise))| {
            let (from, to) = (positions[index], positions[index + 1]);
            let window = |from, to| Window::new(base, log, atomic_bytes).between(from, to);
            let during = Interruption { window: window(from, to), promise: &promise.0, op };
            let after = Interruption { window: window(to, to), promise: &promise.1, op };
            [(index, during), (index, after)]
        })
    }

    /// Cuts the power everywhere in a step.
    fn judge(&self, state: &State, step: &Step, taken: &ExecutedStep) {
        for (index, interruption) in self.interruptions(&state.base, step, taken) {
            self.judge_interruption(&interruption, &|point| {
                let events = step.ops[..=index].iter().cloned().map(Event::Op);
                state.script(events.chain([Event::PowerCut(point.clone())]))
            });
        }
    }

    fn judge_interruption(
        &self,
        interruption: &Interruption<'_>,
        script: &dyn Fn(&CrashPoint) -> Script,
    ) {
        let floor = self.capacity_floor(interruption);
        for level in &self.levels {
            let enumerator = level.enumerator(&self.config.bounds);
            let _ = enumerator.visit(&interruption.window, &mut |point, image| {
                last_words::begin_image(&self.supervision, point);
                let known = self.recovered(image);
                last_words::end(&self.supervision);
                let Some(known) = known else { return ControlFlow::Break(()) };
                if let Some((cause, what)) = self.verdict(interruption, image, &known, floor) {
                    let sighting = Sighting { script: script(point), what };
                    self.ledger.groups.add(cause, image.digest(), Some(*level), sighting);
                }
                ControlFlow::Continue(())
            });
        }
    }

    /// What became of an image; `None` after a failure of our own.
    fn recovered(&self, image: &Image) -> Option<Recovered> {
        let treatment = Treatment::new(self.config, &self.levels);
        let recover = || {
            let recovered = recover(self.subject, image, treatment)?;
            if recovered.wrote {
                self.ledger.reach("recovery wrote to the device");
            }
            Ok::<_, HarnessFault>(recovered)
        };
        match self.ledger.images.get(image.digest(), recover) {
            Ok(recovered) => Some(recovered),
            Err(fault) => {
                *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
                None
            }
        }
    }

    /// The capacity that must be left: that before or that after, whichever is smaller.
    fn capacity_floor(&self, interruption: &Interruption<'_>) -> Option<u64> {
        let window = &interruption.window;
        let capacity = |position| self.recovered(&window.image_at(position))?.capacity_bytes;
        let smaller = capacity(window.from())?.min(capacity(window.to())?);
        Some(smaller.saturating_sub(self.subject.guarantee().capacity_slack_bytes.is))
    }

    /// What is wrong with an image, if anything.
    fn verdict(
        &self,
        interruption: &Interruption<'_>,
        image: &Image,
        known: &Recovered,
        capacity_floor: Option<u64>,
    ) -> Option<(Cause, String)> {
        let Interruption { promise, op, .. } = interruption;
        let must_recover = self.subject.guarantee().recovers.is;
        let cause = |class, what: &str| {
            (Cause { class, op: describe(op), place: anonymous(what) }, what.to_owned())
        };
        let tree = || visible(self.subject, image).unwrap_or_default();
        let defect = known.defect.as_ref().filter(|_| must_recover);
        if let Some(defect) = defect {
            match defect.class {
                // What an image shows that looks different every time is chance.
                Class::Unmountable | Class::NonDeterministic => {
                    return Some(cause(defect.class, &defect.what));
                }
                Class::Unreadable => {
                    // What is loose may be unreadable too.
                    let firm = promise.firm(tree());
                    if firm.entries.values().any(|entry| entry.broken.is_some()) {
                        return Some(cause(defect.class, &defect.what));
                    }
                    return None;
                }
                _ => {}
            }
        }
        if known.defect.as_ref().is_some_and(|defect| defect.class == Class::Unmountable) {
            return None;
        }
        if !promise.allows(known.tree, tree) {
            let (cause, differences) = classify(promise, &tree(), op);
            return Some((cause, differences.join("\n")));
        }
        // A damaged entry that nobody promised may be in the way of whatever comes later; an
        // independent checker judges the whole.
        let exact = promise.is_exact();
        let defect = defect.filter(|defect| exact || defect.class == Class::Rejected);
        if let Some(defect) = defect {
            return Some(cause(defect.class, &defect.what));
        }
        match (known.capacity_bytes, capacity_floor) {
            (Some(bytes), Some(floor)) if must_recover && exact && bytes < floor => {
                let what = format!("only {bytes} bytes can be written, {floor} should fit");
                Some(cause(Class::Leak, &what))
            }
            _ => None,
        }
    }

    /// The state after a step.
    fn after(&self, state: &State, step: &Step, taken: ExecutedStep) -> State {
        let mut open = state.open.clone();
        let mut seed = state.seed;
        for op in &step.ops {
            match op {
                Op::Open { slot, path, .. } => drop(open.insert(*slot, path.clone())),
                Op::Close { slot } => drop(open.remove(slot)),
                Op::Remount => open.clear(),
                Op::Pwrite { .. } => seed += 1,
                _ => {}
            }
        }
        let mut recent = state.recent.clone();
        recent.push(step.kind);
        recent.drain(..recent.len().saturating_sub(self.config.remember));
        let (_, promise) = taken.promises.last().cloned().expect("a step has operations");
        let (base, since): (Image, Arc<[Op]>) = match &taken.session.unmounted {
            Some((_, image)) => (image.clone(), Arc::from([])),
            None => {
                let all = state.since.iter().chain(&step.ops).cloned();
                (state.base.clone(), all.collect())
            }
        };
        let image = match self.config.identity {
            Identity::Image => {
                let log = &taken.session.log;
                let window = Window::new(&state.base, log, self.subject.geometry().atomic_bytes);
                window.image_at(*taken.session.positions.last().expect("at least one")).digest()
            }
            Identity::Shape | Identity::Tree => Digest::default(),
        };
        let events = step.ops.iter().cloned().map(Event::Op).collect();
        let trail = Some(Arc::new(History { before: state.trail.clone(), events }));
        let crashes = state.crashes;
        State {
            base,
            since,
            trail,
            model: taken.model,
            open,
            promise,
            recent,
            crashes,
            seed,
            image,
        }
    }

    fn step(&self, state: &State, step: &Step, judged: bool) -> Option<State> {
        if !judged {
            let taken = self.take(state, step).ok()?;
            return Some(self.after(state, step, taken));
        }
        let taken = self.take_noting(state, step)?;
        self.judge(state, step, &taken);
        if matches!(step.ops.as_slice(), [Op::Remount]) {
            self.judge_mount(state, step, &taken);
        }
        Some(self.after(state, step, taken))
    }

    /// The power may also fail while a clean image is being mounted.
    fn judge_mount(&self, state: &State, step: &Step, taken: &ExecutedStep) {
        let Some((_, image)) = &taken.session.unmounted else { return };
        let Ok(mounted) = session(self.subject, image, [], End::PowerOff) else { return };
        let atomic_bytes = self.subject.geometry().atomic_bytes;
        let window =
            Window::new(image, &mounted.log, atomic_bytes).between(0, mounted.positions[0]);
        let (_, promise) = &taken.promises[0];
        let interruption = Interruption { window, promise, op: &step.ops[0] };
        self.judge_interruption(&interruption, &|point| {
            // The sync after the mount is never reached: it says which mount is meant.
            let ops = [Op::Remount, Op::Sync].map(Event::Op);
            state.script(ops.into_iter().chain([Event::PowerCut(point.clone())]))
        });
    }

    /// The crashes that are survived in a step: the workload can go on after them.
    fn crashes(&self, state: &State, step: &Step, actions: &mut Vec<Action>) {
        let Ok(taken) = self.take_whole(state, step) else { return };
        let mut seen = std::collections::HashSet::new();
        for (op, interruption) in self.interruptions(&state.base, step, &taken) {
            for level in &self.levels {
                let enumerator = level.enumerator(&self.config.bounds);
                let _ = enumerator.visit(&interruption.window, &mut |point, image| {
                    let legal = self.recovered(image).is_some_and(|known| {
                        known.defect.is_none()
                            && interruption.promise.matching(known.tree).is_some()
                    });
                    if legal && seen.insert(image.digest()) {
                        let (step, point) = (step.clone(), point.clone());
                        actions.push(Action::Crash { step, op, point });
                    }
                    ControlFlow::Continue(())
                });
            }
        }
    }

    /// The state after a crash and the recovery from it.
    fn crash(&self, state: &State, step: &Step, op: usize, point: &CrashPoint) -> Option<State> {
        let taken = self.take(state, step).ok()?;
        let atomic_bytes = self.subject.geometry().atomic_bytes;
        let window = Window::new(&state.base, &taken.session.log, atomic_bytes);
        let base = window.rebuild(point).ok()?;
        let found = self.recovered(&base)?.tree;
        let model = taken.promises[op].0.matching(found)?.model().clone();
        let mut recent = state.recent.clone();
        recent.extend([step.kind, StepKind::Crash]);
        recent.drain(..recent.len().saturating_sub(self.config.remember));
        let events = step.ops[..=op].iter().cloned().map(Event::Op);
        let events = events.chain([Event::PowerCut(point.clone())]).collect();
        Some(State {
            image: base.digest(),
            base,
            since: Arc::from([]),
            trail: Some(Arc::new(History { before: state.trail.clone(), events })),
            promise: Promise::new(model.clone()),
            model,
            open: BTreeMap::new(),
            recent,
            crashes: state.crashes + 1,
            seed: state.seed + 1,
        })
    }

    fn act(&self, state: &State, action: &Action, judged: bool) -> Option<State> {
        match action {
            Action::Step(step) => self.step(state, step, judged),
            Action::Crash { step, op, point } => self.crash(state, step, *op, point),
        }
    }
}

impl System for CrashSystem<'_> {
    type State = State;
    type Action = Action;

    fn init(&self) -> Vec<State> {
        let model = Model::new(Config::default()).expect("the default works");
        vec![State {
            base: self.blank.clone(),
            since: Arc::from([]),
            trail: None,
            promise: Promise::new(model.clone()),
            model,
            open: BTreeMap::new(),
            recent: Vec::new(),
            crashes: 0,
            seed: 1,
            image: self.blank.digest(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let tree = state.tree();
        let view = View { config: self.config, tree: &tree, open: &state.open, seed: state.seed };
        for step in view.steps() {
            // The last crash of a run is judged in the step itself.
            if state.crashes + 1 < self.config.crashes {
                self.crashes(state, &step, actions);
            }
            actions.push(Action::Step(step));
        }
    }

    fn next(&self, state: &State, action: &Action) -> Option<State> {
        self.act(state, action, true)
    }

    fn retrace(&self, state: &State, action: &Action) -> Option<State> {
        self.act(state, action, false)
    }

    fn key(&self, state: &State) -> u128 {
        let mut bytes = Vec::new();
        match self.config.identity {
            Identity::Shape => {
                let is_open = |path: &FsPath| state.open.values().any(|open| open == path);
                let code = shape::encode(&state.tree(), &is_open);
                bytes.extend(shape::key(&code, &state.recent).0.to_le_bytes());
            }
            Identity::Tree => bytes.extend(state.model.digest().0.to_le_bytes()),
            Identity::Image => {
                // What is not written yet is part of the state, but not of the device.
                bytes.extend(state.model.digest().0.to_le_bytes());
                bytes.extend(state.image.0.to_le_bytes());
            }
        }
        for (slot, path) in &state.open {
            bytes.push(*slot);
            if self.config.identity != Identity::Shape {
                bytes.extend(path.as_bytes());
            }
        }
        bytes.extend(state.crashes.to_le_bytes());
        if state.crashes > 0 {
            // A recovered disk is not like one that was never interrupted.
            bytes.extend(state.base.digest().0.to_le_bytes());
        }
        Digest::of(DOMAIN_STATE, &bytes).0
    }

    fn save(&self) -> Vec<u8> {
        self.ledger.save()
    }

    fn load(&self, saved: &[u8]) -> bool {
        self.ledger.load(saved)
    }
}
