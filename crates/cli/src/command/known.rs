//! `fathom known`: the list of findings that are counted and not reported.

use std::path::Path;

use anyhow::{Result, bail};
use fathom_record::{Finding, Known};
use serde_json::json;

use super::Ending;
use crate::args::KnownAction;
use crate::locate::finding_dir;
use crate::text::{print, print_json};

pub(crate) fn run(action: &KnownAction, out: &Path, json: bool) -> Result<Ending> {
    match action {
        KnownAction::Add { what, because, known } => {
            add(what, because, &known.path(), out, json)?;
        }
        KnownAction::List { known } => list(&known.path(), json)?,
        KnownAction::Remove { number, known } => remove(*number, &known.path(), json)?,
    }
    Ok(Ending::Clean)
}

fn add(what: &str, because: &str, path: &Path, out: &Path, json: bool) -> Result<()> {
    if because.trim().is_empty() {
        bail!("--because needs a reason: whoever reads the list next year wants to know");
    }
    let finding = Finding::read(&finding_dir(what, out)?)?;
    if finding.signature.is_empty() {
        bail!("{what} was recorded by an older program without a signature: find it again");
    }
    let mut known = Known::read(path)?;
    let added = known.add(&finding, because);
    known.write(path)?;
    match json {
        true => print_json(&json!({"added": added, "signature": finding.signature})),
        false => Ok(print(&format!(
            "{}: {} ({added} new in {})\n",
            finding.subject,
            finding.signature,
            path.display()
        ))?),
    }
}

fn list(path: &Path, json: bool) -> Result<()> {
    let known = Known::read(path)?;
    if json {
        return print_json(&known.entries);
    }
    let mut text = String::new();
    for (index, entry) in known.entries.iter().enumerate() {
        text.push_str(&format!(
            "{:>3}  {} {}: {}\n     {}\n",
            index + 1,
            entry.command,
            entry.subject,
            entry.signature,
            entry.because
        ));
    }
    if text.is_empty() {
        text = format!("{}: nothing is known\n", path.display());
    }
    Ok(print(&text)?)
}

fn remove(number: usize, path: &Path, json: bool) -> Result<()> {
    let mut known = Known::read(path)?;
    if number == 0 || number > known.entries.len() {
        bail!("{} has {} entries: see `fathom known list`", path.display(), known.entries.len());
    }
    let entry = known.entries.remove(number - 1);
    known.write(path)?;
    match json {
        true => print_json(&entry),
        false => Ok(print(&format!("no longer known: {} {}\n", entry.subject, entry.signature))?),
    }
}
