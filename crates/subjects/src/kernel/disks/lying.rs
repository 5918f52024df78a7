//! Devices that lie, to test the tester: what a file system does right, they spoil.

use std::sync::Arc;

use fathom_block::disks::{Examine, Facts, Memo, Questions, Recording, SubjectFailure, Workload};
use fathom_block::{DiskFileSystem, Event, Geometry, Guarantee, Image, Record, WriteLog};
use fathom_core::flags::Whence;
use fathom_core::{HarnessFault, Mode, Op};

use crate::sys::thread_context::UMASK;

/// A lie about durability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// The device answers flushes and does nothing.
    DropFlush,
    /// The write before a flush is not flushed by it.
    ReorderFlush,
    /// `fsync`, `fdatasync` and `sync` answer and do nothing.
    IgnoreFsync,
}

/// Every lie, by its name, with what it does.
const LIES: [(&str, Lie, &str); 3] = [
    ("drop-flush", Lie::DropFlush, "the disk answers flushes and does nothing"),
    ("reorder-flush", Lie::ReorderFlush, "the write before a flush is not flushed by it"),
    ("ignore-fsync", Lie::IgnoreFsync, "fsync, fdatasync and sync answer and do nothing"),
];

impl Lie {
    /// The lie of this name.
    pub fn named(name: &str) -> Option<Lie> {
        LIES.iter().find(|(known, ..)| *known == name).map(|(_, lie, _)| *lie)
    }

    /// The names of all lies, and what they do.
    pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
        LIES.iter().map(|(name, _, about)| (*name, *about))
    }
}

/// A file system on a disk that lies.
pub(crate) struct LyingDisks<D> {
    name: String,
    inner: D,
    lie: Lie,
}

impl<D: DiskFileSystem> LyingDisks<D> {
    pub(crate) fn new(name: &str, inner: D, lie: Lie) -> LyingDisks<D> {
        LyingDisks { name: name.to_owned(), inner, lie }
    }
}

/// What is executed instead of an operation that makes something durable: something without effect that
/// answers alike.
fn ignored(op: &Op) -> Op {
    match op {
        Op::Fsync { slot } | Op::Fdatasync { slot } | Op::Syncfs { slot } => {
            Op::Lseek { slot: *slot, offset: 0, whence: Whence::Cur }
        }
        Op::Sync => Op::Umask { mask: Mode(UMASK) },
        op => op.clone(),
    }
}

/// The log with other flushes, and the marks in it.
fn spoil(recording: Recording, lie: Lie) -> Recording {
    let mut log = WriteLog::new();
    let mut positions = vec![0];
    // A write that waits for the flush after it to pass.
    let mut late: Option<Event<'_>> = None;
    for event in recording.log.events() {
        match (lie, event) {
            (Lie::DropFlush, Event::Flush) => {}
            (Lie::ReorderFlush, Event::Flush) => {
                log.push(event);
                log.extend(late.take());
            }
            (Lie::ReorderFlush, event) => {
                log.extend(late.replace(event));
            }
            (_, event) => log.push(event),
        }
        positions.push(log.len());
    }
    log.extend(late);
    let len = log.len();
    let marks = recording.marks.iter().map(|mark| match *mark == recording.log.len() {
        true => len,
        false => positions[*mark],
    });
    Recording { marks: marks.collect(), log, ..recording }
}

impl<D: DiskFileSystem> Record for LyingDisks<D> {
    fn record(
        &self,
        base: &Image,
        workload: &Workload<'_>,
    ) -> Result<Result<Recording, SubjectFailure>, HarnessFault> {
        if self.lie == Lie::IgnoreFsync {
            let ops: Vec<Op> = workload.ops.iter().map(|op| ignored(op)).collect();
            let ops: Vec<&Op> = ops.iter().collect();
            return self.inner.record(base, &Workload { ops: &ops, ..*workload });
        }
        let recorded = self.inner.record(base, workload)?;
        Ok(recorded.map(|recording| spoil(recording, self.lie)))
    }
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default would be lost silently")]
impl<D: DiskFileSystem> Examine for LyingDisks<D> {
    fn examine(
        &self,
        disks: &[Image],
        questions: &Questions,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        self.inner.examine(disks, questions)
    }

    fn examine_knowing(
        &self,
        disks: &[Image],
        questions: &Questions,
        memo: &Memo,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        self.inner.examine_knowing(disks, questions, memo)
    }

    fn examine_telling_reads(
        &self,
        disks: &[Image],
        questions: &Questions,
    ) -> Option<Result<Vec<Arc<Facts>>, HarnessFault>> {
        self.inner.examine_telling_reads(disks, questions)
    }

    fn batch_disks(&self) -> usize {
        self.inner.batch_disks()
    }
}

#[deny(clippy::missing_trait_methods, reason = "a method with a default would be lost silently")]
impl<D: DiskFileSystem> DiskFileSystem for LyingDisks<D> {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        self.inner.version()
    }

    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn guarantee(&self) -> &Guarantee {
        self.inner.guarantee()
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        self.inner.format()
    }

    fn is_deterministic(&self) -> bool {
        self.inner.is_deterministic()
    }
}
