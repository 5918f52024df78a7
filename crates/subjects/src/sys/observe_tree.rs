//! Observes everything: a directory becomes a [`Tree`].
//!
//! The observer goes down with the current directory of the thread, so every call has a single name as
//! its argument and no depth of nesting makes a path too long.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, RawFd};

use fathom_core::{Entry, Errno, FsPath, HarnessFault, Kind, Tree};

use super::buffer::Buffer;
use super::observe_entry::{EntryObserver, OfCall, Stop, View, entry_of, open_quietly};
use super::written::Written;
use super::{call, listing};

/// Greatest depth of a tree that is observed: every level takes a descriptor and some stack.
const DEPTH_MAX: usize = 256;

/// The identity of an inode on the host: device and number.
type FileId = (u32, u32, u64);

/// The identity of an entry that cannot be looked at.
const UNKNOWN: FileId = (0, 0, 0);

struct TreeObserver<'a> {
    look: EntryObserver<'a>,
    found: BTreeMap<FsPath, (FileId, Entry)>,
    /// The directories above the present one.
    above: Vec<FileId>,
}

/// Observes `root`, which is also the current directory, before and afterwards.
pub(super) fn observe_tree(
    root: RawFd,
    view: &View,
    written: &Written,
    buffer: &mut Buffer,
) -> Result<Tree, HarnessFault> {
    let look = EntryObserver::new(view, written, buffer);
    let mut observer = TreeObserver { look, found: BTreeMap::new(), above: Vec::new() };
    let visited = observer.visit(c".", FsPath::from("."));
    call::fchdir(root)
        .map_err(|errno| HarnessFault::new("returning to the root of the subject", errno))?;
    visited?;
    Ok(observer.into_tree())
}

impl TreeObserver<'_> {
    /// Observes an entry and everything below it; returns its kind. After a directory, the current
    /// directory is another one.
    fn visit(&mut self, name: &CStr, path: FsPath) -> Result<Kind, HarnessFault> {
        let stat = match call::statx(libc::AT_FDCWD, name, self.look.view.stat_flags()) {
            Ok(stat) => stat,
            Err(errno) => {
                let entry = Entry::broken("statx", errno);
                let kind = entry.kind;
                self.found.insert(path, (UNKNOWN, entry));
                return Ok(kind);
            }
        };
        let id = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        let mut entry = entry_of(&stat, self.look.view.times);
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
        self.look.inside(name, entry)?;
        if entry.kind == Kind::Dir { self.directory(name, path, id) } else { Ok(()) }
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
        let listed = listing::for_each(dir.as_raw_fd(), self.look.buffer, |name, _| {
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.push(name.to_owned());
            }
        });
        call::fchdir(dir.as_raw_fd()).of("fchdir")?;
        self.above.push(id);
        let mut twice = false;
        for name in names.iter().filter(|name| !self.look.view.hides_name(name.to_bytes())) {
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

    /// Makes the tree. In the order of paths the first one of an inode is the smallest.
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
