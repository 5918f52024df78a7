//! A thread's memory of the keys it met last.
//!
//! Most children are met several times, and mostly within a short time. A thread takes the pieces of
//! a search in ascending order, so a key that it has met before was met by an earlier parent: the
//! new arrival would be found known, and can be dropped without asking the visited set (which is
//! large and far away in memory) and without keeping the state until then.

/// Keys that are kept; 128 KiB of them, which fits beside other things into a second-level cache.
const KEYS: usize = 1 << 13;

/// The keys met last, at most one for each value of some of its bits.
pub(super) struct Recent {
    keys: Vec<u128>,
}

impl Recent {
    pub(super) fn new() -> Recent {
        // A key 0 would be found although nobody met it: its place is taken by one that cannot be
        // looked for there.
        let mut keys = vec![0; KEYS];
        keys[0] = 1;
        Recent { keys }
    }

    /// Remembers a key; true if it was remembered already.
    #[inline]
    pub(super) fn meet(&mut self, key: u128) -> bool {
        let place = &mut self.keys[key as usize % KEYS];
        std::mem::replace(place, key) == key
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
}
