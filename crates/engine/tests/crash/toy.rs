//! A small correct file system, with switches for what can be wrong with it.
//!
//! The whole tree is one snapshot with a sequence number. Snapshots go to two areas of the device in
//! turns: the old one is good until the new one is. A mount takes the newest good one; if the other
//! is damaged it was being written when the power failed, and is written again.
//!
//! Two designs make sure that half a snapshot is never taken for a whole one. *CheckerReport*: header and
//! body are one write, and the header has a checksum. *Ordered*: the body is flushed before the
//! header is written. Three promises say when a change is durable: see [`Durable`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use fathom_block::backed::{Durable, Order};
use fathom_block::{
    BlockBacked, DeviceError, Geometry, Guarantee, Image, MountFailure, Mounted, Recorder,
};
use fathom_core::flags::OpenFlags;
use fathom_core::{
    Digest, Errno, FsPath, HarnessFault, Op, Outcome, PlainTree, Slot, Target, Tree,
};
use serde::{Deserialize, Serialize};

use super::bug::Bug;

const SECTOR_BYTES: usize = 512;
const AREA_BYTES: usize = 8 * SECTOR_BYTES;
const BODY_BYTES_MAX: usize = AREA_BYTES - SECTOR_BYTES;
/// Space that a leak takes away: more than a sector, so that one file less fits.
const LEAK_BYTES: u64 = 600;

/// Everything that a snapshot holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Volume {
    /// Files with their contents; directories have none. The root is not listed.
    entries: BTreeMap<FsPath, Option<Vec<u8>>>,
    /// Always 0, except for bugs that need something to persist.
    mark: u64,
}

/// The first sector of an area.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Header {
    magic: u64,
    sequence: u64,
    len: usize,
    digest: u128,
}

const MAGIC: u64 = 0x0079_6f74_206d_6f68;

impl Header {
    fn new(sequence: u64, body: &[u8]) -> Header {
        let digest = Digest::of(sequence, body).0;
        Header { magic: MAGIC, sequence, len: body.len(), digest }
    }
}

/// How it is made.
#[derive(Clone, Copy)]
struct Design {
    durable: Durable,
    ordered: bool,
    bug: Option<Bug>,
}

/// The file system.
pub(crate) struct Toy {
    design: Design,
    guarantee: Guarantee,
    recoveries: AtomicU64,
}

impl Toy {
    /// The checked design, with changes durable when the promise says so.
    pub(crate) fn new(durable: Durable) -> Toy {
        let names = if durable == Durable::Sync { Durable::Sync } else { Durable::Operation };
        let guarantee = format!(
            r#"
            names = {{ is = "{names}", cite = "toy.rs, settle" }}
            data = {{ is = "{durable}", cite = "toy.rs, settle" }}
            order = {{ is = "prefix", cite = "toy.rs: a snapshot is the whole tree" }}
            survives = {{ is = ["linear", "epoch", "lost", "torn", "erase"], cite = "toy.rs" }}
            recovers = {{ is = true, cite = "toy.rs, mount" }}
            capacity_slack_bytes = {{ is = 0, cite = "toy.rs: nothing but the tree takes space" }}
            "#
        );
        let guarantee = Guarantee::parse(&guarantee).expect("a sensible promise");
        let design = Design { durable, ordered: false, bug: None };
        Toy { design, guarantee, recoveries: AtomicU64::new(0) }
    }

    pub(crate) fn ordered(self) -> Toy {
        Toy { design: Design { ordered: true, ..self.design }, ..self }
    }

    /// Promises nothing about what was touched since the last sync.
    pub(crate) fn loose(mut self) -> Toy {
        self.guarantee.order.is = Order::None;
        self
    }

    /// Is held to other promises, at the levels that it survives.
    pub(crate) fn promising(self, guarantee: Guarantee) -> Toy {
        let survives = self.guarantee.survives.clone();
        Toy { guarantee: Guarantee { survives, ..guarantee }, ..self }
    }

    pub(crate) fn with(self, bug: Bug) -> Toy {
        Toy { design: Design { bug: Some(bug), ..self.design }, ..self }
    }

    /// A snapshot, if there is a good one.
    fn read_area(&self, device: &mut Recorder, area: usize) -> Option<(Header, Volume)> {
        let mut bytes = [0; AREA_BYTES];
        device.read(area * AREA_BYTES, &mut bytes).ok()?;
        let (header, body) = bytes.split_at(SECTOR_BYTES);
        let header: Header = postcard::from_bytes(header).ok()?;
        let body = body.get(..header.len)?;
        let whole = Header::new(header.sequence, body).digest == header.digest
            || self.design.ordered
            || self.design.bug == Some(Bug::NoChecksum);
        let volume = postcard::from_bytes(body).ok()?;
        (header.magic == MAGIC && whole).then_some((header, volume))
    }
}

impl BlockBacked for Toy {
    fn name(&self) -> &str {
        "toy"
    }

    fn version(&self) -> &str {
        "toy 1"
    }

    fn geometry(&self) -> Geometry {
        Geometry::disk(2 * AREA_BYTES)
    }

    fn guarantee(&self) -> &Guarantee {
        &self.guarantee
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        let device = Recorder::new(self.geometry().blank_image(), self.geometry());
        let device = device.map_err(|error| HarnessFault::new("toy", error))?;
        let mut mount = Mount::new(Design { bug: None, ..self.design }, device);
        for _ in 0..2 {
            mount.commit().map_err(|errno| HarnessFault::new("toy: format", errno))?;
        }
        Ok(mount.device.image().clone())
    }

    fn mount(&self, mut device: Recorder) -> Result<Box<dyn Mounted>, Box<MountFailure>> {
        let areas = [0, 1].map(|area| self.read_area(&mut device, area));
        let damaged = areas.iter().any(Option::is_none);
        let good = areas.into_iter().enumerate().filter_map(|(area, good)| Some((area, good?)));
        let newest = good.max_by_key(|(_, (header, _))| header.sequence);
        let mut mount = Mount::new(self.design, device);
        let refused = |errno, mount: Mount| Box::new(MountFailure { errno, device: mount.device });
        let Some((area, (header, volume))) = newest else { return Err(refused(Errno::EIO, mount)) };
        (mount.area, mount.sequence) = (area, header.sequence);
        (mount.now, mount.stored) = (volume.clone(), volume);
        let recovered = match self.design.bug {
            Some(Bug::MountsOnce) if mount.now.mark > 0 => Err(Errno::EUCLEAN),
            Some(Bug::MountRewrites) => mount.commit_to(area),
            _ if damaged => mount.repair(self.recoveries.fetch_add(1, Ordering::Relaxed)),
            _ => Ok(()),
        };
        match recovered {
            Ok(()) => Ok(Box::new(mount)),
            Err(errno) => Err(refused(errno, mount)),
        }
    }

    fn has_checker(&self) -> bool {
        true
    }

    fn fsck(&self, image: &Image) -> Result<Option<String>, HarnessFault> {
        let device = Recorder::new(image.clone(), self.geometry());
        let mut device = device.map_err(|error| HarnessFault::new("toy", error))?;
        let marked = |area| self.read_area(&mut device, area).is_some_and(|(_, v)| v.mark > 0);
        Ok([0, 1].into_iter().any(marked).then(|| "a mark is set".to_owned()))
    }
}

#[derive(Clone)]
struct OpenFile {
    path: FsPath,
    buffer: Vec<u8>,
}

/// One mount.
struct Mount {
    design: Design,
    device: Recorder,
    /// Where the newest snapshot is.
    area: usize,
    sequence: u64,
    /// What the newest snapshot holds.
    stored: Volume,
    /// What is visible.
    now: Volume,
    open: BTreeMap<Slot, OpenFile>,
    /// The present operation is one after which nobody flushes.
    forgets_flush: bool,
}

fn io(_: DeviceError) -> Errno {
    Errno::EIO
}

impl Mount {
    fn new(design: Design, device: Recorder) -> Mount {
        let (stored, now) = (Volume::default(), Volume::default());
        Mount {
            design,
            device,
            area: 0,
            sequence: 0,
            stored,
            now,
            open: BTreeMap::new(),
            forgets_flush: false,
        }
    }

    fn has(&self, bug: Bug) -> bool {
        self.design.bug == Some(bug)
    }

    /// A disk with a bug that shows after recovery.
    fn is_marked(&self, bug: Bug) -> bool {
        self.has(bug) && self.now.mark > 0
    }

    /// Makes what is visible durable.
    fn commit(&mut self) -> Result<(), Errno> {
        let area = if self.has(Bug::InPlace) { self.area } else { 1 - self.area };
        self.commit_to(area)
    }

    fn commit_to(&mut self, area: usize) -> Result<(), Errno> {
        self.sequence += u64::from(!self.has(Bug::StaleSequence));
        let mut body = postcard::to_stdvec(&self.now).expect("plain data");
        let header = Header::new(self.sequence, &body);
        let mut bytes = postcard::to_stdvec(&header).expect("plain data");
        bytes.resize(SECTOR_BYTES, 0);
        body.resize(body.len().next_multiple_of(SECTOR_BYTES), 0);
        let at = area * AREA_BYTES;
        self.device.erase(at, AREA_BYTES).map_err(io)?;
        if self.design.ordered {
            self.device.write(at + SECTOR_BYTES, &body).map_err(io)?;
            if !self.has(Bug::NoFlushBefore) {
                self.device.flush();
            }
        } else {
            bytes.extend(body);
        }
        self.device.write(at, &bytes).map_err(io)?;
        if !self.has(Bug::NoFlushAfter) && !self.forgets_flush {
            self.device.flush();
        }
        self.area = area;
        self.stored = self.now.clone();
        Ok(())
    }

    /// The power failed while the other area was being written.
    fn repair(&mut self, recoveries: u64) -> Result<(), Errno> {
        match self.design.bug {
            Some(Bug::ForgetsLast) => drop(self.now.entries.pop_last()),
            Some(Bug::ForgetsSometimes) if recoveries % 2 == 1 => {
                self.now.entries.pop_last();
            }
            Some(Bug::UnlinkMarks) if self.now.mark > 0 => drop(self.now.entries.pop_last()),
            Some(Bug::SecondRecoveryForgets) if self.now.mark > 0 => {
                self.now.entries.pop_last();
            }
            Some(
                Bug::SecondRecoveryForgets
                | Bug::MountsOnce
                | Bug::RefusesNewFiles
                | Bug::PanicsWhenUsed
                | Bug::Unreadable
                | Bug::LeavesMark,
            ) => self.now.mark = 1,
            Some(Bug::RecoveryLeaks) => self.now.mark += LEAK_BYTES,
            Some(Bug::RepairsInPlace) => return self.commit_to(self.area),
            Some(Bug::RecoveryPanics) => panic!("a toy of {} parts", self.now.entries.len()),
            Some(Bug::ReadsForEver) => loop {
                self.device.read(0, &mut [0; SECTOR_BYTES]).map_err(io)?;
            },
            _ => {}
        }
        self.commit()
    }

    /// After an operation: is there room, and must it be durable?
    fn settle(&mut self, op: &Op) -> Result<(), Errno> {
        let mut full = self.now.clone();
        for OpenFile { path, buffer } in self.open.values().cloned() {
            full.entries.insert(path, Some(buffer));
        }
        let leaks = self.has(Bug::UnlinkLeaks) || self.has(Bug::RecoveryLeaks);
        let lost_bytes = if leaks { full.mark as usize } else { 0 };
        let body_bytes = postcard::to_stdvec(&full).expect("plain data").len();
        if body_bytes + lost_bytes > BODY_BYTES_MAX {
            return Err(Errno::ENOSPC);
        }
        let due = self.design.durable != Durable::Sync || matches!(op, Op::Fsync { .. } | Op::Sync);
        if due && self.now != self.stored { self.commit() } else { Ok(()) }
    }

    fn execute(&mut self, op: &Op) -> Result<u64, Errno> {
        match op {
            Op::Open { slot, path, flags, .. } => self.open(*slot, path, *flags),
            Op::Close { slot } => {
                self.store(*slot)?;
                self.open.remove(slot);
                Ok(0)
            }
            Op::Pwrite { slot, offset, data } => {
                let (data, offset) = (data.to_vec(), *offset as usize);
                self.edit(*slot, |buffer| {
                    buffer.resize(buffer.len().max(offset + data.len()), 0);
                    buffer[offset..offset + data.len()].copy_from_slice(&data);
                })?;
                Ok(data.len() as u64)
            }
            Op::Truncate { target: Target::Slot(slot), len } => {
                self.edit(*slot, |buffer| buffer.resize(*len as usize, 0))
            }
            Op::Mkdir { path, .. } => {
                self.free(path)?;
                self.now.entries.insert(path.clone(), None);
                Ok(0)
            }
            Op::Rmdir { path } => self.remove(path, true),
            Op::Unlink { path } => self.unlink(path),
            Op::Rename { from, to, .. } => self.rename(from, to),
            Op::Fsync { slot } => self.store(*slot),
            Op::Sync => {
                let slots: Vec<Slot> = self.open.keys().copied().collect();
                slots.into_iter().try_for_each(|slot| self.store(slot).map(drop))?;
                Ok(0)
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn open(&mut self, slot: Slot, path: &FsPath, flags: OpenFlags) -> Result<u64, Errno> {
        let buffer = match self.now.entries.get(path) {
            Some(_) if flags.contains(OpenFlags::O_EXCL) => return Err(Errno::EEXIST),
            Some(None) => return Err(Errno::EISDIR),
            Some(Some(_)) if flags.contains(OpenFlags::O_TRUNC) => Vec::new(),
            Some(Some(contents)) => contents.clone(),
            None if !flags.contains(OpenFlags::O_CREAT) => return Err(Errno::ENOENT),
            None if self.is_marked(Bug::RefusesNewFiles) => return Err(Errno::EROFS),
            None if self.is_marked(Bug::PanicsWhenUsed) => panic!("a toy that is marked"),
            None => {
                self.free(path)?;
                self.now.entries.insert(path.clone(), Some(Vec::new()));
                Vec::new()
            }
        };
        self.open.insert(slot, OpenFile { path: path.clone(), buffer });
        let waits = self.design.durable == Durable::Close && !self.has(Bug::TruncatesAtOnce);
        if waits { Ok(0) } else { self.store(slot) }
    }

    /// Changes an open file; whether anybody sees it yet depends on the design.
    fn edit(&mut self, slot: Slot, change: impl FnOnce(&mut Vec<u8>)) -> Result<u64, Errno> {
        change(&mut self.open.get_mut(&slot).ok_or(Errno::EBADF)?.buffer);
        if self.design.durable == Durable::Close { Ok(0) } else { self.store(slot) }
    }

    /// What was written to an open file is what the file holds.
    fn store(&mut self, slot: Slot) -> Result<u64, Errno> {
        let OpenFile { path, buffer } = self.open.get(&slot).ok_or(Errno::EBADF)?;
        if let Some(contents) = self.now.entries.get_mut(path) {
            *contents = Some(buffer.clone());
        }
        Ok(0)
    }

    /// Whether something can be made there.
    fn free(&self, path: &FsPath) -> Result<(), Errno> {
        let home = path.parent().ok_or(Errno::EEXIST)?;
        match self.now.entries.get(&home) {
            _ if self.now.entries.contains_key(path) => Err(Errno::EEXIST),
            None if home.as_bytes() != b"." => Err(Errno::ENOENT),
            Some(Some(_)) => Err(Errno::ENOTDIR),
            _ => Ok(()),
        }
    }

    fn unlink(&mut self, path: &FsPath) -> Result<u64, Errno> {
        match self.design.bug {
            Some(Bug::UnlinkDoesNothing) => return Ok(0),
            Some(Bug::UnlinkLeaks) => self.now.mark += LEAK_BYTES,
            Some(Bug::UnlinkMarks) => self.now.mark = 1,
            _ => {}
        }
        self.remove(path, false)
    }

    fn remove(&mut self, path: &FsPath, dir: bool) -> Result<u64, Errno> {
        match self.now.entries.get(path) {
            None => return Err(Errno::ENOENT),
            Some(entry) if entry.is_none() != dir => return Err(Errno::EPERM),
            _ if self.now.entries.keys().any(|inside| below(inside, path).is_some()) => {
                return Err(Errno::ENOTEMPTY);
            }
            _ => {}
        }
        self.now.entries.remove(path);
        Ok(0)
    }

    fn rename(&mut self, from: &FsPath, to: &FsPath) -> Result<u64, Errno> {
        if self.has(Bug::RenamePanics) {
            panic!("a toy that cannot rename");
        }
        let dir = self.now.entries.get(from).ok_or(Errno::ENOENT)?.is_none();
        if self.now.entries.contains_key(to) {
            self.remove(to, dir)?;
        }
        self.free(to)?;
        let moves = |path: &FsPath| match below(path, from) {
            Some(rest) => Some(to.join(rest)),
            None => (path == from).then(|| to.clone()),
        };
        let old = self.now.entries.clone();
        let moved =
            |(path, entry): (&FsPath, &Option<Vec<u8>>)| Some((moves(path)?, entry.clone()));
        self.now.entries.extend(old.iter().filter_map(moved));
        if self.has(Bug::RenameInTwoSteps) {
            self.commit()?;
        }
        self.now.entries.retain(|path, _| moves(path).is_none());
        for open in self.open.values_mut() {
            open.path = moves(&open.path).unwrap_or_else(|| open.path.clone());
        }
        Ok(0)
    }
}

/// What is left of a path below a directory.
fn below<'p>(path: &'p FsPath, dir: &FsPath) -> Option<&'p [u8]> {
    path.as_bytes().strip_prefix(dir.as_bytes())?.strip_prefix(b"/")
}

impl Mounted for Mount {
    fn apply(&mut self, op: &Op) -> Outcome {
        let before = (self.now.clone(), self.open.clone());
        self.forgets_flush = match op {
            Op::Mkdir { .. } => self.has(Bug::NoFlushAfterMkdir) || self.has(Bug::NoFlushAfterTwo),
            Op::Unlink { .. } => self.has(Bug::NoFlushAfterTwo),
            _ => false,
        };
        let result = self.execute(op).and_then(|value| self.settle(op).map(|()| value));
        if result.is_err() {
            (self.now, self.open) = before;
        }
        result.into()
    }

    fn observe(&mut self) -> Tree {
        let mut tree = PlainTree::new();
        for (path, entry) in &self.now.entries {
            match entry {
                None => tree.dir(path.clone()),
                Some(contents) => tree.file(path.clone(), contents),
            }
        }
        if self.is_marked(Bug::Unreadable)
            && let Some((path, _)) = self.now.entries.last_key_value()
        {
            tree.broken(path.clone(), "open", Errno::EIO);
        }
        tree.finish()
    }

    fn position(&self) -> usize {
        self.device.position()
    }

    fn unmount(mut self: Box<Self>) -> (Outcome, Recorder) {
        let outcome = self.apply(&Op::Sync);
        (outcome, self.device)
    }

    fn power_off(self: Box<Self>) -> Recorder {
        self.device
    }
}
