//! Writes checkpoints, and mounts volumes.

use fathom_block::Recorder;
use fathom_core::Errno;

use super::layout::{
    Block, FOUR, NODES, NONE, Node, SEGMENTS, UNWRITTEN, Written, block, checkpoint_block,
    main_block, nat_block, sit_block, ssa_block, version_block, version_of, write,
};
use super::memory::{Head, LOGS, Memory, Set, members};
use super::{Logfs, Switch};

/// Number of blocks of NAT, and of SIT.
const TABLE_BLOCKS: usize = NODES / FOUR;
const _: () = assert!(NODES == SEGMENTS, "both tables have as many blocks");

impl Logfs {
    /// Makes everything durable by a checkpoint.
    pub(super) fn checkpoint(&self, memory: &mut Memory, disk: &mut Recorder) {
        for nid in members(memory.dirty) {
            self.write_node(memory, disk, nid, false);
        }
        for segment in members(memory.ssa_dirty) {
            let mut bytes = [0; 2 * FOUR];
            let owners = &memory.owner[usize::from(segment) * FOUR..][..FOUR];
            for (place, (nid, entry)) in bytes.chunks_exact_mut(2).zip(owners) {
                (place[0], place[1]) = (*nid, *entry);
            }
            write(disk, ssa_block(segment.into()), &block(&bytes));
        }
        memory.nat_journal |= memory.nat_dirty;
        memory.sit_journal |= memory.sit_dirty;
        let (nat, sit) = (memory.nat, memory.sit);
        self.empty_journal(&mut memory.nat_journal, &mut memory.nat_copy, |copy, index| {
            write(disk, nat_block(copy, index), &block(&nat[index * FOUR..][..FOUR]));
        });
        self.empty_journal(&mut memory.sit_journal, &mut memory.sit_copy, |copy, index| {
            write(disk, sit_block(copy, index), &block(&sit[index * FOUR..][..FOUR]));
        });
        memory.version += 1;
        disk.flush();
        write_pack(memory, disk);
        disk.flush();
        (memory.nat_dirty, memory.sit_dirty, memory.ssa_dirty) = (0, 0, 0);
        (memory.young, memory.unmarked) = (0, 0);
        self.release_held(memory);
    }

    /// Writes the table blocks of the entries in a journal, if these are more than it has room for:
    /// to the copies that are not in use, unless there is only one.
    fn empty_journal(
        &self,
        journal: &mut Set,
        copies: &mut u8,
        mut write: impl FnMut(usize, usize),
    ) {
        if journal.count_ones() as usize <= FOUR {
            return;
        }
        for index in (0..TABLE_BLOCKS).filter(|index| *journal >> (index * FOUR) & 0xf != 0) {
            *copies ^= u8::from(!self.has(Switch::NoVersions)) << index;
            write(usize::from(*copies >> index & 1), index);
        }
        *journal = 0;
    }

    /// Makes a file durable without a checkpoint, if the last one knows all its nodes.
    pub(super) fn fsync_node(&self, memory: &mut Memory, disk: &mut Recorder, inode: u8) {
        let nodes = memory.nodes_of(inode);
        if memory.young & nodes != 0 {
            return self.checkpoint(memory, disk);
        }
        let unmarked = if self.has(Switch::SkipWritten) { 0 } else { memory.unmarked };
        if (memory.dirty | unmarked) & nodes != 0 {
            self.write_children(memory, disk, inode);
            self.write_node(memory, disk, inode, true);
            memory.unmarked &= !nodes;
        }
        disk.flush();
    }

    /// Mounts: the newer of the complete checkpoints, and what was fsynced since.
    pub(super) fn load(&self, disk: &mut Recorder) -> Result<Memory, Errno> {
        let mut memory = read_checkpoint(disk)?;
        let recovered = self.roll_forward(&mut memory, disk);
        memory.find_owners();
        memory.list_free_segments();
        if recovered {
            // The recovered blocks lie behind the ends of the logs: begin new ones.
            if memory.free_count < LOGS {
                return Err(Errno::ENOSPC);
            }
            memory.heads =
                std::array::from_fn(|_| Head { segment: memory.take_segment(), next: 0 });
            memory.held = 0;
            memory.list_free_segments();
            self.checkpoint(&mut memory, disk);
        }
        Ok(memory)
    }
}

/// Reads the newer of the complete checkpoints.
#[inline]
pub(super) fn read_checkpoint(disk: &Recorder) -> Result<Memory, Errno> {
    let mut memory = Memory::blank();
    let packs = (0..2).filter_map(|pack| read_pack(&memory, disk, pack));
    let pack = packs.max_by_key(|pack| pack.version).ok_or(Errno::EUCLEAN)?;
    (memory.version, memory.heads) = (pack.version, pack.heads);
    (memory.nat_copy, memory.sit_copy) = (pack.nat_copy, pack.sit_copy);
    (memory.nat_dirty, memory.sit_dirty) = (0, 0);
    for index in 0..TABLE_BLOCKS {
        let copy = usize::from(memory.nat_copy >> index & 1);
        let entries = memory.read(disk, nat_block(copy, index));
        memory.nat[index * FOUR..][..FOUR].copy_from_slice(&entries[..FOUR]);
        let copy = usize::from(memory.sit_copy >> index & 1);
        let entries = memory.read(disk, sit_block(copy, index));
        memory.sit[index * FOUR..][..FOUR].copy_from_slice(&entries[..FOUR]);
    }
    let (nat, sit) = pack.journals.split_at(2 * FOUR);
    memory.nat_journal = replay_journal(nat, &mut memory.nat);
    memory.sit_journal = replay_journal(sit, &mut memory.sit);
    for nid in 0..NODES {
        memory.nodes[nid] = match memory.nat[nid] {
            NONE | UNWRITTEN => Node::FREE,
            address => Written::decode(&memory.read(disk, main_block(address)))
                .filter(|written| usize::from(written.nid) == nid)
                .map_or(Node::FREE, |written| written.node),
        };
    }
    Ok(memory)
}

/// The contents of a checkpoint.
struct Pack {
    version: u8,
    nat_copy: u8,
    sit_copy: u8,
    heads: [Head; LOGS],
    journals: Block,
}

fn write_pack(memory: &Memory, disk: &mut Recorder) {
    let pack = usize::from(memory.version % 2);
    let mut payload = block(&[memory.version, memory.nat_copy, memory.sit_copy]);
    for (place, head) in payload[3..].chunks_exact_mut(2).zip(memory.heads) {
        (place[0], place[1]) = (head.segment, head.next);
    }
    let mut journals = block(&[]);
    let (nat, sit) = journals.split_at_mut(2 * FOUR);
    write_journal(nat, memory.nat_journal, &memory.nat);
    write_journal(sit, memory.sit_journal, &memory.sit);
    write(disk, checkpoint_block(pack, 0), &version_block(memory.version));
    write(disk, checkpoint_block(pack, 1), &payload);
    write(disk, checkpoint_block(pack, 2), &journals);
    write(disk, checkpoint_block(pack, 3), &version_block(memory.version));
}

/// Reads a checkpoint; none if its two versions differ.
fn read_pack(memory: &Memory, disk: &Recorder, pack: usize) -> Option<Pack> {
    let first = version_of(&memory.read(disk, checkpoint_block(pack, 0)))?;
    let second = version_of(&memory.read(disk, checkpoint_block(pack, 3)))?;
    if first != second {
        return None;
    }
    let payload = memory.read(disk, checkpoint_block(pack, 1));
    let heads = std::array::from_fn(|log| Head {
        segment: payload[3 + 2 * log] % SEGMENTS as u8,
        next: payload[4 + 2 * log] % FOUR as u8,
    });
    let journals = memory.read(disk, checkpoint_block(pack, 2));
    Some(Pack { version: first, nat_copy: payload[1], sit_copy: payload[2], heads, journals })
}

/// Writes entries of a table to a journal: their numbers plus one (0: none), and their values.
fn write_journal(journal: &mut [u8], entries: Set, table: &[u8]) {
    for (place, entry) in journal.chunks_exact_mut(2).zip(members(entries)) {
        (place[0], place[1]) = (entry + 1, table[usize::from(entry)]);
    }
}

/// Sets the entries of a table that a journal holds; returns which ones these are.
fn replay_journal(journal: &[u8], table: &mut [u8]) -> Set {
    let mut entries = 0;
    for place in journal.chunks_exact(2).filter(|place| place[0] != 0) {
        let entry = usize::from(place[0] - 1) % table.len();
        table[entry] = place[1];
        entries |= 1 << entry;
    }
    entries
}
