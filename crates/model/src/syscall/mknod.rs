//! mknod(2): fs/namei.c `do_mknodat`, `vfs_mknod`.

use fathom_core::{Errno, FsPath, Kind, Mode};

use super::Model;
use crate::volume::NewNode;
use fathom_core::plain::FILE_MODE;

impl Model {
    pub(super) fn mknod(
        &mut self,
        path: &FsPath,
        mode: Mode,
        dev: (u32, u32),
    ) -> Result<u64, Errno> {
        let node = node_of_mode(mode, dev)?;
        let place = self.resolve_parent(path)?;
        let name = self.free_name(&place, false)?;
        self.may_create(place.dir)?;
        // Everybody may make a whiteout, CAP_MKNOD other devices.
        let allowed = match node {
            NewNode::Char(0, 0) => self.quirks().whiteouts,
            NewNode::Char(..) | NewNode::Block(..) => self.current.identity.is_privileged(),
            _ => true,
        };
        let is_special = !matches!(node, NewNode::File);
        if !allowed || is_special && !self.quirks().special_files {
            return Err(Errno::EPERM);
        }
        if self.quirks().device_numbers_small && (dev.0 > 255 || dev.1 > 255) && is_special {
            return Err(Errno::EINVAL);
        }
        let mode = if self.quirks().modes_not_kept { FILE_MODE } else { mode };
        let mode = self.creation_mode(place.dir, mode, 0o7777)?;
        self.volume.make(&self.current.identity, place.dir, name, node, mode)?;
        Ok(0)
    }
}

/// `may_mknod`; no type at all means a regular file.
fn node_of_mode(mode: Mode, (major, minor): (u32, u32)) -> Result<NewNode, Errno> {
    match Kind::of_mode(mode.0) {
        Some(Kind::File) => Ok(NewNode::File),
        Some(Kind::Fifo) => Ok(NewNode::Fifo),
        Some(Kind::Socket) => Ok(NewNode::Socket),
        Some(Kind::Char) => Ok(NewNode::Char(major, minor)),
        Some(Kind::Block) => Ok(NewNode::Block(major, minor)),
        Some(Kind::Dir) => Err(Errno::EPERM),
        None if mode.0 & Mode::S_IFMT == 0 => Ok(NewNode::File),
        Some(Kind::Symlink) | None => Err(Errno::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Op;

    use super::super::testing::*;
    use super::*;
    use crate::quirks::Quirks;

    #[test]
    fn types() {
        let mut m = model();
        given(&mut m, &[mkdir("d", 0o555)]);
        let table = [
            (mknod("", Mode::S_IFDIR), Err(E::EPERM)),
            (mknod("", Mode::S_IFLNK), Err(E::EINVAL)),
            (mknod("", 0o170000), Err(E::EINVAL)),
            (mknod("", Mode::S_IFREG), Err(E::ENOENT)),
            (mknod("zero", 0o600), Ok(0)),
            (mknod("zero", 0o600), Err(E::EEXIST)),
            (mknod("new/", Mode::S_IFREG), Err(E::ENOENT)),
            (mknod("p", Mode::S_IFIFO | 0o644), Ok(0)),
            (mknod("s", Mode::S_IFSOCK | 0o644), Ok(0)),
            (
                Op::Mknod { path: path("c"), mode: Mode(Mode::S_IFCHR | 0o644), dev: (240, 7) },
                Ok(0),
            ),
        ];
        check(&mut m, &table);
        let kinds = ["zero", "p", "s", "c"].map(|name| attr(&m, name).kind);
        assert_eq!(kinds, [Kind::File, Kind::Fifo, Kind::Socket, Kind::Char]);
        assert_eq!(attr(&m, "c").rdev, (240, 7));
    }

    #[test]
    fn only_root_makes_devices_but_everybody_whiteouts() {
        let mut m = model();
        given(&mut m, &[mkdir("d", 0o555), become_user(ALICE)]);
        let device = |name: &str| Op::Mknod {
            path: path(name),
            mode: Mode(Mode::S_IFBLK | 0o644),
            dev: (240, 7),
        };
        let table = [
            (device("b"), Err(E::EPERM)),
            (device("d/b"), Err(E::EACCES)),
            (device("d"), Err(E::EEXIST)),
            (mknod("white", Mode::S_IFCHR), Ok(0)),
            (mknod("black", Mode::S_IFBLK), Err(E::EPERM)),
        ];
        check(&mut m, &table);
        let mut overlay = model_with(Quirks { whiteouts: false, ..Quirks::default() });
        check(&mut overlay, &[(mknod("white", Mode::S_IFCHR), Err(E::EPERM))]);
    }
}
