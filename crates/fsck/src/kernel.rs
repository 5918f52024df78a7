//! The kernel as an oracle: disks that a checker says are fine, in batches.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::case::Case;
use crate::cause;
use crate::judge::{Class, judge_mounted};
use crate::look::{DiskLooker, Mounted, write_batch};
use crate::objects::Objects;
use crate::run::{DiskDelta, RunError};
use crate::runner::{Found, Judged};
use crate::subject::Subject;

/// Disks that are looked at in one guest: work for some seconds beside half a second of boot.
const BATCH_DISKS: usize = 200;
/// Answers that are remembered: most corruptions are repaired to one of a few disks.
const ANSWERS_MAX: usize = 2000;

/// What a kernel said, and who asks it.
pub(crate) struct Kernel {
    looker: Arc<dyn DiskLooker>,
    /// What is on the healthy disk.
    healthy: Objects,
    /// Answers by the contents of the disk.
    answers: HashMap<u128, Arc<Mounted>>,
    /// Disks of the batch that is being collected, and have no answer yet.
    waiting: HashSet<u128>,
}

impl Kernel {
    /// Has the healthy disk looked at.
    ///
    /// # Errors
    /// If the kernel does not mount it, or cannot be asked.
    pub(crate) fn new(subject: &Subject, looker: Arc<dyn DiskLooker>) -> Result<Kernel, RunError> {
        let mut kernel = Kernel {
            looker,
            healthy: Objects::default(),
            answers: HashMap::new(),
            waiting: HashSet::new(),
        };
        let mounted = kernel.ask(subject, &[&DiskDelta::default()])?;
        let Some(mounted) = mounted.into_iter().next() else {
            return Err(fault("nothing was answered".to_owned()));
        };
        if let Some(why) = mounted.refused.as_ref().or(mounted.died.as_ref()) {
            return Err(fault(format!("the healthy disk: {why}")));
        }
        kernel.healthy = mounted.objects;
        Ok(kernel)
    }

    /// Whether a batch is complete with this disk.
    pub(crate) fn is_full(&mut self, disk: Option<&DiskDelta>) -> bool {
        let digest = disk.map(DiskDelta::digest);
        if let Some(digest) = digest.filter(|digest| !self.answers.contains_key(digest)) {
            self.waiting.insert(digest);
        }
        self.waiting.len() >= BATCH_DISKS
    }

    /// Has every disk looked at that has no answer yet.
    ///
    /// # Errors
    /// If the kernel cannot be asked.
    pub(crate) fn look_at(
        &mut self,
        subject: &Subject,
        disks: &[&DiskDelta],
    ) -> Result<(), RunError> {
        self.waiting.clear();
        if self.answers.len() > ANSWERS_MAX {
            self.answers.clear();
        }
        let mut asked = HashSet::new();
        let mut fresh: Vec<(u128, &DiskDelta)> = Vec::new();
        for disk in disks {
            let digest = disk.digest();
            if !self.answers.contains_key(&digest) && asked.insert(digest) {
                fresh.push((digest, disk));
            }
        }
        for batch in fresh.chunks(BATCH_DISKS) {
            let disks: Vec<&DiskDelta> = batch.iter().map(|(_, disk)| *disk).collect();
            let answers = self.ask(subject, &disks)?;
            for ((digest, _), answer) in batch.iter().zip(answers) {
                self.answers.insert(*digest, Arc::new(answer));
            }
        }
        Ok(())
    }

    fn ask(&self, subject: &Subject, disks: &[&DiskDelta]) -> Result<Vec<Mounted>, RunError> {
        let io = |source| RunError { what: "write disks for a guest".to_owned(), source };
        let place = tempfile::tempdir().map_err(io)?;
        let disks: Vec<DiskDelta> = disks.iter().map(|disk| (*disk).clone()).collect();
        write_batch(place.path(), subject.base(), &disks).map_err(io)?;
        let file_system = &subject.map.file_system;
        let answers = self.looker.look(file_system, place.path(), disks.len()).map_err(fault)?;
        match answers.len() == disks.len() {
            true => Ok(answers),
            false => Err(fault(format!("{} of {} disks", answers.len(), disks.len()))),
        }
    }

    /// What the kernel said of a disk that was looked at.
    pub(crate) fn answer(&self, disk: &DiskDelta) -> Option<&Mounted> {
        self.answers.get(&disk.digest()).map(AsRef::as_ref)
    }

    /// What is on the healthy disk.
    pub(crate) fn healthy(&self) -> &Objects {
        &self.healthy
    }

    /// Adds to a case what the kernel says of its disk.
    pub(crate) fn judge(&self, case: &Case, judged: &mut Judged) {
        let Some(disk) = &judged.fine else { return };
        let Some(mounted) = self.answers.get(&disk.digest()) else { return };
        for (violation, told) in judge_mounted(case, &self.healthy, mounted) {
            // Our own reader may have said so already.
            if judged.violations.iter().any(|found| found.class == violation.class) {
                continue;
            }
            let cause = match violation.class {
                Class::Loss | Class::Unreadable => cause::field_sort(&case.field),
                _ => cause::shape(violation.what.as_bytes()),
            };
            if judged.losses.is_empty() {
                judged.losses = told;
            }
            judged.violations.push(Found { class: violation.class, what: violation.what, cause });
        }
    }
}

fn fault(what: String) -> RunError {
    let source = std::io::Error::other(what);
    RunError { what: "have a kernel look at disks".to_owned(), source }
}
