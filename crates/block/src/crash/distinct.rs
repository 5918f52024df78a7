//! Remembers images, so that every distinct one is judged once.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use fathom_core::Digest;

use crate::image::Image;

/// The images seen so far, by content digest (128 bits: two of a billion images coincide with
/// probability 10⁻²¹).
#[derive(Clone, Debug, Default)]
pub struct Distinct {
    seen: HashSet<Digest, BuildHasherDefault<AlreadyHashed>>,
}

impl Distinct {
    /// Remembers the image; returns false if its bytes were seen before.
    pub fn insert(&mut self, image: &Image) -> bool {
        self.seen.insert(image.digest())
    }

    /// Number of distinct images seen.
    pub fn len(&self) -> usize {
        self.seen.len()
    }

    /// Whether none was seen.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }
}

/// A hasher that takes part of a digest as it is: a digest is its own hash.
#[derive(Clone, Copy, Debug, Default)]
struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(byte);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Erased;

    #[test]
    fn equal_bytes_count_once() {
        let mut distinct = Distinct::default();
        let mut image = Image::new(4096, Erased::Zeros);
        assert!(distinct.is_empty() && distinct.insert(&image));
        image.write(7, b"x");
        assert!(distinct.insert(&image));
        image.write(7, &[0]);
        assert!(!distinct.insert(&image));
        assert_eq!(distinct.len(), 2);
    }
}
