//! The names that exist in the reference: the generator looks here before it asks for something.

use fathom_core::{Digest, FsBytes, FsPath, Kind};
use fathom_model::{Ino, Model, ROOT, Volume};

/// A name in the tree.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) path: FsPath,
    pub(super) kind: Kind,
    /// Components of the path; 0 for the root.
    pub(super) depth: usize,
    /// Names of its extended attributes.
    pub(super) xattrs: Vec<FsBytes>,
}

/// All names of the reference, the root first. Plain paths: no component is a symbolic link.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    nodes: Vec<Node>,
    /// The unit in which `fallocate` moves data.
    pub(super) move_bytes: u64,
    /// The first and the last second that the file system has.
    pub(super) time_sec: (i64, i64),
    /// The digest of the tree that was read: equal digests need no second look.
    digest: Digest,
}

impl View {
    /// Reads the names again if the tree has changed.
    pub(super) fn refresh(&mut self, model: &Model) {
        if self.nodes.is_empty() || self.digest != model.digest() {
            self.digest = model.digest();
            self.move_bytes = u64::from(model.volume().config().move_bytes());
            let quirks = &model.volume().config().quirks;
            // Where a format has no limits, servers have: some millennia are enough.
            self.time_sec = (quirks.time_sec_min.max(-(1 << 40)), quirks.time_sec_max.min(1 << 40));
            self.nodes.clear();
            self.push(model.volume(), ROOT, FsPath::from("."), Kind::Dir, 0);
            self.walk(model.volume(), ROOT, &FsPath::from("."), 1);
        }
    }

    fn walk(&mut self, volume: &Volume, dir: Ino, dir_path: &FsPath, depth: usize) {
        let entries = volume.entries(dir, 0).expect("the reference lists its own directories");
        for entry in entries {
            let path = dir_path.join(entry.name.as_bytes());
            self.push(volume, entry.ino, path.clone(), entry.kind, depth);
            if entry.kind == Kind::Dir {
                self.walk(volume, entry.ino, &path, depth + 1);
            }
        }
    }

    fn push(&mut self, volume: &Volume, ino: Ino, path: FsPath, kind: Kind, depth: usize) {
        let xattrs = volume.listxattr(ino).unwrap_or_default();
        self.nodes.push(Node { path, kind, depth, xattrs });
    }

    /// Every name, the root first.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The names that `wanted` accepts.
    pub(super) fn select(&self, wanted: impl Fn(&Node) -> bool) -> Vec<&Node> {
        self.nodes.iter().filter(|node| wanted(node)).collect()
    }

    /// The names in a directory.
    pub(super) fn children<'a>(&'a self, dir: &FsPath) -> impl Iterator<Item = &'a Node> + use<'a> {
        let dir = dir.clone();
        self.nodes.iter().skip(1).filter(move |node| dir.join(node.path.file_name()) == node.path)
    }

    pub(super) fn contains(&self, path: &FsPath) -> bool {
        self.nodes.iter().any(|node| node.path == *path)
    }

    /// Number of levels of names below `path`.
    pub(super) fn height(&self, path: &FsPath) -> usize {
        let own = depth(path);
        let below = |node: &&Node| {
            let (inner, outer) = (node.path.as_bytes(), path.as_bytes());
            inner.len() > outer.len() && inner.starts_with(outer) && inner[outer.len()] == b'/'
        };
        self.nodes.iter().filter(below).map(|node| node.depth - own).max().unwrap_or(0)
    }
}

/// Number of components of a plain path.
pub(super) fn depth(path: &FsPath) -> usize {
    if path.as_bytes() == b"." {
        return 0;
    }
    1 + path.as_bytes().iter().filter(|&&byte| byte == b'/').count()
}
