//! Serves a mount until somebody ends it.

#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use fathom_model::Config;

use super::error::MountError;
use super::mount::{Mount, Options};

/// The reason why serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// A signal came: SIGINT, SIGTERM or SIGHUP; the file system has been unmounted.
    Signal,
    /// Somebody else has unmounted it.
    Unmounted,
}

/// Interval at which to look for a reason to end: not noticed by people, nor by the processor.
const POLL: Duration = Duration::from_millis(20);

/// Mounts a file system on `point` and serves it until it is unmounted or a signal asks to end. Calls
/// `ready` when it can be used. With `kept` it is the one in that file, if there is one, and is
/// written to it in the end, with its saved states; without, it is new and then gone.
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
    let mut mount = match kept.filter(|file| file.exists()) {
        Some(file) => Mount::start_from(file, point, options)?,
        None => Mount::start(point, config, options)?,
    };
    ready();
    let mut ended = Ended::Unmounted;
    while !mount.is_over() {
        if ASKED_TO_END.load(Ordering::Relaxed) {
            mount.end()?;
            ended = Ended::Signal;
            break;
        }
        thread::sleep(POLL);
    }
    if let Some(file) = kept {
        mount.keep(file)?;
    }
    Ok(ended)
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
