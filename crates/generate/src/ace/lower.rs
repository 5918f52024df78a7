//! From j-lang to operations.

use fathom_core::flags::{FallocateMode, Mode, MsyncFlags, OpenFlags, RenameFlags, XattrFlags};
use fathom_core::{FsBytes, Op, Pattern, Slot, Target};

use super::jlang::{Line, Name, Range};

/// The attribute that ACE sets.
const XATTR: &str = "user.xattr1";

/// Bytes of its value.
const XATTR_BYTES: u64 = 4;

/// How ACE opens a file for a direct write.
const DIRECT: OpenFlags = OpenFlags::O_RDWR.union(OpenFlags::O_DIRECT).union(OpenFlags::O_SYNC);

/// Every name has its own slot.
fn slot(name: Name) -> Slot {
    name as Slot
}

/// The operations of the lines. Every write has a seed of its own, so that no two write the same.
pub(super) fn lower(lines: &[Line]) -> Vec<Op> {
    let mut ops = Vec::with_capacity(lines.len() + 3);
    let mut seed = 0;
    let mut data = |range: &Range| {
        seed += 1;
        Pattern { seed, len: range.len.unsigned_abs() }
    };
    for line in lines {
        match line {
            Line::Write(name, range) => {
                let (slot, data) = (slot(*name), data(range));
                ops.push(Op::Pwrite { slot, offset: range.offset, data });
            }
            Line::DirectWrite(name, range) => {
                let (slot, data) = (slot(*name), data(range));
                ops.push(Op::Close { slot });
                ops.push(Op::Open { slot, path: name.path(), flags: DIRECT, mode: Mode(0) });
                ops.push(Op::Pwrite { slot, offset: range.offset, data });
                ops.push(Op::Close { slot });
            }
            Line::MmapWrite(name, range) => {
                let (slot, data, offset) = (slot(*name), data(range), range.offset);
                let mode = FallocateMode::empty();
                ops.push(Op::Fallocate { slot, mode, offset, len: range.len });
                ops.push(Op::MmapStore { slot, offset, data, sync: MsyncFlags::MS_SYNC });
            }
            line => ops.extend(call(line)),
        }
    }
    ops
}

/// The operation of a line that writes no data of its own; none for a checkpoint.
fn call(line: &Line) -> Option<Op> {
    let path = |name: &Name| name.path();
    Some(match line {
        Line::Open(name, flags, mode) => {
            Op::Open { slot: slot(*name), path: path(name), flags: *flags, mode: *mode }
        }
        Line::OpenDir(name, _) => {
            let flags = OpenFlags::O_DIRECTORY;
            Op::Open { slot: slot(*name), path: path(name), flags, mode: Mode(0) }
        }
        Line::Close(name) => Op::Close { slot: slot(*name) },
        Line::Mkdir(name, mode) => Op::Mkdir { path: path(name), mode: *mode },
        Line::Rmdir(name) => Op::Rmdir { path: path(name) },
        Line::Mknod(name) => {
            // S_IFCHR | S_IFBLK, as ACE has it, is S_IFBLK.
            Op::Mknod { path: path(name), mode: Mode(Mode::S_IFBLK | 0o777), dev: (0, 0) }
        }
        Line::Falloc(name, mode, Range { offset, len }) => {
            Op::Fallocate { slot: slot(*name), mode: *mode, offset: *offset, len: *len }
        }
        Line::Truncate(name, len) => Op::Truncate { target: Target::Path(path(name)), len: *len },
        Line::Link(from, to) => Op::Link { from: path(from), to: path(to), follow: false },
        Line::Symlink(from, to) => {
            Op::Symlink { target: FsBytes::from(path(from).as_bytes()), path: path(to) }
        }
        Line::Rename(from, to) => {
            Op::Rename { from: path(from), to: path(to), flags: RenameFlags::empty() }
        }
        Line::Unlink(name) | Line::Remove(name) => Op::Unlink { path: path(name) },
        Line::SetXattr(name) => Op::Setxattr {
            target: Target::Slot(slot(*name)),
            name: FsBytes::from(XATTR),
            value: Pattern { seed: 1, len: XATTR_BYTES },
            flags: XattrFlags::empty(),
        },
        Line::RemoveXattr(name) => {
            Op::Removexattr { target: Target::Path(path(name)), name: FsBytes::from(XATTR) }
        }
        Line::Fsync(name) => Op::Fsync { slot: slot(*name) },
        Line::Fdatasync(name) => Op::Fdatasync { slot: slot(*name) },
        Line::Sync => Op::Sync,
        Line::Write(..) | Line::DirectWrite(..) | Line::MmapWrite(..) => return None,
        Line::None | Line::Checkpoint(_) => return None,
    })
}
