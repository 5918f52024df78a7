//! Looking at everything: a directory becomes a [`Tree`].
//!
//! The walk goes down with the current directory of the thread, so every call has a single name as
//! its argument and no depth of nesting makes a path too long. Access times are left alone where
//! the kernel allows it (`O_NOATIME`). What cannot be observed becomes a [`Broken`] entry: a file
//! that is listed and cannot be read is a finding, not a failure of ours.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use fathom_core::tree::Broken;
use fathom_core::{
    DataSum, Digest, Entry, Errno, FsBytes, FsPath, HarnessFault, Kind, Mode, Stamp, Times, Tree,
};

use super::buffer::Buffer;
use super::xattr::{XATTR_BYTES_MAX, c_names};
use super::{call, content, listing};

/// What is looked at, beyond the abstract state, and what is not.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Data segments of files.
    pub segments: bool,
    /// Timestamps.
    pub times: bool,
    /// Names of entries that are not part of the state (`lost+found`), in every directory.
    pub hidden_names: Vec<FsBytes>,
    /// Beginnings of names of extended attributes that are not part of the state. Those of the
    /// `security.` class never are: the system sets them (SELinux, IMA) without being asked.
    pub hidden_xattrs: Vec<FsBytes>,
}

impl View {
    pub(super) fn hides_name(&self, name: &[u8]) -> bool {
        self.hidden_names.iter().any(|hidden| hidden.as_bytes() == name)
    }

    pub(super) fn hides_xattr(&self, name: &[u8]) -> bool {
        name.starts_with(b"security.")
            || self.hidden_xattrs.iter().any(|hidden| name.starts_with(hidden.as_bytes()))
    }
}

/// More than a symbolic link can hold.
const TARGET_BYTES: usize = 8192;

/// Deeper trees are not walked: every level takes a descriptor and some stack.
const DEPTH_MAX: usize = 256;

/// What names an inode on the host: device and number.
type FileId = (u32, u32, u64);

/// Of an entry that cannot be looked at.
const UNKNOWN: FileId = (0, 0, 0);

struct Walk<'a> {
    view: &'a View,
    buffer: &'a mut Buffer,
    found: BTreeMap<FsPath, (FileId, Entry)>,
    /// The directories above the present one.
    above: Vec<FileId>,
    /// Names of extended attributes of one file.
    names: Vec<u8>,
}

/// What stops the observation of one entry.
pub(super) enum Stop {
    /// A call failed.
    Broken(Broken),
    /// We reached a limit of our own.
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

/// Says which call it was.
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

/// Walks `root`, which is also the current directory, before and afterwards.
pub(super) fn walk(root: RawFd, view: &View, buffer: &mut Buffer) -> Result<Tree, HarnessFault> {
    let mut walk =
        Walk { view, buffer, found: BTreeMap::new(), above: Vec::new(), names: Vec::new() };
    let visited = walk.visit(c".", FsPath::from("."));
    call::fchdir(root)
        .map_err(|errno| HarnessFault::new("returning to the root of the subject", errno))?;
    visited?;
    Ok(walk.into_tree())
}

impl Walk<'_> {
    /// Returns what it found; after a directory, the current directory is another one.
    fn visit(&mut self, name: &CStr, path: FsPath) -> Result<Kind, HarnessFault> {
        let stat = match call::statx(libc::AT_FDCWD, name, libc::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(errno) => {
                let entry = Entry::broken("statx", errno);
                let kind = entry.kind;
                self.found.insert(path, (UNKNOWN, entry));
                return Ok(kind);
            }
        };
        let id = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        let mut entry = entry_of(&stat, self.view.times);
        let kind = entry.kind;
        match self.observe(name, &path, id, &mut entry) {
            Ok(()) => {}
            Err(Stop::Broken(broken)) => entry.broken = Some(broken),
            Err(Stop::Fault(fault)) => return Err(fault),
        }
        self.found.insert(path, (id, entry));
        Ok(kind)
    }

    fn observe(
        &mut self,
        name: &CStr,
        path: &FsPath,
        id: FileId,
        entry: &mut Entry,
    ) -> Result<(), Stop> {
        self.xattrs(name, entry)?;
        match entry.kind {
            Kind::File => self.file(name, entry),
            Kind::Dir => self.directory(name, path, id),
            Kind::Symlink => self.symlink(name, entry),
            Kind::Fifo | Kind::Socket | Kind::Char | Kind::Block => Ok(()),
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

    fn directory(&mut self, name: &CStr, path: &FsPath, id: FileId) -> Result<(), Stop> {
        if self.above.contains(&id) {
            // Only a damaged file system has a directory inside itself.
            return Err(Errno::ELOOP).of("descend");
        }
        if self.above.len() == DEPTH_MAX {
            return Err(Stop::fault(format!("{path} is deeper than {DEPTH_MAX} directories")));
        }
        let dir = open_quietly(name, libc::O_DIRECTORY).of("open")?;
        let mut names: Vec<CString> = Vec::new();
        let listed = listing::for_each(dir.as_raw_fd(), self.buffer, |name, _| {
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.push(name.to_owned());
            }
        });
        call::fchdir(dir.as_raw_fd()).of("fchdir")?;
        self.above.push(id);
        let mut twice = false;
        for name in names.iter().filter(|name| !self.view.hides_name(name.to_bytes())) {
            let path = path.join(name.to_bytes());
            twice |= self.found.contains_key(&path);
            if self.visit(name, path)? == Kind::Dir {
                call::fchdir(dir.as_raw_fd()).of("fchdir")?;
            }
        }
        self.above.pop();
        listed.of("getdents64")?;
        if twice {
            return Err(Errno::EEXIST).of("getdents64, which lists a name twice");
        }
        Ok(())
    }

    fn file(&mut self, name: &CStr, entry: &mut Entry) -> Result<(), Stop> {
        let file = open_quietly(name, libc::O_NONBLOCK).of("open")?;
        if self.view.segments {
            entry.segments = Some(content::segments(file.as_raw_fd(), entry.size).of("lseek")?);
        }
        entry.content = content::digest(file.as_raw_fd(), entry.size, self.buffer)?;
        Ok(())
    }

    /// In the order of paths the first one of an inode is the smallest.
    fn into_tree(self) -> Tree {
        let mut first: HashMap<FileId, FsPath> = HashMap::new();
        let mut tree = Tree::default();
        for (path, (id, mut entry)) in self.found {
            if id != UNKNOWN {
                match first.get(&id) {
                    Some(smallest) => entry.same_as = Some(smallest.clone()),
                    None => {
                        first.insert(id, path.clone());
                    }
                }
            }
            tree.entries.insert(path, entry);
        }
        tree
    }
}

/// Without changing the access time, if that is allowed (open(2): to the owner and to root).
fn open_quietly(name: &CStr, flags: i32) -> Result<OwnedFd, Errno> {
    let flags = flags | libc::O_RDONLY | libc::O_NOFOLLOW;
    match call::open(name, flags | libc::O_NOATIME, 0) {
        Err(Errno::EPERM) => call::open(name, flags, 0),
        answer => answer,
    }
}

/// What statx(2) alone tells.
fn entry_of(stat: &libc::statx, with_times: bool) -> Entry {
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
        target: FsBytes::from(&b""[..]),
        rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
        xattrs: BTreeMap::new(),
        same_as: None,
        segments: None,
        times: with_times.then_some(times),
        broken,
    }
}
