//! Serves a mount until somebody ends it.

#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fathom_model::Config;

use super::error::MountError;
use super::mount::Mount;
use super::options::Options;

/// The reason why serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A signal came: SIGINT, SIGTERM or SIGHUP; the file system has been unmounted.
    Signal,
    /// A signal came; the mount point is free, but somebody still uses the file system: an open file,
    /// or a copy of the mount in another namespace. That fails from now on.
    InUse,
    /// Somebody else has unmounted it.
    Unmounted,
}

/// Interval at which to look for a reason to end: not noticed by people, nor by the processor.
const POLL: Duration = Duration::from_millis(20);

/// Mounts a file system on `point` and serves it until it is unmounted or a signal asks to end. Calls
/// `ready` when it can be used. With `kept` it is the one in that file, if there is one, and is
/// written to it in the end, with its saved states, whatever ends it but SIGKILL; without, it is new and
/// then gone. The file is locked meanwhile: a mount that starts while an earlier one still writes waits
/// for it.
///
/// # Errors
/// See [`MountError`].
pub fn serve(
    point: &Path,
    config: Config,
    options: Options,
    kept: Option<&Path>,
    ready: impl FnOnce(),
) -> Result<Ended, MountError> {
    // First, so that no signal can come between mounting and catching.
    let _caught = SignalGuard::start();
    let kept = kept.map(StateFile::open).transpose()?;
    // The root of a new one belongs to who mounts it.
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let config = Config { uid, gid, ..config };
    let mut mount = match kept.as_ref().filter(|kept| kept.has_state) {
        Some(kept) => Mount::start_from(&kept.path, point, options)?,
        None => Mount::start(point, config, options)?,
    };
    ready();
    while !mount.is_over() && !ASKED_TO_END.load(Ordering::Relaxed) {
        thread::sleep(POLL);
    }
    let ended = match mount.is_over() {
        true => Ok(Ended::Unmounted),
        false => mount.end().map(|gone| if gone { Ended::Signal } else { Ended::InUse }),
    };
    // An unmount that failed is no reason to lose the state.
    if let Some(kept) = kept {
        kept.write(&mount, !matches!(ended, Ok(Ended::InUse) | Err(_)))?;
    }
    ended
}

/// The file that keeps a file system between two mounts.
struct StateFile {
    path: PathBuf,
    /// Whether there is a file system in it.
    has_state: bool,
    /// The lock on it, as long as it is open.
    _locked: File,
}

/// Time to wait for a mount that is writing the file. Gigabytes on a busy machine take more than ten seconds.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);

impl StateFile {
    /// Opens and locks the file, which is empty if it is new: that it cannot be written is better
    /// known now than in the end.
    fn open(path: &Path) -> Result<StateFile, MountError> {
        let wrong = |what: String| MountError::State(format!("{}: {what}", path.display()));
        let failed = |error: io::Error| wrong(error.to_string());
        let start = Instant::now();
        loop {
            let mut open = OpenOptions::new();
            let file = open.append(true).create(true).open(path).map_err(failed)?;
            match file.try_lock() {
                // Who had it before may have replaced the file meanwhile.
                Ok(()) if is_at(&file, path) => {
                    let has_state = file.metadata().map_err(failed)?.len() > 0;
                    let path = path.canonicalize().map_err(failed)?;
                    return Ok(StateFile { path, has_state, _locked: file });
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if start.elapsed() > LOCK_PATIENCE => {
                    return Err(wrong("another mount keeps its file system in it".to_owned()));
                }
                Err(TryLockError::WouldBlock) => thread::sleep(POLL),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
    }

    /// Writes the state; where that fails, into a file elsewhere that the error names. With
    /// `is_over` false the server answers nothing afterwards.
    fn write(self, mount: &Mount, is_over: bool) -> Result<(), MountError> {
        let written = match is_over {
            true => mount.keep(&self.path),
            false => mount.keep_and_stop(&self.path),
        };
        let Err(error) = written else { return Ok(()) };
        let rescue = std::env::temp_dir().join(format!("reffs-state.{}", std::process::id()));
        let rescued = match is_over {
            true => mount.keep(&rescue),
            false => Err(MountError::State("it was still in use".to_owned())),
        };
        Err(MountError::State(match rescued {
            Ok(()) => format!("{error}; it is in {} instead", rescue.display()),
            Err(_) => error.to_string(),
        }))
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let named = fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
    let opened = file.metadata().map(|meta| (meta.dev(), meta.ino()));
    matches!((named, opened), (Ok(named), Ok(opened)) if named == opened)
}

static ASKED_TO_END: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    ASKED_TO_END.store(true, Ordering::Relaxed);
}

/// The signals that ask a program to end.
const SIGNALS: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Catches [`SIGNALS`] while it lives; restores their former handlers afterwards.
struct SignalGuard {
    before: [libc::sigaction; 3],
}

impl SignalGuard {
    fn start() -> SignalGuard {
        ASKED_TO_END.store(false, Ordering::Relaxed);
        let handler: extern "C" fn(libc::c_int) = note;
        let before = SIGNALS.map(|signal| {
            let mut before = MaybeUninit::zeroed();
            // SAFETY: all zeros is a valid sigaction; the handler is async-signal-safe, because all
            // it does is an atomic store; the numbers are valid, so the call cannot fail and fills
            // in `before`.
            unsafe {
                let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
                action.sa_sigaction = handler as libc::sighandler_t;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &action, before.as_mut_ptr());
                before.assume_init()
            }
        });
        SignalGuard { before }
    }
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        for (signal, before) in SIGNALS.into_iter().zip(&self.before) {
            // SAFETY: puts back what `sigaction` has given us.
            unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
        }
    }
}
