//! A run on a design as reports want it.

use fathom_designs::catalog::Spec;
use fathom_engine::search::Stop;
use fathom_record::Run;
use fathom_record::run::{Count, Kind, Plot};

use super::tell::Outcome;
use crate::command::crash::tell::{geometry_text, threads};
use crate::progress::started;

/// A run that has just been started.
pub(super) fn run_of(spec: &Spec, jobs: usize) -> Run {
    let mut run = started(Kind::Design, &spec.to_string());
    run.version = format!("{spec}, a model");
    run.threads = threads(jobs);
    run
}

/// What is known of a run at its end.
pub(super) fn describe(run: &mut Run, outcome: &Outcome) {
    let report = &outcome.report;
    run.geometry = outcome.device.as_ref().map(geometry_text).unwrap_or_default();
    run.seconds = report.elapsed.as_secs_f64();
    run.complete = report.stop != Stop::Asked;
    run.stop = report.stop.to_string();
    run.counts = counts(outcome);
    run.by_depth = report.states_by_depth.clone();
}

fn counts(outcome: &Outcome) -> Vec<Count> {
    let report = &outcome.report;
    let mut counts = vec![
        count("operations", outcome.ops, "steps taken and power failures judged"),
        count("states", report.states, "different states of the design"),
        count("bytes_per_state", report.bytes_per_state() as u64, "memory of the search"),
    ];
    if outcome.recoveries > 0 {
        counts.insert(2, count("power_failures", outcome.recoveries, "images mounted and checked"));
    }
    counts
}

/// A run that only measures.
pub(super) fn measured(subject: &str, seconds: f64, jobs: usize, plots: Vec<Plot>) -> Run {
    let mut run = started(Kind::Design, subject);
    run.version = "models".to_owned();
    run.seconds = seconds;
    run.threads = threads(jobs);
    run.complete = true;
    run.stop = "every table is complete".to_owned();
    run.plots = plots;
    run
}

fn count(name: &str, value: u64, about: &str) -> Count {
    Count { name: name.to_owned(), value, about: about.to_owned() }
}
