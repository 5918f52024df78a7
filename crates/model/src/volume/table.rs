//! The inode table: chunks of slots, shared between clones until one of them changes a chunk.

use std::sync::Arc;

use super::Ino;
use super::inode::Inode;

/// Slots per chunk. A small tree is one chunk; with 100,000 inodes a change after a snapshot copies
/// 6,250 pointers and one chunk.
const SLOTS: usize = 16;

#[derive(Clone, Debug, Default)]
struct Chunk {
    /// One bit for every slot in use.
    used: u16,
    slots: [Option<Arc<Inode>>; SLOTS],
}

impl Chunk {
    fn insert(&mut self, inode: Inode) -> usize {
        let slot = self.used.trailing_ones() as usize;
        self.used |= 1 << slot;
        self.slots[slot] = Some(Arc::new(inode));
        slot
    }
}

/// All inodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// In place: a change in a small tree copies no further chunk.
    first: Chunk,
    /// Chunks 1, 2, …
    rest: Vec<Arc<Chunk>>,
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
        Table { first: Chunk { used: 1, ..Chunk::default() }, ..Table::default() }
    }

    fn chunk(&self, number: usize) -> Option<&Chunk> {
        match number {
            0 => Some(&self.first),
            _ => self.rest.get(number - 1).map(Arc::as_ref),
        }
    }

    fn chunk_mut(&mut self, number: usize) -> Option<&mut Chunk> {
        match number {
            0 => Some(&mut self.first),
            _ => self.rest.get_mut(number - 1).map(Arc::make_mut),
        }
    }

    pub(super) fn get(&self, ino: Ino) -> Option<&Inode> {
        let (chunk, slot, generation) = split(ino);
        let inode = self.chunk(chunk)?.slots[slot].as_deref()?;
        (inode.generation == generation).then_some(inode)
    }

    pub(super) fn get_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        let (chunk, slot, generation) = split(ino);
        let inode = Arc::make_mut(self.chunk_mut(chunk)?.slots[slot].as_mut()?);
        (inode.generation == generation).then_some(inode)
    }

    /// Puts an inode into a free slot.
    pub(super) fn insert(&mut self, inode: Inode) -> Ino {
        let generation = inode.generation;
        while self.chunk(self.first_free).is_some_and(|chunk| chunk.used == u16::MAX) {
            self.first_free += 1;
        }
        if self.first_free > self.rest.len() {
            self.rest.push(Arc::default());
        }
        let chunk = self.chunk_mut(self.first_free).expect("it was made if it was missing");
        let slot = chunk.insert(inode);
        join(self.first_free, slot, generation)
    }

    pub(super) fn remove(&mut self, ino: Ino) -> Option<Arc<Inode>> {
        self.get(ino)?;
        let (number, slot, _) = split(ino);
        self.first_free = self.first_free.min(number);
        let chunk = self.chunk_mut(number)?;
        chunk.used &= !(1 << slot);
        chunk.slots[slot].take()
    }

    /// Every inode with its number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        let chunks = std::iter::once(&self.first).chain(self.rest.iter().map(Arc::as_ref));
        chunks.enumerate().flat_map(|(at, chunk)| {
            chunk.slots.iter().enumerate().filter_map(move |(slot, inode)| {
                let inode = inode.as_deref()?;
                Some((join(at, slot, inode.generation), inode))
            })
        })
    }
}
