//! The tree that a volume should show: paths, lengths, contents. No code of any design is used here.

use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Greatest number of blocks of a file.
pub const FILE_BLOCKS_MAX: usize = 8;
/// Greatest number of levels of a path.
const DEPTH_MAX: usize = 4;
/// Greatest number of entries of a tree.
const ENTRIES_MAX: usize = 12;

/// A path: up to four names of one byte.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path([u8; DEPTH_MAX]);

impl Path {
    /// The root.
    pub const ROOT: Path = Path([0; DEPTH_MAX]);

    /// Makes the path of these names; the first 0 ends it.
    pub fn of(names: [u8; DEPTH_MAX]) -> Path {
        let mut path = Path(names);
        let depth = path.depth();
        path.0[depth..].fill(0);
        path
    }

    /// Its names, and zeros up to the deepest level, to be stored.
    pub fn bytes(&self) -> [u8; DEPTH_MAX] {
        self.0
    }

    /// The names from the root on.
    pub fn names(&self) -> &[u8] {
        &self.0[..self.depth()]
    }

    /// Number of names.
    pub fn depth(&self) -> usize {
        self.0.iter().position(|name| *name == 0).unwrap_or(DEPTH_MAX)
    }

    /// The path of an entry of this directory; none if it would be too deep.
    pub fn join(mut self, name: u8) -> Option<Path> {
        let place = self.depth();
        *self.0.get_mut(place)? = name;
        Some(self)
    }

    /// The directory that holds it, and its name; none for the root.
    pub fn split(mut self) -> Option<(Path, u8)> {
        let place = self.depth().checked_sub(1)?;
        let name = std::mem::take(&mut self.0[place]);
        Some((self, name))
    }

    /// Whether it lies below a directory.
    pub fn is_below(&self, directory: &Path) -> bool {
        self.depth() > directory.depth() && self.names().starts_with(directory.names())
    }

    /// The path after `from` has been renamed to `to`; none if it would be too deep.
    pub fn moved(&self, from: &Path, to: &Path) -> Option<Path> {
        if self != from && !self.is_below(from) {
            return Some(*self);
        }
        self.names()[from.depth()..].iter().try_fold(*to, |path, name| path.join(*name))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.depth() == 0 {
            return f.write_str("/");
        }
        self.names().iter().try_for_each(|name| write!(f, "/{}", char::from(*name)))
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Path {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Path, D::Error> {
        let text = String::deserialize(deserializer)?;
        let names = text.split('/').filter(|name| !name.is_empty());
        let path = names.into_iter().try_fold(Path::ROOT, |path, name| match name.as_bytes() {
            [name] if name.is_ascii_alphabetic() => path.join(*name),
            _ => None,
        });
        path.ok_or_else(|| D::Error::custom(format!("{text:?} is no path: write /A/a")))
    }
}

/// A file or a directory.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its path.
    pub path: Path,
    /// The identity of a file, whatever its name. Not visible: it does not count in comparisons.
    pub(super) id: u8,
    /// Whether it is an open file. Does not count in comparisons either.
    pub(super) open: bool,
    /// Number of blocks of a file; none for a directory.
    pub len: Option<u8>,
    /// The contents of each block; 0 beyond the end.
    pub blocks: [u8; FILE_BLOCKS_MAX],
}

impl Entry {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.len.is_none()
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        (self.path, self.len, self.blocks) == (other.path, other.len, other.blocks)
    }
}

impl Eq for Entry {}

/// Everything that is visible, sorted by path. The root is not listed.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Tree {
    entries: [Entry; ENTRIES_MAX],
    count: usize,
}

const BLANK: Entry =
    Entry { path: Path::ROOT, id: 0, open: false, len: None, blocks: [0; FILE_BLOCKS_MAX] };

impl PartialEq for Tree {
    fn eq(&self, other: &Tree) -> bool {
        self.entries() == other.entries()
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.count == 0 {
            return f.write_str("nothing");
        }
        for (index, entry) in self.entries().iter().enumerate() {
            let gap = if index == 0 { "" } else { ", " };
            match entry.len {
                None => write!(f, "{gap}{}/", entry.path)?,
                Some(len) => {
                    write!(f, "{gap}{} {:?}", entry.path, &entry.blocks[..usize::from(len)])?;
                }
            }
        }
        Ok(())
    }
}

impl Default for Tree {
    fn default() -> Tree {
        Tree { entries: [BLANK; ENTRIES_MAX], count: 0 }
    }
}

impl Tree {
    /// All entries, in the order of their paths.
    pub fn entries(&self) -> &[Entry] {
        &self.entries[..self.count]
    }

    /// Whether another entry fits.
    pub fn has_room(&self) -> bool {
        self.count < ENTRIES_MAX
    }

    /// The entry with a path.
    pub fn get(&self, path: Path) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.path == path)
    }

    fn get_mut(&mut self, path: Path) -> Option<&mut Entry> {
        self.entries[..self.count].iter_mut().find(|entry| entry.path == path)
    }

    /// The entries of a directory.
    pub fn children(&self, directory: Path) -> impl Iterator<Item = &Entry> {
        let depth = directory.depth() + 1;
        let within =
            move |entry: &&Entry| entry.path.depth() == depth && entry.path.is_below(&directory);
        self.entries().iter().filter(within)
    }

    /// Adds a file (its contents) or a directory (none); returns false if there is no room.
    pub fn add(&mut self, path: Path, contents: Option<&[u8]>) -> bool {
        let Some(place) = self.entries.get_mut(self.count) else { return false };
        let mut blocks = [0; FILE_BLOCKS_MAX];
        if let Some(contents) = contents {
            let Some(held) = blocks.get_mut(..contents.len()) else { return false };
            held.copy_from_slice(contents);
        }
        let len = contents.map(|contents| contents.len() as u8);
        *place = Entry { path, len, blocks, ..BLANK };
        self.count += 1;
        self.sort();
        true
    }

    /// Sets the identity of an entry.
    pub(super) fn identify(&mut self, path: Path, id: u8) {
        if let Some(entry) = self.get_mut(path) {
            entry.id = id;
        }
    }

    /// Opens or closes a file.
    pub(super) fn set_open(&mut self, path: Path, open: bool) {
        if let Some(entry) = self.get_mut(path) {
            entry.open = open;
        }
    }

    /// Closes all files: the volume is not mounted any more.
    pub(super) fn close_all(&mut self) {
        self.entries[..self.count].iter_mut().for_each(|entry| entry.open = false);
    }

    /// Gives a file the contents of an entry of another tree, whatever its path is here; returns
    /// false if it is not here.
    pub(super) fn copy_contents(&mut self, of: &Entry) -> bool {
        let found = self.entries[..self.count].iter_mut().find(|e| e.id == of.id && !e.is_dir());
        if let Some(entry) = found {
            (entry.len, entry.blocks) = (of.len, of.blocks);
            return true;
        }
        false
    }

    /// Sets the contents of a file.
    pub(super) fn set(&mut self, path: Path, contents: &[u8]) {
        if let Some(entry) = self.get_mut(path) {
            entry.len = Some(contents.len() as u8);
            entry.blocks = [0; FILE_BLOCKS_MAX];
            entry.blocks[..contents.len()].copy_from_slice(contents);
        }
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, path: Path) {
        if let Some(index) = self.entries().iter().position(|entry| entry.path == path) {
            self.entries.copy_within(index + 1..self.count, index);
            self.count -= 1;
            self.entries[self.count] = BLANK;
        }
    }

    /// Renames an entry and everything below it.
    pub(super) fn rename(&mut self, from: Path, to: Path) {
        for entry in &mut self.entries[..self.count] {
            entry.path = entry.path.moved(&from, &to).expect("depth was checked");
        }
        self.sort();
    }

    fn sort(&mut self) {
        self.entries[..self.count].sort_unstable_by_key(|entry| entry.path);
    }

    /// Describes in one line what another tree has differently.
    pub fn difference(&self, found: &Tree) -> String {
        let text = |entry: Option<&Entry>| match entry {
            None => "nothing".to_owned(),
            Some(Entry { len: None, .. }) => "a directory".to_owned(),
            Some(Entry { len: Some(len), blocks, .. }) => {
                format!("a file holding {:?}", &blocks[..usize::from(*len)])
            }
        };
        let mut paths: Vec<Path> = self.entries().iter().map(|entry| entry.path).collect();
        paths.extend(found.entries().iter().map(|entry| entry.path));
        paths.sort_unstable();
        let differs = |path: &Path| self.get(*path) != found.get(*path);
        match paths.into_iter().find(differs) {
            None => "no difference".to_owned(),
            Some(path) => {
                let (was, is) = (text(self.get(path)), text(found.get(path)));
                format!("{path}: expected {was}, found {is}")
            }
        }
    }
}
