//! The process itself: umask(2), its identity (setresuid(2), setgroups(2)), and remounting.

use fathom_core::{Mode, Slot};

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

    /// Another process takes over: no open files, the first mask and identity.
    pub(crate) fn renew_process(&mut self) {
        let open: Vec<usize> = self.files.iter().map(|(slot, _)| slot).collect();
        for slot in open {
            self.close(slot as Slot).expect("the slot is open");
        }
        let config = self.volume.config();
        self.caller = Caller::first(config);
        self.umask = Mode(config.umask.0 & 0o777);
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Op;
    use fathom_core::flags::OpenFlags;

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
}
