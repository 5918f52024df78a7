//! Judges what a power failure leaves: enumerates the disks of an interrupted step, has them examined
//! and holds the facts against the promise.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use fathom_block::disks::{Accounts, End, Facts, Questions, Segment, StoredRecording, Workload};
use fathom_block::{CrashPoint, Image, Level, Window};
use fathom_core::flags::MsyncFlags;
use fathom_core::{Digest, HarnessFault, Op, Tree};

use super::CrashSystem;
use super::execute::ExecutedStep;
use super::state::State;
use crate::crash::config::Points;
use crate::crash::flushes::Issued;
use crate::crash::judge::{Cause, Class, anonymous, classify, classify_rule};
use crate::crash::last_words;
use crate::crash::ledger::Sighting;
use crate::crash::prefixes;
use crate::crash::promise::{BrokenPromise, DiskContents, Promise};
use crate::crash::recovery::{Defect, Recovered};
use crate::crash::script::{Event, Script};
use crate::crash::workload::Step;

/// Trees that are kept.
const TREES_MAX: usize = 10_000;

/// A part of a recording in which the power fails.
pub(super) struct Interruption<'a> {
    pub(super) window: Window<'a>,
    pub(super) promise: &'a Promise,
    pub(super) op: &'a Op,
    /// The operations that wrote the log of the window.
    pub(super) issued: Issued<'a>,
    /// Whether the operation has returned.
    pub(super) returned: bool,
    /// What was said of files after each operation that wrote the log.
    pub(super) accounts: &'a [Accounts],
    /// Decisions about trees so far: many disks show the same.
    decided: RefCell<HashMap<Digest, Option<BrokenPromise>>>,
}

impl<'a> Interruption<'a> {
    /// The power fails in the window, while `op` runs; `promise` says what may be left.
    pub(super) fn new(
        window: Window<'a>,
        promise: &'a Promise,
        op: &'a Op,
        issued: Issued<'a>,
    ) -> Interruption<'a> {
        let decided = RefCell::default();
        Interruption { window, promise, op, issued, returned: false, accounts: &[], decided }
    }

    /// The operations were recorded with what was said of files after each.
    pub(super) fn noting(self, accounts: &'a [Accounts]) -> Interruption<'a> {
        Interruption { accounts, ..self }
    }

    /// The power fails when the operation has returned.
    pub(super) fn after(self) -> Interruption<'a> {
        Interruption { returned: true, ..self }
    }
}

impl<'a> Issued<'a> {
    /// The operations of a step and those before it.
    pub(super) fn of(state: &'a State, step: &'a Step, taken: &'a ExecutedStep) -> Issued<'a> {
        Issued { since: &state.since, step: &step.ops, marks: &taken.recording.marks }
    }
}

/// Whether an operation makes something durable by returning.
fn persists(op: &Op) -> bool {
    match op {
        Op::Fsync { .. } | Op::Fdatasync { .. } | Op::Sync | Op::Syncfs { .. } => true,
        Op::MmapStore { sync, .. } => sync.contains(MsyncFlags::MS_SYNC),
        _ => false,
    }
}

/// Which of some points to take, so that about `max` disks are left of all that they count (0: all are).
fn evenly(counts: &[u64], max: u64) -> Vec<bool> {
    let total: u64 = counts.iter().sum();
    let all = max == 0 || total <= max;
    let (mut seen, mut left) = (0, 0);
    let take = |count: &u64| {
        // As many should be left by now; what a point has beyond that the next ones have less.
        seen += u128::from(*count);
        let due = seen * u128::from(max) / u128::from(total.max(1));
        let takes = all || due > left;
        left += if takes { u128::from(*count) } else { 0 };
        takes
    };
    counts.iter().map(take).collect()
}

/// Takes a crash point, its disk, and what became of that.
pub(super) type Judge<'j> = dyn FnMut(&CrashPoint, &Image, &Recovered) -> ControlFlow<()> + 'j;

impl CrashSystem<'_> {
    /// A window on the whole log of a recording.
    pub(super) fn window<'t>(&self, base: &'t Image, taken: &'t ExecutedStep) -> Window<'t> {
        Window::new(base, &taken.recording.log, self.subject.geometry().atomic_bytes)
    }

    /// The interruptions of a step in which the power may fail: during each operation, and after it.
    pub(super) fn interruptions<'t>(
        &self,
        state: &'t State,
        step: &'t Step,
        taken: &'t ExecutedStep,
    ) -> impl Iterator<Item = (usize, Interruption<'t>)> {
        let (whole, marks) = (self.window(&state.base, taken), taken.marks());
        let issued = Issued::of(state, step, taken);
        step.ops.iter().zip(&taken.promises).enumerate().flat_map(move |(index, (op, promise))| {
            let (from, to) = (marks[index], marks[index + 1]);
            let window = |from, to| whole.clone().between(from, to);
            let accounts = &taken.recording.accounts;
            let during = Interruption::new(window(from, to), &promise.0, op, issued);
            let after = Interruption::new(window(to, to), &promise.1, op, issued).after();
            [(index, during.noting(accounts)), (index, after.noting(accounts))]
        })
    }

    /// Cuts the power everywhere in a step.
    pub(super) fn judge(&self, state: &State, step: &Step, taken: &ExecutedStep) {
        let all: Vec<_> = self.interruptions(state, step, taken).collect();
        self.judge_some(state, step, taken, all);
    }

    /// Cuts the power in a step of a given workload: everywhere, but for what was judged with another
    /// workload that begins alike.
    pub(super) fn judge_given(&self, state: &State, step: &Step, taken: &ExecutedStep) {
        let before: String = state.script([]).0.iter().map(|event| format!("{event}\n")).collect();
        let digests = prefixes::digests(&before, &step.ops);
        let known = if self.config.prefixes { self.prefixes.known(&digests) } else { 0 };
        let mut all = Vec::new();
        for (index, interruption) in self.interruptions(state, step, taken) {
            if !self.is_point(&interruption) {
                continue;
            }
            if index >= known {
                all.push((index, interruption));
                continue;
            }
            let states = self.count(&interruption);
            self.enumerated.fetch_add(states, Ordering::Relaxed);
            self.prefixes.answer(states);
        }
        let whole = all.len();
        self.leave_out(&mut all);
        let is_whole = all.len() == whole;
        let violated = self.judge_some(state, step, taken, all);
        if self.config.prefixes && self.is_sound() && !self.is_cut_short() && is_whole {
            for (index, digest) in digests.iter().enumerate().skip(known) {
                self.prefixes.learn(*digest, violated.contains(&index));
            }
        }
    }

    /// The number of disks that a power failure there can leave.
    fn count(&self, interruption: &Interruption<'_>) -> u64 {
        let count = |level: &Level| {
            level.enumerator(&self.config.bounds).count(&interruption.window) as u64
        };
        self.levels.iter().map(count).sum()
    }

    /// Leaves points out evenly, if all together have more disks than one workload may have.
    fn leave_out(&self, all: &mut Vec<(usize, Interruption<'_>)>) {
        let counts: Vec<u64> = all.iter().map(|(_, at)| self.count(at)).collect();
        let mut taken = evenly(&counts, self.config.workload_states_max).into_iter();
        let mut counts = counts.into_iter();
        all.retain(|_| {
            let (count, keep) = (counts.next().unwrap_or(0), taken.next().unwrap_or(true));
            if !keep {
                self.left_out.fetch_add(count, Ordering::Relaxed);
            }
            keep
        });
    }

    /// Whether the power fails there.
    fn is_point(&self, interruption: &Interruption<'_>) -> bool {
        match self.config.points {
            Points::All => true,
            Points::Persistence => {
                interruption.window.from() == interruption.window.to()
                    && interruption.returned
                    && persists(interruption.op)
            }
        }
    }

    /// Cuts the power in some operations of a step; returns those that showed a violation.
    fn judge_some(
        &self,
        state: &State,
        step: &Step,
        taken: &ExecutedStep,
        interruptions: Vec<(usize, Interruption<'_>)>,
    ) -> BTreeSet<usize> {
        let mut violated = BTreeSet::new();
        let mut interruptions = interruptions;
        if self.subject.batch_disks() > 1 {
            let Some(examined) = self.examine_ahead(&interruptions) else { return violated };
            interruptions.truncate(examined);
        }
        let recording = || {
            let ops = if taken.recording.unmounted.is_some() { &[] } else { &*step.ops };
            self.stored(state, self.segment(state, ops, taken))
        };
        for (index, interruption) in interruptions {
            let script = |point: &CrashPoint| {
                let events = step.ops[..=index].iter().cloned().map(Event::Op);
                state.script(events.chain([Event::PowerCut(point.clone())]))
            };
            if self.judge_interruption(&interruption, &script, &recording) {
                violated.insert(index);
            }
        }
        violated
    }

    /// Everything that was recorded until a segment.
    fn stored(&self, state: &State, segment: Option<Segment>) -> Option<StoredRecording> {
        let earlier = state.earlier.iter().map(|segment| Segment::clone(segment));
        segment.map(|last| StoredRecording { segments: earlier.chain([last]).collect() })
    }

    /// Has all disks of some interruptions examined, many at a time; of how many, if the time was over before;
    /// `None` after a failure of our own.
    fn examine_ahead(&self, interruptions: &[(usize, Interruption<'_>)]) -> Option<usize> {
        let mut known = fathom_block::Distinct::default();
        let mut batch: Vec<Image> = Vec::new();
        for (done, (_, interruption)) in interruptions.iter().enumerate() {
            let mut is_late = false;
            for level in &self.levels {
                let enumerator = level.enumerator(&self.config.bounds);
                let flow = enumerator.visit(&interruption.window, &mut |_, image| {
                    if known.insert(image) && !self.ledger.images.contains(image.digest()) {
                        batch.push(image.clone());
                    }
                    if batch.len() < self.subject.batch_disks() {
                        return ControlFlow::Continue(());
                    }
                    is_late = self.is_late();
                    match self.examine(&std::mem::take(&mut batch)) {
                        Some(()) if !is_late => ControlFlow::Continue(()),
                        _ => ControlFlow::Break(()),
                    }
                });
                if is_late && self.is_sound() {
                    return Some(done);
                }
                if flow.is_break() {
                    return None;
                }
            }
        }
        self.examine(&batch).map(|()| interruptions.len())
    }

    /// Cuts the power while a clean disk is being mounted.
    pub(super) fn judge_mount(&self, state: &State, step: &Step, taken: &ExecutedStep) {
        let Some(image) = taken.unmounted(&state.base) else { return };
        // A recording that is kept is found by what is done with it.
        let ops: &[&Op] = if self.subject.is_deterministic() { &[] } else { &[&Op::Sync] };
        let workload = Workload { ops, end: End::PowerOff, look: false };
        let mounted = match self.subject.record(&image, &workload) {
            Ok(Ok(mounted)) => mounted,
            Ok(Err(_)) => return,
            Err(fault) => return self.note_fault(fault),
        };
        let atomic_bytes = self.subject.geometry().atomic_bytes;
        let window = Window::new(&image, &mounted.log, atomic_bytes).between(0, mounted.marks[0]);
        let (_, promise) = &taken.promises[0];
        let issued = Issued { since: &[], step: &[], marks: &mounted.marks };
        let interruption = Interruption::new(window, promise, &step.ops[0], issued);
        let script = |point: &CrashPoint| {
            // The sync after the mount is never reached: it says which mount is meant.
            let ops = [Op::Remount, Op::Sync].map(Event::Op);
            state.script(ops.into_iter().chain([Event::PowerCut(point.clone())]))
        };
        let recording = || {
            let before = self.stored(state, self.segment(state, &[], taken));
            before.map(|mut stored| {
                let (base, recording) = (image.clone(), mounted.clone());
                stored.segments.push(Segment { base, ops: vec![Op::Sync], recording });
                stored
            })
        };
        let _ = self.judge_interruption(&interruption, &script, &recording);
    }

    /// Cuts the power in one interruption; whether that showed a violation.
    fn judge_interruption(
        &self,
        interruption: &Interruption<'_>,
        script: &dyn Fn(&CrashPoint) -> Script,
        recording: &dyn Fn() -> Option<StoredRecording>,
    ) -> bool {
        let mut violated = false;
        let floor = self.capacity_floor(interruption);
        for level in &self.levels {
            let _ = self.visit(*level, &interruption.window, &mut |point, image, known| {
                self.enumerated.fetch_add(1, Ordering::Relaxed);
                if let Some((cause, what)) = self.verdict(interruption, point, image, known, floor)
                {
                    violated = true;
                    let sighting = Sighting { script: script(point), what, recording: None };
                    let groups = &self.ledger.groups;
                    groups.add(cause, image.digest(), Some(*level), sighting, recording);
                }
                ControlFlow::Continue(())
            });
        }
        violated
    }

    /// Enumerates the disks of a level and has them examined, as many at once as the subject likes.
    /// Breaks when the judge does, and after a failure of our own.
    pub(super) fn visit(
        &self,
        level: Level,
        window: &Window<'_>,
        judge: &mut Judge<'_>,
    ) -> ControlFlow<()> {
        let batch_disks = self.subject.batch_disks().max(1);
        let mut batch: Vec<(CrashPoint, Image)> = Vec::new();
        level.enumerator(&self.config.bounds).visit(window, &mut |point, image| {
            if batch_disks == 1 {
                last_words::begin_image(&self.supervision, point);
                let known = self.recovered(image);
                last_words::end(&self.supervision);
                let Some(known) = known else { return ControlFlow::Break(()) };
                return judge(point, image, &known);
            }
            batch.push((point.clone(), image.clone()));
            if batch.len() < batch_disks {
                ControlFlow::Continue(())
            } else {
                self.flush(&mut batch, judge)
            }
        })?;
        self.flush(&mut batch, judge)
    }

    /// Examines and judges a batch.
    fn flush(
        &self,
        batch: &mut Vec<(CrashPoint, Image)>,
        judge: &mut Judge<'_>,
    ) -> ControlFlow<()> {
        let unknown = |image: &&Image| !self.ledger.images.contains(image.digest());
        let images: Vec<Image> =
            batch.iter().map(|(_, image)| image).filter(unknown).cloned().collect();
        if self.examine(&images).is_none() {
            return ControlFlow::Break(());
        }
        for (point, image) in batch.drain(..) {
            let Some(known) = self.recovered(&image) else { return ControlFlow::Break(()) };
            judge(&point, &image, &known)?;
        }
        ControlFlow::Continue(())
    }

    /// Examines disks and notes what became of them; `None` after a failure of our own.
    fn examine(&self, images: &[Image]) -> Option<()> {
        let facts = self.memo.examine(&*self.subject, images, &self.questions);
        let facts = facts.map_err(|fault| self.note_fault(fault)).ok()?;
        for (image, facts) in images.iter().zip(facts) {
            self.note(&facts);
            let known = || Ok::<_, HarnessFault>(Recovered::from(&*facts));
            let _ = self.ledger.images.get(image.digest(), known);
        }
        Some(())
    }

    /// Returns what became of a disk; `None` after a failure of our own.
    pub(super) fn recovered(&self, image: &Image) -> Option<Recovered> {
        let recover = || {
            let facts =
                self.memo.examine(&*self.subject, std::slice::from_ref(image), &self.questions)?;
            self.note(&facts[0]);
            Ok::<_, HarnessFault>(Recovered::from(&*facts[0]))
        };
        self.ledger.images.get(image.digest(), recover).map_err(|fault| self.note_fault(fault)).ok()
    }

    /// Notes what an examination has shown besides what is judged.
    fn note(&self, facts: &Facts) {
        if facts.wrote {
            self.ledger.reach("recovery wrote to the device");
        }
        if facts.rest.pruned > 0 {
            let mut rests = self.rests.lock().unwrap_or_else(PoisonError::into_inner);
            rests.pruned += facts.rest.pruned;
            rests.verified += facts.rest.verified;
            rests.refuted += facts.rest.refuted;
        }
        let view = facts.view.as_ref().ok();
        if let Some((digest, tree)) = view.and_then(|view| Some((view.digest, view.tree.as_ref()?)))
        {
            let mut trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
            if trees.len() >= TREES_MAX {
                trees.clear();
            }
            trees.entry(digest).or_insert_with(|| Arc::clone(tree));
        }
    }

    /// The whole tree of a disk; empty if it does not mount, and after a failure of our own.
    fn tree(&self, image: &Image) -> Tree {
        if self.questions.tree {
            let Some(digest) = self.recovered(image).map(|known| known.tree) else {
                return Tree::default();
            };
            let trees = self.trees.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(tree) = trees.get(&digest) {
                return Tree::clone(tree);
            }
        }
        let facts = self.subject.examine(std::slice::from_ref(image), &Questions::TREE);
        let facts = facts.map_err(|fault| self.note_fault(fault)).unwrap_or_default();
        let view = facts.first().and_then(|facts| facts.view.as_ref().ok());
        let tree = view.and_then(|view| view.tree.clone()).unwrap_or_default();
        Arc::unwrap_or_clone(tree)
    }

    /// The capacity that must be left: that before or that after, whichever is smaller.
    pub(super) fn capacity_floor(&self, interruption: &Interruption<'_>) -> Option<u64> {
        // Without a capacity there is no floor. (The disk at the start is judged at level linear.)
        let none_to_compare = !self.questions.usable && self.levels.contains(&Level::Linear);
        if none_to_compare || self.subject.batch_disks() > 1 {
            return None;
        }
        let window = &interruption.window;
        let capacity = |position| {
            let image = window.image_at(position);
            // Whoever examines it for the first time may die of it.
            let first = self.supervision.is_some() && !self.ledger.images.contains(image.digest());
            if first {
                last_words::begin_image(&self.supervision, &CrashPoint::Linear { position });
            }
            let known = self.recovered(&image);
            if first {
                last_words::end(&self.supervision);
            }
            known?.capacity_bytes
        };
        let smaller = capacity(window.from())?.min(capacity(window.to())?);
        Some(smaller.saturating_sub(self.subject.guarantee().capacity_slack_bytes.is))
    }

    /// Judges the disk of a power failure: the violation with its cause, if there is one.
    pub(super) fn verdict(
        &self,
        interruption: &Interruption<'_>,
        point: &CrashPoint,
        image: &Image,
        known: &Recovered,
        capacity_floor: Option<u64>,
    ) -> Option<(Cause, String)> {
        let (mut cause, mut what) = self.violation(interruption, image, known, capacity_floor)?;
        if cause.class != Class::NonDeterministic && !self.shows_again(image, known) {
            let defect = Defect::two_trees();
            cause = Cause::new(defect.class, interruption.op, anonymous(&defect.what));
            what = defect.what;
        }
        let Interruption { window, issued, returned, .. } = interruption;
        let unflushed = issued.unflushed(window, point, *returned);
        Some((Cause { unflushed, ..cause }, what))
    }

    /// Whether a disk that is to be accused shows the same tree in two more mounts: what looks different
    /// every time is chance, and says so. Asked of file systems in this process, whose examinations
    /// mostly look once; others look twice in each.
    fn shows_again(&self, image: &Image, known: &Recovered) -> bool {
        if self.subject.batch_disks() > 1 || !self.subject.is_deterministic() {
            return true;
        }
        (0..2).all(|_| {
            let facts = self.subject.examine(std::slice::from_ref(image), &Questions::VIEW);
            // A failure of ours is no reason to doubt.
            let Some(facts) = facts.ok().and_then(|facts| facts.into_iter().next()) else {
                return true;
            };
            Recovered::from(&*facts).tree == known.tree
        })
    }

    /// Judges a disk by itself.
    fn violation(
        &self,
        interruption: &Interruption<'_>,
        image: &Image,
        known: &Recovered,
        capacity_floor: Option<u64>,
    ) -> Option<(Cause, String)> {
        let Interruption { promise, op, .. } = interruption;
        let must_recover = self.subject.guarantee().recovers.is;
        let cause = |class, what: &str| (Cause::new(class, op, anonymous(what)), what.to_owned());
        let tree = || self.tree(image);
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
        if promise.is_per_object() {
            let decided = interruption.decided.borrow().get(&known.tree).cloned();
            let broken = decided.unwrap_or_else(|| {
                let broken = self.broken_promise(promise, image, known);
                interruption.decided.borrow_mut().insert(known.tree, broken.clone());
                broken
            });
            if let Some(broken) = broken {
                return Some((classify_rule(&broken, op), broken.lines.join("\n")));
            }
            if let Some(broken) = promise.lost_account(&known.accounts, interruption.accounts) {
                return Some((classify_rule(&broken, op), broken.lines.join("\n")));
            }
        } else if !promise.allows(known.tree, tree) {
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

    /// The promise that a disk breaks, if objects are judged by their own versions.
    fn broken_promise(
        &self,
        promise: &Promise,
        image: &Image,
        known: &Recovered,
    ) -> Option<BrokenPromise> {
        if promise.matching(known.tree).is_some() {
            return None;
        }
        let tree = self.tree(image);
        let sums = self.questions.tree.then_some(&self.sums);
        let mut contents = DiskContents { subject: &*self.subject, image, tree: &tree, sums };
        promise.violation(&tree, &mut contents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_left_out_evenly() {
        let left = |counts: &[u64], max| -> u64 {
            let taken = evenly(counts, max);
            counts.iter().zip(taken).filter(|(_, takes)| *takes).map(|(count, _)| count).sum()
        };
        let ones = [1; 1000];
        assert_eq!((left(&ones, 0), left(&ones, 1000), left(&ones, 100)), (1000, 1000, 100));
        let taken: Vec<usize> = evenly(&ones, 100)
            .iter()
            .enumerate()
            .filter(|(_, takes)| **takes)
            .map(|(n, _)| n)
            .collect();
        assert!(taken.windows(2).all(|pair| pair[1] - pair[0] == 10), "{taken:?}");
        // A point with many is taken whole, and those behind it are fewer.
        let mut mixed = [1; 1000];
        mixed[500] = 200;
        assert!((100..=300).contains(&left(&mixed, 100)), "{}", left(&mixed, 100));
        assert_eq!(evenly(&[], 5), Vec::<bool>::new());
    }
}
