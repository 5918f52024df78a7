//! The keys that one piece of a batch brings to the visited set.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::visited::{Arrival, SHARDS, Visited, shard_of};

/// Keys in the order of their arrival, sorted by shard, with what the set said of each. Shards are
/// served by different threads at the same time; each marks only its own keys.
pub(super) struct Arrivals {
    keys: Vec<u128>,
    /// For each shard, its keys with their indices.
    routes: Vec<Vec<(u128, u32)>>,
    marks: Vec<AtomicU32>,
    new: AtomicU64,
}

/// Marks: known, new, or the depth at which the key was known plus [`CLOSER`].
const KNOWN: u32 = 0;
const NEW: u32 = 1;
const CLOSER: u32 = 2;

impl Arrivals {
    pub(super) fn new() -> Arrivals {
        Arrivals {
            keys: Vec::new(),
            routes: vec![Vec::new(); SHARDS],
            marks: Vec::new(),
            new: AtomicU64::new(0),
        }
    }

    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.routes.iter_mut().for_each(Vec::clear);
        self.marks.clear();
        *self.new.get_mut() = 0;
    }

    #[inline]
    pub(super) fn push(&mut self, key: u128) {
        self.routes[shard_of(key)].push((key, self.keys.len() as u32));
        self.keys.push(key);
        self.marks.push(AtomicU32::new(KNOWN));
    }

    /// Inserts the keys of one shard.
    pub(super) fn insert<V: Visited>(&self, shard: usize, set: &mut V, depth: u32) {
        let mut new = 0;
        for &(key, index) in &self.routes[shard] {
            let mark = match set.insert(key, depth) {
                Arrival::Known => continue,
                Arrival::New => NEW,
                Arrival::Closer(was) => CLOSER + was,
            };
            new += u64::from(mark == NEW);
            self.marks[index as usize].store(mark, Ordering::Relaxed);
        }
        if new > 0 {
            self.new.fetch_add(new, Ordering::Relaxed);
        }
    }

    /// What the set said of each key.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u128, Arrival)> {
        let arrival = |mark: &AtomicU32| match mark.load(Ordering::Relaxed) {
            KNOWN => Arrival::Known,
            NEW => Arrival::New,
            mark => Arrival::Closer(mark - CLOSER),
        };
        self.keys.iter().copied().zip(self.marks.iter().map(arrival))
    }

    /// How many keys were new.
    pub(super) fn count_new(&self) -> u64 {
        self.new.load(Ordering::Relaxed)
    }
}
