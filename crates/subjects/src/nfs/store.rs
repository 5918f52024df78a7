//! [`Store`]: the file system that is exported, in a directory that the server sees.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use fathom_core::HarnessFault;
use fathom_model::{Config, Mutant};
use rustix::fs::{CWD, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags, move_mount, unmount};

use super::locks;
use super::setup::Behind;
use crate::dir::scratch;
use crate::error::SubjectError;
use crate::fuse::Snapshots;
use crate::host::Backend;
use crate::kernel::KernelBackend;

/// The key of the empty reference among its saved states.
pub(super) const START: u64 = 1 << 32;

/// Lets the kernel believe what the reference told it, for longer than a guest lives: all changes go through
/// its server, and going back invalidates what it knows. Seven of ten requests would be for attributes that have
/// not changed. Not for mutants: the kernel counts links itself, for example, and would hide that they do not.
const REMEMBERED: [&str; 2] = ["-o", "remembered=1000000"];

/// The mode of the reference's root.
const ROOT_MODE: u32 = 0o755;

/// See the module documentation. Unmounted when dropped.
pub(super) struct Store {
    path: PathBuf,
    kind: Kind,
}

enum Kind {
    Reffs(Reffs),
    Kernel(Box<KernelBackend>),
    Memory,
}

impl Store {
    /// Makes an empty file system on the directory `path`.
    pub(super) fn make(behind: &Behind, path: &Path) -> Result<Store, SubjectError> {
        let kind = match behind {
            Behind::Reffs { config, mutant } => Kind::Reffs(Reffs::start(path, config, *mutant)?),
            Behind::Kernel(recipe) => {
                let (backend, root) = KernelBackend::new((**recipe).clone())?;
                move_mount(&root, "", CWD, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
                    .map_err(|errno| SubjectError::io("mount on", path)(errno.into()))?;
                Kind::Kernel(Box::new(backend))
            }
            Behind::Memory => Kind::Memory,
        };
        let store = Store { path: path.to_owned(), kind };
        if matches!(store.kind, Kind::Kernel(_)) {
            locks::make_file(store.root()?.as_fd()).map_err(cannot_make_locks)?;
        }
        Ok(store)
    }

    fn root(&self) -> Result<OwnedFd, SubjectError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.path, flags, Mode::empty());
        root.map_err(|errno| SubjectError::io("open", &self.path)(errno.into()))
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it can be asked to save and restore its state.
    pub(super) fn saves_itself(&self) -> bool {
        matches!(self.kind, Kind::Reffs(_))
    }

    /// Makes it empty, as it was first, while it is mounted and exported.
    pub(super) fn reset(&mut self) -> Result<(), HarnessFault> {
        match &self.kind {
            Kind::Reffs(_) => self.restore(START),
            Kind::Kernel(_) | Kind::Memory => Ok(make_empty(self.root()?.as_fd())?),
        }
    }

    fn reffs(&self) -> Result<&Reffs, HarnessFault> {
        match &self.kind {
            Kind::Reffs(reffs) => Ok(reffs),
            Kind::Kernel(_) | Kind::Memory => {
                Err(HarnessFault::new("going back", "only the reference saves its own state"))
            }
        }
    }

    pub(super) fn save(&mut self, key: u64) -> Result<(), HarnessFault> {
        let saved = self.reffs()?.snapshots.save(key);
        saved.map_err(|error| HarnessFault::new("saving", error))
    }

    pub(super) fn restore(&mut self, key: u64) -> Result<(), HarnessFault> {
        let restored = self.reffs()?.snapshots.restore(key, false);
        restored.map_err(|error| HarnessFault::new("restoring", error))
    }

    pub(super) fn forget(&mut self, key: u64) {
        if let Ok(reffs) = self.reffs() {
            // If it is gone, so is what was saved.
            let _ = reffs.snapshots.drop(key);
        }
    }

    pub(super) fn complaints(&mut self) -> Result<Vec<String>, HarnessFault> {
        match &mut self.kind {
            Kind::Reffs(_) | Kind::Memory => Ok(Vec::new()),
            Kind::Kernel(kernel) => kernel.complaints(),
        }
    }

    /// Whether the process that serves it has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        match &mut self.kind {
            Kind::Reffs(reffs) => !matches!(reffs.process.try_wait(), Ok(None)),
            Kind::Kernel(_) | Kind::Memory => false,
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // In use or not: it leaves the directory.
        let _ = unmount(&self.path, UnmountFlags::DETACH);
    }
}

/// The reference, served by `fathom mount` in a process of its own: a page fault of this one may wait for
/// the server with the lock of its memory held, which a server in the same process may need.
struct Reffs {
    snapshots: Snapshots,
    process: Child,
}

impl Reffs {
    fn start(path: &Path, config: &Config, mutant: Option<Mutant>) -> Result<Reffs, SubjectError> {
        let program = std::env::current_exe().map_err(SubjectError::io("find", "this program"))?;
        let mut command = Command::new(program);
        command
            .args(["mount", "--json", "--capacity", &config.blocks.to_string()])
            .args(["--inodes", &config.inodes.to_string()])
            .args(["--block-bytes", &config.block_bytes.to_string()])
            .args(mutant.iter().flat_map(|mutant| ["--mutant", mutant.name()]))
            .args(mutant.is_none().then_some(REMEMBERED).into_iter().flatten())
            .arg("--")
            .arg(path)
            .process_group(0) // an interrupt at the terminal is not for it
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command
            .spawn()
            .map_err(SubjectError::io("start", "the reference behind the server"))?;
        let mut line = String::new();
        if let Some(output) = process.stdout.take() {
            // Without a line there is a message.
            let _ = BufReader::new(output).read_line(&mut line);
        }
        if !line.contains("\"mounted\"") {
            let mut message = String::new();
            if let Some(mut errors) = process.stderr.take() {
                let _ = errors.read_to_string(&mut message);
            }
            let _ = process.wait();
            let message = format!("the reference cannot be mounted: {}", message.trim());
            return Err(SubjectError::Nfs(message));
        }
        let snapshots = Snapshots::from(OwnedFd::from(
            File::open(path).map_err(SubjectError::io("open", path))?,
        ));
        let root = File::open(path).map_err(SubjectError::io("open", path))?;
        locks::make_file(root.as_fd()).map_err(cannot_make_locks)?;
        let failed = |error| HarnessFault::new("saving the empty reference", error);
        snapshots.save(START).map_err(failed)?;
        Ok(Reffs { snapshots, process })
    }
}

impl Drop for Reffs {
    fn drop(&mut self) {
        // Nobody uses it any more; what it has is in memory.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Removes everything from a file system, and gives its root what it had first.
pub(super) fn make_empty(root: BorrowedFd<'_>) -> Result<(), SubjectError> {
    let failed = |errno: Errno| SubjectError::io("empty", "the export")(errno.into());
    let renew = || -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(root, ".", flags, Mode::empty())?;
        scratch::empty_dir(&dir)?;
        rustix::fs::fchown(&dir, Some(Uid::from_raw(0)), Some(Gid::from_raw(0)))?;
        rustix::fs::fchmod(&dir, Mode::from_raw_mode(ROOT_MODE))?;
        let mut names = vec![0; 65536];
        let count = match rustix::fs::flistxattr(&dir, names.as_mut_slice()) {
            Err(Errno::OPNOTSUPP) => 0,
            count => count?,
        };
        let names = names[..count].split(|byte| *byte == 0);
        let own = |name: &&[u8]| !name.is_empty() && !name.starts_with(b"system.");
        for name in names.filter(own) {
            rustix::fs::fremovexattr(&dir, name)?;
        }
        Ok(())
    };
    renew().map_err(failed)?;
    locks::make_file(root).map_err(cannot_make_locks)
}

fn cannot_make_locks(error: std::io::Error) -> SubjectError {
    SubjectError::io("make", locks::LOCKED_FILE)(error)
}
