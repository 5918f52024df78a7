//! What is known of the rest of an examination, after the first look: the checker, the second mount, the use.
//!
//! Most disks that a power failure may leave are one of a few once recovery has run: the journal was replayed
//! up to here or up to there. They still differ in blocks that recovery read and nobody will read again, so the
//! read sets of whole examinations do not say that they are alike. Those of the rest do: if the unmounted disk
//! is equal to an earlier one wherever the rest was read of that, the rest shows the same, and it takes ten
//! times as long as the first look.
//!
//! As with whole examinations ([`fathom_block::disks::Memo`]) only a rest without any trouble answers, one
//! answer in [`VERIFIED_EVERY`] is compared with an examination, and a wrong one switches this off.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use fathom_block::Image;
use fathom_block::disks::{Checked, Questions};
use fathom_core::Digest;

use super::shared::UNIT_BYTES;
use super::usable::Filling;

/// One answer of so many is verified.
const VERIFIED_EVERY: u64 = 100;

/// Disks that are kept. A workload of ACE ends in a dozen; on a host whose clock is in the disk each of them
/// comes in several versions.
const KEPT_MAX: usize = 96;

/// So many disks may tell what was read before they must have paid for it: those of a workload.
const TRIED: u64 = 12;

/// Telling is tried again after so many disks if it has not paid so far, and after twice as many each time that it
/// did not pay either: where all disks differ, one that tells takes as long as several others.
const TRIED_AGAIN_AFTER: u64 = 32;
const TRIED_AGAIN_AFTER_MAX: u64 = 1024;

/// A disk as recovery left it, and what the rest of its examination came to.
struct Known {
    asked: Asked,
    disk: Image,
    /// The units that the rest has read, in ascending order.
    units: Arc<[u32]>,
    checker: Checked,
}

/// What the rest depends on beside the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) questions: Questions,
    /// The tree of the first look, which the second one is compared with.
    pub(super) tree: Digest,
    pub(super) filling: Option<Filling>,
}

/// An answer without an examination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) checker: Checked,
    /// What an examination would have read of the disk.
    pub(super) units: Arc<[u32]>,
    /// Whether it is to be compared with an examination.
    pub(super) verify: bool,
}

/// What examiners know, all of them together.
#[derive(Default)]
pub(super) struct RestMemo {
    known: RwLock<VecDeque<Known>>,
    off: AtomicBool,
    told: AtomicU64,
    answered: AtomicU64,
    trial: Mutex<Trial>,
}

/// When telling is tried although it has not paid.
struct Trial {
    /// Disks until then.
    left: u64,
    /// Disks between this time and the last one.
    every: u64,
    /// Answers at the last time.
    answered: u64,
}

impl Default for Trial {
    fn default() -> Trial {
        Trial { left: TRIED_AGAIN_AFTER, every: TRIED_AGAIN_AFTER, answered: 0 }
    }
}

impl Trial {
    /// Whether it is this disk's turn; `answered`: how many disks were answered so far.
    fn is_due(&mut self, answered: u64) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.every = match answered > self.answered {
            true => TRIED_AGAIN_AFTER,
            false => (2 * self.every).min(TRIED_AGAIN_AFTER_MAX),
        };
        (self.left, self.answered) = (self.every, answered);
        true
    }
}

impl RestMemo {
    /// The rest of an examination whose first look has left a disk; `bytes` are those of the disk at an offset.
    pub(super) fn answer<'d>(
        &self,
        asked: &Asked,
        bytes: impl Fn(usize, usize) -> Option<&'d [u8]>,
    ) -> Option<Answer> {
        if self.off.load(Ordering::Relaxed) {
            return None;
        }
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let alike = |known: &&Known| known.asked == *asked && known.is_alike(&bytes);
        let known = known.iter().find(alike)?;
        let (checker, units) = (known.checker.clone(), Arc::clone(&known.units));
        let verify = self.answered.fetch_add(1, Ordering::Relaxed).is_multiple_of(VERIFIED_EVERY);
        Some(Answer { checker, units, verify })
    }

    /// Whether the next rest is worth knowing what it reads, which takes longer: each that told it must have
    /// answered for two others so far. It is tried again now and then, since workloads differ.
    pub(super) fn pays(&self) -> bool {
        let (told, answered) =
            (self.told.load(Ordering::Relaxed), self.answered.load(Ordering::Relaxed));
        if told < TRIED || answered >= 2 * told {
            return !self.off.load(Ordering::Relaxed);
        }
        let mut trial = self.trial.lock().unwrap_or_else(PoisonError::into_inner);
        trial.is_due(answered) && !self.off.load(Ordering::Relaxed)
    }

    /// Counts a rest that told what it read.
    pub(super) fn count_told(&self) {
        self.told.fetch_add(1, Ordering::Relaxed);
    }

    /// Keeps a rest without any trouble, with the units of the disk that it has read.
    pub(super) fn learn(&self, asked: &Asked, disk: Image, units: Arc<[u32]>, checker: Checked) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.push_front(Known { asked: *asked, disk, units, checker });
        known.truncate(KEPT_MAX);
    }

    /// An answer was wrong: there is no other one.
    pub(super) fn switch_off(&self) {
        self.off.store(true, Ordering::Relaxed);
        self.known.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl Known {
    fn is_alike<'d>(&self, bytes: impl Fn(usize, usize) -> Option<&'d [u8]>) -> bool {
        self.units.iter().all(|unit| {
            let at = *unit as usize * UNIT_BYTES;
            let mut from = at;
            let len = UNIT_BYTES.min(self.disk.size().saturating_sub(at));
            self.disk.slices(at, len).all(|part| {
                let same = bytes(from, part.len()) == Some(part);
                from += part.len();
                same
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use fathom_block::Erased;

    use super::*;

    const ASKED: Asked = Asked { questions: Questions::TREE, tree: Digest(1), filling: None };

    fn disk() -> Image {
        let mut disk = Image::new(16 * UNIT_BYTES, Erased::Zeros);
        disk.write(3 * UNIT_BYTES, b"read");
        disk
    }

    fn answer(memo: &RestMemo, asked: &Asked, disk: &Image) -> Option<Answer> {
        let bytes = disk.to_vec();
        memo.answer(asked, |at, len| bytes.get(at..at + len))
    }

    #[test]
    fn a_disk_that_is_equal_wherever_the_rest_was_read_is_answered() {
        let memo = RestMemo::default();
        let units: Arc<[u32]> = [3, 9].into();
        memo.learn(&ASKED, disk(), Arc::clone(&units), Checked::Content);
        let first = answer(&memo, &ASKED, &disk());
        assert_eq!(first, Some(Answer { checker: Checked::Content, units, verify: true }));
        for (unit, answered) in [(0, true), (3, false), (4, true), (9, false), (15, true)] {
            let mut other = disk();
            other.write(unit * UNIT_BYTES + UNIT_BYTES - 1, b"x");
            assert_eq!(answer(&memo, &ASKED, &other).is_some(), answered, "unit {unit}");
        }
        for asked in [
            Asked { questions: Questions::VIEW, ..ASKED },
            Asked { tree: Digest(2), ..ASKED },
            Asked { filling: Some(Filling { max_bytes: 1, fits_bytes: 1 }), ..ASKED },
        ] {
            assert_eq!(answer(&memo, &asked, &disk()), None, "something else was asked");
        }
        memo.switch_off();
        assert_eq!(answer(&memo, &ASKED, &disk()), None);
        assert!(!memo.pays());
    }

    #[test]
    fn what_does_not_pay_is_seldom_tried() {
        let memo = RestMemo::default();
        for _ in 0..TRIED {
            assert!(memo.pays());
            memo.count_told();
        }
        // After 32, 64, 128 and 256 more.
        let tried = (0..15 * TRIED_AGAIN_AFTER).filter(|_| memo.pays()).count();
        assert_eq!(tried, 4);
        memo.learn(&ASKED, disk(), [3].into(), Checked::Content);
        (0..2 * TRIED).for_each(|_| assert!(answer(&memo, &ASKED, &disk()).is_some()));
        assert!(memo.pays() && memo.pays());
    }
}
