//! Errors of mounting and unmounting.

use std::io;
use std::path::PathBuf;

use fathom_model::ConfigError;

/// The reason why a file system was not mounted, or not unmounted.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// The configuration cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The mount point does not exist.
    #[error("the mount point {point} does not exist: make the directory first")]
    NotFound {
        /// The mount point that was asked for.
        point: PathBuf,
    },
    /// The mount point is not a directory.
    #[error("the mount point {point} is not a directory")]
    NotADirectory {
        /// The mount point that was asked for.
        point: PathBuf,
    },
    /// The directory has something in it, which the mount would hide.
    #[error(
        "the mount point {point} is not empty: give an empty directory, or `-o nonempty` to cover what is in it"
    )]
    NotEmpty {
        /// The mount point that was asked for.
        point: PathBuf,
    },
    /// A FUSE file system is mounted there already.
    #[error(
        "the mount point {point} is busy: a FUSE file system is mounted there already; unmount it with `fusermount3 -u {point}`"
    )]
    Busy {
        /// The mount point that was asked for.
        point: PathBuf,
    },
    /// A dead FUSE server left its mount behind.
    #[error(
        "the mount point {point} still has the mount of a dead server: remove it with `fusermount3 -u -z {point}`"
    )]
    Stale {
        /// The mount point that was asked for.
        point: PathBuf,
    },
    /// The mount point cannot be looked at.
    #[error("cannot use the mount point {point}: {source}")]
    Point {
        /// The mount point that was asked for.
        point: PathBuf,
        /// The reason from the operating system.
        source: io::Error,
    },
    /// The kernel has no FUSE.
    #[error(
        "there is no /dev/fuse: the kernel has no FUSE support or its module is not loaded (`modprobe fuse`)"
    )]
    NoDevice,
    /// The device is closed to this user.
    #[error(
        "this user may not open /dev/fuse: its mode should be 0666 (`chmod 666 /dev/fuse` as root), or mount as root"
    )]
    DeviceDenied,
    /// An ordinary user needs fusermount3.
    #[error("fusermount3 is missing, without which only root can mount: install the package fuse3")]
    NoHelper,
    /// fusermount3 refused.
    #[error("fusermount3 failed: {message}")]
    Helper {
        /// Its message.
        message: String,
    },
    /// The file that keeps the file system cannot be used.
    #[error("the file system cannot be kept in a file: {0}")]
    State(String),
    /// A system call failed.
    #[error("{call}: {source}")]
    Os {
        /// The call.
        call: &'static str,
        /// The reason from the operating system.
        source: io::Error,
    },
}

impl MountError {
    /// Makes an error, for `map_err` after reading or writing the file that keeps the file system.
    pub(super) fn state(error: impl std::fmt::Display) -> MountError {
        MountError::State(error.to_string())
    }

    /// Makes an error, for `map_err` after `call`.
    pub(super) fn os<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> MountError {
        move |error| MountError::Os { call, source: error.into() }
    }
}
