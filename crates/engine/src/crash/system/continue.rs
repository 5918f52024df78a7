//! Continues: the state after a step, and the state after a power failure that was survived.

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use fathom_block::disks::Segment;
use fathom_block::{CrashPoint, Image};
use fathom_core::{Digest, Op};

use super::execute::ExecutedStep;
use super::state::{History, State};
use super::{Action, CrashSystem};
use crate::crash::config::{Identity, Points};
use crate::crash::promise::Promise;
use crate::crash::script::Event;
use crate::crash::workload::{Step, StepKind};

impl CrashSystem<'_> {
    /// Takes a step; with `judged`, cuts the power everywhere in it.
    pub(super) fn step(&self, state: &State, step: &Step, judged: bool) -> Option<State> {
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

    /// Takes a step of a given workload and cuts the power in it.
    pub(super) fn step_given(&self, state: &State, step: &Step) -> Option<State> {
        let taken = self.take_noting(state, step)?;
        self.judge_given(state, step, &taken);
        if matches!(step.ops.as_slice(), [Op::Remount]) && self.config.points == Points::All {
            self.judge_mount(state, step, &taken);
        }
        Some(self.after(state, step, taken))
    }

    /// The state after a step.
    pub(super) fn after(&self, state: &State, step: &Step, taken: ExecutedStep) -> State {
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
        let (_, promise) = taken.promises.last().cloned().expect("a step has operations");
        let (base, since): (Image, Arc<[Op]>) = match taken.unmounted(&state.base) {
            Some(image) => (image, Arc::from([])),
            None => {
                let all = state.since.iter().chain(&step.ops).cloned();
                (state.base.clone(), all.collect())
            }
        };
        let image = match self.config.identity {
            Identity::Image => {
                let last = *taken.recording.marks.last().expect("at least one");
                self.window(&state.base, &taken).image_at(last).digest()
            }
            Identity::Shape | Identity::Tree => Digest::default(),
        };
        let events = step.ops.iter().cloned().map(Event::Op).collect();
        let mut earlier = state.earlier.clone();
        if taken.recording.unmounted.is_some() {
            earlier.extend(self.segment(state, &[], &taken).map(Arc::new));
        }
        State {
            earlier,
            base,
            since,
            trail: Some(Arc::new(History { before: state.trail.clone(), events })),
            model: taken.model,
            open,
            promise,
            recent: self.recent(state, [step.kind]),
            crashes: state.crashes,
            seed,
            image,
        }
    }

    /// What was recorded since the last mount, with a step after it; `None` if that is the same each
    /// time.
    pub(super) fn segment(
        &self,
        state: &State,
        ops: &[Op],
        taken: &ExecutedStep,
    ) -> Option<Segment> {
        let keep = || Segment {
            base: state.base.clone(),
            ops: state.since.iter().chain(ops).cloned().collect(),
            recording: taken.recording.clone(),
        };
        (!self.subject.is_deterministic()).then(keep)
    }

    /// The last steps that belong to the identity of a state.
    fn recent(&self, state: &State, kinds: impl IntoIterator<Item = StepKind>) -> Vec<StepKind> {
        let mut recent = state.recent.clone();
        recent.extend(kinds);
        recent.drain(..recent.len().saturating_sub(self.config.remember));
        recent
    }

    /// The crashes that are survived in a step: the workload can go on after them.
    pub(super) fn crashes(&self, state: &State, step: &Step, actions: &mut Vec<Action>) {
        let Ok(taken) = self.take_whole(state, step) else { return };
        let mut seen = HashSet::new();
        for (op, interruption) in self.interruptions(state, step, &taken) {
            for level in &self.levels {
                let _ = self.visit(*level, &interruption.window, &mut |point, image, known| {
                    let legal = known.defect.is_none()
                        && interruption.promise.matching(known.tree).is_some();
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
    pub(super) fn crash(
        &self,
        state: &State,
        step: &Step,
        op: usize,
        point: &CrashPoint,
    ) -> Option<State> {
        let taken = self.take(state, step).ok()?;
        let base = self.window(&state.base, &taken).rebuild(point).ok()?;
        let found = self.recovered(&base)?.tree;
        let model = taken.promises[op].0.matching(found)?.model().clone();
        let events = step.ops[..=op].iter().cloned().map(Event::Op);
        let events = events.chain([Event::PowerCut(point.clone())]).collect();
        let mut earlier = state.earlier.clone();
        earlier.extend(self.segment(state, &step.ops, &taken).map(Arc::new));
        Some(State {
            earlier,
            image: base.digest(),
            base,
            since: Arc::from([]),
            trail: Some(Arc::new(History { before: state.trail.clone(), events })),
            promise: Promise::new(model.clone()),
            model,
            open: BTreeMap::new(),
            recent: self.recent(state, [step.kind, StepKind::Crash]),
            crashes: state.crashes + 1,
            seed: state.seed + 1,
        })
    }
}
