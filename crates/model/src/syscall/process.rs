//! The process itself: umask(2), its identity (setresuid(2), setgroups(2)), and remounting.

use fathom_core::Mode;

use super::Model;
use super::file::Files;
use crate::volume::Caller;

impl Model {
    /// Returns the old mask.
    pub(super) fn set_umask(&mut self, mask: Mode) -> u64 {
        let old = std::mem::replace(&mut self.umask, Mode(mask.0 & 0o777));
        u64::from(old.0)
    }

    /// Open files stay open.
    pub(super) fn identity(&mut self, uid: u32, gid: u32, groups: &[u32]) -> u64 {
        self.caller = Caller { uid, gid, groups: groups.into() };
        0
    }

    /// Open files are closed.
    pub(super) fn remount(&mut self) -> u64 {
        self.files = Files::default();
        self.volume.remount();
        0
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::OpenFlags;
    use fathom_core::{Checkpoint, Op};

    use super::super::testing::*;
    use super::*;

    #[test]
    fn umask_returns_the_old_one() {
        let mut m = model();
        let umask = |mask| Op::Umask { mask: Mode(mask) };
        check(&mut m, &[(umask(0o7027), Ok(0)), (umask(0), Ok(0o027))]);
    }

    #[test]
    fn remounting_closes_everything() {
        let mut m = model();
        let free = m.volume().statfs();
        given(
            &mut m,
            &[
                open(0, "f", OpenFlags::O_CREAT | OpenFlags::O_RDWR),
                write(0, 1, 9),
                unlink("f"),
                Op::Remount,
            ],
        );
        check(&mut m, &[(close(0), Err(E::EBADF))]);
        assert_eq!(m.volume().statfs(), free);
    }

    #[test]
    fn a_checkpoint_brings_everything_back() {
        let mut m = model();
        given(&mut m, &[open(0, "f", OpenFlags::O_CREAT | OpenFlags::O_RDWR)]);
        let (token, digest) = (m.save().unwrap(), m.state_digest());
        given(&mut m, &[write(0, 1, 9), Op::Umask { mask: Mode(7) }, become_user(BOB), close(0)]);
        m.restore(&token).unwrap();
        assert_eq!(m.state_digest(), digest);
        check(&mut m, &[(write(0, 1, 9), Ok(9))]);
    }
}
