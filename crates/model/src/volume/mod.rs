//! The file system proper: inodes, entries, contents, attributes, capacity.
#![allow(unused_variables, reason = "being written")]

use std::sync::Arc;

use fathom_core::flags::{FallocateMode, RenameFlags, XattrFlags};
use fathom_core::{Digest, Errno, FsBytes, Kind, Mode, Statfs, Times, Tree};
use serde::{Deserialize, Serialize};

use crate::config::{Config, ConfigError};

/// Names an inode for the life of a volume: the slot in the table in the low 32 bits, a generation
/// that is never used twice (not even after going back to a snapshot) in the high ones.
pub type Ino = u64;

/// The root directory.
pub const ROOT: Ino = 1;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
}

/// What to make.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the seven types of inode(7)")]
pub enum NewNode {
    File,
    Dir,
    Symlink(FsBytes),
    Fifo,
    Socket,
    Char(u32, u32),
    Block(u32, u32),
}

/// The attributes of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of struct stat")]
pub struct Attr {
    pub ino: Ino,
    pub kind: Kind,
    /// Permission bits only.
    pub mode: Mode,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    /// 0 for directories (as in a [`Tree`]).
    pub size: u64,
    pub rdev: (u32, u32),
    /// Allocated space in units of 512 bytes.
    pub blocks_512: u64,
    pub times: Times,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The logical clock.
    Now,
    /// A value.
    At {
        /// Seconds since the epoch.
        sec: i64,
        /// Nanoseconds.
        nsec: u32,
    },
}

/// One entry of a directory, without `.` and `..`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// Its name.
    pub name: FsBytes,
    /// The inode.
    pub ino: Ino,
    /// Its type.
    pub kind: Kind,
    /// Its stable position in the directory: greater than 2 (so that `.` and `..` fit before), never
    /// changes while the entry exists, grows with every new entry.
    pub cookie: u64,
}

/// What [`Volume::tree`] includes beyond the abstract state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeOptions {
    /// Data segments of files.
    pub segments: bool,
    /// Timestamps.
    pub times: bool,
}

/// A whole file system. Clones share everything.
#[derive(Clone, Debug)]
pub struct Volume {}

/// A volume in a form that can be stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VolumeImage {}

impl Caller {
    /// uid 0, gid 0, no further groups.
    pub fn root() -> Caller { todo!() }
    /// Whether the caller has root's capabilities (uid 0 has all, anybody else none).
    pub fn is_privileged(&self) -> bool { todo!() }
    /// Whether `gid` is the caller's group or one of the supplementary ones.
    pub fn in_group(&self, gid: u32) -> bool { todo!() }
}

#[allow(missing_docs)]
impl Volume {
    pub fn new(config: Config) -> Result<Volume, ConfigError> { todo!() }
    pub fn config(&self) -> &Config { todo!() }
    /// Also knows `.` and `..`.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino, Errno> { todo!() }
    pub fn parent(&self, dir: Ino) -> Result<Ino, Errno> { todo!() }
    pub fn attr(&self, ino: Ino) -> Result<Attr, Errno> { todo!() }
    /// `mode`: permission bits after the umask. Applies setgid inheritance of the directory.
    pub fn make(&mut self, caller: &Caller, dir: Ino, name: &[u8], node: NewNode, mode: Mode) -> Result<Ino, Errno> { todo!() }
    /// A file without a name; comes back pinned once.
    pub fn make_tmpfile(&mut self, caller: &Caller, dir: Ino, mode: Mode) -> Result<Ino, Errno> { todo!() }
    pub fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<(), Errno> { todo!() }
    pub fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<(), Errno> { todo!() }
    pub fn rmdir(&mut self, dir: Ino, name: &[u8]) -> Result<(), Errno> { todo!() }
    pub fn rename(&mut self, caller: &Caller, from_dir: Ino, from: &[u8], to_dir: Ino, to: &[u8], flags: RenameFlags) -> Result<(), Errno> { todo!() }
    pub fn readlink(&self, ino: Ino) -> Result<FsBytes, Errno> { todo!() }
    /// Appends up to `len` bytes to `out`, fewer at the end of the file.
    pub fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), Errno> { todo!() }
    /// Updates the access time.
    pub fn note_access(&mut self, ino: Ino) { todo!() }
    /// Fewer bytes than given may be written (capacity, size limit); 0 bytes written is an error.
    pub fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize, Errno> { todo!() }
    pub fn truncate(&mut self, ino: Ino, size: u64) -> Result<(), Errno> { todo!() }
    pub fn fallocate(&mut self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<(), Errno> { todo!() }
    /// First data at or after `offset`; ENXIO if there is none or `offset` is at or past the end.
    pub fn seek_data(&self, ino: Ino, offset: u64) -> Result<u64, Errno> { todo!() }
    /// First hole at or after `offset` (the end of the file is one); ENXIO at or past the end.
    pub fn seek_hole(&self, ino: Ino, offset: u64) -> Result<u64, Errno> { todo!() }
    /// Returns the number of bytes copied.
    pub fn copy_range(&mut self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64, Errno> { todo!() }
    /// Drops setuid, and setgid of group-executable files, as after a write by somebody without CAP_FSETID.
    pub fn kill_privileges(&mut self, ino: Ino) -> Result<(), Errno> { todo!() }
    pub fn chmod(&mut self, ino: Ino, mode: Mode) -> Result<(), Errno> { todo!() }
    /// Sets owner and group and nothing else (no clearing of setuid: see `kill_privileges`).
    pub fn chown(&mut self, ino: Ino, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> { todo!() }
    pub fn set_times(&mut self, ino: Ino, atime: Option<SetTime>, mtime: Option<SetTime>) -> Result<(), Errno> { todo!() }
    pub fn setxattr(&mut self, ino: Ino, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<(), Errno> { todo!() }
    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<FsBytes, Errno> { todo!() }
    pub fn listxattr(&self, ino: Ino) -> Result<Vec<FsBytes>, Errno> { todo!() }
    pub fn removexattr(&mut self, ino: Ino, name: &[u8]) -> Result<(), Errno> { todo!() }
    /// Entries with a cookie greater than `after`, in cookie order, without `.` and `..`.
    pub fn entries(&self, dir: Ino, after: u64) -> Result<Vec<DirEntry>, Errno> { todo!() }
    pub fn statfs(&self) -> Statfs { todo!() }
    /// An open file or a kernel reference keeps the inode although its last name goes.
    pub fn pin(&mut self, ino: Ino) -> Result<(), Errno> { todo!() }
    /// The inode goes if it has neither a name nor a pin left.
    pub fn unpin(&mut self, ino: Ino) { todo!() }
    /// What unmounting and mounting again does: every pin goes, and what only pins kept.
    pub fn remount(&mut self) { todo!() }
    /// Takes the state of `snapshot`; inode generations go on, so no [`Ino`] is ever given out twice.
    pub fn restore(&mut self, snapshot: &Volume) { todo!() }
    /// Digest of the visible tree, equal to `self.tree(..).digest()`, maintained incrementally.
    pub fn digest(&self) -> Digest { todo!() }
    pub fn tree(&self, options: TreeOptions) -> Tree { todo!() }
    pub fn export(&self) -> VolumeImage { todo!() }
    /// Rebuilds and checks every invariant.
    pub fn import(image: VolumeImage) -> Result<Volume, String> { todo!() }
    /// For tests: recomputes digest, link counts, block and inode counts and compares.
    pub fn check_invariants(&self) -> Result<(), String> { todo!() }
}
