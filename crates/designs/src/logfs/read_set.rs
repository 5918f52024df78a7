//! Remembers which blocks of the device were read.

use std::sync::atomic::{AtomicU64, Ordering};

use super::layout::BLOCKS;

const _: () = assert!(BLOCKS <= 128, "a set of blocks fits two words");

/// A set of blocks that grows by reading. What a volume has read is no part of its state: two sets
/// are always equal.
#[derive(Debug, Default)]
pub(super) struct ReadSet([AtomicU64; 2]);

impl ReadSet {
    /// Adds a block. Reading and writing the word are two steps, which is cheaper than one: only
    /// the thread that mounted a volume asks what it has read.
    pub(super) fn note(&self, block: usize) {
        let word = &self.0[block / 64];
        word.store(word.load(Ordering::Relaxed) | 1 << (block % 64), Ordering::Relaxed);
    }

    /// The set of blocks, one bit each.
    pub(super) fn blocks(&self) -> u128 {
        let [low, high] = self.0.each_ref().map(|word| u128::from(word.load(Ordering::Relaxed)));
        high << 64 | low
    }
}

impl Clone for ReadSet {
    fn clone(&self) -> ReadSet {
        ReadSet(self.0.each_ref().map(|word| AtomicU64::new(word.load(Ordering::Relaxed))))
    }
}

impl PartialEq for ReadSet {
    fn eq(&self, _: &ReadSet) -> bool {
        true
    }
}

impl Eq for ReadSet {}
