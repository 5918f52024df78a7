//! What a field is for: the type that decides which values are tried.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// The meaning of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A plain number that fits no other kind.
    Number,
    /// How many of something there are.
    Count,
    /// The number of a block, cluster or zone.
    Block,
    /// The number of an inode.
    Inode,
    /// A size in bytes.
    Size,
    /// The length of a structure or name.
    Length,
    /// A point in time.
    Time,
    /// A constant that identifies a structure.
    Magic,
    /// A checksum of other bytes.
    Checksum,
    /// A hash that the file system uses to find things.
    Hash,
    /// A set of bits with a meaning each.
    Flags,
    /// Type and permissions of a file.
    Mode,
    /// A byte of a name or text.
    Name,
    /// A byte of a bitmap of blocks or inodes.
    Bitmap,
}

/// Every kind with its name in layout files.
const NAMES: &[(Kind, &str)] = &[
    (Kind::Number, "number"),
    (Kind::Count, "count"),
    (Kind::Block, "block"),
    (Kind::Inode, "inode"),
    (Kind::Size, "size"),
    (Kind::Length, "length"),
    (Kind::Time, "time"),
    (Kind::Magic, "magic"),
    (Kind::Checksum, "checksum"),
    (Kind::Hash, "hash"),
    (Kind::Flags, "flags"),
    (Kind::Mode, "mode"),
    (Kind::Name, "name"),
    (Kind::Bitmap, "bitmap"),
];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(kind, _)| kind == self).map_or("number", |(_, name)| name);
        f.pad(name)
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        let known = NAMES.iter().find(|(_, name)| *name == text);
        known.map(|(kind, _)| *kind).ok_or_else(|| format!("there is no kind of field {text:?}"))
    }
}
