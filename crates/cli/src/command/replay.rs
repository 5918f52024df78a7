//! `fathom replay`: repeats a finding or a trace.

use std::path::Path;

use anyhow::{Context, Result};
use fathom_engine::check::finding::Stored;
use fathom_engine::check::finding::images::{Reproduction, replay_from_disks};
use fathom_engine::check::finding::investigate::FindingSource;
use fathom_engine::check::replay::{replay_supervised, trace_config};
use fathom_engine::{Replay, ReplayVerdict};
use serde_json::json;

use super::Ending;
use super::again::AgainRun;
use crate::args::ReplayArgs;
use crate::campaign::with_subject;
use crate::execution::{self, Comparison};
use crate::locate::{
    callers_finding, crash_finding, demand_trust, design_finding, finding_dir, fsck_finding, locate,
};
use crate::plan::call_deadline;
use crate::subjects::Spec;
use crate::supervise::worker::{self, About};
use crate::text::{bold, print, print_json};

pub(crate) fn run(args: &ReplayArgs, out: &Path, json: bool) -> Result<Ending> {
    if let Some(dir) = crash_finding(&args.what, out) {
        return super::crash::again::replay(args, &dir, out, json);
    }
    if let Some(dir) = design_finding(&args.what, out) {
        return super::design::again::replay(args, &dir, out, json);
    }
    if let Some(dir) = fsck_finding(&args.what, out) {
        return super::fsck::again::replay(args, &dir, json);
    }
    if let Some(dir) = callers_finding(&args.what, out) {
        return super::callers::replay(args, &dir, json);
    }
    let trace = locate(&args.what, out, args.full)?;
    demand_trust(&trace.header.subject, args.subject.as_deref(), args.trust)?;
    let name = args.subject.as_ref().unwrap_or(&trace.header.subject);
    let spec: Spec = name.parse().context("give another one with --subject")?;
    let config = trace_config(&trace)?;
    spec.check_caller(&config.reference)?;
    spec.check_risk(args.on_host)?;
    let stored = stored(&args.what, out)?;
    let source = FindingSource {
        subject: spec.to_string(),
        seed: trace.header.seed.unwrap_or_default(),
        reference: config.reference.clone(),
        times: config.times,
        labels: Default::default(),
    };
    let replayed = config.signature.as_ref().map_or_else(String::new, ToString::to_string);
    let deadline = call_deadline(&spec, args.deadline);
    worker::limit(deadline, None);
    worker::describe(About { sources: vec![source], replayed: Some(replayed), ..About::default() });
    let run = AgainRun::replay(args, &spec.to_string(), out);
    let (shown, replay) = with_subject(&spec, &config.reference, |subject| {
        let shown = match &stored {
            Some(stored) => replay_from_disks(subject, &stored.trace, &stored.disks)?,
            None => None,
        };
        Ok((shown, replay_supervised(subject, &trace, deadline, &worker::supervision())?))
    })?;
    run.finish(replay.steps.len(), verdict_text(&replay));
    let disks = stored.map_or(0, |stored| stored.disks.len());
    let execution = compare_execution(args, out)?;
    if json {
        print_json(&json!({
            "verdict": replay.verdict,
            "subject": spec.to_string(),
            "ops": replay.steps.len(),
            "signature": replay.signature,
            "recorded": replay.recorded,
            "disks": disks,
            "disk": shown,
            "guest": execution,
        }))?;
    } else {
        print(&text(&replay, &spec))?;
        if disks > 0 {
            print(&disks_text(disks, shown.as_ref()))?;
        }
        if let Some(execution) = &execution {
            print(&execution.text())?;
        }
    }
    // The question is whether the record is true: 0 says yes, so that scripts can `bisect run` on it.
    let same = replay.verdict == ReplayVerdict::Reproduced || shown.is_some();
    Ok(if same { Ending::Clean } else { Ending::Findings })
}

/// In a guest with a clock of its own: whether it was the same execution as the recorded one.
fn compare_execution(args: &ReplayArgs, out: &Path) -> Result<Option<Comparison>> {
    let Some(guest) = worker::in_guest().filter(|guest| guest.virtual_clock) else {
        return Ok(None);
    };
    let (Some(execution), Ok(dir)) = (execution::take(), finding_dir(&args.what, out)) else {
        return Ok(None);
    };
    let which = if args.full { "trace" } else { "minimal" };
    let name = format!("execution-{which}-{}-{}.json", guest.kernel, guest.kernel_seed);
    execution.compare_or_record(&dir.join(name)).map(Some)
}

/// The finding's directory, if it is one with disks in it.
fn stored(what: &str, out: &Path) -> Result<Option<Stored>> {
    if Path::new(what).is_file() {
        return Ok(None);
    }
    let stored = Stored::read(&finding_dir(what, out)?)?;
    Ok((!stored.disks.is_empty()).then_some(stored))
}

fn disks_text(disks: usize, shown: Option<&Reproduction>) -> String {
    match shown {
        None => format!("from its {disks} disks: not reproduced\n"),
        Some(Reproduction { ops_before, ops, tried: 0 }) => {
            format!(
                "from its newest disk (before operation {}): reproduced after {ops}\n",
                ops_before + 1
            )
        }
        Some(Reproduction { ops_before, ops, tried }) => format!(
            "from disk {} of {disks} (before operation {}): reproduced after {ops}; not from newer ones\n",
            tried + 1,
            ops_before + 1,
        ),
    }
}

fn text(replay: &Replay, spec: &Spec) -> String {
    let mut text = String::new();
    for step in &replay.steps {
        text.push_str(&format!("  {:>3}  {} = {}\n", step.n + 1, step.op, step.outcome));
        if let Some(expected) = &step.expected {
            text.push_str(&format!("       expected {expected}\n"));
        }
    }
    if let Some(fathom_core::Violation::Tree { differences }) = &replay.violation {
        for difference in differences {
            text.push_str(&format!("       {difference}\n"));
        }
    }
    let verdict = replay.verdict.to_string();
    let said = verdict_text(replay);
    let rest = said.strip_prefix(&verdict).unwrap_or_default();
    text.push_str(&format!("\n{} on {spec}{rest}", bold(&verdict)));
    if let Some(changed) = replay.changed {
        text.push_str(&format!("; first other answer: operation {}", changed + 1));
    }
    text.push('\n');
    text
}

/// The verdict and what it is about.
fn verdict_text(replay: &Replay) -> String {
    let verdict = replay.verdict;
    match (&replay.signature, &replay.recorded) {
        (Some(now), Some(then)) if now == then => format!("{verdict}: {now}"),
        (Some(now), Some(then)) => format!("{verdict}: now {now}, recorded {then}"),
        (Some(now), None) => format!("{verdict}: now {now}, recorded nothing wrong"),
        (None, Some(then)) => format!("{verdict}: recorded {then}"),
        (None, None) => verdict.to_string(),
    }
}
