//! [`Class`]: an executed operation up to what its partitions need.
//!
//! Operations of one class have the same partitions (tests compare both), so only the first of a
//! class has to be taken apart argument by argument; the class itself is a few shifts.

use std::mem::{Discriminant, discriminant};

use fathom_core::partition::amount::{encode, encode_signed};
use fathom_core::partition::op::{listed_bytes, mapped};
use fathom_core::partition::value::XATTR_NAMESPACES;
use fathom_core::{Op, Outcome, Target};

/// The most codes that an operation has beside its result (`Setxattr`, `CopyFileRange`).
const CODES_MAX: usize = 4;

/// Which operation, how it ended, and the codes of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Class {
    kind: Discriminant<Op>,
    result: u32,
    codes: [u32; CODES_MAX],
}

impl Class {
    /// The class of an operation; `None` for what is no call on a file system.
    pub(super) fn of(op: &Op, outcome: &Outcome) -> Option<Class> {
        let codes = match op {
            Op::Identity { .. } | Op::Remount => return None,
            Op::Getdents { .. } => [amount(listed_bytes(outcome)), 0, 0, 0],
            Op::Setxattr { .. }
            | Op::Getxattr { .. }
            | Op::Listxattr { .. }
            | Op::Removexattr { .. } => of_xattrs(op),
            Op::Truncate { .. }
            | Op::Chmod { .. }
            | Op::Chown { .. }
            | Op::Utimens { .. }
            | Op::Stat { .. }
            | Op::Statfs { .. }
            | Op::Access { .. } => of_attributes(op),
            Op::Open { .. }
            | Op::Mkdir { .. }
            | Op::Rmdir { .. }
            | Op::Unlink { .. }
            | Op::Rename { .. }
            | Op::Link { .. }
            | Op::Symlink { .. }
            | Op::Readlink { .. }
            | Op::Mknod { .. } => of_names(op),
            _ => of_contents(op),
        };
        let result = match outcome.result {
            Ok(value) => amount(value),
            Err(errno) => 1 << 31 | u32::from(errno.0),
        };
        Some(Class { kind: discriminant(op), result, codes })
    }
}

fn of_contents(op: &Op) -> [u32; CODES_MAX] {
    match op {
        Op::Read { len, .. } => [amount(*len), 0, 0, 0],
        Op::Pread { offset, len, .. } => [amount(*len), signed(*offset), 0, 0],
        Op::Write { data, .. } => [amount(data.len), 0, 0, 0],
        Op::Pwrite { offset, data, .. } => [amount(data.len), signed(*offset), 0, 0],
        Op::Lseek { offset, whence, .. } => [signed(*offset), *whence as u32, 0, 0],
        Op::Fallocate { mode, offset, len, .. } => [mode.bits(), signed(*offset), signed(*len), 0],
        Op::SyncFileRange { offset, len, flags, .. } => {
            [flags.bits(), signed(*offset), signed(*len), 0]
        }
        Op::MmapStore { offset, data, sync, .. } => {
            let (start, length) = mapped(*offset, data.len);
            [amount(length), signed(start), amount(data.len), sync.bits()]
        }
        Op::MmapLoad { offset, len, .. } => {
            let (start, length) = mapped(*offset, *len);
            [amount(length), signed(start), 0, 0]
        }
        Op::CopyFileRange { from_offset, to_offset, len, flags, .. } => {
            [optional(*from_offset), optional(*to_offset), amount(*len), *flags]
        }
        Op::Umask { mask } => [mask.0, 0, 0, 0],
        // Close, Fsync, Fdatasync, Sync, Syncfs: a slot and a result.
        _ => [0; CODES_MAX],
    }
}

fn of_names(op: &Op) -> [u32; CODES_MAX] {
    match op {
        Op::Open { path, flags, mode, .. } => [text(path.as_bytes()), flags.bits(), mode.0, 0],
        Op::Mkdir { path, mode } | Op::Mknod { path, mode, .. } => {
            [text(path.as_bytes()), mode.0, 0, 0]
        }
        Op::Rmdir { path } | Op::Unlink { path } => [text(path.as_bytes()), 0, 0, 0],
        Op::Rename { from, to, flags } => {
            [text(from.as_bytes()), text(to.as_bytes()), flags.bits(), 0]
        }
        Op::Link { from, to, follow } => {
            [text(from.as_bytes()), text(to.as_bytes()), u32::from(*follow), 0]
        }
        Op::Symlink { target, path } => [text(target.as_bytes()), text(path.as_bytes()), 0, 0],
        // An int: what is above it in the register does not count.
        Op::Readlink { path, len } => [text(path.as_bytes()), signed(i64::from(*len as i32)), 0, 0],
        other => unreachable!("{} is no operation on names", other.name()),
    }
}

fn of_attributes(op: &Op) -> [u32; CODES_MAX] {
    match op {
        Op::Truncate { target, len } => [of_target(target), signed(*len), 0, 0],
        Op::Chmod { target, mode } => [of_target(target), mode.0, 0, 0],
        Op::Chown { target, uid, gid } => [of_target(target), id(*uid), id(*gid), 0],
        Op::Utimens { target, .. } | Op::Stat { target } | Op::Statfs { target } => {
            [of_target(target), 0, 0, 0]
        }
        Op::Access { target, mode, effective } => {
            [of_target(target), mode.bits(), u32::from(*effective), 0]
        }
        other => unreachable!("{} is no operation on attributes", other.name()),
    }
}

fn of_xattrs(op: &Op) -> [u32; CODES_MAX] {
    match op {
        Op::Setxattr { target, name, value, flags } => {
            [of_target(target), xattr_name(name.as_bytes()), amount(value.len), flags.bits()]
        }
        Op::Getxattr { target, name, len } => {
            [of_target(target), xattr_name(name.as_bytes()), amount(*len), 0]
        }
        Op::Listxattr { target, len } => [of_target(target), amount(*len), 0, 0],
        Op::Removexattr { target, name } => [of_target(target), xattr_name(name.as_bytes()), 0, 0],
        other => unreachable!("{} is no operation on xattrs", other.name()),
    }
}

/// Codes of amounts have sixteen bits; what else belongs to an argument is above them.
fn amount(value: u64) -> u32 {
    encode(value).into()
}

fn signed(value: i64) -> u32 {
    encode_signed(value).into()
}

fn optional(value: Option<i64>) -> u32 {
    value.map_or(1 << 16, signed)
}

fn text(text: &[u8]) -> u32 {
    let absolute = u32::from(text.first() == Some(&b'/'));
    absolute << 16 | amount(text.len() as u64)
}

fn xattr_name(name: &[u8]) -> u32 {
    let space = XATTR_NAMESPACES.iter().position(|space| name.starts_with(space.as_bytes()));
    space.map_or(0, |index| index as u32 + 1) << 16 | amount(name.len() as u64)
}

fn of_target(target: &Target) -> u32 {
    match target {
        Target::Path(path) => text(path.as_bytes()),
        Target::Link(path) => 1 << 20 | text(path.as_bytes()),
        Target::Slot(_) => 2 << 20,
    }
}

/// −1 means "leave it" even where it is written out.
fn id(id: Option<u32>) -> u32 {
    match id {
        None | Some(u32::MAX) => 0,
        Some(0) => 1,
        Some(_) => 2,
    }
}
