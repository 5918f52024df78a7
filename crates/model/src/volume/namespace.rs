//! Operations that make and remove names: `mknod`, `mkdir`, `symlink`, `link`, `unlink`, `rmdir`,
//! `O_TMPFILE`.

use fathom_core::{Errno, Mode, Stamp};

use super::contents::Contents;
use super::directory::Directory;
use super::inode::{Body, FAST_SYMLINK_BYTES_MAX, Inode, Name};
use super::name::ShortName;
use super::state::check_name;
use super::{Identity, Ino, NewNode, Volume};
use crate::feature::Feature;
use crate::mutant::Mutant;

impl Volume {
    /// Makes an inode with one name. `mode` is the permission bits after the umask; a symbolic link
    /// always has all of them. In a setgid directory the group is that of the directory, and a
    /// subdirectory is setgid too (`inode_init_owner` in `fs/inode.c`).
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOENT` (removed directory), `EEXIST`, `ENAMETOOLONG`, `EINVAL`, `EMLINK`, `ENOSPC`.
    pub fn make(
        &mut self,
        caller: &Identity,
        dir: Ino,
        name: &[u8],
        node: NewNode,
        mode: Mode,
    ) -> Result<Ino, Errno> {
        check_name(name)?;
        if self.state.living_dir(dir)?.get(name).is_some() {
            return Err(Errno::EEXIST);
        }
        let mode = self.state.kept_mode(&node, mode)?;
        let inode = self.prepare(caller, dir, node, mode)?;
        let (state, now) = self.edit();
        Ok(state.graft(inode, dir, name.into(), now))
    }

    /// Makes a file without a name, as `O_TMPFILE` does; it comes back pinned once.
    ///
    /// # Errors
    /// `ENOTDIR`, `ENOENT` (removed directory), `ENOSPC`.
    pub fn make_tmpfile(&mut self, caller: &Identity, dir: Ino, mode: Mode) -> Result<Ino, Errno> {
        self.state.living_dir(dir)?;
        let inode = self.prepare(caller, dir, NewNode::File, mode)?;
        let (state, _) = self.edit();
        let generation = state.next_generation();
        let inode = Inode { generation, linkable: true, ..inode };
        let ino = state.install(inode);
        state.orphans.push(ino);
        self.pin(ino)?;
        Ok(ino)
    }

    /// Forbids a file from `O_TMPFILE` to get a name, ever: it was opened with `O_EXCL`.
    ///
    /// # Errors
    /// `ESTALE`.
    pub fn forbid_link(&mut self, ino: Ino) -> Result<(), Errno> {
        self.state.get(ino)?;
        self.edit().0.touch(ino, |inode| inode.linkable = false);
        Ok(())
    }

    /// Gives an inode another name.
    ///
    /// # Errors
    /// `EPERM` (directory), `ENOENT` (no name is left, or removed directory), `EMLINK`, `EEXIST`,
    /// `ENOTDIR`, `ENAMETOOLONG`, `EINVAL`.
    pub fn link(&mut self, ino: Ino, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        let state = &*self.state;
        let inode = state.get(ino)?;
        check_name(name)?;
        let parent = state.living_dir(dir)?;
        if parent.get(name).is_some() {
            return Err(Errno::EEXIST);
        }
        if inode.is_dir() || state.lacks(Feature::HardLinks) {
            return Err(Errno::EPERM);
        }
        if inode.names.as_slice().is_empty() && !inode.linkable {
            return Err(Errno::ENOENT);
        }
        if inode.nlink >= state.config.quirks.link_max {
            return Err(Errno::EMLINK);
        }
        let (state, now) = self.edit();
        state.orphans.retain(|orphan| *orphan != ino);
        let name = ShortName::from(name);
        let path = state.get(dir)?.dir_path().child(name.as_bytes());
        state.set_link(dir, &name, ino, now);
        let stuck = state.mutant(Mutant::LinkCountStuck);
        let empties = state.mutant(Mutant::TmpfileLinkEmpties);
        state.update(ino, |inode| {
            if empties
                && inode.linkable
                && let Body::File(contents) = &mut inode.body
            {
                contents.set_size(0);
            }
            inode.names.add(Name { dir, name, path });
            inode.nlink += u32::from(!stuck || inode.nlink == 0);
            inode.linkable = false;
            inode.times.ctime = now;
        });
        Ok(())
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `EISDIR`.
    pub fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        let ino = self.state.child(dir, name)?;
        if self.state.get(ino)?.is_dir() {
            return Err(Errno::EISDIR);
        }
        let pinned = self.is_pinned(ino);
        if pinned && self.state.lacks(Feature::OpenUnlinked) {
            return Err(Errno::EBUSY);
        }
        let (state, now) = self.edit();
        state.remember_unlink(dir, name, ino, pinned);
        state.remove_link(dir, name, now);
        state.lose_name(ino, dir, name, now, pinned);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`.
    pub fn rmdir(&mut self, dir: Ino, name: &[u8]) -> Result<(), Errno> {
        let state = &*self.state;
        let ino = state.child(dir, name)?;
        if !state.dir(ino)?.is_empty() {
            let wrong = state.mutant(Mutant::RmdirErrno);
            return Err(if wrong { Errno::EEXIST } else { Errno::ENOTEMPTY });
        }
        let pinned = self.is_pinned(ino);
        let (state, now) = self.edit();
        state.remember_rmdir(dir, name, ino);
        state.remove_link(dir, name, now);
        if !state.mutant(Mutant::RmdirNlink) {
            state.add_subdirs(dir, -1);
        }
        state.lose_name(ino, dir, name, now, pinned);
        Ok(())
    }

    /// Makes the inode that the next operation will install in `dir`, if there is room for it.
    pub(super) fn prepare(
        &self,
        caller: &Identity,
        dir: Ino,
        node: NewNode,
        mode: Mode,
    ) -> Result<Inode, Errno> {
        let state = &*self.state;
        let parent = state.get(dir)?;
        let quirks = &state.config.quirks;
        let body = self.body_of(dir, node)?;
        let is_dir = matches!(body, Body::Dir(_));
        if is_dir && !quirks.dir_nlink_one && parent.nlink >= quirks.link_max {
            return Err(Errno::EMLINK);
        }
        let mut bits = if matches!(body, Body::Symlink(_)) { 0o777 } else { mode.perm() };
        let mut gid = caller.gid;
        if parent.mode.0 & Mode::S_ISGID != 0 {
            if !state.mutant(Mutant::SetgidGroup) {
                gid = parent.gid;
            }
            let group_run = Mode::S_ISGID | Mode::S_IXGRP;
            if is_dir && !state.mutant(Mutant::SetgidMkdir) {
                bits |= Mode::S_ISGID;
            } else if !is_dir
                && bits & group_run == group_run
                && !caller.is_privileged()
                && !caller.in_group(parent.gid)
            {
                // `mode_strip_sgid` in fs/inode.c: nobody makes a program of a foreign group.
                bits &= !Mode::S_ISGID;
            }
        }
        let inode = Inode::new(body, Mode(bits), caller.uid, gid, Stamp::Tick(state.clock + 1));
        let fits = inode.blocks(state.config.block_bytes) <= state.blocks_free();
        if state.inodes_free() == 0 || !fits { Err(Errno::ENOSPC) } else { Ok(inode) }
    }

    fn body_of(&self, dir: Ino, node: NewNode) -> Result<Body, Errno> {
        let config = &self.state.config;
        Ok(match node {
            NewNode::File => Body::File(Contents::new(config.block_bytes)),
            NewNode::Dir => Body::Dir(Directory::new(dir)),
            NewNode::Symlink(target) => {
                let len = target.as_bytes().len();
                if len > config.quirks.symlink_bytes_max as usize {
                    return Err(Errno::ENAMETOOLONG);
                }
                if self.state.mutant(Mutant::SymlinkTruncated) && len > FAST_SYMLINK_BYTES_MAX {
                    return Ok(Body::Symlink(target.as_bytes()[..FAST_SYMLINK_BYTES_MAX].into()));
                }
                Body::Symlink(target)
            }
            NewNode::Fifo => Body::Fifo,
            NewNode::Socket => Body::Socket,
            NewNode::Char(major, minor) => Body::Char(major, minor),
            NewNode::Block(major, minor) => Body::Block(major, minor),
        })
    }
}
