//! The bitstate set (Holzmann, *An analysis of bitstate hashing*, 1998): a few bits per state.
//!
//! A key sets k bits of a fixed array; it is taken for known if all of them are set already. So a
//! search may miss states (never report a wrong one), and a swarm of searches with different seeds
//! misses different ones. How many were missed is estimated while inserting: with a fraction f of
//! the bits set, a new key is missed with probability f^k, hence every accepted key stands for
//! 1 / (1 - f^k) arrivals. States behind the missed ones are not in the estimate.

use super::{Arrival, SHARD_BITS, SHARDS, Visited};

/// A set that remembers bits instead of keys.
#[derive(Clone, Debug)]
pub(crate) struct Bitstate {
    words: Vec<u64>,
    hashes: u32,
    /// An odd number that scatters the first half of a key, differently for every seed.
    multiplier: u64,
    bits_set: u64,
    omitted: f64,
}

impl Bitstate {
    /// Makes one of [`SHARDS`] sets which together use `bytes`, with `hashes` bits per key.
    /// Different seeds miss different states.
    ///
    /// # Panics
    /// If `hashes` is 0.
    pub(crate) fn new(bytes: usize, hashes: u32, seed: u64) -> Bitstate {
        assert!(hashes > 0, "a bitstate set needs at least one bit per state");
        let words = (bytes / SHARDS / size_of::<u64>()).max(1);
        let multiplier = fathom_core::pattern::word(seed, 0) | 1;
        Bitstate { words: vec![0; words], hashes, multiplier, bits_set: 0, omitted: 0.0 }
    }

    fn bits(&self) -> u64 {
        self.words.len() as u64 * u64::from(u64::BITS)
    }

    /// The positions of the bits of a key: double hashing (Kirsch and Mitzenmacher, 2006) with its
    /// two halves.
    #[inline]
    fn positions(&self, key: u128) -> impl Iterator<Item = (usize, u64)> + use<> {
        let bits = u128::from(self.bits());
        let first = (((key << SHARD_BITS) >> 64) as u64).wrapping_mul(self.multiplier);
        let step = key as u64 | 1;
        (0..u64::from(self.hashes)).map(move |n| {
            let spread = first.wrapping_add(n.wrapping_mul(step));
            let bit = ((u128::from(spread) * bits) >> 64) as u64;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }
}

impl Visited for Bitstate {
    #[inline]
    fn knows(&self, key: u128, _depth: u32) -> bool {
        self.positions(key).all(|(word, bit)| self.words[word] & bit != 0)
    }

    fn insert(&mut self, key: u128, depth: u32) -> Arrival {
        if self.knows(key, depth) {
            return Arrival::Known;
        }
        let filled = self.bits_set as f64 / self.bits() as f64;
        let missed = filled.powi(self.hashes as i32);
        self.omitted += missed / (1.0 - missed);
        for (word, bit) in self.positions(key) {
            self.bits_set += u64::from(self.words[word] & bit == 0);
            self.words[word] |= bit;
        }
        Arrival::New
    }

    #[inline]
    fn touch(&self, key: u128) -> u64 {
        self.positions(key).fold(0, |sum, (word, _)| sum ^ self.words[word])
    }

    fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    fn omitted(&self) -> f64 {
        self.omitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_generate::choice::Choices;

    #[test]
    fn the_estimate_of_omissions_is_right() {
        for (bytes_per_key, hashes) in [(1, 3), (1, 1), (2, 2)] {
            let keys = 100_000_u64;
            let bytes = keys as usize * bytes_per_key * SHARDS;
            let mut set = Bitstate::new(bytes, hashes, 1);
            let mut choices = Choices::new(5);
            let mut accepted = 0;
            for _ in 0..keys {
                let key =
                    u128::from(choices.below(u64::MAX)) << 64 | u128::from(choices.below(u64::MAX));
                accepted += u64::from(set.insert(key, 0) == Arrival::New);
                assert_eq!(set.insert(key, 0), Arrival::Known);
            }
            let missed = (keys - accepted) as f64;
            let error = (set.omitted() - missed).abs() / missed.max(100.0);
            assert!(missed > 50.0 && error < 0.1, "{missed} missed, {} estimated", set.omitted());
        }
    }

    #[test]
    fn a_seed_changes_what_is_missed() {
        let (one, two) = (Bitstate::new(1 << 20, 3, 1), Bitstate::new(1 << 20, 3, 2));
        let bits = |set: &Bitstate| set.positions(u128::MAX / 7).collect::<Vec<_>>();
        assert_ne!(bits(&one), bits(&two));
    }
}
