//! Observes everything: a directory becomes a [`Tree`].
//!
//! Every call has a single name below an open directory as its argument, so no depth of nesting makes a
//! path too long. Attributes of what cannot be opened (a symbolic link, a device) have no such call: for
//! these the observer goes to their directory.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, RawFd};

use fathom_core::{Entry, Errno, FsPath, HarnessFault, Tree};

use super::buffer::Buffer;
use super::observe_entry::{EntryObserver, OfCall, Stop, View, entry_of};
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
    let look = EntryObserver::new(root, view, written, buffer);
    let mut observer = TreeObserver { look, found: BTreeMap::new(), above: Vec::new() };
    let visited = observer.visit(root, c".", FsPath::from("."));
    observer
        .look
        .enter(root)
        .map_err(|errno| HarnessFault::new("returning to the root of the subject", errno))?;
    visited?;
    Ok(observer.into_tree())
}

impl TreeObserver<'_> {
    /// Observes an entry of an open directory and everything below it.
    fn visit(&mut self, dir: RawFd, name: &CStr, path: FsPath) -> Result<(), HarnessFault> {
        let stat = match call::statx(dir, name, self.look.view.stat_flags()) {
            Ok(stat) => stat,
            Err(errno) => {
                self.found.insert(path, (UNKNOWN, Entry::broken("statx", errno)));
                return Ok(());
            }
        };
        let id = (stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino);
        let mut entry = entry_of(&stat, self.look.view.times);
        match self.observe(dir, name, &path, id, &mut entry) {
            Ok(()) => {}
            Err(Stop::Broken(broken)) => entry.broken = Some(broken),
            Err(Stop::Fault(fault)) => return Err(fault),
        }
        self.found.insert(path, (id, entry));
        Ok(())
    }

    fn observe(
        &mut self,
        dir: RawFd,
        name: &CStr,
        path: &FsPath,
        id: FileId,
        entry: &mut Entry,
    ) -> Result<(), Stop> {
        let Some(opened) = self.look.inside(dir, name, entry)? else { return Ok(()) };
        let visited = self.directory(opened.as_raw_fd(), path, id);
        self.look.forget(opened.as_raw_fd());
        visited
    }

    fn directory(&mut self, dir: RawFd, path: &FsPath, id: FileId) -> Result<(), Stop> {
        if self.above.contains(&id) {
            // Only a damaged file system has a directory inside itself.
            return Err(Errno::ELOOP).of("descend");
        }
        if self.above.len() == DEPTH_MAX {
            return Err(Stop::fault(format!("{path} is deeper than {DEPTH_MAX} directories")));
        }
        let mut names: Vec<CString> = Vec::new();
        let listed = listing::for_each(dir, self.look.buffer, |name, _| {
            if !matches!(name.to_bytes(), b"." | b"..") {
                names.push(name.to_owned());
            }
        });
        self.above.push(id);
        let mut twice = false;
        for name in names.iter().filter(|name| !self.look.view.hides_name(name.to_bytes())) {
            let path = path.join(name.to_bytes());
            twice |= self.found.contains_key(&path);
            self.visit(dir, name, path)?;
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
