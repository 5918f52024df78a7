//! The file system proper: inodes, entries, contents, attributes, capacity.
//!
//! A volume knows no paths and checks no permissions; it works on inode numbers and names, as the
//! file systems below the Linux VFS do. Everything is copy-on-write: a clone costs two increments,
//! and a change copies what it touches. The digest of the visible tree is maintained with every
//! change.
//!
//! **Space.** A block of a file takes up space if it was written or reserved by `fallocate`; a
//! directory is one block; a symbolic link of 60 bytes or more, and extended attributes, take the
//! blocks that hold their bytes. Whatever is removed gives all of that back.
//!
//! **Time** is a logical clock ([`Stamp::Tick`](fathom_core::Stamp)), which advances with every change.
//! Which times change follows POSIX, and Linux where POSIX leaves a choice: a rename also touches the
//! change time of what is renamed (as ext4, xfs and btrfs do).

mod attributes;
mod contents;
mod data;
mod directory;
mod extents;
mod image;
mod inode;
mod lacking;
mod lifetime;
mod mutant_memory;
mod name;
mod namespace;
mod rename;
mod state;
mod table;
mod tree;

use std::collections::BTreeMap;
use std::sync::Arc;

use fathom_core::{Digest, Errno, FsBytes, Kind, Mode, Stamp, Statfs, Times};

use self::inode::Body;
use self::state::State;
use crate::config::{Config, ConfigError};

pub use self::image::{InodeNumbers, VolumeImage};

/// Names an inode for the life of a volume: the slot in the table in the low 32 bits, a generation
/// that is never used twice (not even after going back to a snapshot) in the high ones. The number of
/// an inode that is gone gives `ESTALE`.
pub type Ino = u64;

/// The root directory.
pub const ROOT: Ino = 1;

/// Longest name of a directory entry (`NAME_MAX`).
pub const NAME_BYTES_MAX: usize = 255;

/// Longest name of an extended attribute (`XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;

/// Largest value of an extended attribute (`XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 65536;

/// The user in whose name something is made or asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
}

impl Identity {
    /// Who every caller is in the beginning.
    pub fn first(config: &Config) -> Identity {
        Identity { uid: config.uid, gid: config.gid, groups: config.groups.as_slice().into() }
    }

    /// uid 0, gid 0, no further groups.
    pub fn root() -> Identity {
        Identity { uid: 0, gid: 0, groups: Arc::default() }
    }

    /// Whether the caller has root's capabilities (uid 0 has all, anybody else none).
    pub fn is_privileged(&self) -> bool {
        self.uid == 0
    }

    /// Whether `gid` is the caller's group or one of the supplementary ones.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// The type of a new inode, with what that type needs.
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
    /// The permission bits only.
    pub mode: Mode,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    /// Its size in bytes, 0 for directories (as in a [`fathom_core::Tree`]).
    pub size: u64,
    pub rdev: (u32, u32),
    /// Allocated space in units of 512 bytes.
    pub blocks_512: u64,
    pub times: Times,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The present, by the logical clock.
    Now,
    /// A given time.
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

/// The parts that [`Volume::tree`] includes beyond the abstract state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeOptions {
    /// Whether data segments of files are included.
    pub segments: bool,
    /// Whether timestamps are included.
    pub times: bool,
}

/// A whole file system. Clones share everything.
#[derive(Clone, Debug)]
pub struct Volume {
    state: Arc<State>,
    /// Number of pins of each inode: see [`Volume::pin`].
    pins: Arc<BTreeMap<Ino, u32>>,
}

impl Volume {
    /// Makes an empty file system.
    ///
    /// # Errors
    /// If the configuration cannot work.
    pub fn new(config: Config) -> Result<Volume, ConfigError> {
        config.validate()?;
        Ok(Volume { state: Arc::new(State::new(config)), pins: Arc::default() })
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.state.config
    }

    /// Starts a change: the state to change, and the time of the change.
    fn edit(&mut self) -> (&mut State, Stamp) {
        let state = Arc::make_mut(&mut self.state);
        state.clock += 1;
        let now = Stamp::Tick(state.clock);
        (state, now)
    }

    /// Finds the inode that `name` means in `dir`; also knows `.` and `..`.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOENT`, `ENAMETOOLONG`, `ESTALE` (also for `..` of a directory without a parent).
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Ino, Errno> {
        match name {
            b"." => self.state.dir(dir).map(|_| dir),
            b".." => self.parent(dir),
            _ if name.len() > NAME_BYTES_MAX => Err(Errno::ENAMETOOLONG),
            _ => self.state.dir(dir)?.get(name).map(|link| link.ino).ok_or(Errno::ENOENT),
        }
    }

    /// Finds the directory that `..` of `dir` means.
    ///
    /// # Errors
    /// `ENOTDIR`; `ESTALE` if `dir` or its parent is gone.
    pub fn parent(&self, dir: Ino) -> Result<Ino, Errno> {
        let parent = self.state.dir(dir)?.parent;
        self.state.get(parent).map(|_| parent)
    }

    /// Reads the attributes of an inode.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn attr(&self, ino: Ino) -> Result<Attr, Errno> {
        let inode = self.state.get(ino)?;
        let block_bytes = self.state.config.block_bytes;
        Ok(Attr {
            ino,
            kind: inode.kind(),
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            nlink: inode.nlink,
            size: inode.size(),
            rdev: inode.rdev(),
            blocks_512: inode.blocks(block_bytes) * u64::from(block_bytes / 512),
            times: inode.times,
        })
    }

    /// Reads the target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` if it is not one.
    pub fn readlink(&self, ino: Ino) -> Result<FsBytes, Errno> {
        match &self.state.get(ino)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Lists the entries with a cookie greater than `after`, in cookie order, without `.` and `..`.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn entries(&self, dir: Ino, after: u64) -> Result<Vec<DirEntry>, Errno> {
        self.entries_up_to(dir, after, usize::MAX)
    }

    /// Lists the first `count_max` of [`Volume::entries`]: for a large directory that is read piece
    /// by piece.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn entries_up_to(
        &self,
        dir: Ino,
        after: u64,
        count_max: usize,
    ) -> Result<Vec<DirEntry>, Errno> {
        let links = self.state.listed(dir, after, count_max)?;
        let entry = |link: &directory::Link| {
            let kind = self.state.get(link.ino)?.kind();
            Ok(DirEntry { name: link.name.to_fs_bytes(), ino: link.ino, kind, cookie: link.cookie })
        };
        links.into_iter().map(entry).collect()
    }

    /// The cookie that the next new entry of a directory will have: behind those of all that are there.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn entries_end(&self, dir: Ino) -> Result<u64, Errno> {
        Ok(self.state.dir(dir)?.cookie_next())
    }

    /// Whether a directory has no entries.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn is_empty_dir(&self, dir: Ino) -> Result<bool, Errno> {
        Ok(self.state.dir(dir)?.is_empty())
    }

    /// Counts space and inodes, all of them and what is free.
    pub fn statfs(&self) -> Statfs {
        let blocks_free = self.state.blocks_free();
        Statfs {
            block_bytes: u64::from(self.state.config.block_bytes),
            blocks: self.state.config.blocks,
            blocks_free,
            blocks_available: blocks_free,
            files: self.state.config.inodes,
            files_free: self.state.inodes_free(),
            name_bytes_max: NAME_BYTES_MAX as u64,
        }
    }

    /// The digest of the visible tree: that of [`Volume::tree`], maintained with every change.
    pub fn digest(&self) -> Digest {
        self.state.digest
    }

    /// Computes the digest of one inode without its names; also of one that has none.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn node_digest(&self, ino: Ino) -> Result<Digest, Errno> {
        Ok(self.state.get(ino)?.node_digest())
    }

    /// Computes the digest of all the paths of one inode, zero if it has none.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn names_digest(&self, ino: Ino) -> Result<Digest, Errno> {
        let mut sum = Digest::default();
        for name in self.state.get(ino)?.names.as_slice() {
            sum += name.path.0;
        }
        Ok(sum)
    }
}
