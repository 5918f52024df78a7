//! The output directory: absolute from the start (a subject may change the working directory of its
//! thread), writable, and not on the subject.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};

use crate::args::{Cli, Command};
use crate::subjects::Spec;

/// The working directory of the program when it started.
static START: OnceLock<PathBuf> = OnceLock::new();

/// The path from the root.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    let start = match START.get() {
        Some(start) => start,
        None => {
            let start = std::env::current_dir().context("where are we?")?;
            START.get_or_init(|| start)
        }
    };
    Ok(start.join(path))
}

/// The path as people typed it: relative to where they are.
pub(crate) fn shown(path: &Path) -> String {
    let near = START.get().and_then(|start| path.strip_prefix(start).ok());
    match near {
        Some(near) if !near.as_os_str().is_empty() => near.display().to_string(),
        Some(_) => ".".to_owned(),
        None => path.display().to_string(),
    }
}

/// Makes the directory and refuses one that cannot be written to, or that lies on the subject; before
/// anything is executed.
pub(crate) fn prepare(cli: &Cli, out: &Path) -> Result<MadeDirectory> {
    let made = MadeDirectory((!out.exists()).then(|| out.to_owned()));
    let reads_only = matches!(&cli.command, Some(Command::Replay(_)));
    if reads_only {
        return Ok(made);
    }
    for subject in subjects(cli) {
        refuse_inside(&subject, out)?;
    }
    let hint = || format!("cannot write to {}: give another --out", shown(out));
    fs::create_dir_all(out).with_context(hint)?;
    // The permissions do not tell all of it: try. A file without a name leaves nothing behind.
    let mut file = tempfile::tempfile_in(out).with_context(hint)?;
    file.write_all(b"fathom").with_context(hint)?;
    Ok(made)
}

/// A directory that was made for a run; it goes again if the run has written nothing.
pub(crate) struct MadeDirectory(Option<PathBuf>);

impl Drop for MadeDirectory {
    fn drop(&mut self) {
        if let Some(out) = &self.0 {
            // Only an empty one can be removed.
            let _ = fs::remove_dir(out);
        }
    }
}

/// The directories of `dir:` subjects.
fn subjects(cli: &Cli) -> Vec<PathBuf> {
    let Some(Command::Check(args)) = &cli.command else { return Vec::new() };
    let names = args.against.iter().chain([&args.subject]);
    names.filter_map(|name| name.parse::<Spec>().ok()?.directory().map(Path::to_owned)).collect()
}

/// What is written there would be part of what is tested, or would hang with it.
fn refuse_inside(subject: &Path, out: &Path) -> Result<()> {
    let (Ok(subject), Some(existing)) = (subject.canonicalize(), nearest(out)) else {
        return Ok(()); // the subject is refused with a better message later
    };
    let real = existing.canonicalize().unwrap_or(existing);
    if real.starts_with(&subject) {
        bail!(
            "the output directory {} lies on the subject {}: give --out another place",
            shown(out),
            subject.display()
        );
    }
    // Another name of the same mounted file system: only where it is not that of the rest of us.
    let device = |path: &Path| fs::metadata(path).ok().map(|meta| meta.dev());
    let own_mount = subject.parent().is_some_and(|above| device(above) != device(&subject));
    if own_mount && device(&subject) == device(&real) {
        bail!(
            "the output directory {} lies on the file system under test ({}): give --out another place",
            shown(out),
            subject.display()
        );
    }
    Ok(())
}

/// The nearest part of a path that exists.
fn nearest(path: &Path) -> Option<PathBuf> {
    path.ancestors().find(|part| part.exists()).map(Path::to_owned)
}
