//! What is run on a disk, and what is recorded of it.

use fathom_core::{Op, Outcome, Tree};
use serde::{Deserialize, Serialize};

use super::account::Accounts;
use crate::image::Image;
use crate::log::WriteLog;

/// How a run on a disk ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// The power is cut; where exactly is decided later.
    PowerOff,
    /// Cleanly: one more mark is noted.
    Unmount,
}

/// Operations of one mount.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    /// The operations, in order; [`Op::Remount`] is not one of them.
    pub ops: &'a [&'a Op],
    /// What comes after them.
    pub end: End,
    /// Whether the tree is looked at before the end.
    pub look: bool,
}

/// Everything that a disk was told during one mount, and what the operations answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// What the operations answered.
    pub outcomes: Vec<Outcome>,
    /// Everything that was written, from the beginning of the mount on.
    pub log: WriteLog,
    /// Positions in the log: after mounting, after each operation, and after unmounting if there was
    /// that.
    pub marks: Vec<usize>,
    /// The answer to unmounting; `None` if the power was cut.
    pub unmounted: Option<Outcome>,
    /// What was visible before the end, if that was asked.
    pub tree: Option<Tree>,
    /// After each operation that makes something durable, what was said of the regular files then; empty
    /// after others, and missing if nobody was asked.
    pub accounts: Vec<Accounts>,
}

impl Recording {
    /// The disk at the end, if everything arrived.
    pub fn disk_after(&self, base: &Image) -> Image {
        let mut disk = base.clone();
        self.log.apply(0..self.log.len(), &mut disk);
        disk
    }

    /// The recording of the first `ops` operations alone, as if the power had been cut after them.
    pub fn prefix(&self, ops: usize) -> Option<Recording> {
        let marks = self.marks.get(..=ops)?.to_vec();
        let outcomes = self.outcomes.get(..ops)?.to_vec();
        let events = (0..*marks.last()?).map(|index| self.log.event(index));
        let log = events.collect();
        let accounts = self.accounts.iter().take(ops).cloned().collect();
        Some(Recording { outcomes, log, marks, unmounted: None, tree: None, accounts })
    }
}
