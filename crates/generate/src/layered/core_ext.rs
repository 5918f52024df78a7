//! The extension of the core: commands that leave the graph as it is and exercise what lies below it (table 1
//! of the paper).

use super::core::{Command, Graph, NodeId, NodeKind};

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
            _ => {}
        }
    }
}
