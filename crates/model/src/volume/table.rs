//! The inode table: chunks of slots, shared between clones until one of them changes a chunk.

use std::sync::Arc;

use super::Ino;
use super::inode::Inode;

/// Number of slots in the table itself, which is copied with every change.
const SLOTS_FIRST: usize = 16;

/// Greatest number of slots of a chunk. With 100,000 inodes a change after a snapshot copies 391
/// pointers to chunks and one chunk: near the least there can be with two levels.
const SLOTS: usize = 256;

#[derive(Clone, Debug, Default)]
struct Chunk {
    used: usize,
    /// The slots, as many as were ever used.
    slots: Vec<Option<Arc<Inode>>>,
}

/// All inodes.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// The first slots, in place: a small tree needs no chunk.
    first: [Option<Arc<Inode>>; SLOTS_FIRST],
    /// All other slots.
    rest: Vec<Arc<Chunk>>,
    /// Index of the first chunk of `rest` that may have a free slot.
    free_from: usize,
}

/// Makes the number of an inode in slot `slot`.
fn join(slot: usize, generation: u32) -> Ino {
    slot as u64 | u64::from(generation) << 32
}

fn split(ino: Ino) -> (usize, u32) {
    ((ino & u64::from(u32::MAX)) as usize, (ino >> 32) as u32)
}

impl Table {
    pub(super) fn new() -> Table {
        Table { first: [const { None }; SLOTS_FIRST], rest: Vec::new(), free_from: 0 }
    }

    fn slot(&self, slot: usize) -> Option<&Arc<Inode>> {
        match slot.checked_sub(SLOTS_FIRST) {
            None => self.first[slot].as_ref(),
            Some(after) => self.rest.get(after / SLOTS)?.slots.get(after % SLOTS)?.as_ref(),
        }
    }

    pub(super) fn get(&self, ino: Ino) -> Option<&Inode> {
        let (slot, generation) = split(ino);
        self.slot(slot).map(Arc::as_ref).filter(|inode| inode.generation == generation)
    }

    pub(super) fn get_mut(&mut self, ino: Ino) -> Option<&mut Inode> {
        let (slot, generation) = split(ino);
        let inode = match slot.checked_sub(SLOTS_FIRST) {
            None => self.first[slot].as_mut(),
            Some(after) => {
                let chunk = Arc::make_mut(self.rest.get_mut(after / SLOTS)?);
                chunk.slots.get_mut(after % SLOTS)?.as_mut()
            }
        };
        inode.map(Arc::make_mut).filter(|inode| inode.generation == generation)
    }

    /// Puts an inode into the first free slot. Slot 0 stays free: the first inode is
    /// [`super::ROOT`].
    pub(super) fn insert(&mut self, inode: Inode) -> Ino {
        let generation = inode.generation;
        let inode = Some(Arc::new(inode));
        if let Some(after) = self.first[1..].iter().position(Option::is_none) {
            self.first[1 + after] = inode;
            return join(1 + after, generation);
        }
        let full = |chunk: &Arc<Chunk>| chunk.used == SLOTS;
        while self.rest.get(self.free_from).is_some_and(full) {
            self.free_from += 1;
        }
        if self.free_from == self.rest.len() {
            self.rest.push(Arc::default());
        }
        let chunk = Arc::make_mut(&mut self.rest[self.free_from]);
        let slot = chunk.slots.iter().position(Option::is_none).unwrap_or(chunk.slots.len());
        if slot == chunk.slots.len() {
            chunk.slots.push(None);
        }
        chunk.slots[slot] = inode;
        chunk.used += 1;
        join(SLOTS_FIRST + self.free_from * SLOTS + slot, generation)
    }

    /// Puts an inode where its number says, which nothing else has.
    pub(super) fn insert_at(&mut self, slot: usize, inode: Inode) {
        let inode = Some(Arc::new(inode));
        let Some(after) = slot.checked_sub(SLOTS_FIRST) else {
            self.first[slot] = inode;
            return;
        };
        while self.rest.len() <= after / SLOTS {
            self.rest.push(Arc::default());
        }
        let chunk = Arc::make_mut(&mut self.rest[after / SLOTS]);
        let len = chunk.slots.len().max(after % SLOTS + 1);
        chunk.slots.resize(len, None);
        chunk.slots[after % SLOTS] = inode;
        chunk.used += 1;
    }

    pub(super) fn remove(&mut self, ino: Ino) -> Option<Arc<Inode>> {
        self.get(ino)?;
        let (slot, _) = split(ino);
        let Some(after) = slot.checked_sub(SLOTS_FIRST) else {
            return self.first[slot].take();
        };
        self.free_from = self.free_from.min(after / SLOTS);
        let chunk = Arc::make_mut(&mut self.rest[after / SLOTS]);
        chunk.used -= 1;
        chunk.slots[after % SLOTS].take()
    }

    /// Iterates over every inode with its number.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Ino, &Inode)> {
        let first = self.first.iter().enumerate();
        let rest = self.rest.iter().enumerate().flat_map(|(number, chunk)| {
            let slots = chunk.slots.iter().enumerate();
            slots.map(move |(slot, inode)| (SLOTS_FIRST + number * SLOTS + slot, inode))
        });
        first.chain(rest).filter_map(|(slot, inode)| {
            let inode = inode.as_deref()?;
            Some((join(slot, inode.generation), inode))
        })
    }
}
