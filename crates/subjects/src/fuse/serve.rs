//! Serving a mount until somebody ends it.

#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use fathom_model::Config;

use super::error::MountError;
use super::mount::{Mount, Options};

/// Why serving ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// SIGINT, SIGTERM or SIGHUP; the file system has been unmounted.
    Signal,
    /// Somebody else has unmounted it.
    Unmounted,
}

/// How often to look whether somebody else has unmounted.
const POLL: Duration = Duration::from_millis(100);

/// Mounts a new file system on `point` and serves it until it is unmounted or a signal asks to end.
/// Calls `ready` when it can be used. From then on the signals are blocked in this thread and those
/// it starts; call this from the main thread before any other is started.
///
/// # Errors
/// See [`MountError`].
pub fn serve(
    point: &Path,
    config: Config,
    options: Options,
    ready: impl FnOnce(),
) -> Result<Ended, MountError> {
    let signals = Signals::block();
    let mount = Mount::start(point, config, options)?;
    ready();
    loop {
        if signals.wait(POLL) {
            mount.unmount()?;
            return Ok(Ended::Signal);
        }
        if mount.is_over() {
            return Ok(Ended::Unmounted);
        }
    }
}

/// The signals that ask a program to end.
struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks them, so that they wait to be asked for.
    fn block() -> Signals {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set before anything reads it; the signal numbers are
        // valid, so none of these calls can fail.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            set.assume_init()
        };
        // SAFETY: the set is initialised, and a null pointer asks for no old mask.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut()) };
        Signals(set)
    }

    /// Whether one of them came within `timeout`.
    fn wait(&self, timeout: Duration) -> bool {
        let timeout = libc::timespec {
            tv_sec: timeout.as_secs() as libc::time_t,
            tv_nsec: timeout.subsec_nanos().into(),
        };
        // SAFETY: the set is initialised, and a null pointer asks for no details.
        unsafe { libc::sigtimedwait(&self.0, ptr::null_mut(), &timeout) > 0 }
    }
}
