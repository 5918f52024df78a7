//! Workloads that were made for kernel file systems, on a library: what the library lacks is left out.

use std::cell::Cell;
use std::rc::Rc;

use anyhow::{Result, bail};
use fathom_block::DiskFileSystem;
use fathom_generate::fitted::Limits;
use fathom_model::Config;
use fathom_subjects::catalogue::Operations;

use crate::subjects::Spec;

/// The unit in which the reference counts space, in bytes: its smallest.
const UNIT_BYTES: u32 = 512;

/// What a workload may fill of a device: as much is left for what the library needs itself, and for copies
/// while something is replaced.
const FILLED_PART: usize = 2;

/// How many operations were left out of workloads so far, since the library lacks them.
pub(crate) type LeftOut = Rc<Cell<u64>>;

/// What a library file system has; `None` for a file system of the kernel, which has everything.
///
/// # Errors
/// If the subject has no operations that workloads could be made of.
pub(super) fn limits(subject: &dyn DiskFileSystem) -> Result<Option<Limits>> {
    // Kernel file systems alone write another log each time.
    if !subject.is_deterministic() {
        return Ok(None);
    }
    let spec = subject.name().parse::<Spec>()?;
    let operations = match spec.offers().operations {
        Operations::All => return Ok(None),
        Operations::Only(operations) => operations,
        Operations::None(why) => bail!(
            "{} takes no workloads that are given: {why}; give --workload steps",
            subject.name()
        ),
    };
    let geometry = subject.geometry();
    let blocks = (geometry.size_bytes / FILLED_PART) as u64 / u64::from(UNIT_BYTES);
    let quirks = spec.reference(&spec.profile()?)?.quirks;
    let reference =
        Config { quirks, block_bytes: UNIT_BYTES, blocks: blocks.max(1), ..Config::default() };
    Ok(Some(Limits { operations, reference, block_bytes: geometry.erase_bytes as u64 }))
}
