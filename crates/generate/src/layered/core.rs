//! The core: a graph of inodes, names and open files, and ten commands (figure 5 of the paper).

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// An inode. Numbers are never used twice in a workload.
pub type NodeId = u32;

/// An open file.
pub type FileId = u32;

/// A name in a directory.
pub type Name = u32;

/// The root directory.
pub const ROOT: NodeId = 0;

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeKind {
    /// A directory.
    Dir,
    /// A regular file.
    File,
    /// A symbolic link.
    Symlink,
    /// A special file.
    Device,
}

/// One inode.
#[derive(Clone, Debug)]
pub struct Node {
    /// What it is.
    pub kind: NodeKind,
    /// Its names, each with its directory; the root has none.
    pub links: Vec<(NodeId, Name)>,
    /// Of a directory: what is in it.
    pub entries: Vec<(Name, NodeId)>,
    /// Of a symbolic link: what it was made for.
    pub target: Option<NodeId>,
    /// Symbolic links that were made for it.
    pub symlinked: u32,
    /// When a command last named it.
    pub accessed: u64,
    /// How often it is open.
    pub opens: u32,
    /// Entries below it that are no inodes of the graph (`enlarge`, `deepen`).
    pub extra: u64,
}

/// The kinds of commands, in the order of the paper: the ten of the core, then those of [`super::core_ext`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "they are named after the commands")]
pub enum Kind {
    Mkdir,
    Create,
    Mknod,
    Hardlink,
    Symlink,
    Rename,
    Remove,
    Open,
    Close,
    Chcwd,
    Read,
    Write,
    Fsync,
    Sync,
    Remount,
    Statfs,
    ReadXattr,
    WriteXattr,
    Deepen,
    Enlarge,
    Prune,
    Replace,
}

impl Kind {
    /// The commands of the core.
    pub const CORE: [Kind; 10] = [
        Kind::Mkdir,
        Kind::Create,
        Kind::Mknod,
        Kind::Hardlink,
        Kind::Symlink,
        Kind::Rename,
        Kind::Remove,
        Kind::Open,
        Kind::Close,
        Kind::Chcwd,
    ];

    /// All commands.
    pub const ALL: [Kind; 22] = [
        Kind::Mkdir,
        Kind::Create,
        Kind::Mknod,
        Kind::Hardlink,
        Kind::Symlink,
        Kind::Rename,
        Kind::Remove,
        Kind::Open,
        Kind::Close,
        Kind::Chcwd,
        Kind::Read,
        Kind::Write,
        Kind::Fsync,
        Kind::Sync,
        Kind::Remount,
        Kind::Statfs,
        Kind::ReadXattr,
        Kind::WriteXattr,
        Kind::Deepen,
        Kind::Enlarge,
        Kind::Prune,
        Kind::Replace,
    ];
}

/// One abstract command (a rename may go to a directory above: figure 3 of the paper has one to the root, which
/// the rule in its figure 5 would forbid). Inodes and files are named by their numbers, wherever they are at that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the fields are the arguments of the paper's commands")]
pub enum Command {
    Mkdir { dir: NodeId, name: Name, new: NodeId },
    Create { dir: NodeId, name: Name, new: NodeId },
    Mknod { dir: NodeId, name: Name, new: NodeId },
    Hardlink { node: NodeId, dir: NodeId, name: Name },
    Symlink { target: NodeId, dir: NodeId, name: Name, new: NodeId },
    Rename { node: NodeId, dir: NodeId, name: Name },
    Remove { node: NodeId },
    Open { node: NodeId, new: FileId },
    Close { file: FileId },
    Chcwd { node: NodeId },
    Read { file: FileId },
    Write { file: FileId },
    Fsync { file: FileId },
    Sync,
    Remount,
    Statfs { node: NodeId },
    ReadXattr { node: NodeId },
    WriteXattr { node: NodeId },
    Deepen { node: NodeId },
    Enlarge { node: NodeId },
    Prune { node: NodeId },
    Replace { node: NodeId, over: NodeId },
}

impl Command {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Command::Mkdir { .. } => Kind::Mkdir,
            Command::Create { .. } => Kind::Create,
            Command::Mknod { .. } => Kind::Mknod,
            Command::Hardlink { .. } => Kind::Hardlink,
            Command::Symlink { .. } => Kind::Symlink,
            Command::Rename { .. } => Kind::Rename,
            Command::Remove { .. } => Kind::Remove,
            Command::Open { .. } => Kind::Open,
            Command::Close { .. } => Kind::Close,
            Command::Chcwd { .. } => Kind::Chcwd,
            Command::Read { .. } => Kind::Read,
            Command::Write { .. } => Kind::Write,
            Command::Fsync { .. } => Kind::Fsync,
            Command::Sync => Kind::Sync,
            Command::Remount => Kind::Remount,
            Command::Statfs { .. } => Kind::Statfs,
            Command::ReadXattr { .. } => Kind::ReadXattr,
            Command::WriteXattr { .. } => Kind::WriteXattr,
            Command::Deepen { .. } => Kind::Deepen,
            Command::Enlarge { .. } => Kind::Enlarge,
            Command::Prune { .. } => Kind::Prune,
            Command::Replace { .. } => Kind::Replace,
        }
    }
}

/// The abstract file system.
#[derive(Clone, Debug)]
pub struct Graph {
    nodes: Vec<Option<Arc<Node>>>,
    files: Vec<(FileId, NodeId)>,
    cwd: NodeId,
    clock: u64,
    file_next: FileId,
}

impl Default for Graph {
    fn default() -> Graph {
        let root = Node::new(NodeKind::Dir);
        let nodes = vec![Some(Arc::new(root))];
        Graph { nodes, files: Vec::new(), cwd: ROOT, clock: 0, file_next: 0 }
    }
}

impl Node {
    fn new(kind: NodeKind) -> Node {
        Node {
            kind,
            links: Vec::new(),
            entries: Vec::new(),
            target: None,
            symlinked: 0,
            accessed: 0,
            opens: 0,
            extra: 0,
        }
    }

    /// Entries of a directory, those that are no inodes of the graph included.
    pub fn children(&self) -> u64 {
        self.entries.len() as u64 + self.extra
    }
}

impl Graph {
    /// An inode.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id as usize)?.as_deref()
    }

    pub(super) fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id as usize)?.as_mut().map(Arc::make_mut)
    }

    /// Every inode with its number.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let all = self.nodes.iter().enumerate();
        all.filter_map(|(id, node)| Some((id as NodeId, node.as_deref()?)))
    }

    /// The open files.
    pub fn files(&self) -> &[(FileId, NodeId)] {
        &self.files
    }

    /// The working directory.
    pub fn cwd(&self) -> NodeId {
        self.cwd
    }

    /// The number of the next inode.
    pub fn node_next(&self) -> NodeId {
        self.nodes.len() as NodeId
    }

    /// The number of the next open file.
    pub fn file_next(&self) -> FileId {
        self.file_next
    }

    /// What an open file is of.
    pub fn file(&self, file: FileId) -> Option<NodeId> {
        self.files.iter().find(|(id, _)| *id == file).map(|(_, node)| *node)
    }

    fn is_dir(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| node.kind == NodeKind::Dir)
    }

    fn has(&self, dir: NodeId, name: Name) -> bool {
        self.node(dir).is_some_and(|dir| dir.entries.iter().any(|(entry, _)| *entry == name))
    }

    /// The number of names between the root and an inode.
    pub fn depth(&self, mut id: NodeId) -> usize {
        let mut depth = 0;
        while let Some((dir, _)) = self.node(id).and_then(|node| node.links.first().copied()) {
            depth += 1;
            id = dir;
        }
        depth
    }

    /// The number of levels below a directory.
    pub fn height(&self, id: NodeId) -> usize {
        let Some(node) = self.node(id) else { return 0 };
        let below = node.entries.iter().map(|(_, child)| 1 + self.height(*child));
        below.max().unwrap_or(0)
    }

    /// Whether `above` is the inode itself or a directory on the way to it.
    pub fn is_above(&self, above: NodeId, mut id: NodeId) -> bool {
        loop {
            if id == above {
                return true;
            }
            match self.node(id).and_then(|node| node.links.first().copied()) {
                Some((dir, _)) => id = dir,
                None => return false,
            }
        }
    }

    /// The inodes below a directory, itself included.
    pub fn reachable(&self, from: NodeId) -> Vec<NodeId> {
        let mut found = vec![from];
        let mut seen = BTreeSet::from([from]);
        let mut at = 0;
        while at < found.len() {
            if let Some(node) = self.node(found[at]) {
                found.extend(node.entries.iter().map(|(_, id)| *id).filter(|id| seen.insert(*id)));
            }
            at += 1;
        }
        found
    }

    /// Whether a command makes sense here: its inodes and files are there and of the right kind.
    pub fn allows(&self, command: &Command) -> bool {
        let kind = |id: NodeId| self.node(id).map(|node| node.kind);
        let free = |dir: NodeId, name: Name| self.is_dir(dir) && !self.has(dir, name);
        match *command {
            Command::Mkdir { dir, name, .. }
            | Command::Create { dir, name, .. }
            | Command::Mknod { dir, name, .. } => free(dir, name),
            Command::Hardlink { node, dir, name } => {
                kind(node) == Some(NodeKind::File) && self.is_named(node) && free(dir, name)
            }
            Command::Symlink { target, dir, name, .. } => {
                self.node(target).is_some() && free(dir, name)
            }
            Command::Rename { node, dir, name } => {
                node != ROOT && self.is_named(node) && free(dir, name) && !self.is_above(node, dir)
            }
            Command::Remove { node } => {
                node != ROOT && self.is_named(node) && !self.is_above(node, self.cwd)
            }
            Command::Open { node, .. } => kind(node) == Some(NodeKind::File) && self.is_named(node),
            Command::Close { file } => self.file(file).is_some(),
            Command::Chcwd { node } => self.is_dir(node),
            ref extension => self.allows_ext(extension),
        }
    }

    /// Whether an inode has a name: an open file may have lost its last one.
    pub(super) fn is_named(&self, id: NodeId) -> bool {
        self.node(id).is_some_and(|node| id == ROOT || !node.links.is_empty())
    }

    /// Executes a command. Returns whether it made sense; otherwise nothing has changed.
    pub fn apply(&mut self, command: &Command) -> bool {
        if !self.allows(command) {
            return false;
        }
        self.clock += 1;
        match *command {
            Command::Mkdir { dir, name, new } => self.make(dir, name, new, NodeKind::Dir),
            Command::Create { dir, name, new } => self.make(dir, name, new, NodeKind::File),
            Command::Mknod { dir, name, new } => self.make(dir, name, new, NodeKind::Device),
            Command::Symlink { target, dir, name, new } => {
                self.make(dir, name, new, NodeKind::Symlink);
                self.change(new, |node| node.target = Some(target));
                self.change(target, |node| node.symlinked += 1);
            }
            Command::Hardlink { node, dir, name } => self.link(node, dir, name),
            Command::Rename { node, dir, name } => {
                self.unlink_first(node);
                self.link(node, dir, name);
            }
            Command::Remove { node } => self.remove(node),
            Command::Open { node, new } => {
                self.files.push((new, node));
                self.file_next = self.file_next.max(new + 1);
                self.change(node, |node| node.opens += 1);
            }
            Command::Close { file } => self.close(file),
            Command::Chcwd { node } => {
                self.cwd = node;
                self.change(node, |_| {});
            }
            ref extension => self.apply_ext(extension),
        }
        true
    }

    /// Changes an inode that a command names.
    pub(super) fn change(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        let clock = self.clock;
        if let Some(node) = self.node_mut(id) {
            node.accessed = clock;
            change(node);
        }
    }

    fn make(&mut self, dir: NodeId, name: Name, new: NodeId, kind: NodeKind) {
        let index = new as usize;
        if index >= self.nodes.len() {
            self.nodes.resize(index + 1, None);
        }
        self.nodes[index] = Some(Arc::new(Node::new(kind)));
        self.link(new, dir, name);
    }

    pub(super) fn link(&mut self, id: NodeId, dir: NodeId, name: Name) {
        self.change(dir, |dir| dir.entries.push((name, id)));
        self.change(id, |node| node.links.push((dir, name)));
    }

    /// Takes the first name of an inode away.
    pub(super) fn unlink_first(&mut self, id: NodeId) {
        let Some((dir, name)) = self.node(id).and_then(|node| node.links.first().copied()) else {
            return;
        };
        self.change(dir, |dir| dir.entries.retain(|(entry, _)| *entry != name));
        self.change(id, |node| {
            node.links.remove(0);
        });
    }

    /// Takes the first name away, and everything below with it if it was the last one.
    pub(super) fn remove(&mut self, id: NodeId) {
        self.unlink_first(id);
        let Some(node) = self.node(id) else { return };
        if !node.links.is_empty() {
            return;
        }
        let below: Vec<NodeId> = node.entries.iter().map(|(_, child)| *child).collect();
        let (opens, target) = (node.opens, node.target);
        for child in below {
            self.remove_from(child, id);
        }
        if let Some(target) = target
            && let Some(target) = self.node_mut(target)
        {
            target.symlinked = target.symlinked.saturating_sub(1);
        }
        if opens == 0 {
            self.nodes[id as usize] = None;
        }
    }

    /// Removes the name that an inode has in this directory.
    pub(super) fn remove_from(&mut self, id: NodeId, dir: NodeId) {
        if let Some(node) = self.node_mut(id)
            && let Some(at) = node.links.iter().position(|(parent, _)| *parent == dir)
        {
            node.links.swap(0, at);
        }
        self.remove(id);
    }

    fn close(&mut self, file: FileId) {
        let Some(node) = self.file(file) else { return };
        self.files.retain(|(id, _)| *id != file);
        self.change(node, |node| node.opens -= 1);
        let gone = self.node(node).is_some_and(|node| node.opens == 0 && node.links.is_empty());
        if gone {
            self.nodes[node as usize] = None;
        }
    }

    /// Closes every file, and goes to the root.
    pub(super) fn close_all(&mut self) {
        while let Some((file, _)) = self.files.first().copied() {
            self.close(file);
        }
        self.cwd = ROOT;
    }

    /// A digest that two graphs share if one is the other with other names and numbers. Colours of inodes
    /// are refined by those of their neighbours (Weisfeiler and Leman), as often as the smallest graphs that
    /// differ by hard links need.
    pub fn digest(&self) -> u64 {
        let mut colours: Vec<u64> = vec![0; self.nodes.len()];
        for (id, node) in self.nodes() {
            let cwd = u64::from(id == self.cwd);
            let first = [node.kind as u64, u64::from(node.opens), cwd, node.extra];
            colours[id as usize] = first.iter().fold(1, |sum, part| mix(sum ^ part));
        }
        for _ in 0..REFINEMENTS {
            let mut next = colours.clone();
            let mut links_to = vec![5u64; self.nodes.len()];
            for (id, node) in self.nodes() {
                if let Some(target) = node.target {
                    let sum = &mut links_to[target as usize];
                    *sum = sum.wrapping_add(mix(colours[id as usize] ^ 5));
                }
            }
            for (id, node) in self.nodes() {
                let set = |ids: &mut dyn Iterator<Item = NodeId>, salt: u64| {
                    ids.fold(salt, |sum, id| sum.wrapping_add(mix(colours[id as usize] ^ salt)))
                };
                let below = set(&mut node.entries.iter().map(|(_, id)| *id), 2);
                let above = set(&mut node.links.iter().map(|(dir, _)| *dir), 3);
                let target = node.target.filter(|target| self.node(*target).is_some());
                let target = set(&mut target.into_iter(), 4);
                let own = colours[id as usize];
                let linked = links_to[id as usize];
                next[id as usize] = mix(mix(mix(mix(own ^ below) ^ above) ^ target) ^ linked);
            }
            colours = next;
        }
        self.nodes().fold(0, |sum, (id, _)| sum.wrapping_add(mix(colours[id as usize])))
    }

    /// Every command of the core that makes sense here, with these names and the next numbers.
    pub fn commands(&self, names: &[Name]) -> Vec<Command> {
        let nodes: Vec<NodeId> = self.nodes().map(|(id, _)| id).collect();
        let (new, file) = (self.node_next(), self.file_next);
        let mut all = Vec::new();
        for &dir in &nodes {
            for &name in names {
                all.push(Command::Mkdir { dir, name, new });
                all.push(Command::Create { dir, name, new });
                all.push(Command::Mknod { dir, name, new });
                for &node in &nodes {
                    all.push(Command::Hardlink { node, dir, name });
                    all.push(Command::Symlink { target: node, dir, name, new });
                    all.push(Command::Rename { node, dir, name });
                }
            }
            all.push(Command::Remove { node: dir });
            all.push(Command::Open { node: dir, new: file });
            all.push(Command::Chcwd { node: dir });
        }
        all.extend(self.files.iter().map(|(file, _)| Command::Close { file: *file }));
        all.retain(|command| self.allows(command));
        all
    }
}

/// How often colours are refined.
const REFINEMENTS: usize = 4;

/// Spreads the bits of a number.
fn mix(word: u64) -> u64 {
    fathom_core::pattern::word(word, 1)
}
