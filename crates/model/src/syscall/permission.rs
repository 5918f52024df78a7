//! Who may do what: path_resolution(7), inode(7), capabilities(7), fs/namei.c.
//!
//! The caller with user id 0 has all capabilities, anybody else has none.

use std::ops::BitOr;

use fathom_core::{Errno, Kind, Mode};

use super::Model;
use super::resolve::{Last, Place};
use crate::volume::{Attr, Ino};

/// What is asked of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mask(pub(super) u32);

impl Mask {
    pub(super) const EXEC: Mask = Mask(1);
    /// Of a directory.
    pub(super) const SEARCH: Mask = Mask::EXEC;
    pub(super) const WRITE: Mask = Mask(2);
    pub(super) const READ: Mask = Mask(4);

    pub(super) fn contains(self, other: Mask) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Mask {
    type Output = Mask;

    fn bitor(self, other: Mask) -> Mask {
        Mask(self.0 | other.0)
    }
}

impl Model {
    /// Whether the caller may do this with an inode, else `EACCES` (`generic_permission`).
    pub(super) fn permission(&self, ino: Ino, mask: Mask) -> Result<(), Errno> {
        let attr = self.volume.attr(ino)?;
        let mode = attr.mode.perm();
        // Only one of the three classes counts, even if another one would allow more.
        let granted = if self.current.identity.uid == attr.uid {
            mode >> 6
        } else if self.current.identity.in_group(attr.gid) {
            mode >> 3
        } else {
            mode
        };
        if granted & mask.0 == mask.0 {
            return Ok(());
        }
        // CAP_DAC_OVERRIDE: everything, but what nobody may execute root may not either.
        let executable = attr.kind == Kind::Dir || mode & 0o111 != 0;
        if self.current.identity.is_privileged() && (!mask.contains(Mask::EXEC) || executable) {
            return Ok(());
        }
        Err(Errno::EACCES)
    }

    /// Owner, or CAP_FOWNER (`inode_owner_or_capable`).
    pub(super) fn owns(&self, attr: &Attr) -> bool {
        self.current.identity.uid == attr.uid || self.current.identity.is_privileged()
    }

    /// Member of the group, or CAP_FSETID (`in_group_or_capable`).
    pub(super) fn in_group_or_privileged(&self, gid: u32) -> bool {
        self.current.identity.in_group(gid) || self.current.identity.is_privileged()
    }

    /// Whether an entry can be made in a directory (`may_create`).
    pub(super) fn may_create(&self, dir: Ino) -> Result<(), Errno> {
        self.permission(dir, Mask::WRITE | Mask::SEARCH)
    }

    /// Whether an entry can be taken out of a directory, by a call for directories or one for
    /// everything else (`may_delete`).
    pub(super) fn may_delete(&self, dir: Ino, victim: Ino, directory: bool) -> Result<(), Errno> {
        self.permission(dir, Mask::WRITE | Mask::SEARCH)?;
        let (dir, victim) = (self.volume.attr(dir)?, self.volume.attr(victim)?);
        // check_sticky: only the owner of the entry or of the directory, or CAP_FOWNER.
        let sticky = dir.mode.0 & Mode::S_ISVTX != 0;
        if sticky && self.current.identity.uid != dir.uid && !self.owns(&victim) {
            return Err(Errno::EPERM);
        }
        match (directory, victim.kind == Kind::Dir) {
            (true, false) => Err(Errno::ENOTDIR),
            (false, true) => Err(Errno::EISDIR),
            _ => Ok(()),
        }
    }

    /// Where a new entry goes, if there is none yet (`filename_create`). A path with a slash at its
    /// end can only become a directory.
    pub(super) fn free_name<'p>(
        &self,
        place: &'p Place<'_>,
        directory: bool,
    ) -> Result<&'p [u8], Errno> {
        let Last::Name(name) = &place.last else {
            return Err(Errno::EEXIST);
        };
        match self.lookup(place.dir, name) {
            Ok(_) => Err(Errno::EEXIST),
            Err(Errno::ENOENT) if place.slash && !directory => Err(Errno::ENOENT),
            Err(Errno::ENOENT) => Ok(name),
            Err(errno) => Err(errno),
        }
    }

    /// The mode of a new inode in `dir`: `kept` are the bits that the call respects
    /// (`vfs_prepare_mode` in fs/namei.c, `mode_strip_sgid` in fs/inode.c).
    pub(super) fn creation_mode(&self, dir: Ino, mode: Mode, kept: u32) -> Result<Mode, Errno> {
        let dir = self.volume.attr(dir)?;
        let mut mode = mode.perm();
        let setgid_exec = Mode::S_ISGID | Mode::S_IXGRP;
        if mode & setgid_exec == setgid_exec
            && dir.mode.0 & Mode::S_ISGID != 0
            && !self.in_group_or_privileged(dir.gid)
        {
            mode &= !Mode::S_ISGID;
        }
        Ok(Mode(mode & kept & !self.current.umask.0))
    }

    /// After a change of a file's contents: setuid and setgid go, unless the caller has CAP_FSETID
    /// (`file_remove_privs`, `setattr_should_drop_suidgid` in fs/attr.c).
    pub(super) fn drop_privileges(&mut self, ino: Ino) -> Result<(), Errno> {
        if self.current.identity.is_privileged() {
            return Ok(());
        }
        self.kill_privileges(ino)
    }

    /// setuid goes; setgid goes from what its group can execute, and from what belongs to a group
    /// that the caller is not in (`setattr_should_drop_sgid`).
    pub(super) fn kill_privileges(&mut self, ino: Ino) -> Result<(), Errno> {
        let before = self.volume.attr(ino)?;
        if !self.has_privileges_to_kill(&before) {
            return Ok(());
        }
        self.volume.kill_privileges(ino)?;
        let mode = self.volume.attr(ino)?.mode;
        if mode.0 & Mode::S_ISGID != 0 && !self.in_group_or_privileged(before.gid) {
            self.volume.chmod(ino, Mode(mode.0 & !Mode::S_ISGID))?;
        }
        Ok(())
    }

    /// Whether [`Model::kill_privileges`] would change the mode.
    pub(super) fn has_privileges_to_kill(&self, attr: &Attr) -> bool {
        let mode = attr.mode.0;
        let setgid = mode & Mode::S_ISGID != 0
            && (mode & Mode::S_IXGRP != 0 || !self.in_group_or_privileged(attr.gid));
        mode & Mode::S_ISUID != 0 || setgid
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Op;
    use fathom_core::flags::AccessMode;

    use super::super::testing::*;

    fn access(mode: AccessMode) -> Op {
        Op::Access { target: at("f"), mode, effective: false }
    }

    #[test]
    fn only_one_class_counts() {
        let mut m = model();
        // The owner may do nothing, the group may read, the others may do everything.
        given(&mut m, &[file("f", 0o047), chown("f", ALICE, BOB)]);
        let (r, w, x) = (AccessMode::R_OK, AccessMode::W_OK, AccessMode::X_OK);
        for (uid, expected) in [
            (ALICE, [Err(E::EACCES), Err(E::EACCES), Err(E::EACCES)]),
            (BOB, [Ok(0), Err(E::EACCES), Err(E::EACCES)]),
            (3000, [Ok(0), Ok(0), Ok(0)]),
            (0, [Ok(0), Ok(0), Ok(0)]),
        ] {
            given(&mut m, &[become_user(uid)]);
            check(
                &mut m,
                &[(access(r), expected[0]), (access(w), expected[1]), (access(x), expected[2])],
            );
        }
        let in_group = Op::Identity { uid: 3000, gid: 3000, groups: vec![BOB] };
        given(&mut m, &[in_group]);
        check(&mut m, &[(access(r), Ok(0)), (access(w), Err(E::EACCES))]);
    }

    #[test]
    fn root_executes_only_what_somebody_can_execute() {
        let mut m = model();
        given(&mut m, &[file("f", 0o000)]);
        check(
            &mut m,
            &[
                (access(AccessMode::R_OK | AccessMode::W_OK), Ok(0)),
                (access(AccessMode::X_OK), Err(E::EACCES)),
            ],
        );
        given(&mut m, &[chmod("f", 0o001)]);
        check(&mut m, &[(access(AccessMode::X_OK), Ok(0))]);
    }

    #[test]
    fn in_a_sticky_directory_everybody_removes_his_own() {
        let mut m = model();
        given(
            &mut m,
            &[mkdir("tmp", 0o1777), become_user(BOB), file("tmp/b", 0o666), mkdir("tmp/d", 0o777)],
        );
        given(&mut m, &[become_user(ALICE), file("tmp/a", 0o666)]);
        let table = [
            (unlink("tmp/b"), Err(E::EPERM)),
            (rmdir("tmp/d"), Err(E::EPERM)),
            (rmdir("tmp/b"), Err(E::EPERM)),
            (unlink("tmp/a"), Ok(0)),
        ];
        check(&mut m, &table);
        given(
            &mut m,
            &[become_user(0), chown("tmp", ALICE, ALICE), become_user(ALICE), unlink("tmp/b")],
        );
    }

    #[test]
    fn setgid_is_not_made_for_a_group_that_the_caller_is_not_in() {
        let mut m = model();
        given(
            &mut m,
            &[mkdir("d", 0o777), chown("d", 0, BOB), chmod("d", 0o2777), become_user(ALICE)],
        );
        given(&mut m, &[file("d/exec", 0o2755), file("d/plain", 0o2644), mkdir("d/sub", 0o755)]);
        assert_eq!((mode_of(&m, "d/exec"), mode_of(&m, "d/plain")), (0o755, 0o2644));
        assert_eq!((mode_of(&m, "d/sub"), attr(&m, "d/sub").gid), (0o2755, BOB));
    }
}
