//! Beginnings of workloads that were judged: workloads that begin alike are judged alike.
//!
//! ACE's sequences of two operations have a few hundred different beginnings. What a power failure
//! leaves in a beginning depends on nothing that comes later, so it is judged with the first workload
//! that has it. A kernel's disks are not equal to the byte each time (it draws the generations of inodes
//! at random and has clocks), so this is not taken on trust: one workload in [`REJUDGED_EVERY`] is judged
//! from its beginning, and what it shows there is compared with what was seen the first time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use fathom_core::{Digest, Op};
use serde::{Deserialize, Serialize};

/// One workload of so many with a known beginning is judged whole.
const REJUDGED_EVERY: u64 = 100;

/// Domain of the digest that tells beginnings apart.
const DOMAIN_PREFIX: u64 = 31;

/// How the known beginnings were used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefixCounts {
    /// Crash states of beginnings that were not judged again.
    pub answered: u64,
    /// Operations of known beginnings that were judged again.
    pub rejudged: u64,
    /// Those of them that showed a violation where there was none the first time, or none where there
    /// was one.
    pub refuted: u64,
}

/// The beginnings that were judged, and whether each showed a violation.
#[derive(Debug, Default)]
pub struct Prefixes {
    known: Mutex<Known>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Known {
    violated: HashMap<u64, bool>,
    counts: PrefixCounts,
    /// Workloads that began with something known.
    asked: u64,
}

/// What tells the beginnings of a workload apart: one digest for each operation.
pub(super) fn digests(before: &str, ops: &[Op]) -> Vec<u64> {
    let mut digest = Digest::of(DOMAIN_PREFIX, before.as_bytes());
    let mut next = |op: &Op| {
        let text = format!("{:032x} {op}", digest.0);
        digest = Digest::of(DOMAIN_PREFIX, text.as_bytes());
        digest.0 as u64
    };
    ops.iter().map(&mut next).collect()
}

impl Prefixes {
    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How they were used so far.
    pub fn counts(&self) -> PrefixCounts {
        self.lock().counts
    }

    /// How many operations at the beginning of a workload need not be judged again.
    pub(super) fn known(&self, digests: &[u64]) -> usize {
        let mut known = self.lock();
        let count = digests.iter().take_while(|digest| known.violated.contains_key(digest)).count();
        if count > 0 {
            known.asked += 1;
            if known.asked.is_multiple_of(REJUDGED_EVERY) {
                return 0;
            }
        }
        count
    }

    /// Notes crash states that were not judged again.
    pub(super) fn answer(&self, states: u64) {
        self.lock().counts.answered += states;
    }

    /// Notes that everything up to an operation was judged, and whether that operation showed a violation.
    pub(super) fn learn(&self, digest: u64, violated: bool) {
        let mut known = self.lock();
        match known.violated.insert(digest, violated) {
            None => {}
            Some(before) => {
                known.counts.rejudged += 1;
                known.counts.refuted += u64::from(before != violated);
            }
        }
    }

    /// All of it as bytes.
    pub(super) fn save(&self) -> Vec<u8> {
        postcard::to_stdvec(&*self.lock()).expect("plain data")
    }

    /// Takes over what was saved; false if it is not that.
    pub(super) fn load(&self, bytes: &[u8]) -> bool {
        let Ok(saved) = postcard::from_bytes::<Known>(bytes) else { return false };
        *self.lock() = saved;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beginnings_are_known_up_to_where_they_part_and_now_and_then_judged_again() {
        let prefixes = Prefixes::default();
        let one = digests("", &[Op::Sync, Op::Remount, Op::Sync]);
        let other = digests("", &[Op::Sync, Op::Remount, Op::Remount]);
        assert_eq!(one[..2], other[..2]);
        assert_ne!(one[2], other[2]);
        assert_ne!(digests("x", &[Op::Sync]), one[..1]);
        assert_eq!(prefixes.known(&one), 0);
        one.iter().for_each(|digest| prefixes.learn(*digest, false));
        let asked: Vec<usize> = (0..REJUDGED_EVERY).map(|_| prefixes.known(&other)).collect();
        assert_eq!(asked.iter().filter(|count| **count == 2).count(), asked.len() - 1);
        assert_eq!(asked.last(), Some(&0));
        prefixes.learn(one[0], false);
        prefixes.learn(one[1], true);
        prefixes.answer(7);
        let counts = PrefixCounts { answered: 7, rejudged: 2, refuted: 1 };
        assert_eq!(prefixes.counts(), counts);
        let again = Prefixes::default();
        assert!(again.load(&prefixes.save()));
        assert_eq!(again.counts(), counts);
        assert!(!again.load(b"x"));
    }
}
