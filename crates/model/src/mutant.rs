//! Named bugs that can be switched on: the reference file system as a liar, to test the tester.

use serde::{Deserialize, Serialize};

/// One bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mutant {
    /// Rename over a hard link leaves the other name with one link too many.
    RenameNlink,
}
