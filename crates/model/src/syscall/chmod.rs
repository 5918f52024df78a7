//! chmod(2), fchmod(2), fchmodat2(2): fs/open.c `chmod_common`, fs/attr.c.

use fathom_core::{Errno, Kind, Mode, Target};

use super::Model;

impl Model {
    pub(super) fn chmod(&mut self, target: &Target, mode: Mode) -> Result<u64, Errno> {
        let ino = self.target(target)?;
        let attr = self.volume.attr(ino)?;
        if attr.kind == Kind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        if !self.owns(&attr) {
            return Err(Errno::EPERM);
        }
        let mut mode = mode.perm();
        // Nobody makes a file setgid to a group that is not his own: the bit is dropped, silently.
        if !self.in_group_or_privileged(attr.gid) {
            mode &= !Mode::S_ISGID;
        }
        self.volume.chmod(ino, Mode(mode))?;
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Op;
    use fathom_core::flags::OpenFlags;

    use super::super::testing::*;
    use super::*;

    #[test]
    fn who_may() {
        let mut m = model();
        given(
            &mut m,
            &[file("f", 0o644), symlink("f", "l"), chown("f", ALICE, BOB), become_user(BOB)],
        );
        let by_link = Op::Chmod { target: at_link("l"), mode: Mode(0o600) };
        check(
            &mut m,
            &[
                (chmod("f", 0o600), Err(E::EPERM)),
                (chmod("nope", 0), Err(E::ENOENT)),
                (by_link, Err(E::EOPNOTSUPP)),
            ],
        );
        given(&mut m, &[become_user(ALICE), chmod("l", 0o107777)]);
        // Alice is not in the file's group.
        assert_eq!(mode_of(&m, "f"), 0o5777);
        given(
            &mut m,
            &[Op::Identity { uid: ALICE, gid: ALICE, groups: vec![BOB] }, chmod("f", 0o2755)],
        );
        assert_eq!(mode_of(&m, "f"), 0o2755);
        given(&mut m, &[become_user(0), chmod("f", 0o6755)]);
        assert_eq!(mode_of(&m, "f"), 0o6755);
    }

    #[test]
    fn open_files() {
        let mut m = model();
        given(
            &mut m,
            &[file("f", 0o644), open(0, "f", OpenFlags::empty()), open(1, "f", OpenFlags::O_PATH)],
        );
        let fchmod = |slot| Op::Chmod { target: Target::Slot(slot), mode: Mode(0o111) };
        check(
            &mut m,
            &[(fchmod(0), Ok(0)), (fchmod(1), Err(E::EBADF)), (fchmod(2), Err(E::EBADF))],
        );
        assert_eq!(mode_of(&m, "f"), 0o111);
    }
}
