//! Facts that are known because an examination of another disk read nothing that differs.
//!
//! Sound for examinations that are functions of what they read and that tell all of it. Whether they
//! are is not taken on trust: one answer of [`VERIFIED_EVERY`] is compared with an examination, and a
//! memo whose answer is wrong is not asked again.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use fathom_core::HarnessFault;

use super::Examine;
use super::facts::{Facts, Questions};
use super::neighbours::{Neighbours, PruneCounts};
use super::trie::Trie;
use crate::image::Image;

/// One answer of so many is verified: on littlefs this costs less than a hundredth of the time.
const VERIFIED_EVERY: u64 = 512;

/// Units that are kept at most (a unit takes 16 bytes: 128 MiB); then the memo starts anew.
const UNITS_MAX: usize = 8 << 20;

/// Fewer disks than this are examined without asking what is read.
const MANY: usize = 6;

/// Disks of a batch that tell what was read, before the others are compared with them; and how often.
const TOLD_AT_ONCE: usize = 2;
const ROUNDS: usize = 4;

fn missing() -> HarnessFault {
    HarnessFault::new("examining disks", "fewer facts than disks came back")
}

/// How a memo was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoCounts {
    /// Disks that were examined.
    pub examined: u64,
    /// Disks that were answered from the memo.
    pub answered: u64,
    /// Answers that were compared with an examination; also those to parts of one.
    pub verified: u64,
    /// Examinations that contradicted the memo, by their facts or by what they read: the file system
    /// is not deterministic, or reads what it does not tell. The memo is off from the first one on.
    pub refuted: u64,
}

/// How often something was asked, and what became of it.
#[derive(Debug, Default)]
struct Tally {
    examined: AtomicU64,
    answered: AtomicU64,
}

/// Facts by what was read, for each set of questions.
#[derive(Debug)]
pub struct Memo {
    tries: RwLock<HashMap<Questions, Trie<Arc<Facts>>>>,
    verified_every: u64,
    units_max: usize,
    off: AtomicBool,
    images: Tally,
    /// Of [`Memo::look`].
    looks: Tally,
    verified: AtomicU64,
    refuted: AtomicU64,
    /// For examinations that read in an order of their own.
    neighbours: Neighbours,
}

impl Default for Memo {
    fn default() -> Memo {
        Memo {
            tries: RwLock::default(),
            verified_every: VERIFIED_EVERY,
            units_max: UNITS_MAX,
            off: AtomicBool::new(false),
            images: Tally::default(),
            looks: Tally::default(),
            verified: AtomicU64::new(0),
            refuted: AtomicU64::new(0),
            neighbours: Neighbours::default(),
        }
    }
}

impl Memo {
    /// A memo that never answers: everything is examined.
    #[must_use]
    pub fn disabled(self) -> Memo {
        self.neighbours.disable();
        Memo { off: AtomicBool::new(true), ..self }
    }

    /// Compares one answer of `every` with an examination, the first one included; none if 0.
    #[must_use]
    pub fn verified_every(self, every: u64) -> Memo {
        Memo { verified_every: every, ..self }
    }

    /// Keeps at most so many units.
    #[must_use]
    pub fn units_max(self, units_max: usize) -> Memo {
        Memo { units_max, ..self }
    }

    /// How it was used so far.
    pub fn counts(&self) -> MemoCounts {
        MemoCounts {
            examined: self.images.examined.load(Ordering::Relaxed),
            answered: self.images.answered.load(Ordering::Relaxed),
            verified: self.verified.load(Ordering::Relaxed),
            refuted: self.refuted.load(Ordering::Relaxed),
        }
    }

    /// How read sets without an order were used so far.
    pub fn pruned(&self) -> PruneCounts {
        self.neighbours.counts()
    }

    /// Answers for the disks that it knows, and has the others examined, all at once.
    ///
    /// # Errors
    /// As the examination.
    pub fn examine(
        &self,
        examiner: &dyn Examine,
        disks: &[Image],
        questions: &Questions,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        if let [disk] = disks {
            return Ok(vec![self.examine_one(examiner, disk, questions)?]);
        }
        let mut facts: Vec<Option<Arc<Facts>>> =
            disks.iter().map(|disk| self.known(disk, questions)).collect();
        let mut wanted = Vec::new();
        for (index, known) in facts.iter().enumerate() {
            if known.is_none() || self.is_verified_next(&self.images) {
                wanted.push(index);
            }
        }
        let verified = self.prune(examiner, disks, questions, &mut facts)?;
        wanted.retain(|index| facts[*index].is_none() || !self.is_told(&facts[*index]));
        wanted.extend(verified);
        if !wanted.is_empty() {
            let batch: Vec<Image> = wanted.iter().map(|index| disks[*index].clone()).collect();
            let found = examiner.examine_knowing(&batch, questions, self)?;
            for ((index, disk), found) in wanted.into_iter().zip(&batch).zip(found) {
                self.learn(disk, questions, &self.images, facts[index].as_deref(), &found);
                facts[index] = Some(found);
            }
        }
        facts.into_iter().collect::<Option<Vec<_>>>().ok_or_else(missing)
    }

    /// Whether facts are of an examination that told what it read, in no order.
    fn is_told(&self, facts: &Option<Arc<Facts>>) -> bool {
        facts.as_ref().is_some_and(|facts| facts.read.unordered_units().is_some())
    }

    /// Examines some of many disks so that they tell what they read, and answers for those that differ
    /// from these only elsewhere. Returns the answers that are to be verified.
    fn prune(
        &self,
        examiner: &dyn Examine,
        disks: &[Image],
        questions: &Questions,
        facts: &mut [Option<Arc<Facts>>],
    ) -> Result<Vec<usize>, HarnessFault> {
        let mut verified = self.answer_alike(disks, questions, facts);
        for _ in 0..ROUNDS {
            let unknown: Vec<usize> =
                (0..disks.len()).filter(|index| facts[*index].is_none()).collect();
            if unknown.len() < MANY || !self.neighbours.pay() {
                break;
            }
            let spread = unknown.iter().step_by(unknown.len().div_ceil(TOLD_AT_ONCE)).copied();
            let some: Vec<usize> = spread.collect();
            let batch: Vec<Image> = some.iter().map(|index| disks[*index].clone()).collect();
            let Some(found) = examiner.examine_telling_reads(&batch, questions) else { break };
            for (index, found) in some.into_iter().zip(found?) {
                self.images.examined.fetch_add(1, Ordering::Relaxed);
                self.neighbours.learn(&disks[index], questions, &found);
                facts[index] = Some(found);
            }
            verified.extend(self.answer_alike(disks, questions, facts));
        }
        Ok(verified)
    }

    /// Answers for disks that differ from an examined one only where that was not read; returns the
    /// answers that are to be verified.
    fn answer_alike(
        &self,
        disks: &[Image],
        questions: &Questions,
        facts: &mut [Option<Arc<Facts>>],
    ) -> Vec<usize> {
        let mut verified = Vec::new();
        for (index, known) in facts.iter_mut().enumerate().filter(|(_, known)| known.is_none()) {
            *known = self.neighbours.find(&disks[index], questions);
            if known.is_some() && self.neighbours.answer() {
                verified.push(index);
            }
        }
        verified
    }

    /// As [`Memo::examine`] of one disk.
    fn examine_one(
        &self,
        examiner: &dyn Examine,
        disk: &Image,
        questions: &Questions,
    ) -> Result<Arc<Facts>, HarnessFault> {
        self.answer(disk, questions, &self.images, || {
            let found = examiner.examine_knowing(std::slice::from_ref(disk), questions, self)?;
            found.into_iter().next().ok_or_else(missing)
        })
    }

    /// What mounting a disk shows that an examination has made of the one it examines: it is known,
    /// or `look` finds it out and tells everything that it reads.
    ///
    /// # Errors
    /// As `look`.
    pub(crate) fn look(
        &self,
        disk: &Image,
        look: impl FnOnce() -> Result<Arc<Facts>, HarnessFault>,
    ) -> Result<Arc<Facts>, HarnessFault> {
        self.answer(disk, &Questions::VIEW, &self.looks, look)
    }

    /// Answers if it can, and otherwise learns what `find_out` finds.
    fn answer(
        &self,
        disk: &Image,
        questions: &Questions,
        tally: &Tally,
        find_out: impl FnOnce() -> Result<Arc<Facts>, HarnessFault>,
    ) -> Result<Arc<Facts>, HarnessFault> {
        let known = self.known(disk, questions);
        if let Some(known) = &known
            && !self.is_verified_next(tally)
        {
            return Ok(Arc::clone(known));
        }
        let found = find_out()?;
        self.learn(disk, questions, tally, known.as_deref(), &found);
        Ok(found)
    }

    fn known(&self, disk: &Image, questions: &Questions) -> Option<Arc<Facts>> {
        if self.off.load(Ordering::Relaxed) {
            return None;
        }
        let tries = self.tries.read().unwrap_or_else(PoisonError::into_inner);
        tries.get(questions)?.find(disk).map(Arc::clone)
    }

    /// Counts an answer; whether it is one of those that are verified.
    fn is_verified_next(&self, tally: &Tally) -> bool {
        let number = tally.answered.fetch_add(1, Ordering::Relaxed);
        self.verified_every > 0 && number.is_multiple_of(self.verified_every)
    }

    /// Takes over what an examination found; `answer` is what the memo would have said.
    fn learn(
        &self,
        disk: &Image,
        questions: &Questions,
        tally: &Tally,
        answer: Option<&Facts>,
        found: &Arc<Facts>,
    ) {
        if let Some(answer) = answer.filter(|answer| answer.read.unordered_units().is_some()) {
            return self.neighbours.verify(answer, found);
        }
        if let Some(answer) = answer {
            self.verified.fetch_add(1, Ordering::Relaxed);
            if !answer.agree_with(found) {
                self.switch_off();
            }
            return;
        }
        tally.examined.fetch_add(1, Ordering::Relaxed);
        let Some(units) = found.read.units() else { return };
        if self.off.load(Ordering::Relaxed) {
            return;
        }
        let mut tries = self.tries.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Trie::new(found.read.unit_bytes());
        let trie = tries.entry(*questions).or_insert_with(new);
        if trie.unit_bytes() != found.read.unit_bytes() || trie.units() > self.units_max {
            *trie = new();
        }
        if trie.insert(disk, units, Arc::clone(found)).is_err() {
            drop(tries);
            self.switch_off();
        }
    }

    /// Forgets everything, for good: what was examined is not a function of what was read.
    fn switch_off(&self) {
        self.refuted.fetch_add(1, Ordering::Relaxed);
        self.off.store(true, Ordering::Relaxed);
        self.tries.write().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
