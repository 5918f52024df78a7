//! [`Process`]: what a caller has beside the volume. umask(2), its identity (setresuid(2),
//! setgroups(2)), and remounting.

use std::sync::Arc;

use fathom_core::Mode;

use super::Model;
use super::callers::Others;
use super::counts::Counting;
use super::file::Files;
use super::steps::{Leaving, Reached};
use crate::config::Config;
use crate::volume::{Identity, Ino, ROOT};

/// What belongs to one caller alone.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) files: Files,
    pub(super) identity: Identity,
    pub(super) umask: Mode,
    /// The working directory, pinned unless it is the root.
    pub(super) directory: Ino,
    /// Where a call that is done in steps has come to, pinned.
    pub(super) reached: Reached,
    /// The name that it is removing, if that is done in steps.
    pub(super) leaving: Option<Leaving>,
    /// The link counts that it is changing, if that is done in steps.
    pub(super) counting: Counting,
}

impl Process {
    /// A process that has done nothing yet.
    pub(super) fn first(config: &Config) -> Process {
        Process {
            files: Files::default(),
            identity: Identity::first(config),
            umask: Mode(config.umask.0 & 0o777),
            directory: ROOT,
            reached: Reached::Nothing,
            leaving: None,
            counting: Counting::default(),
        }
    }

    /// Lets go of everything that the file system would keep for it.
    pub(super) fn leave(&mut self) {
        self.files = Files::default();
        self.directory = ROOT;
        self.reached = Reached::Nothing;
        self.leaving = None;
        self.counting = Counting::default();
    }

    /// Whether the two have the same identity, mask and working directory, and no open files.
    pub(super) fn is(&self, other: &Process) -> bool {
        let closed = |process: &Process| process.files.iter().next().is_none();
        closed(self)
            && closed(other)
            && (&self.identity, self.umask, self.directory, self.reached, &self.leaving)
                == (&other.identity, other.umask, other.directory, other.reached, &other.leaving)
            && self.counting == other.counting
    }

    /// What it keeps on the volume: its open files, its working directory, and where a call has come to.
    pub(super) fn pinned(&self) -> impl Iterator<Item = Ino> {
        let directory = Some(self.directory).filter(|directory| *directory != ROOT);
        let files = self.files.iter().map(|(_, file)| file.ino);
        let leaving = self.leaving.as_ref().map(|leaving| leaving.ino);
        files.chain(directory).chain(self.reached.ino()).chain(leaving)
    }
}

impl Model {
    /// Returns the old mask.
    pub(super) fn set_umask(&mut self, mask: Mode) -> u64 {
        let old = std::mem::replace(&mut self.current_mut().umask, Mode(mask.0 & 0o777));
        u64::from(old.0)
    }

    /// Open files stay open.
    pub(super) fn identity(&mut self, uid: u32, gid: u32, groups: &[u32]) -> u64 {
        self.current_mut().identity = Identity { uid, gid, groups: groups.into() };
        0
    }

    /// The open files of every caller are closed, and everybody is in the root again.
    pub(super) fn remount(&mut self) -> u64 {
        self.current_mut().leave();
        self.others.for_each(Process::leave);
        self.volume.remount();
        0
    }

    /// Another process takes over, alone: no open files, the first mask, identity and directory.
    pub(crate) fn renew_process(&mut self) {
        let pinned: Vec<Ino> = self.processes().flat_map(Process::pinned).collect();
        self.current = Arc::new(Process::first(self.volume.config()));
        self.others = Others::default();
        pinned.into_iter().for_each(|ino| self.volume.unpin(ino));
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
