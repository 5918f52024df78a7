//! Workloads of everything for file systems that have only some of it: libraries have no modes, no links
//! and no open directories, and their devices are small.
//!
//! What a library lacks is left out, with what makes no sense without it (an fsync of a directory that
//! could not be opened): only what the reference, with the library's quirks, executes successfully stays,
//! and nothing that the library need not answer as the reference does ([`Model::unspecified`]). Modes are
//! those that everything has there. Sizes and offsets shrink with the blocks of the device, so that a
//! write that fills several blocks of a disk fills as many of a small device.

use std::cell::Cell;
use std::rc::Rc;

use fathom_core::flags::OpenFlags;
use fathom_core::plain::{DIR_MODE, FILE_MODE};
use fathom_core::{Op, Pattern};
use fathom_model::{Config as ModelConfig, Model};

/// The blocks for which workloads of kernel file systems are made.
const BLOCK_BYTES: u64 = 4096;

/// Flags of open that change nothing but when data becomes durable, or how it is copied: without them the
/// file is the same.
const FLAGS_IGNORED: OpenFlags = OpenFlags::O_SYNC
    .union(OpenFlags::O_DSYNC)
    .union(OpenFlags::O_DIRECT)
    .union(OpenFlags::O_NOATIME)
    .union(OpenFlags::O_NONBLOCK)
    .union(OpenFlags::O_NOFOLLOW);

/// A file system that has only some operations.
pub struct Limits {
    /// The names of the operations that it has.
    pub operations: &'static [&'static str],
    /// The reference with its quirks.
    pub reference: ModelConfig,
    /// The blocks of its device.
    pub block_bytes: u64,
}

/// Workloads as far as a file system can follow them.
pub struct FittedWorkloads<I> {
    inner: I,
    limits: Limits,
    left_out: Rc<Cell<u64>>,
}

impl<I: Iterator<Item = Vec<Op>>> FittedWorkloads<I> {
    /// Leaves out of workloads what the limits do not allow; counts the operations in `left_out`.
    pub fn new(inner: I, limits: Limits, left_out: Rc<Cell<u64>>) -> FittedWorkloads<I> {
        FittedWorkloads { inner, limits, left_out }
    }

    /// The operation as the file system can execute it; `None` if it lacks it.
    fn fit(&self, op: &Op) -> Option<Op> {
        if !self.limits.operations.contains(&op.name()) {
            return None;
        }
        let mut op = op.clone();
        let divisor = (BLOCK_BYTES / self.limits.block_bytes.max(1)).max(1);
        match &mut op {
            Op::Open { flags, mode, .. } => {
                *flags = flags.difference(FLAGS_IGNORED);
                *mode = FILE_MODE;
            }
            Op::Mkdir { mode, .. } => *mode = DIR_MODE,
            Op::Pwrite { offset, data, .. } => {
                *offset /= divisor as i64;
                *data = Pattern { len: data.len.div_ceil(divisor), ..*data };
            }
            Op::Truncate { len, .. } => *len /= divisor as i64,
            _ => {}
        }
        Some(op)
    }
}

impl<I: Iterator<Item = Vec<Op>>> Iterator for FittedWorkloads<I> {
    type Item = Vec<Op>;

    fn next(&mut self) -> Option<Vec<Op>> {
        let given = self.inner.next()?;
        let mut model = Model::new(self.limits.reference.clone()).ok()?;
        let mut ops = Vec::with_capacity(given.len());
        for op in &given {
            let fits = |op: &Op| {
                model.unspecified(op).is_none() && model.clone().execute(op).result.is_ok()
            };
            match self.fit(op).filter(fits) {
                Some(op) => {
                    model.execute(&op);
                    ops.push(op);
                }
                None => self.left_out.set(self.left_out.get() + 1),
            }
        }
        Some(ops)
    }
}

#[cfg(test)]
mod tests {
    use fathom_model::Quirks;

    use super::*;
    use crate::ace::{self, Part, Space};

    const SOME: &[&str] =
        &["open", "close", "pwrite", "truncate", "mkdir", "unlink", "rename", "fsync", "sync"];

    fn fitted(block_bytes: u64) -> (Vec<Vec<Op>>, u64) {
        let quirks = Quirks::profile("littlefs").unwrap();
        let reference = ModelConfig { quirks, ..ModelConfig::default() };
        let limits = Limits { operations: SOME, reference, block_bytes };
        let left_out = Rc::new(Cell::new(0));
        let space = Space::new(1, false, false).unwrap();
        let all = ace::unique(&space, Part::WHOLE).map(|workload| workload.ops());
        let all = FittedWorkloads::new(all, limits, left_out.clone()).collect();
        (all, left_out.get())
    }

    #[test]
    fn what_a_library_lacks_is_left_out_and_counted() {
        let (all, left_out) = fitted(4096);
        assert_eq!(all.len(), 316, "no workload is lost");
        let space = Space::new(1, false, false).unwrap();
        let given = ace::unique(&space, Part::WHOLE).map(|workload| workload.ops().len());
        let kept: usize = all.iter().map(Vec::len).sum();
        assert_eq!(kept as u64 + left_out, given.sum::<usize>() as u64);
        assert!(left_out > 0 && kept > 1000, "{kept} kept, {left_out} left out");
        let ops = || all.iter().flatten();
        assert!(ops().all(|op| SOME.contains(&op.name())));
        for name in ["rename", "unlink", "pwrite", "fsync"] {
            assert!(ops().any(|op| op.name() == name), "{name}");
        }
        assert!(ops().all(|op| !matches!(op, Op::Mkdir { mode, .. } if *mode != DIR_MODE)));
    }

    #[test]
    fn sizes_shrink_with_the_blocks_of_the_device() {
        let largest = |block_bytes: u64| {
            let len = |op: &Op| if let Op::Pwrite { data, .. } = op { data.len } else { 0 };
            fitted(block_bytes).0.iter().flatten().map(len).max().unwrap()
        };
        assert_eq!(largest(4096), 32768);
        assert_eq!(largest(256), 2048);
    }
}
