//! Written data as (seed, length): traces stay small, and anybody can recompute the bytes.
//!
//! Byte `i` of a pattern is byte `i % 8` (little endian) of `word(seed, i / 8)`, where
//! `word(seed, k) = splitmix64(seed + k·0x9e3779b97f4a7c15) | 0x0101010101010101`. The `|` keeps every
//! byte non-zero, so data can never be mistaken for a hole.

use serde::{Deserialize, Serialize};

/// Increment of the splitmix64 sequence (2⁶⁴ divided by the golden ratio).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// `len` bytes generated from `seed`; the offset is counted from the start of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pattern {
    /// The start of the sequence.
    pub seed: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Pattern {
    /// Writes the bytes over `buffer` (which is resized to fit).
    pub fn fill(&self, buffer: &mut Vec<u8>) {
        let len = usize::try_from(self.len).expect("a pattern fits in memory");
        buffer.clear();
        buffer.reserve(len + 8);
        let mut index = 0;
        while buffer.len() < len {
            buffer.extend_from_slice(&word(self.seed, index).to_le_bytes());
            index += 1;
        }
        buffer.truncate(len);
    }

    /// The bytes in a new vector.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut buffer = Vec::new();
        self.fill(&mut buffer);
        buffer
    }
}

/// Computes word number `index` of the pattern of `seed`.
pub fn word(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_mul(GOLDEN));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) | 0x0101_0101_0101_0101
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_prefixes_of_each_other_and_never_zero() {
        let long = Pattern { seed: 5, len: 1000 }.to_vec();
        assert_eq!(Pattern { seed: 5, len: 13 }.to_vec(), long[..13]);
        assert_eq!(Pattern { seed: 5, len: 0 }.to_vec(), Vec::<u8>::new());
        assert!(long.iter().all(|&b| b != 0));
        assert_ne!(Pattern { seed: 6, len: 1000 }.to_vec(), long);
    }

    #[test]
    fn the_first_words_never_change() {
        // Exported C programs and old traces depend on these values.
        assert_eq!(word(0, 0), 0x0101_0101_0101_0101);
        assert_eq!(word(1, 0), 0x5793_171d_110b_05e5);
    }
}
