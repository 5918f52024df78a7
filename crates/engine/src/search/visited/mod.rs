//! The sets of states that a search has already met.
//!
//! A [`Visited`] is an ordinary single-threaded set of 128-bit keys. [`Sharded`] makes any of them
//! parallel: the leading bits of a key choose the shard, a search inserts into one shard with one
//! thread at a time and in one order, so even a lossy set says the same for any number of threads.

mod bitstate;
mod exact;
mod noted;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(crate) use bitstate::Bitstate;
pub(crate) use exact::Exact;
pub(crate) use noted::Noted;

/// The answer of a set to a key that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// The key was never seen.
    New,
    /// The key was seen, but deeper: at the depth given here. Only sets that keep depths say this.
    Closer(u32),
    /// The key was seen.
    Known,
}

/// A set of keys. Keys are spread evenly over all 128 bits (a search takes care of that).
pub(crate) trait Visited: Send + Sync {
    /// Whether [`insert`](Visited::insert) would say [`Arrival::Known`].
    fn knows(&self, key: u128, depth: u32) -> bool;

    /// Adds a key that arrived at `depth`.
    fn insert(&mut self, key: u128, depth: u32) -> Arrival;

    /// Reads where the key would be, so that a `knows` soon after finds it in the cache. Returns
    /// something of no meaning that depends on the reading.
    fn touch(&self, key: u128) -> u64;

    /// Whether the set keeps the smallest depth of each key.
    fn keeps_depths(&self) -> bool {
        false
    }

    /// Bytes of heap memory in use.
    fn bytes(&self) -> usize;

    /// Estimated number of new keys that were taken for known ones. Exact sets: none.
    fn omitted(&self) -> f64 {
        0.0
    }
}

/// Bits of a key that choose its shard.
pub(crate) const SHARD_BITS: u32 = 6;

/// Number of shards: enough to keep a few dozen threads evenly busy; constant, so that results do
/// not depend on the machine.
pub(crate) const SHARDS: usize = 1 << SHARD_BITS;

/// The shard of a key.
pub(crate) fn shard_of(key: u128) -> usize {
    (key >> (u128::BITS - SHARD_BITS)) as usize
}

/// A set in [`SHARDS`] parts, each behind its lock.
#[derive(Debug)]
pub(crate) struct Sharded<V> {
    shards: Vec<Shard<V>>,
}

/// A shard on cache lines of its own: neighbours are used by different threads at the same time.
#[derive(Debug)]
#[repr(align(128))]
struct Shard<V>(RwLock<V>);

impl<V: Visited> Sharded<V> {
    /// A set whose shards are made by `make`.
    pub(crate) fn new(make: impl Fn() -> V) -> Sharded<V> {
        Sharded { shards: (0..SHARDS).map(|_| Shard(RwLock::new(make()))).collect() }
    }

    /// Gives read access, for as long as nobody needs to insert.
    pub(crate) fn view(&self) -> View<'_, V> {
        View { set: self, guards: [const { None }; SHARDS] }
    }

    /// Locks one shard, to insert into it.
    pub(crate) fn shard(&self, shard: usize) -> RwLockWriteGuard<'_, V> {
        // A panic elsewhere ends the search anyway; it must not turn into a second one here.
        self.shards[shard].0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of heap memory in use.
    pub(crate) fn bytes(&self) -> usize {
        (0..SHARDS).map(|shard| self.shard(shard).bytes()).sum()
    }

    /// Estimated number of new keys that were taken for known ones ([`Visited::omitted`]).
    pub(crate) fn omitted(&self) -> f64 {
        (0..SHARDS).map(|shard| self.shard(shard).omitted()).sum()
    }
}

/// Shared read access to a [`Sharded`] set; a shard is locked when it is first asked.
#[derive(Debug)]
pub(crate) struct View<'a, V> {
    set: &'a Sharded<V>,
    guards: [Option<RwLockReadGuard<'a, V>>; SHARDS],
}

impl<V: Visited> View<'_, V> {
    /// Whether the set keeps the smallest depth of each key ([`Visited::keeps_depths`]).
    pub(crate) fn keeps_depths(&self) -> bool {
        self.set.shards[0].0.read().unwrap_or_else(PoisonError::into_inner).keeps_depths()
    }

    /// Whether the set knows the key.
    #[inline]
    pub(crate) fn knows(&mut self, key: u128, depth: u32) -> bool {
        self.shard(key).knows(key, depth)
    }

    /// Reads where the key would be ([`Visited::touch`]).
    #[inline]
    pub(crate) fn touch(&mut self, key: u128) -> u64 {
        self.shard(key).touch(key)
    }

    #[inline]
    fn shard(&mut self, key: u128) -> &V {
        let shard = shard_of(key);
        self.guards[shard].get_or_insert_with(|| {
            self.set.shards[shard].0.read().unwrap_or_else(PoisonError::into_inner)
        })
    }
}
