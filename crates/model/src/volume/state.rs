//! The whole state of a volume, shared between clones: the table of inodes, and sums over it.
//!
//! The sums (digest of the tree, blocks and inodes in use) can only be changed through
//! [`State::update`], [`State::graft`] and [`State::release`], so they are always right.

use std::sync::Arc;

use fathom_core::tree::PathHash;
use fathom_core::{Digest, Errno, Stamp};

use super::contents::Contents;
use super::directory::Directory;
use super::inode::{Body, Inode, Name, Names};
use super::mutant_memory::MutantMemory;
use super::name::ShortName;
use super::table::Table;
use super::{Ino, NAME_BYTES_MAX, ROOT};
use crate::config::Config;
use crate::mutant::Mutant;

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) config: Arc<Config>,
    /// A copy of `config.mutant`, where it costs one comparison.
    mutant: Option<Mutant>,
    pub(super) table: Table,
    pub(super) digest: Digest,
    /// The logical clock: one tick for every operation that changes something.
    pub(super) clock: u64,
    /// The last generation given to an inode.
    pub(super) generation: u32,
    pub(super) blocks_used: u64,
    pub(super) inodes_used: u64,
    /// Inodes without a name that pins keep.
    pub(super) orphans: Vec<Ino>,
    /// The memory of a mutant.
    pub(super) mutant_memory: Option<Arc<MutantMemory>>,
}

impl State {
    /// Makes a state without any inode, not even a root directory.
    pub(super) fn empty(config: Config) -> State {
        State {
            mutant: config.mutant,
            config: Arc::new(config),
            table: Table::new(),
            digest: Digest::default(),
            clock: 0,
            generation: 0,
            blocks_used: 0,
            inodes_used: 0,
            orphans: Vec::new(),
            mutant_memory: None,
        }
    }

    /// Makes a state with an empty root directory.
    pub(super) fn new(config: Config) -> State {
        let mut state = State::empty(config);
        let config = state.config.clone();
        let body = Body::Dir(Directory::new(ROOT));
        let mode = fathom_core::Mode(config.root_mode.perm());
        let mut root = Inode::new(body, mode, config.uid, config.gid, Stamp::Tick(0));
        root.nlink = if state.counts_subdirs(ROOT) { 2 } else { 1 };
        state.install(root);
        state
    }

    /// Whether this bug is switched on.
    #[inline]
    pub(super) fn mutant(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    pub(super) fn get(&self, ino: Ino) -> Result<&Inode, Errno> {
        self.table.get(ino).ok_or(Errno::ESTALE)
    }

    pub(super) fn dir(&self, ino: Ino) -> Result<&Directory, Errno> {
        self.get(ino)?.as_dir().ok_or(Errno::ENOTDIR)
    }

    pub(super) fn file(&self, ino: Ino) -> Result<&Contents, Errno> {
        let inode = self.get(ino)?;
        let not_a_file = if inode.is_dir() { Errno::EISDIR } else { Errno::EINVAL };
        inode.as_file().ok_or(not_a_file)
    }

    /// Finds the inode that `name` means in `dir`, without `.` and `..`.
    pub(super) fn child(&self, dir: Ino, name: &[u8]) -> Result<Ino, Errno> {
        check_name(name)?;
        Ok(self.dir(dir)?.get(name).ok_or(Errno::ENOENT)?.ino)
    }

    /// Finds a directory that may get another entry: one that is removed but still open may not
    /// (`IS_DEADDIR` in `fs/namei.c`).
    pub(super) fn living_dir(&self, ino: Ino) -> Result<&Directory, Errno> {
        let dir = self.dir(ino)?;
        if self.get(ino)?.nlink == 0 { Err(Errno::ENOENT) } else { Ok(dir) }
    }

    pub(super) fn blocks_free(&self) -> u64 {
        self.config.blocks.saturating_sub(self.blocks_used)
    }

    pub(super) fn inodes_free(&self) -> u64 {
        self.config.inodes.saturating_sub(self.inodes_used)
    }

    /// Number of links of a directory without subdirectories.
    pub(super) fn dir_nlink_min(&self) -> u32 {
        if self.config.quirks.dir_nlink_one { 1 } else { 2 }
    }

    /// Whether the links of a directory count its subdirectories.
    pub(super) fn counts_subdirs(&self, dir: Ino) -> bool {
        let quirks = &self.config.quirks;
        !(quirks.dir_nlink_one || quirks.root_nlink_one && dir == ROOT)
    }

    /// Changes attributes that neither the digest nor the capacity depends on: times, and the
    /// entries of a directory.
    pub(super) fn touch(&mut self, ino: Ino, change: impl FnOnce(&mut Inode)) {
        change(self.table.get_mut(ino).expect("the inode was looked up before"));
    }

    /// Changes an inode and keeps all sums right.
    pub(super) fn update<R>(&mut self, ino: Ino, change: impl FnOnce(&mut Inode) -> R) -> R {
        let block_bytes = self.config.block_bytes;
        let inode = self.table.get_mut(ino).expect("the inode was looked up before");
        let blocks_before = inode.blocks(block_bytes);
        let result = change(inode);
        let term = inode.term_now(ino == ROOT);
        self.digest -= inode.term;
        self.digest += term;
        inode.term = term;
        self.blocks_used = self.blocks_used + inode.blocks(block_bytes) - blocks_before;
        result
    }

    /// Puts an inode into the table. Its names and everything else must be complete.
    pub(super) fn install(&mut self, inode: Inode) -> Ino {
        let inode = self.count(inode);
        self.table.insert(inode)
    }

    /// The same with the number that it had before.
    pub(super) fn install_at(&mut self, ino: Ino, mut inode: Inode) {
        inode.generation = (ino >> 32) as u32;
        let inode = self.count(inode);
        self.table.insert_at((ino & u64::from(u32::MAX)) as usize, inode);
    }

    /// Adds an inode to what is used.
    fn count(&mut self, mut inode: Inode) -> Inode {
        inode.term = inode.term_now(self.inodes_used == 0);
        self.digest += inode.term;
        self.inodes_used += 1;
        self.blocks_used += inode.blocks(self.config.block_bytes);
        inode
    }

    /// Makes a generation that no inode ever had.
    pub(super) fn next_generation(&mut self) -> u32 {
        // 2³² inodes later the oldest numbers come again; a kernel does the same (`i_generation`).
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }

    /// Installs `inode` with the one name `name` in `dir`, where that name is free.
    pub(super) fn graft(&mut self, mut inode: Inode, dir: Ino, name: ShortName, now: Stamp) -> Ino {
        let path = self.table.get(dir).map_or(PathHash::ROOT, Inode::dir_path);
        let is_dir = inode.is_dir();
        inode.generation = self.next_generation();
        inode.nlink = if is_dir { self.dir_nlink_min() } else { 1 };
        inode.names =
            Names::One(Name { dir, name: name.clone(), path: path.child(name.as_bytes()) });
        if let Body::Dir(body) = &mut inode.body {
            body.parent = dir;
        }
        let ino = self.install(inode);
        self.set_link(dir, &name, ino, now);
        if is_dir && !self.mutant(Mutant::MkdirNlink) {
            self.add_subdirs(dir, 1);
        }
        ino
    }

    /// Removes the inode, its space and its number.
    pub(super) fn release(&mut self, ino: Ino) {
        let Some(inode) = self.table.remove(ino) else { return };
        self.digest -= inode.term;
        self.remember_reservation(&inode);
        if !self.mutant(Mutant::InodeLeak) {
            self.inodes_used -= 1;
        }
        if !self.mutant(Mutant::BlockLeak) {
            self.blocks_used -= inode.blocks(self.config.block_bytes);
        }
    }

    /// Makes `name` in `dir` mean `ino`; touches the directory's times.
    pub(super) fn set_link(&mut self, dir: Ino, name: &ShortName, ino: Ino, now: Stamp) {
        self.touch(dir, |inode| {
            inode.times.mtime = now;
            inode.times.ctime = now;
            if let Body::Dir(body) = &mut inode.body {
                body.set(name, ino);
            }
        });
    }

    /// Takes `name` out of `dir`; touches the directory's times.
    pub(super) fn remove_link(&mut self, dir: Ino, name: &[u8], now: Stamp) {
        self.touch(dir, |inode| {
            inode.times.mtime = now;
            inode.times.ctime = now;
            if let Body::Dir(body) = &mut inode.body {
                body.remove(name);
            }
        });
    }

    /// Updates the links of a directory that gained or lost subdirectories.
    pub(super) fn add_subdirs(&mut self, dir: Ino, change: i32) {
        if change != 0 && self.counts_subdirs(dir) {
            self.update(dir, |inode| inode.nlink = inode.nlink.saturating_add_signed(change));
        }
    }

    /// Takes the name `name` in `dir` from the inode. One without any name left goes, unless it is
    /// pinned.
    pub(super) fn lose_name(&mut self, ino: Ino, dir: Ino, name: &[u8], now: Stamp, pinned: bool) {
        let nameless = self.update(ino, |inode| {
            inode.names.remove(dir, name);
            inode.nlink = if inode.is_dir() { 0 } else { inode.nlink.saturating_sub(1) };
            inode.times.ctime = now;
            inode.names.as_slice().is_empty()
        });
        match (nameless, pinned) {
            (true, true) => self.orphans.push(ino),
            (true, false) => self.release(ino),
            (false, _) => {}
        }
    }

    /// Renames the inode `ino`, so far `from` in `from_dir`, to `to` in `to_dir`. The directories
    /// themselves must already say so.
    pub(super) fn move_name(
        &mut self,
        ino: Ino,
        from: (Ino, &[u8]),
        to: (Ino, &ShortName),
        now: Stamp,
    ) {
        let dir_path = self.table.get(to.0).map_or(PathHash::ROOT, Inode::dir_path);
        let path = dir_path.child(to.1.as_bytes());
        let is_dir = self.update(ino, |inode| {
            inode.names.remove(from.0, from.1);
            inode.names.add(Name { dir: to.0, name: to.1.clone(), path });
            inode.times.ctime = now;
            if let Body::Dir(body) = &mut inode.body {
                body.parent = to.0;
            }
            inode.is_dir()
        });
        if is_dir {
            self.rehash_subtree(ino);
        }
    }

    /// Updates the paths of everything in a directory whose path changed.
    pub(super) fn rehash_subtree(&mut self, top: Ino) {
        let mut dirs = vec![top];
        while let Some(dir) = dirs.pop() {
            let Some(inode) = self.table.get(dir) else { continue };
            let path = inode.dir_path();
            let links: Vec<_> =
                inode.as_dir().into_iter().flat_map(|body| body.links().cloned()).collect();
            for link in links {
                let name = link.name.as_bytes();
                let is_dir = self.update(link.ino, |inode| {
                    inode.names.set_path(dir, name, path.child(name));
                    inode.is_dir()
                });
                if is_dir {
                    dirs.push(link.ino);
                }
            }
        }
    }

    /// Whether `ino` is `top` or in the tree below it.
    pub(super) fn is_inside(&self, mut ino: Ino, top: Ino) -> bool {
        // By name and not by `..`, which a mutant may have got wrong.
        while ino != top {
            let names = self.table.get(ino).map_or(&[][..], |inode| inode.names.as_slice());
            match names.first() {
                Some(name) => ino = name.dir,
                None => return false,
            }
        }
        true
    }
}

/// Checks that a name can be that of an entry. The VFS has checked all of this before it asks a
/// file system; a volume that is used without one must check by itself.
pub(super) fn check_name(name: &[u8]) -> Result<(), Errno> {
    match name {
        [] => Err(Errno::ENOENT),
        _ if name.len() > NAME_BYTES_MAX => Err(Errno::ENAMETOOLONG),
        b"." | b".." => Err(Errno::EINVAL),
        _ if name.iter().any(|byte| matches!(byte, 0 | b'/')) => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}
