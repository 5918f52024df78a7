//! truncate(2), ftruncate(2): fs/open.c.

use fathom_core::{Errno, Kind, Target};

use super::Model;
use super::permission::Mask;
use super::resolve::Follow;
use crate::volume::{Ino, SetTime};

impl Model {
    pub(super) fn truncate(&mut self, target: &Target, len: i64) -> Result<u64, Errno> {
        let len = u64::try_from(len).map_err(|_| Errno::EINVAL)?;
        let ino = match target {
            Target::Path(path) | Target::Link(path) => {
                self.may_truncate_path(self.resolve(path, Follow::Yes)?)?
            }
            Target::Slot(slot) => {
                let file = self.file(*slot)?;
                if file.kind != Kind::File || !file.writable() {
                    return Err(Errno::EINVAL);
                }
                file.ino
            }
        };
        // inode_newsize_ok comes before the mode changes.
        if len > self.quirks().file_bytes_max {
            return Err(Errno::EFBIG);
        }
        self.truncate_without_privileges(ino, len)?;
        if matches!(target, Target::Slot(_)) {
            // Even if the size stays: do_ftruncate asks for ATTR_MTIME, do_sys_truncate does not.
            self.volume.set_times(ino, None, Some(SetTime::Now))?;
        }
        Ok(0)
    }

    /// Changes the size; setuid and setgid go, unless they stay here.
    pub(super) fn truncate_without_privileges(&mut self, ino: Ino, len: u64) -> Result<(), Errno> {
        if !self.quirks().truncation_keeps_privileges {
            self.drop_privileges(ino)?;
        }
        self.volume.truncate(ino, len)
    }

    /// `vfs_truncate`
    fn may_truncate_path(&self, ino: Ino) -> Result<Ino, Errno> {
        match self.volume.attr(ino)?.kind {
            Kind::Dir => return Err(Errno::EISDIR),
            Kind::File => {}
            _ => return Err(Errno::EINVAL),
        }
        self.permission(ino, Mask::WRITE)?;
        Ok(ino)
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::OpenFlags;
    use fathom_core::{Mode, Op};

    use super::super::testing::*;
    use super::*;

    fn truncate(target: Target, len: i64) -> Op {
        Op::Truncate { target, len }
    }

    #[test]
    fn errors() {
        let mut m = model();
        given(
            &mut m,
            &[
                file("f", 0o644),
                mkdir("d", 0o755),
                symlink("f", "l"),
                mknod("p", Mode::S_IFIFO | 0o666),
            ],
        );
        given(
            &mut m,
            &[
                open(0, "f", OpenFlags::empty()),
                open(1, "f", OpenFlags::O_WRONLY),
                open(2, "f", OpenFlags::O_PATH),
            ],
        );
        given(&mut m, &[open(3, "p", OpenFlags::O_RDWR), open(4, "d", OpenFlags::empty())]);
        let table = [
            (truncate(at("nope"), -1), Err(E::EINVAL)),
            (truncate(at("nope"), 0), Err(E::ENOENT)),
            (truncate(at("d"), 0), Err(E::EISDIR)),
            (truncate(at("p"), 0), Err(E::EINVAL)),
            (truncate(at("f/"), 0), Err(E::ENOTDIR)),
            (truncate(at("l"), 5), Ok(0)),
            (truncate(at_link("l"), 5), Ok(0)),
            (truncate(Target::Slot(9), -1), Err(E::EINVAL)),
            (truncate(Target::Slot(9), 0), Err(E::EBADF)),
            (truncate(Target::Slot(0), 0), Err(E::EINVAL)),
            (truncate(Target::Slot(1), 0), Ok(0)),
            (truncate(Target::Slot(2), 0), Err(E::EBADF)),
            (truncate(Target::Slot(3), 0), Err(E::EINVAL)),
            (truncate(Target::Slot(4), 0), Err(E::EINVAL)),
        ];
        check(&mut m, &table);
        given(&mut m, &[become_user(ALICE)]);
        check(
            &mut m,
            &[
                (truncate(at("f"), 0), Err(E::EACCES)),
                (truncate(at("d"), 0), Err(E::EISDIR)),
                (truncate(Target::Slot(1), 7), Ok(0)),
            ],
        );
        assert_eq!(attr(&m, "f").size, 7);
    }

    #[test]
    fn privileges_go_with_the_data() {
        let mut m = model();
        given(
            &mut m,
            &[file("f", 0o666), chown("f", ALICE, ALICE), chmod("f", 0o4666), become_user(BOB)],
        );
        given(&mut m, &[truncate(at("f"), 0)]);
        assert_eq!(mode_of(&m, "f"), 0o666);
    }
}
