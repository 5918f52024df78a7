//! Files and directories that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::finding::Contents;

/// What the names of unfinished files and directories begin with.
const UNFINISHED: &str = ".unfinished-";

/// The name beside `path` under which it is made.
fn unfinished(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(UNFINISHED);
    name.push(path.file_name().unwrap_or_default());
    path.with_file_name(name)
}

/// Writes a file and waits until it is on the disk.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Writes a file of a finding.
fn write_contents(path: &Path, contents: &Contents) -> io::Result<File> {
    let mut file = File::create(path)?;
    match contents {
        Contents::Bytes(bytes) => file.write_all(bytes)?,
        Contents::Sparse { len, parts } => {
            file.set_len(*len)?;
            parts.iter().try_for_each(|(at, bytes)| file.write_all_at(bytes, *at))?;
        }
    }
    Ok(file)
}

/// Writes a file. Whoever reads meanwhile, or after a crash, sees the old file or the new one.
pub(crate) fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = unfinished(path);
    let result = write_durably(&new, bytes).and_then(|()| fs::rename(&new, path));
    if result.is_err() {
        // A half-written file helps nobody; that it may not even exist is no second error.
        let _ = fs::remove_file(&new);
    }
    result
}

/// Makes a directory with files in it. Whoever reads meanwhile sees the old directory, none for a
/// moment, or the new one; never a part of one.
///
/// The error names the file that could not be written.
pub(crate) fn replace_directory(
    path: &Path,
    files: &[(&str, &Contents)],
) -> Result<(), (PathBuf, io::Error)> {
    let new = unfinished(path);
    // Left behind by a run that was killed.
    remove_directory(&new).map_err(|error| (new.clone(), error))?;
    let result = fill(&new, files, Durability::OnDisk).and_then(|()| {
        let at = |error| (path.to_owned(), error);
        remove_directory(path).map_err(at)?;
        fs::rename(&new, path).map_err(at)?;
        sync_directory(path.parent().unwrap_or(Path::new("."))).map_err(at)
    });
    if result.is_err() {
        let _ = remove_directory(&new);
    }
    result
}

/// Makes a directory with files in it that goes away before anybody could miss it: nothing waits for the disk,
/// which others may be using, and a power failure may take it.
///
/// The error names the file that could not be written.
pub(crate) fn make_scratch_directory(
    path: &Path,
    files: &[(&str, &Contents)],
) -> Result<(), (PathBuf, io::Error)> {
    fill(path, files, Durability::Scratch)
}

/// Whether what is written must be there after a power failure.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Yes.
    OnDisk,
    /// No: it is thrown away.
    Scratch,
}

fn fill(
    dir: &Path,
    files: &[(&str, &Contents)],
    durability: Durability,
) -> Result<(), (PathBuf, io::Error)> {
    fs::create_dir_all(dir).map_err(|error| (dir.to_owned(), error))?;
    for (name, contents) in files {
        let path = dir.join(name);
        let above = path.parent().unwrap_or(dir);
        fs::create_dir_all(above)
            .and_then(|()| write_contents(&path, contents))
            .and_then(|file| match durability {
                Durability::OnDisk => file.sync_all(),
                Durability::Scratch => Ok(()),
            })
            .map_err(|error| (path.clone(), error))?;
    }
    match durability {
        Durability::OnDisk => sync_directory(dir).map_err(|error| (dir.to_owned(), error)),
        Durability::Scratch => Ok(()),
    }
}

fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path)?.sync_all()
}
