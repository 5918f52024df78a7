//! `fathom snapshot`: saves and restores the state of a served reference file system.

use std::path::{Path, absolute};

use anyhow::{Context, Result};
use fathom_subjects::fuse::Snapshots;
use serde_json::{Value, json};

use super::Ending;
use crate::args::SnapshotAction;
use crate::text::{print, print_json};

pub(crate) fn run(action: &SnapshotAction, json: bool) -> Result<Ending> {
    let (text, value) = perform(action)?;
    if json {
        print_json(&value)?;
    } else {
        print(&text)?;
    }
    Ok(Ending::Clean)
}

/// What to tell people, and machines.
fn perform(action: &SnapshotAction) -> Result<(String, Value)> {
    match action {
        SnapshotAction::Save(at) => {
            Snapshots::open(&at.dir)?.save(at.key)?;
            Ok((format!("saved as {}\n", at.key), json!({"saved": at.key})))
        }
        SnapshotAction::Restore { at, discard } => {
            Snapshots::open(&at.dir)?.restore(at.key, *discard)?;
            Ok((format!("restored {}\n", at.key), json!({"restored": at.key})))
        }
        SnapshotAction::Drop(at) => {
            Snapshots::open(&at.dir)?.drop(at.key)?;
            Ok((format!("dropped {}\n", at.key), json!({"dropped": at.key})))
        }
        SnapshotAction::List { dir } => {
            let keys = Snapshots::open(dir)?.list()?;
            let text = keys.iter().map(|key| format!("{key}\n")).collect();
            Ok((text, json!({"keys": keys})))
        }
        SnapshotAction::Pickle { dir, file, key } => {
            let count = Snapshots::open(dir)?.pickle(*key, &full_path(file)?)?;
            let text = format!("wrote {count} states to {}\n", file.display());
            Ok((text, json!({"written": count, "file": file})))
        }
        SnapshotAction::Load { dir, file } => {
            let count = Snapshots::open(dir)?.load(&full_path(file)?)?;
            let text = format!("read {count} states from {}\n", file.display());
            Ok((text, json!({"read": count, "file": file})))
        }
    }
}

/// The server opens the file, and it has another working directory.
fn full_path(file: &Path) -> Result<std::path::PathBuf> {
    absolute(file).with_context(|| format!("cannot find {}", file.display()))
}
