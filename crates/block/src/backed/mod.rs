//! A library file system on a device in this process.
//!
//! [`BlockBacked`] is a file system as a recipe: it formats images and mounts devices. [`Mounted`] is
//! one mount: it executes operations, shows its tree, and gives the device back with everything that
//! happened to it. The power can then be cut anywhere in that log, as often as one likes.
//!
//! What a file system does wrong is an [`Outcome`], a [`Tree`] with broken entries, or a refused
//! mount: data for the judge. A panic of the subject is caught by whoever drives it:
//! [`crate::in_process`], which is the only way to the seams of [`crate::disks`].

mod guarantee;

use fathom_core::{Errno, HarnessFault, Op, Outcome, Tree};

use crate::geometry::Geometry;
use crate::image::Image;
use crate::recorder::Recorder;

pub use guarantee::{
    Claim, Data, Durable, DurableBy, Guarantee, GuaranteeError, Judging, Makes, Order, promised,
};

/// A mount that was refused.
#[derive(Debug)]
pub struct MountFailure {
    /// The error.
    pub errno: Errno,
    /// The device, with what the attempt wrote.
    pub device: Recorder,
}

/// A file system that can be formatted and mounted on a device in memory.
pub trait BlockBacked: Send + Sync {
    /// How it is named on the command line.
    fn name(&self) -> &str;

    /// What exactly is tested: crate or library with its version.
    fn version(&self) -> &str;

    /// The shape of its device.
    fn geometry(&self) -> Geometry;

    /// What it promises.
    fn guarantee(&self) -> &Guarantee;

    /// An empty file system.
    ///
    /// # Errors
    /// If the file system cannot be made on this geometry: the text says why and what would work.
    fn format(&self) -> Result<Image, HarnessFault>;

    /// Mounts the file system that is on the device, with whatever recovery a mount includes. The log
    /// of the device goes on: what the mount writes is part of it.
    ///
    /// # Errors
    /// If the file system refuses: a fact about the image.
    fn mount(&self, device: Recorder) -> Result<Box<dyn Mounted>, Box<MountFailure>>;

    /// How many files and directories fit, where that is decided when the file system is made.
    fn files_max(&self) -> Option<u64> {
        None
    }

    /// Whether there is an independent checker: only then [`BlockBacked::fsck`] is asked.
    fn has_checker(&self) -> bool {
        false
    }

    /// The opinion of an independent checker on an unmounted image (`e2fsck -fn`): what it complains
    /// of, `None` if it is content or there is no such checker here.
    ///
    /// # Errors
    /// If the checker could not be asked.
    fn fsck(&self, _image: &Image) -> Result<Option<String>, HarnessFault> {
        Ok(None)
    }
}

/// A mounted file system.
///
/// Operations that every library file system has: `open` (with `O_CREAT`, `O_EXCL`, `O_TRUNC`,
/// `O_APPEND` and the access modes), `close`, `pread`, `pwrite`, `truncate` of an open file, `mkdir`,
/// `rmdir`, `unlink`, `rename`, `fsync`, `sync`. What a file system lacks answers `EOPNOTSUPP`.
pub trait Mounted {
    /// Executes one operation. [`Op::Remount`] is not for here: unmount and mount.
    fn apply(&mut self, op: &Op) -> Outcome;

    /// Does the part of recovery that the file system postpones to its first change, if there is a
    /// call for that. What is visible must not change.
    ///
    /// # Errors
    /// If the file system says it cannot.
    fn recover(&mut self) -> Result<(), Errno> {
        Ok(())
    }

    /// Walks everything that is visible and reads every file.
    fn observe(&mut self) -> Tree;

    /// How many events the device has logged.
    fn position(&self) -> usize;

    /// Shows the device while the file system is on it, to whoever wants to know what has happened so
    /// far. A file system that cannot show it shows nothing.
    fn look_at_device(&self, _look: &mut dyn FnMut(&Recorder)) {}

    /// Closes all files and unmounts.
    fn unmount(self: Box<Self>) -> (Outcome, Recorder);

    /// Gives up the mount without a word to the file system. Events that are logged while it is torn
    /// down do not count: the caller knows the position at which the power failed.
    fn power_off(self: Box<Self>) -> Recorder;
}
