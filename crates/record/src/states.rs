//! The states that a run has visited, small enough to keep and to unite with those of other runs.
//!
//! A [`Sketch`] keeps the smallest [`VALUES_MAX`] hashes of all states (Bar-Yossef and others, *Counting
//! distinct elements in a data stream*, 2002). Below that number it *is* the set, and counts exactly;
//! above, the number of states follows from how close to zero the smallest hashes lie, with a standard
//! error of 1/√(n−2): 1.6 %. The union of two sketches is the sketch of the union, so it can be made in any
//! order, as often as one likes, and while the runs go on.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The name of the file in the directory of a run.
pub const STATES_FILE: &str = "states.sketch";

/// Hashes that are kept.
pub const VALUES_MAX: usize = 4096;

/// Greatest length of the name of a space of states.
const SPACE_BYTES_MAX: usize = 400;

/// The first line of the file.
const MAGIC: &str = "fathom states 1";

/// The smallest hashes of a set of states: ascending, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sketch {
    values: Vec<u64>,
}

/// A number of states.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The number.
    pub states: u64,
    /// Its relative standard error; 0 if it was counted.
    pub error: f64,
}

impl Sketch {
    /// The number of states.
    pub fn estimate(&self) -> Estimate {
        match self.values.get(VALUES_MAX - 1) {
            None => Estimate { states: self.values.len() as u64, error: 0.0 },
            Some(&last) => {
                let share = (last as f64 + 1.0) / (u64::MAX as f64 + 1.0);
                let states = ((VALUES_MAX - 1) as f64 / share).round() as u64;
                Estimate { states, error: 1.0 / ((VALUES_MAX - 2) as f64).sqrt() }
            }
        }
    }

    /// Adds the states of another one.
    pub fn unite(&mut self, other: &Sketch) {
        self.values.extend_from_slice(&other.values);
        tidy(&mut self.values);
    }

    /// The file: the name of the space that the states belong to, the hashes, a checksum.
    pub fn encode(&self, space: &str) -> Vec<u8> {
        let space: String = space.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let end =
            (0..=SPACE_BYTES_MAX.min(space.len())).rev().find(|at| space.is_char_boundary(*at));
        let mut bytes = format!("{MAGIC}\n{}\n", &space[..end.unwrap_or(0)]).into_bytes();
        for value in &self.values {
            bytes.extend_from_slice(&value.to_le_bytes());
        }
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Reads a file: the name of its space, and the sketch. Whoever wrote it need not be a friend.
    ///
    /// # Errors
    /// In words, if it is damaged.
    pub fn decode(bytes: &[u8]) -> Result<(String, Sketch), String> {
        let (body, sum) = bytes.split_last_chunk::<8>().ok_or("it is cut off")?;
        if checksum(body) != u64::from_le_bytes(*sum) {
            return Err("its checksum does not fit".to_owned());
        }
        let rest = body.strip_prefix(MAGIC.as_bytes()).and_then(|rest| rest.strip_prefix(b"\n"));
        let rest = rest.ok_or("it is no sketch of states, or of another version")?;
        let end = rest.iter().position(|byte| *byte == b'\n').ok_or("it has no space")?;
        let space = std::str::from_utf8(&rest[..end]).map_err(|_| "its space is no text")?;
        if space.len() > SPACE_BYTES_MAX || space.chars().any(char::is_control) {
            return Err("its space has no proper name".to_owned());
        }
        let (values, left) = rest[end + 1..].as_chunks::<8>();
        if !left.is_empty() || values.len() > VALUES_MAX {
            return Err("it has not the length of a sketch".to_owned());
        }
        let values: Vec<u64> = values.iter().map(|value| u64::from_le_bytes(*value)).collect();
        if !values.is_sorted_by(|a, b| a < b) {
            return Err("its hashes are not in order".to_owned());
        }
        Ok((space.to_owned(), Sketch { values }))
    }
}

/// Sorts, and keeps the smallest of each kind.
fn tidy(values: &mut Vec<u64>) {
    values.sort_unstable();
    values.dedup();
    values.truncate(VALUES_MAX);
}

/// FNV-1a: against accidents, not against people.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A sketch that all threads of a run add to. Clones are the same sketch.
#[derive(Clone)]
pub struct VisitedStates(Arc<Shared>);

struct Shared {
    /// Hashes that are not smaller cannot be among the smallest any more.
    bound: AtomicU64,
    /// Up to twice as many as are kept, unsorted.
    values: Mutex<Vec<u64>>,
}

impl VisitedStates {
    /// Adds a state by its digest. Almost always one comparison.
    #[inline]
    pub fn add(&self, digest: u128) {
        let value = mix((digest >> 64) as u64 ^ mix(digest as u64));
        if value < self.0.bound.load(Ordering::Relaxed) {
            self.keep(value);
        }
    }

    #[cold]
    fn keep(&self, value: u64) {
        let mut values = self.0.values.lock().unwrap_or_else(PoisonError::into_inner);
        values.push(value);
        if values.len() >= 2 * VALUES_MAX {
            tidy(&mut values);
            if let Some(&last) = values.get(VALUES_MAX - 1) {
                self.0.bound.store(last, Ordering::Relaxed);
            }
        }
    }

    /// The states so far.
    pub fn sketch(&self) -> Sketch {
        let mut values = self.0.values.lock().unwrap_or_else(PoisonError::into_inner);
        tidy(&mut values);
        Sketch { values: values.clone() }
    }
}

impl Default for VisitedStates {
    fn default() -> VisitedStates {
        let bound = AtomicU64::new(u64::MAX);
        VisitedStates(Arc::new(Shared { bound, values: Mutex::new(Vec::new()) }))
    }
}

impl fmt::Debug for VisitedStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VisitedStates")
    }
}

/// Two handles are equal if they are the same sketch.
impl PartialEq for VisitedStates {
    fn eq(&self, other: &VisitedStates) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for VisitedStates {}

/// The finalizer of SplitMix64 (Steele, Lea and Flood, 2014): every bit depends on every bit.
#[inline]
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sketch(states: impl IntoIterator<Item = u128>) -> Sketch {
        let visited = VisitedStates::default();
        states.into_iter().for_each(|state| visited.add(state));
        visited.sketch()
    }

    #[test]
    fn few_states_are_counted_and_many_are_estimated_within_the_error() {
        for states in [0, 1, 4000, 4095] {
            assert_eq!(sketch(0..states).estimate().states, states as u64);
            assert_eq!(sketch(0..states).estimate().error, 0.0);
        }
        for states in [5000_u128, 100_000, 1_000_000] {
            let Estimate { states: found, error } = sketch((0..states).chain(0..9)).estimate();
            let off = (found as f64 / states as f64 - 1.0).abs();
            assert!(error > 0.015 && off < 4.0 * error, "{found} of {states}");
        }
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let good = sketch(0..100).encode("trees");
        assert_eq!(Sketch::decode(&good), Ok(("trees".to_owned(), sketch(0..100))));
        for at in 0..good.len() {
            assert!(Sketch::decode(&good[..at]).is_err(), "cut off at {at}");
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(Sketch::decode(&bad).is_err(), "damaged at {at}");
        }
    }

    proptest! {
        #[test]
        fn the_union_is_that_of_the_sets_in_any_order(
            parts in prop::collection::vec((0_u128..40_000, 0_u128..6000), 1..6),
            order in any::<u64>(),
        ) {
            let ranges = || parts.iter().map(|(from, len)| *from..from + len);
            let whole = sketch(ranges().flatten());
            let mut sketches: Vec<Sketch> = ranges().map(sketch).collect();
            let turn = (order as usize) % sketches.len();
            sketches.rotate_left(turn);
            sketches.push(sketches[0].clone());
            let mut united = Sketch::default();
            sketches.iter().for_each(|sketch| united.unite(sketch));
            prop_assert_eq!(united, whole);
        }

        #[test]
        fn nothing_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Sketch::decode(&bytes).is_err());
        }

        #[test]
        fn names_of_spaces_survive(space in "\\PC{0,300}") {
            let (read, _) = Sketch::decode(&Sketch::default().encode(&space)).unwrap();
            prop_assert!(space.starts_with(&read));
        }
    }
}
