//! From a name to a file system whose power can be cut.

use anyhow::Result;
use fathom_block::{BlockBacked, Geometry};
use fathom_subjects::catalogue::Asked;

use crate::subjects::Spec;

/// What the names of designs begin with.
const DESIGN: &str = "design:";

/// Whether the subject is a design.
pub(crate) fn is_design(name: &str) -> bool {
    name.starts_with(DESIGN)
}

/// The file system of that name, perhaps with a bug switched on.
pub(crate) fn open(
    name: &str,
    geometry: Option<&str>,
    mutant: Option<&str>,
) -> Result<Box<dyn BlockBacked>> {
    let asked = Asked { geometry, mutant, ..Asked::default() };
    Ok(name.parse::<Spec>()?.with(&asked)?.block_backed()?)
}

/// The file system of a recorded finding, on its recorded geometry.
pub(super) fn reopen(name: &str, geometry: Geometry) -> Result<Box<dyn BlockBacked>> {
    Ok(name.parse::<Spec>()?.block_backed_on(geometry)?)
}
