//! Explores every sequence of operations on a design, with the power cut at every write.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use fathom_block::{
    Bounds, CrashPoint, Geometry, GeometryError, Image, Level, Recorder, Window, WriteLog,
};
use fathom_core::{Digest, Errno};
use fathom_engine::search::{Property, System};
use serde::{Deserialize, Serialize};

use super::call::{Call, calls};
use super::design::{Design, Volume};
use super::encode;
use super::legal::Legal;
use super::shadow::Tree;
use super::tally::Tally;

/// Domain of the digest that identifies a state.
const DOMAIN_STATE: u64 = 19;
/// Indexes of faults that every design can have; its invariants come after them.
const ANSWERS: usize = 0;
const RECOVERS: usize = 1;
const KEEPS: usize = 2;
const INVARIANTS: usize = 3;
/// Greatest number of invariants of one design.
const INVARIANTS_MAX: usize = 5;

/// The identity of states and the number of power failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of last operations that belong to the identity of a state.
    pub remember: u32,
    /// Whether names count: without isomorphism, every tree is a state of its own.
    pub names_count: bool,
    /// Number of power failures in one run; 0: the power never fails.
    pub crashes: u8,
}

impl Default for Limits {
    fn default() -> Limits {
        // The study: errors are found from two operations on; it uses three.
        Limits { remember: 3, names_count: false, crashes: 1 }
    }
}

/// A design that cannot be explored: a mistake of its author.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplorerError {
    /// The device cannot exist.
    #[error("the geometry of {0} is impossible: {1}")]
    Geometry(&'static str, GeometryError),
    /// There are too many invariants.
    #[error("{0} has more than {INVARIANTS_MAX} invariants")]
    Invariants(&'static str),
    /// A volume that was just made cannot be mounted.
    #[error("{0}: a volume that was just made does not mount: {1}")]
    Mount(&'static str, Errno),
    /// A volume that was just made is not empty, or broken.
    #[error(
        "{0}: {1} does not hold after mkfs already: {2}; this is a mistake in the design itself"
    )]
    Blank(&'static str, &'static str, String),
}

/// A design under exploration.
#[derive(Debug)]
pub struct Explorer<D> {
    design: D,
    limits: Limits,
    geometry: Geometry,
    level: Level,
    blank: Image,
    recoveries: Tally,
    /// Whether a violation was found after any power failure.
    flawed: AtomicBool,
    /// Whether volumes that cannot be told apart by recovery are nevertheless all recovered.
    thorough: bool,
}

/// A mounted volume with its shadow: the expected tree and the legal ones.
#[derive(Clone, Debug)]
pub struct State<M> {
    /// The volume; its device has the events since the last flush.
    volume: Volume<M>,
    /// The image that the last flush made durable, if the device has changed since. (Thousands of
    /// states share one image: threads take turns at counting its references, so there should be few.)
    base: Option<Image>,
    /// The visible tree.
    tree: Tree,
    /// The trees that are legal after a power failure: from what is durable to what is visible.
    legal: Legal,
    /// The contents of the next written block, and the id of the next file.
    fresh: u8,
    /// The letters of the last operations, newest lowest.
    recent: u64,
    /// Number of syncs, remounts and crashes so far, which change nothing that is visible.
    version: u8,
    crashes: u8,
    faults: u16,
}

/// One step of the system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// An operation; every power failure during it is judged.
    Call(Call),
    /// The power fails during an operation, and the volume is mounted again.
    Crash(Call, CrashPoint),
}

/// A violation after a power failure.
#[derive(Clone, Debug)]
pub(super) struct Violation {
    pub(super) faults: u16,
    pub(super) point: CrashPoint,
    pub(super) what: String,
}

/// The last power failure that was survived, and the blocks that were read then.
struct Seen<'a> {
    log: &'a WriteLog,
    position: usize,
    looked_at: Option<u128>,
    block_bytes: usize,
}

impl<'a> Seen<'a> {
    fn nothing(log: &'a WriteLog) -> Seen<'a> {
        Seen { log, position: 0, looked_at: None, block_bytes: 1 }
    }

    fn now(&mut self, position: usize, looked_at: Option<u128>, block_bytes: usize) {
        (self.position, self.looked_at, self.block_bytes) = (position, looked_at, block_bytes);
    }

    /// Whether every block that was read is the same at a later position.
    fn is_same_at(&self, position: usize) -> bool {
        let Some(looked_at) = self.looked_at else { return false };
        let mut since =
            (self.position..position).filter_map(|index| self.log.event(index).region());
        since.all(|region| {
            let blocks = region.start / self.block_bytes..region.end.div_ceil(self.block_bytes);
            blocks.into_iter().all(|block| block < 128 && looked_at >> block & 1 == 0)
        })
    }
}

impl<M> State<M> {
    /// The visible tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The device of the volume.
    pub fn disk(&self) -> &Recorder {
        &self.volume.disk
    }

    /// The volume.
    pub fn volume(&self) -> &Volume<M> {
        &self.volume
    }

    /// The image that the last flush made durable.
    pub(super) fn base(&self) -> &Image {
        self.base.as_ref().unwrap_or(self.volume.disk.image())
    }

    /// Whether nothing is wrong so far: what comes after a violation proves nothing.
    pub(super) fn is_sound(&self) -> bool {
        self.faults == 0
    }
}

impl<D: Design> Explorer<D> {
    /// Makes an empty volume and checks that it is one.
    ///
    /// # Errors
    /// If the design has a mistake that needs no workload to be seen.
    pub fn new(design: D, limits: Limits) -> Result<Explorer<D>, ExplorerError> {
        let (name, geometry) = (design.name(), design.geometry());
        if design.invariants().len() > INVARIANTS_MAX {
            return Err(ExplorerError::Invariants(name));
        }
        let wrong = |error| ExplorerError::Geometry(name, error);
        let mut disk = Recorder::new(geometry.blank_image(), geometry).map_err(wrong)?;
        design.mkfs(&mut disk);
        let (blank, _) = disk.into_parts();
        let level = design.promise().level;
        let (recoveries, flawed) = (Tally::default(), AtomicBool::new(false));
        let thorough = false;
        let explorer =
            Explorer { design, limits, geometry, level, blank, recoveries, flawed, thorough };
        let mut disk = explorer.device_with(&explorer.blank);
        let memory =
            explorer.design.mount(&mut disk).map_err(|error| ExplorerError::Mount(name, error))?;
        let volume = Volume { disk, memory };
        if let Err(complaints) = explorer.design.fsck(&volume) {
            let (property, what) = complaints.into_iter().next().expect("it complains");
            return Err(ExplorerError::Blank(name, property, what));
        }
        match explorer.design.tree(&volume) {
            Ok(tree) if tree == Tree::default() => Ok(explorer),
            other => Err(ExplorerError::Blank(name, "an empty tree", format!("{other:?}"))),
        }
    }

    /// Makes the explorer recover what every power failure leaves, even if it differs from the last
    /// one only in blocks that recovery does not read ([`Design::looked_at`]): slower, with the
    /// same result.
    #[must_use]
    pub fn thorough(self) -> Explorer<D> {
        Explorer { thorough: true, ..self }
    }

    /// The design.
    pub fn design(&self) -> &D {
        &self.design
    }

    /// Returns the design, once it is known that nothing is wrong with it at once.
    pub fn into_design(self) -> D {
        self.design
    }

    /// Number of power failures judged so far.
    pub fn recoveries(&self) -> u64 {
        self.recoveries.sum()
    }

    pub(super) fn device_with(&self, image: &Image) -> Recorder {
        Recorder::new(image.clone(), self.geometry).expect("its own image")
    }

    /// Executes an operation on the volume and on the shadow; none if there is no room for it.
    pub(super) fn execute(
        &self,
        state: &State<D::Memory>,
        call: &Call,
    ) -> Option<State<D::Memory>> {
        let mut next = state.clone();
        let (design, on) = (&self.design, &mut next.volume);
        let answer = match *call {
            Call::Create(path) => design.create(on, path),
            Call::Mkdir(path) => design.mkdir(on, path),
            Call::Open(path) => design.open(on, path).map(|_| ()),
            Call::Close(path) => design.close(on, path),
            Call::Write { path, place, blocks } => {
                let contents: [u8; 8] = std::array::from_fn(|i| state.fresh.wrapping_add(i as u8));
                design.write(on, path, place, &contents[..usize::from(blocks)])
            }
            Call::Truncate(path) => design.truncate(on, path, 0),
            Call::Remove(path) => design.remove(on, path),
            Call::Rmdir(path) => design.rmdir(on, path),
            Call::Move { from, to } => design.rename(on, from, to),
            Call::Fsync(path) => design.fsync(on, path),
            Call::Sync => design.sync(on),
            Call::Remount => self.remount(on),
        };
        if next.base.is_none() && next.volume.disk.position() != state.volume.disk.position() {
            next.base = Some(state.base().clone());
        }
        match answer {
            Err(Errno::ENOSPC) => return None,
            Err(_) => next.faults |= 1 << ANSWERS,
            Ok(()) => self.follow(&mut next, call),
        }
        Some(next)
    }

    fn remount(&self, on: &mut Volume<D::Memory>) -> Result<(), Errno> {
        self.design.unmount(on)?;
        on.memory = self.design.mount(&mut on.disk)?;
        Ok(())
    }

    /// Applies the operation to the shadow; the volume must look like it.
    fn follow(&self, next: &mut State<D::Memory>, call: &Call) {
        call.apply(&mut next.tree, next.fresh);
        match *call {
            Call::Create(path) | Call::Mkdir(path) => {
                next.tree.identify(path, next.fresh);
                let opened = matches!(call, Call::Create(_)) && self.design.menu().opens;
                next.tree.set_open(path, opened);
                next.fresh += 1;
            }
            Call::Write { blocks, .. } => next.fresh += blocks,
            _ => {}
        }
        if self.design.tree(&next.volume) != Ok(next.tree) {
            next.faults |= 1 << ANSWERS;
        }
        for (index, invariant) in self.design.invariants().iter().enumerate() {
            if (invariant.check)(&self.design, &next.volume.memory, &next.volume.disk).is_err() {
                next.faults |= 1 << (INVARIANTS + index);
            }
        }
        next.recent = next.recent << 8 | u64::from(call.letter());
        match *call {
            Call::Sync | Call::Remount => {
                next.version += 1;
                next.legal = Legal::only(next.tree);
            }
            Call::Fsync(path) => self.follow_fsync(next, path),
            _ => next.legal = next.legal.and(next.tree),
        }
    }

    /// Gives the file its durable contents in all legal trees, and leaves out those that do not have
    /// it; keeps only the present tree if fsync promises to make everything durable.
    fn follow_fsync(&self, next: &mut State<D::Memory>, path: super::Path) {
        let Some(file) = next.tree.get(path).copied() else { return };
        next.legal = match self.design.promise().fsync_is_sync {
            true => Legal::only(next.tree),
            false => next.legal.filter_map(|tree| tree.copy_contents(&file)),
        };
    }

    /// Looks at every power failure during and after an operation; stops at the first violation.
    pub(super) fn judge(
        &self,
        before: &State<D::Memory>,
        after: &State<D::Memory>,
    ) -> Option<Violation> {
        self.judge_counting(before, after).0
    }

    /// Judges like [`judge`](Explorer::judge); also returns how many power failures were judged.
    fn judge_counting(
        &self,
        before: &State<D::Memory>,
        after: &State<D::Memory>,
    ) -> (Option<Violation>, u64) {
        let (from, to) = (before.volume.disk.position(), after.volume.disk.position());
        let promised_more = after.legal.len() <= before.legal.len();
        if from == to && !promised_more {
            return (None, 0);
        }
        let window = |from, to| {
            Window::new(before.base(), after.volume.disk.log(), self.geometry.atomic_bytes)
                .between(from, to)
        };
        let (mut found, mut judged) = (None, 0);
        let mut seen = Seen::nothing(after.volume.disk.log());
        // At other levels the next volume is not the last one and a few writes.
        let skips = !self.thorough && self.level == Level::Linear;
        let mut visit = |point: &CrashPoint, image: &Image, legal: [&Legal; 2], skips: bool| {
            judged += 1;
            if skips && seen.is_same_at(point.position()) {
                return ControlFlow::Continue(());
            }
            let (faults, what, looked_at) = self.recovered(image, legal);
            if faults == 0 {
                seen.now(point.position(), looked_at, self.geometry.write_bytes);
                return ControlFlow::Continue(());
            }
            found = Some(Violation { faults, point: point.clone(), what });
            ControlFlow::Break(())
        };
        let enumerator = self.level.enumerator(&Bounds::default());
        let inside = enumerator.visit(&window(from, to), &mut |point, image| {
            // The beginning was the end of the operation before, and the end is looked at below.
            let inside = point.position() > from && (point.position() < to || !promised_more);
            let either = [&before.legal, &after.legal];
            if inside { visit(point, image, either, skips) } else { ControlFlow::Continue(()) }
        });
        if promised_more && inside.is_continue() {
            // Less is legal now than before.
            let only = [&after.legal, &after.legal];
            let mut visit = |point: &CrashPoint, image: &Image| visit(point, image, only, false);
            let _ = enumerator.visit(&window(to, to), &mut visit);
        }
        (found, judged)
    }

    /// Mounts what a power failure left and checks it. Returns the faults, the same in words, and
    /// the blocks that were read for that.
    fn recovered(&self, image: &Image, legal: [&Legal; 2]) -> (u16, String, Option<u128>) {
        let mut disk = self.device_with(image);
        let memory = match self.design.mount(&mut disk) {
            Ok(memory) => memory,
            Err(error) => {
                return (1 << RECOVERS, format!("the volume does not mount: {error}"), None);
            }
        };
        let volume = Volume { disk, memory };
        let (mut faults, mut what) = (0, String::new());
        for (index, invariant) in self.design.invariants().iter().enumerate() {
            if let Err(why) = (invariant.check)(&self.design, &volume.memory, &volume.disk) {
                faults |= 1 << (INVARIANTS + index);
                what = format!("{}: {why}", invariant.name);
            }
        }
        match self.design.tree(&volume) {
            Ok(tree) if legal.iter().any(|legal| legal.iter().any(|legal| *legal == tree)) => {}
            Ok(tree) => {
                faults |= 1 << KEEPS;
                what = format!("{} {what}", legal[0].durable().difference(&tree));
            }
            Err(error) => {
                faults |= 1 << KEEPS;
                what = format!("the volume cannot be read: {error}; {what}");
            }
        }
        (faults, what, self.design.looked_at(&volume))
    }

    /// Forgets events that a power failure can no longer undo.
    fn settle(&self, state: &mut State<D::Memory>) {
        let log = state.volume.disk.log();
        let durable = match self.level {
            Level::Linear => log.len(),
            _ => log.epoch_start(log.len()),
        };
        if durable == 0 {
            return;
        }
        // A new device: the old one would keep the memory of its log.
        let mut disk = self.device_with(state.volume.disk.image());
        if durable == log.len() {
            state.base = None;
        } else {
            log.apply(
                0..durable,
                state.base.as_mut().expect("what is in the log changed the device"),
            );
            for event in log.events().skip(durable) {
                if let fathom_block::Event::Write { at, data, .. } = event {
                    disk.write(at, data).expect("it was written before");
                }
            }
        }
        state.volume.disk = disk;
    }

    /// Computes the state after a power failure; none if recovery failed or left an illegal tree.
    fn crashed(
        &self,
        before: &State<D::Memory>,
        call: &Call,
        point: &CrashPoint,
    ) -> Option<State<D::Memory>> {
        let after = self.execute(before, call)?;
        let window =
            Window::new(before.base(), after.volume.disk.log(), self.geometry.atomic_bytes);
        let image = window.rebuild(point).ok()?;
        let mut disk = self.device_with(&image);
        let memory = self.design.mount(&mut disk).ok()?;
        let volume = Volume { disk, memory };
        let tree = self.design.tree(&volume).ok()?;
        let legal = after.legal.iter().chain(before.legal.iter());
        let mut tree = *legal.filter(|legal| **legal == tree).last()?;
        tree.close_all();
        let mut next = State {
            base: Some(volume.disk.image().clone()),
            volume,
            tree,
            legal: Legal::only(tree),
            crashes: before.crashes + 1,
            version: before.version + 1,
            recent: before.recent << 8 | u64::from(b'!'),
            faults: 0,
            fresh: after.fresh,
        };
        self.settle(&mut next);
        Some(next)
    }

    fn crash_points(&self, state: &State<D::Memory>, call: &Call, actions: &mut Vec<Action>) {
        let Some(after) = self.execute(state, call) else { return };
        let (from, to) = (state.volume.disk.position(), after.volume.disk.position());
        let window = Window::new(state.base(), after.volume.disk.log(), self.geometry.atomic_bytes);
        let enumerator = self.level.enumerator(&Bounds::default());
        let _ = enumerator.visit(&window.between(from, to), &mut |point, _| {
            if point.position() > from {
                actions.push(Action::Crash(*call, point.clone()));
            }
            ControlFlow::Continue(())
        });
    }
}

/// The check of a property in the form that the search takes.
type Check<D> = fn(&Explorer<D>, &State<<D as Design>::Memory>) -> bool;

fn holds<D: Design, const FAULT: usize>(_: &Explorer<D>, state: &State<D::Memory>) -> bool {
    state.faults & (1 << FAULT) == 0
}

impl<D: Design> System for Explorer<D> {
    type State = State<D::Memory>;
    type Action = Action;

    fn init(&self) -> Vec<State<D::Memory>> {
        let mut disk = self.device_with(&self.blank);
        let memory = self.design.mount(&mut disk).expect("it did in new()");
        disk.restart(disk.image().clone()).expect("its own image");
        let tree = Tree::default();
        let legal = Legal::only(tree);
        let (recent, version, crashes, faults) = (0, 0, 0, 0);
        let volume = Volume { disk, memory };
        vec![State { volume, base: None, tree, legal, fresh: 1, recent, version, crashes, faults }]
    }

    fn actions(&self, state: &State<D::Memory>, actions: &mut Vec<Action>) {
        if state.faults != 0 {
            return;
        }
        let mut possible = Vec::new();
        calls(&self.design.menu(), &state.tree, &mut possible);
        for call in possible {
            if state.crashes + 1 < self.limits.crashes {
                self.crash_points(state, &call, actions);
            }
            actions.push(Action::Call(call));
        }
    }

    fn next(&self, state: &State<D::Memory>, action: &Action) -> Option<State<D::Memory>> {
        let mut next = match action {
            Action::Call(call) => self.execute(state, call)?,
            Action::Crash(call, point) => return self.crashed(state, call, point),
        };
        if self.limits.crashes > 0 && next.faults == 0 {
            let (violation, judged) = self.judge_counting(state, &next);
            self.recoveries.add(judged);
            if let Some(violation) = violation {
                next.faults = violation.faults;
                self.flawed.store(true, Ordering::Relaxed);
            }
        }
        self.settle(&mut next);
        Some(next)
    }

    /// Takes a known step again. As long as this explorer has seen every power failure survived,
    /// those of the step are not judged again.
    fn retrace(&self, state: &State<D::Memory>, action: &Action) -> Option<State<D::Memory>> {
        let Action::Call(call) = action else { return self.next(state, action) };
        let mut next = self.execute(state, call)?;
        let survived = !self.recoveries.is_zero() && !self.flawed.load(Ordering::Relaxed);
        if self.limits.crashes > 0 && next.faults == 0 && !survived {
            next.faults = self.judge(state, &next).map_or(0, |violation| violation.faults);
        }
        self.settle(&mut next);
        Some(next)
    }

    fn unshare(&self, state: &mut State<D::Memory>) {
        state.volume.disk.unshare();
        state.base.iter_mut().for_each(Image::unshare);
        state.legal.unshare();
    }

    fn save(&self) -> Vec<u8> {
        vec![self.flawed.load(Ordering::Relaxed).into()]
    }

    fn load(&self, saved: &[u8]) -> bool {
        self.flawed.store(saved == [1], Ordering::Relaxed);
        matches!(saved, [0 | 1])
    }

    fn key(&self, state: &State<D::Memory>) -> u128 {
        let kept = 8 * self.limits.remember.min(8);
        let recent = if kept == 64 { state.recent } else { state.recent & ((1 << kept) - 1) };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&encode::shape(&state.tree).to_le_bytes());
        bytes[8..16].copy_from_slice(&recent.to_le_bytes());
        bytes[16] = state.version;
        bytes[17] = state.crashes;
        bytes[18..20].copy_from_slice(&state.faults.to_le_bytes());
        if self.limits.names_count || state.crashes > 0 {
            // A recovered volume is not like one that was never interrupted.
            let device = state.volume.disk.image().digest().0 as u64;
            bytes[24..32].copy_from_slice(&device.to_le_bytes());
        }
        Digest::of(DOMAIN_STATE, &bytes).0
    }

    fn properties(&self) -> Vec<Property<Explorer<D>>> {
        let checks: [Check<D>; INVARIANTS_MAX] = [
            holds::<D, { INVARIANTS }>,
            holds::<D, { INVARIANTS + 1 }>,
            holds::<D, { INVARIANTS + 2 }>,
            holds::<D, { INVARIANTS + 3 }>,
            holds::<D, { INVARIANTS + 4 }>,
        ];
        let invariants = self.design.invariants().iter().zip(checks);
        [
            Property::always("does what is asked", holds::<D, ANSWERS>),
            Property::always("mounts after a power failure", holds::<D, RECOVERS>),
            Property::always("keeps what it promised", holds::<D, KEEPS>),
        ]
        .into_iter()
        .chain(invariants.map(|(invariant, check)| Property::always(invariant.name, check)))
        .collect()
    }
}
