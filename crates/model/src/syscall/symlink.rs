//! symlink(2): fs/namei.c `do_symlinkat`, `vfs_symlink`.

use fathom_core::{Errno, FsBytes, FsPath, Mode};

use super::Model;
use super::resolve::PATH_BYTES_MAX;
use crate::volume::NewNode;

impl Model {
    pub(super) fn symlink(&mut self, target: &FsBytes, path: &FsPath) -> Result<u64, Errno> {
        if target.as_bytes().is_empty() {
            return Err(Errno::ENOENT);
        }
        if target.as_bytes().len() >= PATH_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let place = self.resolve_parent(path)?;
        let name = self.free_name(&place, false)?;
        self.may_create(place.dir)?;
        if !self.quirks().symlinks {
            return Err(Errno::EPERM);
        }
        if target.as_bytes().len() > self.quirks().symlink_bytes_max as usize {
            return Err(Errno::ENAMETOOLONG);
        }
        // The permissions of a symbolic link are always these (symlink(7)).
        self.volume.make(
            &self.current.identity,
            place.dir,
            name,
            NewNode::Symlink(target.clone()),
            Mode(0o777),
        )?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use crate::quirks::Quirks;

    #[test]
    fn names_and_targets() {
        let mut m = model_with(Quirks { symlink_bytes_max: 1023, ..Quirks::default() });
        given(&mut m, &[file("f", 0o644), mkdir("d", 0o555)]);
        let table = [
            (symlink("", "f"), Err(E::ENOENT)),
            (symlink(&"t".repeat(4096), "nope/x"), Err(E::ENAMETOOLONG)),
            (symlink(&"t".repeat(1024), "f"), Err(E::EEXIST)),
            (symlink(&"t".repeat(1024), "l"), Err(E::ENAMETOOLONG)),
            (symlink(&"t".repeat(1023), "l"), Ok(0)),
            (symlink("t", "l"), Err(E::EEXIST)),
            (symlink("t", "new/"), Err(E::ENOENT)),
            (symlink("t", "d/"), Err(E::EEXIST)),
            (symlink("t", "nope/x"), Err(E::ENOENT)),
            (symlink("t", "f/x"), Err(E::ENOTDIR)),
        ];
        check(&mut m, &table);
        assert_eq!((attr(&m, "l").size, mode_of(&m, "l")), (1023, 0o777));
        given(&mut m, &[become_user(ALICE)]);
        check(&mut m, &[(symlink("t", "d/l"), Err(E::EACCES))]);
    }
}
