//! Sizes that no machine has, or not this one: refused before they are tried.

use anyhow::{Result, bail};
use fathom_subjects::supervise::remains::available_bytes;

use crate::text::grouped;

/// So many MiB in bytes.
pub(crate) fn mib(option: &str, mib: u64) -> Result<u64> {
    match mib.checked_mul(1 << 20) {
        Some(0) => bail!("{option} 0 leaves no memory: give at least 1"),
        Some(bytes) => Ok(bytes),
        None => bail!("{option} {mib} is more than any machine has"),
    }
}

/// Refuses what would not fit into the memory that is available now.
pub(crate) fn must_fit(what: &str, bytes: u64) -> Result<()> {
    match available_bytes() {
        Some(available) if bytes > available => bail!(
            "{what} needs {} MiB of memory, {} MiB are available",
            grouped(bytes >> 20),
            grouped(available >> 20)
        ),
        _ => Ok(()),
    }
}
