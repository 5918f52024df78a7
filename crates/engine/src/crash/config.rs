//! What a crash check explores, as data: the table `[crash]` of the configuration.

use fathom_block::{Bounds, Level};
use serde::{Deserialize, Serialize};

use super::workload::StepKind;

/// Which states count as the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// The same tree up to names and contents, and the same last steps: see [`super::shape`].
    Shape,
    /// The same tree.
    Tree,
    /// The same bytes on the device.
    Image,
}

/// The configuration of a crash check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CrashConfig {
    /// Steps of a workload.
    pub depth: u32,
    /// Power failures in one run: with 2, the checker goes on after every crash that was survived
    /// and cuts the power again.
    pub crashes: u32,
    /// Which states the power failure leaves; empty: what the subject claims to survive.
    pub levels: Vec<Level>,
    /// Where the enumeration of a level turns into sampling.
    pub bounds: Bounds,
    /// Which states are explored once.
    pub identity: Identity,
    /// How many of the last steps are part of a shape.
    pub remember: usize,
    /// The steps that workloads are made of.
    pub steps: Vec<StepKind>,
    /// Names of files and directories, in the order of use.
    pub names: Vec<String>,
    /// Sizes of written data in bytes.
    pub sizes: Vec<u64>,
    /// Levels of directories below the root.
    pub dirs_deep_max: usize,
    /// Files that are open at the same time.
    pub open_max: u8,
    /// Whether every recovered image is also used: create, write, rename, delete, fill, free.
    pub probe: bool,
    /// Whether an independent checker is asked, where there is one (`e2fsck`).
    pub second_opinion: bool,
}

impl Default for CrashConfig {
    fn default() -> Self {
        use StepKind::{
            Append, Mkdir, Move, Put, Remount, Rename, Replace, Rewrite, Rmdir, Unlink,
        };
        CrashConfig {
            depth: 4,
            crashes: 1,
            levels: Vec::new(),
            bounds: Bounds::default(),
            identity: Identity::Shape,
            remember: 2,
            steps: vec![Put, Mkdir, Rewrite, Append, Rename, Replace, Move, Unlink, Rmdir, Remount],
            names: ["a", "b", "c", "d"].map(str::to_owned).to_vec(),
            // One that littlefs stores inline, and one that takes blocks of its own.
            sizes: vec![10, 300],
            dirs_deep_max: 1,
            open_max: 1,
            probe: true,
            second_opinion: true,
        }
    }
}

/// A configuration that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Nothing would be done.
    #[error("{what} is {value}: {advice}")]
    Nothing {
        /// Which setting.
        what: &'static str,
        /// Its value.
        value: &'static str,
        /// What to give instead.
        advice: &'static str,
    },
    /// Not a name.
    #[error("{0:?} cannot be the name of a file: use letters and digits")]
    Name(String),
}

impl CrashConfig {
    /// Whether something can be done with it.
    ///
    /// # Errors
    /// Names the setting.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let nothing = |what, value, advice| Err(ConfigError::Nothing { what, value, advice });
        if self.depth == 0 {
            return nothing("depth", "0", "no step would be taken; give at least 1");
        }
        if self.crashes == 0 {
            return nothing("crashes", "0", "the power would never fail; give 1 or 2");
        }
        if self.steps.is_empty() {
            return nothing("steps", "empty", "give at least one kind of step");
        }
        if self.sizes.is_empty() {
            return nothing("sizes", "empty", "give at least one size");
        }
        if self.bounds.subsets_max == 0 {
            return nothing("bounds.subsets_max", "0", "give at least 1");
        }
        if self.names.is_empty() {
            return nothing("names", "empty", "give at least one name");
        }
        let bad = |name: &&String| {
            name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        self.names.iter().find(bad).map_or(Ok(()), |name| Err(ConfigError::Name(name.clone())))
    }
}
