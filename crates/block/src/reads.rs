//! Which parts of a disk an examination has read.
//!
//! A disk is divided into units. What counts is what was read *of the disk as it was given*: a unit
//! that the examination has itself written completely tells nothing about the disk any more. Units
//! are kept in the order of their first reading: a deterministic examination that has read the same
//! bytes so far reads the same unit next, which is how a [`Memo`](crate::disks::Memo) finds its way.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::geometry::Geometry;

/// Smaller units would make more of the noting than of the reading: littlefs reads at least this much
/// at once.
const UNIT_BYTES_MIN: usize = 64;

/// Larger units would lie in several leaves of an image.
const UNIT_BYTES_MAX: usize = 2048;

/// The parts of a disk that were read, in the order of their first reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadSet {
    unit_bytes: usize,
    /// `None`: everything may have been read.
    units: Option<Vec<u32>>,
}

impl ReadSet {
    /// Everything may have been read: the answer of an examination that cannot tell.
    pub fn everything() -> ReadSet {
        ReadSet { unit_bytes: 1, units: None }
    }

    /// These units of `unit_bytes` bytes, in the order of their first reading.
    pub fn of_units(unit_bytes: usize, units: Vec<u32>) -> ReadSet {
        ReadSet { unit_bytes, units: Some(units) }
    }

    /// Bytes of a unit.
    pub fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// The numbers of the units; `None` if everything may have been read.
    pub fn units(&self) -> Option<&[u32]> {
        self.units.as_deref()
    }
}

/// What was written to a device.
#[derive(Clone, Debug)]
pub struct Written(Vec<u64>);

/// Notes what is read of one device, and what is overwritten.
#[derive(Debug)]
pub struct Reads {
    unit_bits: u32,
    /// Units that were read, in order.
    order: Vec<u32>,
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
            order: Vec::with_capacity(64),
            read: vec![0; words],
            written: vec![0; words],
            all: AtomicBool::new(false),
        }
    }

    /// The same, for another device that starts as the disk was given: what was written to this one
    /// is not there.
    #[must_use]
    pub fn for_fresh_copy(mut self) -> Reads {
        self.written.fill(0);
        self
    }

    /// Forgets what was written and returns it, for [`Reads::put_written`].
    pub fn take_written(&mut self) -> Written {
        let words = self.written.len();
        Written(std::mem::replace(&mut self.written, vec![0; words]))
    }

    /// Says that the device has been written to like an earlier one.
    pub fn put_written(&mut self, written: Written) {
        self.written = written.0;
    }

    /// Notes that `len` bytes at `at` were read.
    #[inline]
    pub(crate) fn note_read(&mut self, at: usize, len: usize) {
        if len == 0 {
            return;
        }
        for unit in at >> self.unit_bits..=(at + len - 1) >> self.unit_bits {
            let (word, bit) = (unit / 64, 1 << (unit % 64));
            if (self.read[word] | self.written[word]) & bit == 0 {
                self.read[word] |= bit;
                self.order.push(unit as u32);
            }
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
    pub fn into_set(self) -> ReadSet {
        if self.all.load(Ordering::Relaxed) {
            return ReadSet::everything();
        }
        ReadSet::of_units(1 << self.unit_bits, self.order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(reads: Reads) -> Option<Vec<u32>> {
        reads.into_set().units().map(<[u32]>::to_vec)
    }

    #[test]
    fn the_first_reading_of_each_unit_counts() {
        let mut reads = Reads::new(&Geometry::flash(4096, 16, 512));
        reads.note_read(130, 1);
        reads.note_read(0, 64);
        reads.note_read(63, 2);
        reads.note_read(128, 64);
        reads.note_read(500, 0);
        assert_eq!(units(reads), Some(vec![2, 0, 1]));
    }

    #[test]
    fn what_was_overwritten_completely_tells_nothing() {
        let mut reads = Reads::new(&Geometry::flash(4096, 16, 512));
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
    fn seeing_all_contents_is_reading_everything() {
        let reads = Reads::new(&Geometry::disk(4096));
        reads.note_all();
        assert_eq!(reads.clone().into_set(), ReadSet::everything());
        assert_eq!(units(reads), None);
    }

    #[test]
    fn units_fit_every_geometry() {
        for (read_bytes, unit_bytes) in [(1, 64), (16, 64), (512, 512), (4096, 2048), (96, 128)] {
            let geometry = Geometry { read_bytes, ..Geometry::disk(1 << 20) };
            assert_eq!(Reads::new(&geometry).into_set().unit_bytes(), unit_bytes);
        }
    }
}
