//! Why a subject cannot be set up.

use std::io;
use std::path::PathBuf;

use fathom_core::HarnessFault;

/// Why a subject cannot be set up. Each says what to do about it, where that is known.
#[derive(Debug, thiserror::Error)]
pub enum SubjectError {
    /// A path that must be a directory is not.
    #[error("{path}: not a directory", path = .0.display())]
    NotADirectory(PathBuf),
    /// A step with a path failed.
    #[error("cannot {what} {path}: {source}", path = path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Mounting needs privileges.
    #[error(
        "{0} needs root: mounting a file system is not allowed to this user; give --guest KERNEL to run it in a kernel of its own (docs/GUESTS.md); without root there are also dir:PATH, model, and reffs (through fusermount3)"
    )]
    NotRoot(String),
    /// A formatting program is not installed.
    #[error("{program} is not installed: it is in the Debian package {package}")]
    NoProgram {
        /// What is missing.
        program: String,
        /// Where to find it.
        package: String,
    },
    /// A formatting program failed.
    #[error("`{command}` failed on a device of {kib} KiB: {output}", kib = image_bytes >> 10)]
    Format {
        /// The program and its arguments.
        command: String,
        /// Size of the device.
        image_bytes: u64,
        /// What it said.
        output: String,
    },
    /// A program that should serve a file system does not.
    #[error("the program of fuse:COMMAND cannot be used: {0}")]
    Daemon(String),
    /// NFS cannot be set up.
    #[error("NFS cannot be set up: {0}")]
    Nfs(String),
    /// There is no formatting program.
    #[error("{0} is not formatted: there is no program to give options to")]
    NotFormatted(String),
    /// A recipe cannot be used.
    #[error("not a recipe of a file system: {0}")]
    Recipe(String),
    /// The kernel lacks something that came later.
    #[error("{name} needs Linux {needs} or newer, this is {running}")]
    KernelTooOld {
        /// What was asked for.
        name: String,
        /// The first kernel with it.
        needs: String,
        /// The kernel here.
        running: String,
    },
    /// A loop device could not be made.
    #[error("cannot make a loop device ({what}): {source}")]
    Loop {
        /// The step.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
    /// The kernel did not mount it.
    #[error("cannot mount {fs_type} ({what}): {source}{log}")]
    Mount {
        /// Type of the file system.
        fs_type: String,
        /// The step.
        what: String,
        /// Why not.
        source: io::Error,
        /// What the kernel said about it, if anything.
        log: String,
    },
    /// The harness failed.
    #[error(transparent)]
    Harness(#[from] HarnessFault),
}

impl SubjectError {
    pub(crate) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> SubjectError {
        let path = path.into();
        move |source| SubjectError::Io { what, path, source }
    }
}

impl From<SubjectError> for HarnessFault {
    fn from(error: SubjectError) -> HarnessFault {
        match error {
            SubjectError::Harness(fault) => fault,
            other => HarnessFault::new("setting up the subject", other),
        }
    }
}
