//! A set of small numbers with a short text: the missing writes of an epoch.

use std::fmt;

/// A set of numbers, written as the hexadecimal number that has these bits. Sets of numbers below
/// 64 need no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subset {
    low: u64,
    /// Words 1, 2, …; the last one is never 0, so that equal sets are equal values.
    high: Vec<u64>,
}

impl Subset {
    /// Makes the set with these words, lowest first.
    pub(crate) fn from_words(words: impl IntoIterator<Item = u64>) -> Subset {
        let mut words = words.into_iter();
        let mut set = Subset { low: words.next().unwrap_or(0), high: words.collect() };
        set.trim();
        set
    }

    /// Makes the set of all numbers below `len`.
    pub(crate) fn all_below(len: usize) -> Subset {
        let word = |index: usize| match len.saturating_sub(64 * index) {
            bits @ 0..64 => (1 << bits) - 1,
            _ => u64::MAX,
        };
        Subset::from_words((0..len.div_ceil(64)).map(word))
    }

    fn trim(&mut self) {
        while self.high.last() == Some(&0) {
            self.high.pop();
        }
    }

    fn word(&self, index: usize) -> u64 {
        match index {
            0 => self.low,
            _ => self.high.get(index - 1).copied().unwrap_or(0),
        }
    }

    /// Whether the number is in the set.
    pub fn contains(&self, number: usize) -> bool {
        self.word(number / 64) >> (number % 64) & 1 == 1
    }

    /// Adds a number.
    pub fn insert(&mut self, number: usize) {
        let bit = 1 << (number % 64);
        match number / 64 {
            0 => self.low |= bit,
            word => {
                self.high.resize(self.high.len().max(word), 0);
                self.high[word - 1] |= bit;
            }
        }
    }

    /// Takes a number out.
    pub fn remove(&mut self, number: usize) {
        let bit = 1_u64 << (number % 64);
        match number / 64 {
            0 => self.low &= !bit,
            word if word <= self.high.len() => self.high[word - 1] &= !bit,
            _ => {}
        }
        self.trim();
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        (self.low.count_ones() + self.high.iter().map(|word| word.count_ones()).sum::<u32>())
            as usize
    }

    /// Whether it has no member.
    pub fn is_empty(&self) -> bool {
        self.low == 0 && self.high.is_empty()
    }

    /// The largest number.
    pub fn last(&self) -> Option<usize> {
        let top = self.high.len();
        let word = self.word(top);
        (word != 0).then(|| 64 * top + word.ilog2() as usize)
    }

    /// The numbers in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.last().map_or(0, |last| last + 1)).filter(|&number| self.contains(number))
    }
}

impl fmt::Display for Subset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let top = self.high.len();
        write!(f, "{:x}", self.word(top))?;
        (0..top).rev().try_for_each(|index| write!(f, "{:016x}", self.word(index)))
    }
}

impl Subset {
    /// Reads a set as it is shown: its bits as a lower-case hexadecimal number.
    pub(super) fn from_text(text: &str) -> Option<Subset> {
        let digits = text.as_bytes();
        // One text per set: identities are compared as text too.
        let canonical = text == "0" || !text.starts_with('0');
        let hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if digits.is_empty() || !canonical || !digits.iter().all(hex) {
            return None;
        }
        let word = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).expect("hexadecimal digits are ASCII");
            u64::from_str_radix(digits, 16).expect("at most 16 hexadecimal digits")
        };
        Some(Subset::from_words(digits.rchunks(16).map(word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_and_sets_are_one_to_one() {
        for numbers in [vec![], vec![0], vec![3, 63], vec![64], vec![1, 130, 200]] {
            let mut set = Subset::default();
            numbers.iter().for_each(|&number| set.insert(number));
            assert!(set.iter().eq(numbers.iter().copied()), "{set}");
            assert_eq!(Subset::from_text(&set.to_string()), Some(set.clone()));
            assert_eq!((set.len(), set.last()), (numbers.len(), numbers.last().copied()));
            numbers.iter().for_each(|&number| set.remove(number));
            assert_eq!(set, Subset::default());
        }
        assert_eq!(Subset::all_below(70).to_string(), "3fffffffffffffffff");
        assert_eq!(Subset::all_below(64).len(), 64);
        for bad in ["", "00", "01", "A", "g", "-1", "+1", "0x1", "é"] {
            assert!(Subset::from_text(bad).is_none(), "{bad}");
        }
    }
}
