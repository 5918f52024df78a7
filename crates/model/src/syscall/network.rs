//! What a network file system cannot tell: a server that does not know which files are open.
//!
//! A client that removes or replaces a name under which it has a file open renames it instead, to a name
//! that is no part of the state ([`Quirks::silly_renames`]), and removes that when the file is closed.
//! The model remembers which directories may have such names: whether they do depends on the name under
//! which a file was opened, which is not part of the state either.
//!
//! [`Quirks::silly_renames`]: crate::Quirks::silly_renames

use fathom_core::flags::{Access, AccessMode, OpenFlags, RenameFlags};
use fathom_core::{FsPath, Kind, Mode, Op, Slot, Target};

use super::Model;
use super::permission::Mask;
use super::resolve::Follow;
use crate::volume::Ino;

/// An open file that lost a name, and the directory that it was in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hidden {
    dir: Ino,
    file: Ino,
}

impl Model {
    /// Notes that `file` has lost its name in `dir`.
    pub(super) fn note_lost_name(&mut self, dir: Ino, file: Ino) {
        if !self.quirks().silly_renames {
            return;
        }
        let open: Vec<Ino> = self.open_files().map(|file| file.ino).collect();
        self.hidden.retain(|hidden| open.contains(&hidden.file));
        if open.contains(&file) {
            self.hidden.push(Hidden { dir, file });
        }
    }

    /// Whether the caller may write to a directory, but not search it.
    fn writes_without_search(&self, ino: Ino) -> bool {
        let is_dir = self.volume.attr(ino).is_ok_and(|attr| attr.kind == Kind::Dir);
        let may = |mask| self.permission(ino, mask).is_ok();
        is_dir && may(Mask::WRITE) && !may(Mask::EXEC)
    }

    /// Whether it makes a directory that is sticky and that nobody may search.
    fn makes_referral(&self, op: &Op) -> bool {
        let (mode, is_dir) = match op {
            Op::Mkdir { mode, .. } => (mode.0 & !self.current.umask.0, true),
            Op::Chmod { target, mode } => {
                let attr = self.target(target).and_then(|ino| self.volume.attr(ino));
                (mode.0, attr.is_ok_and(|attr| attr.kind == Kind::Dir))
            }
            _ => return false,
        };
        is_dir && mode & (Mode::S_ISVTX | 0o111) == Mode::S_ISVTX
    }

    /// Notes that a directory was moved to another one.
    pub(super) fn note_moved(&mut self, dir: Ino) {
        if self.quirks().moved_directories_may_be_stale && !self.moved.contains(&dir) {
            self.moved.push(dir);
        }
    }

    /// Whether it moves a directory that was moved before to another one.
    fn moves_again(&self, op: &Op) -> bool {
        let Op::Rename { from, to, .. } = op else { return false };
        let parent = |path| self.resolve_parent(path).map(|place| place.dir);
        let source = self.resolve(from, Follow::No);
        source.is_ok_and(|source| self.moved.contains(&source)) && parent(from) != parent(to)
    }

    /// Whether a client may still have a name for an inode that nobody else sees.
    pub fn may_have_hidden_name(&self, ino: Ino) -> bool {
        self.hidden_names().any(|hidden| hidden.file == ino)
    }

    /// Whether somebody writes to a file that would lose setuid or setgid if he, or whoever opened it, has no
    /// privileges.
    fn may_kill_by_writing(&self, op: &Op) -> bool {
        let slot = match op {
            Op::Truncate { target: Target::Slot(slot), .. } => Some(*slot),
            _ => written_slot(op),
        };
        let attr =
            slot.and_then(|slot| self.slot_ino(slot)).and_then(|ino| self.volume.attr(ino).ok());
        attr.is_some_and(|attr| self.has_privileges_to_kill(&attr))
    }

    /// Whether a caller without privileges changes the contents of a file whose setgid goes or stays by his other
    /// groups.
    fn other_groups_decide(&self, op: &Op) -> bool {
        let ino = match op {
            Op::Truncate { target, .. } => self.target(target).ok(),
            Op::Open { path, flags, .. } if flags.contains(OpenFlags::O_TRUNC) => {
                self.resolve(path, Follow::Yes).ok()
            }
            _ => written_slot(op).and_then(|slot| self.slot_ino(slot)),
        };
        let Some(attr) = ino.and_then(|ino| self.volume.attr(ino).ok()) else { return false };
        let identity = &self.current.identity;
        attr.mode.0 & (Mode::S_ISGID | Mode::S_IXGRP) == Mode::S_ISGID
            && attr.gid != identity.gid
            && !identity.is_privileged()
    }

    /// Whether a caller without privileges truncates a file that would lose setuid or setgid by it to the size that it
    /// has, which the server need not hear of.
    fn may_kill_by_truncation(&self, op: &Op) -> bool {
        let (ino, len) = match op {
            Op::Truncate { target, len } => (self.target(target), *len as u64),
            Op::Open { path, flags, .. } if flags.contains(OpenFlags::O_TRUNC) => {
                (self.resolve(path, Follow::Yes), 0)
            }
            _ => return false,
        };
        let Ok(attr) = ino.and_then(|ino| self.volume.attr(ino)) else { return false };
        let quirks = self.quirks();
        let varies = quirks.idle_truncation_varies && !quirks.truncation_keeps_privileges;
        varies
            && attr.size == len
            && self.has_privileges_to_kill(&attr)
            && !self.current.identity.is_privileged()
    }

    /// Whether a call of its own on a range of an open file is made by somebody who could not open that file so.
    fn lacks_permission_for_range(&self, op: &Op) -> bool {
        let (read, write) = (Mask::READ, Mask::WRITE);
        let needs: &[(Slot, Mask)] = match op {
            Op::Fallocate { slot, .. } => &[(*slot, write)],
            Op::CopyFileRange { from, to, .. } => &[(*from, read), (*to, write)],
            Op::Lseek { slot, .. } => &[(*slot, read)],
            _ => &[],
        };
        let lacks = |(slot, mask): &(Slot, Mask)| {
            self.slot_ino(*slot).is_some_and(|ino| self.permission(ino, *mask).is_err())
        };
        needs.iter().any(lacks)
    }

    fn hidden_names(&self) -> impl Iterator<Item = &Hidden> {
        let is_open = |hidden: &&Hidden| self.open_files().any(|file| file.ino == hidden.file);
        self.hidden.iter().filter(is_open)
    }

    /// Why it is not said what becomes of a name, of a directory, or of a file of that size.
    fn unspecified_names(&self, op: &Op) -> Option<&'static str> {
        if let Op::Rename { to, flags, .. } = op
            && self.quirks().rename_target_unseen
            && !flags.is_empty()
            && !flags.contains(RenameFlags::RENAME_EXCHANGE)
            && self.resolve(to, Follow::No).is_ok()
        {
            return Some("the client may not know the target, and refuses the flags then");
        }
        if self.quirks().readable_bytes_max < i64::MAX as u64
            && self
                .size_and_start(op)
                .is_some_and(|(_, start)| start > self.quirks().readable_bytes_max)
        {
            return Some("the server does not read the end of a file that is so long");
        }
        if self.quirks().sticky_directories_refer && self.makes_referral(op) {
            return Some(
                "the server takes a sticky directory that nobody may search for a referral",
            );
        }
        if let Op::Access { target, mode, .. } = op
            && self.quirks().writing_directories_needs_search
            && mode.contains(AccessMode::W_OK)
            && self.target(target).is_ok_and(|ino| self.writes_without_search(ino))
        {
            return Some("the server may not call it writing if entries cannot be searched");
        }
        if self.moves_again(op) {
            return Some("a client may know the directory by the name from which another moved it");
        }
        None
    }

    /// Why a network file system need not answer as the reference does, if the subject is one.
    pub(super) fn unspecified_on_network(&self, op: &Op) -> Option<&'static str> {
        if let Op::Open { flags, .. } = op
            && self.quirks().truncation_of_readers_varies
            && flags.contains(OpenFlags::O_TRUNC)
            && flags.access() == Access::Read
        {
            return Some(
                "open(2) leaves it open what O_TRUNC does to a file that is opened to read it",
            );
        }
        let direct_append = OpenFlags::O_APPEND | OpenFlags::O_DIRECT;
        if let Op::Open { flags, .. } = op
            && self.quirks().direct_append_varies
            && flags.contains(direct_append)
        {
            return Some(
                "the client refuses O_APPEND with O_DIRECT, before or after making a file",
            );
        }
        if self.quirks().ranges_as_caller && self.lacks_permission_for_range(op) {
            return Some("the server asks whether the caller may, not only who opened the file");
        }
        if self.quirks().other_groups_unknown && self.other_groups_decide(op) {
            return Some("whether setgid goes depends on groups that the server does not know");
        }
        if self.quirks().writes_as_opener && self.may_kill_by_writing(op) {
            return Some("whether setuid and setgid go depends on who opened the file");
        }
        if let Op::Listxattr { target, .. } = op
            && self.quirks().listxattr_of_strangers_varies
            && self.target(target).is_ok_and(|ino| self.permission(ino, Mask::READ).is_err())
        {
            return Some("the client may remember that the caller must not read the file");
        }
        if self.may_kill_by_truncation(op) {
            return Some("whether setuid and setgid go depends on how the server hears of it");
        }
        if let Op::Setxattr { name, .. } | Op::Getxattr { name, .. } | Op::Removexattr { name, .. } =
            op
            && name.as_bytes() == b"user."
            && self.quirks().silly_renames
            && !self.quirks().user_xattrs
        {
            return Some("an attribute without a name is refused for either reason");
        }
        if let Some(why) = self.unspecified_names(op) {
            return Some(why);
        }
        if self.hidden.is_empty() || !self.quirks().silly_renames {
            return None;
        }
        let hides = |path: &FsPath| {
            let dir = self.resolve(path, Follow::No);
            dir.is_ok_and(|dir| self.hidden_names().any(|hidden| hidden.dir == dir))
        };
        let is_hidden =
            |target: &Target| self.target(target).is_ok_and(|ino| self.may_have_hidden_name(ino));
        match op {
            Op::Rmdir { path } | Op::Rename { to: path, .. } if hides(path) => {
                Some("the directory may have the hidden name of an open file")
            }
            Op::Stat { target } if is_hidden(target) => {
                Some("the link count may include the hidden name of an open file")
            }
            _ => None,
        }
    }
}

/// The open file whose contents a call changes.
fn written_slot(op: &Op) -> Option<Slot> {
    match op {
        Op::Write { slot, .. }
        | Op::Pwrite { slot, .. }
        | Op::MmapStore { slot, .. }
        | Op::Fallocate { slot, .. }
        | Op::CopyFileRange { to: slot, .. } => Some(*slot),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::FallocateMode;

    use super::super::testing::*;
    use super::*;
    use crate::quirks::Quirks;

    #[test]
    fn calls_on_ranges_need_the_permissions_of_the_caller() {
        let mut m = model_with(Quirks { ranges_as_caller: true, ..Quirks::default() });
        let mode = FallocateMode::empty();
        let fallocate = |slot| Op::Fallocate { slot, mode, offset: 0, len: 1 };
        given(&mut m, &[file("f", 0o644), file("g", 0o666)]);
        given(&mut m, &[open(0, "f", OpenFlags::O_RDWR), open(1, "g", OpenFlags::O_RDWR)]);
        assert_eq!(m.unspecified(&fallocate(0)), None);
        given(&mut m, &[become_user(ALICE)]);
        assert!(m.unspecified(&fallocate(0)).is_some());
        assert_eq!(m.unspecified(&fallocate(1)), None);
    }

    /// Found with xfs behind Ganesha: truncate to 2⁶³ - 1 bytes, and `pread` was `EFBIG`.
    #[test]
    fn nobody_makes_a_file_whose_end_the_server_does_not_read() {
        let quirks = Quirks::default().with_layer("nfs-ganesha", (6, 12)).unwrap();
        let max = quirks.readable_bytes_max as i64;
        for (quirks, is_left_out) in [(quirks, true), (Quirks::default(), false)] {
            let mut m = model_with(quirks);
            given(&mut m, &[open(0, "f", OpenFlags::O_CREAT | OpenFlags::O_RDWR)]);
            let data = fathom_core::Pattern { seed: 1, len: 1 };
            let pwrite = Op::Pwrite { slot: 0, offset: max + 1, data };
            assert_eq!(m.unspecified(&pwrite).is_some(), is_left_out);
            for len in [max + 1, i64::MAX] {
                let truncate = Op::Truncate { target: at("f"), len };
                assert_eq!(m.unspecified(&truncate).is_some(), is_left_out);
            }
            assert_eq!(m.unspecified(&Op::Truncate { target: at("f"), len: max }), None);
            assert_eq!(m.unspecified(&Op::Truncate { target: at("f"), len: -1 }), None);
        }
    }

    /// Found with ext4 behind the kernel's server: truncate and `open(O_TRUNC)` of a file of one's own.
    #[test]
    fn truncation_leaves_setuid_unless_the_server_drops_it() {
        let over = |layers: &[&str]| {
            let mut quirks = Quirks::default();
            for layer in layers {
                quirks = quirks.with_layer(layer, (6, 12)).unwrap();
            }
            let mut m = model_with(quirks);
            let chmod = Op::Chmod { target: at("f"), mode: Mode(0o6777) };
            given(&mut m, &[file("f", 0o666), chmod, become_user(ALICE)]);
            m
        };
        let truncate = |len| Op::Truncate { target: at("f"), len };
        let open = open(0, "f", OpenFlags::O_WRONLY | OpenFlags::O_TRUNC);
        let mode = |m: &Model| {
            let ino = m.resolve(&path("f"), Follow::No).unwrap();
            m.volume.attr(ino).unwrap().mode.perm()
        };
        let mut kernel = over(&["nfs-3"]);
        given(&mut kernel, &[truncate(7), open.clone()]);
        assert_eq!(mode(&kernel), 0o6777);
        // The client does not tell the server of a size that the file has.
        let mut fuse = over(&["nfs-4.2", "nfs-over-fuse"]);
        assert!(fuse.unspecified(&truncate(0)).is_some() && fuse.unspecified(&open).is_some());
        given(&mut fuse, &[truncate(7)]);
        assert_eq!(mode(&fuse), 0o777);
        assert_eq!(fuse.unspecified(&truncate(7)), None, "nothing is left to drop");
        // It truncates as root (FSAL_VFS/file.c vfs_setattr2()).
        let mut ganesha = over(&["nfs-4.2", "nfs-ganesha"]);
        given(&mut ganesha, &[truncate(7), open]);
        assert_eq!(mode(&ganesha), 0o6777);
    }

    /// Found with ext4 behind NFS 4.2 as an answer that was now success, now `EACCES`.
    #[test]
    fn who_may_not_read_a_file_need_not_see_the_names_of_its_attributes() {
        let quirks = |layer| Quirks::default().with_layer(layer, (6, 12)).unwrap();
        let list = |name: &str| Op::Listxattr { target: at(name), len: 100 };
        let mut m = model_with(quirks("nfs-4.2"));
        given(&mut m, &[file("f", 0o600), file("g", 0o644)]);
        assert_eq!(m.unspecified(&list("f")), None);
        given(&mut m, &[become_user(ALICE)]);
        assert!(m.unspecified(&list("f")).is_some());
        assert_eq!(m.unspecified(&list("g")), None);
        assert!(!quirks("nfs-4.1").listxattr_of_strangers_varies);
    }

    /// Found with btrfs behind NFS 4.1 after a remount: `EINVAL`, not `EEXIST`.
    #[test]
    fn flags_of_renames_are_refused_with_or_without_a_look_at_the_target() {
        let mut m = model_with(Quirks::default().with_layer("nfs-4.1", (6, 12)).unwrap());
        given(&mut m, &[file("e", 0o644), file("f", 0o644)]);
        let rename = |to: &str, flags| Op::Rename { from: path("e"), to: path(to), flags };
        assert!(m.unspecified(&rename("f", RenameFlags::RENAME_NOREPLACE)).is_some());
        assert_eq!(m.unspecified(&rename("g", RenameFlags::RENAME_NOREPLACE)), None);
        assert_eq!(m.unspecified(&rename("f", RenameFlags::RENAME_EXCHANGE)), None);
        assert_eq!(m.unspecified(&rename("f", RenameFlags::empty())), None);
    }

    /// Found with ext4 behind NFS 4.2: the owner of a directory with the mode 0644.
    #[test]
    fn who_may_write_a_directory_without_searching_it_need_not_be_told_so() {
        let mut m = model_with(Quirks::default().with_layer("nfs-4.2", (6, 12)).unwrap());
        given(&mut m, &[mkdir("d", 0o755), mkdir("e", 0o755), file("f", 0o666)]);
        given(&mut m, &[Op::Chmod { target: at("d"), mode: Mode(0o666) }]);
        given(&mut m, &[Op::Chmod { target: at("e"), mode: Mode(0o777) }, become_user(ALICE)]);
        let access = |name: &str, mode| Op::Access { target: at(name), mode, effective: true };
        assert!(m.unspecified(&access("d", AccessMode::W_OK)).is_some());
        assert_eq!(m.unspecified(&access("d", AccessMode::R_OK)), None);
        assert_eq!(m.unspecified(&access("e", AccessMode::W_OK)), None);
        assert_eq!(m.unspecified(&access("f", AccessMode::W_OK)), None);
    }

    /// Found with xfs behind Ganesha and NFS 4.0: `mkdir` and every `open` after it were `EIO`.
    #[test]
    fn nobody_makes_a_directory_that_the_server_takes_for_a_referral() {
        let quirks = Quirks::default().with_layer("nfs-ganesha", (6, 12)).unwrap();
        for (quirks, is_left_out) in [(quirks, true), (Quirks::default(), false)] {
            let mut m = model_with(quirks);
            given(&mut m, &[mkdir("d", 0o755), file("f", 0o644)]);
            let chmod = |name: &str, mode| Op::Chmod { target: at(name), mode: Mode(mode) };
            for op in [chmod("d", 0o1644), chmod("d", 0o1000), mkdir("e", 0o1666)] {
                assert_eq!(m.unspecified(&op).is_some(), is_left_out, "{op}");
            }
            for op in [chmod("d", 0o1644 | 0o100), chmod("d", 0o644), chmod("f", 0o1644)] {
                assert_eq!(m.unspecified(&op), None, "{op}");
            }
        }
    }

    /// Found with xfs behind NFS 4.0 and two clients: `ESTALE` in one run, the right answer in others.
    #[test]
    fn a_directory_that_was_moved_is_not_moved_again_with_two_clients() {
        let quirks = Quirks::default().with_layer("nfs-two-clients", (6, 12)).unwrap();
        for (quirks, is_left_out) in [(quirks, true), (Quirks::default(), false)] {
            let mut m = model_with(quirks);
            let flags = RenameFlags::empty();
            let rename =
                |from: &str, to: &str| Op::Rename { from: path(from), to: path(to), flags };
            given(&mut m, &[mkdir("a", 0o755), mkdir("b", 0o755), mkdir("a/x", 0o755)]);
            given(&mut m, &[file("a/f", 0o644), rename("a/f", "b/f"), rename("a", "c")]);
            assert_eq!(m.unspecified(&rename("c/x", "b/x")), None, "never moved");
            assert_eq!(m.unspecified(&rename("c", "b/c")), None, "renamed where it was");
            assert_eq!(m.unspecified(&rename("b/f", "c/f")), None, "no directory");
            given(&mut m, &[rename("c/x", "b/x")]);
            assert_eq!(m.unspecified(&rename("b/x", "c/y")).is_some(), is_left_out);
            assert_eq!(m.unspecified(&rename("b/x", "b/y")), None, "within its directory");
        }
    }

    /// Found with xfs behind NFS 4.2: a user opened the file and root wrote, and setgid was gone.
    #[test]
    fn who_opened_a_file_decides_whether_writing_drops_setgid() {
        let mut m = model_with(Quirks::default().with_layer("nfs-4.2", (6, 12)).unwrap());
        given(&mut m, &[mkdir("d", 0o777), Op::Chmod { target: at("d"), mode: Mode(0o777) }]);
        given(&mut m, &[become_user(ALICE), file("d/f", 0o2755), file("d/g", 0o755)]);
        given(&mut m, &[open(0, "d/f", OpenFlags::O_WRONLY), open(1, "d/g", OpenFlags::O_WRONLY)]);
        given(&mut m, &[become_user(0)]);
        let data = fathom_core::Pattern { seed: 1, len: 1 };
        assert!(m.unspecified(&Op::Write { slot: 0, data }).is_some());
        assert_eq!(m.unspecified(&Op::Write { slot: 1, data }), None);
    }

    /// Found with the reference behind FUSE in a process namespace of its own, where it cannot ask for the groups.
    #[test]
    fn a_server_need_not_know_the_other_groups_of_who_writes() {
        let foreign = Quirks::profile("fuse").unwrap();
        for (quirks, is_left_out) in [(foreign, true), (Quirks::default(), false)] {
            let mut m = model_with(quirks);
            for (name, gid, mode) in [("f", 7, 0o2666), ("exec", 7, 0o2676), ("own", ALICE, 0o2666)]
            {
                given(&mut m, &[file(name, 0o666)]);
                let chown = Op::Chown { target: at(name), uid: None, gid: Some(gid) };
                given(&mut m, &[chown, Op::Chmod { target: at(name), mode: Mode(mode) }]);
            }
            given(
                &mut m,
                &[open(0, "f", OpenFlags::O_WRONLY), open(1, "exec", OpenFlags::O_WRONLY)],
            );
            let data = fathom_core::Pattern { seed: 1, len: 1 };
            assert_eq!(m.unspecified(&Op::Write { slot: 0, data }), None, "root may");
            given(&mut m, &[become_user(ALICE)]);
            assert_eq!(m.unspecified(&Op::Write { slot: 0, data }).is_some(), is_left_out);
            let truncate = |name: &str| Op::Truncate { target: at(name), len: 3 };
            assert_eq!(m.unspecified(&truncate("f")).is_some(), is_left_out);
            assert_eq!(m.unspecified(&truncate("own")), None, "his own group");
            assert_eq!(m.unspecified(&Op::Write { slot: 1, data }), None, "it goes in any case");
        }
    }

    #[test]
    fn hidden_names_last_as_long_as_the_file_is_open() {
        let mut m = model_with(Quirks { silly_renames: true, ..Quirks::default() });
        let plain = RenameFlags::empty();
        let over = |to: &str| Op::Rename { from: path("e"), to: path(to), flags: plain };
        let (rmdir, fstat) = (Op::Rmdir { path: path("d") }, Op::Stat { target: Target::Slot(0) });
        given(&mut m, &[mkdir("d", 0o755), mkdir("e", 0o755), file("d/f", 0o644)]);
        given(&mut m, &[file("d/g", 0o644), open(0, "d/f", OpenFlags::O_RDWR)]);
        given(&mut m, &[Op::Unlink { path: path("d/g") }]);
        assert_eq!(m.unspecified(&fstat), None, "it was not open");
        given(&mut m, &[Op::Unlink { path: path("d/f") }]);
        assert!(m.unspecified(&rmdir).is_some() && m.unspecified(&over("d")).is_some());
        assert!(m.unspecified(&fstat).is_some());
        assert_eq!(m.unspecified(&over("x")), None);
        given(&mut m, &[close(0)]);
        assert_eq!(m.unspecified(&rmdir), None);
        assert_eq!(m.unspecified(&over("d")), None);
    }

    #[test]
    fn a_file_that_is_replaced_is_hidden_too() {
        let mut m = model_with(Quirks { silly_renames: true, ..Quirks::default() });
        given(&mut m, &[file("f", 0o644), file("g", 0o644), open(0, "f", OpenFlags::O_RDWR)]);
        let plain = RenameFlags::empty();
        given(&mut m, &[Op::Rename { from: path("g"), to: path("f"), flags: plain }]);
        let ino = m.slot_ino(0).unwrap();
        assert!(m.may_have_hidden_name(ino));
        let mut local = model();
        given(&mut local, &[file("f", 0o644), open(0, "f", OpenFlags::O_RDWR)]);
        given(&mut local, &[Op::Unlink { path: path("f") }]);
        assert!(!local.may_have_hidden_name(local.slot_ino(0).unwrap()));
    }
}
