//! [`Op`]: one file-system operation as data.
//!
//! An operation says everything that is needed to execute it: no pointer, no file descriptor number,
//! no clock. Open files are [`Slot`]s; written bytes are [`Pattern`]s; paths are relative to the root
//! of the subject. What every operation is made of is in [`crate::operand`].

use serde::{Deserialize, Serialize};

use crate::bytes::{FsBytes, FsPath};
use crate::flags::{
    AccessMode, FallocateMode, Mode, MsyncFlags, OpenFlags, RenameFlags, ServerEvents,
    SyncRangeFlags, Whence, XattrFlags,
};
use crate::pattern::Pattern;

/// The number of an open file of the workload. A slot that holds no file stands for a bad
/// descriptor: calls on it must fail with `EBADF`.
pub type Slot = u8;

/// The number of a process that makes calls. Slots, identity, mask and working directory are its own;
/// a workload with one process has caller 0.
pub type Caller = u32;

/// What a call works on: a path or an open file (`stat` and `fstat`, `chmod` and `fchmod`, …).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// A path; a symbolic link at its end is followed.
    Path(FsPath),
    /// A path; a symbolic link at its end is itself the target (the `l…` calls).
    Link(FsPath),
    /// An open file (the `f…` calls).
    Slot(Slot),
}

/// A time argument of `utimensat(2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeArg {
    /// `UTIME_NOW`
    Now,
    /// `UTIME_OMIT`
    Omit,
    /// A given time.
    At {
        /// Seconds since the epoch.
        sec: i64,
        /// Nanoseconds; 1,000,000,000 and more must give `EINVAL`.
        nsec: u32,
    },
}

/// One operation. The variants are named after the system calls; calls that differ only in how the
/// file is named are one variant with a [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[allow(missing_docs, reason = "the fields are the arguments in the call's manual page")]
pub enum Op {
    /// `open(2)`. A slot that is in use is closed first.
    Open { slot: Slot, path: FsPath, flags: OpenFlags, mode: Mode },
    /// `close(2)`
    Close { slot: Slot },
    /// `read(2)`
    Read { slot: Slot, len: u64 },
    /// `pread(2)`
    Pread { slot: Slot, offset: i64, len: u64 },
    /// `write(2)`
    Write { slot: Slot, data: Pattern },
    /// `pwrite(2)`
    Pwrite { slot: Slot, offset: i64, data: Pattern },
    /// `lseek(2)`
    Lseek { slot: Slot, offset: i64, whence: Whence },
    /// `truncate(2)`, `ftruncate(2)`; a [`Target::Link`] is the same as a path (no such call exists).
    Truncate { target: Target, len: i64 },
    /// `fallocate(2)`
    Fallocate { slot: Slot, mode: FallocateMode, offset: i64, len: i64 },
    /// `mkdir(2)`
    Mkdir { path: FsPath, mode: Mode },
    /// `rmdir(2)`
    Rmdir { path: FsPath },
    /// `unlink(2)`
    Unlink { path: FsPath },
    /// `renameat2(2)`; with empty flags `rename(2)`.
    Rename { from: FsPath, to: FsPath, flags: RenameFlags },
    /// `linkat(2)`; `follow` is `AT_SYMLINK_FOLLOW`.
    Link { from: FsPath, to: FsPath, follow: bool },
    /// `symlink(2)`
    Symlink { target: FsBytes, path: FsPath },
    /// `readlink(2)` into a buffer of `len` bytes.
    Readlink { path: FsPath, len: u64 },
    /// `mknod(2)`; the type is in the mode, `dev` is (major, minor).
    Mknod { path: FsPath, mode: Mode, dev: (u32, u32) },
    /// `chmod(2)`, `fchmod(2)`; a [`Target::Link`] is `fchmodat2(2)` with `AT_SYMLINK_NOFOLLOW`.
    Chmod { target: Target, mode: Mode },
    /// `chown(2)`, `lchown(2)`, `fchown(2)`; `None` leaves the owner as it is.
    Chown { target: Target, uid: Option<u32>, gid: Option<u32> },
    /// `utimensat(2)`, `futimens(3)`
    Utimens { target: Target, atime: TimeArg, mtime: TimeArg },
    /// `setxattr(2)`, `lsetxattr(2)`, `fsetxattr(2)`
    Setxattr { target: Target, name: FsBytes, value: Pattern, flags: XattrFlags },
    /// `getxattr(2)` and its variants into a buffer of `len` bytes (0 asks for the size).
    Getxattr { target: Target, name: FsBytes, len: u64 },
    /// `listxattr(2)` and its variants into a buffer of `len` bytes (0 asks for the size).
    Listxattr { target: Target, len: u64 },
    /// `removexattr(2)` and its variants
    Removexattr { target: Target, name: FsBytes },
    /// `stat(2)`, `lstat(2)`, `fstat(2)` (executed as `statx(2)`)
    Stat { target: Target },
    /// `getdents(2)`: rewinds the open directory and reads all of it.
    Getdents { slot: Slot },
    /// `statfs(2)`, `fstatfs(2)`; a [`Target::Link`] is the same as a path (no such call exists).
    Statfs { target: Target },
    /// `faccessat2(2)`; `effective` is `AT_EACCESS`; [`Target::Link`] is `AT_SYMLINK_NOFOLLOW`;
    /// [`Target::Slot`] is `AT_EMPTY_PATH`.
    Access { target: Target, mode: AccessMode, effective: bool },
    /// `fsync(2)`
    Fsync { slot: Slot },
    /// `fdatasync(2)`
    Fdatasync { slot: Slot },
    /// `sync(2)`
    Sync,
    /// `syncfs(2)`
    Syncfs { slot: Slot },
    /// `sync_file_range(2)`
    SyncFileRange { slot: Slot, offset: i64, len: i64, flags: SyncRangeFlags },
    /// `mmap(2)` shared and writable, store the pattern at `offset`, `msync(2)`, unmap. The pattern is stored
    /// as far as the last page of the file reaches (beyond it the kernel would send `SIGBUS`); the return
    /// value is the number of bytes stored inside the file. What is stored behind its end has no effect: it
    /// must be zeros when the file grows (mmap(2), "the effect of changes to the last page").
    MmapStore { slot: Slot, offset: i64, data: Pattern, sync: MsyncFlags },
    /// `mmap(2)` shared and readable, load up to `len` bytes at `offset` that lie inside the file.
    MmapLoad { slot: Slot, offset: i64, len: u64 },
    /// `copy_file_range(2)`; `None` uses and moves the file position.
    CopyFileRange {
        from: Slot,
        from_offset: Option<i64>,
        to: Slot,
        to_offset: Option<i64>,
        len: u64,
        flags: u32,
    },
    /// `umask(2)`
    Umask { mask: Mode },
    /// The caller becomes this user (real and effective ids, supplementary groups). Needs
    /// [`crate::Capability::Identity`].
    Identity { uid: u32, gid: u32, groups: Vec<u32> },
    /// Closes every slot, unmounts, mounts again. Needs [`crate::Capability::Remount`].
    Remount,
    /// Nothing is called for so long: timers of the kernel expire, what is dirty is written back. In a
    /// guest with a clock of its own that takes no time.
    Wait { seconds: u32 },
    /// Something happens to the server of a network file system, and is over: it ends (orderly, or killed) and
    /// starts again, its export goes and comes back, it forgets its clients. Open files stay open. Needs
    /// [`crate::Capability::Server`].
    Server { events: ServerEvents },
    /// `linkat(2)` of an open file, also of one without a name (`O_TMPFILE`): of the descriptor with
    /// `AT_EMPTY_PATH`, or of its entry in `/proc/self/fd` with `AT_SYMLINK_FOLLOW` (`by_proc`).
    LinkSlot { slot: Slot, to: FsPath, by_proc: bool },
    /// `getdents64(2)`: one call with room for `len` bytes. The listing goes on where the last piece ended, or,
    /// after `lseek(2)`, where the piece so many pieces `back` began. It starts again at the first entry if there
    /// are not so many pieces, and when there is none yet: since the directory was opened, since
    /// [`Op::Getdents`] or [`Op::Lseek`].
    ListPiece { slot: Slot, back: u32, len: u64 },
}
