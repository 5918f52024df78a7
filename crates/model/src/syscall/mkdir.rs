//! mkdir(2): fs/namei.c `do_mkdirat`, `vfs_mkdir`.

use fathom_core::plain::DIR_MODE;
use fathom_core::{Errno, FsPath, Mode};

use super::Model;
use crate::volume::NewNode;

impl Model {
    /// Setuid and setgid cannot be asked for; the sticky bit can.
    pub(super) fn mkdir(&mut self, path: &FsPath, mode: Mode) -> Result<u64, Errno> {
        let place = self.resolve_parent(path)?;
        let name = self.free_name(&place, true)?;
        self.may_create(place.dir)?;
        let mode = if self.quirks().modes_not_kept { DIR_MODE } else { mode };
        let mode = self.creation_mode(place.dir, mode, 0o1777)?;
        self.volume.make(&self.current.identity, place.dir, name, NewNode::Dir, mode)?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Op;

    use super::super::testing::*;
    use super::*;

    #[test]
    fn names() {
        let mut m = model();
        given(&mut m, &[file("f", 0o644), symlink("nope", "dangling")]);
        let table = [
            (mkdir("d/", 0o755), Ok(0)),
            (mkdir("d", 0o755), Err(E::EEXIST)),
            (mkdir("d/", 0o755), Err(E::EEXIST)),
            (mkdir(".", 0o755), Err(E::EEXIST)),
            (mkdir("d/..", 0o755), Err(E::EEXIST)),
            (mkdir("f/", 0o755), Err(E::EEXIST)),
            (mkdir("dangling", 0o755), Err(E::EEXIST)),
            (mkdir("dangling/", 0o755), Err(E::EEXIST)),
            (mkdir("f/x", 0o755), Err(E::ENOTDIR)),
            (mkdir("nope/x", 0o755), Err(E::ENOENT)),
            (mkdir("", 0o755), Err(E::ENOENT)),
        ];
        check(&mut m, &table);
        given(&mut m, &[become_user(ALICE)]);
        check(
            &mut m,
            &[(mkdir("d", 0o755), Err(E::EEXIST)), (mkdir("d/x", 0o755), Err(E::EACCES))],
        );
    }

    #[test]
    fn modes() {
        let mut m = model();
        given(&mut m, &[mkdir("d", 0o7777), Op::Umask { mask: Mode(0o022) }, mkdir("e", 0o777)]);
        assert_eq!((mode_of(&m, "d"), mode_of(&m, "e")), (0o1777, 0o755));
        assert_eq!((attr(&m, ".").nlink, attr(&m, "d").nlink), (4, 2));
    }
}
