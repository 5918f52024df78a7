//! [`Claim`]: what must be true after the last step of a run, in a form that a program can check.
//!
//! The trace of a finding has the claims that its subject violates. An exported program ends by
//! asking each [`Probe`] and comparing its answer, as text, with what the reference shows.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bytes::{FsBytes, FsPath};
use crate::tree::Entry;

/// One thing that is different between the subject and the reference after the last step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// What is asked.
    pub probe: Probe,
    /// What the reference shows.
    pub expected: String,
    /// What the subject showed.
    pub found: String,
}

/// A question about a file system whose answer is a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Probe {
    /// The answer of the last step.
    Answer,
    /// Whether a path is there, and how often its directory lists it.
    Entry {
        /// Which path; a symbolic link is not followed.
        path: FsPath,
    },
    /// One attribute of a path.
    Attribute {
        /// Which path; a symbolic link is not followed.
        path: FsPath,
        /// Which attribute.
        field: Field,
    },
    /// The sorted names in a directory.
    Names {
        /// The directory.
        path: FsPath,
    },
    /// Some bytes of a file, in hexadecimal.
    Content {
        /// The file.
        path: FsPath,
        /// The first byte.
        offset: u64,
        /// How many; fewer where the file ends.
        len: u64,
    },
    /// The value of an extended attribute: its length and some of its bytes, in hexadecimal.
    Xattr {
        /// The file.
        path: FsPath,
        /// The attribute.
        name: FsBytes,
        /// The first byte.
        offset: u64,
        /// How many; fewer where the value ends.
        len: u64,
    },
    /// Whether two paths are names of one file.
    SameFile {
        /// One.
        path: FsPath,
        /// The other.
        other: FsPath,
    },
    /// A timestamp that was set.
    Time {
        /// Which path; a symbolic link is not followed.
        path: FsPath,
        /// Which time of it.
        time: Time,
    },
    /// Whether one timestamp is not before another.
    Order {
        /// Has the time that comes first.
        earlier: FsPath,
        /// Which time of it.
        earlier_time: Time,
        /// Has the time that comes later or at the same time.
        later: FsPath,
        /// Which time of it.
        later_time: Time,
    },
    /// What the checker of the file system says of the disk, unmounted.
    Checker {
        /// The command that was run.
        command: String,
    },
    /// What the kernel has logged since the program started: its first warning or error.
    KernelLog,
    /// Whether the last call returns.
    Returns {
        /// The time after which it is given up.
        seconds: u64,
    },
    /// Whether the last answer is the same in every try.
    Always {
        /// How often it is tried.
        tries: u32,
    },
    /// A count of `statfs(2)`, as its change since the program started.
    Space {
        /// Which count.
        field: Space,
        /// By how much it may be wrong.
        slack: u64,
    },
}

/// An attribute of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the fields of `Entry`")]
pub enum Field {
    Kind,
    Mode,
    Uid,
    Gid,
    Nlink,
    Size,
    Rdev,
    Target,
}

/// A timestamp of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "inode(7) documents each")]
pub enum Time {
    Mtime,
    Ctime,
}

/// A count of `statfs(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Space {
    /// `f_bfree`, in bytes.
    BytesFree,
    /// `f_ffree`
    FilesFree,
    /// `f_namelen`; not a change but the value.
    NameBytesMax,
    /// Whether `f_bsize` stays, and no count of what is free is above its total.
    Consistent,
}

impl Field {
    /// The field that a [`crate::Difference`] names.
    pub fn of_name(name: &str) -> Option<Field> {
        use Field as F;
        let all = [F::Kind, F::Mode, F::Uid, F::Gid, F::Nlink, F::Size, F::Rdev, F::Target];
        all.into_iter().find(|field| field.name() == name)
    }

    /// As the fields of [`Entry`] are called.
    pub fn name(self) -> &'static str {
        match self {
            Field::Kind => "kind",
            Field::Mode => "mode",
            Field::Uid => "uid",
            Field::Gid => "gid",
            Field::Nlink => "nlink",
            Field::Size => "size",
            Field::Rdev => "rdev",
            Field::Target => "target",
        }
    }

    /// Its value as the text that a probe gives.
    pub fn text(self, entry: &Entry) -> String {
        match self {
            Field::Kind => entry.kind.letter().to_string(),
            Field::Mode => entry.mode.to_string(),
            Field::Uid => entry.uid.to_string(),
            Field::Gid => entry.gid.to_string(),
            Field::Nlink => entry.nlink.to_string(),
            Field::Size => entry.size.to_string(),
            Field::Rdev => format!("{}:{}", entry.rdev.0, entry.rdev.1),
            Field::Target => ascii_name(entry.target.as_bytes()),
        }
    }
}

impl Time {
    /// As [`crate::Difference`]s call it.
    pub fn name(self) -> &'static str {
        match self {
            Time::Mtime => "mtime",
            Time::Ctime => "ctime",
        }
    }
}

impl Space {
    /// As [`crate::Statfs`] calls it.
    pub fn name(self) -> &'static str {
        match self {
            Space::BytesFree => "bytes_free",
            Space::FilesFree => "files_free",
            Space::NameBytesMax => "name_bytes_max",
            Space::Consistent => "consistent",
        }
    }
}

/// A name in ASCII: what is not printable, and the backslash, is escaped.
pub fn ascii_name(bytes: &[u8]) -> String {
    let mut text = String::new();
    for &byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            b' '..=b'~' => text.push(byte as char),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

/// Bytes in hexadecimal, with spaces between them; a word where there are none.
pub fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "nothing".to_owned();
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// What [`Probe::Entry`] answers.
pub fn entry_text(there: bool) -> &'static str {
    if there { "there, listed 1 times" } else { "missing, listed 0 times" }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |path: &FsBytes| ascii_name(path.as_bytes());
        match self {
            Probe::Answer => f.write_str("answer of the last call"),
            Probe::Entry { path } => write!(f, "entry \"{}\"", name(path)),
            Probe::Attribute { path, field } => {
                write!(f, "{} of \"{}\"", field.name(), name(path))
            }
            Probe::Names { path } => write!(f, "names in \"{}\"", name(path)),
            Probe::Content { path, offset, len } => {
                write!(f, "{len} bytes at offset {offset} of \"{}\"", name(path))
            }
            Probe::Xattr { path, name: attr, offset, len } => {
                let (attr, path) = (name(attr), name(path));
                write!(f, "{len} bytes at offset {offset} of xattr \"{attr}\" of \"{path}\"")
            }
            Probe::SameFile { path, other } => {
                write!(f, "whether \"{}\" and \"{}\" are one file", name(path), name(other))
            }
            Probe::Time { path, time } => write!(f, "{} of \"{}\"", time.name(), name(path)),
            Probe::Order { earlier, earlier_time, later, later_time } => write!(
                f,
                "whether {} of \"{}\" is not before {} of \"{}\"",
                later_time.name(),
                name(later),
                earlier_time.name(),
                name(earlier)
            ),
            Probe::Checker { command } => write!(f, "{command}"),
            Probe::KernelLog => f.write_str("log of the kernel"),
            Probe::Returns { seconds } => write!(f, "whether it ends within {seconds} s"),
            Probe::Always { tries } => {
                write!(f, "whether the last answer is the same in {tries} tries")
            }
            Probe::Space { field: Space::BytesFree, slack } => {
                write!(f, "fall of statfs f_bfree since the start, in bytes (give or take {slack})")
            }
            Probe::Space { field: Space::FilesFree, .. } => {
                f.write_str("fall of statfs f_ffree since the start")
            }
            Probe::Space { field: Space::NameBytesMax, .. } => f.write_str("statfs f_namelen"),
            Probe::Space { field: Space::Consistent, .. } => f.write_str(
                "whether f_bsize stayed and f_bavail <= f_bfree <= f_blocks, f_ffree <= f_files",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_are_told_in_words() {
        let content = Probe::Content { path: "d/f".into(), offset: 4096, len: 3 };
        assert_eq!(content.to_string(), "3 bytes at offset 4096 of \"d/f\"");
        assert_eq!(hex(b"a\0"), "61 00");
        assert_eq!(Field::of_name("nlink"), Some(Field::Nlink));
        assert_eq!(Field::of_name("content"), None);
    }
}
