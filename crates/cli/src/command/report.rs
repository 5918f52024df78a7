//! `fathom report`: a run that was made earlier, as text, as an HTML page or as JSON.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use fathom_report::run::RunError;
use fathom_report::{Run, html, text};
use serde_json::json;

use super::Ending;
use crate::args::ReportArgs;
use crate::text::{print, print_json};

/// Exit code 0 also for a run with findings: the question is what the run says.
pub(crate) fn run(args: &ReportArgs, out: &Path, json: bool) -> Result<Ending> {
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

fn read(path: &Path) -> Result<Run> {
    match Run::read(path) {
        Err(error @ RunError::Missing { .. }) => Err(error).context(
            "nothing to report: `fathom crash SUBJECT --out DIR` makes a run, \
             `fathom report DIR` shows it",
        ),
        result => Ok(result?),
    }
}
