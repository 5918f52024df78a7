//! rename(2), renameat2(2): fs/namei.c `do_renameat2`, `vfs_rename`.

use fathom_core::flags::RenameFlags;
use fathom_core::{Errno, FsPath, Kind};

use super::Model;
use super::permission::Mask;
use super::resolve::{Last, Place};
use crate::volume::{Ino, ROOT};

const NOREPLACE: RenameFlags = RenameFlags::RENAME_NOREPLACE;
const EXCHANGE: RenameFlags = RenameFlags::RENAME_EXCHANGE;
const WHITEOUT: RenameFlags = RenameFlags::RENAME_WHITEOUT;

/// One end of a rename.
struct End {
    dir: Ino,
    ino: Ino,
    is_dir: bool,
}

impl Model {
    pub(super) fn rename(
        &mut self,
        from: &FsPath,
        to: &FsPath,
        flags: RenameFlags,
    ) -> Result<u64, Errno> {
        check_flags(flags)?;
        let (from, to) = (self.resolve_parent(from)?, self.resolve_parent(to)?);
        let Last::Name(from_name) = &from.last else {
            return Err(Errno::EBUSY);
        };
        let Last::Name(to_name) = &to.last else {
            return Err(if flags.contains(NOREPLACE) { Errno::EEXIST } else { Errno::EBUSY });
        };
        let source = self.end(from.dir, from_name)?;
        let target = match self.end(to.dir, to_name) {
            Ok(_) if flags.contains(NOREPLACE) => return Err(Errno::EEXIST),
            Ok(target) => Some(target),
            Err(Errno::ENOENT) if !flags.contains(EXCHANGE) => None,
            Err(errno) => return Err(errno),
        };
        check_slashes(&from, &to, &source, target.as_ref(), flags)?;
        self.check_ancestors(&source, to.dir, target.as_ref(), flags)?;
        if target.as_ref().is_some_and(|target| target.ino == source.ino) {
            // Two names of one file: nothing happens, whoever asks.
            return Ok(0);
        }
        self.may_rename(&source, to.dir, target.as_ref(), flags)?;
        let known = self.quirks().rename_flags.contains(flags);
        if !known || flags.contains(WHITEOUT) && !self.quirks().whiteouts {
            return Err(Errno::EINVAL);
        }
        let renamed =
            self.volume.rename(&self.current.identity, from.dir, from_name, to.dir, to_name, flags);
        match renamed {
            Ok(()) => {
                if let Some(target) = target.filter(|_| !flags.contains(EXCHANGE)) {
                    self.note_lost_name(to.dir, target.ino);
                }
                if source.is_dir && from.dir != to.dir {
                    self.note_moved(source.ino);
                }
                Ok(0)
            }
            Err(Errno::ENOTEMPTY) if self.quirks().rename_not_empty_exists => Err(Errno::EEXIST),
            Err(errno) => Err(errno),
        }
    }

    fn end(&self, dir: Ino, name: &[u8]) -> Result<End, Errno> {
        let ino = self.lookup(dir, name)?;
        Ok(End { dir, ino, is_dir: self.volume.attr(ino)?.kind == Kind::Dir })
    }

    /// Neither end can be above the other (`lock_rename`).
    fn check_ancestors(
        &self,
        source: &End,
        to_dir: Ino,
        target: Option<&End>,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        if self.is_at_or_above(source.ino, to_dir)? {
            return Err(Errno::EINVAL);
        }
        match target {
            Some(target) if self.is_at_or_above(target.ino, source.dir)? => {
                Err(if flags.contains(EXCHANGE) { Errno::EINVAL } else { Errno::ENOTEMPTY })
            }
            _ => Ok(()),
        }
    }

    fn is_at_or_above(&self, ino: Ino, mut dir: Ino) -> Result<bool, Errno> {
        while dir != ROOT {
            if dir == ino {
                return Ok(true);
            }
            dir = self.volume.parent(dir)?;
        }
        Ok(ino == ROOT)
    }

    /// The permissions of `vfs_rename`.
    fn may_rename(
        &self,
        source: &End,
        to_dir: Ino,
        target: Option<&End>,
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        self.may_delete(source.dir, source.ino, source.is_dir)?;
        match target {
            None => self.may_create(to_dir)?,
            Some(target) if flags.contains(EXCHANGE) => {
                self.may_delete(to_dir, target.ino, target.is_dir)?;
            }
            // A directory replaces only a directory, a file only a file.
            Some(target) => self.may_delete(to_dir, target.ino, source.is_dir)?,
        }
        if to_dir != source.dir {
            // A directory that gets another parent is written to: its `..` changes.
            if source.is_dir {
                self.permission(source.ino, Mask::WRITE)?;
            }
            match target {
                Some(target) if flags.contains(EXCHANGE) && target.is_dir => {
                    self.permission(target.ino, Mask::WRITE)?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn check_flags(flags: RenameFlags) -> Result<(), Errno> {
    let known = NOREPLACE | EXCHANGE | WHITEOUT;
    let exchange_alone = !flags.contains(EXCHANGE) || !flags.intersects(NOREPLACE | WHITEOUT);
    if known.contains(flags) && exchange_alone { Ok(()) } else { Err(Errno::EINVAL) }
}

/// A slash at the end of a name promises a directory.
fn check_slashes(
    from: &Place<'_>,
    to: &Place<'_>,
    source: &End,
    target: Option<&End>,
    flags: RenameFlags,
) -> Result<(), Errno> {
    let broken = if flags.contains(EXCHANGE) {
        let target_is_dir = target.is_some_and(|target| target.is_dir);
        to.slash && !target_is_dir || from.slash && !source.is_dir
    } else {
        !source.is_dir && (from.slash || to.slash)
    };
    if broken { Err(Errno::ENOTDIR) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use fathom_core::Op;

    use super::super::testing::*;
    use super::*;
    use crate::quirks::Quirks;

    fn rename(from: &str, to: &str, flags: u32) -> Op {
        Op::Rename { from: path(from), to: path(to), flags: RenameFlags::from_bits_retain(flags) }
    }

    /// To a plain rename, with `RENAME_NOREPLACE`, and with `RENAME_EXCHANGE`.
    type Answers = [Result<u64, Errno>; 3];

    fn furnished() -> Model {
        let mut m = model();
        given(
            &mut m,
            &[mkdir("d", 0o755), mkdir("d/s", 0o755), file("d/s/f", 0o644), mkdir("empty", 0o755)],
        );
        given(
            &mut m,
            &[file("f", 0o644), link("f", "same"), symlink("f", "l"), symlink("d", "ld")],
        );
        m
    }

    #[test]
    fn plain_noreplace_and_exchange() {
        let long = "n".repeat(256);
        let table: [(&str, &str, Answers); 29] = [
            ("d", "d/s/x", [Err(E::EINVAL), Err(E::EINVAL), Err(E::ENOENT)]),
            ("d", "d/s", [Err(E::EINVAL), Err(E::EEXIST), Err(E::EINVAL)]),
            ("d/s", "d", [Err(E::ENOTEMPTY), Err(E::EEXIST), Err(E::EINVAL)]),
            ("d/s/f", "d", [Err(E::ENOTEMPTY), Err(E::EEXIST), Err(E::EINVAL)]),
            ("d/s/f", "d/s", [Err(E::ENOTEMPTY), Err(E::EEXIST), Err(E::EINVAL)]),
            ("f", "same", [Ok(0), Err(E::EEXIST), Ok(0)]),
            ("f", "f", [Ok(0), Err(E::EEXIST), Ok(0)]),
            ("d", "d", [Ok(0), Err(E::EEXIST), Ok(0)]),
            ("f", "same/", [Err(E::ENOTDIR), Err(E::EEXIST), Err(E::ENOTDIR)]),
            ("f/", "x", [Err(E::ENOTDIR), Err(E::ENOTDIR), Err(E::ENOENT)]),
            ("f", "x/", [Err(E::ENOTDIR), Err(E::ENOTDIR), Err(E::ENOENT)]),
            ("d", "x/", [Ok(0), Ok(0), Err(E::ENOENT)]),
            ("d/", "x", [Ok(0), Ok(0), Err(E::ENOENT)]),
            ("ld/", "x", [Err(E::ENOTDIR), Err(E::ENOTDIR), Err(E::ENOENT)]),
            ("d", "ld/", [Err(E::ENOTDIR), Err(E::EEXIST), Err(E::ENOTDIR)]),
            ("d", "f", [Err(E::ENOTDIR), Err(E::EEXIST), Ok(0)]),
            ("f", "empty", [Err(E::EISDIR), Err(E::EEXIST), Ok(0)]),
            ("f", "l", [Ok(0), Err(E::EEXIST), Ok(0)]),
            ("d", "empty", [Ok(0), Err(E::EEXIST), Ok(0)]),
            ("empty", "d", [Err(E::ENOTEMPTY), Err(E::EEXIST), Ok(0)]),
            (".", "x", [Err(E::EBUSY), Err(E::EBUSY), Err(E::EBUSY)]),
            ("f", ".", [Err(E::EBUSY), Err(E::EEXIST), Err(E::EBUSY)]),
            ("nope", "d/..", [Err(E::EBUSY), Err(E::EEXIST), Err(E::EBUSY)]),
            ("nope", "d", [Err(E::ENOENT), Err(E::ENOENT), Err(E::ENOENT)]),
            ("d", "d/nope/x", [Err(E::ENOENT), Err(E::ENOENT), Err(E::ENOENT)]),
            ("f", "f/x", [Err(E::ENOTDIR), Err(E::ENOTDIR), Err(E::ENOTDIR)]),
            ("", "x", [Err(E::ENOENT), Err(E::ENOENT), Err(E::ENOENT)]),
            ("nope", &long, [Err(E::ENOENT), Err(E::ENOENT), Err(E::ENOENT)]),
            ("f", &long, [Err(E::ENAMETOOLONG), Err(E::ENAMETOOLONG), Err(E::ENAMETOOLONG)]),
        ];
        for (from, to, expected) in table {
            for (flags, expected) in (0..).zip(expected) {
                check_each(&furnished(), &[(rename(from, to, flags), expected)]);
            }
            check_each(
                &furnished(),
                &[(rename(from, to, 3), Err(E::EINVAL)), (rename(from, to, 8), Err(E::EINVAL))],
            );
        }
    }

    #[test]
    fn permissions() {
        let mut m = model();
        given(
            &mut m,
            &[
                mkdir("locked", 0o755),
                file("locked/f", 0o666),
                mkdir("tmp", 0o1777),
                file("tmp/root", 0o666),
            ],
        );
        given(
            &mut m,
            &[
                file("f", 0o666),
                link("f", "locked/same"),
                mkdir("dir", 0o755),
                mkdir("dir/mine", 0o755),
                become_user(ALICE),
            ],
        );
        given(&mut m, &[mkdir("own", 0o755), mkdir("own/d", 0o555), mkdir("other", 0o755)]);
        let table = [
            (rename("locked/f", "x", 0), Err(E::EACCES)),
            (rename("f", "locked/f", 0), Err(E::EACCES)),
            (rename("f", "locked/new", 0), Err(E::EACCES)),
            (rename("f", "locked/same", 0), Ok(0)),
            (rename("tmp/root", "x", 0), Err(E::EPERM)),
            (rename("f", "tmp/root", 0), Err(E::EPERM)),
            // The `..` of a directory that moves must be writable.
            (rename("own/d", "other/d", 0), Err(E::EACCES)),
            (rename("own/d", "own/e", 0), Ok(0)),
        ];
        check_each(&m, &table);
    }

    #[test]
    fn whiteouts() {
        let mut m = furnished();
        check(&mut m, &[(rename("f", "x", 4), Ok(0)), (rename("same", "x", 6), Err(E::EINVAL))]);
        assert_eq!((attr(&m, "f").kind, attr(&m, "f").rdev), (Kind::Char, (0, 0)));
        for (profile, gid) in [("ext4", BOB), ("xfs", 0)] {
            let mut m = model_with(Quirks::profile(profile).unwrap());
            given(&mut m, &[mkdir("d", 0o755), chown("d", 0, BOB), chmod("d", 0o2755)]);
            given(&mut m, &[file("d/f", 0o644), rename("d/f", "x", 4)]);
            assert_eq!(attr(&m, "d/f").gid, gid, "{profile}");
        }
        let mut small = model_with(Quirks { rename_flags: NOREPLACE, ..Quirks::default() });
        given(&mut small, &[file("f", 0o644), file("g", 0o644)]);
        check(
            &mut small,
            &[
                (rename("f", "x", 4), Err(E::EINVAL)),
                (rename("f", "g", 2), Err(E::EINVAL)),
                (rename("f", "nope", 2), Err(E::ENOENT)),
                (rename("f", "f", 2), Ok(0)),
                (rename("f", "x", 1), Ok(0)),
            ],
        );
        let mut overlay = model_with(Quirks::profile("overlay").unwrap());
        given(&mut overlay, &[file("f", 0o644)]);
        check(
            &mut overlay,
            &[(rename("f", "x", 4), Err(E::EINVAL)), (rename("nope", "x", 4), Err(E::ENOENT))],
        );
    }
}
