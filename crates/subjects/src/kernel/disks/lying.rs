//! Devices that lie, to test the tester: what a file system does right, they spoil.

use fathom_block::disks::{DiskWrapper, Recording, SubjectFailure, Workload};
use fathom_block::{DiskFileSystem, Event, Image, WriteLog};
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
    /// `fsync` does what `fdatasync` does.
    FsyncOfData,
}

/// Every lie, by its name, with what it does.
const LIES: [(&str, Lie, &str); 4] = [
    ("drop-flush", Lie::DropFlush, "the disk answers flushes and does nothing"),
    ("reorder-flush", Lie::ReorderFlush, "the write before a flush is not flushed by it"),
    ("ignore-fsync", Lie::IgnoreFsync, "fsync, fdatasync and sync answer and do nothing"),
    ("fsync-of-data", Lie::FsyncOfData, "fsync does what fdatasync does"),
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

/// What is executed instead of an operation that makes something durable: something with less effect
/// that answers alike.
fn weakened(op: &Op, lie: Lie) -> Op {
    match op {
        Op::Fsync { slot } if lie == Lie::FsyncOfData => Op::Fdatasync { slot: *slot },
        op if lie == Lie::FsyncOfData => op.clone(),
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

impl<D: DiskFileSystem> DiskWrapper for LyingDisks<D> {
    type Inner = D;

    fn inner(&self) -> &D {
        &self.inner
    }

    fn wrapped_name(&self) -> &str {
        &self.name
    }

    fn record_wrapped(
        &self,
        base: &Image,
        workload: &Workload<'_>,
    ) -> Result<Result<Recording, SubjectFailure>, HarnessFault> {
        if matches!(self.lie, Lie::IgnoreFsync | Lie::FsyncOfData) {
            let ops: Vec<Op> = workload.ops.iter().map(|op| weakened(op, self.lie)).collect();
            let ops: Vec<&Op> = ops.iter().collect();
            return self.inner.record(base, &Workload { ops: &ops, ..*workload });
        }
        let recorded = self.inner.record(base, workload)?;
        Ok(recorded.map(|recording| spoil(recording, self.lie)))
    }
}
