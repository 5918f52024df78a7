//! A run in words, as JSON, and as the page that reports are made from.

use std::path::Path;

use fathom_block::{BlockBacked, Geometry};
use fathom_core::{Entry, FsPath, Kind as EntryKind, Tree};
use fathom_engine::crash::{CrashFinding, CrashReport, Event};
use fathom_report::run::{
    Count, FORMAT, FindingPage, Kind, Promise, Run, Sample, TreeLine, WriteLine,
};
use serde_json::{Value, json};

use crate::text::{bold, grouped};

/// A device in words.
pub(crate) fn geometry_text(geometry: &Geometry) -> String {
    format!(
        "{} blocks of {} bytes, written in units of {}",
        geometry.size_bytes / geometry.erase_bytes,
        geometry.erase_bytes,
        geometry.write_bytes
    )
}

/// Findings that are told in full; the others are named.
const STORIES_MAX: usize = 3;

/// A run for people: its findings as stories, then what was done.
pub(crate) fn tell(subject: &dyn BlockBacked, report: &CrashReport, out: &Path) -> String {
    let mut text = String::new();
    for finding in report.findings.iter().take(STORIES_MAX) {
        text.push_str(&finding.to_string());
        let directory = out.join(&finding.record.id);
        text.push_str(&format!("files:  {}\n\n", crate::supervise::output::shown(&directory)));
    }
    if report.findings.len() > STORIES_MAX {
        text.push_str("also found:\n");
        for finding in &report.findings[STORIES_MAX..] {
            let record = &finding.record;
            text.push_str(&format!(
                "  {}  {} ({} images)\n",
                record.id, record.cause, record.count
            ));
        }
        text.push('\n');
    }
    text.push_str(&summary(subject, report));
    text
}

fn summary(subject: &dyn BlockBacked, report: &CrashReport) -> String {
    let search = &report.search;
    let found = match report.findings.len() {
        0 => "every crash left what was promised".to_owned(),
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    };
    let seconds = search.elapsed.as_secs_f64();
    let levels: Vec<&str> = report.levels.iter().map(|level| level.name()).collect();
    let mut text = format!(
        "{}: {} ({})\n{} states, {} steps, {} distinct crash images ({}) in {seconds:.1} s ({}/s); {}\n",
        bold(subject.name()),
        found,
        subject.version(),
        grouped(search.states),
        grouped(search.transitions),
        grouped(report.crash_images),
        levels.join(", "),
        grouped((report.crash_images as f64 / seconds.max(1e-9)) as u64),
        search.stop,
    );
    let from_memo = grouped(report.memo.answered);
    text.push_str(&format!("{from_memo} of them known from what other examinations read\n"));
    if report.memo.refuted > 0 {
        text.push_str(
            "the memo was wrong and was switched off: the file system is not deterministic, or reads \
             what it does not tell\n",
        );
    }
    if !report.goals_missed.is_empty() {
        text.push_str(&format!("never reached: {}\n", report.goals_missed.join("; ")));
    }
    text
}

/// A run for machines.
pub(crate) fn report_json(subject: &dyn BlockBacked, report: &CrashReport) -> Value {
    let finding = |finding: &CrashFinding| {
        let record = &finding.record;
        json!({
            "id": record.id,
            "class": record.cause.class,
            "cause": record.cause.to_string(),
            "count": record.count,
            "levels": record.levels,
            "ops": finding.minimal.ops().map(ToString::to_string).collect::<Vec<_>>(),
            "cut": finding.cut(),
            "reproduced": record.runs_reproduced == record.runs,
        })
    };
    json!({
        "subject": subject.name(),
        "version": subject.version(),
        "states": report.search.states,
        "transitions": report.search.transitions,
        "states_by_depth": report.search.states_by_depth,
        "crash_images": report.crash_images,
        "crash_images_from_memo": report.memo.answered,
        "memo_refuted": report.memo.refuted,
        "levels": report.levels,
        "seconds": report.search.elapsed.as_secs_f64(),
        "stop": report.search.stop.to_string(),
        "goals_missed": report.goals_missed,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

/// The page that reports are made from. No threads means one per core.
pub(crate) fn page(
    subject: &dyn BlockBacked,
    report: &CrashReport,
    threads: usize,
    out: &Path,
) -> Run {
    let search = &report.search;
    let threads = match threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let count = |name: &str, value, about: &str| Count {
        name: name.to_owned(),
        value,
        about: about.to_owned(),
    };
    let sample = |sample: &fathom_engine::crash::run::Sample| Sample {
        seconds: sample.elapsed.as_secs_f64(),
        states: sample.states,
        crash_images: sample.crash_images,
        findings: sample.findings,
    };
    Run {
        format: FORMAT,
        kind: Kind::Crash,
        command: command_line(),
        subject: subject.name().to_owned(),
        version: subject.version().to_owned(),
        geometry: geometry_text(&subject.geometry()),
        guarantee: promises(subject),
        program: concat!("fathom ", env!("CARGO_PKG_VERSION")).to_owned(),
        seconds: search.elapsed.as_secs_f64(),
        stop: search.stop.to_string(),
        threads,
        counts: vec![
            count("crash_images", report.crash_images, "distinct images that a power failure left"),
            count("states", search.states, "different states of the file system"),
            count("transitions", search.transitions, "steps of workloads"),
        ],
        by_depth: search.states_by_depth.clone(),
        samples: report.samples.iter().map(sample).collect(),
        goals_missed: report.goals_missed.iter().map(ToString::to_string).collect(),
        findings: report.findings.iter().map(|finding| finding_page(finding, out)).collect(),
        plots: Vec::new(),
    }
}

/// The command as typed, without the directory of the program.
pub(crate) fn command_line() -> String {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
}

fn promises(subject: &dyn BlockBacked) -> Vec<Promise> {
    let guarantee = subject.guarantee();
    let claim = |what: &str, is: &str, cite: &str| Promise {
        what: what.to_owned(),
        is: is.to_owned(),
        cite: cite.to_owned(),
    };
    let levels: Vec<&str> = guarantee.survives.is.iter().map(|level| level.name()).collect();
    let recovers = if guarantee.recovers.is { "always" } else { "not promised" };
    let slack = &guarantee.capacity_slack_bytes;
    let calls = guarantee.durable.mentioned().map(|(call, makes)| {
        let what = format!("durable after {}", call.replace('_', " "));
        claim(&what, makes.is.meaning(), &makes.cite)
    });
    let rest = [
        claim("what else survives", guarantee.order.is.meaning(), &guarantee.order.cite),
        claim("contents of files", guarantee.data.is.meaning(), &guarantee.data.cite),
        claim("power failures survived", &levels.join(", "), &guarantee.survives.cite),
        claim("mounts and works afterwards", recovers, &guarantee.recovers.cite),
        claim("capacity that may be missing", &format!("{} bytes", slack.is), &slack.cite),
    ];
    calls.chain(rest).collect()
}

fn tree_lines(tree: &Tree) -> Vec<TreeLine> {
    let line = |(path, entry): (&FsPath, &Entry)| {
        let text = match (&entry.broken, entry.kind) {
            (Some(broken), _) => format!("{} fails with {}", broken.call, broken.errno),
            (None, EntryKind::Dir) => "directory".to_owned(),
            (None, _) if entry.size == 0 => "file, empty".to_owned(),
            (None, _) => {
                format!("file, {} bytes, contents {}", entry.size, &entry.content.to_string()[..8])
            }
        };
        TreeLine { path: path.to_string(), text }
    };
    tree.entries.iter().map(line).collect()
}

fn finding_page(finding: &CrashFinding, out: &Path) -> FindingPage {
    let record = &finding.record;
    let writes = finding.writes.iter().enumerate().map(|(index, (text, arrived))| WriteLine {
        index,
        text: text.clone(),
        arrived: *arrived,
    });
    let events = match finding.minimal.0.split_last() {
        Some((Event::PowerCut(_), before)) => before,
        _ => &finding.minimal.0,
    };
    FindingPage {
        id: record.id.clone(),
        class: json!(record.cause.class).as_str().unwrap_or_default().to_owned(),
        title: record.cause.to_string(),
        count: record.count,
        levels: record.levels.iter().map(ToString::to_string).collect(),
        ops: events.iter().map(ToString::to_string).collect(),
        in_flight: events.len().saturating_sub(1),
        cut: finding.cut(),
        writes: writes.collect(),
        before: tree_lines(&finding.before),
        promised: finding.promised.iter().map(tree_lines).collect(),
        found: finding.found.as_ref().map(tree_lines).unwrap_or_default(),
        differences: record.what.lines().map(str::to_owned).collect(),
        replay: format!("fathom replay {}", record.id),
        directory: crate::supervise::output::shown(&out.join(&record.id)),
        // The page shows every part of it.
        story: String::new(),
        steps: Vec::new(),
        blocks: Vec::new(),
    }
}
