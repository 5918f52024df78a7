//! The extension of the core: commands that leave the graph as it is and exercise what lies below it (table 1
//! of the paper), and one that the paper does not have: a rename over a name that something else has. Its rename goes
//! to names that are free.

use super::core::{Command, Graph, NodeId, NodeKind, ROOT};

impl Graph {
    /// Whether a command of the extension makes sense here.
    pub(super) fn allows_ext(&self, command: &Command) -> bool {
        let kind = |id: NodeId| self.node(id).filter(|_| self.is_named(id)).map(|node| node.kind);
        match *command {
            Command::Read { file } | Command::Write { file } | Command::Fsync { file } => {
                self.file(file).is_some()
            }
            Command::Sync | Command::Remount => true,
            Command::Statfs { node } => kind(node).is_some(),
            Command::ReadXattr { node } | Command::WriteXattr { node } => {
                matches!(kind(node), Some(NodeKind::Dir | NodeKind::File))
            }
            Command::Deepen { node } => kind(node) == Some(NodeKind::Dir),
            Command::Enlarge { node } => {
                matches!(kind(node), Some(NodeKind::Dir | NodeKind::File))
            }
            Command::Prune { node } => {
                let inside = node != self.cwd() && self.is_above(node, self.cwd());
                matches!(kind(node), Some(NodeKind::Dir | NodeKind::File)) && !inside
            }
            Command::Replace { node, over } => {
                let is_dir = |id| kind(id).map(|kind| kind == NodeKind::Dir);
                let of_a_kind = is_dir(node).is_some() && is_dir(node) == is_dir(over);
                let empty = self.node(over).is_some_and(|over| over.children() == 0);
                let goes = is_dir(over) == Some(false) || empty && over != self.cwd();
                let moves = node != ROOT && over != ROOT && node != over;
                moves && of_a_kind && goes && !self.is_above(node, over)
            }
            _ => false,
        }
    }

    /// Executes a command of the extension.
    pub(super) fn apply_ext(&mut self, command: &Command) {
        match *command {
            Command::Read { file } | Command::Write { file } | Command::Fsync { file } => {
                if let Some(node) = self.file(file) {
                    self.change(node, |_| {});
                }
            }
            Command::Remount => self.close_all(),
            Command::Statfs { node }
            | Command::ReadXattr { node }
            | Command::WriteXattr { node } => self.change(node, |_| {}),
            // How many entries they make is decided below; for the graph there are more than before.
            Command::Deepen { node } | Command::Enlarge { node } => {
                self.change(node, |node| node.extra += 1);
            }
            Command::Prune { node } => {
                let below: Vec<NodeId> = self
                    .node(node)
                    .map(|node| node.entries.iter().map(|(_, child)| *child).collect())
                    .unwrap_or_default();
                for child in below {
                    self.remove_from(child, node);
                }
                self.change(node, |node| node.extra = 0);
            }
            Command::Replace { node, over } => {
                let name = self.node(over).and_then(|over| over.links.first().copied());
                self.remove(over);
                self.unlink_first(node);
                if let Some((dir, name)) = name {
                    self.link(node, dir, name);
                }
            }
            _ => {}
        }
    }
}
