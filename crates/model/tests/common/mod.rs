//! A volume by path, for short stories.
#![allow(dead_code, reason = "every test file uses a part of it")]

use fathom_core::flags::{FallocateMode, RenameFlags, XattrFlags};
use fathom_core::{Errno, FsBytes, Mode};
use fathom_model::{Attr, Config, Identity, Ino, Mutant, NewNode, ROOT, TreeOptions, Volume};

pub(crate) const KEEP: FallocateMode = FallocateMode::FALLOC_FL_KEEP_SIZE;
pub(crate) const PUNCH: FallocateMode = FallocateMode::FALLOC_FL_PUNCH_HOLE.union(KEEP);
pub(crate) const ZERO: FallocateMode = FallocateMode::FALLOC_FL_ZERO_RANGE;
pub(crate) const COLLAPSE: FallocateMode = FallocateMode::FALLOC_FL_COLLAPSE_RANGE;
pub(crate) const INSERT: FallocateMode = FallocateMode::FALLOC_FL_INSERT_RANGE;

/// A volume and the root user; paths are relative to its root, and must exist.
pub(crate) struct Story {
    pub(crate) volume: Volume,
    pub(crate) caller: Identity,
}

impl Story {
    pub(crate) fn new(config: Config) -> Story {
        Story { volume: Volume::new(config).unwrap(), caller: Identity::root() }
    }

    /// A small volume with 4 KiB blocks, perhaps with a bug.
    pub(crate) fn with(mutant: Option<Mutant>) -> Story {
        Story::new(Config { mutant, blocks: 100, inodes: 20, ..Config::default() })
    }

    pub(crate) fn try_ino(&self, path: &str) -> Result<Ino, Errno> {
        let names = path.split('/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(ROOT, |dir, name| self.volume.lookup(dir, name.as_bytes()))
    }

    pub(crate) fn ino(&self, path: &str) -> Ino {
        self.try_ino(path).unwrap_or_else(|errno| panic!("{path}: {errno}"))
    }

    fn split<'a>(&self, path: &'a str) -> (Ino, &'a [u8]) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.ino(dir), name.as_bytes())
    }

    pub(crate) fn make(&mut self, path: &str, node: NewNode, mode: u32) -> Result<Ino, Errno> {
        let (dir, name) = self.split(path);
        let caller = self.caller.clone();
        self.volume.make(&caller, dir, name, node, Mode(mode))
    }

    pub(crate) fn file(&mut self, path: &str) -> Ino {
        self.make(path, NewNode::File, 0o644).unwrap()
    }

    pub(crate) fn dir(&mut self, path: &str) -> Ino {
        self.make(path, NewNode::Dir, 0o755).unwrap()
    }

    pub(crate) fn symlink(&mut self, path: &str, target: &str) -> Ino {
        self.make(path, NewNode::Symlink(FsBytes::from(target)), 0).unwrap()
    }

    pub(crate) fn link(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        let (dir, name) = self.split(to);
        self.volume.link(self.ino(from), dir, name)
    }

    pub(crate) fn unlink(&mut self, path: &str) -> Result<(), Errno> {
        let (dir, name) = self.split(path);
        self.volume.unlink(dir, name)
    }

    pub(crate) fn rmdir(&mut self, path: &str) -> Result<(), Errno> {
        let (dir, name) = self.split(path);
        self.volume.rmdir(dir, name)
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) -> Result<(), Errno> {
        self.rename2(from, to, RenameFlags::empty())
    }

    pub(crate) fn rename2(
        &mut self,
        from: &str,
        to: &str,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let ((from_dir, from), (to_dir, to)) = (self.split(from), self.split(to));
        self.volume.rename(&self.caller.clone(), from_dir, from, to_dir, to, flags)
    }

    pub(crate) fn write(&mut self, path: &str, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        self.volume.write(self.ino(path), offset, bytes)
    }

    pub(crate) fn truncate(&mut self, path: &str, size: u64) {
        self.volume.truncate(self.ino(path), size).unwrap();
    }

    pub(crate) fn fallocate(
        &mut self,
        path: &str,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        self.volume.fallocate(self.ino(path), mode, offset, len)
    }

    pub(crate) fn setxattr(
        &mut self,
        path: &str,
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), Errno> {
        self.volume.setxattr(self.ino(path), b"user.x", value, flags)
    }

    pub(crate) fn attr(&self, path: &str) -> Attr {
        self.volume.attr(self.ino(path)).unwrap()
    }

    pub(crate) fn nlink(&self, path: &str) -> u32 {
        self.attr(path).nlink
    }

    pub(crate) fn size(&self, path: &str) -> u64 {
        self.attr(path).size
    }

    pub(crate) fn read(&self, path: &str) -> Vec<u8> {
        self.read_ino(self.ino(path))
    }

    pub(crate) fn read_ino(&self, ino: Ino) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.volume.read(ino, 0, usize::MAX, &mut bytes).unwrap();
        bytes
    }

    /// The names in a directory in the order of their cookies.
    pub(crate) fn list(&self, path: &str) -> String {
        let entries = self.volume.entries(self.ino(path), 0).unwrap();
        let names: Vec<String> = entries.iter().map(|entry| entry.name.to_string()).collect();
        names.join(" ")
    }

    pub(crate) fn files(&mut self, names: &[&str]) {
        for name in names {
            self.file(name);
        }
    }

    /// What comes after an entry of the root that is removed before.
    pub(crate) fn list_behind_removed(&mut self, name: &str) -> String {
        let entries = self.volume.entries(self.ino(""), 0).unwrap();
        let cookie = entries.iter().find(|entry| entry.name == FsBytes::from(name)).unwrap().cookie;
        self.unlink(name).unwrap();
        let entries = self.volume.entries(self.ino(""), cookie).unwrap();
        let names: Vec<String> = entries.iter().map(|entry| entry.name.to_string()).collect();
        names.join(" ")
    }

    pub(crate) fn segments(&self, path: &str) -> Vec<(u64, u64)> {
        let tree = self.volume.tree(TreeOptions { segments: true, times: false });
        tree.entries[&FsBytes::from(path)].segments.clone().unwrap()
    }

    /// Free blocks and free inodes.
    pub(crate) fn free(&self) -> (u64, u64) {
        let statfs = self.volume.statfs();
        (statfs.blocks_free, statfs.files_free)
    }
}
