//! Hashes, for three uses with three rules:
//!
//! * [`Digest`]: 128 bits, identifies trees and states. Sums of independent terms, so that a change
//!   costs only the terms it touches (see [`crate::tree`] for the terms).
//! * [`content_term`]: file contents as a sum over pages, so that a write re-hashes one page. Zero
//!   pages and trailing zeros do not count: a hole and written zeros read the same.
//! * [`DataSum`]: 64 bits (XXH64) over the bytes one call returned. Small enough to re-implement in
//!   an exported C program.
//!
//! None of these resists an adversary; a file system under test is not one.

use std::fmt;
use std::ops::{AddAssign, SubAssign};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use twox_hash::{XxHash3_128, XxHash64};

/// Bytes per page of the content digest; independent of any file system's block size.
pub const PAGE_BYTES: usize = 4096;

/// A 128-bit digest; adding and subtracting terms (mod 2¹²⁸) maintains it incrementally.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u128);

impl Digest {
    /// The digest of a byte string in the given domain (a small constant that keeps uses apart).
    pub fn of(domain: u64, bytes: &[u8]) -> Digest {
        Digest(XxHash3_128::oneshot_with_seed(domain, bytes))
    }
}

impl AddAssign for Digest {
    fn add_assign(&mut self, term: Digest) {
        self.0 = self.0.wrapping_add(term.0);
    }
}

impl SubAssign for Digest {
    fn sub_assign(&mut self, term: Digest) {
        self.0 = self.0.wrapping_sub(term.0);
    }
}

/// The term of page number `page` in a content digest. `bytes` is at most one page; trailing zeros
/// are ignored, and a page without other bytes contributes nothing.
pub fn content_term(page: u64, bytes: &[u8]) -> Digest {
    debug_assert!(bytes.len() <= PAGE_BYTES);
    match bytes.iter().rposition(|&b| b != 0) {
        None => Digest::default(),
        // Page numbers are below 2⁵¹ (a file has at most 2⁶³ bytes): the domain bit keeps content
        // terms apart from every other use of `Digest::of`.
        Some(last) => Digest::of(1 << 63 | page, &bytes[..=last]),
    }
}

/// The content digest of a whole byte string (a file's contents from offset 0).
pub fn content_digest(bytes: &[u8]) -> Digest {
    let mut sum = Digest::default();
    for (page, chunk) in bytes.chunks(PAGE_BYTES).enumerate() {
        sum += content_term(page as u64, chunk);
    }
    sum
}

/// A 64-bit checksum (XXH64, seed 0) of the bytes that one call returned.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DataSum(pub u64);

impl DataSum {
    /// The checksum of `bytes`.
    pub fn of(bytes: &[u8]) -> DataSum {
        DataSum(XxHash64::oneshot(0, bytes))
    }
}

macro_rules! hex_text {
    ($name:ident, $int:ty, $width:literal) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{:0", $width, "x}"), self.0)
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
        impl FromStr for $name {
            type Err = std::num::ParseIntError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                <$int>::from_str_radix(text, 16).map($name)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
hex_text!(Digest, u128, "32");
hex_text!(DataSum, u64, "16");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_and_zeros_are_the_same_content() {
        let mut long = vec![0; 3 * PAGE_BYTES];
        assert_eq!(content_digest(&long), Digest::default());
        long[PAGE_BYTES] = 7;
        let short = &long[..PAGE_BYTES + 1];
        assert_eq!(content_digest(&long), content_digest(short));
        assert_ne!(content_digest(&long), content_digest(&long[PAGE_BYTES..]));
    }

    #[test]
    fn data_sum_is_xxh64() {
        // The published XXH64 value of the empty input with seed 0.
        assert_eq!(DataSum::of(b""), DataSum(0xef46_db37_51d8_e999));
    }

    #[test]
    fn hex_round_trips() {
        let digest = Digest::of(3, b"fathom");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(digest.to_string().len(), 32);
    }
}
