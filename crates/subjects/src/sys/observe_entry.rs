//! Observes one entry: attributes, extended attributes, contents.
//!
//! Access times are left alone where the kernel allows it (`O_NOATIME`). What cannot be observed
//! becomes a [`Broken`] entry: a file that is listed and cannot be read is a finding, not a failure
//! of ours.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use fathom_core::tree::Broken;
use fathom_core::{DataSum, Digest, Entry, Errno, FsBytes, HarnessFault, Kind, Mode, Stamp, Times};

use super::buffer::Buffer;
use super::call::Answer;
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

/// Bytes of the first buffer for extended attributes. The kernel reserves as much memory as it is offered,
/// and hardly any list or value needs the most that there can be.
const XATTR_BYTES_FIRST: usize = 512;

/// Where the extended attributes of an entry are asked for.
#[derive(Clone, Copy)]
enum AttributesOf<'a> {
    /// An open file or directory, which nobody has to look up again.
    Open(RawFd),
    /// A name in the current directory, of what cannot be opened.
    Named(&'a CStr),
}

impl AttributesOf<'_> {
    fn list(self, to: &mut [u8]) -> Answer {
        match self {
            AttributesOf::Open(fd) => call::flistxattr(fd, to),
            AttributesOf::Named(name) => call::llistxattr(name, to),
        }
    }

    fn get(self, attr: &CStr, to: &mut [u8]) -> Answer {
        match self {
            AttributesOf::Open(fd) => call::fgetxattr(fd, attr, to),
            AttributesOf::Named(name) => call::lgetxattr(name, attr, to),
        }
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
    /// The current directory of the thread.
    current: RawFd,
}

impl<'a> EntryObserver<'a> {
    /// Makes an observer of entries below `root`, which is the current directory.
    pub(super) fn new(
        root: RawFd,
        view: &'a View,
        written: &'a Written,
        buffer: &'a mut Buffer,
    ) -> EntryObserver<'a> {
        EntryObserver { view, buffer, written, names: Vec::new(), current: root }
    }

    /// Makes a directory the current one, if it is not yet.
    pub(super) fn enter(&mut self, dir: RawFd) -> Result<(), Errno> {
        if self.current != dir {
            call::fchdir(dir)?;
            self.current = dir;
        }
        Ok(())
    }

    /// Forgets a directory that is about to be closed: the next one may get its number.
    pub(super) fn forget(&mut self, dir: RawFd) {
        if self.current == dir {
            self.current = -1;
        }
    }

    /// Fills in what `statx` does not tell about `name` in `dir`. A directory is returned open, for whoever
    /// lists it.
    pub(super) fn inside(
        &mut self,
        dir: RawFd,
        name: &CStr,
        entry: &mut Entry,
    ) -> Result<Option<OwnedFd>, Stop> {
        match entry.kind {
            Kind::File => {
                let file = self.open(dir, name, libc::O_NONBLOCK, entry)?;
                self.xattrs(AttributesOf::Open(file.as_raw_fd()), entry)?;
                self.file(&file, entry)?;
                Ok(None)
            }
            Kind::Dir => {
                let opened = self.open(dir, name, libc::O_DIRECTORY, entry)?;
                self.xattrs(AttributesOf::Open(opened.as_raw_fd()), entry)?;
                Ok(Some(opened))
            }
            Kind::Symlink => {
                self.xattrs_by_name(dir, name, entry)?;
                self.symlink(dir, name, entry)?;
                Ok(None)
            }
            Kind::Fifo | Kind::Socket | Kind::Char | Kind::Block => {
                self.xattrs_by_name(dir, name, entry)?;
                Ok(None)
            }
        }
    }

    /// Opens an entry; what cannot be opened may have attributes all the same.
    fn open(
        &mut self,
        dir: RawFd,
        name: &CStr,
        flags: i32,
        entry: &mut Entry,
    ) -> Result<OwnedFd, Stop> {
        match open_quietly(dir, name, flags) {
            Ok(opened) => Ok(opened),
            Err(errno) => {
                self.xattrs_by_name(dir, name, entry)?;
                Err(errno).of("open")
            }
        }
    }

    fn xattrs_by_name(&mut self, dir: RawFd, name: &CStr, entry: &mut Entry) -> Result<(), Stop> {
        self.enter(dir).of("fchdir")?;
        self.xattrs(AttributesOf::Named(name), entry)
    }

    fn xattrs(&mut self, of: AttributesOf<'_>, entry: &mut Entry) -> Result<(), Stop> {
        let listed = match with_room(self.buffer, |to| of.list(to)) {
            Ok(list) => list,
            Err(Errno::EOPNOTSUPP) => return Ok(()),
            Err(errno) => return Err(errno).of("listxattr"),
        };
        self.names.clear();
        self.names.extend_from_slice(listed);
        for attr in c_names(&self.names).filter(|attr| !self.view.hides_xattr(attr.to_bytes())) {
            let value = with_room(self.buffer, |to| of.get(attr, to)).of("getxattr")?;
            entry.xattrs.insert(FsBytes::from(attr.to_bytes()), DataSum::of(value));
        }
        Ok(())
    }

    fn symlink(&mut self, dir: RawFd, name: &CStr, entry: &mut Entry) -> Result<(), Stop> {
        let to = self.buffer.slice(TARGET_BYTES);
        let len = call::readlink(dir, name, to).of("readlink")? as usize;
        entry.target = FsBytes::from(&to[..len]);
        Ok(())
    }

    fn file(&mut self, file: &OwnedFd, entry: &mut Entry) -> Result<(), Stop> {
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

/// Asks for a list or a value: with a small buffer, and if that is too small with one that holds everything.
fn with_room(
    buffer: &mut Buffer,
    mut ask: impl FnMut(&mut [u8]) -> Answer,
) -> Result<&[u8], Errno> {
    let room = match ask(buffer.slice(XATTR_BYTES_FIRST)) {
        Err(Errno::ERANGE) => ask(buffer.slice(XATTR_BYTES_MAX)),
        answer => answer,
    };
    let len = room? as usize;
    Ok(&buffer.slice(len)[..])
}

/// Opens without changing the access time, if that is allowed (open(2): to the owner and to root).
pub(super) fn open_quietly(dir: RawFd, name: &CStr, flags: i32) -> Result<OwnedFd, Errno> {
    let flags = flags | libc::O_RDONLY | libc::O_NOFOLLOW;
    match call::open_at(dir, name, flags | libc::O_NOATIME, 0) {
        Err(Errno::EPERM) => call::open_at(dir, name, flags, 0),
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
