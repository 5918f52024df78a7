//! `fathom fsck build` and `explore`: which values of a field take another path through a checker.

use std::path::PathBuf;

use anyhow::Result;
use fathom_fsck::{Checker, Subject, SubjectOptions};
use serde_json::json;

use super::args::{BuildArgs, ExploreArgs};
use super::open_disk;
use crate::command::Ending;
use crate::text::{print, print_json, table};

/// Builds an instrumented checker.
pub(super) fn build(args: &BuildArgs, json: bool) -> Result<Ending> {
    let default = || PathBuf::from(format!("{}-instrumented", args.package));
    let dir = std::path::absolute(args.dir.clone().unwrap_or_else(default))?;
    let program = fathom_fsck::build(&args.package, &dir)?;
    match json {
        true => print_json(&json!({"program": program}))?,
        false => print(&format!("{}\n", program.display()))?,
    }
    Ok(Ending::Clean)
}

/// Explores fields by path.
pub(super) fn explore(args: &ExploreArgs, json: bool) -> Result<Ending> {
    let options =
        SubjectOptions { program: Some(args.program.clone()), ..SubjectOptions::default() };
    let subject = Subject::new(Checker::named("e2fsck")?, open_disk(&args.disk)?, &options)?;
    let mut all = Vec::new();
    for field in &args.fields {
        all.push(fathom_fsck::explore(&subject, field, args.budget)?);
    }
    let paths: u64 = all.iter().map(|found| found.paths).sum();
    let closed = all.iter().filter(|found| found.closed).count();
    if json {
        print_json(&json!({"paths_reached": paths, "fields_closed": closed, "fields": all}))?;
        return Ok(Ending::Clean);
    }
    let head = ["FIELD", "VALUES", "PATHS", "CLOSED", "BRANCHES"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(all.iter().map(|found| {
        vec![
            found.field.clone(),
            found.values.to_string(),
            found.paths.to_string(),
            if found.closed { "yes" } else { "no" }.to_owned(),
            format!("{} of {}", found.edges.len(), found.edges_total),
        ]
    }));
    print(&table(&rows))?;
    print(&format!("{paths} paths, {closed} of {} fields closed\n", all.len()))?;
    Ok(Ending::Clean)
}
