//! What a campaign needs of a subject beyond executing operations: going back, and looking at it
//! from outside.

use std::fmt;

use crate::bytes::{FsBytes, FsPath};
use crate::digest::Digest;
use crate::schedule::Schedule;
use crate::subject::{HarnessFault, Subject};
use crate::trace::Step;
use crate::tree::{Difference, Entry, entry_differences};

/// How a subject goes back to an earlier state. What no subject offers is always possible: to start
/// again and repeat the operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RestoreMethod {
    /// The state is a value and is cloned.
    Clone,
    /// The file system saves and restores itself (`fathom snapshot` speaks the same requests).
    Ioctl,
    /// Saved while it is frozen (`FIFREEZE`), as the blocks that changed; restored by mounting
    /// the changed image.
    Freeze,
    /// Saved while it is unmounted, as the blocks that changed; restored in the same way.
    Remount,
}

impl RestoreMethod {
    /// Every method.
    pub const ALL: [RestoreMethod; 4] =
        [RestoreMethod::Clone, RestoreMethod::Ioctl, RestoreMethod::Freeze, RestoreMethod::Remount];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            RestoreMethod::Clone => "clone",
            RestoreMethod::Ioctl => "ioctl",
            RestoreMethod::Freeze => "freeze",
            RestoreMethod::Remount => "remount",
        }
    }
}

impl fmt::Display for RestoreMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Names a saved state of one subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Saved(pub u64);

/// What the checker of a file system (`fsck`) said of the unmounted disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckerReport {
    /// The command, as it can be typed.
    pub command: String,
    /// Whether it found nothing wrong.
    pub clean: bool,
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub output: String,
}

/// One path, looked at alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathState {
    /// Where.
    pub path: FsPath,
    /// What is there, without [`Entry::same_as`]; `None` if nothing is.
    pub entry: Option<Entry>,
    /// Of a directory: the names in it, sorted, without `.` and `..`.
    pub names: Option<Vec<FsBytes>>,
}

impl PathState {
    /// What differs from `self` (expected) in `found`, which is of the same path.
    pub fn differences(&self, found: &PathState) -> Vec<Difference> {
        if self == found {
            return Vec::new();
        }
        let mut out = Vec::new();
        match (&self.entry, &found.entry) {
            (Some(want), Some(have)) => entry_differences(&self.path, want, have, &mut out),
            (None, None) => {}
            (Some(_), None) => out.push(Difference::new(&self.path, "entry", "there", "missing")),
            (None, Some(_)) => out.push(Difference::new(&self.path, "entry", "missing", "there")),
        }
        let listed = |names: &Option<Vec<FsBytes>>| {
            let names = names.iter().flatten().map(ToString::to_string);
            names.collect::<Vec<_>>().join(" ")
        };
        if self.names != found.names {
            let (want, have) = (listed(&self.names), listed(&found.names));
            out.push(Difference::new(&self.path, "names", want, have));
        }
        out
    }
}

/// Ends a call that does not return (kills the daemon, aborts the connection); called from another
/// thread.
pub type Unblock = Box<dyn Fn() + Send>;

/// A subject on which a campaign can walk: it starts again, and may be able to go back, to be looked
/// at in part, and to be checked from outside. All but starting again is optional.
pub trait Testbed: Subject {
    /// Makes the file system empty, closes every slot, and gives back the first mask and identity.
    ///
    /// # Errors
    /// If the harness cannot.
    fn reset(&mut self) -> Result<(), HarnessFault>;

    /// Says what callers are going to do after the next reset: their disk may have to be another one.
    fn expect_callers(&mut self, _schedule: &Schedule) {}

    /// Lets several callers make their calls at the same time; returns every call with its answer and its
    /// interval.
    ///
    /// # Errors
    /// If the subject has one caller only, or the harness could not even ask the file system.
    fn run_callers(&mut self, _schedule: &Schedule) -> Result<Vec<Step>, HarnessFault> {
        Err(HarnessFault::new(
            "running several callers at once",
            format!("{} has one caller, number 0", self.name()),
        ))
    }

    /// Looks at some paths (relative to the root, links not followed) and nothing else.
    ///
    /// # Errors
    /// Only if the harness could not even ask the file system.
    fn observe_paths(&mut self, paths: &[FsPath]) -> Result<Vec<PathState>, HarnessFault> {
        let tree = self.observe()?;
        Ok(paths.iter().map(|path| tree.path_state(path)).collect())
    }

    /// Reads up to `len` bytes of a file (relative to the root, links not followed), fewer where it
    /// ends; `None` if they cannot be read. For the evidence of a finding.
    ///
    /// # Errors
    /// Only if the harness could not even ask the file system.
    fn read_contents(
        &mut self,
        _path: &FsPath,
        _offset: u64,
        _len: usize,
    ) -> Result<Option<Vec<u8>>, HarnessFault> {
        Ok(None)
    }

    /// The value of an extended attribute (links not followed); `None` if it cannot be read. For the
    /// evidence of a finding.
    ///
    /// # Errors
    /// Only if the harness could not even ask the file system.
    fn read_xattr(
        &mut self,
        _path: &FsPath,
        _name: &FsBytes,
    ) -> Result<Option<Vec<u8>>, HarnessFault> {
        Ok(None)
    }

    /// How it can go back, the cheapest first.
    fn restore_methods(&self) -> Vec<RestoreMethod> {
        Vec::new()
    }

    /// Saves the present state; no slot may be open.
    ///
    /// # Errors
    /// If it cannot be saved in this way.
    fn save(&mut self, method: RestoreMethod) -> Result<Saved, HarnessFault> {
        Err(HarnessFault::new("saving", format!("{} cannot save by {method}", self.name())))
    }

    /// Goes back to a saved state, which stays saved. Closes every slot; mask and identity are the
    /// first ones again.
    ///
    /// # Errors
    /// If it cannot be restored.
    fn restore(&mut self, saved: Saved) -> Result<(), HarnessFault> {
        Err(HarnessFault::new("restoring", format!("{} saved no {saved:?}", self.name())))
    }

    /// A saved state is no longer needed.
    fn forget(&mut self, _saved: Saved) {}

    /// The disk of a saved state, where there is one.
    ///
    /// # Errors
    /// If it cannot be read.
    fn image(&mut self, _saved: Saved) -> Result<Option<Vec<u8>>, HarnessFault> {
        Ok(None)
    }

    /// A digest of the disk of a saved state, where there is one: of what is not zero on it, so that a
    /// large empty disk costs nothing.
    ///
    /// # Errors
    /// If it cannot be read.
    fn image_digest(&mut self, _saved: Saved) -> Result<Option<Digest>, HarnessFault> {
        Ok(None)
    }

    /// Makes a disk, as [`Testbed::image`] gave it, a saved state.
    ///
    /// # Errors
    /// If the subject has no disk, or not of this size.
    fn adopt(&mut self, _image: &[u8]) -> Result<Saved, HarnessFault> {
        Err(HarnessFault::new("taking over an image", format!("{} has no disk", self.name())))
    }

    /// Unmounts, runs the file system's checker on the disk, and mounts again; closes every slot.
    /// `None` if there is no checker for it.
    ///
    /// # Errors
    /// If the checker cannot be run.
    fn fsck(&mut self) -> Result<Option<CheckerReport>, HarnessFault> {
        Ok(None)
    }

    /// What the kernel logged about this file system since the last call: errors, warnings, oopses.
    ///
    /// # Errors
    /// If the log cannot be read.
    fn complaints(&mut self) -> Result<Vec<String>, HarnessFault> {
        Ok(Vec::new())
    }

    /// What clients of the server were answered about locks, and should not have been, since it was last asked.
    fn wrong_locks(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Whether the program that serves the file system has ended by itself. Answers at once.
    fn has_ended(&mut self) -> bool {
        false
    }

    /// If the program that serves the file system has ended by itself: how, and what it printed last.
    /// Waits a moment for it, since its end may be later than that of its connection.
    fn last_words(&mut self) -> Option<String> {
        None
    }

    /// Gives the thread back its own directory, mask and identity until the next operation: somebody
    /// is about to write a record, which must not happen as the user that operations run as.
    fn step_aside(&mut self) {}

    /// From now on, attributes are asked of the file system itself (`true`), or may again come from what
    /// the kernel remembers of an earlier answer.
    fn ask_past_caches(&mut self, _ask: bool) {}

    /// How to end a call that does not return, if there is a way.
    fn unblock(&self) -> Option<Unblock> {
        None
    }
}
