//! `fathom export`: a trace as a program that stands alone.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use fathom_core::export::{self, Assert};

use super::Ending;
use crate::args::ExportArgs;
use crate::locate::locate;
use crate::text::{print, print_json};

pub(crate) fn run(args: &ExportArgs, out: &Path, json: bool) -> Result<Ending> {
    let trace = locate(&args.what, out, false)?;
    let assert = if args.recorded { Assert::Recorded } else { Assert::Expected };
    let (language, program) = if args.language.c {
        ("c", export::c::program(&trace, assert)?)
    } else {
        ("shell", export::shell::script(&trace, assert)?)
    };
    match &args.output {
        Some(path) => {
            fs::write(path, &program)
                .with_context(|| format!("cannot write {}", path.display()))?;
            if json {
                print_json(&serde_json::json!({
                    "file": path, "language": language, "ops": trace.steps.len()
                }))?;
            }
        }
        None if json => print_json(&serde_json::json!({
            "program": program, "language": language, "ops": trace.steps.len()
        }))?,
        None => print(&program)?,
    }
    Ok(Ending::Clean)
}
