//! [`PrivateDirectory`]: where one guest's memory, sockets and messages live.
//!
//! The memory of a guest is a file, so this must be a place that may be executed from and that is
//! memory itself (a tmpfs): on a disk every page would be written back. Nothing is left there when the
//! guest has ended; what a run leaves that was killed together with its keeper, the next one removes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, StatVfsMountFlags, flock, statfs, statvfs};

use crate::error::{GuestError, Result};

/// Names a directory for the memory of guests.
const PLACE: &str = "FATHOM_GUEST_MEMORY_DIR";

const PREFIX: &str = "fathom-guest-";
const LOCK: &str = "lock";
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// A directory without its lock may be that young: its owner is about to take it.
const YOUNG: Duration = Duration::from_secs(60);

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct PrivateDirectory {
    dir: tempfile::TempDir,
    _lock: HeldLock,
}

impl PrivateDirectory {
    /// Makes one where there is room for so much memory.
    pub(crate) fn new(memory_bytes: u64) -> Result<PrivateDirectory> {
        let place = place(memory_bytes)?;
        sweep(&place);
        let what = || format!("making a directory in {}", place.display());
        let dir = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(&place)
            .map_err(GuestError::io(what()))?;
        let lock = hold_new(dir.path()).map_err(GuestError::io(what()))?;
        Ok(PrivateDirectory { dir, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// A lock that is given back when this is dropped, and when the process ends. Closing the file would not be
/// enough: a process that another thread is just starting has it open, too, until it executes its program.
#[derive(Debug)]
pub(crate) struct HeldLock(File);

impl HeldLock {
    /// Takes the lock of a file, if nobody is in the way.
    pub(crate) fn take(file: File, operation: FlockOperation) -> rustix::io::Result<HeldLock> {
        flock(&file, operation)?;
        Ok(HeldLock(file))
    }
}

impl Drop for HeldLock {
    fn drop(&mut self) {
        // The end of the process gives it back in any case.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Says that a new directory is in use until the lock is dropped. The file gets its name when it is locked:
/// somebody who sweeps at this moment must not find it free.
fn hold_new(dir: &Path) -> std::io::Result<HeldLock> {
    let new = dir.join("lock.new");
    let lock = HeldLock::take(File::create_new(&new)?, FlockOperation::NonBlockingLockShared)?;
    fs::rename(new, dir.join(LOCK))?;
    Ok(lock)
}

/// Says that a directory is in use by one more, until the lock is dropped.
pub(crate) fn hold(dir: &Path) -> std::io::Result<HeldLock> {
    let file = File::options().append(true).open(dir.join(LOCK))?;
    Ok(HeldLock::take(file, FlockOperation::NonBlockingLockShared)?)
}

/// The first place that will do.
fn place(memory_bytes: u64) -> Result<PathBuf> {
    if let Some(typed) = std::env::var_os(PLACE) {
        let typed = PathBuf::from(typed);
        return match refusal(&typed, memory_bytes, false) {
            None => Ok(typed),
            Some(reason) => Err(GuestError::NoRoom { tried: vec![reason] }),
        };
    }
    let mut places = vec![PathBuf::from("/dev/shm")];
    places.extend(std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from));
    places.push(std::env::temp_dir());
    places.push(PathBuf::from("/var/tmp"));
    let mut tried = Vec::new();
    // A disk only if there is no memory.
    for must_be_memory in [true, false] {
        for place in &places {
            match refusal(place, memory_bytes, must_be_memory) {
                None => return Ok(place.clone()),
                Some(_) if must_be_memory => {}
                Some(reason) => tried.push(reason),
            }
        }
    }
    Err(GuestError::NoRoom { tried })
}

/// Why a directory cannot hold the memory of a guest.
fn refusal(place: &Path, memory_bytes: u64, must_be_memory: bool) -> Option<String> {
    let no = |reason: &str| Some(format!("{}: {reason}", place.display()));
    let (Ok(vfs), Ok(kind)) = (statvfs(place), statfs(place)) else { return no("is not there") };
    if place.to_string_lossy().contains([' ', ',', '"']) {
        return no("a kernel's command line cannot name it");
    }
    if must_be_memory && kind.f_type as u64 != TMPFS_MAGIC {
        return no("is no tmpfs");
    }
    if vfs.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return no("is mounted noexec");
    }
    if vfs.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return no("is read-only");
    }
    let free = vfs.f_bavail.saturating_mul(vfs.f_frsize);
    if free < memory_bytes {
        let reason = format!("{} MiB are free, {} are needed", free >> 20, memory_bytes >> 20);
        return no(&reason);
    }
    match tempfile::tempfile_in(place) {
        Ok(_) => None,
        Err(error) => no(&error.to_string()),
    }
}

/// Removes what earlier runs left that were killed: directories of ours that nobody holds.
fn sweep(place: &Path) {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    for entry in entries {
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_ours && is_left(&entry.path()) {
            // Another run may be removing it, too.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_left(dir: &Path) -> bool {
    match File::open(dir.join(LOCK)) {
        Ok(file) => HeldLock::take(file, FlockOperation::NonBlockingLockExclusive).is_ok(),
        Err(_) => {
            let made = fs::metadata(dir).and_then(|meta| meta.modified()).ok();
            let age = made.and_then(|made| SystemTime::now().duration_since(made).ok());
            age.is_some_and(|age| age > YOUNG)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_run_left_is_removed_and_what_is_in_use_is_not() {
        let place = tempfile::tempdir().unwrap();
        let (left, used, young) = (
            place.path().join("fathom-guest-left"),
            place.path().join("fathom-guest-used"),
            place.path().join("fathom-guest-young"),
        );
        for dir in [&left, &used, &young] {
            fs::create_dir(dir).unwrap();
        }
        drop(hold_new(&left).unwrap());
        drop(hold_new(&used).unwrap());
        let _held = hold(&used).unwrap();
        sweep(place.path());
        assert_eq!([left.exists(), used.exists(), young.exists()], [false, true, true]);
    }

    #[test]
    fn a_place_without_room_says_how_much_there_is() {
        let reason = refusal(Path::new("/dev/shm"), u64::MAX, false).unwrap();
        assert!(reason.contains("MiB are free"), "{reason}");
        let reason = refusal(Path::new("/nowhere"), 1, false).unwrap();
        assert!(reason.contains("is not there"), "{reason}");
    }
}
