//! A log-structured design (F2FS-like).
//!
//! Nothing is overwritten: new data, directory blocks and nodes go to the ends of logs, and the
//! segments that become empty are used again. The geometry is that of the study of MC³ (four of
//! everything), on 16 segments.
//!
//! | area | blocks | what |
//! |---|---|---|
//! | checkpoints | 2 × 4 | version; which copies are valid, where the logs end; journals; version again |
//! | NAT | 2 × 4 | node → block, four per block, two copies |
//! | SIT | 2 × 4 | segment → valid blocks, four per block, two copies |
//! | SSA | 16 | block → node and entry, one segment per block |
//! | main | 16 × 4 | three logs: nodes, directory blocks, file data |
//!
//! An inode has four entries: two blocks, an index node (four blocks more), an indirect node (four
//! index nodes more). Nodes stay in memory until the file is closed, an fsync or a checkpoint; data and
//! directory blocks are written at once. A checkpoint writes the dirty nodes and then the older of the
//! two checkpoints, which counts if both of its versions agree. It has room for four changed entries of
//! NAT and of SIT in its journals; if there are more, the changed blocks of the table are written
//! first, to the copies that are not in use. An fsync writes only the nodes of the file, the inode
//! last and with a mark: mounting rolls forward along the chain of nodes written since the checkpoint.
//! When space is short, the segment with the fewest valid blocks is emptied.
//!
//! A segment that became empty since the last checkpoint is still needed if the power fails: it is
//! used again only after the next one. [`Switch::ReuseEarly`] leaves that out, as the model of the
//! study does: the flaw that it found.

mod check;
mod checkpoint;
mod collect;
mod forward;
mod layout;
mod memory;
mod operation;
mod read_set;
mod repair;

use fathom_block::{Geometry, Level, Recorder};
use fathom_core::Errno;

use crate::volume::{
    Design, Invariant, OperationSet, Path, Promise, Tree, Variant, Volume, device,
};
use layout::{BLOCK_BYTES, BLOCKS, Kind};
pub use memory::Memory;

/// A variant of the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// A segment that became empty is free at once, not after the next checkpoint.
    ReuseEarly,
    /// Free segments are used in the order in which they became free, not the newest first.
    Fifo,
    /// NAT and SIT have one copy each: what the journals have no room for is written in place.
    NoVersions,
    /// Directory blocks and file data share one log.
    OneLog,
    /// An fsync writes nothing if all nodes of the file are written, even without its mark.
    SkipWritten,
}

impl Variant for Switch {
    const ALL: &'static [Switch] = &[
        Switch::ReuseEarly,
        Switch::Fifo,
        Switch::NoVersions,
        Switch::OneLog,
        Switch::SkipWritten,
    ];

    fn name(self) -> &'static str {
        match self {
            Switch::ReuseEarly => "reuse-early",
            Switch::Fifo => "fifo",
            Switch::NoVersions => "no-versions",
            Switch::OneLog => "one-log",
            Switch::SkipWritten => "skip-written",
        }
    }
}

/// The log-structured design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Logfs {
    /// Variants that are switched on.
    pub switches: Vec<Switch>,
    /// Operations that workloads contain.
    pub menu: OperationSet,
}

impl Default for Logfs {
    fn default() -> Logfs {
        let menu = OperationSet {
            entries_max: 4,
            dirs_deep_max: 2,
            write_blocks: 4,
            overwrite: true,
            opens: true,
        };
        Logfs { switches: Vec::new(), menu }
    }
}

impl Logfs {
    fn has(&self, switch: Switch) -> bool {
        self.switches.contains(&switch)
    }
}

impl Design for Logfs {
    type Memory = Memory;

    fn name(&self) -> &'static str {
        "log"
    }

    fn geometry(&self) -> Geometry {
        device(BLOCKS, BLOCK_BYTES)
    }

    fn promise(&self) -> Promise {
        // Logs are written in order: a power failure leaves a beginning of what was written.
        Promise { level: Level::Linear, fsync_is_sync: false }
    }

    fn menu(&self) -> OperationSet {
        self.menu
    }

    fn label(&self, block: usize) -> String {
        layout::label(block)
    }

    fn holds(&self, block: usize, bytes: &[u8]) -> String {
        layout::holds(block, bytes)
    }

    fn invariants(&self) -> &'static [Invariant<Logfs>] {
        check::INVARIANTS
    }

    fn mkfs(&self, disk: &mut Recorder) {
        let mut memory = Memory::blank();
        memory.list_free_segments();
        memory.make_root();
        self.checkpoint(&mut memory, disk);
        self.checkpoint(&mut memory, disk);
    }

    fn mount(&self, disk: &mut Recorder) -> Result<Memory, Errno> {
        self.load(disk)
    }

    fn tree(&self, on: &Volume<Memory>) -> Result<Tree, Errno> {
        operation::read(&on.memory, &on.disk)
    }

    fn looked_at(&self, on: &Volume<Memory>) -> Option<u128> {
        Some(on.memory.looked.blocks())
    }

    fn create(&self, on: &mut Volume<Memory>, path: Path) -> Result<(), Errno> {
        self.make_room(&mut on.memory, &mut on.disk)?;
        self.create_node(&mut on.memory, &mut on.disk, path, false)
    }

    fn mkdir(&self, on: &mut Volume<Memory>, path: Path) -> Result<(), Errno> {
        self.make_room(&mut on.memory, &mut on.disk)?;
        self.create_node(&mut on.memory, &mut on.disk, path, true)
    }

    fn write(
        &self,
        on: &mut Volume<Memory>,
        path: Path,
        place: u8,
        contents: &[u8],
    ) -> Result<(), Errno> {
        self.make_room(&mut on.memory, &mut on.disk)?;
        self.write_file(&mut on.memory, &mut on.disk, path, place, contents)
    }

    fn open(&self, on: &mut Volume<Memory>, path: Path) -> Result<usize, Errno> {
        let inode = operation::find(&on.memory, &on.disk, path)?;
        if on.memory.node(inode).kind != Kind::File {
            return Err(Errno::EISDIR);
        }
        on.memory.open |= 1 << inode;
        Ok(on.memory.node(inode).len.into())
    }

    fn close(&self, on: &mut Volume<Memory>, path: Path) -> Result<(), Errno> {
        let Volume { disk, memory } = on;
        self.make_room(memory, disk)?;
        let inode = operation::find(memory, disk, path)?;
        memory.open &= !(1 << inode);
        self.write_children(memory, disk, inode);
        if memory.dirty & (1 << inode) != 0 {
            self.write_node(memory, disk, inode, false);
        }
        Ok(())
    }

    fn truncate(&self, on: &mut Volume<Memory>, path: Path, blocks: u8) -> Result<(), Errno> {
        let nid = operation::find(&on.memory, &on.disk, path)?;
        self.cut(&mut on.memory, nid, blocks.into());
        Ok(())
    }

    fn remove(&self, on: &mut Volume<Memory>, path: Path) -> Result<(), Errno> {
        self.make_room(&mut on.memory, &mut on.disk)?;
        self.remove_node(&mut on.memory, &mut on.disk, path)
    }

    fn rename(&self, on: &mut Volume<Memory>, from: Path, to: Path) -> Result<(), Errno> {
        let Volume { disk, memory } = on;
        self.make_room(memory, disk)?;
        let nid = operation::find(memory, disk, from)?;
        self.unlink(memory, disk, from)?;
        self.link(memory, disk, to, nid)
    }

    fn fsync(&self, on: &mut Volume<Memory>, path: Path) -> Result<(), Errno> {
        self.make_room(&mut on.memory, &mut on.disk)?;
        let nid = operation::find(&on.memory, &on.disk, path)?;
        self.fsync_node(&mut on.memory, &mut on.disk, nid);
        Ok(())
    }

    fn sync(&self, on: &mut Volume<Memory>) -> Result<(), Errno> {
        self.make_room(&mut on.memory, &mut on.disk)?;
        self.checkpoint(&mut on.memory, &mut on.disk);
        Ok(())
    }
}
