//! What can go wrong while a kernel is built: each says what to do next.

use std::io;
use std::path::PathBuf;

/// A kernel could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Programs are missing.
    #[error("building a kernel needs {programs}: apt-get install {packages}")]
    Tools {
        /// What is not there.
        programs: String,
        /// The Debian packages that bring it.
        packages: String,
    },
    /// Debian has no such sources.
    #[error(
        "apt knows no package linux-source-{version}{}: `apt-get update` as root, or give a tree with \
         --source DIR",
        listed(.known)
    )]
    NoSource {
        /// What was asked for.
        version: String,
        /// The versions that apt knows.
        known: Vec<String>,
    },
    /// The directory holds no kernel.
    #[error("{dir} is no source tree of Linux: it has no {missing}", dir = .dir.display())]
    NotATree {
        /// What was given.
        dir: PathBuf,
        /// The file that every tree has.
        missing: &'static str,
    },
    /// The configuration has no such file system.
    #[error("there is no {part} to build: --only takes {known}")]
    NoPart {
        /// What was typed.
        part: String,
        /// What there is.
        known: String,
    },
    /// Somebody else builds the same.
    #[error("another process builds {name} at the moment: wait for it, or end it")]
    Locked {
        /// The kernel.
        name: String,
    },
    /// The disk is full, or nearly so.
    #[error("{dir} has {free_mib} MiB of space, a kernel needs {needed_mib}: make room, or set XDG_CACHE_HOME", dir = .dir.display())]
    Space {
        /// The cache.
        dir: PathBuf,
        /// What is free.
        free_mib: u64,
        /// What is needed.
        needed_mib: u64,
    },
    /// A program ended with an error.
    #[error("{step} failed:\n{errors}\n(everything it printed: {log})", log = .log.display())]
    Failed {
        /// What was done.
        step: String,
        /// The lines that matter.
        errors: String,
        /// The file with the rest.
        log: PathBuf,
    },
    /// The tree cannot be built outside of itself.
    #[error(
        "{dir} was built in place, and make refuses to build it elsewhere as well: \
         `make -C {dir} ARCH=um mrproper` first", dir = .dir.display()
    )]
    BuiltInPlace {
        /// The tree.
        dir: PathBuf,
    },
    /// The configuration lost an option without which nothing can be tested.
    #[error("{name} cannot be configured with {option}: is it a tree of Linux 5.2 or later?")]
    Configuration {
        /// The kernel.
        name: String,
        /// What is missing.
        option: String,
    },
    /// There is no place for a cache.
    #[error(
        "there is neither XDG_CACHE_HOME nor HOME: set one of them, so that a built kernel has a place"
    )]
    NoHome,
    /// No such kernel was built.
    #[error("no kernel {name} was built: `fathom guest list` shows what there is")]
    NotBuilt {
        /// What was typed.
        name: String,
    },
    /// A file.
    #[error("{what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// What was built is no kernel for us.
    #[error(transparent)]
    Kernel(#[from] crate::GuestError),
}

fn listed(versions: &[String]) -> String {
    match versions {
        [] => String::new(),
        versions => format!(" (it knows {})", versions.join(", ")),
    }
}

impl BuildError {
    /// Says what was tried when a call failed.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> BuildError {
        let what = what.into();
        move |error| BuildError::Io { what, error }
    }
}
