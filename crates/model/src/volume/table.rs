//! The inode table: chunks of slots, shared between clones until one of them changes a chunk.

use std::sync::Arc;

use super::Ino;
use super::inode::Inode;

/// Slots per chunk. A small tree is one chunk; with 100,000 inodes a change after a snapshot copies
/// 3,125 pointers and one chunk.
const SLOTS: usize = 32;

#[derive(Clone, Debug, Default)]
struct Chunk {
    /// One bit for every slot in use.
    used: u32,
    slots: [Option<Arc<Inode>>; SLOTS],
}

/// All inodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    chunks: Vec<Arc<Chunk>>,
    /// No chunk before this one has a free slot.
    first_free: usize,
}

/// The slot and generation of an inode number.
fn split(ino: Ino) -> (usize, usize, u32) {
    let slot = (ino & u64::from(u32::MAX)) as usize;
    (slot / SLOTS, slot % SLOTS, (ino >> 32) as u32)
}

fn join(chunk: usize, slot: usize, generation: u32) -> Ino {
    (chunk * SLOTS + slot) as u64 | u64::from(generation) << 32
}

impl Table {
    /// A table whose first slot is taken for good, so that the next one is [`super::ROOT`].
    pub(super) fn new() -> Table {
        let chunk = Chunk { used: 1, ..Chunk::default() };
        Table { chunks: vec![Arc::new(chunk)], first_free: 0 }
    }

    pub(super) fn get(&self, ino: Ino) -> Option<&Inode> {
        let (chunk, slot, generation) = split(ino);
        let inode = self.chunks.get(chunk)?.slots[slot].as_deref()?;
        (inode.generation == generation).then_some(inode)
    }

    pub(super) fn get_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        let (chunk, slot, generation) = split(ino);
        let chunk = Arc::make_mut(self.chunks.get_mut(chunk)?);
        let inode = Arc::make_mut(chunk.slots[slot].as_mut()?);
        (inode.generation == generation).then_some(inode)
    }

    /// Puts an inode into a free slot.
    pub(super) fn insert(&mut self, inode: Inode) -> Ino {
        let skip = self.first_free;
        let free = self.chunks[skip..].iter().position(|chunk| chunk.used != u32::MAX);
        let at = match free {
            Some(after) => skip + after,
            None => {
                self.chunks.push(Arc::default());
                self.chunks.len() - 1
            }
        };
        self.first_free = at;
        let chunk = Arc::make_mut(&mut self.chunks[at]);
        let slot = chunk.used.trailing_ones() as usize;
        let ino = join(at, slot, inode.generation);
        chunk.used |= 1 << slot;
        chunk.slots[slot] = Some(Arc::new(inode));
        ino
    }

    pub(super) fn remove(&mut self, ino: Ino) -> Option<Arc<Inode>> {
        self.get(ino)?;
        let (chunk, slot, _) = split(ino);
        self.first_free = self.first_free.min(chunk);
        let chunk = Arc::make_mut(&mut self.chunks[chunk]);
        chunk.used &= !(1 << slot);
        chunk.slots[slot].take()
    }

    /// Every inode with its number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        self.chunks.iter().enumerate().flat_map(|(at, chunk)| {
            let filled = chunk.slots.iter().enumerate();
            filled.filter_map(move |(slot, inode)| {
                let inode = inode.as_deref()?;
                Some((join(at, slot, inode.generation), inode))
            })
        })
    }
}
