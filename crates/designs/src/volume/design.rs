//! The interface that a designer implements.

use fathom_block::{Geometry, Image, Level, Recorder};
use fathom_core::Errno;

use super::call::OperationSet;
use super::shadow::{Path, Tree};

/// A condition on the metadata of a mounted volume.
#[derive(Debug)]
pub struct Invariant<D: Design> {
    /// Its name in reports.
    pub name: &'static str,
    /// Checks the condition; the error says what is wrong, with the blocks involved.
    pub check: fn(&D, &D::Memory, &Recorder) -> Result<(), String>,
}

/// The promise of a design about power failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The power failures it claims to survive.
    pub level: Level,
    /// Whether `fsync` makes everything durable, or only the contents of the file (which must have
    /// been durable by name before).
    pub fsync_is_sync: bool,
}

/// A mounted volume: a block image with the log of its changes, and what the design holds in memory.
/// It is cloned with every state.
#[derive(Clone, Debug)]
pub struct Volume<M> {
    /// The device; it records every write.
    pub disk: Recorder,
    /// The memory of the design, which a power failure forgets.
    pub memory: M,
}

/// An on-disk design: a value that knows how to make, mount and use volumes. The interface is that of
/// MC³ (its table 5.1): POSIX without descriptors, offsets are explicit and count blocks. What a
/// mounted volume holds in memory is its [`Memory`](Design::Memory): no pointers, no sharing.
///
/// Paths come from a workload that makes sense: what is created does not exist, what is removed does,
/// a directory that is removed is empty. A call that finds no room answers `ENOSPC` and must have
/// changed nothing; any other error is a violation.
pub trait Design: Sync + Sized + 'static {
    /// The memory of a mounted volume.
    type Memory: Clone + Send + Sync;

    /// The name on the command line.
    fn name(&self) -> &'static str;

    /// The shape of the device; `write_bytes` is its block.
    fn geometry(&self) -> Geometry;

    /// The promise about power failures.
    fn promise(&self) -> Promise;

    /// The operations that workloads may contain.
    fn menu(&self) -> OperationSet;

    /// The conditions that hold for every mounted volume.
    fn invariants(&self) -> &'static [Invariant<Self>];

    /// Makes an empty volume.
    fn mkfs(&self, disk: &mut Recorder);

    /// Mounts, with whatever recovery is needed.
    ///
    /// # Errors
    /// If there is no volume that could be mounted.
    fn mount(&self, disk: &mut Recorder) -> Result<Self::Memory, Errno>;

    /// Unmounts: by default, makes everything durable.
    ///
    /// # Errors
    /// For the reasons of [`sync`](Design::sync).
    fn unmount(&self, on: &mut Volume<Self::Memory>) -> Result<(), Errno> {
        self.sync(on)
    }

    /// Forgets what is in memory, as a power failure does, and mounts what a device then holds.
    ///
    /// # Errors
    /// For the reasons of [`mount`](Design::mount).
    fn reset(&self, left: &Image) -> Result<Volume<Self::Memory>, Errno> {
        let mut disk = Recorder::new(left.clone(), self.geometry()).map_err(|_| Errno::ENXIO)?;
        let memory = self.mount(&mut disk)?;
        Ok(Volume { disk, memory })
    }

    /// Checks what [`mount`](Design::mount) has made of a volume; a design whose recovery is an
    /// offline checker repairs there. By default all invariants, and that everything can be read.
    ///
    /// # Errors
    /// Each complaint: the property and what is wrong.
    fn fsck(&self, on: &Volume<Self::Memory>) -> Result<(), Vec<(&'static str, String)>> {
        let check = |invariant: &Invariant<Self>| {
            let found = (invariant.check)(self, &on.memory, &on.disk);
            found.err().map(|what| (invariant.name, what))
        };
        let mut complaints: Vec<_> = self.invariants().iter().filter_map(check).collect();
        if let Err(error) = self.tree(on) {
            complaints.push(("everything can be read", error.to_string()));
        }
        if complaints.is_empty() { Ok(()) } else { Err(complaints) }
    }

    /// Reads everything that is visible: the names of all directories, the contents of all files.
    ///
    /// # Errors
    /// If something cannot be read.
    fn tree(&self, on: &Volume<Self::Memory>) -> Result<Tree, Errno>;

    /// The set of blocks of the device that mounting, the invariants and [`tree`](Design::tree)
    /// have read so far: numbers below 128, or none if the design does not keep count. If a power
    /// failure leaves a device that differs only in other blocks, everything is as it was found the
    /// last time, and the explorer does not check again.
    fn looked_at(&self, _: &Volume<Self::Memory>) -> Option<u128> {
        None
    }

    /// Makes an empty file.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room.
    fn create(&self, on: &mut Volume<Self::Memory>, path: Path) -> Result<(), Errno>;

    /// Makes a directory.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room.
    fn mkdir(&self, on: &mut Volume<Self::Memory>, path: Path) -> Result<(), Errno>;

    /// Opens a file; returns its number of blocks. A workload opens and closes files if the
    /// [menu](Design::menu) says so; a new file is open.
    ///
    /// # Errors
    /// `ENOENT` if it is not there, `EISDIR` if it is a directory.
    fn open(&self, on: &mut Volume<Self::Memory>, path: Path) -> Result<usize, Errno> {
        let tree = self.tree(on)?;
        let len = tree.get(path).ok_or(Errno::ENOENT)?.len;
        len.map(usize::from).ok_or(Errno::EISDIR)
    }

    /// Closes an open file; unmounting closes all of them.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room for what it writes.
    fn close(&self, _: &mut Volume<Self::Memory>, _: Path) -> Result<(), Errno> {
        Ok(())
    }

    /// Reads blocks of a file, as many as there are.
    ///
    /// # Errors
    /// `ENOENT` or `EISDIR` as [`open`](Design::open), or if the blocks cannot be read.
    fn read(
        &self,
        on: &Volume<Self::Memory>,
        path: Path,
        place: u8,
        blocks: u8,
    ) -> Result<Vec<u8>, Errno> {
        let tree = self.tree(on)?;
        let entry = tree.get(path).ok_or(Errno::ENOENT)?;
        let len = entry.len.map(usize::from).ok_or(Errno::EISDIR)?;
        let (from, to) = (usize::from(place).min(len), usize::from(place + blocks).min(len));
        Ok(entry.blocks[from..to].to_vec())
    }

    /// Writes consecutive blocks of a file, the first at `place`, which is at most its length.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room.
    fn write(
        &self,
        on: &mut Volume<Self::Memory>,
        path: Path,
        place: u8,
        contents: &[u8],
    ) -> Result<(), Errno>;

    /// Cuts a file to at most `blocks` blocks.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room for the change itself.
    fn truncate(&self, on: &mut Volume<Self::Memory>, path: Path, blocks: u8) -> Result<(), Errno>;

    /// Removes a file.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room for the change itself.
    fn remove(&self, on: &mut Volume<Self::Memory>, path: Path) -> Result<(), Errno>;

    /// Removes an empty directory: by default, like a file.
    ///
    /// # Errors
    /// For the reasons of [`remove`](Design::remove).
    fn rmdir(&self, on: &mut Volume<Self::Memory>, path: Path) -> Result<(), Errno> {
        self.remove(on, path)
    }

    /// Moves or renames; the new name does not exist.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room for the change itself.
    fn rename(&self, on: &mut Volume<Self::Memory>, from: Path, to: Path) -> Result<(), Errno>;

    /// Makes a file durable: by default, makes everything durable.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room for that.
    fn fsync(&self, on: &mut Volume<Self::Memory>, _path: Path) -> Result<(), Errno> {
        self.sync(on)
    }

    /// Makes everything durable.
    ///
    /// # Errors
    /// `ENOSPC` if there is no room for that.
    fn sync(&self, on: &mut Volume<Self::Memory>) -> Result<(), Errno>;

    /// Names the purpose of a block of the device in a word or two: drawings and stories use it.
    fn label(&self, block: usize) -> String {
        format!("block {block}")
    }

    /// Describes the contents of a block in a few words: by default its bytes up to the last that
    /// is not 0.
    fn holds(&self, _block: usize, bytes: &[u8]) -> String {
        hex(bytes)
    }
}

/// Shows bytes in hexadecimal, up to the last that is not 0.
pub fn hex(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let digits: Vec<String> = bytes[..end].iter().map(|byte| format!("{byte:02x}")).collect();
    if digits.is_empty() { "zeros".to_owned() } else { digits.join(" ") }
}

/// Makes a device of `blocks` small blocks, each of which is written whole or not at all.
pub fn device(blocks: usize, block_bytes: usize) -> Geometry {
    Geometry {
        read_bytes: block_bytes,
        write_bytes: block_bytes,
        erase_bytes: block_bytes,
        atomic_bytes: block_bytes,
        ..Geometry::disk(blocks * block_bytes)
    }
}

/// A precaution that a design can leave out, or a variant of it, by the name on the command line.
pub trait Variant: Copy + Eq + 'static {
    /// All variants.
    const ALL: &'static [Self];

    /// The name on the command line.
    fn name(self) -> &'static str;

    /// Finds the variant of that name.
    fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|switch| switch.name() == name)
    }
}
