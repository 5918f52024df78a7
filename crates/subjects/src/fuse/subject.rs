//! [`ReffsSubject`]: executes operations on a RefFS of its own, by real system calls.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use fathom_core::{Capability, HarnessFault, RestoreMethod, Saved};
use fathom_model::Config;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use tempfile::TempDir;

use super::mount::Mount;
use super::options::Options;
use super::snapshot::Snapshots;
use crate::host::{Backend, HostSubject};
use crate::sys::View;

/// Threads of a server whose calls are not one step.
const RACE_THREADS: usize = 4;

/// The key of the state in which the subject started.
const START: u64 = 0;

/// The reference file system behind the kernel's FUSE. As root it is mounted where nobody sees it;
/// as an ordinary user on a temporary directory.
pub type ReffsSubject = HostSubject<ReffsBackend>;

/// A mounted RefFS with its saved states.
pub struct ReffsBackend {
    /// The mounted file system; none only while it is being remounted, or after that failed.
    mounted: Option<MountedReffs>,
    key_next: u64,
    name: String,
    _point: Option<TempDir>,
}

/// The mount, and the client that saves and restores its states.
struct MountedReffs {
    snapshots: Snapshots,
    mount: Mount,
}

impl MountedReffs {
    fn new(mount: Mount) -> Result<MountedReffs, HarnessFault> {
        let root = mount.open_root().map_err(fault("mounting"))?;
        Ok(MountedReffs { snapshots: Snapshots::from(root), mount })
    }
}

/// Keeps this thread, and the server's that it starts, on one processor. They always wait for each
/// other, and waking the other processor takes longer than serving the request: `fathom check reffs
/// --seed 1` made 93 operations per second on two virtual processors and 469 on one of them. Where
/// it is not allowed everything works, slower.
pub(crate) fn stay_on_one_processor() {
    let mut here = CpuSet::new();
    here.set(sched_getcpu());
    let _ = sched_setaffinity(None, &here);
}

fn fault<E: std::error::Error>(context: &str) -> impl FnOnce(E) -> HarnessFault {
    move |error| HarnessFault::new(format!("{context} the reference file system"), error)
}

impl ReffsSubject {
    /// Mounts a new file system.
    ///
    /// # Errors
    /// If it cannot be mounted or the thread cannot be taken over.
    pub fn new(config: Config, view: View) -> Result<ReffsSubject, HarnessFault> {
        stay_on_one_processor();
        let name = match (config.mutant, config.race) {
            (Some(mutant), _) => format!("reffs:{}", mutant.name()),
            (None, Some(race)) => format!("reffs:{}", race.name()),
            (None, None) => "reffs".to_owned(),
        };
        let mut options = Options::default();
        if config.race.is_some() {
            // A call in halves lets nobody in where nobody else answers.
            options.threads = RACE_THREADS;
        }
        let (mount, point) = if rustix::process::geteuid().is_root() {
            (Mount::detached(config, options), None)
        } else {
            let point = tempfile::tempdir()
                .map_err(|error| HarnessFault::new("making a mount point", error))?;
            (Mount::start(point.path(), config, options), Some(point))
        };
        let mounted = MountedReffs::new(mount.map_err(fault("mounting"))?)?;
        let root = mounted.mount.open_root().map_err(fault("entering"))?;
        mounted.snapshots.save(START).map_err(fault("saving"))?;
        let (mounted, key_next) = (Some(mounted), START + 1);
        let backend = ReffsBackend { mounted, key_next, name, _point: point };
        HostSubject::with_root(backend, root, view)
    }

    /// The mount, to look at the volume behind it.
    ///
    /// # Errors
    /// If the mount is gone.
    pub fn mount(&self) -> Result<&Mount, HarnessFault> {
        Ok(&self.backend.mounted()?.mount)
    }
}

impl ReffsBackend {
    fn mounted(&self) -> Result<&MountedReffs, HarnessFault> {
        self.mounted.as_ref().ok_or_else(gone)
    }
}

fn gone() -> HarnessFault {
    HarnessFault::new("using the reference file system", "remounting it has failed")
}

impl Backend for ReffsBackend {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        let root = rustix::process::geteuid().is_root();
        root.then_some(Capability::Devices).into_iter().collect()
    }

    fn reset(&mut self) -> Result<OwnedFd, HarnessFault> {
        self.restore(Saved(START))?;
        self.mounted()?.mount.open_root().map_err(fault("entering"))
    }

    fn why_no_remount(&self) -> Option<&'static str> {
        None
    }

    fn remount(&mut self) -> Result<OwnedFd, HarnessFault> {
        let MountedReffs { snapshots, mount } = self.mounted.take().ok_or_else(gone)?;
        drop(snapshots);
        let mounted = MountedReffs::new(mount.remount().map_err(fault("remounting"))?)?;
        let root = mounted.mount.open_root().map_err(fault("entering"))?;
        self.mounted = Some(mounted);
        Ok(root)
    }

    fn restore_methods(&self) -> Vec<RestoreMethod> {
        vec![RestoreMethod::Ioctl]
    }

    fn save_mounted(&mut self) -> Result<Saved, HarnessFault> {
        let key = self.key_next;
        self.mounted()?.snapshots.save(key).map_err(fault("saving"))?;
        self.key_next += 1;
        Ok(Saved(key))
    }

    fn root_stays(&self) -> bool {
        true
    }

    /// Every state has the same root: opening and entering it again would cost twice as much as going
    /// back.
    fn restore(&mut self, saved: Saved) -> Result<Option<OwnedFd>, HarnessFault> {
        self.mounted()?.snapshots.restore(saved.0, false).map_err(fault("restoring"))?;
        Ok(None)
    }

    fn forget(&mut self, saved: Saved) {
        if let Ok(mounted) = self.mounted() {
            // If the mount is gone, so is what was saved in it.
            let _ = mounted.snapshots.drop(saved.0);
        }
    }
}
