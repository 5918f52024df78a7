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
    /// A parameter would make another guest of it.
    #[error("{word} is a parameter that Fathom gives to every guest itself: leave it out")]
    Parameter {
        /// What was typed.
        word: String,
    },
    /// The tree has no kernel yet.
    #[error("no kernel was built from {tree}: `fathom guest build --source {tree}`", tree = .tree.display())]
    NotBuilt {
        /// The directory.
        tree: PathBuf,
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
    #[error("the kernel {path} has no {what}: build one with CONFIG_{option}=y")]
    Lacks {
        /// The kernel.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
        /// The option of its configuration.
        option: &'static str,
    },
    /// Nothing would confine the guest.
    #[error(
        "this host has no Landlock, so that root in a guest could change whatever you can: boot a kernel \
         with CONFIG_SECURITY_LANDLOCK (lsm=landlock,...), or set FATHOM_GUEST_UNCONFINED=1"
    )]
    Unconfined,
    /// There is no place for the guest's memory.
    #[error(
        "no place for the memory of a guest ({}): free some, or name a directory with \
         FATHOM_GUEST_MEMORY_DIR", tried.join("; ")
    )]
    NoRoom {
        /// Every place with the reason.
        tried: Vec<String>,
    },
    /// The kernel is too old for the processor.
    #[error(
        "this processor's registers take {bytes} bytes and {kernel} has room for 2696: use a kernel since \
         6.13, or one that `fathom guest build` made"
    )]
    Narrow {
        /// The kernel.
        kernel: PathBuf,
        /// What the processor needs.
        bytes: u32,
    },
    /// A path that cannot be written on a kernel's command line.
    #[error("{path} has a character that a kernel's command line cannot have: move it")]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// The process between us and the guest is gone.
    #[error("the keeper of the guest was killed")]
    KeeperLost,
    /// The keeper could not start the kernel.
    #[error("starting the guest: {error}")]
    Keeper {
        /// Why.
        error: String,
    },
    /// The guest's first process could not run the command.
    #[error("the guest started, but not the command: {reason}")]
    Refused {
        /// Why.
        reason: String,
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
