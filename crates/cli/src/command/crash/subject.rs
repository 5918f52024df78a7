//! From a name to a file system whose power can be cut.

use anyhow::Result;
use fathom_block::{DiskFileSystem, Geometry};
use fathom_subjects::Recipe;
use fathom_subjects::catalogue::{Asked, Purpose};
use fathom_subjects::kernel::disks::CrashProfile;

use super::tell;
use crate::subjects::Spec;
use crate::text::say;
use crate::worker_guest::GuestDisks;

/// What the names of designs begin with.
const DESIGN: &str = "design:";

/// Whether the subject is a design.
pub(crate) fn is_design(name: &str) -> bool {
    name.starts_with(DESIGN)
}

/// The file system of that name, with what was asked for.
pub(crate) fn open(
    name: &str,
    asked: &Asked<'_>,
    threads: usize,
) -> Result<Box<dyn DiskFileSystem>> {
    Ok(name.parse::<Spec>()?.with(asked)?.disks(None, tell::threads(threads))?)
}

/// Says what a kernel file system without a profile of its own is held to.
pub(super) fn say_what_is_assumed(name: &str, asked: &Asked<'_>) {
    let plain = name.split(['+', ' ']).next().unwrap_or(name);
    let profile = CrashProfile::of(plain);
    if asked.promises.is_none() && Recipe::named(plain).is_some() && !profile.is_own {
        say!(
            "{plain} has no profile of what it promises after a power failure: assuming {}, what POSIX \
             says of fsync and sync, and no more; give another with --promises (of {})",
            profile.name,
            CrashProfile::names().collect::<Vec<_>>().join(", ")
        );
    }
}

/// The file system of a guest's kernel, which answers in batches.
pub(super) fn open_in_guest(
    name: &str,
    asked: &Asked<'_>,
    kernel: &str,
    seed: u64,
) -> Result<Box<dyn DiskFileSystem>> {
    let spec = name.parse::<Spec>()?.with(asked)?;
    spec.demand(Purpose::Crash)?;
    Ok(Box::new(GuestDisks::new(kernel, seed, &spec.to_string())?))
}

/// The file system of a recorded finding, on its recorded geometry.
pub(super) fn reopen(name: &str, geometry: Geometry) -> Result<Box<dyn DiskFileSystem>> {
    Ok(name.parse::<Spec>()?.disks(Some(geometry), tell::threads(0))?)
}
