//! What a mounted volume holds in memory: all of its metadata, and how to change it.

use fathom_block::Recorder;

use super::layout::{Block, main_block, write};
use super::layout::{FOUR, Kind, MAIN, NODES, NONE, Node, ROOT, SEGMENTS, UNWRITTEN, Written};
use super::{Logfs, Switch};

/// The logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Log {
    Nodes,
    Dentries,
    Data,
}

pub(super) const LOGS: usize = 3;

/// The end of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) segment: u8,
    /// The next block of it, below [`FOUR`].
    pub(super) next: u8,
}

impl Head {
    pub(super) fn address(self) -> u8 {
        self.segment * FOUR as u8 + self.next
    }
}

/// A place that is not one of a node's blocks: the node itself.
pub(super) const ITSELF: u8 = 0xff;

/// What a mounted volume holds in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The block of each node, [`NONE`] or [`UNWRITTEN`].
    pub(super) nat: [u8; NODES],
    pub(super) nodes: [Node; NODES],
    /// Nodes that differ from what is written.
    pub(super) dirty: u16,
    /// Nodes that the last checkpoint does not know.
    pub(super) young: u16,
    /// Valid blocks of each segment.
    pub(super) sit: [u8; SEGMENTS],
    /// Node and place of each block (SSA).
    pub(super) owner: [(u8, u8); MAIN],
    pub(super) heads: [Head; LOGS],
    /// Free segments; the next one to be used is the last.
    pub(super) free: [u8; SEGMENTS],
    pub(super) free_count: usize,
    /// Segments that became empty since the last checkpoint.
    pub(super) held: u16,
    /// The last checkpoint.
    pub(super) version: u8,
    /// Which copy of each NAT and SIT block is valid.
    pub(super) nat_copy: u8,
    pub(super) sit_copy: u8,
    /// Blocks that the next checkpoint has to write.
    pub(super) nat_dirty: u8,
    pub(super) sit_dirty: u8,
    pub(super) ssa_dirty: u16,
}

impl Memory {
    /// No node, every segment free but the three that the logs begin with.
    pub(super) fn blank() -> Memory {
        let mut memory = Memory {
            nat: [NONE; NODES],
            nodes: [Node::new(Kind::Free); NODES],
            dirty: 0,
            young: 0,
            sit: [0; SEGMENTS],
            owner: [(0, 0); MAIN],
            heads: std::array::from_fn(|log| Head { segment: log as u8, next: 0 }),
            free: [0; SEGMENTS],
            free_count: 0,
            held: 0,
            version: 0,
            nat_copy: 0,
            sit_copy: 0,
            nat_dirty: 0xf,
            sit_dirty: 0xf,
            ssa_dirty: 0,
        };
        memory.list_free_segments();
        memory
    }

    pub(super) fn make_root(&mut self) {
        self.nat[usize::from(ROOT)] = UNWRITTEN;
        *self.change(ROOT) = Node::new(Kind::Dir);
    }

    pub(super) fn node(&self, nid: u8) -> &Node {
        &self.nodes[usize::from(nid) % NODES]
    }

    pub(super) fn change(&mut self, nid: u8) -> &mut Node {
        self.dirty |= 1 << nid;
        &mut self.nodes[usize::from(nid)]
    }

    fn is_head(&self, segment: usize) -> bool {
        self.heads.iter().any(|head| usize::from(head.segment) == segment)
    }

    /// Finds the free segments again: the lowest is used first.
    pub(super) fn list_free_segments(&mut self) {
        self.free_count = 0;
        for segment in (0..SEGMENTS).rev() {
            if self.sit[segment] == 0 && !self.is_head(segment) {
                self.free[self.free_count] = segment as u8;
                self.free_count += 1;
            }
        }
    }

    pub(super) fn take_segment(&mut self) -> u8 {
        self.free_count = self.free_count.checked_sub(1).expect("room was made before");
        self.free[self.free_count]
    }

    fn release(&mut self, segment: u8, fifo: bool) {
        let place = if fifo { 0 } else { self.free_count };
        self.free.copy_within(place..self.free_count, place + 1);
        self.free[place] = segment;
        self.free_count += 1;
    }

    /// A new node number.
    pub(super) fn allocate_node(&mut self, kind: Kind) -> Option<u8> {
        let nid = (usize::from(ROOT)..NODES).find(|nid| self.nat[*nid] == NONE)?;
        self.nat[nid] = UNWRITTEN;
        self.nat_dirty |= 1 << (nid / FOUR);
        self.young |= 1 << nid;
        *self.change(nid as u8) = Node::new(kind);
        Some(nid as u8)
    }
}

impl Logfs {
    /// Appends a block to a log; returns where it is.
    pub(super) fn append(
        &self,
        memory: &mut Memory,
        disk: &mut Recorder,
        log: Log,
        owner: (u8, u8),
        content: impl FnOnce(u8) -> Block,
    ) -> u8 {
        let log = if log == Log::Dentries && self.has(Switch::OneLog) { Log::Data } else { log };
        let head = memory.heads[log as usize];
        let address = head.address();
        let segment = usize::from(head.segment);
        memory.sit[segment] |= 1 << head.next;
        memory.sit_dirty |= 1 << (segment / FOUR);
        memory.ssa_dirty |= 1 << segment;
        memory.owner[usize::from(address)] = owner;
        memory.heads[log as usize] = match usize::from(head.next) + 1 {
            FOUR => Head { segment: memory.take_segment(), next: 0 },
            next => Head { next: next as u8, ..head },
        };
        let next = memory.heads[log as usize].address();
        write(disk, main_block(address), &content(next));
        address
    }

    /// A block is not needed any more.
    pub(super) fn invalidate(&self, memory: &mut Memory, address: u8) {
        if usize::from(address) >= MAIN {
            return;
        }
        let (segment, place) = (usize::from(address) / FOUR, usize::from(address) % FOUR);
        memory.sit[segment] &= !(1 << place);
        memory.sit_dirty |= 1 << (segment / FOUR);
        if memory.sit[segment] == 0 && !memory.is_head(segment) {
            match self.has(Switch::ReuseEarly) {
                true => memory.release(segment as u8, self.has(Switch::Fifo)),
                false => memory.held |= 1 << segment,
            }
        }
    }

    /// After a checkpoint nothing refers to what became empty before it.
    pub(super) fn release_held(&self, memory: &mut Memory) {
        let held = std::mem::take(&mut memory.held);
        for segment in (0..SEGMENTS as u8).filter(|segment| held & (1 << segment) != 0) {
            memory.release(segment, self.has(Switch::Fifo));
        }
    }

    /// Writes a node to the end of its log.
    pub(super) fn write_node(
        &self,
        memory: &mut Memory,
        disk: &mut Recorder,
        nid: u8,
        fsync: bool,
    ) {
        let (node, version) = (*memory.node(nid), memory.version);
        let encode = |next| Written { nid, node, fsync, version, next }.encode();
        let address = self.append(memory, disk, Log::Nodes, (nid, ITSELF), encode);
        let old = std::mem::replace(&mut memory.nat[usize::from(nid)], address);
        memory.nat_dirty |= 1 << (usize::from(nid) / FOUR);
        memory.dirty &= !(1 << nid);
        self.invalidate(memory, old);
    }

    /// Frees a node and its block.
    pub(super) fn free_node(&self, memory: &mut Memory, nid: u8) {
        let old = std::mem::replace(&mut memory.nat[usize::from(nid)], NONE);
        memory.nat_dirty |= 1 << (usize::from(nid) / FOUR);
        memory.nodes[usize::from(nid)] = Node::new(Kind::Free);
        memory.dirty &= !(1 << nid);
        memory.young &= !(1 << nid);
        self.invalidate(memory, old);
    }
}
