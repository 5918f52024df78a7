//! [`FuseSubject`]: any file system that a program serves through FUSE.
//!
//! The program is given a mount point and, if it asks for one, a directory for what it must keep
//! when it is stopped and started again; see [`DaemonSandbox`] for where they are. What it can do is found
//! out by trying: whether a file survives a restart decides whether it can be remounted and how it
//! is emptied, whether it knows the requests of `fathom snapshot` decides how it goes back.
//!
//! A call that does not return is ended by ending the program: then the kernel answers for it.

mod sandbox;

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use fathom_core::{
    Capability, FsBytes, FsPath, HarnessFault, Op, Outcome, PathState, RestoreMethod, Saved,
    Subject, Testbed, Tree, Unblock,
};
use rustix::fs::{AtFlags, Dir, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use crate::dir::{Environment, scratch};
use crate::error::SubjectError;
use crate::fuse::{Snapshots, stay_on_one_processor};
use crate::sys::{Executor, Guard, View};
use sandbox::DaemonSandbox;

/// The file that is looked for after a restart.
const TRIAL: &str = "fathom-trial";

/// What formatting programs make, and the reference does not have.
const REMOVED_ENTRY: &str = "lost+found";

/// The first key for saved states: the owner of the daemon may use smaller ones.
const KEY_FIRST: u64 = 1 << 32;

/// How the file system becomes empty again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResetMethod {
    /// It forgets everything when it is started again.
    Restart,
    /// It does so if its storage is taken away.
    NewState,
    /// Its storage is elsewhere: everything is removed, file by file.
    Remove,
}

/// See the module documentation. Takes over its thread: see [`crate::sys`].
pub struct FuseSubject {
    name: String,
    /// Dropped first: it keeps the file system busy.
    executor: Executor,
    sandbox: DaemonSandbox,
    renewal: ResetMethod,
    capabilities: BTreeSet<Capability>,
    /// Whether it saves and restores itself.
    snapshots: bool,
    key_next: u64,
    /// What must be minded in each saved state.
    guards: BTreeMap<u64, Guard>,
    root_mode: Mode,
}

impl FuseSubject {
    /// Starts the program.
    ///
    /// # Errors
    /// If it does not mount, or what it serves is not empty.
    pub fn new(command: &str, view: View) -> Result<FuseSubject, SubjectError> {
        if command.trim().is_empty() {
            return Err(SubjectError::Daemon("there is none: write fuse:COMMAND".to_owned()));
        }
        if !rustix::process::geteuid().is_root() {
            return Err(SubjectError::NotRoot(format!("fuse:{command}")));
        }
        stay_on_one_processor();
        let mut sandbox = DaemonSandbox::new(command)?;
        let root = sandbox.start()?;
        let (root, survives) = try_restart(&mut sandbox, root)?;
        let renewal = match (survives, command.contains("{state}")) {
            (_, true) => ResetMethod::NewState,
            (false, false) => ResetMethod::Restart,
            (true, false) => ResetMethod::Remove,
        };
        let mut capabilities = scratch::capabilities_of(&root);
        if survives {
            capabilities.insert(Capability::Remount);
        }
        let root_mode = Mode::from_raw_mode(stat_of(&root)?.st_mode);
        let snapshots = open(&root).is_ok_and(|dir| Snapshots::from(dir).list().is_ok());
        let executor = Executor::new(root, view)?;
        if executor.can_switch_identity() && sandbox.is_open_to_others() {
            capabilities.insert(Capability::Identity);
        }
        Ok(FuseSubject {
            name: format!("fuse:{command}"),
            executor,
            sandbox,
            renewal,
            capabilities,
            snapshots,
            key_next: KEY_FIRST,
            guards: BTreeMap::new(),
            root_mode,
        })
    }

    /// What decides how the mount behaves, beyond the program itself.
    ///
    /// # Errors
    /// If the host does not tell.
    pub fn environment(&self) -> Result<Environment, SubjectError> {
        let root = self.sandbox.root()?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
        let environment = Environment::of(&path)?;
        // Only RefFS speaks the requests of `fathom snapshot`.
        let profile = if self.snapshots { "reffs" } else { environment.profile };
        Ok(Environment { profile, ..environment })
    }

    fn remount(&mut self) -> Result<Outcome, HarnessFault> {
        if !self.capabilities.contains(&Capability::Remount) {
            let message = "it forgets everything when it is stopped: keep it in {state}";
            return Err(HarnessFault::new("remount", message));
        }
        self.executor.release();
        self.sandbox.stop()?;
        let root = self.sandbox.start()?;
        self.executor.resume(root)?;
        Ok(Outcome::ok(0))
    }

    fn snapshots(&self) -> Result<Snapshots, HarnessFault> {
        Ok(Snapshots::from(open(&self.sandbox.root()?)?))
    }
}

/// Starts the program again with a file in its file system; returns whether the file is still there,
/// and the root of an empty file system.
fn try_restart(
    sandbox: &mut DaemonSandbox,
    root: OwnedFd,
) -> Result<(OwnedFd, bool), SubjectError> {
    make_empty(&root)?;
    let failed = |what| move |errno: Errno| SubjectError::io(what, TRIAL)(errno.into());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    drop(rustix::fs::openat(&root, TRIAL, flags, Mode::RUSR).map_err(failed("make"))?);
    drop(root);
    sandbox.stop()?;
    let root = sandbox.start()?;
    match rustix::fs::unlinkat(&root, TRIAL, AtFlags::empty()) {
        Ok(()) => Ok((root, true)),
        Err(Errno::NOENT) => {
            make_empty(&root)?;
            Ok((root, false))
        }
        Err(errno) => Err(failed("remove")(errno)),
    }
}

/// Removes what a formatting program made. Anything else belongs to somebody, and is not touched.
fn make_empty(root: &OwnedFd) -> Result<(), SubjectError> {
    // If it is not empty, it is listed below.
    let _ = rustix::fs::unlinkat(root, REMOVED_ENTRY, AtFlags::REMOVEDIR);
    let failed = |errno: Errno| SubjectError::io("list", "the new file system")(errno.into());
    let mut entries = Dir::read_from(open(root)?).map_err(failed)?;
    while let Some(entry) = entries.read() {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            let name = String::from_utf8_lossy(name);
            return Err(SubjectError::Daemon(format!(
                "what it serves is not empty (there is {name:?}), and would be changed: give it an \
                 empty directory or image, for example in {{state}}"
            )));
        }
    }
    Ok(())
}

/// For reading.
fn open(root: &OwnedFd) -> Result<OwnedFd, SubjectError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(root, ".", flags, Mode::empty())
        .map_err(|errno| SubjectError::io("open", "the root of the mount")(errno.into()))
}

fn stat_of(root: &OwnedFd) -> Result<rustix::fs::Stat, SubjectError> {
    rustix::fs::fstat(root)
        .map_err(|errno| SubjectError::io("look at", "the root of the mount")(errno.into()))
}

impl Subject for FuseSubject {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        self.capabilities.clone()
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

impl Testbed for FuseSubject {
    fn reset(&mut self) -> Result<(), HarnessFault> {
        self.executor.release();
        let removed = match self.renewal {
            ResetMethod::Remove => self.remove_everything().ok(),
            _ => None,
        };
        let root = match removed {
            Some(root) => root,
            None => {
                // One that hangs has been killed when this fails; its mount is dead and must go, too.
                let _ = self.sandbox.stop();
                self.sandbox.forget_state();
                self.guards.clear();
                let root = self.sandbox.start()?;
                match self.renewal {
                    ResetMethod::Remove => self.renew_by_removing(&root)?,
                    ResetMethod::Restart | ResetMethod::NewState => make_empty(&root)?,
                }
                root
            }
        };
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
        if self.snapshots { vec![RestoreMethod::Ioctl] } else { Vec::new() }
    }

    fn save(&mut self, method: RestoreMethod) -> Result<Saved, HarnessFault> {
        if method != RestoreMethod::Ioctl || !self.snapshots {
            return Err(HarnessFault::new(
                "saving",
                format!("{} cannot save by {method}", self.name),
            ));
        }
        let key = self.key_next;
        self.snapshots()?.save(key).map_err(|error| HarnessFault::new("saving", error))?;
        self.guards.insert(key, self.executor.guard().clone());
        self.key_next += 1;
        Ok(Saved(key))
    }

    fn restore(&mut self, saved: Saved) -> Result<(), HarnessFault> {
        let fault = |message: String| HarnessFault::new("restoring", message);
        let guard = self.guards.get(&saved.0).cloned();
        let guard = guard.ok_or_else(|| fault(format!("{saved:?} was not saved")))?;
        self.executor.close_all();
        let restored = self.snapshots()?.restore(saved.0, false);
        restored.map_err(|error| fault(error.to_string()))?;
        let root = self.sandbox.root()?;
        self.executor.restart_with(root, &guard)
    }

    fn forget(&mut self, saved: Saved) {
        if self.guards.remove(&saved.0).is_some()
            && let Ok(snapshots) = self.snapshots()
        {
            // If the program has ended, so has what it saved.
            let _ = snapshots.drop(saved.0);
        }
    }

    fn unblock(&self) -> Option<Unblock> {
        Some(Box::new(self.sandbox.killer()))
    }
}

impl FuseSubject {
    fn remove_everything(&self) -> Result<OwnedFd, SubjectError> {
        let root = self.sandbox.root()?;
        self.renew_by_removing(&root)?;
        Ok(root)
    }

    /// Leaves nothing of what was done, as far as it can be told from outside.
    fn renew_by_removing(&self, root: &OwnedFd) -> Result<(), SubjectError> {
        let failed = |errno: Errno| SubjectError::io("empty", "the mount")(errno.into());
        let renew = || -> Result<(), Errno> {
            let dir = rustix::fs::openat(
                root,
                ".",
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            )?;
            scratch::empty_dir(&dir)?;
            let (uid, gid) = (Uid::from_raw(0), Gid::from_raw(0));
            rustix::fs::fchown(&dir, Some(uid), Some(gid))?;
            rustix::fs::fchmod(&dir, self.root_mode)?;
            let mut names = vec![0; 65536];
            let count = match rustix::fs::flistxattr(&dir, names.as_mut_slice()) {
                Err(Errno::OPNOTSUPP) => 0,
                count => count?,
            };
            for name in names[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
                rustix::fs::fremovexattr(&dir, name)?;
            }
            Ok(())
        };
        renew().map_err(failed)
    }
}
