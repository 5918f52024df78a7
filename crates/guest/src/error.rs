//! What can go wrong with a guest that is not the guest's own doing.

use std::io;
use std::path::PathBuf;

/// A result of this crate.
pub type Result<T, E = GuestError> = std::result::Result<T, E>;

/// A fault of the harness or of what was typed; never a finding.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// Nothing is called so.
    #[error(
        "no kernel is called {name:?}: give `debian`, a version of `fathom guest list`, a source tree, \
         or the path of a User-Mode Linux kernel"
    )]
    UnknownKernel {
        /// What was typed.
        name: String,
    },
    /// The package is missing.
    #[error("Debian's kernel is not installed: apt-get install user-mode-linux")]
    NoDebianKernel,
    /// The file is no kernel that runs as a process.
    #[error(
        "{path} is no User-Mode Linux kernel ({reason}): build one with `fathom guest build`, or \
         `apt-get install user-mode-linux` and give `debian`"
    )]
    NotAKernel {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The kernel lacks something without which nothing works.
    #[error("the kernel {path} has no {what}: build one with {option}=y")]
    Lacks {
        /// The kernel.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
        /// The option of its configuration.
        option: &'static str,
    },
    /// A system call or a file.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What the kernel said.
        error: io::Error,
    },
}

impl GuestError {
    /// Says what was tried when a call failed.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> GuestError {
        let what = what.into();
        move |error| GuestError::Io { what, error }
    }
}
