//! How a reference file system is set up. A configuration is part of every trace.

use serde::{Deserialize, Serialize};

use crate::mutant::Mutant;
use crate::quirks::Quirks;
use crate::race::Race;

/// Everything that decides how the model behaves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Allocation unit in bytes: a power of two from 512 to 4096.
    pub block_bytes: u32,
    /// Capacity in blocks.
    pub blocks: u64,
    /// Capacity in inodes, the root directory included.
    pub inodes: u64,
    /// Owner and group of the root directory, and who calls until [`fathom_core::Op::Identity`].
    pub uid: u32,
    /// See `uid`.
    pub gid: u32,
    /// Supplementary groups of the first caller.
    pub groups: Vec<u32>,
    /// Permission bits of the root directory.
    pub root_mode: fathom_core::Mode,
    /// File mode creation mask until [`fathom_core::Op::Umask`].
    pub umask: fathom_core::Mode,
    /// Where Linux file systems legitimately differ.
    pub quirks: Quirks,
    /// A bug to switch on.
    pub mutant: Option<Mutant>,
    /// A bug to switch on that only overlapping calls show.
    pub race: Option<Race>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            block_bytes: 4096,
            // RefFS's defaults: 32 GiB and a million inodes, both only as limits.
            blocks: 8_388_608,
            inodes: 1_048_576,
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            root_mode: fathom_core::Mode(0o755),
            umask: fathom_core::Mode(0o022),
            quirks: Quirks::default(),
            mutant: None,
            race: None,
        }
    }
}

/// A configuration that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No room for anything.
    #[error("a capacity of {blocks} blocks is too small: give at least 1")]
    NoBlocks {
        /// What was asked for.
        blocks: u64,
    },
    /// No inode for the root directory and one file.
    #[error("{inodes} inodes are too few: give at least 2 (one is the root directory)")]
    NoInodes {
        /// What was asked for.
        inodes: u64,
    },
    /// Not a possible allocation unit.
    #[error("a block of {block_bytes} bytes is not possible: use 512, 1024, 2048 or 4096")]
    BlockBytes {
        /// What was asked for.
        block_bytes: u32,
    },
}

impl Config {
    /// The unit in which `fallocate` moves data: [`Quirks::move_align_bytes`], or a block.
    pub fn move_bytes(&self) -> u32 {
        self.quirks.move_align_bytes.max(self.block_bytes)
    }

    /// Whether the configuration can work.
    ///
    /// # Errors
    /// Names the value that cannot work.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if ![512, 1024, 2048, 4096].contains(&self.block_bytes) {
            return Err(ConfigError::BlockBytes { block_bytes: self.block_bytes });
        }
        if self.blocks == 0 {
            return Err(ConfigError::NoBlocks { blocks: self.blocks });
        }
        if self.inodes < 2 {
            return Err(ConfigError::NoInodes { inodes: self.inodes });
        }
        Ok(())
    }
}
