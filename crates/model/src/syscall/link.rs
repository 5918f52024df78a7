//! link(2), linkat(2): fs/namei.c `do_linkat`, `vfs_link`.

use fathom_core::{Errno, FsPath, Kind, Mode, Slot};

use super::Model;
use super::permission::Mask;
use super::resolve::Follow;
use crate::volume::Ino;

impl Model {
    /// A symbolic link is itself linked, unless `follow` (`AT_SYMLINK_FOLLOW`).
    pub(super) fn link(&mut self, from: &FsPath, to: &FsPath, follow: bool) -> Result<u64, Errno> {
        let ino = self.resolve(from, if follow { Follow::Yes } else { Follow::No })?;
        self.link_ino(ino, to)
    }

    /// Of an open file, by its descriptor (`AT_EMPTY_PATH`) or by its entry in `/proc/self/fd`. One that
    /// `O_TMPFILE` made without `O_EXCL` gets its first name so; no other file without a name can have one
    /// again (`I_LINKABLE`). Who may use a descriptor is [`Model::unspecified`] for callers without privileges.
    pub(super) fn link_slot(
        &mut self,
        slot: Slot,
        to: &FsPath,
        by_proc: bool,
    ) -> Result<u64, Errno> {
        // A closed descriptor has no entry in /proc.
        let closed = if by_proc { Errno::ENOENT } else { Errno::EBADF };
        let ino = self.slot_ino(slot).ok_or(closed)?;
        self.link_ino(ino, to)
    }

    fn link_ino(&mut self, ino: Ino, to: &FsPath) -> Result<u64, Errno> {
        let place = self.resolve_parent(to)?;
        let name = self.free_name(&place, false)?;
        self.may_linkat(ino)?;
        self.may_create(place.dir)?;
        if !self.quirks().hard_links || self.volume.attr(ino)?.kind == Kind::Dir {
            return Err(Errno::EPERM);
        }
        self.volume.link(ino, place.dir, name)?;
        Ok(0)
    }

    /// `fs.protected_hardlinks`: only the owner links what others could not read and write, and what
    /// is special or privileged (`may_linkat`, `safe_hardlink_source`).
    fn may_linkat(&self, ino: Ino) -> Result<(), Errno> {
        let attr = self.volume.attr(ino)?;
        if !self.quirks().protected_hardlinks || self.owns(&attr) {
            return Ok(());
        }
        let setgid_exec = Mode::S_ISGID | Mode::S_IXGRP;
        let safe = attr.kind == Kind::File
            && attr.mode.0 & Mode::S_ISUID == 0
            && attr.mode.0 & setgid_exec != setgid_exec
            && self.permission(ino, Mask::READ | Mask::WRITE).is_ok();
        if safe { Ok(()) } else { Err(Errno::EPERM) }
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Op;

    use super::super::testing::*;
    use super::*;
    use crate::quirks::Quirks;

    #[test]
    fn names() {
        let mut m = model();
        given(
            &mut m,
            &[mkdir("d", 0o755), file("f", 0o644), symlink("d", "l"), symlink("nope", "dangling")],
        );
        let follow =
            |from: &str, to: &str| Op::Link { from: path(from), to: path(to), follow: true };
        let table = [
            (link("nope", "f"), Err(E::ENOENT)),
            (link("f", "f"), Err(E::EEXIST)),
            (link("f", "f/"), Err(E::EEXIST)),
            (link("f", "new/"), Err(E::ENOENT)),
            (link("f/", "new"), Err(E::ENOTDIR)),
            (link("f", "."), Err(E::EEXIST)),
            (link("f", "f/x"), Err(E::ENOTDIR)),
            (link("d", "new"), Err(E::EPERM)),
            (link("d", "f"), Err(E::EEXIST)),
            (link("l/", "new"), Err(E::EPERM)),
            (follow("l", "new"), Err(E::EPERM)),
            (follow("dangling", "new"), Err(E::ENOENT)),
            (link("l", "linked"), Ok(0)),
            (link("f", "new"), Ok(0)),
        ];
        check(&mut m, &table);
        assert_eq!(
            (attr(&m, "linked").kind, attr(&m, "l").nlink, attr(&m, "f").nlink),
            (Kind::Symlink, 2, 2)
        );
    }

    fn link_slot(slot: Slot, to: &str, by_proc: bool) -> Op {
        Op::LinkSlot { slot, to: path(to), by_proc }
    }

    #[test]
    fn files_without_a_name_get_one_unless_they_are_exclusive() {
        use fathom_core::flags::OpenFlags as O;
        for by_proc in [false, true] {
            let mut m = model();
            let tmpfile = O::O_TMPFILE | O::O_RDWR;
            given(&mut m, &[mkdir("d", 0o755), file("f", 0o644), open(0, ".", tmpfile)]);
            given(&mut m, &[write(0, 7, 5000), open(1, ".", tmpfile | O::O_EXCL)]);
            given(&mut m, &[open(2, "f", O::O_PATH), open(3, "f", O::empty())]);
            given(&mut m, &[open(4, "d", O::O_DIRECTORY), file("g", 0o644)]);
            given(&mut m, &[open(5, "g", O::O_RDWR), Op::Unlink { path: path("g") }]);
            let link = |slot, to| link_slot(slot, to, by_proc);
            let closed = if by_proc { E::ENOENT } else { E::EBADF };
            let table = [
                (link(9, "x"), Err(closed)),
                (link(0, "f"), Err(E::EEXIST)),
                (link(0, "nope/x"), Err(E::ENOENT)),
                (link(0, "f/x"), Err(E::ENOTDIR)),
                (link(0, "d/x"), Ok(0)),
                (link(0, "y"), Ok(0)),
                (link(1, "z"), Err(E::ENOENT)),
                (link(2, "path"), Ok(0)),
                (link(3, "again"), Ok(0)),
                (link(4, "e"), Err(E::EPERM)),
                (link(5, "g"), Err(E::ENOENT)),
                (Op::Unlink { path: path("d/x") }, Ok(0)),
                (Op::Unlink { path: path("y") }, Ok(0)),
                (link(0, "y"), Err(E::ENOENT)),
            ];
            check(&mut m, &table);
            assert_eq!((attr(&m, "f").nlink, attr(&m, "again").size), (3, 0));
        }
    }

    #[test]
    fn a_named_file_has_what_was_written_before() {
        use fathom_core::flags::OpenFlags as O;
        let mut m = model();
        given(&mut m, &[open(0, ".", O::O_TMPFILE | O::O_RDWR), write(0, 7, 5000)]);
        check(&mut m, &[(link_slot(0, "f", false), Ok(0))]);
        assert_eq!((attr(&m, "f").size, attr(&m, "f").nlink), (5000, 1));
    }

    #[test]
    fn who_may_use_a_descriptor_is_not_specified_without_privileges() {
        let mut m = model();
        given(&mut m, &[file("f", 0o666), open(0, "f", Default::default())]);
        assert_eq!(m.unspecified(&link_slot(0, "g", false)), None);
        given(&mut m, &[become_user(ALICE)]);
        assert!(m.unspecified(&link_slot(0, "g", false)).is_some());
        assert_eq!(m.unspecified(&link_slot(0, "g", true)), None);
    }

    #[test]
    fn the_number_of_names_is_limited() {
        let mut m = model_with(Quirks { link_max: 2, ..Quirks::default() });
        given(&mut m, &[file("f", 0o644), link("f", "a")]);
        check(&mut m, &[(link("f", "b"), Err(E::EMLINK)), (link("f", "a"), Err(E::EEXIST))]);
    }

    #[test]
    fn without_hard_links() {
        let mut m = model_with(Quirks { hard_links: false, ..Quirks::default() });
        given(&mut m, &[file("f", 0o644)]);
        check(&mut m, &[(link("f", "b"), Err(E::EPERM)), (link("f", "f"), Err(E::EEXIST))]);
    }

    #[test]
    fn protected_hardlinks() {
        for (protected, expected) in [(false, Ok(0)), (true, Err(E::EPERM))] {
            let mut m = model_with(Quirks { protected_hardlinks: protected, ..Quirks::default() });
            given(
                &mut m,
                &[
                    file("secret", 0o600),
                    file("open", 0o666),
                    symlink("open", "l"),
                    file("suid", 0o4777),
                    become_user(ALICE),
                ],
            );
            let table = [
                (link("secret", "a"), expected),
                (link("l", "b"), expected),
                (link("suid", "c"), expected),
                (link("open", "d"), Ok(0)),
                (link("open", "open"), Err(E::EEXIST)),
            ];
            check(&mut m, &table);
        }
    }

    #[test]
    fn permissions() {
        let mut m = model();
        given(
            &mut m,
            &[mkdir("d", 0o755), mkdir("x", 0o755), file("f", 0o644), become_user(ALICE)],
        );
        check(
            &mut m,
            &[
                (link("f", "d/f"), Err(E::EACCES)),
                (link("x", "d/f"), Err(E::EACCES)),
                (link("x", "y"), Err(E::EPERM)),
            ],
        );
    }
}
