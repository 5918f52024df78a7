//! stat(2), lstat(2), fstat(2), statx(2): fs/stat.c.

use fathom_core::{Errno, Mode, Outcome, Payload, Stat, Target};

use super::Model;

impl Model {
    /// Needs no permission but the path's.
    pub(super) fn stat(&self, target: &Target) -> Result<Outcome, Errno> {
        let attr = self.volume.attr(self.target_or_path(target)?)?;
        let nlink = attr.nlink.saturating_add_signed(self.links_seen(attr.ino));
        let stat = Stat {
            mode: Mode(attr.kind.mode_bits() | attr.mode.perm()),
            nlink,
            uid: attr.uid,
            gid: attr.gid,
            size: attr.size,
            rdev: attr.rdev,
        };
        Ok(Outcome::with(Payload::Stat(Box::new(stat))))
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Op;
    use fathom_core::flags::OpenFlags;

    use super::super::testing::*;
    use super::*;

    #[test]
    fn what_is_shown() {
        let mut m = model();
        given(
            &mut m,
            &[open_mode(0, "f", OpenFlags::O_CREAT | OpenFlags::O_WRONLY, 0o4640), write(0, 1, 5)],
        );
        let stat = Stat { mode: Mode(0o104640), nlink: 1, uid: 0, gid: 0, size: 5, rdev: (0, 0) };
        let expected = Outcome::with(Payload::Stat(Box::new(stat.clone())));
        assert_eq!(m.execute(&Op::Stat { target: at("f") }), expected);
        given(&mut m, &[open(1, "f", OpenFlags::O_PATH), unlink("f")]);
        let orphan = Outcome::with(Payload::Stat(Box::new(Stat { nlink: 0, ..stat })));
        assert_eq!(m.execute(&Op::Stat { target: Target::Slot(0) }), orphan);
        assert_eq!(m.execute(&Op::Stat { target: Target::Slot(1) }), orphan);
        check(&mut m, &[(Op::Stat { target: Target::Slot(2) }, Err(E::EBADF))]);
    }

    #[test]
    fn links() {
        let mut m = model();
        given(&mut m, &[symlink("nope", "l")]);
        check(
            &mut m,
            &[
                (Op::Stat { target: at_link("l") }, Ok(0)),
                (Op::Stat { target: at("l") }, Err(E::ENOENT)),
            ],
        );
    }
}
