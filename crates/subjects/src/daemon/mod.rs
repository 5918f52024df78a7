//! [`FuseSubject`]: any file system that a program serves through FUSE.
//!
//! The program is given a mount point and, if it asks for one, a directory for what it must keep
//! when it is stopped and started again; see [`DaemonSandbox`] for where they are. What it can do is found
//! out by trying: whether a file survives a restart decides whether it can be remounted and how it
//! is emptied, whether it knows the requests of `fathom snapshot` decides how it goes back.
//!
//! A call that does not return is ended by ending the program: then the kernel answers for it.

mod sandbox;

pub use sandbox::set_limits;

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use fathom_core::{Capability, HarnessFault, RestoreMethod, Saved, Unblock};
use fathom_model::{Feature, Quirks};
use rustix::fs::{AtFlags, Dir, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use crate::dir::{Environment, scratch};
use crate::error::SubjectError;
use crate::fuse::{Snapshots, stay_on_one_processor};
use crate::host::{Backend, HostSubject};
use crate::sys::View;
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

/// What a program serves through FUSE, as a subject; see the module documentation.
pub type FuseSubject = HostSubject<DaemonBackend>;

/// A FUSE daemon in its sandbox, and what was found out about it.
pub struct DaemonBackend {
    name: String,
    sandbox: DaemonSandbox,
    renewal: ResetMethod,
    capabilities: BTreeSet<Capability>,
    /// Whether what it serves is still there when it was stopped and started again.
    survives: bool,
    /// Whether it saves and restores itself.
    snapshots: bool,
    key_next: u64,
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
        let capabilities = scratch::capabilities_of(&root);
        let root_mode = Mode::from_raw_mode(stat_of(&root)?.st_mode);
        let snapshots = open(&root).is_ok_and(|dir| Snapshots::from(dir).list().is_ok());
        let backend = DaemonBackend {
            name: format!("fuse:{command}"),
            sandbox,
            renewal,
            capabilities,
            survives,
            snapshots,
            key_next: KEY_FIRST,
            root_mode,
        };
        Ok(HostSubject::with_root(backend, root, view)?)
    }

    /// What decides how the mount behaves, beyond the program itself.
    ///
    /// # Errors
    /// If the host does not tell.
    pub fn environment(&self) -> Result<Environment, SubjectError> {
        let root = self.backend.sandbox.root()?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
        let environment = Environment::of(&path)?;
        // Only RefFS speaks the requests of `fathom snapshot`.
        let profile = if self.backend.snapshots { "reffs" } else { environment.profile };
        Ok(Environment { profile, ..environment })
    }

    /// Finds out what the file system lacks; it must be empty, and is again.
    ///
    /// # Errors
    /// If nothing can be tried.
    pub(crate) fn probe(
        &self,
        quirks: &mut Quirks,
        required: &[Feature],
    ) -> Result<Vec<String>, SubjectError> {
        crate::probe::probe(&self.backend.sandbox.root()?, quirks, required)
            .map_err(SubjectError::io("try things in", "the new file system"))
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
    sandbox.refuse_unnoticed_death()?;
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

impl Backend for DaemonBackend {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        self.capabilities.clone()
    }

    fn admits_other_users(&self) -> bool {
        self.sandbox.is_open_to_others()
    }

    fn reset(&mut self) -> Result<OwnedFd, HarnessFault> {
        if self.renewal == ResetMethod::Remove
            && let Ok(root) = self.remove_everything()
        {
            return Ok(root);
        }
        self.sandbox.refuse_unnoticed_death()?;
        // One that hangs has been killed when this fails; its mount is dead and must go, too.
        let _ = self.sandbox.stop();
        self.sandbox.forget_state();
        let root = self.sandbox.start()?;
        match self.renewal {
            ResetMethod::Remove => self.renew_by_removing(&root)?,
            ResetMethod::Restart | ResetMethod::NewState => make_empty(&root)?,
        }
        Ok(root)
    }

    fn why_no_remount(&self) -> Option<&'static str> {
        let why = "it forgets everything when it is stopped: keep it in {state}";
        (!self.survives).then_some(why)
    }

    fn remount(&mut self) -> Result<OwnedFd, HarnessFault> {
        if self.sandbox.has_ended_by_itself() {
            return Err(HarnessFault::new("executing Remount", "the daemon has ended already"));
        }
        self.sandbox.stop()?;
        Ok(self.sandbox.start()?)
    }

    fn restore_methods(&self) -> Vec<RestoreMethod> {
        if self.snapshots { vec![RestoreMethod::Ioctl] } else { Vec::new() }
    }

    fn save_mounted(&mut self) -> Result<Saved, HarnessFault> {
        let key = self.key_next;
        self.snapshots()?.save(key).map_err(|error| HarnessFault::new("saving", error))?;
        self.key_next += 1;
        Ok(Saved(key))
    }

    fn restore(&mut self, saved: Saved) -> Result<Option<OwnedFd>, HarnessFault> {
        let restored = self.snapshots()?.restore(saved.0, false);
        restored.map_err(|error| HarnessFault::new("restoring", error))?;
        Ok(Some(self.sandbox.root()?))
    }

    fn forget(&mut self, saved: Saved) {
        if let Ok(snapshots) = self.snapshots() {
            // If the program has ended, so has what it saved.
            let _ = snapshots.drop(saved.0);
        }
    }

    fn has_ended(&mut self) -> bool {
        self.sandbox.has_ended_by_itself()
    }

    fn last_words(&mut self) -> Option<String> {
        self.sandbox.last_words()
    }

    fn unblock(&self) -> Option<Unblock> {
        Some(Box::new(self.sandbox.killer()))
    }
}

impl DaemonBackend {
    fn snapshots(&self) -> Result<Snapshots, HarnessFault> {
        Ok(Snapshots::from(open(&self.sandbox.root()?)?))
    }

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
