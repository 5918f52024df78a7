//! Saves and restores the state of a mounted RefFS: the ioctls, and a client for them.
//!
//! Any directory of the mount will do. Only the user who mounted and root may call (`EPERM`).
//! Keys are the caller's choice; a saved state is never overwritten (`EEXIST`), and one that is not
//! there is `ENOENT`. A directory that is not on a RefFS answers `ENOTTY`.
//!
//! | call | number | argument | does |
//! |---|---|---|---|
//! | SAVE | `_IOW(0xfa, 1, u64)` | key | saves the present state under `key`; O(1) |
//! | RESTORE | `_IOW(0xfa, 2, [u64; 2])` | key, 1 to discard it | goes back to that state |
//! | DROP | `_IOW(0xfa, 3, u64)` | key | forgets a saved state |
//! | LIST | `_IOWR(0xfa, 4, [u64; 512])` | in: start; out: count, keys | the first keys ≥ start |
//! | PICKLE | `_IOWR(0xfa, 5, FileCall)` | key, 1 for all, path | writes saved states to a file |
//! | LOAD | `_IOWR(0xfa, 6, FileCall)` | path | reads them back into the pool |
//!
//! `FileCall` is a key, flags and a NUL-terminated path of 4096 bytes. On return the key field holds
//! the number of states written or read; after a failure the path field holds a message. The path is
//! opened by the server: it is absolute, in the server's mount namespace, with the server's rights.
//! [`super::pickle`] describes the file.

#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{io, path};

use fathom_core::Errno;
use rustix::fs::{Mode, OFlags};

/// The numbers of the ioctls. The letter 0xfa is unused in the kernel's ioctl-number.rst.
pub(super) mod number {
    use super::{FILE_CALL_BYTES, KEY_BYTES, LIST_BYTES, RESTORE_BYTES};

    const WRITE: u32 = 1;
    const READ: u32 = 2;

    /// Computes a number like `_IOC` of include/uapi/asm-generic/ioctl.h.
    const fn ioc(direction: u32, number: u32, bytes: usize) -> u32 {
        direction << 30 | (bytes as u32) << 16 | 0xfa << 8 | number
    }

    pub(in super::super) const SAVE: u32 = ioc(WRITE, 1, KEY_BYTES);
    pub(in super::super) const RESTORE: u32 = ioc(WRITE, 2, RESTORE_BYTES);
    pub(in super::super) const DROP: u32 = ioc(WRITE, 3, KEY_BYTES);
    pub(in super::super) const LIST: u32 = ioc(READ | WRITE, 4, LIST_BYTES);
    pub(in super::super) const PICKLE: u32 = ioc(READ | WRITE, 5, FILE_CALL_BYTES);
    pub(in super::super) const LOAD: u32 = ioc(READ | WRITE, 6, FILE_CALL_BYTES);
}

const KEY_BYTES: usize = 8;
const RESTORE_BYTES: usize = 16;
const LIST_BYTES: usize = 4096;
const PATH_BYTES: usize = 4096;
const FILE_CALL_BYTES: usize = 16 + PATH_BYTES;

/// Greatest number of keys in one answer to LIST.
pub(super) const LIST_KEYS_MAX: usize = LIST_BYTES / KEY_BYTES - 1;

/// Flag of RESTORE that forgets the saved state afterwards.
pub(super) const RESTORE_DISCARD: u64 = 1;

/// Flag of PICKLE that writes every saved state.
pub(super) const PICKLE_ALL: u64 = 1;

/// Reads the `index`th 64-bit word of an argument.
pub(super) fn word(argument: &[u8], index: usize) -> Option<u64> {
    let bytes = argument.get(index * KEY_BYTES..(index + 1) * KEY_BYTES)?;
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

/// Makes an argument of 64-bit words.
pub(super) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Reads the text field of a `FileCall`.
pub(super) fn text(argument: &[u8]) -> Option<&CStr> {
    CStr::from_bytes_until_nul(argument.get(16..)?).ok()
}

/// Makes a `FileCall`; a text that is too long for it is cut.
pub(super) fn file_call(key: u64, flags: u64, text: &[u8]) -> Vec<u8> {
    let mut bytes = words(&[key, flags]);
    bytes.extend_from_slice(&text[..text.len().min(PATH_BYTES - 1)]);
    bytes.resize(FILE_CALL_BYTES, 0);
    bytes
}

/// The reason why a snapshot call failed.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The directory cannot be opened.
    #[error("cannot open {dir}: {source}")]
    Open {
        /// The directory.
        dir: PathBuf,
        /// The reason from the operating system.
        source: io::Error,
    },
    /// The directory is not on a RefFS.
    #[error("this directory is not on a mount of `fathom mount`")]
    NotMounted,
    /// The caller is neither the user who mounted nor root.
    #[error("only root and the user who runs `fathom mount` may save and restore its state")]
    Denied,
    /// No state is saved under the key.
    #[error("there is no snapshot {key}: see `fathom snapshot list`")]
    NoSuchKey {
        /// The key that was asked for.
        key: u64,
    },
    /// A state is already saved under the key.
    #[error("snapshot {key} exists already: drop it first or choose another key")]
    KeyExists {
        /// The key that was asked for.
        key: u64,
    },
    /// The path does not fit into the call.
    #[error("the file name {path} is longer than 4095 bytes or contains a zero byte")]
    Path {
        /// The file.
        path: PathBuf,
    },
    /// The server could not write or read the file, and says why.
    #[error("{0}")]
    File(String),
    /// Another error of a system call.
    #[error("{call}: {source}")]
    Os {
        /// The call.
        call: &'static str,
        /// The reason from the operating system.
        source: io::Error,
    },
}

/// An open directory of a mounted RefFS, through which states are saved and restored.
#[derive(Debug)]
pub struct Snapshots {
    dir: OwnedFd,
}

impl From<OwnedFd> for Snapshots {
    /// Takes a directory that is open for reading.
    fn from(dir: OwnedFd) -> Self {
        Snapshots { dir }
    }
}

impl Snapshots {
    /// Opens any directory of the mount.
    ///
    /// # Errors
    /// If it cannot be opened. Whether it is on a RefFS turns out with the first call.
    pub fn open(dir: &Path) -> Result<Snapshots, SnapshotError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(dir, flags, Mode::empty()) {
            Ok(dir) => Ok(Snapshots { dir }),
            Err(e) => Err(SnapshotError::Open { dir: dir.to_owned(), source: e.into() }),
        }
    }

    /// Saves the present state under `key`.
    ///
    /// # Errors
    /// If the key is in use, or for one of the general reasons of [`SnapshotError`].
    pub fn save(&self, key: u64) -> Result<(), SnapshotError> {
        self.call("SAVE", number::SAVE, &mut words(&[key])).map_err(|error| error.about(key))
    }

    /// Goes back to the state saved under `key`, and forgets it if `discard`.
    ///
    /// # Errors
    /// If there is no such state, or for one of the general reasons of [`SnapshotError`].
    pub fn restore(&self, key: u64, discard: bool) -> Result<(), SnapshotError> {
        let flags = if discard { RESTORE_DISCARD } else { 0 };
        self.call("RESTORE", number::RESTORE, &mut words(&[key, flags]))
            .map_err(|error| error.about(key))
    }

    /// Forgets the state saved under `key`.
    ///
    /// # Errors
    /// If there is no such state, or for one of the general reasons of [`SnapshotError`].
    pub fn drop(&self, key: u64) -> Result<(), SnapshotError> {
        self.call("DROP", number::DROP, &mut words(&[key])).map_err(|error| error.about(key))
    }

    /// The keys of all saved states, in order.
    ///
    /// # Errors
    /// For one of the general reasons of [`SnapshotError`].
    pub fn list(&self) -> Result<Vec<u64>, SnapshotError> {
        let mut keys = Vec::new();
        let mut start = 0;
        loop {
            let mut argument = words(&[start]);
            argument.resize(LIST_BYTES, 0);
            self.call("LIST", number::LIST, &mut argument).map_err(|error| error.about(start))?;
            let count = (word(&argument, 0).unwrap_or(0) as usize).min(LIST_KEYS_MAX);
            keys.extend((1..=count).filter_map(|index| word(&argument, index)));
            match keys.last().and_then(|last| last.checked_add(1)) {
                Some(next) if count == LIST_KEYS_MAX => start = next,
                _ => return Ok(keys),
            }
        }
    }

    /// Writes the state saved under `key`, or every saved one, to a file; returns their number.
    ///
    /// # Errors
    /// If there is no such state or the file cannot be written (an existing file then stays as it
    /// is), or for one of the general reasons of [`SnapshotError`].
    pub fn pickle(&self, key: Option<u64>, file: &Path) -> Result<u64, SnapshotError> {
        let flags = if key.is_none() { PICKLE_ALL } else { 0 };
        self.file_call("PICKLE", number::PICKLE, key.unwrap_or(0), flags, file)
    }

    /// Reads saved states from a file into the pool of saved states; returns their number.
    ///
    /// # Errors
    /// If the file is not a sound pickle or one of its keys is in use: then nothing has changed. Or
    /// for one of the general reasons of [`SnapshotError`].
    pub fn load(&self, file: &Path) -> Result<u64, SnapshotError> {
        self.file_call("LOAD", number::LOAD, 0, 0, file)
    }

    fn file_call(
        &self,
        call: &'static str,
        number: u32,
        key: u64,
        flags: u64,
        file: &Path,
    ) -> Result<u64, SnapshotError> {
        let os = |source| SnapshotError::Os { call, source };
        let path = path::absolute(file).map_err(os)?;
        let bytes = path.as_os_str().as_bytes();
        if bytes.len() >= PATH_BYTES || bytes.contains(&0) {
            return Err(SnapshotError::Path { path });
        }
        let mut argument = file_call(key, flags, bytes);
        match self.call(call, number, &mut argument) {
            Ok(()) => Ok(word(&argument, 0).unwrap_or(0)),
            Err(failure) => match text(&argument) {
                // The server has replaced the path by its message.
                Some(message) if message.to_bytes() != bytes => {
                    Err(SnapshotError::File(message.to_string_lossy().into_owned()))
                }
                _ => Err(failure.about(key)),
            },
        }
    }

    fn call(
        &self,
        call: &'static str,
        number: u32,
        argument: &mut [u8],
    ) -> Result<(), CallFailure> {
        // SAFETY: the argument is as long as the size field of the number says, which is all that
        // the kernel copies in either direction.
        let result =
            unsafe { libc::ioctl(self.dir.as_raw_fd(), number.into(), argument.as_mut_ptr()) };
        if result < 0 {
            return Err(CallFailure { call, source: io::Error::last_os_error() });
        }
        Ok(())
    }
}

/// A failed ioctl, before it is known which error it means.
struct CallFailure {
    call: &'static str,
    source: io::Error,
}

impl CallFailure {
    fn about(self, key: u64) -> SnapshotError {
        match Errno::from_io(&self.source) {
            Some(Errno::ENOTTY) => SnapshotError::NotMounted,
            Some(Errno::EPERM) => SnapshotError::Denied,
            Some(Errno::ENOENT) => SnapshotError::NoSuchKey { key },
            Some(Errno::EEXIST) => SnapshotError::KeyExists { key },
            _ => SnapshotError::Os { call: self.call, source: self.source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_what_the_table_says() {
        // These are the values that <linux/ioctl.h> computes.
        assert_eq!(number::SAVE, 0x4008_fa01);
        assert_eq!(number::RESTORE, 0x4010_fa02);
        assert_eq!(number::DROP, 0x4008_fa03);
        assert_eq!(number::LIST, 0xd000_fa04);
        assert_eq!(number::PICKLE, 0xd010_fa05);
        assert_eq!(number::LOAD, 0xd010_fa06);
    }

    #[test]
    fn file_calls_round_trip_and_cut_long_texts() {
        let call = file_call(7, 1, b"/a/b");
        assert_eq!((word(&call, 0), word(&call, 1)), (Some(7), Some(1)));
        assert_eq!(text(&call), Some(c"/a/b"));
        let long = file_call(0, 0, &[b'x'; 2 * PATH_BYTES]);
        assert_eq!(long.len(), FILE_CALL_BYTES);
        assert_eq!(text(&long).map(|t| t.to_bytes().len()), Some(PATH_BYTES - 1));
        assert_eq!(word(&call[..7], 0), None);
    }
}
