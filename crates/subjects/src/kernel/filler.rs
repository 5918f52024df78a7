//! [`Filler`]: takes space away, so that a disk is soon full.
//!
//! A file without a name, kept open: no listing and no walk shows it, and it is gone with the mount.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags, fallocate, fstatfs, openat, unlinkat};
use rustix::io::Errno;

/// Has a name for a moment.
const NAME: &str = ".fathom-filler";

/// Where blocks cannot be reserved they are written in pieces of this size.
const PIECE_BYTES: usize = 64 << 10;

/// It comes as near to what is to be left.
const NEAR_BYTES: u64 = 4 << 10;

/// Holds the space until it is dropped; nothing, where there was none to be taken.
pub(super) struct Filler {
    _file: Option<OwnedFd>,
}

impl Filler {
    /// Leaves about `bytes` in the file system of the directory `root`; not less, if it can be helped.
    pub(super) fn new(root: &OwnedFd, bytes: u64) -> io::Result<Filler> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        let file = match openat(root, NAME, flags, Mode::from_raw_mode(0o600)) {
            Err(Errno::NOSPC) => return Ok(Filler { _file: None }),
            opened => opened?,
        };
        unlinkat(root, NAME, AtFlags::empty())?;
        let mut taken = 0;
        loop {
            let free = available(file.as_fd())?;
            // Metadata of the filler itself takes some too: come near in steps.
            let step = free.saturating_sub(bytes) / 2;
            if step < NEAR_BYTES || take(&file, taken, step)? < step {
                return Ok(Filler { _file: Some(file) });
            }
            taken += step;
        }
    }
}

fn available(file: BorrowedFd<'_>) -> io::Result<u64> {
    let space = fstatfs(file)?;
    Ok(space.f_bavail * space.f_bsize as u64)
}

/// The bytes that could be had.
fn take(file: &OwnedFd, at: u64, bytes: u64) -> io::Result<u64> {
    match fallocate(file, FallocateFlags::empty(), at, bytes) {
        Ok(()) => return Ok(bytes),
        Err(Errno::OPNOTSUPP) => {}
        Err(Errno::NOSPC) => return Ok(0),
        Err(errno) => return Err(errno.into()),
    }
    // Not zeros: they could be kept as nothing.
    let piece = vec![0xa5; PIECE_BYTES];
    let mut done = 0;
    while done < bytes {
        let want = (bytes - done).min(piece.len() as u64) as usize;
        match rustix::io::pwrite(file, &piece[..want], at + done) {
            Ok(count) => done += count as u64,
            Err(Errno::NOSPC) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    rustix::fs::fsync(file)?;
    Ok(done)
}
