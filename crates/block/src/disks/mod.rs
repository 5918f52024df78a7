//! Disks in, facts out: the two seams that every way of running a file system on a disk shares.
//!
//! [`Record`] turns a base disk and operations into a [`Recording`]: the answers, the log of writes
//! and flushes, and a mark in the log for every operation. [`Examine`] turns a batch of disks and
//! [`Questions`] into [`Facts`] about each. A library in this process, a kernel in a guest, a pool of
//! loop devices and a recorded finding all stand behind these two; crash checking is an enumerator
//! between them and a promise behind them.
//!
//! What the file system does wrong is data ([`SubjectFailure`], [`Trouble`]). What goes wrong with
//! the harness is a [`HarnessFault`]: a channel of its own, so that it never becomes a finding.
//!
//! An examination tells what it read ([`ReadSet`]): a [`Memo`] answers for disks that differ only
//! elsewhere.

mod account;
mod batch;
mod facts;
mod memo;
mod neighbours;
mod packed;
mod recording;
mod stored;
mod trie;
mod wrapper;

use std::sync::Arc;

use fathom_core::{HarnessFault, Op};

use crate::backed::Guarantee;
use crate::geometry::Geometry;
use crate::image::Image;

pub use crate::reads::{ReadSet, Reads};
pub use account::{Account, Accounts};
pub use batch::{Answer, BatchError, Description, Question, read_questions, write_questions};
pub use facts::{Checked, Facts, Interrupted, Questions, Recheck, SubjectFailure, Trouble, View};
pub use memo::{Memo, MemoCounts};
pub use neighbours::PruneCounts;
pub use recording::{End, Recording, Workload};
pub use stored::{Capture, Playback, Segment, StoredError, StoredRecording};
pub use wrapper::DiskWrapper;

/// Runs operations on a disk and records what the disk was told.
pub trait Record {
    /// Mounts a copy of `base` and executes the workload. The outer error is a fault of the harness,
    /// the inner one a failure of the file system, which is a fact about it.
    ///
    /// # Errors
    /// If the harness fails.
    fn record(
        &self,
        base: &Image,
        workload: &Workload<'_>,
    ) -> Result<Result<Recording, SubjectFailure>, HarnessFault>;
}

/// Finds out what becomes of disks when they are used.
pub trait Examine {
    /// The facts about each disk, in the order of the disks. The disks themselves do not change.
    ///
    /// # Errors
    /// If the harness fails: then nothing is known about any disk of the batch.
    fn examine(
        &self,
        disks: &[Image],
        questions: &Questions,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault>;

    /// As [`Examine::examine`]. An examination that makes other disks of the one it examines (by
    /// interrupting recovery, say) may ask the memo about them.
    ///
    /// # Errors
    /// As [`Examine::examine`].
    fn examine_knowing(
        &self,
        disks: &[Image],
        questions: &Questions,
        _memo: &Memo,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        self.examine(disks, questions)
    }

    /// As [`Examine::examine`], and tells what was read; `None` if it cannot. May take longer.
    fn examine_telling_reads(
        &self,
        _disks: &[Image],
        _questions: &Questions,
    ) -> Option<Result<Vec<Arc<Facts>>, HarnessFault>> {
        None
    }

    /// How many disks are best examined at once. One for a library in this process; a guest or a pool
    /// of loop devices says more.
    fn batch_disks(&self) -> usize {
        1
    }
}

/// A file system on disks of a known shape that can be recorded and examined: what crash checking
/// needs to know of it.
pub trait DiskFileSystem: Record + Examine + Send + Sync {
    /// The subject, as the user types it.
    fn name(&self) -> &str;

    /// What exactly is tested, with its version.
    fn version(&self) -> &str;

    /// The shape of its disk.
    fn geometry(&self) -> Geometry;

    /// What it promises.
    fn guarantee(&self) -> &Guarantee;

    /// Makes an empty file system.
    ///
    /// # Errors
    /// If it cannot be made.
    fn format(&self) -> Result<Image, HarnessFault>;

    /// Whether the same operations on the same disk write the same log. If not (a kernel has clocks
    /// and threads of its own), what was recorded is kept with every finding.
    fn is_deterministic(&self) -> bool {
        true
    }
}

/// Borrows operations for a [`Workload`].
pub fn borrow_all<'a>(ops: impl IntoIterator<Item = &'a Op>) -> Vec<&'a Op> {
    ops.into_iter().collect()
}
