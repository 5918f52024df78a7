//! Reads what others have written, without trusting any of it.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use fathom_record::Run;
use fathom_record::run::FILE;
use twox_hash::XxHash3_128;

use super::Refused;

/// A `run.json` with thousands of findings is far smaller.
const RUN_BYTES_MAX: u64 = 64 << 20;
/// A coverage report has some hundred kilobytes.
pub(super) const COVERAGE_BYTES_MAX: u64 = 16 << 20;
/// A sketch has 32 KiB and a name.
pub(super) const STATES_BYTES_MAX: u64 = 64 << 10;
/// A record of a finding, without its evidence.
pub(super) const FINDING_BYTES_MAX: u64 = 8 << 20;
/// Findings of one run that are looked at.
pub(super) const FINDINGS_MAX: usize = 10_000;
/// Names of counts that are kept.
pub(super) const COUNTS_MAX: usize = 64;
/// Names of programs and subjects that are kept.
const NAMES_MAX: usize = 256;
/// Directories below a given one that are looked into: tasks, a task, an attempt.
const DEPTH_MAX: usize = 4;

/// Calls `visit` with every directory that has a `run.json`, each once.
pub(super) fn each_run(directories: &[PathBuf], visit: &mut dyn FnMut(Result<PathBuf, Refused>)) {
    let mut seen = BTreeSet::new();
    for directory in directories {
        match fs::canonicalize(directory) {
            Ok(path) => look(&path, DEPTH_MAX, &mut seen, visit),
            Err(error) => visit(Err(refused(directory, &error.to_string()))),
        }
    }
}

fn look(
    path: &Path,
    depth: usize,
    seen: &mut BTreeSet<u128>,
    visit: &mut dyn FnMut(Result<PathBuf, Refused>),
) {
    // What matters is the place; the text may be long, and there may be many.
    if !seen.insert(XxHash3_128::oneshot(path.as_os_str().as_encoded_bytes())) {
        return;
    }
    let has_run = fs::symlink_metadata(path.join(FILE)).is_ok();
    let is_united = has_run && path.join(super::write::MARK).exists();
    if has_run && !is_united {
        visit(Ok(path.to_owned()));
        return;
    }
    if is_united || depth == 0 {
        return;
    }
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return visit(Err(refused(path, &error.to_string()))),
    };
    for entry in entries.flatten() {
        // Links lead anywhere; what is below is only looked at as what it is.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            look(&entry.path(), depth - 1, seen, visit);
        }
    }
}

/// Reads a file of bounded size; none if there is none. Links, pipes and devices are refused.
pub(crate) fn read_small(path: &Path, bytes_max: u64) -> Result<Option<Vec<u8>>, Refused> {
    // Opening a pipe would wait for its writer.
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(refused(path, &error.to_string())),
    };
    let say = |error: std::io::Error| refused(path, &error.to_string());
    if !file.metadata().map_err(say)?.is_file() {
        return Err(refused(path, "it is no file"));
    }
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes).map_err(say)?;
    if bytes.len() as u64 > bytes_max {
        return Err(refused(path, &format!("it is larger than {bytes_max} bytes")));
    }
    Ok(Some(bytes))
}

/// Reads the `run.json` of a directory, with a digest of it.
pub(crate) fn read_run(directory: &Path) -> Result<(Run, u128), Refused> {
    let path = directory.join(FILE);
    let bytes = read_small(&path, RUN_BYTES_MAX)?.ok_or_else(|| refused(&path, "it is gone"))?;
    let text = std::str::from_utf8(&bytes).map_err(|_| refused(&path, "it is no text"))?;
    match Run::from_text(text) {
        Ok(run) => Ok((run, XxHash3_128::oneshot(&bytes))),
        Err(reason) => Err(refused(&path, &reason)),
    }
}

/// The name of a finding's directory, if it is one that stays where it is.
pub(crate) fn is_plain_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

pub(super) fn refused(path: &Path, reason: &str) -> Refused {
    Refused { path: path.to_owned(), reason: reason.to_owned() }
}

/// Adds a name to a list of bounded size; which ones are kept does not depend on the order.
pub(super) fn remember(names: &mut BTreeSet<String>, name: &str) {
    names.insert(name.chars().take(200).collect());
    if names.len() > NAMES_MAX {
        names.pop_last();
    }
}
