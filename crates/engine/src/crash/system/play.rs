//! Scripts played again: to look at a finding, to replay it, to shrink it.

use std::ops::ControlFlow;
use std::sync::Arc;

use fathom_block::disks::{Questions, SubjectFailure};
use fathom_block::{CrashPoint, Event as BlockEvent, Image, Window};
use fathom_core::{HarnessFault, Op, Tree};

use super::CrashSystem;
use super::execute::Refusal;
use super::judge::Interruption;
use super::state::State;
use crate::crash::flushes::Issued;
use crate::crash::judge::Cause;
use crate::crash::promise::{Candidate, DiskContents, Promise};
use crate::crash::repro::listing;
use crate::crash::script::{Event, Script};
use crate::crash::workload::{Step, StepKind};
use crate::search::System;

/// A script that was played on the subject, to its end.
#[derive(Debug)]
pub struct ExecutedScript {
    /// The violation at the end, if there is one.
    pub wrong: Option<(Cause, String)>,
    /// The image that the last power failure left; blank if there was none.
    pub image: Image,
    /// Visible before the last operation.
    pub before: Tree,
    /// The legal trees after the last power failure.
    pub promised: Vec<Tree>,
    /// The legal states object by object with the contents, for reproducers.
    pub(in crate::crash) legal: Vec<Vec<String>>,
    /// The state that was found, in the same way, where not all legal states are whole ones.
    pub(in crate::crash) shown: Option<Vec<String>>,
    /// Visible at the end; what made that impossible.
    pub found: Result<Tree, SubjectFailure>,
    /// Visible once the file system has repaired itself, if that is something else.
    pub repaired: Option<Tree>,
    /// The writes, erases and flushes of the last operation, each with whether it arrived.
    pub writes: Vec<(String, bool)>,
}

impl CrashSystem<'_> {
    /// Plays a script; `None` if it cannot be followed to its end.
    ///
    /// # Errors
    /// If the harness fails.
    pub fn play(&self, script: &Script) -> Result<Option<ExecutedScript>, HarnessFault> {
        let (before, point) = match script.0.split_last() {
            Some((Event::PowerCut(point), before)) => (before, Some(point)),
            _ => (script.0.as_slice(), None),
        };
        let played = before.split_last().and_then(|(last, before)| {
            let Event::Op(op) = last else { return None };
            let state = self.lead(before)?;
            self.finale(&state, &single(op), point)
        });
        self.fault().map_or(Ok(played), Err)
    }

    /// The last operation of a script, and the power failure in it.
    fn finale(
        &self,
        state: &State,
        step: &Step,
        point: Option<&CrashPoint>,
    ) -> Option<ExecutedScript> {
        let mut played = ExecutedScript {
            wrong: None,
            image: self.blank.clone(),
            before: state.tree(),
            promised: Vec::new(),
            legal: Vec::new(),
            shown: None,
            found: Ok(state.tree()),
            repaired: None,
            writes: Vec::new(),
        };
        let Some(point) = point else {
            match self.take_whole(state, step) {
                Ok(taken) => played.found = Ok(taken.recording.tree.unwrap_or_default()),
                Err(Refusal::Wrong { cause, what, .. }) => played.wrong = Some((cause, what)),
                Err(Refusal::Full | Refusal::Unsupported | Refusal::Fault) => return None,
            }
            return Some(played);
        };
        let taken = self.take(state, step).ok()?;
        let (mut from, mut to) = (taken.marks()[0], taken.marks()[1]);
        let (during, after) = &taken.promises[0];
        let at = point.position();
        let halfway = matches!(point, CrashPoint::Torn { .. } | CrashPoint::Erase { .. });
        let (mut promise, mut op) = (if halfway || at < to { during } else { after }, &step.ops[0]);
        if at < from || (at == from && !halfway && is_mounting(state, op, from)) {
            (from, to, promise, op) = (0, from, &state.promise, &Op::Remount);
        }
        let window = self.window(&state.base, &taken);
        played.image = window.rebuild(point).ok()?;
        played.writes = tell_writes(&window, from.min(at), to, point);
        let issued = Issued::of(state, step, &taken);
        let returned = std::ptr::eq(promise, after);
        let interruption = Interruption::new(window.between(from, to), promise, op, issued);
        let interruption = interruption.noting(&taken.recording.accounts);
        let interruption = if returned { interruption.after() } else { interruption };
        let known = self.recovered(&played.image)?;
        let floor = self.capacity_floor(&interruption);
        played.wrong = self.verdict(&interruption, point, &played.image, &known, floor);
        played.promised = promise.candidates().iter().map(Candidate::tree).collect();
        self.look(&mut played)?;
        self.list(&mut played, promise);
        Some(played)
    }

    /// Looks at the disk of a power failure, as it is and once it has repaired itself; `None` after a
    /// failure of our own.
    fn look(&self, played: &mut ExecutedScript) -> Option<()> {
        let questions = Questions { repaired: true, ..Questions::TREE };
        let facts = self.subject.examine(std::slice::from_ref(&played.image), &questions);
        let facts = facts.map_err(|fault| self.note_fault(fault)).ok()?.into_iter().next()?;
        let whole = |tree: &Arc<Tree>| (**tree).clone();
        let view = facts.view.as_ref().map_err(Clone::clone);
        played.found = view.map(|view| view.tree.as_ref().map(whole).unwrap_or_default());
        let repaired = facts.repaired.as_ref().and_then(|repaired| repaired.as_ref().ok());
        played.repaired = repaired.map(whole).filter(|tree| played.found.as_ref() != Ok(tree));
        Some(())
    }

    /// Lists the legal states and what was found. What is loose may be anything: then no list says what
    /// is legal.
    fn list(&self, played: &mut ExecutedScript, promise: &Promise) {
        let models = promise.candidates().iter().map(Candidate::model);
        if !promise.is_per_object() {
            let exact = promise.is_exact();
            played.legal = models.filter(|_| exact).map(listing::plain).collect();
            return;
        }
        played.legal = models.map(listing::whole).collect();
        if let Ok(tree) = &played.found {
            let (subject, image) = (&*self.subject, &played.image);
            let mut contents = DiskContents { subject, image, tree, sums: None };
            played.shown = Some(listing::found(tree, &mut contents));
        }
    }

    /// All scripts that continue `script`, which ends with an operation, by a power failure in or
    /// after it that shows `cause`: calls `found` until it has enough.
    ///
    /// # Errors
    /// If the harness fails.
    pub fn cuts(
        &self,
        script: &Script,
        cause: &Cause,
        found: &mut dyn FnMut(CrashPoint) -> ControlFlow<()>,
    ) -> Result<(), HarnessFault> {
        let Some((Event::Op(last), before)) = script.0.split_last() else { return Ok(()) };
        self.cut_everywhere(before, &single(last), cause, found);
        self.fault().map_or(Ok(()), Err)
    }

    fn cut_everywhere(
        &self,
        before: &[Event],
        step: &Step,
        cause: &Cause,
        found: &mut dyn FnMut(CrashPoint) -> ControlFlow<()>,
    ) {
        let Some(state) = self.lead(before) else { return };
        let Ok(taken) = self.take(&state, step) else { return };
        for (_, interruption) in self.interruptions(&state, step, &taken) {
            let floor = self.capacity_floor(&interruption);
            for level in &self.levels {
                let flow =
                    self.visit(*level, &interruption.window, &mut |point, image, known| match self
                        .verdict(&interruption, point, image, known, floor)
                    {
                        Some((seen, _)) if seen.is_same(cause) => found(point.clone()),
                        _ => ControlFlow::Continue(()),
                    });
                if flow.is_break() {
                    return;
                }
            }
        }
    }

    /// The state after some events.
    fn lead(&self, events: &[Event]) -> Option<State> {
        let mut state = self.init().remove(0);
        let mut events = events.iter().peekable();
        while let Some(event) = events.next() {
            let Event::Op(op) = event else { return None };
            let step = single(op);
            let imagined = !self.subject.is_deterministic()
                && !matches!(op, Op::Remount)
                && !matches!(events.peek(), Some(Event::PowerCut(_)));
            if imagined {
                state = self.imagine(&state, &step)?;
                continue;
            }
            state = match events.peek() {
                Some(Event::PowerCut(point)) => {
                    events.next();
                    self.crash(&state, &step, 0, point)?
                }
                _ => self.step(&state, &step, false)?,
            };
        }
        Some(state)
    }
}

/// A step of one operation.
fn single(op: &Op) -> Step {
    Step { kind: StepKind::Sync, ops: vec![op.clone()] }
}

/// Whether a power failure right before `op` is one right after a mount: see
/// [`CrashSystem::judge_mount`].
fn is_mounting(state: &State, op: &Op, mounted_at: usize) -> bool {
    state.since.is_empty() && mounted_at > 0 && matches!(op, Op::Sync)
}

/// What the device was told, in words, and whether it is in the image of the point.
fn tell_writes(
    window: &Window<'_>,
    from: usize,
    to: usize,
    point: &CrashPoint,
) -> Vec<(String, bool)> {
    let mut volatile = 0;
    let epoch = window.log().epoch_start(point.position());
    let tell = |(index, event): (usize, BlockEvent<'_>)| {
        let in_flight = index >= epoch && event.is_volatile();
        let number = volatile;
        volatile += usize::from(in_flight);
        if index < from {
            return None;
        }
        let text = match event {
            BlockEvent::Write { at, data, .. } => format!("write {} bytes at {at}", data.len()),
            BlockEvent::Erase { at, len } => format!("erase {len} bytes at {at}"),
            BlockEvent::Flush => "flush".to_owned(),
            BlockEvent::Mark(_) => return None,
        };
        let issued = index < point.position();
        Some(match point {
            CrashPoint::Epoch { lost, .. } if in_flight && lost.contains(number) => {
                (format!("{text} (lost)"), false)
            }
            CrashPoint::Lost { event, .. } if *event == index => (format!("{text} (lost)"), false),
            CrashPoint::Torn { position, arrived } | CrashPoint::Erase { position, arrived }
                if *position == index =>
            {
                (format!("{text} (only {arrived})"), false)
            }
            _ => (text, issued),
        })
    };
    let events = (0..to.max(point.position())).map(|index| (index, window.log().event(index)));
    events.filter(|(index, _)| *index < window.log().len()).filter_map(tell).collect()
}
