//! The operations of a workload.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::shadow::{Entry, FILE_BLOCKS_MAX, Path, Tree};

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Makes an empty file.
    Create(Path),
    /// Makes a directory.
    Mkdir(Path),
    /// Opens a file.
    Open(Path),
    /// Closes an open file.
    Close(Path),
    /// Writes blocks of a file; their contents follow from the state.
    Write {
        /// The file.
        path: Path,
        /// The first block.
        place: u8,
        /// Number of blocks.
        blocks: u8,
    },
    /// Cuts a file to length 0.
    Truncate(Path),
    /// Removes a file.
    Remove(Path),
    /// Removes an empty directory.
    Rmdir(Path),
    /// Renames a file or a directory; the target does not exist.
    Move {
        /// The present path.
        from: Path,
        /// The new path.
        to: Path,
    },
    /// Makes a file durable.
    Fsync(Path),
    /// Makes everything durable.
    Sync,
    /// Unmounts and mounts again.
    Remount,
}

impl Call {
    /// The letter of its kind: the operation trace of a state consists of these.
    pub(super) fn letter(&self) -> u8 {
        match self {
            Call::Create(_) => b'c',
            Call::Mkdir(_) => b'd',
            Call::Open(_) => b'o',
            Call::Close(_) => b'l',
            Call::Write { .. } => b'w',
            Call::Truncate(_) => b't',
            Call::Remove(_) => b'r',
            Call::Rmdir(_) => b'x',
            Call::Move { .. } => b'm',
            Call::Fsync(_) => b'f',
            Call::Sync => b's',
            Call::Remount => b'u',
        }
    }

    /// Whether it can be done to a tree at all, whatever the names are.
    pub(super) fn makes_sense(&self, menu: &OperationSet, tree: &Tree) -> bool {
        let is_dir = |path: Path| path == Path::ROOT || tree.get(path).is_some_and(Entry::is_dir);
        let is_file = |path: Path, open: bool| {
            let fits = |entry: &Entry| !entry.is_dir() && (!menu.opens || entry.open == open);
            tree.get(path).is_some_and(fits)
        };
        let is_new = |path: Path| {
            tree.get(path).is_none() && path.split().is_some_and(|(above, _)| is_dir(above))
        };
        match *self {
            Call::Create(path) | Call::Mkdir(path) => tree.has_room() && is_new(path),
            Call::Write { path, place, blocks } => {
                let len = tree.get(path).and_then(|entry| entry.len);
                let end = usize::from(place) + usize::from(blocks);
                len.is_some_and(|len| place <= len) && end <= FILE_BLOCKS_MAX && is_file(path, true)
            }
            Call::Truncate(path) | Call::Fsync(path) => is_file(path, true),
            Call::Remove(path) => is_file(path, false),
            Call::Open(path) => menu.opens && is_file(path, false),
            Call::Close(path) => menu.opens && is_file(path, true),
            Call::Rmdir(path) => {
                tree.get(path).is_some_and(Entry::is_dir) && tree.children(path).next().is_none()
            }
            Call::Move { from, to } => {
                let mut moved = tree.entries().iter().map(|entry| entry.path.moved(&from, &to));
                let fits = moved.all(|path| path.is_some());
                let movable = is_dir(from) || is_file(from, false);
                movable && from != Path::ROOT && is_new(to) && !to.is_below(&from) && fits
            }
            Call::Sync | Call::Remount => true,
        }
    }

    /// Smaller operations that may show the same.
    pub(super) fn simpler(&self) -> Vec<Call> {
        match *self {
            Call::Write { path, place, blocks } => {
                (1..blocks).map(|blocks| Call::Write { path, place, blocks }).collect()
            }
            Call::Remount => vec![Call::Sync],
            _ => Vec::new(),
        }
    }

    /// Changes the shadow as the operation should change the volume. Block `i` of a write holds
    /// `first + i`.
    pub(super) fn apply(&self, tree: &mut Tree, first: u8) {
        match *self {
            Call::Create(path) => drop(tree.add(path, Some(&[]))),
            Call::Mkdir(path) => drop(tree.add(path, None)),
            Call::Open(path) => tree.set_open(path, true),
            Call::Close(path) => tree.set_open(path, false),
            Call::Write { path, place, blocks } => {
                let Some(entry) = tree.get(path) else { return };
                let mut contents = entry.blocks;
                let (place, end) = (usize::from(place), usize::from(place + blocks));
                let held = contents[place..end].iter_mut().zip(first..);
                held.for_each(|(block, content)| *block = content);
                let len = end.max(entry.len.unwrap_or(0).into());
                tree.set(path, &contents[..len]);
            }
            Call::Truncate(path) => tree.set(path, &[]),
            Call::Remove(path) | Call::Rmdir(path) => tree.remove(path),
            Call::Move { from, to } => tree.rename(from, to),
            Call::Remount => tree.close_all(),
            Call::Fsync(_) | Call::Sync => {}
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Create(path) => write!(f, "create({path})"),
            Call::Mkdir(path) => write!(f, "mkdir({path})"),
            Call::Open(path) => write!(f, "open({path})"),
            Call::Close(path) => write!(f, "close({path})"),
            Call::Write { path, place, blocks } => {
                write!(f, "write({path}, blocks {place} to {})", place + blocks - 1)
            }
            Call::Truncate(path) => write!(f, "truncate({path}, 0)"),
            Call::Remove(path) => write!(f, "remove({path})"),
            Call::Rmdir(path) => write!(f, "rmdir({path})"),
            Call::Move { from, to } => write!(f, "move({from}, {to})"),
            Call::Fsync(path) => write!(f, "fsync({path})"),
            Call::Sync => f.write_str("sync()"),
            Call::Remount => f.write_str("unmount(); mount()"),
        }
    }
}

/// The operations that a workload may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationSet {
    /// Greatest number of files and directories together.
    pub entries_max: usize,
    /// Greatest number of levels of directories below the root.
    pub dirs_deep_max: usize,
    /// Number of blocks of one write (an overwrite ends with the file).
    pub write_blocks: u8,
    /// Whether files can be overwritten (otherwise only extended).
    pub overwrite: bool,
    /// Whether files are opened and closed, as in the study (its table 5.2): an open file can be
    /// written, cut and made durable, a closed one moved and removed; a new one is open. Otherwise
    /// everything can be done to every file.
    pub opens: bool,
}

impl Default for OperationSet {
    /// Three files and directories, one level deep, written block by block.
    fn default() -> OperationSet {
        let (entries_max, dirs_deep_max, write_blocks) = (3, 1, 1);
        OperationSet { entries_max, dirs_deep_max, write_blocks, overwrite: true, opens: false }
    }
}

/// Appends everything that can be done to a tree, in a fixed order.
pub(super) fn calls(menu: &OperationSet, tree: &Tree, calls: &mut Vec<Call>) {
    let directories = tree.entries().iter().filter(|entry| entry.is_dir()).map(|dir| dir.path);
    for directory in [Path::ROOT].into_iter().chain(directories) {
        let room = tree.entries().len() < menu.entries_max && tree.has_room();
        if room && let Some(path) = fresh(tree, directory, b'a') {
            calls.push(Call::Create(path));
        }
        if room
            && directory.depth() < menu.dirs_deep_max
            && let Some(path) = fresh(tree, directory, b'A')
        {
            calls.push(Call::Mkdir(path));
        }
    }
    for entry in tree.entries() {
        let path = entry.path;
        match entry.len {
            Some(len) if menu.opens && entry.open => {
                contents_calls(menu, path, len, calls);
                calls.push(Call::Close(path));
                continue;
            }
            Some(_) if menu.opens => calls.extend([Call::Remove(path), Call::Open(path)]),
            Some(len) => {
                contents_calls(menu, path, len, calls);
                calls.push(Call::Remove(path));
            }
            None if tree.children(path).next().is_none() => calls.push(Call::Rmdir(path)),
            None => {}
        }
        moves(menu, tree, path, entry.is_dir(), calls);
    }
    calls.extend([Call::Sync, Call::Remount]);
}

fn contents_calls(menu: &OperationSet, path: Path, len: u8, calls: &mut Vec<Call>) {
    let blocks = menu.write_blocks;
    if menu.overwrite && len > 0 {
        calls.push(Call::Write { path, place: 0, blocks: blocks.min(len) });
    }
    if usize::from(len + blocks) <= FILE_BLOCKS_MAX {
        calls.push(Call::Write { path, place: len, blocks });
    }
    if len > 0 {
        calls.push(Call::Truncate(path));
    }
    calls.push(Call::Fsync(path));
}

/// Appends the moves to a new name in the same directory, and to every other directory.
fn moves(menu: &OperationSet, tree: &Tree, from: Path, is_dir: bool, calls: &mut Vec<Call>) {
    let directories = tree.entries().iter().filter(|entry| entry.is_dir()).map(|dir| dir.path);
    for directory in [Path::ROOT].into_iter().chain(directories) {
        let into_itself = directory == from || directory.is_below(&from);
        let height = tree.entries().iter().filter(|e| e.path.is_below(&from));
        let height = height.map(|e| e.path.depth() - from.depth()).max().unwrap_or(0);
        let deep_max = menu.dirs_deep_max + usize::from(!is_dir);
        if into_itself || directory.depth() + 1 + height > deep_max.max(1) {
            continue;
        }
        if let Some(to) = fresh(tree, directory, if is_dir { b'A' } else { b'a' }) {
            calls.push(Call::Move { from, to });
        }
    }
}

/// Finds the first unused name of a directory.
fn fresh(tree: &Tree, directory: Path, first: u8) -> Option<Path> {
    let unused = |path: &Path| tree.get(*path).is_none();
    (first..first + 26).map_while(|name| directory.join(name)).find(unused)
}
