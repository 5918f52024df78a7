//! Observes a few paths and nothing else: those that an operation has touched.
//!
//! This runs after every operation of a campaign, so it makes as few calls as show the same as a
//! walk would: five for a file, six for a directory, one for what is not there.

use std::os::fd::{AsRawFd, OwnedFd};

use fathom_core::{Entry, Errno, FsBytes, FsPath, HarnessFault, Kind, PathState};

use super::buffer::Buffer;
use super::guard::{Guard, Last, Refusal};
use super::observe_entry::{EntryObserver, OfCall, Stop, View, entry_of, open_quietly};
use super::path::CPath;
use super::written::Written;
use super::xattr::XATTR_BYTES_MAX;
use super::{call, content, listing};

/// Observes `paths`, relative to the current directory.
pub(super) fn observe_paths(
    paths: &[FsPath],
    guard: &Guard,
    view: &View,
    written: &Written,
    buffer: &mut Buffer,
) -> Result<Vec<PathState>, HarnessFault> {
    // Paths are relative to the current directory, which stays what it is.
    let mut look = EntryObserver::new(libc::AT_FDCWD, view, written, buffer);
    let mut path_states = Vec::with_capacity(paths.len());
    for path in paths {
        let (entry, names) = match guard.within(path, Last::Keep) {
            Ok(c_path) => one(&mut look, &c_path)?,
            // A link on the way that leads out: this is not what the path named.
            Err(Refusal::Escape(_)) => (Some(Entry::broken("openat2", Errno::EXDEV)), None),
            Err(refusal) => return Err(HarnessFault::new(format!("looking at {path}"), refusal)),
        };
        path_states.push(PathState { path: path.clone(), entry, names });
    }
    Ok(path_states)
}

/// Reads up to `len` bytes of a file; nothing if it cannot be read.
pub(super) fn read_contents(
    path: &FsPath,
    offset: u64,
    len: usize,
    guard: &Guard,
    buffer: &mut Buffer,
) -> Option<Vec<u8>> {
    // A link on the way that leads out: there is nothing to read.
    let Ok(path) = guard.within(path, Last::Keep) else { return None };
    let read = open_quietly(libc::AT_FDCWD, path.c(), libc::O_NONBLOCK).and_then(|file| {
        let to = buffer.slice(len);
        content::pread_full(file.as_raw_fd(), to, offset).map(|have| to[..have].to_vec())
    });
    read.ok()
}

/// Reads an extended attribute; nothing if it cannot be read.
pub(super) fn read_xattr(
    path: &FsPath,
    name: &FsBytes,
    guard: &Guard,
    buffer: &mut Buffer,
) -> Option<Vec<u8>> {
    let (Ok(path), Ok(name)) = (guard.within(path, Last::Keep), CPath::new(name)) else {
        return None;
    };
    let to = buffer.slice(XATTR_BYTES_MAX);
    let read = call::lgetxattr(path.c(), name.c(), to);
    read.ok().map(|have| to[..have as usize].to_vec())
}

type Seen = (Option<Entry>, Option<Vec<FsBytes>>);

fn one(look: &mut EntryObserver<'_>, path: &CPath) -> Result<Seen, HarnessFault> {
    let stat = match call::statx(libc::AT_FDCWD, path.c(), look.view.stat_flags()) {
        Ok(stat) => stat,
        Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok((None, None)),
        Err(errno) => return Ok((Some(Entry::broken("statx", errno)), None)),
    };
    let mut entry = entry_of(&stat, look.view.times);
    let mut names = (entry.kind == Kind::Dir).then(Vec::new);
    let opened = look.inside(libc::AT_FDCWD, path.c(), &mut entry);
    let seen = opened.and_then(|dir| match (dir, &mut names) {
        (Some(dir), Some(names)) => list(look, &dir, names),
        _ => Ok(()),
    });
    match seen {
        Ok(()) => {}
        Err(Stop::Broken(broken)) => entry.broken = Some(broken),
        Err(Stop::Fault(fault)) => return Err(fault),
    }
    Ok((Some(entry), names))
}

fn list(look: &mut EntryObserver<'_>, dir: &OwnedFd, names: &mut Vec<FsBytes>) -> Result<(), Stop> {
    let view = look.view;
    let listed = listing::for_each(dir.as_raw_fd(), look.buffer, |name, _| {
        let name = name.to_bytes();
        if !matches!(name, b"." | b"..") && !view.hides_name(name) {
            names.push(FsBytes::from(name));
        }
    });
    names.sort_unstable();
    listed.of("getdents64")
}
