//! Flag arguments of system calls, by name.
//!
//! The values are those of the generic Linux ABI (x86-64). A trace stores names, never numbers, so
//! it means the same on every architecture; an executor translates to its own constants. Bits
//! without a name are kept (the kernel's answer to them is worth testing) and stored in hexadecimal.

use bitflags::bitflags;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! flags {
    ($(#[$meta:meta])* $name:ident { $($(#[$item_meta:meta])* $item:ident = $value:expr;)* }) => {
        bitflags! {
            $(#[$meta])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub struct $name: u32 {
                $(
                    #[doc = concat!("`", stringify!($item), "`: see the manual page of the call.")]
                    $(#[$item_meta])*
                    const $item = $value;
                )*
                const _ = !0;
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut text = String::new();
                bitflags::parser::to_writer(self, &mut text).map_err(serde::ser::Error::custom)?;
                serializer.serialize_str(&text)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                bitflags::parser::from_str(&text).map_err(serde::de::Error::custom)
            }
        }
        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                if self.is_empty() {
                    return f.write_str("0");
                }
                bitflags::parser::to_writer(self, f)
            }
        }
    };
}

flags! {
    /// Flags of `open(2)`. `O_RDONLY` is the absence of the other access modes: see
    /// [`OpenFlags::access`].
    OpenFlags {
        O_WRONLY = 0o1; O_RDWR = 0o2; O_CREAT = 0o100; O_EXCL = 0o200; O_NOCTTY = 0o400;
        O_TRUNC = 0o1000; O_APPEND = 0o2000; O_NONBLOCK = 0o4000; O_DSYNC = 0o10000;
        O_ASYNC = 0o20000; O_DIRECT = 0o40000; O_LARGEFILE = 0o100000; O_DIRECTORY = 0o200000;
        O_NOFOLLOW = 0o400000; O_NOATIME = 0o1000000; O_CLOEXEC = 0o2000000;
        // `__O_SYNC` alone; O_SYNC of the manual is O_DSYNC with this bit.
        O_SYNC_BIT = 0o4000000; O_PATH = 0o10000000;
        // `__O_TMPFILE` alone; O_TMPFILE of the manual is O_DIRECTORY with this bit.
        O_TMPFILE_BIT = 0o20000000;
    }
}

/// The access mode of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reading only: `O_RDONLY`.
    Read,
    /// Writing only: `O_WRONLY`.
    Write,
    /// Reading and writing: `O_RDWR`.
    ReadWrite,
    /// Both bits set: Linux opens it for ioctl only and checks for read and write permission.
    Neither,
}

impl OpenFlags {
    /// `O_TMPFILE` as the manual means it.
    pub const O_TMPFILE: OpenFlags = OpenFlags::O_TMPFILE_BIT.union(OpenFlags::O_DIRECTORY);
    /// `O_SYNC` as the manual means it.
    pub const O_SYNC: OpenFlags = OpenFlags::O_SYNC_BIT.union(OpenFlags::O_DSYNC);

    /// The access mode field.
    pub fn access(self) -> Access {
        match self.bits() & 3 {
            0 => Access::Read,
            1 => Access::Write,
            2 => Access::ReadWrite,
            _ => Access::Neither,
        }
    }

    /// The flags as a manual page writes them: the access mode first and always, `O_SYNC` and
    /// `O_TMPFILE` whole, bits without a name in hexadecimal.
    pub fn names(self) -> Vec<String> {
        let mut names = Vec::new();
        let mut rest = self;
        if self.access() == Access::Read {
            names.push("O_RDONLY".to_owned());
        }
        for (flag, name) in [(OpenFlags::O_SYNC, "O_SYNC"), (OpenFlags::O_TMPFILE, "O_TMPFILE")] {
            if self.contains(flag) {
                names.push(name.to_owned());
                rest.remove(flag);
            }
        }
        if !rest.is_empty() {
            names.extend(rest.to_string().split(" | ").map(str::to_owned));
        }
        names
    }
}

flags! {
    /// Flags of `renameat2(2)`.
    RenameFlags { RENAME_NOREPLACE = 1; RENAME_EXCHANGE = 2; RENAME_WHITEOUT = 4; }
}

flags! {
    /// Modes of `fallocate(2)`.
    FallocateMode {
        FALLOC_FL_KEEP_SIZE = 1; FALLOC_FL_PUNCH_HOLE = 2; FALLOC_FL_NO_HIDE_STALE = 4;
        FALLOC_FL_COLLAPSE_RANGE = 8; FALLOC_FL_ZERO_RANGE = 16; FALLOC_FL_INSERT_RANGE = 32;
        FALLOC_FL_UNSHARE_RANGE = 64; FALLOC_FL_WRITE_ZEROES = 128;
    }
}

flags! {
    /// Flags of `setxattr(2)`.
    XattrFlags { XATTR_CREATE = 1; XATTR_REPLACE = 2; }
}

flags! {
    /// What happens to the server of a network file system while its clients go on. `LOCK_ROUND`: clients lock
    /// bytes of a file against each other, and what else happens does so while one holds its locks. The answer is the
    /// number of calls that were served while the export was removed: 0, if all is well.
    ServerEvents {
        SERVER_STOP = 1; SERVER_KILL = 2; EXPORT_REMOVE = 4; CLIENT_EXPIRE = 8; LOCK_ROUND = 16;
    }
}

flags! {
    /// Modes of `access(2)`; `F_OK` is empty.
    AccessMode { X_OK = 1; W_OK = 2; R_OK = 4; }
}

flags! {
    /// Flags of `msync(2)`.
    MsyncFlags { MS_ASYNC = 1; MS_INVALIDATE = 2; MS_SYNC = 4; }
}

flags! {
    /// Flags of `sync_file_range(2)`.
    SyncRangeFlags {
        SYNC_FILE_RANGE_WAIT_BEFORE = 1; SYNC_FILE_RANGE_WRITE = 2; SYNC_FILE_RANGE_WAIT_AFTER = 4;
    }
}

/// The start from which `lseek(2)` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "lseek(2) documents each")]
pub enum Whence {
    #[serde(rename = "SEEK_SET")]
    Set,
    #[serde(rename = "SEEK_CUR")]
    Cur,
    #[serde(rename = "SEEK_END")]
    End,
    #[serde(rename = "SEEK_DATA")]
    Data,
    #[serde(rename = "SEEK_HOLE")]
    Hole,
}

/// File mode bits, shown and stored in octal (`"0644"`; with the type bits `"0100644"`).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mode(pub u32);

#[allow(missing_docs, reason = "inode(7) documents each")]
impl Mode {
    pub const S_IFMT: u32 = 0o170000;
    pub const S_IFSOCK: u32 = 0o140000;
    pub const S_IFLNK: u32 = 0o120000;
    pub const S_IFREG: u32 = 0o100000;
    pub const S_IFBLK: u32 = 0o060000;
    pub const S_IFDIR: u32 = 0o040000;
    pub const S_IFCHR: u32 = 0o020000;
    pub const S_IFIFO: u32 = 0o010000;
    pub const S_ISUID: u32 = 0o4000;
    pub const S_ISGID: u32 = 0o2000;
    pub const S_ISVTX: u32 = 0o1000;
    pub const S_IXGRP: u32 = 0o010;
}

impl Mode {
    /// The permission bits with setuid, setgid and sticky.
    pub fn perm(self) -> u32 {
        self.0 & 0o7777
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "0{:03o}", self.0)
    }
}

impl std::fmt::Debug for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u32::from_str_radix(&text, 8).map(Mode).map_err(|_| {
            serde::de::Error::custom(format!("bad mode {text:?}: write octal digits such as 0644"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_stored_by_name_and_unknown_bits_survive() {
        let flags = OpenFlags::O_RDWR | OpenFlags::O_CREAT | OpenFlags::from_bits_retain(1 << 30);
        let text = serde_json::to_string(&flags).unwrap();
        assert_eq!(text, "\"O_RDWR | O_CREAT | 0x40000000\"");
        assert_eq!(serde_json::from_str::<OpenFlags>(&text).unwrap(), flags);
        assert_eq!(serde_json::from_str::<OpenFlags>("\"\"").unwrap(), OpenFlags::empty());
        assert!(serde_json::from_str::<OpenFlags>("\"O_WRONG\"").is_err());
    }

    #[test]
    fn open_flags_are_named_as_in_the_manual() {
        let names = |flags: OpenFlags| flags.names().join("|");
        assert_eq!(names(OpenFlags::empty()), "O_RDONLY");
        assert_eq!(names(OpenFlags::O_SYNC | OpenFlags::O_EXCL), "O_RDONLY|O_SYNC|O_EXCL");
        let odd = OpenFlags::O_RDWR | OpenFlags::O_SYNC_BIT | OpenFlags::from_bits_retain(1 << 31);
        assert_eq!(names(odd), "O_RDWR|O_SYNC_BIT|0x80000000");
        assert_eq!(names(OpenFlags::O_TMPFILE | OpenFlags::O_WRONLY), "O_TMPFILE|O_WRONLY");
    }

    #[test]
    fn modes_are_octal_text() {
        assert_eq!(serde_json::to_string(&Mode(0o644)).unwrap(), "\"0644\"");
        assert_eq!(serde_json::to_string(&Mode(0o100644)).unwrap(), "\"0100644\"");
        assert_eq!(serde_json::from_str::<Mode>("\"0755\"").unwrap(), Mode(0o755));
        assert!(serde_json::from_str::<Mode>("\"89\"").is_err());
    }
}
