//! The memory of a mounted volume: all of its metadata, and how to change it.

use fathom_block::Recorder;

use super::layout::{
    BLOCK_BYTES, Block, DIRECT, FOUR, INDEX, INDIRECT, Kind, MAIN, NODES, NONE, Node, ROOT,
    SEGMENTS, UNWRITTEN, Written, main_block, write,
};
use super::read_set::ReadSet;
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

/// The place of a node itself, which is not one of its blocks.
pub(super) const ITSELF: u8 = 0xff;

/// A set of node numbers or of segments.
pub(super) type Set = u16;

/// The members of a set, in ascending order.
pub(super) fn members(mut set: Set) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let member = (set != 0).then_some(set.trailing_zeros() as u8)?;
        set &= set - 1;
        Some(member)
    })
}

/// The memory of a mounted volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The block of each node, [`NONE`] or [`UNWRITTEN`].
    pub(super) nat: [u8; NODES],
    pub(super) nodes: [Node; NODES],
    /// Nodes that differ from what is written.
    pub(super) dirty: Set,
    /// Nodes that the last checkpoint does not know.
    pub(super) young: Set,
    /// Nodes that were written since the last checkpoint, but not yet followed by an inode with the
    /// mark of an fsync.
    pub(super) unmarked: Set,
    /// Files that are open.
    pub(super) open: Set,
    /// Valid blocks of each segment.
    pub(super) sit: [u8; SEGMENTS],
    /// Node and entry of each block (SSA).
    pub(super) owner: [(u8, u8); MAIN],
    pub(super) heads: [Head; LOGS],
    /// Free segments; the next one to be used is the last.
    pub(super) free: [u8; SEGMENTS],
    pub(super) free_count: usize,
    /// Segments that became empty since the last checkpoint.
    pub(super) held: Set,
    /// The version of the last checkpoint.
    pub(super) version: u8,
    /// One bit for each NAT and SIT block: the copy that is valid.
    pub(super) nat_copy: u8,
    pub(super) sit_copy: u8,
    /// Entries of NAT, SIT and SSA that differ from the last checkpoint.
    pub(super) nat_dirty: Set,
    pub(super) sit_dirty: Set,
    pub(super) ssa_dirty: Set,
    /// Entries that the last checkpoint has in its journals instead of the blocks of NAT and SIT.
    pub(super) nat_journal: Set,
    pub(super) sit_journal: Set,
    /// Blocks of the device that were read since the volume was mounted.
    pub(super) looked: ReadSet,
}

impl Memory {
    /// The memory of a volume without nodes: every segment is empty, and the logs begin in three of
    /// them. The free segments are still to be listed.
    pub(super) fn blank() -> Memory {
        Memory {
            nat: [NONE; NODES],
            nodes: [Node::FREE; NODES],
            dirty: 0,
            young: 0,
            unmarked: 0,
            open: 0,
            sit: [0; SEGMENTS],
            owner: [(0, 0); MAIN],
            heads: std::array::from_fn(|log| Head { segment: log as u8, next: 0 }),
            free: [0; SEGMENTS],
            free_count: 0,
            held: 0,
            version: 0,
            nat_copy: 0,
            sit_copy: 0,
            nat_dirty: Set::MAX,
            sit_dirty: Set::MAX,
            ssa_dirty: 0,
            nat_journal: 0,
            sit_journal: 0,
            looked: ReadSet::default(),
        }
    }

    /// Reads a block of the device.
    #[inline]
    pub(super) fn read(&self, disk: &Recorder, block: usize) -> Block {
        self.looked.note(block);
        let bytes = disk.image().slice(block * BLOCK_BYTES, BLOCK_BYTES);
        bytes.and_then(|bytes| bytes.try_into().ok()).expect("leaves hold whole blocks")
    }

    pub(super) fn make_root(&mut self) {
        self.nat[usize::from(ROOT)] = UNWRITTEN;
        *self.change(ROOT) = Node::new(Kind::Dir, ROOT);
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

    /// Finds the free segments: the lowest is used first.
    pub(super) fn list_free_segments(&mut self) {
        let heads: Set = self.heads.iter().fold(0, |set, head| set | 1 << head.segment);
        self.free_count = 0;
        for segment in (0..SEGMENTS).rev() {
            if self.sit[segment] == 0 && heads & (1 << segment) == 0 {
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

    /// Whether a block of the main area is valid.
    pub(super) fn is_valid(&self, address: u8) -> bool {
        self.sit[usize::from(address) / FOUR] & (1 << (usize::from(address) % FOUR)) != 0
    }

    /// Marks a block of the main area as valid.
    pub(super) fn validate(&mut self, address: u8) {
        if usize::from(address) < MAIN {
            let segment = usize::from(address) / FOUR;
            self.sit[segment] |= 1 << (usize::from(address) % FOUR);
            self.sit_dirty |= 1 << segment;
        }
    }

    /// Allocates a node, of an inode or (none) of itself.
    pub(super) fn allocate_node(&mut self, kind: Kind, ino: Option<u8>) -> Option<u8> {
        let nid = (ROOT..NODES as u8).find(|nid| self.nat[usize::from(*nid)] == NONE)?;
        self.nat[usize::from(nid)] = UNWRITTEN;
        self.nat_dirty |= 1 << nid;
        self.young |= 1 << nid;
        *self.change(nid) = Node::new(kind, ino.unwrap_or(nid));
        Some(nid)
    }

    /// Finds the entry that names a block of a file or a directory: its node, and its index there.
    /// None if there is no such node.
    pub(super) fn slot(&self, inode: u8, place: usize) -> Option<(u8, usize)> {
        let Some(indexed) = place.checked_sub(DIRECT) else { return Some((inode, place)) };
        let (index, entry) = match indexed.checked_sub(FOUR) {
            None => (self.node(inode).entries[INDEX], indexed),
            Some(beyond) => match self.node(inode).entries[INDIRECT] {
                NONE => return None,
                indirect => (self.node(indirect).entries[beyond / FOUR], beyond % FOUR),
            },
        };
        (index != NONE).then_some((index, entry))
    }

    /// Finds the entry like [`slot`](Memory::slot), and makes nodes where there are none. None if
    /// there is no room.
    pub(super) fn slot_made(&mut self, inode: u8, place: usize) -> Option<(u8, usize)> {
        match place.checked_sub(DIRECT + FOUR) {
            None if place < DIRECT => {}
            None => {
                self.child_made(inode, INDEX, Kind::Index)?;
            }
            Some(beyond) => {
                let indirect = self.child_made(inode, INDIRECT, Kind::Indirect)?;
                self.child_made(indirect, beyond / FOUR, Kind::Index)?;
            }
        }
        self.slot(inode, place)
    }

    fn child_made(&mut self, nid: u8, entry: usize, kind: Kind) -> Option<u8> {
        let Node { ino, entries, .. } = *self.node(nid);
        if entries[entry] != NONE {
            return Some(entries[entry]);
        }
        let child = self.allocate_node(kind, Some(ino))?;
        self.change(nid).entries[entry] = child;
        Some(child)
    }

    /// The set of an inode and its index and indirect nodes.
    pub(super) fn nodes_of(&self, inode: u8) -> Set {
        let bits = |nids: &[u8]| {
            nids.iter()
                .filter(|nid| **nid != NONE)
                .fold(0, |set, nid| set | 1 << (nid % NODES as u8))
        };
        let node = self.node(inode);
        let mut set: Set = 1 << inode | bits(node.children());
        if node.children().get(INDIRECT - DIRECT).is_some_and(|indirect| *indirect != NONE) {
            set |= bits(self.node(node.entries[INDIRECT]).children());
        }
        set
    }
}

impl Logfs {
    /// Appends a block to a log; returns its address.
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
        memory.sit_dirty |= 1 << segment;
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

    /// Marks a block as not needed any more.
    pub(super) fn invalidate(&self, memory: &mut Memory, address: u8) {
        if usize::from(address) >= MAIN {
            return;
        }
        let (segment, place) = (usize::from(address) / FOUR, usize::from(address) % FOUR);
        memory.sit[segment] &= !(1 << place);
        memory.sit_dirty |= 1 << segment;
        if memory.sit[segment] == 0 && !memory.is_head(segment) {
            match self.has(Switch::ReuseEarly) {
                true => memory.release(segment as u8, self.has(Switch::Fifo)),
                false => memory.held |= 1 << segment,
            }
        }
    }

    /// Frees the segments that became empty before the checkpoint that was just written: nothing
    /// refers to them any more.
    pub(super) fn release_held(&self, memory: &mut Memory) {
        let held = std::mem::take(&mut memory.held);
        for segment in members(held) {
            memory.release(segment, self.has(Switch::Fifo));
        }
    }

    /// Writes a node to the end of its log, with or without the mark of an fsync.
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
        memory.nat_dirty |= 1 << nid;
        memory.dirty &= !(1 << nid);
        memory.unmarked |= 1 << nid;
        self.invalidate(memory, old);
    }

    /// Writes those index and indirect nodes of a file that differ from what is written.
    pub(super) fn write_children(&self, memory: &mut Memory, disk: &mut Recorder, inode: u8) {
        for nid in members(memory.nodes_of(inode) & memory.dirty & !(1 << inode)) {
            self.write_node(memory, disk, nid, false);
        }
    }

    /// Frees a node and its block.
    pub(super) fn free_node(&self, memory: &mut Memory, nid: u8) {
        let old = std::mem::replace(&mut memory.nat[usize::from(nid)], NONE);
        memory.nodes[usize::from(nid)] = Node::FREE;
        memory.nat_dirty |= 1 << nid;
        for set in [&mut memory.dirty, &mut memory.young, &mut memory.unmarked, &mut memory.open] {
            *set &= !(1 << nid);
        }
        self.invalidate(memory, old);
    }
}
