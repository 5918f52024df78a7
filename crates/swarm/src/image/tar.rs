//! A tar archive (POSIX ustar) whose bytes follow from its contents: sorted, owned by root, of no time.

use std::collections::BTreeMap;

/// An entry of an archive.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    mode: u32,
    /// None: a folder.
    bytes: Option<Vec<u8>>,
}

impl Entry {
    pub(super) fn file(mode: u32, bytes: Vec<u8>) -> Entry {
        Entry { mode, bytes: Some(bytes) }
    }

    pub(super) fn folder(mode: u32) -> Entry {
        Entry { mode, bytes: None }
    }
}

const BLOCK: usize = 512;

/// The archive.
pub(super) fn archive(entries: BTreeMap<String, Entry>) -> Vec<u8> {
    let mut archive = Vec::new();
    for (path, entry) in entries {
        let bytes = entry.bytes.as_deref().unwrap_or_default();
        archive.extend_from_slice(&header(&path, entry.mode, entry.bytes.is_none(), bytes.len()));
        archive.extend_from_slice(bytes);
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    // Two empty blocks are the end.
    archive.resize(archive.len() + 2 * BLOCK, 0);
    archive
}

fn header(path: &str, mode: u32, is_folder: bool, size: usize) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let path = if is_folder { format!("{path}/") } else { path.to_owned() };
    // A name of more than 100 bytes is split at a slash.
    let split = (path.len() > 100).then(|| {
        let at = path.char_indices().filter(|(at, c)| *c == '/' && path.len() - at <= 101);
        at.map(|(at, _)| at).find(|at| *at <= 155 && *at + 1 < path.len())
    });
    let (prefix, name) = match split.flatten() {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => ("", path.as_str()),
    };
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, &name.as_bytes()[..name.len().min(100)]);
    put(100, format!("{mode:07o}\0").as_bytes());
    put(108, b"0000000\x000000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, if is_folder { b"5" } else { b"0" });
    put(257, b"ustar\x0000");
    put(345, prefix.as_bytes());
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header
}
