//! From an id, a directory or a file to a trace.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fathom_core::Trace;
use fathom_designs::finding::Stored as StoredDesign;
use fathom_engine::callers::finding::StoredRound;
use fathom_engine::check::finding::record::read_trace;
use fathom_engine::crash::stored::StoredCrash;

/// Finds a trace: a file, or that of a finding: the minimal one, unless `full`.
pub(crate) fn locate(what: &str, out: &Path, full: bool) -> Result<Trace> {
    let path = Path::new(what);
    if path.is_file() {
        return not_empty(read_trace(path)?, what);
    }
    if design_finding(what, out).is_some() {
        bail!(
            "{what} is a finding on a design: its steps are no system calls; \
             `fathom replay {what}` shows them, story.txt tells them"
        );
    }
    let name = if full { "trace.jsonl" } else { "minimal.jsonl" };
    not_empty(read_trace(&finding_dir(what, out)?.join(name))?, what)
}

/// A trace without operations shows nothing, whatever is done with it.
fn not_empty(trace: Trace, what: &str) -> Result<Trace> {
    if trace.steps.is_empty() {
        bail!("{what} has no operation in it: it says nothing");
    }
    Ok(trace)
}

/// The directory of a finding, if it is one of `fathom crash`.
pub(crate) fn crash_finding(what: &str, out: &Path) -> Option<PathBuf> {
    finding_dir(what, out).ok().filter(|dir| StoredCrash::is_in(dir))
}

/// The directory of a finding, if it is one of `fathom design`.
pub(crate) fn design_finding(what: &str, out: &Path) -> Option<PathBuf> {
    finding_dir(what, out).ok().filter(|dir| StoredDesign::is_in(dir))
}

/// The directory of a finding, if it is one of `fathom fsck`.
pub(crate) fn fsck_finding(what: &str, out: &Path) -> Option<PathBuf> {
    finding_dir(what, out).ok().filter(|dir| crate::command::fsck::again::is_in(dir))
}

/// The directory of a finding, if it is one of `fathom check --callers`.
pub(crate) fn callers_finding(what: &str, out: &Path) -> Option<PathBuf> {
    finding_dir(what, out).ok().filter(|dir| StoredRound::is_in(dir))
}

/// Refuses to run the command of a recorded subject unless the user says that it may be run: a finding
/// may come from somebody else. A subject that the user has typed is fine.
pub(crate) fn demand_trust(recorded: &str, typed: Option<&str>, trust: bool) -> Result<()> {
    match recorded.strip_prefix("fuse:") {
        Some(command) if typed.is_none() && !trust => bail!(
            "this finding runs a command: {command}\n\
             if it is yours, or you trust who sent it, add --trust; another subject goes with --subject"
        ),
        _ => Ok(()),
    }
}

/// Finds a finding: its directory, or its id (or the beginning of it) in `out`.
pub(crate) fn finding_dir(what: &str, out: &Path) -> Result<PathBuf> {
    let path = Path::new(what);
    if path.join("finding.toml").is_file() {
        return Ok(path.to_owned());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(out).into_iter().flatten() {
        let entry = entry.with_context(|| format!("cannot read {}", out.display()))?;
        if entry.file_name().to_string_lossy().starts_with(what) {
            found.push(entry.path());
        }
    }
    match found.as_slice() {
        [dir] => Ok(dir.clone()),
        [] if path.exists() => bail!("{what} has no finding.toml: it is not a finding"),
        [] => bail!(
            "no file, no directory and no finding in {} is named {what:?}: \
             give --out with the directory of the campaign",
            crate::supervise::output::shown(out)
        ),
        several => {
            bail!("{what:?} is the beginning of {} findings: give more digits", several.len())
        }
    }
}
