//! `fathom fsck compare`: what checkers of different file systems leave of the same tree after the same
//! corruption.

use std::sync::Arc;

use anyhow::{Result, bail};
use fathom_fsck::{Checker, DiskLooker, Kept, Subject, SubjectOptions, compare};
use serde_json::json;

use super::args::CompareArgs;
use super::{looker, open_disk};
use crate::command::Ending;
use crate::text::{print, print_json, say, table};

/// Compares the checkers of the disks.
pub(super) fn run(args: &CompareArgs, json: bool) -> Result<Ending> {
    let subjects = args.disks.iter().map(|name| subject(name)).collect::<Result<Vec<_>>>()?;
    let looker: Arc<dyn DiskLooker> = Arc::new(looker::GuestLooker::new()?);
    let rows = compare(&subjects, &looker, |disk| say!("fathom: {disk}"))?;
    let versions: Vec<String> =
        subjects.iter().map(|subject| subject.checker.version_line()).collect();
    if json {
        print_json(&json!({"disks": args.disks, "versions": versions, "rows": rows}))?;
        return Ok(Ending::Clean);
    }
    let mut head = vec!["FIELD".to_owned(), "CHANGE".to_owned()];
    head.extend(args.disks.iter().cloned());
    let mut lines = vec![head];
    for row in &rows {
        let mut line = vec![row.about.clone(), row.change.clone()];
        line.extend(row.kept.iter().map(|kept| kept.as_ref().map_or("–".to_owned(), words)));
        lines.push(line);
    }
    print(&table(&lines))?;
    Ok(Ending::Clean)
}

/// A disk with the checker of its file system.
fn subject(name: &str) -> Result<Subject> {
    let is_for = |checker: &Checker| checker.disks.iter().any(|disk| disk == name);
    let checker = Checker::all().into_iter().find(is_for);
    let Some(checker) = checker else {
        bail!("{name}: no checker is for a disk of this name, see `fathom list disks`");
    };
    Ok(Subject::new(checker, open_disk(name)?, &SubjectOptions::default())?)
}

/// What is left of a tree, in a few words.
fn words(kept: &Kept) -> String {
    let mut parts = Vec::new();
    match &kept.unmounted {
        Some(_) => parts.push("not mounted".to_owned()),
        None => {
            let counts = [
                (kept.lost, "lost"),
                (kept.moved, "moved"),
                (kept.contents, "changed"),
                (kept.attributes, "attributes"),
            ];
            parts.extend(
                counts
                    .iter()
                    .filter(|(count, _)| *count > 0)
                    .map(|(count, what)| format!("{count} {what}")),
            );
        }
    }
    if parts.is_empty() {
        parts.push("all kept".to_owned());
    }
    let fine = if kept.is_fine { "" } else { " (not fine)" };
    format!("{}{fine}", parts.join(", "))
}
