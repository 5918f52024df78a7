//! A run on a design as the page that reports are made from.

use std::path::Path;

use fathom_designs::finding::Finding;
use fathom_designs::story::{Block, Step, Write};
use fathom_report::run::{
    BlockLine, Command, Count, FORMAT, FindingPage, Kind, Plot, Run, StepLine,
};

use super::tell::Outcome;
use crate::command::crash::tell::{command_line, geometry_text};

/// The page. No threads means one per core.
pub(super) fn page(outcome: &Outcome, threads: usize, out: &Path) -> Run {
    let report = &outcome.report;
    let device = outcome.device.as_ref();
    Run {
        subject: outcome.spec.to_string(),
        version: format!("{}, a model", outcome.spec),
        geometry: device.map(geometry_text).unwrap_or_default(),
        seconds: report.elapsed.as_secs_f64(),
        stop: report.stop.to_string(),
        counts: counts(outcome),
        by_depth: report.states_by_depth.clone(),
        findings: outcome.findings().map(|finding| finding_page(finding, out)).collect(),
        ..empty(threads)
    }
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

/// The page of a run that only measures.
pub(super) fn measured(subject: &str, seconds: f64, threads: usize, plots: Vec<Plot>) -> Run {
    Run {
        subject: subject.to_owned(),
        version: "models".to_owned(),
        seconds,
        stop: "every table is complete".to_owned(),
        plots,
        ..empty(threads)
    }
}

fn empty(threads: usize) -> Run {
    Run {
        format: FORMAT,
        kind: Kind::Design,
        command: command_line(),
        subject: String::new(),
        version: String::new(),
        geometry: String::new(),
        guarantee: Vec::new(),
        program: concat!("fathom ", env!("CARGO_PKG_VERSION")).to_owned(),
        seconds: 0.0,
        stop: String::new(),
        threads: match threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        },
        counts: Vec::new(),
        by_depth: Vec::new(),
        samples: Vec::new(),
        goals_missed: Vec::new(),
        findings: Vec::new(),
        plots: Vec::new(),
    }
}

fn count(name: &str, value: u64, about: &str) -> Count {
    Count { name: name.to_owned(), value, about: about.to_owned() }
}

fn finding_page(finding: &Finding, out: &Path) -> FindingPage {
    let (record, story) = (&finding.record, &finding.story);
    FindingPage {
        id: record.id.clone(),
        class: record.property.clone(),
        title: format!("“{}” does not hold", record.property),
        count: record.count,
        levels: Vec::new(),
        ops: Vec::new(),
        in_flight: 0,
        cut: String::new(),
        writes: Vec::new(),
        before: Vec::new(),
        promised: Vec::new(),
        found: Vec::new(),
        differences: story.what.lines().map(str::to_owned).collect(),
        replay: format!("fathom replay {}", record.id),
        directory: crate::supervise::output::shown(&out.join(&record.id)),
        story: String::new(),
        steps: story.steps.iter().map(step_line).collect(),
        blocks: story.blocks.iter().map(block_line).collect(),
    }
}

fn step_line(step: &Step) -> StepLine {
    StepLine {
        what: step.what.clone(),
        writes: step.writes.iter().map(command).collect(),
        crash: step.crash.clone().unwrap_or_default(),
        recovery: step.recovery.iter().map(command).collect(),
        recovered: step.recovered.clone(),
    }
}

fn command(write: &Write) -> Command {
    match write {
        Write::Block { block, arrived: true } => Command::Written(*block),
        Write::Block { block, arrived: false } => Command::Lost(*block),
        Write::Flush => Command::Flush,
    }
}

fn block_line(block: &Block) -> BlockLine {
    let Block { number, label, before, left, after } = block.clone();
    BlockLine { number, label, before, left, after }
}
