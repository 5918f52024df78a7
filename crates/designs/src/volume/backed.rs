//! A design as a subject of the crash checker of real file systems: the same workloads, enumerators,
//! oracles, findings, replay and shrink (`fathom crash design:journal`).
//!
//! One byte of an operation stands for one block of the design: a file of three blocks is a file of
//! three bytes. A name of one letter is itself; a longer one (the checker probes with such names) is
//! kept as one byte above 0x7f.

use std::collections::BTreeMap;

use fathom_block::backed::{Claim, Data, DurableBy, Makes, Order};
use fathom_block::{BlockBacked, Geometry, Guarantee, Image, MountFailure, Mounted, Recorder};
use fathom_core::flags::OpenFlags;
use fathom_core::{Errno, FsPath, HarnessFault, Op, Outcome, PlainTree, Slot, Target};

use super::design::{Design, Promise, Volume};
use super::shadow::{FILE_BLOCKS_MAX, Path, Tree};

/// A design under the crash checker.
#[derive(Debug)]
pub struct Backed<D> {
    design: D,
    name: String,
    guarantee: Guarantee,
}

impl<D: Design + Clone + Send> Backed<D> {
    /// The design, named as on the command line.
    pub fn new(design: D, name: &str) -> Backed<D> {
        let guarantee = guarantee(design.promise());
        Backed { design, name: name.to_owned(), guarantee }
    }
}

/// What the design promises, in the words of the crash checker. Where an fsync makes the contents of
/// one file durable and nothing else, only `sync` is held against it.
fn guarantee(promise: Promise) -> Guarantee {
    fn claim<T>(is: T, cite: &str) -> Claim<T> {
        Claim { is, cite: cite.to_owned() }
    }
    let cite = "the design itself: Design::promise";
    let everything = || Some(claim(Makes::Everything, cite));
    let durable = DurableBy { sync: everything(), ..DurableBy::default() };
    let (order, data, durable) = match promise.fsync_is_sync {
        true => {
            let (fsync, fdatasync) = (everything(), everything());
            let durable = DurableBy { fsync, fdatasync, ..durable };
            (claim(Order::Prefix, cite), Data::Journal, durable)
        }
        false => {
            let cite = "the design itself: an fsync makes one file durable, not all";
            (claim(Order::None, cite), Data::Writeback, durable)
        }
    };
    Guarantee {
        order,
        data: claim(data, cite),
        survives: claim(vec![promise.level], cite),
        recovers: claim(true, "every design: mounting is its recovery"),
        capacity_slack_bytes: claim(0, "every design: what is freed can be used again"),
        blocks: None,
        mtime: None,
        reference: None,
        durable,
    }
}

impl<D: Design + Clone + Send> BlockBacked for Backed<D> {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        "a model"
    }

    fn geometry(&self) -> Geometry {
        self.design.geometry()
    }

    fn guarantee(&self) -> &Guarantee {
        &self.guarantee
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        let geometry = self.geometry();
        let mut disk = Recorder::new(geometry.blank_image(), geometry)
            .map_err(|error| HarnessFault::new(format!("formatting {}", self.name), error))?;
        self.design.mkfs(&mut disk);
        Ok(disk.into_parts().0)
    }

    fn mount(&self, mut disk: Recorder) -> Result<Box<dyn Mounted>, Box<MountFailure>> {
        match self.design.mount(&mut disk) {
            Ok(memory) => Ok(Box::new(Mount {
                design: self.design.clone(),
                volume: Volume { disk, memory },
                open: BTreeMap::new(),
            })),
            Err(errno) => Err(Box::new(MountFailure { errno, device: disk })),
        }
    }

    fn has_checker(&self) -> bool {
        true
    }

    /// The invariants of the design.
    fn fsck(&self, image: &Image) -> Result<Option<String>, HarnessFault> {
        let complaints = match self.design.reset(image) {
            Ok(volume) => self.design.fsck(&volume).err().unwrap_or_default(),
            Err(errno) => return Ok(Some(format!("it does not mount: {errno}"))),
        };
        // One is enough: what else is wrong would only make more causes of it.
        Ok(complaints.into_iter().next().map(|(property, what)| format!("{property}: {what}")))
    }
}

/// One mount.
struct Mount<D: Design> {
    design: D,
    volume: Volume<D::Memory>,
    open: BTreeMap<Slot, Path>,
}

/// A name of the design.
fn name(name: &[u8]) -> u8 {
    match name {
        [letter] if letter.is_ascii() => *letter,
        long => 0x80 | long.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)),
    }
}

fn path(path: &FsPath) -> Result<Path, Errno> {
    let names = path.as_bytes().split(|byte| *byte == b'/').filter(|name| *name != b".");
    let found = names.into_iter().try_fold(Path::ROOT, |path, bytes| path.join(name(bytes)));
    found.ok_or(Errno::ENAMETOOLONG)
}

/// A path as the crash checker knows it.
fn shown(path: Path) -> FsPath {
    path.names().iter().fold(FsPath::from("."), |path, name| match name.is_ascii() {
        true => path.join(&[*name]),
        false => path.join(format!("long-{name:02x}").as_bytes()),
    })
}

impl<D: Design> Mount<D> {
    fn tree(&self) -> Result<Tree, Errno> {
        self.design.tree(&self.volume)
    }

    fn file(&self, slot: Slot) -> Result<Path, Errno> {
        self.open.get(&slot).copied().ok_or(Errno::EBADF)
    }

    fn len(&self, at: Path) -> Result<usize, Errno> {
        let len = self.tree()?.get(at).ok_or(Errno::ENOENT)?.len;
        len.map(usize::from).ok_or(Errno::EISDIR)
    }

    fn open(&mut self, slot: Slot, at: &FsPath, flags: OpenFlags) -> Result<u64, Errno> {
        let at = path(at)?;
        match self.tree()?.get(at) {
            Some(entry) if entry.is_dir() => return Err(Errno::EISDIR),
            Some(_) if flags.contains(OpenFlags::O_CREAT | OpenFlags::O_EXCL) => {
                return Err(Errno::EEXIST);
            }
            Some(_) => {
                self.design.open(&mut self.volume, at)?;
                if flags.contains(OpenFlags::O_TRUNC) {
                    self.design.truncate(&mut self.volume, at, 0)?;
                }
            }
            // A new file is open.
            None if flags.contains(OpenFlags::O_CREAT) => {
                self.room_for_a_name()?;
                self.design.create(&mut self.volume, at)?;
            }
            None => return Err(Errno::ENOENT),
        }
        self.open.insert(slot, at);
        Ok(0)
    }

    /// What is visible must fit the tree that is compared.
    fn room_for_a_name(&self) -> Result<(), Errno> {
        self.tree()?.has_room().then_some(()).ok_or(Errno::ENOSPC)
    }

    fn pwrite(&mut self, slot: Slot, offset: i64, data: &[u8]) -> Result<u64, Errno> {
        let at = self.file(slot)?;
        let offset = usize::try_from(offset).map_err(|_| Errno::EINVAL)?;
        if offset + data.len() > FILE_BLOCKS_MAX {
            return Err(Errno::ENOSPC);
        }
        if offset > self.len(at)? {
            return Err(Errno::EOPNOTSUPP);
        }
        self.design.write(&mut self.volume, at, offset as u8, data)?;
        Ok(data.len() as u64)
    }

    fn pread(&self, slot: Slot, offset: i64, len: u64) -> Result<Vec<u8>, Errno> {
        let at = self.file(slot)?;
        let place = offset.clamp(0, FILE_BLOCKS_MAX as i64) as u8;
        self.design.read(&self.volume, at, place, len.min(FILE_BLOCKS_MAX as u64) as u8)
    }

    fn truncate(&mut self, slot: Slot, len: i64) -> Result<u64, Errno> {
        let at = self.file(slot)?;
        let len = usize::try_from(len).map_err(|_| Errno::EINVAL)?;
        if len > self.len(at)? {
            return Err(Errno::EOPNOTSUPP);
        }
        self.design.truncate(&mut self.volume, at, len as u8).map(|()| 0)
    }

    fn rename(&mut self, from: &FsPath, to: &FsPath) -> Result<u64, Errno> {
        let (from, to) = (path(from)?, path(to)?);
        let tree = self.tree()?;
        if tree.get(from).is_none() {
            return Err(Errno::ENOENT);
        }
        if tree.get(to).is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        self.design.rename(&mut self.volume, from, to)?;
        for open in self.open.values_mut() {
            *open = open.moved(&from, &to).ok_or(Errno::ENAMETOOLONG)?;
        }
        Ok(0)
    }

    fn remove(&mut self, at: &FsPath, is_dir: bool) -> Result<u64, Errno> {
        let (at, tree) = (path(at)?, self.tree()?);
        let entry = tree.get(at).ok_or(Errno::ENOENT)?;
        match (entry.is_dir(), is_dir) {
            (false, true) => Err(Errno::ENOTDIR),
            (true, false) => Err(Errno::EISDIR),
            (true, true) if tree.children(at).next().is_some() => Err(Errno::ENOTEMPTY),
            (true, true) => self.design.rmdir(&mut self.volume, at).map(|()| 0),
            (false, false) => self.design.remove(&mut self.volume, at).map(|()| 0),
        }
    }

    fn mkdir(&mut self, at: &FsPath) -> Result<u64, Errno> {
        let at = path(at)?;
        if self.tree()?.get(at).is_some() {
            return Err(Errno::EEXIST);
        }
        self.room_for_a_name()?;
        self.design.mkdir(&mut self.volume, at).map(|()| 0)
    }

    fn call(&mut self, op: &Op) -> Result<u64, Errno> {
        match op {
            Op::Open { slot, path, flags, .. } => self.open(*slot, path, *flags),
            Op::Close { slot } => {
                let at = self.open.remove(slot).ok_or(Errno::EBADF)?;
                self.design.close(&mut self.volume, at).map(|()| 0)
            }
            Op::Pwrite { slot, offset, data } => self.pwrite(*slot, *offset, &data.to_vec()),
            Op::Truncate { target: Target::Slot(slot), len } => self.truncate(*slot, *len),
            Op::Mkdir { path, .. } => self.mkdir(path),
            Op::Rmdir { path } => self.remove(path, true),
            Op::Unlink { path } => self.remove(path, false),
            Op::Rename { from, to, flags } if flags.is_empty() => self.rename(from, to),
            Op::Fsync { slot } | Op::Fdatasync { slot } => {
                let at = self.file(*slot)?;
                self.design.fsync(&mut self.volume, at).map(|()| 0)
            }
            Op::Sync => self.design.sync(&mut self.volume).map(|()| 0),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }
}

impl<D: Design + Clone + Send> Mounted for Mount<D> {
    fn apply(&mut self, op: &Op) -> Outcome {
        if let Op::Pread { slot, offset, len } = op {
            return self
                .pread(*slot, *offset, *len)
                .map_or_else(Outcome::err, |bytes| Outcome::data(&bytes));
        }
        self.call(op).map_or_else(Outcome::err, Outcome::ok)
    }

    fn observe(&mut self) -> fathom_core::Tree {
        let mut plain = PlainTree::new();
        match self.tree() {
            Err(errno) => plain.broken(FsPath::from("."), "readdir", errno),
            Ok(tree) => {
                for entry in tree.entries() {
                    match entry.len {
                        None => plain.dir(shown(entry.path)),
                        Some(len) => {
                            plain.file(shown(entry.path), &entry.blocks[..usize::from(len)]);
                        }
                    }
                }
            }
        }
        plain.finish()
    }

    fn position(&self) -> usize {
        self.volume.disk.position()
    }

    fn look_at_device(&self, look: &mut dyn FnMut(&Recorder)) {
        look(&self.volume.disk);
    }

    fn unmount(mut self: Box<Self>) -> (Outcome, Recorder) {
        let open = std::mem::take(&mut self.open).into_values();
        let closed = open.into_iter().try_for_each(|at| self.design.close(&mut self.volume, at));
        let answer = closed.and_then(|()| self.design.unmount(&mut self.volume));
        (answer.map_or_else(Outcome::err, |()| Outcome::ok(0)), self.volume.disk)
    }

    fn power_off(self: Box<Self>) -> Recorder {
        self.volume.disk
    }
}
