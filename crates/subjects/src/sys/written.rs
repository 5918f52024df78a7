//! Where files may have data: what was ever written, whatever lseek(2) says.
//!
//! Reading a file of a tebibyte takes hours, and `SEEK_DATA` may be missing or wrong. But data is where
//! operations put it: a hole is something that nobody has written. One list serves all files of a run,
//! since names change and a page too many only costs a read.

use std::collections::BTreeMap;

use fathom_core::digest::PAGE_BYTES;

const PAGE: u64 = PAGE_BYTES as u64;

/// Ranges `[start, end)` of whole pages, apart from each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Written(BTreeMap<u64, u64>);

impl Written {
    /// Adds the pages of `[start, start + len)`.
    pub(super) fn add(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let mut end = start.saturating_add(len).div_ceil(PAGE).saturating_mul(PAGE);
        let mut start = start - start % PAGE;
        while let Some((&from, &to)) =
            self.0.range(..=end).next_back().filter(|(_, to)| **to >= start)
        {
            (start, end) = (start.min(from), end.max(to));
            self.0.remove(&from);
        }
        self.0.insert(start, end);
    }

    /// Everything may also be `by` bytes farther up or down.
    pub(super) fn shift(&mut self, by: i64) {
        for (start, end) in self.0.clone() {
            let moved = start.saturating_add_signed(by);
            self.add(moved, end.saturating_add_signed(by).saturating_sub(moved));
        }
    }

    /// The ranges below `size`.
    pub(super) fn below(&self, size: u64) -> impl Iterator<Item = (u64, u64)> {
        self.0.range(..size).map(move |(start, end)| (*start, (*end).min(size)))
    }

    /// Adds the ranges of another list.
    pub(super) fn extend(&mut self, ranges: impl IntoIterator<Item = (u64, u64)>) {
        for (start, end) in ranges {
            self.add(start, end.saturating_sub(start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(written: &Written) -> Vec<(u64, u64)> {
        written.below(u64::MAX).collect()
    }

    #[test]
    fn ranges_are_whole_pages_and_merge() {
        let mut written = Written::default();
        written.add(10, 0);
        written.add(5000, 1);
        assert_eq!(ranges(&written), [(4096, 8192)]);
        written.add(1 << 40, 4097);
        written.add(0, 1);
        assert_eq!(ranges(&written), [(0, 8192), (1 << 40, (1 << 40) + 8192)]);
        written.add(8000, 9000);
        assert_eq!(ranges(&written)[0], (0, 20480));
        assert_eq!(written.below(5000).collect::<Vec<_>>(), [(0, 5000)]);
        written.add(i64::MAX as u64 - 1, 1);
        assert_eq!(ranges(&written).len(), 3);
    }

    #[test]
    fn what_moved_is_in_both_places() {
        let mut written = Written::default();
        written.add(8192, 1);
        written.shift(-8192);
        assert_eq!(ranges(&written), [(0, 4096), (8192, 12288)]);
        written.shift(1 << 20);
        assert_eq!(ranges(&written).len(), 4);
    }
}
