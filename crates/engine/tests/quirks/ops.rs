//! Operations in few words.

use fathom_core::flags::{
    AccessMode, FallocateMode, MsyncFlags, OpenFlags as O, RenameFlags, Whence, XattrFlags,
};
use fathom_core::{FsBytes, FsPath, Mode, Op, Pattern, Target, TimeArg};

pub(crate) const NOTHING: XattrFlags = XattrFlags::empty();
pub(crate) const BOTH: XattrFlags = XattrFlags::XATTR_CREATE.union(XattrFlags::XATTR_REPLACE);
pub(crate) const KEEP: FallocateMode = FallocateMode::FALLOC_FL_KEEP_SIZE;
pub(crate) const PLAIN: RenameFlags = RenameFlags::empty();
pub(crate) const LARGEST: i64 = i64::MAX - 8191;

pub(crate) fn path(path: &str) -> FsPath {
    FsPath::from(path)
}

pub(crate) fn at(name: &str) -> Target {
    Target::Path(path(name))
}

pub(crate) fn file(name: &str) -> Op {
    Op::Mknod { path: path(name), mode: Mode(Mode::S_IFREG | 0o666), dev: (0, 0) }
}

pub(crate) fn fifo(name: &str) -> Op {
    Op::Mknod { path: path(name), mode: Mode(Mode::S_IFIFO | 0o777), dev: (0, 0) }
}

pub(crate) fn device(name: &str, dev: (u32, u32)) -> Op {
    Op::Mknod { path: path(name), mode: Mode(Mode::S_IFCHR | 0o666), dev }
}

pub(crate) fn mkdir(name: &str, mode: u32) -> Op {
    Op::Mkdir { path: path(name), mode: Mode(mode) }
}

pub(crate) fn symlink(bytes: usize) -> Op {
    Op::Symlink { target: FsBytes::from("x".repeat(bytes).as_str()), path: path("l") }
}

pub(crate) fn link(from: &str, to: &str) -> Op {
    Op::Link { from: path(from), to: path(to), follow: false }
}

pub(crate) fn rename(from: &str, to: &str, flags: RenameFlags) -> Op {
    Op::Rename { from: path(from), to: path(to), flags }
}

pub(crate) fn open(slot: u8, name: &str, flags: O) -> Op {
    Op::Open { slot, path: path(name), flags, mode: Mode(0o666) }
}

/// An open, empty file.
pub(crate) fn new(slot: u8) -> Op {
    open(slot, "f", O::O_CREAT | O::O_RDWR)
}

pub(crate) fn stat(name: &str) -> Op {
    Op::Stat { target: at(name) }
}

pub(crate) fn data(len: u64) -> Pattern {
    Pattern { seed: 1, len }
}

pub(crate) fn pwrite(slot: u8, offset: i64, len: u64) -> Op {
    Op::Pwrite { slot, offset, data: data(len) }
}

pub(crate) fn truncate(slot: u8, len: i64) -> Op {
    Op::Truncate { target: Target::Slot(slot), len }
}

pub(crate) fn fallocate(mode: FallocateMode, len: i64) -> Op {
    Op::Fallocate { slot: 0, mode, offset: 0, len }
}

pub(crate) fn lseek(slot: u8, offset: i64, whence: Whence) -> Op {
    Op::Lseek { slot, offset, whence }
}

pub(crate) fn store(offset: i64, len: u64) -> Op {
    Op::MmapStore { slot: 0, offset, data: data(len), sync: MsyncFlags::MS_SYNC }
}

pub(crate) fn setxattr(name: &str, len: u64, flags: XattrFlags) -> Op {
    Op::Setxattr { target: at("f"), name: FsBytes::from(name), value: data(len), flags }
}

pub(crate) fn removexattr(name: &str) -> Op {
    Op::Removexattr { target: at("f"), name: FsBytes::from(name) }
}

pub(crate) fn chmod(name: &str, mode: u32) -> Op {
    Op::Chmod { target: at(name), mode: Mode(mode) }
}

pub(crate) fn chown(name: &str, uid: Option<u32>, gid: Option<u32>) -> Op {
    Op::Chown { target: at(name), uid, gid }
}

pub(crate) fn access(name: &str, mode: AccessMode) -> Op {
    Op::Access { target: at(name), mode, effective: true }
}

pub(crate) fn touch(name: &str, atime: TimeArg, mtime: TimeArg) -> Op {
    Op::Utimens { target: at(name), atime, mtime }
}

pub(crate) fn second(sec: i64) -> TimeArg {
    TimeArg::At { sec, nsec: 0 }
}

/// Somebody without privileges.
pub(crate) fn alice() -> Op {
    Op::Identity { uid: 1000, gid: 1000, groups: Vec::new() }
}

pub(crate) fn copy(len: u64) -> Op {
    Op::CopyFileRange { from: 0, from_offset: Some(0), to: 1, to_offset: Some(0), len, flags: 0 }
}

pub(crate) fn load() -> Op {
    Op::MmapLoad { slot: 0, offset: 0, len: 1 }
}

/// An open setuid file.
pub(crate) fn privileged() -> Op {
    let flags = O::O_CREAT | O::O_RDWR;
    Op::Open { slot: 0, path: path("f"), flags, mode: Mode(0o4777) }
}

/// A file that was moved with a whiteout between setgid directories.
pub(crate) fn whited_out() -> Vec<Op> {
    let group = |name: &str, gid| [chown(name, None, Some(gid)), chmod(name, 0o2777)];
    let mut ops = vec![mkdir("a", 0o777), mkdir("b", 0o777), file("a/f")];
    ops.extend(group("a", 5));
    ops.extend(group("b", 7));
    ops.push(rename("a/f", "b/f", RenameFlags::RENAME_WHITEOUT));
    ops
}

/// A directory that was moved to another one.
pub(crate) fn moved() -> Vec<Op> {
    vec![mkdir("d", 0o755), mkdir("e", 0o755), rename("d", "e/d", PLAIN)]
}

/// Somebody who may not read `trusted.*` of a file that has it.
pub(crate) fn with_trusted() -> Vec<Op> {
    vec![file("f"), setxattr("trusted.a", 1, NOTHING), alice()]
}
