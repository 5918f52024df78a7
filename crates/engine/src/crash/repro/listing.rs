//! What a state shows, each object on a line: what a reproducer can find out without Fathom, and
//! compare.

use fathom_core::{DataSum, Entry, FsPath, Kind, Subject, Tree};
use fathom_model::Model;

use crate::crash::promise::Contents;

/// The contents of a file in a state of the reference.
fn bytes(model: &Model, path: &FsPath, size: u64) -> Vec<u8> {
    let volume = model.volume();
    let mut bytes = Vec::new();
    if let Some(ino) = volume.find(path, false) {
        // What cannot be read is empty, which no sum but that of nothing equals.
        let _ = volume.read(ino, 0, size as usize, &mut bytes);
    }
    bytes
}

/// FNV-1a: three lines in every language.
fn fnv(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

fn entries(tree: &Tree) -> impl Iterator<Item = (&FsPath, &Entry)> {
    tree.entries.iter().filter(|(path, _)| path.as_bytes() != b".")
}

/// A state of a library: names, kinds, sizes and contents, in the order of the lines.
pub(in crate::crash) fn plain(model: &Model) -> Vec<String> {
    let tree = model.clone().observe().unwrap_or_default();
    let line = |(path, entry): (&FsPath, &Entry)| match entry.kind {
        Kind::Dir => format!("/{path}/"),
        _ => format!("/{path} {} {:016x}", entry.size, fnv(&bytes(model, path, entry.size))),
    };
    let mut lines: Vec<String> = entries(&tree).map(line).collect();
    lines.sort();
    lines
}

/// One object of a kernel file system. Sizes and link counts of directories are the file system's own
/// business.
fn whole_line(path: &FsPath, entry: &Entry, sum: Option<DataSum>) -> String {
    let (mode, nlink) = (entry.mode.0 & 0o7777, entry.nlink);
    match entry.kind {
        Kind::Dir => format!("d {mode:o} {path}"),
        Kind::Symlink => format!("l {} {path}", entry.target),
        Kind::File => {
            let sum = sum.map_or_else(|| "unreadable".to_owned(), |sum| sum.to_string());
            format!("f {mode:o} {nlink} {} {sum} {path}", entry.size)
        }
        _ => format!("o {mode:o} {nlink} {path}"),
    }
}

/// A state of a kernel file system: attributes as well.
pub(in crate::crash) fn whole(model: &Model) -> Vec<String> {
    let tree = model.clone().observe().unwrap_or_default();
    let line = |(path, entry): (&FsPath, &Entry)| {
        let sum = DataSum::of(&bytes(model, path, entry.size));
        whole_line(path, entry, Some(sum))
    };
    entries(&tree).map(line).collect()
}

/// What was found on a disk of a kernel file system.
pub(in crate::crash) fn found(tree: &Tree, contents: &mut dyn Contents) -> Vec<String> {
    let line = |(path, entry): (&FsPath, &Entry)| {
        let sum = match (entry.kind, entry.size) {
            (Kind::File, 0) => Some(DataSum::of(b"")),
            (Kind::File, size) => contents.sum(path, 0, size),
            _ => None,
        };
        whole_line(path, entry, sum)
    };
    entries(tree).map(line).collect()
}
