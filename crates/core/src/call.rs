//! An operation as people write it: `pwrite(#0, 4096 bytes of pattern 7, at 0)`. `#0` is slot 0.
//!
//! Used wherever a person reads an operation: stories of findings, exported programs, progress.

use std::fmt::{self, Display};

use crate::flags::Whence;
use crate::op::{Op, Target, TimeArg};
use crate::pattern::Pattern;

impl Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.call(), self.arguments().join(", "))
    }
}

impl Op {
    /// The system call by which the operation is executed (`fchmod` where a slot is the target).
    pub fn call(&self) -> &'static str {
        match self {
            Op::Truncate { target, .. } => pick(target, ["truncate", "truncate", "ftruncate"]),
            Op::Chmod { target, .. } => pick(target, ["chmod", "fchmodat2", "fchmod"]),
            Op::Chown { target, .. } => pick(target, ["chown", "lchown", "fchown"]),
            Op::Utimens { target, .. } => pick(target, ["utimensat", "utimensat", "futimens"]),
            Op::Setxattr { target, .. } => pick(target, ["setxattr", "lsetxattr", "fsetxattr"]),
            Op::Getxattr { target, .. } => pick(target, ["getxattr", "lgetxattr", "fgetxattr"]),
            Op::Listxattr { target, .. } => pick(target, ["listxattr", "llistxattr", "flistxattr"]),
            Op::Removexattr { target, .. } => {
                pick(target, ["removexattr", "lremovexattr", "fremovexattr"])
            }
            Op::Stat { target } => pick(target, ["stat", "lstat", "fstat"]),
            Op::Statfs { target } => pick(target, ["statfs", "statfs", "fstatfs"]),
            Op::Access { .. } => "faccessat2",
            Op::Rename { flags, .. } if !flags.is_empty() => "renameat2",
            other => other.name(),
        }
    }

    fn arguments(&self) -> Vec<String> {
        match self {
            Op::Open { slot, path, flags, mode } => {
                vec![at(slot), quoted(path), flags.names().join("|"), mode.to_string()]
            }
            Op::Close { slot }
            | Op::Getdents { slot }
            | Op::Fsync { slot }
            | Op::Fdatasync { slot }
            | Op::Syncfs { slot } => vec![at(slot)],
            Op::Read { slot, len } => vec![at(slot), bytes(len)],
            Op::Pread { slot, offset, len } | Op::MmapLoad { slot, offset, len } => {
                vec![at(slot), bytes(len), from(offset)]
            }
            Op::Write { slot, data } => vec![at(slot), pattern(data)],
            Op::Pwrite { slot, offset, data } => vec![at(slot), pattern(data), from(offset)],
            Op::Lseek { slot, offset, whence } => {
                vec![at(slot), offset.to_string(), seek(*whence).to_owned()]
            }
            Op::Fallocate { slot, mode, offset, len } => {
                vec![at(slot), compact(mode), from(offset), bytes(len)]
            }
            Op::SyncFileRange { slot, offset, len, flags } => {
                vec![at(slot), from(offset), bytes(len), compact(flags)]
            }
            Op::MmapStore { slot, offset, data, sync } => {
                vec![at(slot), pattern(data), from(offset), compact(sync)]
            }
            Op::CopyFileRange { from, from_offset, to, to_offset, len, flags } => vec![
                format!("{} {}", at(from), position(from_offset)),
                format!("{} {}", at(to), position(to_offset)),
                bytes(len),
                flags.to_string(),
            ],
            Op::Umask { mask } => vec![mask.to_string()],
            Op::Identity { uid, gid, groups } => {
                vec![format!("uid {uid}"), format!("gid {gid}"), format!("groups {groups:?}")]
            }
            Op::Sync | Op::Remount => Vec::new(),
            other => other.named_arguments(),
        }
    }

    /// The arguments of the operations that name a path or a [`Target`].
    fn named_arguments(&self) -> Vec<String> {
        match self {
            Op::Mkdir { path, mode } => vec![quoted(path), mode.to_string()],
            Op::Rmdir { path } | Op::Unlink { path } => vec![quoted(path)],
            Op::Rename { from, to, flags } if flags.is_empty() => vec![quoted(from), quoted(to)],
            Op::Rename { from, to, flags } => vec![quoted(from), quoted(to), compact(flags)],
            Op::Link { from, to, follow: false } => vec![quoted(from), quoted(to)],
            Op::Link { from, to, follow: true } => {
                vec![quoted(from), quoted(to), "AT_SYMLINK_FOLLOW".to_owned()]
            }
            Op::Symlink { target, path } => vec![quoted(target), quoted(path)],
            Op::Readlink { path, len } => vec![quoted(path), bytes(len)],
            Op::Mknod { path, mode, dev } => {
                vec![quoted(path), mode.to_string(), format!("{}:{}", dev.0, dev.1)]
            }
            Op::Truncate { target, len } => vec![named(target), bytes(len)],
            Op::Chmod { target, mode } => {
                vec![named(target), mode.to_string(), no_follow(target)]
            }
            Op::Chown { target, uid, gid } => vec![named(target), owner(*uid), owner(*gid)],
            Op::Utimens { target, atime, mtime } => {
                vec![named(target), time(atime), time(mtime), no_follow(target)]
            }
            Op::Setxattr { target, name, value, flags } => {
                vec![named(target), quoted(name), pattern(value), compact(flags)]
            }
            Op::Getxattr { target, name, len } => vec![named(target), quoted(name), bytes(len)],
            Op::Listxattr { target, len } => vec![named(target), bytes(len)],
            Op::Removexattr { target, name } => vec![named(target), quoted(name)],
            Op::Stat { target } | Op::Statfs { target } => vec![named(target)],
            Op::Access { target, mode, effective } => {
                let mode = if mode.is_empty() { "F_OK".to_owned() } else { compact(mode) };
                let effective = if *effective { "AT_EACCESS" } else { "" };
                vec![named(target), mode, effective.to_owned(), no_follow(target)]
            }
            other => unreachable!("{} names no path", other.name()),
        }
        .into_iter()
        .filter(|argument| !argument.is_empty())
        .collect()
    }
}

/// The call for a path, for a link itself, for a slot.
fn pick(target: &Target, [path, link, slot]: [&'static str; 3]) -> &'static str {
    match target {
        Target::Path(_) => path,
        Target::Link(_) => link,
        Target::Slot(_) => slot,
    }
}

fn named(target: &Target) -> String {
    match target {
        Target::Path(path) | Target::Link(path) => quoted(path),
        Target::Slot(slot) => at(slot),
    }
}

fn no_follow(target: &Target) -> String {
    let flag = if matches!(target, Target::Link(_)) { "AT_SYMLINK_NOFOLLOW" } else { "" };
    flag.to_owned()
}

fn quoted(text: &impl Display) -> String {
    format!("\"{text}\"")
}

fn at(slot: &u8) -> String {
    format!("#{slot}")
}

fn bytes(len: &impl Display) -> String {
    format!("{len} bytes")
}

fn from(offset: &i64) -> String {
    format!("at {offset}")
}

fn position(offset: &Option<i64>) -> String {
    offset.map_or_else(|| "at its position".to_owned(), |offset| from(&offset))
}

fn pattern(data: &Pattern) -> String {
    format!("{} bytes of pattern {}", data.len, data.seed)
}

fn owner(id: Option<u32>) -> String {
    id.map_or_else(|| "-1".to_owned(), |id| id.to_string())
}

fn time(time: &TimeArg) -> String {
    match time {
        TimeArg::Now => "UTIME_NOW".to_owned(),
        TimeArg::Omit => "UTIME_OMIT".to_owned(),
        TimeArg::At { sec, nsec } => format!("{sec}.{nsec:09}"),
    }
}

/// Flags as `strace` shows them.
fn compact(flags: &impl Display) -> String {
    flags.to_string().replace(" | ", "|")
}

/// The name of a whence.
pub(crate) fn seek(whence: Whence) -> &'static str {
    match whence {
        Whence::Set => "SEEK_SET",
        Whence::Cur => "SEEK_CUR",
        Whence::End => "SEEK_END",
        Whence::Data => "SEEK_DATA",
        Whence::Hole => "SEEK_HOLE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Mode, OpenFlags, RenameFlags};

    #[test]
    fn calls_read_like_calls() {
        let data = Pattern { seed: 7, len: 4096 };
        let flags = OpenFlags::O_CREAT | OpenFlags::O_EXCL;
        let ops = [
            Op::Open { slot: 0, path: "f0".into(), flags, mode: Mode(0o644) },
            Op::Pwrite { slot: 0, offset: -1, data },
            Op::Rename { from: "a".into(), to: "b".into(), flags: RenameFlags::empty() },
            Op::Chown { target: Target::Link("l".into()), uid: None, gid: Some(3) },
            Op::Utimens {
                target: Target::Link("l".into()),
                atime: TimeArg::Omit,
                mtime: TimeArg::At { sec: 1, nsec: 5 },
            },
            Op::Sync,
        ];
        assert_eq!(
            ops.map(|op| op.to_string()),
            [
                "open(#0, \"f0\", O_RDONLY|O_CREAT|O_EXCL, 0644)",
                "pwrite(#0, 4096 bytes of pattern 7, at -1)",
                "rename(\"a\", \"b\")",
                "lchown(\"l\", -1, 3)",
                "utimensat(\"l\", UTIME_OMIT, 1.000000005, AT_SYMLINK_NOFOLLOW)",
                "sync()",
            ]
        );
    }
}
