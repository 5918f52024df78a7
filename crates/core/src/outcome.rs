//! [`Outcome`]: what a call answered.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bytes::FsBytes;
use crate::digest::DataSum;
use crate::errno::Errno;
use crate::flags::Mode;

/// The answer of one operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The return value (a new descriptor counts as 0) or the error.
    pub result: Result<u64, Errno>,
    /// What came back beside the return value.
    #[serde(default, skip_serializing_if = "Payload::is_none")]
    pub payload: Payload,
}

/// Data that a call returned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Payload {
    /// Nothing.
    #[default]
    None,
    /// Bytes (`read`, `readlink`, `getxattr`), by their checksum.
    Data(DataSum),
    /// Attributes.
    Stat(Box<Stat>),
    /// Directory entries with `.` and `..`, sorted, duplicates kept: `name` and a type letter as
    /// `ls -l` shows it (`?` if the file system did not say).
    Entries(Vec<(FsBytes, char)>),
    /// Names of extended attributes.
    Names(BTreeSet<FsBytes>),
    /// Space and inode counts.
    Statfs(Statfs),
}

/// Attributes as `stat` returns them, without what legitimately differs between file systems
/// (inode and device numbers, the size of directories, allocated blocks, time values).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of struct stat")]
pub struct Stat {
    pub mode: Mode,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    /// 0 for directories.
    pub size: u64,
    /// (major, minor) for devices, else (0, 0).
    pub rdev: (u32, u32),
}

/// Space and inode counts as `statfs` returns them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of struct statfs")]
pub struct Statfs {
    pub block_bytes: u64,
    pub blocks: u64,
    pub blocks_free: u64,
    pub blocks_available: u64,
    pub files: u64,
    pub files_free: u64,
    pub name_bytes_max: u64,
}

impl Outcome {
    /// Success with a return value and no data.
    pub fn ok(value: u64) -> Outcome {
        Outcome { result: Ok(value), payload: Payload::None }
    }

    /// Failure.
    pub fn err(errno: Errno) -> Outcome {
        Outcome { result: Err(errno), payload: Payload::None }
    }

    /// Success that returned bytes; the return value is their number.
    pub fn data(bytes: &[u8]) -> Outcome {
        Outcome { result: Ok(bytes.len() as u64), payload: Payload::Data(DataSum::of(bytes)) }
    }

    /// What differs from `self` (expected) in `found`, field by field, where both returned fields.
    pub fn differences(&self, found: &Outcome) -> Vec<String> {
        let fields = match (&self.payload, &found.payload) {
            (Payload::Stat(want), Payload::Stat(have)) => {
                stat_fields(want).into_iter().zip(stat_fields(have)).collect()
            }
            (Payload::Statfs(want), Payload::Statfs(have)) => {
                statfs_fields(want).into_iter().zip(statfs_fields(have)).collect()
            }
            _ => Vec::new(),
        };
        let differs = fields.into_iter().filter(|((_, want), (_, have))| want != have);
        differs
            .map(|((name, want), (_, have))| format!("{name}: expected {want}, found {have}"))
            .collect()
    }

    /// Success with a payload and return value 0.
    pub fn with(payload: Payload) -> Outcome {
        Outcome { result: Ok(0), payload }
    }
}

fn stat_fields(stat: &Stat) -> Vec<(&'static str, String)> {
    vec![
        ("mode", stat.mode.to_string()),
        ("nlink", stat.nlink.to_string()),
        ("uid", stat.uid.to_string()),
        ("gid", stat.gid.to_string()),
        ("size", stat.size.to_string()),
        ("rdev", format!("{}:{}", stat.rdev.0, stat.rdev.1)),
    ]
}

fn statfs_fields(counts: &Statfs) -> Vec<(&'static str, String)> {
    vec![
        ("block_bytes", counts.block_bytes.to_string()),
        ("blocks", counts.blocks.to_string()),
        ("blocks_free", counts.blocks_free.to_string()),
        ("blocks_available", counts.blocks_available.to_string()),
        ("files", counts.files.to_string()),
        ("files_free", counts.files_free.to_string()),
        ("name_bytes_max", counts.name_bytes_max.to_string()),
    ]
}

impl From<Result<u64, Errno>> for Outcome {
    fn from(result: Result<u64, Errno>) -> Self {
        Outcome { result, payload: Payload::None }
    }
}

impl Payload {
    /// Whether there is none.
    pub fn is_none(&self) -> bool {
        matches!(self, Payload::None)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.result {
            Ok(value) => write!(f, "{value}")?,
            Err(errno) => write!(f, "{errno}")?,
        }
        match &self.payload {
            Payload::None => Ok(()),
            Payload::Data(sum) => write!(f, " data {sum}"),
            Payload::Stat(stat) => write!(
                f,
                " mode {} nlink {} uid {} gid {} size {} rdev {}:{}",
                stat.mode, stat.nlink, stat.uid, stat.gid, stat.size, stat.rdev.0, stat.rdev.1
            ),
            Payload::Entries(entries) => {
                f.write_str(" entries")?;
                entries.iter().try_for_each(|(name, kind)| write!(f, " {kind}:{name}"))
            }
            Payload::Names(names) => {
                f.write_str(" names")?;
                names.iter().try_for_each(|name| write!(f, " {name}"))
            }
            Payload::Statfs(s) => write!(
                f,
                " block {} blocks {} free {} available {} files {} free {} name {}",
                s.block_bytes,
                s.blocks,
                s.blocks_free,
                s.blocks_available,
                s.files,
                s.files_free,
                s.name_bytes_max
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_name_the_field() {
        let counts = |files_free| Statfs {
            block_bytes: 512,
            blocks: 9,
            blocks_free: 8,
            blocks_available: 8,
            files: 7,
            files_free,
            name_bytes_max: 255,
        };
        let answer = |files_free| Outcome::with(Payload::Statfs(counts(files_free)));
        assert_eq!(answer(6).differences(&answer(5)), ["files_free: expected 6, found 5"]);
        assert_eq!(answer(6).differences(&answer(6)), Vec::<String>::new());
        assert_eq!(answer(6).differences(&Outcome::err(Errno::EIO)), Vec::<String>::new());
    }
}
