//! The system that the search explores: a file system under a workload, whose power fails all the
//! time.
//!
//! Taking a step means: mount, repeat the operations since the last mount, execute the step
//! ([`execute`]), judge every disk that a power failure during the step could leave ([`judge`]), and
//! go on from there ([`continue`](self::r#continue)). Violations go to the [`Ledger`]; the search
//! itself goes on. The file system is only ever recorded and examined, through the seams of
//! [`fathom_block::disks`]: nothing is mounted here.

mod r#continue;
mod execute;
mod judge;
mod play;
mod sequence;
mod state;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use fathom_block::disks::{Memo, PruneCounts, Questions};
use fathom_block::{BlockBacked, CrashPoint, DiskFileSystem, Image, InProcess, Level};
use fathom_core::{Digest, FsPath, HarnessFault, Supervision, Tree};
use fathom_model::{Config, Model, Quirks};

use crate::crash::config::{CrashConfig, Identity};
use crate::crash::judge::Cause;
use crate::crash::ledger::Ledger;
use crate::crash::prefixes::Prefixes;
use crate::crash::promise::{Promise, Sums};
use crate::crash::recovery::questions;
use crate::crash::script::Script;
use crate::crash::shape;
use crate::crash::workload::{Step, View};
use crate::search::System;

pub use play::ExecutedScript;
pub use state::State;

/// Domain of the digest that identifies a state.
const DOMAIN_STATE: u64 = 18;

/// An action of the search.
#[derive(Clone, Debug)]
pub enum Action {
    /// A step of the workload.
    Step(Step),
    /// The power fails in operation `op` of the step, and the file system recovers.
    Crash {
        /// The step.
        step: Step,
        /// The index of the interrupted operation.
        op: usize,
        /// The crash point that says what is left.
        point: CrashPoint,
    },
}

/// A subject under crash checking.
pub struct CrashSystem<'a> {
    subject: Box<dyn DiskFileSystem + 'a>,
    config: &'a CrashConfig,
    levels: Vec<Level>,
    questions: Questions,
    blank: Image,
    /// The configuration of the reference.
    reference: Config,
    /// The images and the findings so far.
    pub(crate) ledger: Ledger,
    /// Facts that need no examination.
    pub memo: Memo,
    /// Beginnings of given workloads that were judged.
    pub prefixes: Prefixes,
    fault: Mutex<Option<HarnessFault>>,
    /// Trees that were seen, by their digests, and sums of parts of files, by the digests of their
    /// contents: of subjects that are slow to ask.
    trees: Mutex<HashMap<Digest, Arc<Tree>>>,
    sums: Mutex<Sums>,
    /// Disks that were enumerated, equal ones included.
    enumerated: AtomicU64,
    /// Disks of given workloads that were left out, since there were too many.
    left_out: AtomicU64,
    /// How often the rest of an examination was known.
    rests: Mutex<PruneCounts>,
    /// Reads along, and outlives this process.
    supervision: Supervision,
    /// When no more disks are examined, and whether some were left.
    until: Option<Instant>,
    is_cut_short: AtomicBool,
}

impl<'a> CrashSystem<'a> {
    /// Formats a library file system, which is then mounted in this process.
    ///
    /// # Errors
    /// If it cannot be formatted.
    pub fn new(
        subject: &'a dyn BlockBacked,
        config: &'a CrashConfig,
    ) -> Result<CrashSystem<'a>, HarnessFault> {
        CrashSystem::on(Box::new(InProcess::new(subject)), config)
    }

    /// Formats any file system that can be recorded and examined.
    ///
    /// # Errors
    /// If it cannot be formatted.
    pub fn on(
        subject: Box<dyn DiskFileSystem + 'a>,
        config: &'a CrashConfig,
    ) -> Result<CrashSystem<'a>, HarnessFault> {
        let levels = match config.levels.as_slice() {
            [] => subject.guarantee().survives.is.clone(),
            levels => levels.to_vec(),
        };
        let asks_for_trees = subject.batch_disks() > 1;
        let (questions, blank) = (questions(config, &levels, asks_for_trees), subject.format()?);
        let (ledger, memo, fault) = (Ledger::default(), Memo::default(), Mutex::default());
        let reference = Config { quirks: quirks(&*subject)?, ..Config::default() };
        Ok(CrashSystem {
            subject,
            config,
            levels,
            questions,
            blank,
            reference,
            ledger,
            memo,
            prefixes: Prefixes::default(),
            fault,
            trees: Mutex::default(),
            sums: Mutex::default(),
            enumerated: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            rests: Mutex::default(),
            supervision: None,
            until: None,
            is_cut_short: AtomicBool::new(false),
        })
    }

    /// Lets a supervisor read along.
    #[must_use]
    pub fn supervised(self, supervision: &Supervision) -> CrashSystem<'a> {
        CrashSystem { supervision: supervision.clone(), ..self }
    }

    /// Ends in the middle of a given workload when its time is over.
    #[must_use]
    pub(crate) fn until(self, until: Option<Instant>) -> CrashSystem<'a> {
        CrashSystem { until, ..self }
    }

    /// Whether the time is over; notes that something is left undone if so.
    fn is_late(&self) -> bool {
        let late = self.until.is_some_and(|until| Instant::now() >= until);
        if late {
            self.is_cut_short.store(true, Ordering::Relaxed);
        }
        late
    }

    /// Whether disks were left because the time was over.
    pub(crate) fn is_cut_short(&self) -> bool {
        self.is_cut_short.load(Ordering::Relaxed)
    }

    /// What was found so far: each cause with the number of disks that show it, and the best way to see
    /// it.
    pub fn found(&self) -> Vec<(Cause, usize, Script)> {
        let groups = self.ledger.groups.snapshot().into_iter();
        groups.map(|(cause, group)| (cause, group.images.len(), group.best.script)).collect()
    }

    /// Returns the number of distinct disks that were judged so far.
    pub fn images(&self) -> u64 {
        self.ledger.images.len()
    }

    /// Returns the number of disks that were enumerated so far, equal ones included.
    pub fn enumerated(&self) -> u64 {
        self.enumerated.load(Ordering::Relaxed)
    }

    /// Returns the number of disks that were left out since it was last asked.
    pub(crate) fn take_left_out(&self) -> u64 {
        self.left_out.swap(0, Ordering::Relaxed)
    }

    /// How often the rest of an examination was known so far.
    pub(crate) fn rests(&self) -> PruneCounts {
        *self.rests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the same operations write the same log each time.
    pub(super) fn is_deterministic(&self) -> bool {
        self.subject.is_deterministic()
    }

    /// Counts what an interrupted check has enumerated.
    pub(super) fn enumerated_before(&self, states: u64) {
        self.enumerated.fetch_add(states, Ordering::Relaxed);
    }

    /// The levels that are enumerated.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The failure of our own that stopped the judging, if there was one.
    pub fn fault(&self) -> Option<HarnessFault> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether nothing of ours has failed since somebody asked.
    fn is_sound(&self) -> bool {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn note_fault(&self, fault: HarnessFault) {
        *self.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    }

    fn act(&self, state: &State, action: &Action, judged: bool) -> Option<State> {
        match action {
            Action::Step(step) => self.step(state, step, judged),
            Action::Crash { step, op, point } => self.crash(state, step, *op, point),
        }
    }
}

/// The quirks with which the reference runs: those of the subject.
fn quirks(subject: &dyn DiskFileSystem) -> Result<Quirks, HarnessFault> {
    let Some(profile) = &subject.guarantee().reference else { return Ok(Quirks::default()) };
    Quirks::named_or_text(&profile.is)
        .map_err(|what| HarnessFault::new("setting up the reference", what))
}

impl System for CrashSystem<'_> {
    type State = State;
    type Action = Action;

    fn init(&self) -> Vec<State> {
        let model = Model::new(self.reference.clone()).expect("quirks forbid no configuration");
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
            earlier: Vec::new(),
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
