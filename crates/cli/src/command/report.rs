//! `fathom report`: a run that was made earlier, as text, as an HTML page or as JSON.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use fathom_record::Finding;
use fathom_report::mail::{self, Attached};
use fathom_report::run::RunError;
use fathom_report::{Run, html, text};
use serde_json::json;

use super::Ending;
use crate::args::ReportArgs;
use crate::locate::finding_dir;
use crate::text::{print, print_json};

/// Exit code 0 also for a run with findings: the question is what the run says.
pub(crate) fn run(args: &ReportArgs, out: &Path, json: bool) -> Result<Ending> {
    if args.mail {
        return mailed(&args.path.as_deref().unwrap_or(out).to_string_lossy(), out, json);
    }
    let run = read(args.path.as_deref().unwrap_or(out))?;
    match &args.html {
        Some(file) => {
            fs::write(file, html::page(&run))
                .with_context(|| format!("cannot write {}", file.display()))?;
            if json {
                print_json(&json!({ "file": file, "findings": run.findings.len() }))?;
            } else {
                print(&format!("{}\n", file.display()))?;
            }
        }
        None if json => print_json(&run)?,
        None => print(&text::run(&run))?,
    }
    Ok(Ending::Clean)
}

/// Prints a finding for the inbox of a maintainer.
fn mailed(what: &str, out: &Path, json: bool) -> Result<Ending> {
    let dir = finding_dir(what, out)?;
    let finding = Finding::read(&dir)?;
    let text = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    let mut programs: Vec<String> = fs::read_dir(&dir)
        .with_context(|| format!("cannot read {}", dir.display()))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("repro."))
        .collect();
    programs.sort();
    let attached = Attached { shell: text("repro.sh"), differences: text("diff.txt"), programs };
    let mail = mail::mail(&finding, &attached);
    match json {
        true => print_json(&json!({ "mail": mail }))?,
        false => print(&mail)?,
    }
    Ok(Ending::Clean)
}

fn read(path: &Path) -> Result<Run> {
    match Run::read(path) {
        Err(error @ RunError::Missing { .. }) => Err(error).context(
            "nothing to report: `fathom crash SUBJECT --out DIR` makes a run, \
             `fathom report DIR` shows it",
        ),
        result => Ok(result?),
    }
}
