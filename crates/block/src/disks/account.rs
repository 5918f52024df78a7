//! What a file system says of a file beside what its tree shows.

use std::collections::BTreeMap;

use fathom_core::FsPath;
use serde::{Deserialize, Serialize};

/// What file systems say of a regular file, each in its own way. It is no part of a tree: correct ones
/// differ in it, but what one of them has made durable it keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Account {
    /// Allocated blocks of 512 bytes, those behind the end of the file too.
    pub blocks_512: u64,
    /// The modification time: seconds and nanoseconds.
    pub mtime: (i64, u32),
}

/// Accounts by path.
pub type Accounts = BTreeMap<FsPath, Account>;
