//! The exact set: every key, in about 20 bytes.
//!
//! Ordered linear probing (Amble and Knuth, *Ordered hash tables*, 1974): a key's home is its value
//! scaled to the table, so keys lie in ascending order, a search for an absent key ends at the first
//! larger one, and a full table is still fast. It also grows by a sweep from front to back, in steps
//! of a quarter instead of doubling, which keeps the table at least 70 % full.

use super::{Arrival, SHARD_BITS, Visited};

/// The value of a slot without a key. The key 0 itself is remembered apart.
const EMPTY: u128 = 0;

/// Number of homes of a new table.
const HOMES_FIRST: usize = 16;

/// Number of slots behind the last home, for keys that are pushed over the end. A table that needs
/// more grows.
const OVERHANG: usize = 48;

/// A set of keys, optionally with the smallest depth at which each arrived.
#[derive(Clone, Debug)]
pub(crate) struct Exact {
    /// The keys, ascending, with gaps; the last slot is always empty and ends every probe.
    slots: Vec<u128>,
    /// Depth of the key in the same slot, if depths are kept.
    depths: Option<Vec<u32>>,
    homes: usize,
    len: usize,
    /// The depth of the key 0, if it is in the set.
    zero: Option<u32>,
}

impl Exact {
    /// Makes an empty set of keys.
    pub(crate) fn new() -> Exact {
        let slots = vec![EMPTY; HOMES_FIRST + OVERHANG];
        Exact { slots, depths: None, homes: HOMES_FIRST, len: 0, zero: None }
    }

    /// Makes a set that also keeps the depth of each key, and reports [`Arrival::Closer`].
    pub(crate) fn with_depths() -> Exact {
        Exact { depths: Some(vec![0; HOMES_FIRST + OVERHANG]), ..Exact::new() }
    }

    /// Finds the slot that holds the key, or the one where it belongs.
    #[inline]
    fn find(&self, key: u128) -> Result<usize, usize> {
        let mut at = home(key, self.homes);
        loop {
            match self.slots[at] {
                slot if slot == key => return Ok(at),
                EMPTY => return Err(at),
                slot if slot > key => return Err(at),
                _ => at += 1,
            }
        }
    }

    /// Puts a new key where [`find`](Exact::find) said; returns false if the overhang is full.
    fn put(&mut self, at: usize, key: u128, depth: u32) -> bool {
        let gap = at + self.slots[at..].iter().position(|&slot| slot == EMPTY).expect("last slot");
        if gap + 1 == self.slots.len() {
            return false;
        }
        self.slots.copy_within(at..gap, at + 1);
        self.slots[at] = key;
        if let Some(depths) = &mut self.depths {
            depths.copy_within(at..gap, at + 1);
            depths[at] = depth;
        }
        self.len += 1;
        true
    }

    /// Grows to a quarter more homes (small tables double).
    fn grow(&mut self) {
        let mut homes = self.homes;
        loop {
            homes += if homes < 1024 { homes } else { homes / 4 };
            if self.rehash(homes) {
                return;
            }
        }
    }

    /// Moves all keys to a table with so many homes; returns false if its overhang is too small.
    fn rehash(&mut self, homes: usize) -> bool {
        let mut slots = vec![EMPTY; homes + OVERHANG];
        let mut depths = self.depths.as_ref().map(|_| vec![0; slots.len()]);
        let mut next = 0;
        for (from, &key) in self.slots.iter().enumerate().filter(|(_, slot)| **slot != EMPTY) {
            let to = home(key, homes).max(next);
            if to + 1 >= slots.len() {
                return false;
            }
            slots[to] = key;
            if let (Some(new), Some(old)) = (&mut depths, &self.depths) {
                new[to] = old[from];
            }
            next = to + 1;
        }
        (self.slots, self.depths, self.homes) = (slots, depths, homes);
        true
    }

    /// Inserts a key that is already there, at slot `at`.
    fn insert_again(&mut self, at: usize, depth: u32) -> Arrival {
        match &mut self.depths {
            Some(depths) if depth < depths[at] => {
                Arrival::Closer(std::mem::replace(&mut depths[at], depth))
            }
            _ => Arrival::Known,
        }
    }

    fn insert_zero(&mut self, depth: u32) -> Arrival {
        match self.zero {
            Some(was) if self.depths.is_none() || was <= depth => Arrival::Known,
            was => {
                self.zero = Some(depth);
                was.map_or(Arrival::New, Arrival::Closer)
            }
        }
    }
}

impl Default for Exact {
    fn default() -> Exact {
        Exact::new()
    }
}

/// The home of a key among `homes`: the bits after those that chose the shard, scaled. Ascending in
/// the key.
#[inline]
fn home(key: u128, homes: usize) -> usize {
    let bits = (key << SHARD_BITS) >> 64;
    ((bits * homes as u128) >> 64) as usize
}

impl Visited for Exact {
    #[inline]
    fn knows(&self, key: u128, depth: u32) -> bool {
        if key == EMPTY {
            return self.zero.is_some_and(|was| self.depths.is_none() || was <= depth);
        }
        match (self.find(key), &self.depths) {
            (Ok(at), Some(depths)) => depths[at] <= depth,
            (found, _) => found.is_ok(),
        }
    }

    fn insert(&mut self, key: u128, depth: u32) -> Arrival {
        if key == EMPTY {
            return self.insert_zero(depth);
        }
        // At most 7/8 full: there a probe still meets 4.5 slots on average, mostly one cache line.
        if self.len * 8 >= self.homes * 7 {
            self.grow();
        }
        loop {
            match self.find(key) {
                Ok(at) => return self.insert_again(at, depth),
                Err(at) if self.put(at, key, depth) => return Arrival::New,
                Err(_) => self.grow(),
            }
        }
    }

    #[inline]
    fn touch(&self, key: u128) -> u64 {
        self.slots[home(key, self.homes)] as u64
    }

    fn keeps_depths(&self) -> bool {
        self.depths.is_some()
    }

    fn bytes(&self) -> usize {
        let depths = self.depths.as_ref().map_or(0, Vec::capacity);
        self.slots.capacity() * size_of::<u128>() + depths * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use fathom_generate::choice::Choices;

    impl Exact {
        /// Number of keys.
        fn len(&self) -> usize {
            self.len + usize::from(self.zero.is_some())
        }
    }

    /// Draws a key of one shard: evenly spread, or in one of a few clusters to force the overhang
    /// to fill.
    fn key(choices: &mut Choices, spread: u64) -> u128 {
        let high = u128::from(choices.below(spread)) << 64;
        (high << (58 - spread.ilog2())) | u128::from(choices.below(5))
    }

    #[test]
    fn agrees_with_a_map_whatever_the_keys() {
        for spread in [2, 64, 4096, 1 << 40] {
            let mut choices = Choices::new(spread);
            let (mut plain, mut deep, mut map) =
                (Exact::new(), Exact::with_depths(), BTreeMap::new());
            for _ in 0..20_000 {
                let key = key(&mut choices, spread);
                let depth = choices.below(9) as u32;
                let was = map.get(&key).copied();
                assert_eq!(plain.knows(key, depth), was.is_some());
                assert_eq!(deep.knows(key, depth), was.is_some_and(|was| was <= depth));
                let (new, closer) = match was {
                    None => (Arrival::New, Arrival::New),
                    Some(was) if was <= depth => (Arrival::Known, Arrival::Known),
                    Some(was) => (Arrival::Known, Arrival::Closer(was)),
                };
                assert_eq!(plain.insert(key, depth), new);
                assert_eq!(deep.insert(key, depth), closer);
                map.insert(key, was.map_or(depth, |was| was.min(depth)));
            }
            assert_eq!((plain.len(), deep.len()), (map.len(), map.len()));
            let kept: Vec<u128> = plain.slots.iter().copied().filter(|&s| s != EMPTY).collect();
            assert!(kept.is_sorted());
        }
    }

    #[test]
    fn stays_within_23_bytes_per_key() {
        let mut choices = Choices::new(3);
        let mut set = Exact::new();
        for n in 1..=200_000 {
            set.insert(key(&mut choices, 1 << 57), 0);
            if n > 2000 {
                let bytes = set.bytes() as f64 / set.len() as f64;
                assert!(bytes < 23.5, "{bytes} bytes per key at {n} keys");
            }
        }
    }
}
