//! A journaling design (ext4-like, ordered mode).
//!
//! | place | what |
//! |---|---|
//! | block 0 | journal superblock: the sequence number of the first transaction to replay |
//! | 40 blocks | the journal: descriptor, revoke record, copies of metadata, commit with checksum |
//! | 1 block | bitmap of data blocks |
//! | 4 blocks | inodes, two in each: kind, length, four blocks |
//! | 16 blocks | data of files, and the entries of directories (metadata, so journaled) |
//!
//! Operations change memory. A commit (sync, fsync, unmount) writes the new data to its place,
//! flushes, writes descriptor, revoke record, copies and commit block in one go, and flushes: that
//! the commit block may arrive before the rest is what the checksum is for (journal_async_commit,
//! ext4(5)). When the journal is nearly full the copies are written to their places, and the journal
//! is empty again. Mounting replays what has a complete commit.
//!
//! Freed blocks are not reused before the commit; a freed directory block is revoked, so that an old
//! copy of it in the journal is not replayed over the data that it holds by then (jbd2,
//! `fs/jbd2/revoke.c`).
//!
//! Each [`Switch`] removes one of these precautions.

mod check;
mod commit;
mod operation;
mod tell;

use fathom_block::{Geometry, Level, Recorder};
use fathom_core::Errno;

use crate::volume::{
    Design, Invariant, OperationSet, Path, Promise, Tree, Variant, Volume, device,
};

/// Bytes of a block.
const BLOCK_BYTES: usize = 16;
/// Blocks of the journal.
const JOURNAL: usize = 40;
/// Blocks with a place of their own: bitmap, inodes, data.
const HOME: usize = 1 + INODE_BLOCKS + DATA;
const INODE_BLOCKS: usize = 4;
/// Number of data blocks.
const DATA: usize = 16;
/// Number of inodes; number 0 is the root.
const INODES: usize = 8;
/// Greatest number of files and directories: the inodes beside the root.
pub const ENTRIES_MAX: usize = INODES - 1;
/// The first data block among the home blocks.
const FIRST_DATA: usize = 1 + INODE_BLOCKS;

/// A precaution that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// There is no flush between the data and the commit.
    NoBarrier,
    /// The checksum of a commit is not checked.
    NoChecksum,
    /// Freed metadata is not revoked.
    NoRevoke,
}

impl Variant for Switch {
    const ALL: &'static [Switch] = &[Switch::NoBarrier, Switch::NoChecksum, Switch::NoRevoke];

    fn name(self) -> &'static str {
        match self {
            Switch::NoBarrier => "no-barrier",
            Switch::NoChecksum => "no-checksum",
            Switch::NoRevoke => "no-revoke",
        }
    }
}

/// The journaling design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// Precautions that are left out; none in the design as it should be.
    pub without: Vec<Switch>,
    /// Operations that workloads contain.
    pub menu: OperationSet,
}

impl Default for Journal {
    fn default() -> Journal {
        // Ordered mode does not protect overwritten data (ext4(5)): files are only extended.
        let menu = OperationSet { overwrite: false, ..OperationSet::default() };
        Journal { without: Vec::new(), menu }
    }
}

impl Journal {
    fn has(&self, switch: Switch) -> bool {
        !self.without.contains(&switch)
    }
}

/// A set of home blocks.
type Blocks = u32;

/// The memory of a mounted volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The home blocks as they should be.
    home: [[u8; BLOCK_BYTES]; HOME],
    /// Metadata that the running transaction changed.
    dirty: Blocks,
    /// Data that the running transaction wrote.
    data: Blocks,
    /// Blocks that it freed.
    freed: Blocks,
    /// Blocks that it freed and that were metadata.
    revoked: Blocks,
    /// Metadata that was committed, but not yet written to its place.
    journaled: Blocks,
    /// The place of the next transaction in the journal.
    head: usize,
    /// The sequence number of the next transaction.
    sequence: u8,
}

impl Design for Journal {
    type Memory = Memory;

    fn name(&self) -> &'static str {
        "journal"
    }

    fn geometry(&self) -> Geometry {
        device(1 + JOURNAL + HOME, BLOCK_BYTES)
    }

    fn promise(&self) -> Promise {
        Promise { level: Level::Epoch, fsync_is_sync: true }
    }

    fn menu(&self) -> OperationSet {
        self.menu
    }

    fn invariants(&self) -> &'static [Invariant<Journal>] {
        check::INVARIANTS
    }

    fn mkfs(&self, disk: &mut Recorder) {
        let mut memory = Memory::blank();
        memory.make_root();
        for block in 0..HOME {
            memory.write_home(disk, block);
        }
        commit::write_superblock(disk, memory.sequence);
    }

    fn mount(&self, disk: &mut Recorder) -> Result<Memory, Errno> {
        self.recover(disk)
    }

    fn tree(&self, on: &Volume<Memory>) -> Result<Tree, Errno> {
        on.memory.tree()
    }

    fn create(&self, on: &mut Volume<Memory>, path: Path) -> Result<(), Errno> {
        on.memory.create(path, false)
    }

    fn mkdir(&self, on: &mut Volume<Memory>, path: Path) -> Result<(), Errno> {
        on.memory.create(path, true)
    }

    fn write(
        &self,
        on: &mut Volume<Memory>,
        path: Path,
        place: u8,
        contents: &[u8],
    ) -> Result<(), Errno> {
        on.memory.write(path, place, contents)
    }

    fn truncate(&self, on: &mut Volume<Memory>, path: Path, blocks: u8) -> Result<(), Errno> {
        on.memory.truncate(path, blocks)
    }

    fn remove(&self, on: &mut Volume<Memory>, path: Path) -> Result<(), Errno> {
        on.memory.remove(path)
    }

    fn rename(&self, on: &mut Volume<Memory>, from: Path, to: Path) -> Result<(), Errno> {
        on.memory.rename(from, to)
    }

    fn sync(&self, on: &mut Volume<Memory>) -> Result<(), Errno> {
        self.commit(&mut on.memory, &mut on.disk);
        Ok(())
    }

    fn label(&self, block: usize) -> String {
        tell::label(block)
    }

    fn holds(&self, block: usize, bytes: &[u8]) -> String {
        tell::holds(block, bytes)
    }
}
