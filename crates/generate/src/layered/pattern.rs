//! Whether a workload contains another one: the same commands on inodes of its own, in the same order, perhaps
//! with others between them. Left alone, they are that workload: everything that a command names is made by
//! one of them.

use super::Call;
use super::core::{Command, FileId, NodeId, ROOT};

/// Inodes and files of the pattern, and what they are in the workload.
#[derive(Clone, Debug, Default)]
struct Same {
    nodes: Vec<(NodeId, NodeId)>,
    files: Vec<(FileId, FileId)>,
}

impl Same {
    fn node(&self, id: NodeId) -> Option<NodeId> {
        if id == ROOT {
            return Some(ROOT);
        }
        self.nodes.iter().find(|(pattern, _)| *pattern == id).map(|(_, node)| *node)
    }

    fn file(&self, id: FileId) -> Option<FileId> {
        self.files.iter().find(|(pattern, _)| *pattern == id).map(|(_, file)| *file)
    }

    fn with_node(mut self, pattern: NodeId, node: NodeId) -> Same {
        self.nodes.push((pattern, node));
        self
    }

    fn with_file(mut self, pattern: FileId, file: FileId) -> Same {
        self.files.push((pattern, file));
        self
    }

    /// What is the same afterwards, if a command of the workload can be one of the pattern.
    fn matched(&self, pattern: &Command, command: &Command) -> Option<Same> {
        let node = |wanted: NodeId, found: NodeId| self.node(wanted) == Some(found);
        let file = |wanted: FileId, found: FileId| self.file(wanted) == Some(found);
        let new = |fits: bool, a: NodeId, b: NodeId| fits.then(|| self.clone().with_node(a, b));
        let plain = |fits: bool| fits.then(|| self.clone());
        use Command as C;
        match (*pattern, *command) {
            (C::Mkdir { dir: a, new: x, .. }, C::Mkdir { dir: b, new: y, .. })
            | (C::Create { dir: a, new: x, .. }, C::Create { dir: b, new: y, .. })
            | (C::Mknod { dir: a, new: x, .. }, C::Mknod { dir: b, new: y, .. }) => {
                new(node(a, b), x, y)
            }
            (
                C::Symlink { target: s, dir: a, new: x, .. },
                C::Symlink { target: t, dir: b, new: y, .. },
            ) => new(node(a, b) && node(s, t), x, y),
            (C::Hardlink { node: s, dir: a, .. }, C::Hardlink { node: t, dir: b, .. })
            | (C::Rename { node: s, dir: a, .. }, C::Rename { node: t, dir: b, .. }) => {
                plain(node(s, t) && node(a, b))
            }
            (C::Replace { node: s, over: a }, C::Replace { node: t, over: b }) => {
                plain(node(s, t) && node(a, b))
            }
            (C::Open { node: a, new: x }, C::Open { node: b, new: y }) => {
                node(a, b).then(|| self.clone().with_file(x, y))
            }
            (C::Remove { node: a }, C::Remove { node: b })
            | (C::Chcwd { node: a }, C::Chcwd { node: b })
            | (C::Statfs { node: a }, C::Statfs { node: b })
            | (C::ReadXattr { node: a }, C::ReadXattr { node: b })
            | (C::WriteXattr { node: a }, C::WriteXattr { node: b })
            | (C::Deepen { node: a }, C::Deepen { node: b })
            | (C::Enlarge { node: a }, C::Enlarge { node: b })
            | (C::Prune { node: a }, C::Prune { node: b }) => plain(node(a, b)),
            (C::Close { file: a }, C::Close { file: b })
            | (C::Read { file: a }, C::Read { file: b })
            | (C::Write { file: a }, C::Write { file: b })
            | (C::Fsync { file: a }, C::Fsync { file: b }) => plain(file(a, b)),
            (C::Sync, C::Sync) | (C::Remount, C::Remount) => plain(true),
            _ => None,
        }
    }
}

/// Attempts after which a workload is given up.
const ATTEMPTS_MAX: u32 = 200_000;

/// The places of the commands of a workload that are the pattern.
pub fn find(workload: &[Call], pattern: &[Command]) -> Option<Vec<usize>> {
    let mut places = Vec::new();
    let mut attempts = 0;
    extend(workload, 0, pattern, &Same::default(), &mut places, &mut attempts).then_some(places)
}

fn extend(
    workload: &[Call],
    from: usize,
    pattern: &[Command],
    same: &Same,
    places: &mut Vec<usize>,
    attempts: &mut u32,
) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return true };
    for (at, call) in workload.iter().enumerate().skip(from) {
        *attempts += 1;
        if *attempts > ATTEMPTS_MAX {
            return false;
        }
        let Some(same) = same.matched(first, &call.command) else { continue };
        places.push(at);
        if extend(workload, at + 1, rest, &same, places, attempts) {
            return true;
        }
        places.pop();
        // Where it does not matter which one it is, the first one is as good as any other.
        if matches!(call.command, Command::Sync | Command::Remount) {
            return false;
        }
    }
    false
}
