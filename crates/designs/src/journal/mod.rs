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

use std::fmt;
use std::str::FromStr;

use fathom_block::{Geometry, Level, Recorder};
use fathom_core::Errno;

use crate::volume::{Design, Invariant, Menu, Path, Promise, Tree};

/// Bytes of a block.
const BLOCK_BYTES: usize = 16;
/// Blocks of the journal.
const JOURNAL: usize = 40;
/// Blocks with a place of their own: bitmap, inodes, data.
const HOME: usize = 1 + INODE_BLOCKS + DATA;
const INODE_BLOCKS: usize = 4;
/// Data blocks.
const DATA: usize = 16;
/// Inodes; number 0 is the root.
const INODES: usize = 8;
/// The first data block among the home blocks.
const FIRST_DATA: usize = 1 + INODE_BLOCKS;

/// A precaution that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// No flush between the data and the commit.
    NoBarrier,
    /// The checksum of a commit is not looked at.
    NoChecksum,
    /// Freed metadata is not revoked.
    NoRevoke,
}

impl Switch {
    /// All of them.
    pub const ALL: [Switch; 3] = [Switch::NoBarrier, Switch::NoChecksum, Switch::NoRevoke];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Switch::NoBarrier => "no-barrier",
            Switch::NoChecksum => "no-checksum",
            Switch::NoRevoke => "no-revoke",
        }
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Switch {
    type Err = ();

    fn from_str(text: &str) -> Result<Switch, ()> {
        Switch::ALL.into_iter().find(|switch| switch.name() == text).ok_or(())
    }
}

/// The design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Journal {
    /// What is left out; empty: the design as it should be.
    pub without: Vec<Switch>,
    /// What workloads contain.
    pub menu: Menu,
}

impl Default for Journal {
    fn default() -> Journal {
        // Ordered mode does not protect overwritten data (ext4(5)): files are only extended.
        let menu = Menu { entries_max: 3, dirs_deep_max: 1, write_blocks: 1, overwrite: false };
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

/// What a mounted volume holds in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The home blocks as they should be.
    home: [[u8; BLOCK_BYTES]; HOME],
    /// Metadata that the running transaction changed.
    dirty: Blocks,
    /// Data that the running transaction wrote.
    data: Blocks,
    /// What it freed.
    freed: Blocks,
    /// What it freed and was metadata.
    revoked: Blocks,
    /// Committed, but not yet written to its place.
    journaled: Blocks,
    /// Where the next transaction goes.
    head: usize,
    /// Its number.
    sequence: u8,
}

impl Design for Journal {
    type Memory = Memory;

    fn name(&self) -> &'static str {
        "journal"
    }

    fn geometry(&self) -> Geometry {
        Geometry {
            read_bytes: BLOCK_BYTES,
            write_bytes: BLOCK_BYTES,
            erase_bytes: BLOCK_BYTES,
            atomic_bytes: BLOCK_BYTES,
            ..Geometry::disk((1 + JOURNAL + HOME) * BLOCK_BYTES)
        }
    }

    fn promise(&self) -> Promise {
        Promise { level: Level::Epoch, fsync_is_sync: true }
    }

    fn menu(&self) -> Menu {
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

    fn read(&self, memory: &Memory, _: &Recorder) -> Result<Tree, Errno> {
        memory.read()
    }

    fn create(
        &self,
        memory: &mut Memory,
        _: &mut Recorder,
        path: Path,
        is_dir: bool,
    ) -> Result<(), Errno> {
        memory.create(path, is_dir)
    }

    fn write(
        &self,
        memory: &mut Memory,
        _: &mut Recorder,
        path: Path,
        place: u8,
        contents: &[u8],
    ) -> Result<(), Errno> {
        memory.extend(path, place, contents)
    }

    fn truncate(&self, memory: &mut Memory, _: &mut Recorder, path: Path) -> Result<(), Errno> {
        memory.truncate(path)
    }

    fn remove(&self, memory: &mut Memory, _: &mut Recorder, path: Path) -> Result<(), Errno> {
        memory.remove(path)
    }

    fn rename(
        &self,
        memory: &mut Memory,
        _: &mut Recorder,
        from: Path,
        to: Path,
    ) -> Result<(), Errno> {
        memory.rename(from, to)
    }

    fn fsync(&self, memory: &mut Memory, disk: &mut Recorder, _: Path) -> Result<(), Errno> {
        self.commit(memory, disk);
        Ok(())
    }

    fn sync(&self, memory: &mut Memory, disk: &mut Recorder) -> Result<(), Errno> {
        self.commit(memory, disk);
        Ok(())
    }
}
