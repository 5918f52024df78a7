//! unlink(2): fs/namei.c `do_unlinkat`, `vfs_unlink`.

use fathom_core::{Errno, FsPath, Kind};

use super::Model;
use super::resolve::Last;

impl Model {
    pub(super) fn unlink(&mut self, path: &FsPath) -> Result<u64, Errno> {
        let place = self.resolve_parent(path)?;
        let Last::Name(name) = &place.last else {
            return Err(Errno::EISDIR);
        };
        let victim = self.lookup(place.dir, name)?;
        if place.slash {
            // Before permissions: a slash promised a directory.
            let is_dir = self.volume.attr(victim)?.kind == Kind::Dir;
            return Err(if is_dir { Errno::EISDIR } else { Errno::ENOTDIR });
        }
        self.may_delete(place.dir, victim, false)?;
        self.volume.unlink(place.dir, name)?;
        self.note_lost_name(place.dir, victim);
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;

    #[test]
    fn names() {
        let mut m = model();
        given(
            &mut m,
            &[mkdir("d", 0o755), file("f", 0o644), symlink("d", "l"), symlink("f", "lf")],
        );
        let table = [
            (unlink("nope"), Err(E::ENOENT)),
            (unlink("nope/"), Err(E::ENOENT)),
            (unlink("d"), Err(E::EISDIR)),
            (unlink("d/"), Err(E::EISDIR)),
            (unlink("f/"), Err(E::ENOTDIR)),
            (unlink("l/"), Err(E::ENOTDIR)),
            (unlink("."), Err(E::EISDIR)),
            (unlink(".."), Err(E::EISDIR)),
            (unlink("f/x"), Err(E::ENOTDIR)),
            (unlink("l"), Ok(0)),
            (unlink("f"), Ok(0)),
            (stat("lf"), Err(E::ENOENT)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn permission_comes_before_type_but_after_slashes() {
        let mut m = model();
        given(
            &mut m,
            &[mkdir("a", 0o755), mkdir("a/d", 0o777), file("a/f", 0o666), become_user(ALICE)],
        );
        let table = [
            (unlink("a/d"), Err(E::EACCES)),
            (unlink("a/f"), Err(E::EACCES)),
            (unlink("a/f/"), Err(E::ENOTDIR)),
            (unlink("a/nope"), Err(E::ENOENT)),
        ];
        check(&mut m, &table);
    }
}
