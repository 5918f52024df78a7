//! Collects garbage: empties segments with few valid blocks.

use fathom_block::Recorder;
use fathom_core::Errno;

use super::Logfs;
use super::layout::{FOUR, Kind, SEGMENTS, main_block};
use super::memory::{ITSELF, Log, Memory, members};

/// Segments that any operation can use up: two of data, one of directory blocks, one of nodes.
const SEGMENTS_PER_OPERATION: usize = 4;

impl Logfs {
    /// Sees to it that the next operation, and a checkpoint after it, have enough free segments.
    pub(super) fn make_room(&self, memory: &mut Memory, disk: &mut Recorder) -> Result<(), Errno> {
        for _ in 0..SEGMENTS {
            let dirty = memory.dirty.count_ones() as usize;
            let needed = SEGMENTS_PER_OPERATION + dirty.div_ceil(FOUR);
            if memory.free_count >= needed {
                return Ok(());
            }
            if memory.held != 0 && memory.free_count > dirty.div_ceil(FOUR) {
                self.checkpoint(memory, disk);
                continue;
            }
            let victim = memory.victim().filter(|_| memory.free_count > 1 + dirty.div_ceil(FOUR));
            self.collect(memory, disk, victim.ok_or(Errno::ENOSPC)?);
            self.checkpoint(memory, disk);
        }
        Err(Errno::ENOSPC)
    }

    /// Moves the valid blocks of a segment to the ends of the logs.
    fn collect(&self, memory: &mut Memory, disk: &mut Recorder, segment: usize) {
        for place in members(memory.sit[segment].into()) {
            let address = (segment * FOUR) as u8 + place;
            let (nid, entry) = memory.owner[usize::from(address)];
            if entry == ITSELF {
                self.write_node(memory, disk, nid, false);
                continue;
            }
            let inode = memory.node(memory.node(nid).ino);
            let log = if inode.kind == Kind::Dir { Log::Dentries } else { Log::Data };
            let content = memory.read(disk, main_block(address));
            let moved = self.append(memory, disk, log, (nid, entry), |_| content);
            memory.change(nid).entries[usize::from(entry) % FOUR] = moved;
            self.invalidate(memory, address);
        }
    }
}

impl Memory {
    /// The segment with the fewest valid blocks, if emptying it gains anything.
    fn victim(&self) -> Option<usize> {
        let in_use = |segment: &usize| {
            let head = self.heads.iter().any(|head| usize::from(head.segment) == *segment);
            !head && (1..FOUR as u32).contains(&self.sit[*segment].count_ones())
        };
        (0..SEGMENTS).filter(in_use).min_by_key(|segment| self.sit[*segment].count_ones())
    }
}
