//! Which parts of a disk an examination has read.
//!
//! A disk is divided into units. What counts is what was read *of the disk as it was given*: a unit
//! that the examination has itself written completely tells nothing about the disk any more. Units
//! are kept in the order of their first reading: a deterministic examination that has read the same
//! bytes so far reads the same unit next, which is how a [`Memo`](crate::disks::Memo) finds its way.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::geometry::Geometry;

/// What flash is read in. Smaller units than the device reads at once would say nothing more; larger
/// ones would say that more was read than was: littlefs reads the first 16 bytes of a block to see
/// that it is the older one of two. With units of 64 bytes 16,496 of the 30,054 images of the default
/// run were answered by the memo, with these 20,980.
const UNIT_BYTES_MIN: usize = 16;

/// Larger units would lie in several leaves of an image.
const UNIT_BYTES_MAX: usize = 2048;

/// The bits of the units from `first` to `last` in a word of 64 units.
#[inline]
fn word_mask(word: usize, first: usize, last: usize) -> u64 {
    let start = word * 64;
    let from = first.saturating_sub(start);
    let to = (last - start).min(63);
    (u64::MAX << from) & (u64::MAX >> (63 - to))
}

/// The parts of a disk that were read, in the order of their first reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadSet {
    unit_bytes: usize,
    /// `None`: everything may have been read.
    stretches: Option<Stretches>,
    /// Whether the order of the units is that of their first reading.
    ordered: bool,
}

/// Numbers of units in the order of their first reading. Neighbours are mostly read one after the
/// other: each entry is the first of so many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Stretches(Vec<(u32, u32)>);

impl Stretches {
    #[inline]
    fn push(&mut self, unit: u32) {
        match self.0.last_mut() {
            Some((first, count)) if *first + *count == unit => *count += 1,
            _ => self.0.push((unit, 1)),
        }
    }

    fn units(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|(first, count)| *first..*first + *count)
    }
}

impl ReadSet {
    /// Everything may have been read: the answer of an examination that cannot tell.
    pub fn everything() -> ReadSet {
        ReadSet { unit_bytes: 1, stretches: None, ordered: true }
    }

    /// These units of `unit_bytes` bytes, in the order of their first reading.
    pub fn of_units(unit_bytes: usize, units: impl IntoIterator<Item = u32>) -> ReadSet {
        let mut stretches = Stretches::default();
        units.into_iter().for_each(|unit| stretches.push(unit));
        ReadSet { unit_bytes, stretches: Some(stretches), ordered: true }
    }

    /// These units of `unit_bytes` bytes; in which order nobody knows.
    pub fn unordered(unit_bytes: usize, units: impl IntoIterator<Item = u32>) -> ReadSet {
        ReadSet { ordered: false, ..ReadSet::of_units(unit_bytes, units) }
    }

    /// Bytes of a unit.
    pub fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// The numbers of the units in the order of their first reading; `None` if that is not known, or
    /// everything may have been read.
    pub fn units(&self) -> Option<impl Iterator<Item = u32>> {
        self.stretches.as_ref().filter(|_| self.ordered).map(Stretches::units)
    }

    /// The numbers of the units that were read in an order that nobody knows.
    pub fn unordered_units(&self) -> Option<impl Iterator<Item = u32>> {
        self.stretches.as_ref().filter(|_| !self.ordered).map(Stretches::units)
    }
}

/// What was written to a device.
#[derive(Clone, Debug)]
pub(crate) struct Written(Vec<u64>);

/// Notes what is read of one device, and what is overwritten.
#[derive(Debug)]
pub struct Reads {
    unit_bits: u32,
    /// Units that were read, in order.
    order: Stretches,
    /// Units that were read.
    read: Vec<u64>,
    /// Units that were written or erased completely since the device was given.
    written: Vec<u64>,
    /// Whether somebody has seen the contents without reading.
    all: AtomicBool,
}

impl Clone for Reads {
    fn clone(&self) -> Reads {
        let Reads { unit_bits, order, read, written, all } = self;
        Reads {
            unit_bits: *unit_bits,
            order: order.clone(),
            read: read.clone(),
            written: written.clone(),
            all: AtomicBool::new(all.load(Ordering::Relaxed)),
        }
    }
}

impl Reads {
    /// Nothing was read yet of a device of this shape.
    pub fn new(geometry: &Geometry) -> Reads {
        let unit_bytes = geometry.read_bytes.next_power_of_two();
        let unit_bytes = unit_bytes.clamp(UNIT_BYTES_MIN, UNIT_BYTES_MAX);
        let words = geometry.size_bytes.div_ceil(unit_bytes).div_ceil(64);
        Reads {
            unit_bits: unit_bytes.trailing_zeros(),
            order: Stretches(Vec::with_capacity(32)),
            read: vec![0; words],
            written: vec![0; words],
            all: AtomicBool::new(false),
        }
    }

    /// The same, for another device that starts as the disk was given: what was written to this one
    /// is not there.
    #[must_use]
    pub(crate) fn for_fresh_copy(mut self) -> Reads {
        self.written.fill(0);
        self
    }

    /// Forgets what was written and returns it, for [`Reads::put_written`].
    pub(crate) fn take_written(&mut self) -> Written {
        let words = self.written.len();
        Written(std::mem::replace(&mut self.written, vec![0; words]))
    }

    /// Says that the device has been written to like an earlier one.
    pub(crate) fn put_written(&mut self, written: Written) {
        self.written = written.0;
    }

    /// Notes that `len` bytes at `at` were read.
    #[inline]
    pub(crate) fn note_read(&mut self, at: usize, len: usize) {
        if len == 0 {
            return;
        }
        let (first, last) = (at >> self.unit_bits, (at + len - 1) >> self.unit_bits);
        for word in first / 64..=last / 64 {
            let mut new = word_mask(word, first, last) & !(self.read[word] | self.written[word]);
            self.read[word] |= new;
            while new != 0 {
                self.order.push((word * 64) as u32 + new.trailing_zeros());
                new &= new - 1;
            }
        }
    }

    /// Notes that what an examination of another disk has read was read of this one too; false if
    /// that is not known, or not known in the same units.
    #[must_use]
    pub(crate) fn note_set(&mut self, set: &ReadSet) -> bool {
        match &set.stretches {
            Some(stretches) if set.unit_bytes == 1 << self.unit_bits => {
                for (first, count) in &stretches.0 {
                    let (at, len) = (*first as usize, *count as usize);
                    self.note_read(at << self.unit_bits, len << self.unit_bits);
                }
                true
            }
            _ => false,
        }
    }

    /// Notes that `len` bytes at `at` were overwritten or erased. A unit that is overwritten in parts
    /// still tells something about the disk.
    #[inline]
    pub(crate) fn note_written(&mut self, at: usize, len: usize) {
        let first = at.div_ceil(1 << self.unit_bits);
        for unit in first..(at + len) >> self.unit_bits {
            self.written[unit / 64] |= 1 << (unit % 64);
        }
    }

    /// Notes that somebody could see all contents.
    #[inline]
    pub(crate) fn note_all(&self) {
        self.all.store(true, Ordering::Relaxed);
    }

    /// What was read of the disk as it was given.
    pub(crate) fn into_set(self) -> ReadSet {
        if self.all.load(Ordering::Relaxed) {
            return ReadSet::everything();
        }
        ReadSet { unit_bytes: 1 << self.unit_bits, stretches: Some(self.order), ordered: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(reads: Reads) -> Option<Vec<u32>> {
        reads.into_set().units().map(Iterator::collect)
    }

    #[test]
    fn the_first_reading_of_each_unit_counts() {
        let mut reads = Reads::new(&Geometry::flash(4096, 64, 512));
        reads.note_read(130, 1);
        reads.note_read(0, 64);
        reads.note_read(63, 2);
        reads.note_read(128, 64);
        reads.note_read(500, 0);
        assert_eq!(units(reads), Some(vec![2, 0, 1]));
    }

    #[test]
    fn what_was_overwritten_completely_tells_nothing() {
        let mut reads = Reads::new(&Geometry::flash(4096, 64, 512));
        reads.note_written(64, 128);
        reads.note_written(200, 100);
        reads.note_read(0, 512);
        // Units 1 and 2 were written, 3 only its end, 4 only its beginning.
        assert_eq!(units(reads.clone()), Some(vec![0, 3, 4, 5, 6, 7]));
        let mut fresh = reads.for_fresh_copy();
        fresh.note_read(64, 64);
        assert_eq!(units(fresh), Some(vec![0, 3, 4, 5, 6, 7, 1]));
    }

    #[test]
    fn a_reading_over_several_words_notes_each_unit_once() {
        let mut reads = Reads::new(&Geometry::flash(1 << 14, 16, 512));
        reads.note_read(63 * 16, 16);
        reads.note_read(60 * 16, 140 * 16);
        let rest = (60..63).chain(64..200);
        assert_eq!(units(reads), Some([63].into_iter().chain(rest).collect()));
    }

    #[test]
    fn what_another_examination_read_is_read_in_its_order() {
        let geometry = Geometry::flash(4096, 64, 512);
        let mut other = Reads::new(&geometry);
        other.note_read(640, 128);
        other.note_read(0, 64);
        let mut reads = Reads::new(&geometry);
        reads.note_read(704, 64);
        assert!(reads.note_set(&other.into_set()));
        assert!(!reads.note_set(&ReadSet::everything()));
        assert!(!reads.note_set(&ReadSet::of_units(16, [1])));
        assert_eq!(units(reads), Some(vec![11, 10, 0]));
    }

    #[test]
    fn seeing_all_contents_is_reading_everything() {
        let reads = Reads::new(&Geometry::disk(4096));
        reads.note_all();
        assert_eq!(reads.clone().into_set(), ReadSet::everything());
        assert_eq!(units(reads), None);
    }

    #[test]
    fn units_fit_every_geometry() {
        for (read_bytes, unit_bytes) in [(1, 16), (16, 16), (512, 512), (4096, 2048), (96, 128)] {
            let geometry = Geometry { read_bytes, ..Geometry::disk(1 << 20) };
            assert_eq!(Reads::new(&geometry).into_set().unit_bytes(), unit_bytes);
        }
    }
}
