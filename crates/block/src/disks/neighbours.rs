//! Disks that differ from one that was examined only where nobody looked.
//!
//! A kernel reads ahead and from several threads, so what it read is a set without an order, and the
//! tree of decisions of a [`Memo`](super::Memo) cannot hold it. But the disks of one power failure are
//! close to each other: they are the subsets of a few writes. If all places in which two of them differ
//! were never read when one was examined (mounted, walked, checked, used), the other one shows the same.
//!
//! What was wrong with a disk is never passed on to another one: only facts without any trouble answer.
//! One answer of [`VERIFIED_EVERY`] is compared with an examination.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use serde::{Deserialize, Serialize};

use super::facts::{Checked, Facts, Questions};
use crate::image::Image;

/// One answer of so many is verified.
const VERIFIED_EVERY: u64 = 100;

/// Examined disks that are kept: those of the power failure that is being judged.
const KEPT_MAX: usize = 48;

/// So many examinations may tell what they read before they must have paid for it.
const TRIED: u64 = 24;

/// Telling what was read is tried again for one batch in so many if it has not paid so far.
const TRIED_AGAIN_EVERY: u64 = 16;

/// How read sets were used: those of whole examinations, or of what comes after the first look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PruneCounts {
    /// Examinations that told what they read.
    pub told: u64,
    /// Disks that differed from an examined one only where it was not read, and were not examined.
    pub pruned: u64,
    /// Answers that were compared with an examination.
    pub verified: u64,
    /// Those that were wrong. Nothing is pruned from the first one on.
    pub refuted: u64,
}

#[derive(Debug)]
struct Examined {
    questions: Questions,
    disk: Image,
    /// One bit for each unit that was read.
    read: Vec<u64>,
    unit_bytes: usize,
    facts: Arc<Facts>,
}

/// Disks that were examined lately, with what was read of them.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    examined: RwLock<VecDeque<Examined>>,
    off: AtomicBool,
    batches: AtomicU64,
    told: AtomicU64,
    pruned: AtomicU64,
    verified: AtomicU64,
    refuted: AtomicU64,
}

impl Neighbours {
    /// Switches them off.
    pub(super) fn disable(&self) {
        self.off.store(true, Ordering::Relaxed);
        self.examined.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// How they were used so far.
    pub(super) fn counts(&self) -> PruneCounts {
        PruneCounts {
            told: self.told.load(Ordering::Relaxed),
            pruned: self.pruned.load(Ordering::Relaxed),
            verified: self.verified.load(Ordering::Relaxed),
            refuted: self.refuted.load(Ordering::Relaxed),
        }
    }

    /// Whether the next batch is worth knowing what is read: each examination that told it must have
    /// spared another one so far. It is tried again now and then, since workloads differ.
    pub(super) fn pay(&self) -> bool {
        let counts = self.counts();
        let again = self.batches.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRIED_AGAIN_EVERY);
        let off = self.off.load(Ordering::Relaxed);
        !off && (counts.told < TRIED || counts.pruned >= counts.told || again)
    }

    /// Keeps an examination that told what it read, in no order.
    pub(super) fn learn(&self, disk: &Image, questions: &Questions, facts: &Arc<Facts>) {
        let Some(units) = facts.read.unordered_units() else { return };
        self.told.fetch_add(1, Ordering::Relaxed);
        if !is_harmless(facts) || self.off.load(Ordering::Relaxed) {
            return;
        }
        let unit_bytes = facts.read.unit_bytes();
        let mut read = vec![0; disk.size().div_ceil(unit_bytes).div_ceil(64)];
        for unit in units {
            if let Some(word) = read.get_mut(unit as usize / 64) {
                *word |= 1 << (unit % 64);
            }
        }
        // How its rest was known is counted for this disk, not for those that it answers for.
        let mut facts = Arc::clone(facts);
        if facts.rest != PruneCounts::default() {
            Arc::make_mut(&mut facts).rest = PruneCounts::default();
        }
        let (questions, disk) = (*questions, disk.clone());
        let mut examined = self.examined.write().unwrap_or_else(PoisonError::into_inner);
        examined.push_front(Examined { questions, disk, read, unit_bytes, facts });
        examined.truncate(KEPT_MAX);
    }

    /// The facts of an examined disk that differs only where it was not read.
    pub(super) fn find(&self, disk: &Image, questions: &Questions) -> Option<Arc<Facts>> {
        let examined = self.examined.read().unwrap_or_else(PoisonError::into_inner);
        let same = |known: &&Examined| known.questions == *questions && known.is_alike(disk);
        examined.iter().find(same).map(|known| Arc::clone(&known.facts))
    }

    /// Counts an answer; whether it is one of those that are verified.
    pub(super) fn answer(&self) -> bool {
        self.pruned.fetch_add(1, Ordering::Relaxed).is_multiple_of(VERIFIED_EVERY)
    }

    /// Compares an answer with an examination.
    pub(super) fn verify(&self, answer: &Facts, found: &Facts) {
        self.verified.fetch_add(1, Ordering::Relaxed);
        if !answer.agree_with(found) {
            self.refuted.fetch_add(1, Ordering::Relaxed);
            self.disable();
        }
    }
}

impl Examined {
    /// Whether a disk is equal to this one wherever this one was read.
    fn is_alike(&self, disk: &Image) -> bool {
        let was_read = |unit: usize| {
            self.read.get(unit / 64).is_none_or(|word| word & (1 << (unit % 64)) != 0)
        };
        let flow = self.disk.visit_differences(disk, &mut |part| {
            let units = part.start / self.unit_bytes..part.end.div_ceil(self.unit_bytes);
            match units.into_iter().any(was_read) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        flow.is_continue()
    }
}

/// Whether nothing at all is wrong with a disk.
fn is_harmless(facts: &Facts) -> bool {
    let readable = facts.view.as_ref().is_ok_and(|view| view.broken.is_none());
    let content = !matches!(facts.checker, Checked::Complains(_));
    readable && content && facts.trouble.is_none() && facts.kernel_lines.is_empty()
}

#[cfg(test)]
mod tests {
    use fathom_core::Tree;

    use super::super::facts::{Trouble, View};
    use super::*;
    use crate::image::Erased;
    use crate::reads::ReadSet;

    const UNIT_BYTES: usize = 4096;

    fn examined(units: &[u32]) -> Facts {
        let mut facts = Facts::new(Ok(View::new(&Arc::new(Tree::default()), true)));
        facts.read = ReadSet::unordered(UNIT_BYTES, units.iter().copied());
        facts
    }

    #[test]
    fn only_a_disk_that_is_equal_where_it_was_read_is_answered() {
        let neighbours = Neighbours::default();
        let mut disk = Image::new(64 * UNIT_BYTES, Erased::Zeros);
        disk.write(3 * UNIT_BYTES, b"read");
        neighbours.learn(&disk, &Questions::TREE, &Arc::new(examined(&[3, 9])));
        assert!(neighbours.find(&disk, &Questions::TREE).is_some());
        assert!(neighbours.find(&disk, &Questions::VIEW).is_none(), "something else was asked");
        for (at, answered) in [(0, true), (3, false), (4, true), (9, false), (63, true)] {
            let mut other = disk.clone();
            other.write(at * UNIT_BYTES + UNIT_BYTES - 1, b"x");
            let found = neighbours.find(&other, &Questions::TREE);
            assert_eq!(found.is_some(), answered, "a change of unit {at}");
        }
        assert_eq!(neighbours.counts().told, 1);
    }

    #[test]
    fn how_a_rest_was_known_is_not_passed_on() {
        let neighbours = Neighbours::default();
        let disk = Image::new(4 * UNIT_BYTES, Erased::Zeros);
        let rest = PruneCounts { pruned: 1, ..PruneCounts::default() };
        let known = Facts { rest, ..examined(&[]) };
        neighbours.learn(&disk, &Questions::TREE, &Arc::new(known));
        let answer = neighbours.find(&disk, &Questions::TREE).expect("nothing is wrong");
        assert_eq!(answer.rest, PruneCounts::default());
    }

    #[test]
    fn what_is_wrong_is_not_passed_on_and_a_wrong_answer_ends_it() {
        let neighbours = Neighbours::default();
        let disk = Image::new(4 * UNIT_BYTES, Erased::Zeros);
        let troubled = Facts { trouble: Some(Trouble::TwoTrees), ..examined(&[]) };
        neighbours.learn(&disk, &Questions::TREE, &Arc::new(troubled.clone()));
        assert!(neighbours.find(&disk, &Questions::TREE).is_none());
        neighbours.learn(&disk, &Questions::TREE, &Arc::new(examined(&[])));
        let answer = neighbours.find(&disk, &Questions::TREE).expect("nothing is wrong");
        assert!(neighbours.answer(), "the first answer is verified");
        neighbours.verify(&answer, &troubled);
        assert!(neighbours.find(&disk, &Questions::TREE).is_none());
        assert!(!neighbours.pay());
        let counts = PruneCounts { told: 2, pruned: 1, verified: 1, refuted: 1 };
        assert_eq!(neighbours.counts(), counts);
    }

    #[test]
    fn what_does_not_pay_is_seldom_tried() {
        let neighbours = Neighbours::default();
        let disk = Image::new(4 * UNIT_BYTES, Erased::Zeros);
        for _ in 0..TRIED {
            assert!(neighbours.pay());
            neighbours.learn(&disk, &Questions::TREE, &Arc::new(examined(&[])));
        }
        let tried = (0..TRIED_AGAIN_EVERY).filter(|_| neighbours.pay()).count();
        assert_eq!(tried, 1);
        (0..TRIED).for_each(|_| assert!(neighbours.pruned.fetch_add(1, Ordering::Relaxed) < 999));
        assert!(neighbours.pay() && neighbours.pay());
    }
}
