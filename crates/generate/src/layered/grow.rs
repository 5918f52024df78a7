//! [`Grower`]: explores the abstract file system like a bounded model checker (algorithm 1 of the paper), with
//! its three priorities: longer workloads first (P1), kinds of commands by a distribution (P2), inodes that are
//! unlike each other as arguments (P3).

use std::collections::HashMap;
use std::sync::Arc;

use super::Call;
use super::core::{Command, Graph, Kind, NodeId, NodeKind, ROOT};
use super::kmeans::typical;
use super::preset::Preset;
use crate::choice::Choices;

/// Workloads that are kept; beyond that, the shortest goes.
const KEPT_MAX: usize = 512;

/// Files that may be open at once.
const OPEN_MAX: usize = 64;

/// A workload as a list that shares its beginning with others.
#[derive(Debug)]
struct Link {
    before: Option<Arc<Link>>,
    call: Call,
}

/// A state and a workload that leads there.
#[derive(Clone, Debug)]
struct Entry {
    graph: Graph,
    digest: u64,
    last: Option<Arc<Link>>,
    len: usize,
}

/// Directories in which entries are that are there before.
const PREFILLED: u64 = 50;

/// The workload that makes so many entries, if any.
fn prefilled(entries: u64) -> Entry {
    let mut graph = Graph::default();
    let (mut last, mut len) = (None, 0);
    let dirs = if entries == 0 { 0 } else { PREFILLED as NodeId };
    for node in 1..=dirs {
        let make = Command::Mkdir { dir: ROOT, name: node, new: node };
        for command in [make, Command::Enlarge { node }] {
            graph.apply(&command);
            let call = Call { command, seed: 1, size: Some((entries / PREFILLED).max(1)) };
            last = Some(Arc::new(Link { before: last, call }));
            len += 1;
        }
    }
    Entry { digest: graph.digest(), graph, last, len }
}

/// Grows workloads.
#[derive(Clone, Debug)]
pub struct Grower {
    preset: Preset,
    choices: Choices,
    kept: Vec<Entry>,
    /// The length of the longest workload that led to each state.
    seen: HashMap<u64, usize>,
    name_next: u32,
    remounts: bool,
}

impl Grower {
    /// Starts with the empty workload; without `remounts` none has any.
    pub fn new(seed: u64, preset: &Preset, remounts: bool) -> Grower {
        let first = prefilled(preset.prefill);
        Grower {
            preset: preset.clone(),
            choices: Choices::new(seed),
            seen: HashMap::from([(first.digest, first.len)]),
            name_next: PREFILLED as u32,
            kept: vec![first],
            remounts,
        }
    }

    /// The states that were reached.
    pub fn states(&self) -> usize {
        self.seen.len()
    }

    /// The length of the longest workload that is kept.
    pub fn longest(&self) -> usize {
        self.kept.iter().map(|entry| entry.len).max().unwrap_or(0)
    }

    /// Picks a workload and appends commands to it, each of which makes a new one. Returns how many are new.
    pub fn step(&mut self) -> usize {
        let Some(picked) = self.pick() else { return 0 };
        let entry = self.kept[picked].clone();
        if entry.len >= self.preset.length {
            self.kept.swap_remove(picked);
            return 0;
        }
        let Some(commands) = self.commands(&entry) else { return 0 };
        let mut new = 0;
        for command in commands {
            new += usize::from(self.append(&entry, command, picked));
        }
        if self.kept.len() > KEPT_MAX {
            let shortest = (0..self.kept.len()).min_by_key(|at| self.kept[*at].len);
            shortest.map(|shortest| self.kept.swap_remove(shortest));
        }
        new
    }

    /// Grows until there is a workload of the preset's length, and takes it out. What is shorter is returned
    /// if there is nothing more to find.
    pub fn workload(&mut self) -> Vec<Call> {
        let tries = self.preset.length * TRIES_PER_COMMAND;
        for _ in 0..tries {
            if self.longest() >= self.preset.length {
                break;
            }
            self.step();
        }
        let longest = (0..self.kept.len()).max_by_key(|at| self.kept[*at].len);
        let Some(longest) = longest else { return Vec::new() };
        let entry = self.kept.swap_remove(longest);
        calls(&entry)
    }

    /// P1: mostly the longest workload.
    fn pick(&mut self) -> Option<usize> {
        if self.kept.is_empty() {
            return None;
        }
        if self.choices.percent(self.preset.longest_percent) {
            let longest = self.longest();
            let of_it: Vec<usize> =
                (0..self.kept.len()).filter(|at| self.kept[*at].len == longest).collect();
            return Some(*self.choices.pick(&of_it));
        }
        Some(self.choices.index(self.kept.len()))
    }

    /// P2: the kinds that are considered, shuffled; the first one that is possible.
    fn commands(&mut self, entry: &Entry) -> Option<Vec<Command>> {
        let mut kinds: Vec<Kind> = Kind::ALL
            .into_iter()
            .filter(|kind| match (kind, self.preset.percent(*kind)) {
                // Where there is none, workloads are those that they were before there was this command.
                (Kind::Replace, 0) => false,
                (_, percent) => self.choices.percent(percent),
            })
            .collect();
        while !kinds.is_empty() {
            let at = self.choices.index(kinds.len());
            let kind = kinds.swap_remove(at);
            let commands = self.of_kind(kind, entry);
            if !commands.is_empty() {
                return Some(commands);
            }
        }
        None
    }

    /// P3: one of each cluster of the inodes below the working directory; in the random part of a segment,
    /// any one of them.
    fn typical(&mut self, entry: &Entry, wanted: impl Fn(&Graph, NodeId) -> bool) -> Vec<NodeId> {
        let graph = &entry.graph;
        let mut ids = graph.reachable(graph.cwd());
        ids.retain(|id| wanted(graph, *id));
        if ids.is_empty() {
            return ids;
        }
        let segment = (self.preset.random + self.preset.similar).max(1);
        if entry.len % segment < self.preset.random {
            return vec![*self.choices.pick(&ids)];
        }
        typical(graph, &ids, self.preset.clusters, &mut self.choices)
    }

    fn of_kind(&mut self, kind: Kind, entry: &Entry) -> Vec<Command> {
        let graph = &entry.graph;
        let depth_max = self.preset.depth_max;
        let is =
            |of: NodeKind| move |graph: &Graph, id| graph.node(id).is_some_and(|n| n.kind == of);
        let dir = |graph: &Graph, id| is(NodeKind::Dir)(graph, id) && graph.depth(id) < depth_max;
        let new = graph.node_next();
        let mut all: Vec<Command> = match kind {
            Kind::Mkdir | Kind::Create | Kind::Mknod => {
                let dirs = self.typical(entry, dir);
                let make = |dir, name| match kind {
                    Kind::Mkdir => Command::Mkdir { dir, name, new },
                    Kind::Create => Command::Create { dir, name, new },
                    _ => Command::Mknod { dir, name, new },
                };
                dirs.into_iter().map(|dir| make(dir, self.name())).collect()
            }
            Kind::Hardlink | Kind::Symlink | Kind::Rename => self.of_two(kind, entry, dir),
            Kind::Remove => {
                let nodes = self.typical(entry, |_, id| id != ROOT);
                nodes.into_iter().map(|node| Command::Remove { node }).collect()
            }
            Kind::Open if graph.files().len() >= OPEN_MAX => Vec::new(),
            Kind::Open => {
                let files = self.typical(entry, is(NodeKind::File));
                let new = graph.file_next();
                files.into_iter().map(|node| Command::Open { node, new }).collect()
            }
            Kind::Chcwd => {
                // Everything is below the root: from there every directory can be reached again.
                let up = self.choices.percent(50);
                let dirs = if up { vec![ROOT] } else { self.typical(entry, dir) };
                dirs.into_iter().map(|node| Command::Chcwd { node }).collect()
            }
            Kind::Replace => self.replacements(entry),
            Kind::Close | Kind::Read | Kind::Write | Kind::Fsync => self.of_files(kind, entry),
            Kind::Sync => vec![Command::Sync],
            Kind::Remount if !self.remounts => Vec::new(),
            Kind::Remount => vec![Command::Remount],
            Kind::Statfs
            | Kind::ReadXattr
            | Kind::WriteXattr
            | Kind::Deepen
            | Kind::Enlarge
            | Kind::Prune => self.of_one(kind, entry),
        };
        all.retain(|command| graph.allows(command) && self.fits(graph, command));
        all
    }

    /// Whether nothing gets deeper than it may.
    fn fits(&self, graph: &Graph, command: &Command) -> bool {
        match *command {
            Command::Rename { node, dir, .. } => {
                graph.depth(dir) + 1 + graph.height(node) <= self.preset.depth_max
            }
            Command::Replace { node, over } => {
                graph.depth(over) + graph.height(node) <= self.preset.depth_max
            }
            _ => true,
        }
    }

    /// A name that was never used before.
    fn name(&mut self) -> u32 {
        self.name_next += 1;
        self.name_next
    }

    fn of_two(
        &mut self,
        kind: Kind,
        entry: &Entry,
        dir: impl Fn(&Graph, NodeId) -> bool,
    ) -> Vec<Command> {
        let new = entry.graph.node_next();
        let nodes = self.typical(entry, |graph: &Graph, id| {
            let of = graph.node(id).map(|node| node.kind);
            id != ROOT && (kind != Kind::Hardlink || of == Some(NodeKind::File))
        });
        let dirs = self.typical(entry, dir);
        let mut all = Vec::new();
        for &node in &nodes {
            let Some(&dir) = dirs.get(self.choices.index(dirs.len().max(1))) else { break };
            let name = self.name();
            all.push(match kind {
                Kind::Hardlink => Command::Hardlink { node, dir, name },
                Kind::Symlink => Command::Symlink { target: node, dir, name, new },
                _ => Command::Rename { node, dir, name },
            });
        }
        all
    }

    /// For each inode that may move one that it can move over.
    fn replacements(&mut self, entry: &Entry) -> Vec<Command> {
        let nodes = self.typical(entry, |_, id| id != ROOT);
        let mut all = Vec::new();
        for node in nodes {
            let fits = |graph: &Graph, over| graph.allows(&Command::Replace { node, over });
            let over = self.typical(entry, fits);
            if !over.is_empty() {
                all.push(Command::Replace { node, over: *self.choices.pick(&over) });
            }
        }
        all
    }

    fn of_files(&mut self, kind: Kind, entry: &Entry) -> Vec<Command> {
        let files = entry.graph.files();
        if files.is_empty() {
            return Vec::new();
        }
        let (file, _) = *self.choices.pick(files);
        vec![match kind {
            Kind::Close => Command::Close { file },
            Kind::Read => Command::Read { file },
            Kind::Write => Command::Write { file },
            _ => Command::Fsync { file },
        }]
    }

    fn of_one(&mut self, kind: Kind, entry: &Entry) -> Vec<Command> {
        let nodes = self.typical(entry, |graph: &Graph, id| {
            let of = graph.node(id).map(|node| node.kind);
            match kind {
                Kind::Deepen => of == Some(NodeKind::Dir),
                Kind::Statfs => of.is_some(),
                _ => matches!(of, Some(NodeKind::Dir | NodeKind::File)),
            }
        });
        let make = |node| match kind {
            Kind::Statfs => Command::Statfs { node },
            Kind::ReadXattr => Command::ReadXattr { node },
            Kind::WriteXattr => Command::WriteXattr { node },
            Kind::Deepen => Command::Deepen { node },
            Kind::Enlarge => Command::Enlarge { node },
            _ => Command::Prune { node },
        };
        nodes.into_iter().map(make).collect()
    }

    /// Keeps the workload with one more command, if it leads to a new state. A command that does not change the
    /// state makes the workload of that state longer.
    fn append(&mut self, entry: &Entry, command: Command, picked: usize) -> bool {
        let mut graph = entry.graph.clone();
        if !graph.apply(&command) {
            return false;
        }
        let call = Call { command, seed: self.choices.below(u64::MAX), size: None };
        let digest = graph.digest();
        let last = Some(Arc::new(Link { before: entry.last.clone(), call }));
        let longer = Entry { graph, digest, last, len: entry.len + 1 };
        if digest == entry.digest {
            if self.kept.get(picked).is_some_and(|kept| kept.digest == digest) {
                self.kept[picked] = longer;
            }
            return false;
        }
        if self.seen.contains_key(&digest) {
            return false;
        }
        self.seen.insert(digest, longer.len);
        self.kept.push(longer);
        true
    }
}

/// Steps of the search for each command of a workload that it may take.
const TRIES_PER_COMMAND: usize = 40;

/// The commands of a workload, in order.
fn calls(entry: &Entry) -> Vec<Call> {
    let mut all = Vec::with_capacity(entry.len);
    let mut link = entry.last.as_ref();
    while let Some(here) = link {
        all.push(here.call.clone());
        link = here.before.as_ref();
    }
    all.reverse();
    all
}

/// The list is long: dropping it one link after the other needs no stack.
impl Drop for Link {
    fn drop(&mut self) {
        let mut before = self.before.take();
        while let Some(link) = before {
            before = match Arc::try_unwrap(link) {
                Ok(mut link) => link.before.take(),
                Err(_) => None,
            };
        }
    }
}
