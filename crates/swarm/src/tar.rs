//! Tar archives (POSIX ustar). Those that are written follow from their contents: sorted, owned by root, of no
//! time. Those that are read come from machines that nobody trusts.

use std::collections::BTreeMap;
use std::io::{self, Write};

/// An entry of an archive.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    mode: u32,
    /// None: a folder.
    bytes: Option<Vec<u8>>,
}

impl Entry {
    pub(crate) fn file(mode: u32, bytes: Vec<u8>) -> Entry {
        Entry { mode, bytes: Some(bytes) }
    }

    pub(crate) fn folder(mode: u32) -> Entry {
        Entry { mode, bytes: None }
    }
}

const BLOCK: usize = 512;

/// The archive.
pub(crate) fn archive(entries: BTreeMap<String, Entry>) -> Vec<u8> {
    let mut archive = Vec::new();
    let write = |archive: &mut Vec<u8>| -> io::Result<()> {
        for (path, entry) in &entries {
            append(archive, path, entry.mode, entry.bytes.as_deref())?;
        }
        finish(archive)
    };
    write(&mut archive).expect("memory takes everything");
    archive
}

/// Writes one entry; without bytes it is a folder.
pub(crate) fn append(
    to: &mut impl Write,
    path: &str,
    mode: u32,
    bytes: Option<&[u8]>,
) -> io::Result<()> {
    let is_folder = bytes.is_none();
    let bytes = bytes.unwrap_or_default();
    to.write_all(&header(path, mode, is_folder, bytes.len()))?;
    to.write_all(bytes)?;
    to.write_all(&[0; BLOCK][..bytes.len().next_multiple_of(BLOCK) - bytes.len()])
}

/// Writes the end of an archive: two empty blocks.
pub(crate) fn finish(to: &mut impl Write) -> io::Result<()> {
    to.write_all(&[0; 2 * BLOCK])
}

/// Receives an entry of an archive: its path, and its bytes if it is a file. A reason refuses the archive.
pub(crate) type Visit<'a> = dyn FnMut(&str, Option<&[u8]>) -> Result<(), String> + 'a;

/// Calls `visit` with every entry.
///
/// # Errors
/// If it is no whole archive of files and folders, or `visit` refuses an entry.
pub(crate) fn read(archive: &[u8], visit: &mut Visit<'_>) -> Result<(), String> {
    let mut rest = archive;
    loop {
        let (header, behind) = rest.split_at_checked(BLOCK).ok_or("it is cut off")?;
        if header.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        if !is_whole(header) {
            return Err("an entry of it is damaged".to_owned());
        }
        let size = octal(&header[124..136]).ok_or("an entry of it has no size")? as usize;
        let padded = size.checked_next_multiple_of(BLOCK).ok_or("an entry of it is too large")?;
        let (padded, behind) = behind.split_at_checked(padded).ok_or("it is cut off")?;
        let (prefix, name) = (text(&header[345..500])?, text(&header[..100])?);
        let path = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
        match header[156] {
            b'0' => visit(&path, Some(&padded[..size]))?,
            b'5' => visit(path.trim_end_matches('/'), None)?,
            _ => return Err(format!("{path:?} is neither a file nor a folder")),
        }
        rest = behind;
    }
}

/// Whether the sum of a header is the one that it names.
fn is_whole(header: &[u8]) -> bool {
    let sum = |range: &[u8]| range.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    // The sum itself counts as spaces.
    let found = sum(&header[..148]) + 8 * u64::from(b' ') + sum(&header[156..]);
    octal(&header[148..156]) == Some(found)
}

fn octal(field: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(field).ok()?.trim_end_matches(['\0', ' ']);
    u64::from_str_radix(digits, 8).ok()
}

fn text(field: &[u8]) -> Result<&str, String> {
    let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..end]).map_err(|_| "a name in it is no text".to_owned())
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
