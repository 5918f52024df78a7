//! Computes keys of states.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};

use twox_hash::XxHash3_128;

/// Hashes anything hashable to 128 bits (XXH3 over the bytes that it feeds to a hasher). Two values
/// must feed different bytes, as derived implementations of [`Hash`] do.
pub fn key_of<T: Hash + ?Sized>(value: &T) -> u128 {
    thread_local! {
        static BYTES: RefCell<Bytes> = const { RefCell::new(Bytes(Vec::new())) };
    }
    BYTES.with_borrow_mut(|bytes| {
        bytes.0.clear();
        value.hash(bytes);
        XxHash3_128::oneshot(&bytes.0)
    })
}

/// Collects what is to be hashed: hashing short inputs in one go is several times faster than
/// feeding a streaming hasher field by field.
struct Bytes(Vec<u8>);

impl Hasher for Bytes {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    #[inline]
    fn write_u8(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Takes a length. Small ones, the usual ones, take one byte; no number begins like another
    /// one.
    #[inline]
    fn write_usize(&mut self, number: usize) {
        if number < usize::from(u8::MAX) {
            self.0.push(number as u8);
        } else {
            self.0.push(u8::MAX);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    /// Takes the variant of an enum.
    #[inline]
    fn write_isize(&mut self, number: isize) {
        self.write_usize(number as usize);
    }

    fn finish(&self) -> u64 {
        XxHash3_128::oneshot(&self.0) as u64
    }
}

/// Spreads a key over all 128 bits, reversibly: different keys stay different. So a system may use
/// the packed state itself as its key.
#[inline]
pub(super) fn scatter(key: u128) -> u128 {
    // Odd multipliers: the 128-bit LCG multiplier of PCG (O'Neill, 2014) and 2¹²⁸ / golden ratio.
    const FIRST: u128 = 0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645;
    const SECOND: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    let key = (key ^ (key >> 64)).wrapping_add(SECOND).wrapping_mul(FIRST);
    let key = (key ^ (key >> 71)).wrapping_mul(SECOND);
    key ^ (key >> 67)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::search::visited::{SHARDS, shard_of};

    #[test]
    fn packed_states_are_spread_evenly() {
        for shift in [0, 20, 60, 100] {
            let keys: HashSet<u128> = (0..64_000).map(|n: u128| scatter(n << shift)).collect();
            assert_eq!(keys.len(), 64_000);
            let mut counts = vec![0; SHARDS];
            keys.iter().for_each(|key| counts[shard_of(*key)] += 1);
            // 1000 expected; five standard deviations.
            assert!(counts.iter().all(|n| (840..1160).contains(n)), "shift {shift}: {counts:?}");
        }
    }

    #[test]
    fn fields_are_told_apart() {
        assert_ne!(key_of(&(1_u8, 2_u8)), key_of(&(2_u8, 1_u8)));
        assert_ne!(key_of(&("a", "bc")), key_of(&("ab", "c")));
        assert_eq!(key_of(&vec![1, 2]), key_of(&[1, 2][..]));
        let numbers = [0, 1, 254, 255, 256, 255 << 8, usize::MAX];
        let keys: HashSet<u128> =
            numbers.iter().flat_map(|a| numbers.iter().map(move |b| key_of(&(a, b)))).collect();
        assert_eq!(keys.len(), numbers.len() * numbers.len());
    }
}
