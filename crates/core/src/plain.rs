//! Trees of file systems that know directories and files and nothing else of POSIX.
//!
//! An embedded file system has no owners and no modes. Its tree shows what the reference shows if
//! everything is made by root with the usual modes, so that both can be compared as they are.

use crate::bytes::FsPath;
use crate::digest::content_digest;
use crate::errno::Errno;
use crate::flags::Mode;
use crate::tree::{Entry, Kind, Tree};

/// The mode of every file.
pub const FILE_MODE: Mode = Mode(0o644);

/// The mode of every directory.
pub const DIR_MODE: Mode = Mode(0o755);

/// Collects the entries of a walk.
#[derive(Clone, Debug)]
pub struct PlainTree {
    tree: Tree,
}

impl Default for PlainTree {
    fn default() -> Self {
        PlainTree::new()
    }
}

impl PlainTree {
    /// The root directory.
    pub fn new() -> PlainTree {
        let mut plain = PlainTree { tree: Tree::default() };
        plain.tree.entries.insert(FsPath::from("."), entry(Kind::Dir, DIR_MODE, 2));
        plain
    }

    /// A directory; its parent comes first.
    pub fn dir(&mut self, path: FsPath) {
        if let Some(above) = path.parent().and_then(|above| self.tree.entries.get_mut(&above)) {
            above.nlink += 1;
        }
        self.tree.entries.insert(path, entry(Kind::Dir, DIR_MODE, 2));
    }

    /// A file with its contents.
    pub fn file(&mut self, path: FsPath, contents: &[u8]) {
        let file = Entry {
            size: contents.len() as u64,
            content: content_digest(contents),
            ..entry(Kind::File, FILE_MODE, 1)
        };
        self.tree.entries.insert(path, file);
    }

    /// Something that could not be looked at. If the path is known already (a directory that cannot
    /// be listed), that stays and is marked.
    pub fn broken(&mut self, path: FsPath, call: &str, errno: Errno) {
        let broken = Entry::broken(call, errno);
        match self.tree.entries.get_mut(&path) {
            Some(known) => known.broken = broken.broken,
            None => {
                self.tree.entries.insert(path, broken);
            }
        }
    }

    /// The tree.
    pub fn finish(self) -> Tree {
        self.tree
    }
}

fn entry(kind: Kind, mode: Mode, nlink: u32) -> Entry {
    Entry { kind, mode, nlink, broken: None, ..Entry::broken("", Errno::EIO) }
}
