//! Catches interruptions: they end the watching, not the program, and what was counted so far is
//! reported.

use std::sync::atomic::{AtomicI32, Ordering};

static CAUGHT: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    CAUGHT.store(signal, Ordering::SeqCst);
}

/// Notes SIGINT and SIGTERM while it lives, instead of ending the process.
#[derive(Debug)]
pub(crate) struct SignalGuard {
    before: [(libc::c_int, libc::sigaction); 2],
}

impl SignalGuard {
    /// Starts to note signals.
    pub(crate) fn new() -> SignalGuard {
        CAUGHT.store(0, Ordering::SeqCst);
        let before = [libc::SIGINT, libc::SIGTERM].map(|signal| {
            // SAFETY: plain structures for which all zeroes are valid; the handler only stores an
            // integer. Without SA_RESTART, so that waiting is interrupted.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                let mut before: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = note as *const () as usize;
                libc::sigaction(signal, &raw const action, &raw mut before);
                (signal, before)
            }
        });
        SignalGuard { before }
    }

    /// Takes the signal that came since the last call.
    pub(crate) fn take(&self) -> Option<i32> {
        match CAUGHT.swap(0, Ordering::SeqCst) {
            0 => None,
            signal => Some(signal),
        }
    }
}

impl Drop for SignalGuard {
    fn drop(&mut self) {
        for (signal, before) in &self.before {
            // SAFETY: restores what was there before.
            unsafe { libc::sigaction(*signal, before, std::ptr::null_mut()) };
        }
    }
}
