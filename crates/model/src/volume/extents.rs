//! A set of block numbers as sorted, disjoint ranges: the space that is reserved but not written.

/// Half-open ranges `(start, end)`, sorted, neither overlapping nor touching.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extents {
    ranges: Vec<(u64, u64)>,
}

impl Extents {
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn ranges(&self) -> &[(u64, u64)] {
        &self.ranges
    }

    /// Number of members.
    pub(super) fn count(&self) -> u64 {
        self.ranges.iter().map(|(start, end)| end - start).sum()
    }

    /// Number of members in `[start, end)`.
    pub(super) fn overlap(&self, start: u64, end: u64) -> u64 {
        let lo = self.ranges.partition_point(|range| range.1 <= start);
        self.ranges[lo..]
            .iter()
            .take_while(|range| range.0 < end)
            .map(|range| range.1.min(end) - range.0.max(start))
            .sum()
    }

    /// Adds `[start, end)`.
    pub(super) fn insert(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        // Ranges that overlap or touch the new one melt into it.
        let lo = self.ranges.partition_point(|range| range.1 < start);
        let hi = self.ranges.partition_point(|range| range.0 <= end);
        let merged = match self.ranges.get(lo..hi) {
            Some([first, ..]) => (first.0.min(start), self.ranges[hi - 1].1.max(end)),
            _ => (start, end),
        };
        self.ranges.splice(lo..hi, [merged]);
    }

    /// Removes `[start, end)`.
    pub(super) fn remove(&mut self, start: u64, end: u64) {
        let lo = self.ranges.partition_point(|range| range.1 <= start);
        let hi = self.ranges.partition_point(|range| range.0 < end);
        if start >= end || lo >= hi {
            return;
        }
        let left = (self.ranges[lo].0, start);
        let right = (end, self.ranges[hi - 1].1);
        let rest = [left, right].into_iter().filter(|range| range.0 < range.1);
        self.ranges.splice(lo..hi, rest);
    }

    /// Removes `[start, end)` and moves everything after it down to `start`.
    pub(super) fn collapse(&mut self, start: u64, end: u64) {
        self.remove(start, end);
        let moved = self.ranges.split_off(self.ranges.partition_point(|range| range.1 <= start));
        for (from, to) in moved {
            self.insert(from - (end - start), to - (end - start));
        }
    }

    /// Moves everything from `at` on up by `len`.
    pub(super) fn shift_up(&mut self, at: u64, len: u64) {
        let moved = self.ranges.split_off(self.ranges.partition_point(|range| range.1 <= at));
        for (from, to) in moved {
            self.insert(from, to.min(at));
            self.insert(from.max(at) + len, to + len);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn numbers(extents: &Extents) -> BTreeSet<u64> {
        extents.ranges.iter().flat_map(|&(start, end)| start..end).collect()
    }

    proptest! {
        #[test]
        fn behaves_like_a_set_of_numbers(
            steps in prop::collection::vec((0u8..4, 0u64..40, 0u64..12), 0..30)
        ) {
            let mut extents = Extents::default();
            let mut set = BTreeSet::new();
            for (what, start, len) in steps {
                let end = start + len;
                match what {
                    0 => {
                        extents.insert(start, end);
                        set.extend(start..end);
                    }
                    1 => {
                        extents.remove(start, end);
                        set.retain(|n| !(start..end).contains(n));
                    }
                    2 => {
                        extents.collapse(start, end);
                        set.retain(|n| !(start..end).contains(n));
                        set = set.iter().map(|&n| if n >= end { n - len } else { n }).collect();
                    }
                    _ => {
                        extents.shift_up(start, len);
                        set = set.iter().map(|&n| if n >= start { n + len } else { n }).collect();
                    }
                }
                prop_assert_eq!(numbers(&extents), set.clone());
                prop_assert_eq!(extents.count(), set.len() as u64);
                prop_assert_eq!(extents.overlap(7, 19), set.range(7..19).count() as u64);
                prop_assert!(extents.ranges.windows(2).all(|pair| pair[0].1 < pair[1].0));
            }
        }
    }
}
