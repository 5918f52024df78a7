//! The syntax: makes system calls of commands. What the layers above do not care for is chosen here, mostly the
//! usual value, sometimes any (the distributions of the paper's tool).

use std::collections::BTreeMap;

use fathom_core::flags::{OpenFlags, RenameFlags, XattrFlags};
use fathom_core::{FsBytes, FsPath, Mode, Op, Pattern, Slot, Target};

use super::Call;
use super::core::{Command, FileId, Graph, Name, NodeId, NodeKind, ROOT};
use super::preset::Preset;
use crate::choice::Choices;

/// The slot of files that are only made.
const MAKING: Slot = 255;

/// Slots of open files.
const SLOTS: Slot = 128;

/// The unit of reads and writes.
const BLOCK_BYTES: u64 = 4096;

/// A path may have so many bytes (`PATH_MAX` without the end).
const PATH_BYTES_MAX: usize = 4000;

/// The flags of `open` that are set now and then.
const FLAGS: [OpenFlags; 8] = [
    OpenFlags::O_APPEND,
    OpenFlags::O_TRUNC,
    OpenFlags::O_SYNC,
    OpenFlags::O_DSYNC,
    OpenFlags::O_NOATIME,
    OpenFlags::O_NONBLOCK,
    OpenFlags::O_CLOEXEC,
    OpenFlags::O_NOFOLLOW,
];

/// What a command has made below a directory that is not in the graph.
#[derive(Clone, Debug)]
enum Extra {
    /// Directories with numbers, side by side.
    Wide { id: u64, count: u64 },
    /// Directories below each other.
    Deep { id: u64, count: u64, letters: u64 },
}

/// Makes calls of the commands of one workload, in order.
#[derive(Clone, Debug)]
pub struct Refiner {
    preset: Preset,
    graph: Graph,
    extras: BTreeMap<NodeId, Vec<Extra>>,
    extra_next: u64,
    slots: BTreeMap<FileId, Slot>,
    patterns: u64,
    devices: bool,
}

impl Refiner {
    /// Starts with an empty file system; without `devices` special files are FIFOs.
    pub fn new(preset: &Preset, devices: bool) -> Refiner {
        Refiner {
            preset: preset.clone(),
            graph: Graph::default(),
            extras: BTreeMap::new(),
            extra_next: 0,
            slots: BTreeMap::new(),
            patterns: 0,
            devices,
        }
    }

    /// The abstract file system after the commands so far.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// All calls of a workload.
    pub fn ops(preset: &Preset, devices: bool, calls: &[Call]) -> Vec<Op> {
        let mut refiner = Refiner::new(preset, devices);
        calls.iter().flat_map(|call| refiner.refine(call)).collect()
    }

    /// The calls of the next command; none if what it needs is not there.
    pub fn refine(&mut self, call: &Call) -> Vec<Op> {
        if !self.graph.allows(&call.command) {
            return Vec::new();
        }
        let mut choices = Choices::new(call.seed);
        let ops = self.calls(call, &mut choices);
        self.graph.apply(&call.command);
        ops
    }

    fn calls(&mut self, call: &Call, choices: &mut Choices) -> Vec<Op> {
        let below = |dir: &FsPath, name: Name| dir.join(&self.name(name));
        match call.command {
            Command::Mkdir { dir, name, .. } => {
                vec![Op::Mkdir { path: below(&self.path(dir), name), mode: self.mode(choices) }]
            }
            Command::Create { dir, name, .. } => {
                let path = below(&self.path(dir), name);
                let flags = OpenFlags::O_CREAT | OpenFlags::O_WRONLY | OpenFlags::O_TRUNC;
                let mode = self.mode(choices);
                vec![Op::Open { slot: MAKING, path, flags, mode }, Op::Close { slot: MAKING }]
            }
            Command::Mknod { dir, name, .. } => {
                let path = below(&self.path(dir), name);
                vec![self.mknod(path, choices)]
            }
            Command::Hardlink { node, dir, name } => {
                let (from, to) = (self.path(node), below(&self.path(dir), name));
                vec![Op::Link { from, to, follow: false }]
            }
            Command::Symlink { target, dir, name, .. } => {
                let (path, target) = (below(&self.path(dir), name), self.target(target, dir));
                vec![Op::Symlink { target, path }]
            }
            Command::Rename { node, dir, name } => {
                let (from, to) = (self.path(node), below(&self.path(dir), name));
                let other = choices.percent(self.preset.other_percent);
                let flags =
                    if other { RenameFlags::RENAME_NOREPLACE } else { RenameFlags::empty() };
                vec![Op::Rename { from, to, flags }]
            }
            Command::Replace { node, over } => {
                let (from, to) = (self.path(node), self.path(over));
                vec![Op::Rename { from, to, flags: RenameFlags::empty() }]
            }
            Command::Remove { node } => self.removal(node),
            Command::Open { node, new } => self.open(node, new, choices),
            Command::Close { file } => {
                self.slots.remove(&file).map(|slot| Op::Close { slot }).into_iter().collect()
            }
            // No operation changes the working directory: it only decides what is named next.
            Command::Chcwd { .. } => Vec::new(),
            Command::Prune { node } => self.prune(node),
            Command::Deepen { node } => self.deepen(node, call, choices),
            Command::Enlarge { node } => self.enlarge(node, call, choices),
            _ => self.small(call, choices),
        }
    }

    /// The commands of the extension that are one call.
    fn small(&mut self, call: &Call, choices: &mut Choices) -> Vec<Op> {
        let blocks = 1 + choices.below(self.preset.blocks_max);
        let len = BLOCK_BYTES * call.size.unwrap_or(blocks);
        let slot = |file: &FileId| self.slots.get(file).copied();
        match &call.command {
            Command::Read { file } => slot(file).map(|slot| Op::Read { slot, len }),
            Command::Write { file } => slot(file).map(|slot| {
                self.patterns += 1;
                Op::Write { slot, data: Pattern { seed: self.patterns, len } }
            }),
            Command::Fsync { file } => slot(file).map(|slot| Op::Fsync { slot }),
            Command::Sync => Some(Op::Sync),
            Command::Remount => {
                self.slots.clear();
                Some(Op::Remount)
            }
            Command::Statfs { node } => Some(Op::Statfs { target: Target::Path(self.path(*node)) }),
            Command::ReadXattr { node } => Some(Op::Getxattr {
                target: Target::Path(self.path(*node)),
                name: key(choices),
                len: 1 << choices.below(13),
            }),
            Command::WriteXattr { node } => Some(Op::Setxattr {
                target: Target::Path(self.path(*node)),
                name: key(choices),
                value: Pattern { seed: choices.below(99), len: choices.below(64) },
                flags: self.xattr_flags(choices),
            }),
            _ => None,
        }
        .into_iter()
        .collect()
    }

    /// Its path from the root.
    fn path(&self, id: NodeId) -> FsPath {
        match self.graph.node(id).and_then(|node| node.links.first().copied()) {
            Some((dir, name)) => self.path(dir).join(&self.name(name)),
            None => FsPath::from("."),
        }
    }

    fn name(&self, name: Name) -> Vec<u8> {
        if let Some(given) = self.preset.names.get(&name) {
            return given.clone().into_bytes();
        }
        let letters = match self.preset.letters_max {
            0 => 0,
            max => fathom_core::pattern::word(7, u64::from(name)) % max,
        };
        let letter = |at: u64| b'a' + (fathom_core::pattern::word(u64::from(name), at) % 26) as u8;
        let mut text: Vec<u8> = (0..letters).map(letter).collect();
        text.extend(format!("n{name}").into_bytes());
        text
    }

    /// Mostly 0775; otherwise one that still lets the owner in.
    fn mode(&self, choices: &mut Choices) -> Mode {
        match choices.percent(self.preset.other_percent) {
            true => Mode(0o700 | choices.below(0o10000) as u32),
            false => Mode(0o775),
        }
    }

    /// Mostly none: the attribute is there afterwards, whether it was or not.
    fn xattr_flags(&self, choices: &mut Choices) -> XattrFlags {
        match choices.percent(self.preset.other_percent) {
            true => *choices.pick(&[XattrFlags::XATTR_CREATE, XattrFlags::XATTR_REPLACE]),
            false => XattrFlags::empty(),
        }
    }

    fn mknod(&self, path: FsPath, choices: &mut Choices) -> Op {
        let kinds: &[u32] = match self.devices {
            true => &[Mode::S_IFIFO, Mode::S_IFCHR, Mode::S_IFBLK, Mode::S_IFSOCK],
            false => &[Mode::S_IFIFO],
        };
        let mode = Mode(*choices.pick(kinds) | self.mode(choices).0);
        Op::Mknod { path, mode, dev: (240 + choices.below(4) as u32, choices.below(9) as u32) }
    }

    /// What a symbolic link in `dir` says: the way to its target where that goes down, otherwise a name that
    /// leads nowhere. No link leads out of the file system under test, wherever it is moved.
    fn target(&self, target: NodeId, dir: NodeId) -> FsBytes {
        let (to, from) = (self.path(target), self.path(dir));
        if dir == ROOT && target != ROOT {
            return to;
        }
        let rest = to.as_bytes().strip_prefix(from.as_bytes());
        match rest.and_then(|rest| rest.strip_prefix(b"/")) {
            Some(rest) if !rest.is_empty() => FsBytes::from(rest),
            _ => FsBytes::from(to.file_name()),
        }
    }

    fn open(&mut self, node: NodeId, new: FileId, choices: &mut Choices) -> Vec<Op> {
        let taken = |slot: &Slot| self.slots.values().any(|taken| taken == slot);
        let Some(slot) = (0..SLOTS).find(|slot| !taken(slot)) else { return Vec::new() };
        let mut flags = OpenFlags::O_RDWR;
        for flag in FLAGS {
            if choices.percent(self.preset.flag_percent) {
                flags |= flag;
            }
        }
        self.slots.insert(new, slot);
        vec![Op::Open { slot, path: self.path(node), flags, mode: Mode(0o644) }]
    }

    /// How much a command makes: what the call says, or what its seed gives.
    fn size(&self, call: &Call, max: u64, choices: &mut Choices) -> u64 {
        let drawn = 1 + choices.below(max.max(1));
        call.size.unwrap_or(drawn).max(1)
    }

    fn deepen(&mut self, node: NodeId, call: &Call, choices: &mut Choices) -> Vec<Op> {
        let path = self.path(node);
        let letters = self.preset.level_letters.max(1);
        let room = PATH_BYTES_MAX.saturating_sub(path.as_bytes().len()) as u64 / (letters + 1);
        let count = self.size(call, self.preset.deepen_max, choices).min(room);
        let (id, mode) = (self.next_extra(), self.mode(choices));
        self.extras.entry(node).or_default().push(Extra::Deep { id, count, letters });
        deep(&path, id, count, letters).into_iter().map(|path| Op::Mkdir { path, mode }).collect()
    }

    fn enlarge(&mut self, node: NodeId, call: &Call, choices: &mut Choices) -> Vec<Op> {
        let path = self.path(node);
        let count = self.size(call, self.preset.enlarge_max, choices);
        let id = self.next_extra();
        if self.graph.node(node).is_some_and(|node| node.kind == NodeKind::File) {
            let len = (count * BLOCK_BYTES) as i64;
            return vec![Op::Truncate { target: Target::Path(path), len }];
        }
        let mode = self.mode(choices);
        self.extras.entry(node).or_default().push(Extra::Wide { id, count });
        wide(&path, id, count).into_iter().map(|path| Op::Mkdir { path, mode }).collect()
    }

    fn next_extra(&mut self) -> u64 {
        self.extra_next += 1;
        self.extra_next
    }

    fn prune(&mut self, node: NodeId) -> Vec<Op> {
        let is_file = self.graph.node(node).is_some_and(|node| node.kind == NodeKind::File);
        if is_file {
            return vec![Op::Truncate { target: Target::Path(self.path(node)), len: 0 }];
        }
        self.emptying(node, &self.path(node))
    }

    fn removal(&mut self, node: NodeId) -> Vec<Op> {
        self.removing(node, &self.path(node))
    }

    /// Removes one name, and everything below it first.
    fn removing(&mut self, node: NodeId, path: &FsPath) -> Vec<Op> {
        let is_dir = self.graph.node(node).is_some_and(|node| node.kind == NodeKind::Dir);
        if !is_dir {
            return vec![Op::Unlink { path: path.clone() }];
        }
        let mut ops = self.emptying(node, path);
        ops.push(Op::Rmdir { path: path.clone() });
        ops
    }

    fn emptying(&mut self, node: NodeId, path: &FsPath) -> Vec<Op> {
        let mut ops = Vec::new();
        for extra in self.extras.remove(&node).unwrap_or_default() {
            let mut paths = match extra {
                Extra::Wide { id, count } => wide(path, id, count),
                Extra::Deep { id, count, letters } => deep(path, id, count, letters),
            };
            paths.reverse();
            ops.extend(paths.into_iter().map(|path| Op::Rmdir { path }));
        }
        let entries = self.graph.node(node).map(|node| node.entries.clone()).unwrap_or_default();
        for (name, child) in entries {
            let path = path.join(&self.name(name));
            ops.extend(self.removing(child, &path));
        }
        ops
    }
}

fn key(choices: &mut Choices) -> FsBytes {
    FsBytes::from(*choices.pick(&["user.a", "user.b", "user.long-name-of-an-attribute"]))
}

/// The paths of directories side by side.
fn wide(path: &FsPath, id: u64, count: u64) -> Vec<FsPath> {
    (0..count).map(|number| path.join(format!("w{id}-{number}").as_bytes())).collect()
}

/// The paths of directories below each other.
fn deep(path: &FsPath, id: u64, count: u64, letters: u64) -> Vec<FsPath> {
    let level = "p".repeat(letters as usize);
    let mut paths = Vec::new();
    let mut here = path.join(format!("p{id}").as_bytes());
    for _ in 0..count {
        paths.push(here.clone());
        here = here.join(level.as_bytes());
    }
    paths
}
