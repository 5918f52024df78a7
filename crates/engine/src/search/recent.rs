//! A thread's memory of the keys it met last.
//!
//! Most children are met several times, and mostly within a short time. A key that was met by an
//! earlier parent would be found known, and can be dropped without asking the visited set (which is
//! large and far away in memory) and without keeping the state until then. A thread mostly takes the
//! pieces of a batch in ascending order; in one that comes before another it already had, nothing is
//! dropped.

/// Keys that are kept; 128 KiB of them, which fits beside other things into a second-level cache.
const KEYS: usize = 1 << 13;

/// The keys met last, at most one for each value of some of its bits.
pub(super) struct Recent {
    keys: Vec<u128>,
    /// The last piece of this batch that was begun.
    last: usize,
    /// Whether all keys were met in this piece or before.
    is_after_all: bool,
}

impl Recent {
    pub(super) fn new() -> Recent {
        // A key 0 would be found although nobody met it: its place is taken by one that cannot be
        // looked for there.
        let mut keys = vec![0; KEYS];
        keys[0] = 1;
        Recent { keys, last: 0, is_after_all: true }
    }

    /// Begins a new batch: its pieces come after all others.
    pub(super) fn begin_batch(&mut self) {
        self.last = 0;
    }

    /// Begins a piece, in which the next keys are met.
    pub(super) fn begin_piece(&mut self, piece: usize) {
        self.is_after_all = piece >= self.last;
        self.last = self.last.max(piece);
    }

    /// Remembers a key; returns true if it was met before, by an earlier parent.
    #[inline]
    pub(super) fn meet(&mut self, key: u128) -> bool {
        let place = &mut self.keys[key as usize % KEYS];
        std::mem::replace(place, key) == key && self.is_after_all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_met_is_remembered() {
        let mut recent = Recent::new();
        for key in 0..2 * KEYS as u128 {
            assert!(!recent.meet(key), "{key}");
            assert!(recent.meet(key), "{key}");
        }
        assert!(!recent.meet(0));
    }

    #[test]
    fn what_a_later_piece_met_says_nothing() {
        let mut recent = Recent::new();
        recent.begin_batch();
        let met = [(5, 1), (3, 1), (3, 2), (3, 2), (4, 1), (5, 1), (6, 2)].map(|(piece, key)| {
            recent.begin_piece(piece);
            recent.meet(key)
        });
        assert_eq!(met, [false, false, false, false, false, true, true]);
        recent.begin_batch();
        recent.begin_piece(0);
        assert!(recent.meet(1));
    }
}
