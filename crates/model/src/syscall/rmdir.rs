//! rmdir(2): fs/namei.c `do_rmdir`, `vfs_rmdir`.

use fathom_core::{Errno, FsPath};

use super::Model;
use super::resolve::Last;

impl Model {
    pub(super) fn rmdir(&mut self, path: &FsPath) -> Result<u64, Errno> {
        let place = self.resolve_parent(path)?;
        let name = match &place.last {
            Last::Name(name) => name,
            Last::Dot => return Err(Errno::EINVAL),
            Last::DotDot => return Err(Errno::ENOTEMPTY),
            Last::Root => return Err(Errno::EBUSY),
        };
        let victim = self.lookup(place.dir, name)?;
        self.may_delete(place.dir, victim, true)?;
        self.volume.rmdir(place.dir, name)?;
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
            &[mkdir("d", 0o755), mkdir("d/s", 0o755), file("f", 0o644), symlink("d", "l")],
        );
        let table = [
            (rmdir("nope"), Err(E::ENOENT)),
            (rmdir("f"), Err(E::ENOTDIR)),
            (rmdir("f/"), Err(E::ENOTDIR)),
            (rmdir("l"), Err(E::ENOTDIR)),
            (rmdir("l/"), Err(E::ENOTDIR)),
            (rmdir("."), Err(E::EINVAL)),
            (rmdir("d/."), Err(E::EINVAL)),
            (rmdir(".."), Err(E::ENOTEMPTY)),
            (rmdir("d/s/.."), Err(E::ENOTEMPTY)),
            (rmdir("/"), Err(E::EBUSY)),
            (rmdir("d"), Err(E::ENOTEMPTY)),
            (rmdir("d/s/"), Ok(0)),
            (rmdir("d"), Ok(0)),
        ];
        check(&mut m, &table);
        assert_eq!(attr(&m, ".").nlink, 2);
    }

    #[test]
    fn permission_comes_before_type_and_contents() {
        let mut m = model();
        given(
            &mut m,
            &[
                mkdir("a", 0o755),
                mkdir("a/d", 0o777),
                file("a/d/f", 0o666),
                file("a/f", 0o666),
                become_user(ALICE),
            ],
        );
        check(
            &mut m,
            &[
                (rmdir("a/d"), Err(E::EACCES)),
                (rmdir("a/f"), Err(E::EACCES)),
                (rmdir("a/nope"), Err(E::ENOENT)),
            ],
        );
    }
}
