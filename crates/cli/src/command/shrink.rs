//! `fathom shrink`: looks longer for a shorter way to a finding.

use std::path::Path;

use anyhow::{Context, Result, bail};
use fathom_engine::check::finding::Stored;
use fathom_engine::check::finding::investigate::{FindingSource, shrink_further};
use fathom_engine::check::replay::trace_config;
use fathom_record::run::Kind;
use serde_json::json;

use super::Ending;
use super::again::AgainRun;
use crate::args::ShrinkArgs;
use crate::campaign::with_subject;
use crate::locate::{crash_finding, demand_trust, design_finding, finding_dir};
use crate::subjects::Spec;
use crate::supervise::worker::{self, About};
use crate::text::{print, print_json};

pub(crate) fn run(args: &ShrinkArgs, out: &Path, json: bool) -> Result<Ending> {
    if let Some(dir) = crash_finding(&args.what, out) {
        return super::crash::again::shrink(args, &dir, out, json);
    }
    if let Some(dir) = design_finding(&args.what, out) {
        return super::design::again::shrink(args, &dir, out, json);
    }
    let stored = Stored::read(&finding_dir(&args.what, out)?)?;
    demand_trust(&stored.recorded.subject, args.subject.as_deref(), args.trust)?;
    let name = args.subject.as_ref().unwrap_or(&stored.recorded.subject);
    let spec: Spec = name.parse().context("give another subject with --subject")?;
    let config = trace_config(&stored.minimal)?;
    spec.check_caller(&config.reference)?;
    spec.check_risk(args.on_host)?;
    let source = FindingSource {
        subject: spec.to_string(),
        seed: stored.recorded.seed,
        reference: config.reference.clone(),
        times: config.times,
        labels: stored.recorded.labels.clone(),
    };
    worker::describe(About { sources: vec![source], ..About::default() });
    let run = AgainRun::start(Kind::Shrink, &spec.to_string(), &args.what, out);
    let ops_before = stored.recorded.ops_minimal;
    let finding = with_subject(&spec, &config.reference, |subject| {
        Ok(shrink_further(subject, stored, args.budget, &worker::supervision())?)
    })?;
    let Some(finding) = finding else {
        run.finish(ops_before, "the finding does not show now".to_owned());
        bail!("{spec} does not show the finding now: try `fathom replay {}`", args.what);
    };
    let dir = finding.write(out)?;
    let ops = finding.minimal.steps.len();
    run.finish(ops, format!("from {ops_before} to {ops} operations: {}", finding.id));
    if json {
        print_json(&json!({"id": finding.id, "ops": ops, "ops_before": ops_before}))?;
    } else {
        let told = how_much(finding.minimal.steps.len() as u64, ops_before as u64);
        print(&format!("{finding}files:  {}\n{told}", crate::supervise::output::shown(&dir)))?;
    }
    Ok(Ending::Findings)
}

/// How much shorter it has become.
pub(crate) fn how_much(ops: u64, ops_before: u64) -> String {
    match ops_before.saturating_sub(ops) {
        0 => {
            format!("nothing shorter was found: {ops} operations; a longer --budget may find it\n")
        }
        less => format!("{ops} operations, {less} less than before\n"),
    }
}
