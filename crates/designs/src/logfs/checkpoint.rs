//! Checkpoints, mounting, and rolling forward.

use fathom_block::Recorder;
use fathom_core::Errno;

use super::layout::{
    FOUR, Kind, MAIN, NODES, NONE, Node, SEGMENTS, UNWRITTEN, Written, block, checkpoint_block,
    main_block, nat_block, read, sit_block, ssa_block, version_block, version_of, write,
};
use super::memory::{Head, ITSELF, LOGS, Memory};
use super::{Logfs, Switch};

impl Logfs {
    /// Makes everything durable.
    pub(super) fn checkpoint(&self, memory: &mut Memory, disk: &mut Recorder) {
        for nid in (0..NODES as u8).filter(|nid| memory.dirty & (1 << nid) != 0).collect::<Vec<_>>()
        {
            self.write_node(memory, disk, nid, false);
        }
        for segment in (0..SEGMENTS).filter(|s| memory.ssa_dirty & (1 << s) != 0) {
            let owners = memory.owner[segment * FOUR..][..FOUR].iter();
            let bytes: Vec<u8> = owners.flat_map(|(nid, place)| [*nid, *place]).collect();
            write(disk, ssa_block(segment), &block(&bytes));
        }
        let in_place = self.has(Switch::NoVersions);
        for index in 0..NODES / FOUR {
            if memory.nat_dirty & (1 << index) != 0 {
                memory.nat_copy ^= u8::from(!in_place) << index;
                let copy = usize::from(memory.nat_copy >> index & 1);
                write(disk, nat_block(copy, index), &block(&memory.nat[index * FOUR..][..FOUR]));
            }
        }
        for index in 0..SEGMENTS / FOUR {
            if memory.sit_dirty & (1 << index) != 0 {
                memory.sit_copy ^= u8::from(!in_place) << index;
                let copy = usize::from(memory.sit_copy >> index & 1);
                write(disk, sit_block(copy, index), &block(&memory.sit[index * FOUR..][..FOUR]));
            }
        }
        (memory.nat_dirty, memory.sit_dirty, memory.ssa_dirty, memory.young) = (0, 0, 0, 0);
        memory.version += 1;
        disk.flush();
        write_pack(memory, disk);
        disk.flush();
        self.release_held(memory);
    }

    /// Makes the contents of a file durable without a checkpoint, if the checkpoint knows the file.
    pub(super) fn fsync_node(&self, memory: &mut Memory, disk: &mut Recorder, nid: u8) {
        let child = memory.node(nid).child;
        let nodes = 1 << nid | if child == 0 { 0 } else { 1_u16 << child };
        if memory.young & nodes != 0 {
            return self.checkpoint(memory, disk);
        }
        for nid in [child, nid] {
            if nid != 0 && memory.dirty & (1 << nid) != 0 {
                self.write_node(memory, disk, nid, true);
            }
        }
        disk.flush();
    }

    /// Mounts: the newer of the complete checkpoints, and what was fsynced since.
    pub(super) fn load(&self, disk: &mut Recorder) -> Result<Memory, Errno> {
        let packs = (0..2).filter_map(|pack| read_pack(disk, pack));
        let pack = packs.max_by_key(|pack| pack.version).ok_or(Errno::EUCLEAN)?;
        let mut memory = Memory::blank();
        (memory.version, memory.heads) = (pack.version, pack.heads);
        (memory.nat_copy, memory.sit_copy) = (pack.nat_copy, pack.sit_copy);
        (memory.nat_dirty, memory.sit_dirty) = (0, 0);
        for index in 0..NODES / FOUR {
            let copy = usize::from(memory.nat_copy >> index & 1);
            let entries = read(disk, nat_block(copy, index));
            memory.nat[index * FOUR..][..FOUR].copy_from_slice(&entries[..FOUR]);
        }
        for index in 0..SEGMENTS / FOUR {
            let copy = usize::from(memory.sit_copy >> index & 1);
            let entries = read(disk, sit_block(copy, index));
            memory.sit[index * FOUR..][..FOUR].copy_from_slice(&entries[..FOUR]);
        }
        for nid in 0..NODES {
            memory.nodes[nid] = match memory.nat[nid] {
                NONE | UNWRITTEN => Node::new(Kind::Free),
                address => Written::decode(&read(disk, main_block(address)))
                    .filter(|written| usize::from(written.nid) == nid)
                    .map_or(Node::new(Kind::Free), |written| written.node),
            };
        }
        let written_since = self.roll_forward(&mut memory, disk);
        memory.find_owners();
        memory.list_free_segments();
        if written_since {
            // What was written since the checkpoint lies behind the ends of the logs: begin new ones.
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

    /// Follows the nodes written since the checkpoint and takes over those with an fsync mark.
    /// Whether there were any.
    fn roll_forward(&self, memory: &mut Memory, disk: &Recorder) -> bool {
        let mut address = memory.heads[0].address();
        let mut any = false;
        for _ in 0..MAIN {
            let written = Written::decode(&read(disk, main_block(address)));
            let Some(written) = written.filter(|written| written.version == memory.version) else {
                break;
            };
            any = true;
            let known = memory.nat[usize::from(written.nid)] != NONE;
            if written.fsync && known {
                self.take_over(memory, &written, address);
            }
            address = written.next;
        }
        any
    }

    fn take_over(&self, memory: &mut Memory, written: &Written, address: u8) {
        let nid = usize::from(written.nid);
        let old = std::mem::replace(&mut memory.nodes[nid], written.node);
        let old_address = std::mem::replace(&mut memory.nat[nid], address);
        memory.nat_dirty |= 1 << (nid / FOUR);
        for block in old.blocks.into_iter().chain([old_address]) {
            self.invalidate(memory, block);
        }
        for block in written.node.blocks.into_iter().chain([address]) {
            if usize::from(block) < MAIN {
                let segment = usize::from(block) / FOUR;
                memory.sit[segment] |= 1 << (usize::from(block) % FOUR);
                memory.sit_dirty |= 1 << (segment / FOUR);
            }
        }
        if old.child != 0 && written.node.child == 0 {
            let child = *memory.node(old.child);
            child.blocks.into_iter().for_each(|block| self.invalidate(memory, block));
            self.free_node(memory, old.child);
        }
    }
}

impl Memory {
    /// The owners of all blocks, from the nodes: what F2FS does when SSA is out of date.
    fn find_owners(&mut self) {
        for nid in 0..NODES {
            if usize::from(self.nat[nid]) < MAIN {
                self.owner[usize::from(self.nat[nid])] = (nid as u8, ITSELF);
            }
            for (place, block) in self.nodes[nid].blocks.into_iter().enumerate() {
                if usize::from(block) < MAIN {
                    self.owner[usize::from(block)] = (nid as u8, place as u8);
                }
            }
        }
    }
}

/// What a checkpoint says.
struct Pack {
    version: u8,
    nat_copy: u8,
    sit_copy: u8,
    heads: [Head; LOGS],
}

fn write_pack(memory: &Memory, disk: &mut Recorder) {
    let pack = usize::from(memory.version % 2);
    let mut payload = vec![memory.version, memory.nat_copy, memory.sit_copy];
    payload.extend(memory.heads.iter().flat_map(|head| [head.segment, head.next]));
    write(disk, checkpoint_block(pack, 0), &version_block(memory.version));
    write(disk, checkpoint_block(pack, 1), &block(&payload));
    write(disk, checkpoint_block(pack, 2), &version_block(memory.version));
}

/// None if the two versions differ.
fn read_pack(disk: &Recorder, pack: usize) -> Option<Pack> {
    let first = version_of(&read(disk, checkpoint_block(pack, 0)))?;
    let payload = read(disk, checkpoint_block(pack, 1));
    let second = version_of(&read(disk, checkpoint_block(pack, 2)))?;
    let heads = std::array::from_fn(|log| Head {
        segment: payload[3 + 2 * log] % SEGMENTS as u8,
        next: payload[4 + 2 * log] % FOUR as u8,
    });
    (first == second).then_some(Pack {
        version: first,
        nat_copy: payload[1],
        sit_copy: payload[2],
        heads,
    })
}
