//! The keys that one piece of a batch brings to the visited set.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::search::visited::{Arrival, SHARDS, Visited, shard_of};

/// Keys in the order of their arrival, with the answer of the set to each. Shards are served by
/// different threads at the same time; each writes only to the route of its own shard.
pub(super) struct Arrivals {
    /// The shard of each key.
    shards: Vec<u8>,
    /// For each shard its keys, in the order of their arrival, with their marks.
    routes: Vec<Vec<(u128, AtomicU32)>>,
}

const _: () = assert!(SHARDS <= 256, "the number of a shard is a byte");

/// Marks: known, new, or the depth at which the key was known plus [`CLOSER`].
const KNOWN: u32 = 0;
const NEW: u32 = 1;
const CLOSER: u32 = 2;

impl Arrivals {
    pub(super) fn new() -> Arrivals {
        Arrivals { shards: Vec::new(), routes: (0..SHARDS).map(|_| Vec::new()).collect() }
    }

    pub(super) fn clear(&mut self) {
        self.shards.clear();
        self.routes.iter_mut().for_each(Vec::clear);
    }

    #[inline]
    pub(super) fn push(&mut self, key: u128) {
        let shard = shard_of(key);
        self.shards.push(shard as u8);
        self.routes[shard].push((key, AtomicU32::new(KNOWN)));
    }

    /// Inserts the keys of one shard.
    pub(super) fn insert<V: Visited>(&self, shard: usize, set: &mut V, depth: u32) {
        for (key, mark) in &self.routes[shard] {
            match set.insert(*key, depth) {
                Arrival::Known => {}
                Arrival::New => mark.store(NEW, Ordering::Relaxed),
                Arrival::Closer(was) => mark.store(CLOSER + was, Ordering::Relaxed),
            }
        }
    }

    /// Iterates over the keys with the answer of the set to each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u128, Arrival)> {
        let mut routes = self.routes.iter().map(|route| route.iter()).collect::<Vec<_>>();
        self.shards.iter().map(move |&shard| {
            let (key, mark) = routes[usize::from(shard)].next().expect("a key for every arrival");
            let arrival = match mark.load(Ordering::Relaxed) {
                KNOWN => Arrival::Known,
                NEW => Arrival::New,
                mark => Arrival::Closer(mark - CLOSER),
            };
            (*key, arrival)
        })
    }

    /// Number of keys that were new.
    pub(super) fn count_new(&self) -> u64 {
        let marks = self.routes.iter().flatten().map(|(_, mark)| mark.load(Ordering::Relaxed));
        marks.filter(|mark| *mark == NEW).count() as u64
    }
}
