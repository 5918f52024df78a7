//! Workloads that somebody else has made: executed as a whole, the power cut everywhere in them.

use fathom_block::disks::Recording;
use fathom_core::Op;

use super::CrashSystem;
use super::execute::ExecutedStep;
use super::state::State;
use crate::crash::workload::{Step, StepKind};
use crate::search::System;

impl CrashSystem<'_> {
    /// Executes a workload on a new file system and cuts the power everywhere in it; false if the
    /// subject could not follow it to its end.
    pub fn follow(&self, ops: &[Op]) -> bool {
        let mut state = self.init().remove(0);
        for part in parts(ops) {
            let step = Step { kind: StepKind::Sync, ops: part.to_vec() };
            match self.step_given(&state, &step) {
                Some(next) => state = next,
                None => return false,
            }
        }
        true
    }

    /// The state after a step that nobody executed: the reference alone says what comes of it. Where
    /// recording takes long, only the last step of a script is worth it.
    pub(super) fn imagine(&self, state: &State, step: &Step) -> Option<State> {
        let (mut model, mut promise) = (state.model.clone(), state.promise.clone());
        let mut promises = Vec::new();
        for op in &step.ops {
            model.execute(op);
            let during = promise.step(self.subject.guarantee(), op, &model);
            promises.push((during, promise.clone()));
        }
        let recording = Recording {
            outcomes: Vec::new(),
            log: fathom_block::WriteLog::new(),
            marks: vec![0],
            unmounted: None,
            tree: None,
            accounts: Vec::new(),
        };
        let taken = ExecutedStep { recording, repeated: state.since.len(), model, promises };
        Some(self.after(state, step, taken))
    }
}

/// The parts of a workload that are executed at once: between remounts, and each remount.
fn parts(ops: &[Op]) -> Vec<&[Op]> {
    let mut parts = Vec::new();
    let mut from = 0;
    for (index, op) in ops.iter().enumerate() {
        if matches!(op, Op::Remount) {
            parts.extend([&ops[from..index], &ops[index..=index]]);
            from = index + 1;
        }
    }
    parts.push(&ops[from..]);
    parts.retain(|part| !part.is_empty());
    parts
}
