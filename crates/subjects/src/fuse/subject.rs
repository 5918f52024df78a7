//! [`ReffsSubject`]: executes operations on a RefFS of its own, by real system calls.

use std::collections::{BTreeMap, BTreeSet};

use fathom_core::{
    Capability, FsBytes, FsPath, HarnessFault, Op, Outcome, PathState, RestoreMethod, Saved,
    Subject, Testbed, Tree,
};
use fathom_model::Config;
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use tempfile::TempDir;

use super::mount::{Mount, Options};
use super::snapshot::Snapshots;
use crate::sys::{Executor, Guard, View};

/// The key of the state in which the subject started.
const START: u64 = 0;

/// The reference file system behind the kernel's FUSE. As root it is mounted where nobody sees it;
/// as an ordinary user on a temporary directory. Takes over its thread: see [`crate::sys`].
pub struct ReffsSubject {
    /// The executor, dropped first: it keeps the file system busy.
    executor: Executor,
    /// The mounted file system; none only while it is being remounted, or after that failed.
    mounted: Option<MountedReffs>,
    key_next: u64,
    /// The guard of each saved state: which paths need a check there.
    guards: BTreeMap<u64, Guard>,
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
        let name = match config.mutant {
            None => "reffs".to_owned(),
            Some(mutant) => format!("reffs:{}", mutant.name()),
        };
        let options = Options::default();
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
        let executor = Executor::new(root, view)?;
        Ok(ReffsSubject {
            executor,
            mounted: Some(mounted),
            key_next: START + 1,
            guards: BTreeMap::new(),
            name,
            _point: point,
        })
    }

    /// The mount, to look at the volume behind it.
    ///
    /// # Errors
    /// If the mount is gone.
    pub fn mount(&self) -> Result<&Mount, HarnessFault> {
        Ok(&self.mounted()?.mount)
    }

    fn mounted(&self) -> Result<&MountedReffs, HarnessFault> {
        self.mounted.as_ref().ok_or_else(|| {
            HarnessFault::new("using the reference file system", "remounting it has failed")
        })
    }

    fn remount(&mut self) -> Result<Outcome, HarnessFault> {
        self.mounted()?;
        self.executor.release();
        let Some(MountedReffs { snapshots, mount }) = self.mounted.take() else {
            unreachable!("checked")
        };
        drop(snapshots);
        let mounted = MountedReffs::new(mount.remount().map_err(fault("remounting"))?)?;
        self.executor.resume(mounted.mount.open_root().map_err(fault("entering"))?)?;
        self.mounted = Some(mounted);
        Ok(Outcome::ok(0))
    }
}

impl Subject for ReffsSubject {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        let mut capabilities = BTreeSet::from([Capability::Remount]);
        if rustix::process::geteuid().is_root() {
            capabilities.insert(Capability::Devices);
        }
        if self.executor.can_switch_identity() {
            capabilities.insert(Capability::Identity);
        }
        capabilities
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        match op {
            Op::Remount => self.remount(),
            op => self.executor.apply(op),
        }
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        self.executor.observe()
    }
}

impl Testbed for ReffsSubject {
    fn reset(&mut self) -> Result<(), HarnessFault> {
        self.executor.release();
        let mounted = self.mounted()?;
        mounted.snapshots.restore(START, false).map_err(fault("restoring"))?;
        let root = mounted.mount.open_root().map_err(fault("entering"))?;
        self.executor.restart(root)
    }

    fn observe_paths(&mut self, paths: &[FsPath]) -> Result<Vec<PathState>, HarnessFault> {
        self.executor.observe_paths(paths)
    }

    fn read_contents(
        &mut self,
        path: &FsPath,
        offset: u64,
        len: usize,
    ) -> Result<Option<Vec<u8>>, HarnessFault> {
        self.executor.read_contents(path, offset, len)
    }

    fn read_xattr(
        &mut self,
        path: &FsPath,
        name: &FsBytes,
    ) -> Result<Option<Vec<u8>>, HarnessFault> {
        self.executor.read_xattr(path, name)
    }

    fn restore_methods(&self) -> Vec<RestoreMethod> {
        vec![RestoreMethod::Ioctl]
    }

    fn save(&mut self, method: RestoreMethod) -> Result<Saved, HarnessFault> {
        if method != RestoreMethod::Ioctl {
            return Err(HarnessFault::new(
                "saving",
                format!("{} cannot save by {method}", self.name),
            ));
        }
        let key = self.key_next;
        self.mounted()?.snapshots.save(key).map_err(fault("saving"))?;
        self.guards.insert(key, self.executor.guard().clone());
        self.key_next += 1;
        Ok(Saved(key))
    }

    fn restore(&mut self, saved: Saved) -> Result<(), HarnessFault> {
        let guard =
            self.guards.get(&saved.0).cloned().ok_or_else(|| {
                HarnessFault::new("restoring", format!("{saved:?} was not saved"))
            })?;
        self.executor.close_all();
        self.mounted()?.snapshots.restore(saved.0, false).map_err(fault("restoring"))?;
        // Every state has the same root, so the one that is open stays: opening and entering it
        // again would cost twice as much as going back.
        self.executor.restart_here(guard)
    }

    fn forget(&mut self, saved: Saved) {
        if self.guards.remove(&saved.0).is_some()
            && let Ok(mounted) = self.mounted()
        {
            // If the mount is gone, so is what was saved in it.
            let _ = mounted.snapshots.drop(saved.0);
        }
    }
}
