//! Observes one entry: attributes, extended attributes, contents.
//!
//! Access times are left alone where the kernel allows it (`O_NOATIME`). What cannot be observed
//! becomes a [`Broken`] entry: a file that is listed and cannot be read is a finding, not a failure
//! of ours.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};

use fathom_core::tree::Broken;
use fathom_core::{DataSum, Digest, Entry, Errno, FsBytes, HarnessFault, Kind, Mode, Stamp, Times};

use super::buffer::Buffer;
use super::written::Written;
use super::xattr::{XATTR_BYTES_MAX, c_names};
use super::{call, content};

/// The parts of the state that are observed beyond the abstract state, and those that are not.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Whether data segments of files are observed.
    pub segments: bool,
    /// Whether timestamps are observed.
    pub times: bool,
    /// Names of entries that are not part of the state (`lost+found`), in every directory.
    pub hidden_names: Vec<FsBytes>,
    /// Beginnings of names that are not part of the state (`.nfs`), in every directory.
    pub hidden_beginnings: Vec<FsBytes>,
    /// Beginnings of names of extended attributes that are not part of the state. Those of the
    /// `security.` class never are: the system sets them (SELinux, IMA) without being asked.
    pub hidden_xattrs: Vec<FsBytes>,
    /// Whether attributes are asked of the file system itself, and not of what the kernel remembers
    /// of an earlier answer (`AT_STATX_FORCE_SYNC`).
    pub fresh: bool,
    /// Whether attributes of a file are those after it was opened: what another client has closed must be
    /// seen then, and not before (close-to-open).
    pub opened: bool,
}

impl View {
    /// The flags of statx(2), for a link itself.
    pub(super) fn stat_flags(&self) -> i32 {
        let fresh = if self.fresh { libc::AT_STATX_FORCE_SYNC } else { 0 };
        libc::AT_SYMLINK_NOFOLLOW | fresh
    }

    pub(super) fn hides_name(&self, name: &[u8]) -> bool {
        self.hidden_names.iter().any(|hidden| hidden.as_bytes() == name)
            || self.hidden_beginnings.iter().any(|hidden| name.starts_with(hidden.as_bytes()))
    }

    pub(super) fn hides_xattr(&self, name: &[u8]) -> bool {
        name.starts_with(b"security.")
            || self.hidden_xattrs.iter().any(|hidden| name.starts_with(hidden.as_bytes()))
    }
}

/// Bytes of the buffer for a target: more than a symbolic link can hold.
const TARGET_BYTES: usize = 8192;

/// The reason why the observation of one entry stopped.
pub(super) enum Stop {
    /// A call failed: the entry is broken.
    Broken(Broken),
    /// The harness reached a limit of its own.
    Fault(HarnessFault),
}

impl Stop {
    pub(super) fn fault(message: impl ToString) -> Stop {
        Stop::Fault(HarnessFault::new("walking the tree", message))
    }
}

impl From<HarnessFault> for Stop {
    fn from(fault: HarnessFault) -> Stop {
        Stop::Fault(fault)
    }
}

/// Adds the name of the failed call to an error.
pub(super) trait OfCall<T> {
    fn of(self, call: &str) -> Result<T, Stop>;
}

impl<T> OfCall<T> for Result<T, Errno> {
    fn of(self, call: &str) -> Result<T, Stop> {
        self.map_err(|errno| match errno {
            Errno::EMFILE | Errno::ENFILE => Stop::fault("too many open files"),
            errno => Stop::Broken(Broken { call: call.to_owned(), errno }),
        })
    }
}

/// Observes entries.
pub(super) struct EntryObserver<'a> {
    pub(super) view: &'a View,
    pub(super) buffer: &'a mut Buffer,
    /// Where files may have data.
    written: &'a Written,
    /// Buffer for the names of extended attributes of one file.
    names: Vec<u8>,
}

impl<'a> EntryObserver<'a> {
    pub(super) fn new(
        view: &'a View,
        written: &'a Written,
        buffer: &'a mut Buffer,
    ) -> EntryObserver<'a> {
        EntryObserver { view, buffer, written, names: Vec::new() }
    }

    /// Fills in what `statx` does not tell, except for the entries of a directory.
    pub(super) fn inside(&mut self, name: &CStr, entry: &mut Entry) -> Result<(), Stop> {
        self.xattrs(name, entry)?;
        match entry.kind {
            Kind::File => self.file(name, entry),
            Kind::Symlink => self.symlink(name, entry),
            Kind::Dir | Kind::Fifo | Kind::Socket | Kind::Char | Kind::Block => Ok(()),
        }
    }

    fn xattrs(&mut self, name: &CStr, entry: &mut Entry) -> Result<(), Stop> {
        let to = self.buffer.slice(XATTR_BYTES_MAX);
        let count = match call::llistxattr(name, to) {
            Ok(count) => count as usize,
            Err(Errno::EOPNOTSUPP) => return Ok(()),
            Err(errno) => return Err(errno).of("llistxattr"),
        };
        self.names.clear();
        self.names.extend_from_slice(&to[..count]);
        for attr in c_names(&self.names).filter(|attr| !self.view.hides_xattr(attr.to_bytes())) {
            let value = self.buffer.slice(XATTR_BYTES_MAX);
            let len = call::lgetxattr(name, attr, value).of("lgetxattr")? as usize;
            entry.xattrs.insert(FsBytes::from(attr.to_bytes()), DataSum::of(&value[..len]));
        }
        Ok(())
    }

    fn symlink(&mut self, name: &CStr, entry: &mut Entry) -> Result<(), Stop> {
        let to = self.buffer.slice(TARGET_BYTES);
        let len = call::readlink(name, to).of("readlink")? as usize;
        entry.target = FsBytes::from(&to[..len]);
        Ok(())
    }

    fn file(&mut self, name: &CStr, entry: &mut Entry) -> Result<(), Stop> {
        let file = open_quietly(name, libc::O_NONBLOCK).of("open")?;
        if self.view.opened {
            let stat = call::statx(file.as_raw_fd(), c"", libc::AT_EMPTY_PATH).of("statx")?;
            let xattrs = std::mem::take(&mut entry.xattrs);
            *entry = Entry { xattrs, ..entry_of(&stat, self.view.times) };
        }
        if self.view.segments {
            entry.segments = Some(content::segments(file.as_raw_fd(), entry.size).of("lseek")?);
        }
        entry.content = content::digest(file.as_raw_fd(), entry.size, self.written, self.buffer)?;
        Ok(())
    }
}

/// Opens without changing the access time, if that is allowed (open(2): to the owner and to root).
pub(super) fn open_quietly(name: &CStr, flags: i32) -> Result<OwnedFd, Errno> {
    let flags = flags | libc::O_RDONLY | libc::O_NOFOLLOW;
    match call::open(name, flags | libc::O_NOATIME, 0) {
        Err(Errno::EPERM) => call::open(name, flags, 0),
        answer => answer,
    }
}

/// Makes an entry from what statx(2) alone tells.
pub(super) fn entry_of(stat: &libc::statx, with_times: bool) -> Entry {
    let mode = u32::from(stat.stx_mode);
    let at = |time: libc::statx_timestamp| Stamp::At { sec: time.tv_sec, nsec: time.tv_nsec };
    let times =
        Times { atime: at(stat.stx_atime), mtime: at(stat.stx_mtime), ctime: at(stat.stx_ctime) };
    let (kind, broken) = match Kind::of_mode(mode) {
        Some(kind) => (kind, None),
        None => (
            Kind::File,
            Some(Broken { call: "statx, an unknown type".to_owned(), errno: Errno::EIO }),
        ),
    };
    Entry {
        kind,
        mode: Mode(mode & 0o7777),
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        nlink: stat.stx_nlink,
        size: if kind == Kind::Dir { 0 } else { stat.stx_size },
        content: Digest::default(),
        target: FsBytes::empty(),
        rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
        xattrs: BTreeMap::new(),
        same_as: None,
        segments: None,
        times: with_times.then_some(times),
        broken,
    }
}
