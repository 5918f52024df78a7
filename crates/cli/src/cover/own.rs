//! Coverage of our own runs: `fathom check` and `fathom crash` know what they execute and need no
//! tracer.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fathom_core::partition::{Coverage, Granularity};
use fathom_engine::OpCoverage;
use fathom_record::coverage::{CallReport, Report, Tally};
use fathom_report::cover::text::share;
use fathom_trace::report::{Unreachable, of_coverage};
use serde_json::{Map, Value, json};

use crate::supervise::output::shown;
use crate::text::{grouped, say, writable};

/// The name of the file in the directory of a run.
pub(crate) const FILE: &str = "coverage.json";

/// What only a tracer would see.
const LIMIT: &str =
    "calls of the harness itself: only operations of the workload count, not walks and mounts";

/// Where the coverage of a run goes; known to be writable before the run starts.
#[derive(Clone, Debug)]
pub(crate) struct Files(Vec<PathBuf>);

/// Shortest time between two reports of a run that goes on. Of a run that is killed the last one stays.
const WRITE_EVERY: Duration = Duration::from_secs(2);

/// Working reports out may take this part of the time of a run.
const WRITE_SHARE: u32 = 100;

/// Writes the coverage of a run while it goes on.
#[derive(Debug)]
pub(crate) struct LiveCoverage {
    path: PathBuf,
    title: String,
    began: Instant,
    written: Instant,
    pause: Duration,
}

impl LiveCoverage {
    /// In the directory of the run. The report of an earlier one goes: it is not about this run.
    pub(crate) fn start(out: &Path, title: String) -> LiveCoverage {
        let path = out.join(FILE);
        // There may be none.
        let _ = fs::remove_file(&path);
        let now = Instant::now();
        LiveCoverage { path, title, began: now, written: now, pause: WRITE_EVERY }
    }

    /// Writes a report if the last one is old.
    pub(crate) fn write_sometimes(&mut self, coverage: &dyn Fn() -> Coverage) {
        if self.written.elapsed() < self.pause {
            return;
        }
        let began = Instant::now();
        let report = report(&coverage(), &self.title, self.began.elapsed().as_secs_f64());
        // Whoever unites results meanwhile sees all of a report. That it cannot be written is told at the end.
        let new = self.path.with_extension("json.new");
        if let Ok(text) = serde_json::to_vec(&report)
            && fs::write(&new, text).is_ok()
        {
            let _ = fs::rename(&new, &self.path);
        }
        self.written = Instant::now();
        self.pause = WRITE_EVERY.max(began.elapsed() * WRITE_SHARE);
    }
}

impl Files {
    /// [`FILE`] in the directory of the run, and perhaps another one.
    pub(crate) fn new(out: &Path, other: Option<&PathBuf>) -> Result<Files> {
        fs::create_dir_all(out)
            .with_context(|| format!("cannot write to {}: give another --out", shown(out)))?;
        if let Some(other) = other {
            writable(other).with_context(|| {
                format!("cannot write {}: give another file to --coverage", other.display())
            })?;
        }
        Ok(Files([out.join(FILE)].into_iter().chain(other.cloned()).collect()))
    }

    /// Writes the report.
    pub(crate) fn write(&self, report: &Report) -> Result<()> {
        let text = serde_json::to_string(report)? + "\n";
        for path in &self.0 {
            fs::write(path, &text).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Writes the report; if that cannot be done, says so: what the run found matters more.
    pub(crate) fn write_or_say(&self, report: &Report) {
        if let Err(error) = self.write(report) {
            say!("fathom: the coverage is lost: {error:#}");
        }
    }

    /// How to see all of it.
    fn command(&self) -> String {
        format!("fathom cover report {}", shown(&self.0[0]))
    }
}

/// The report of a run that is over.
pub(crate) fn final_report(coverage: &OpCoverage, title: &str, seconds: f64) -> Report {
    report(&coverage.partitions(Granularity::Powers), title, seconds)
}

fn report(partitions: &Coverage, title: &str, seconds: f64) -> Report {
    let mut report = of_coverage(partitions, title, &Unreachable::standard());
    report.tracer = "none: operations are counted as they are executed".to_owned();
    report.limits = vec![LIMIT.to_owned()];
    report.seconds = seconds;
    report
}

/// The calls that were made, the least exercised first.
fn made(report: &Report) -> Vec<(&str, &CallReport)> {
    let mut made: Vec<(&str, &CallReport)> = report
        .bases
        .iter()
        .filter(|(_, call)| call.calls > 0)
        .map(|(base, call)| (base.as_str(), call))
        .collect();
    let ratio = |call: &CallReport| call.partitions_hit as f64 / call.partitions_total as f64;
    made.sort_by(|a, b| ratio(a.1).total_cmp(&ratio(b.1)).then_with(|| a.0.cmp(b.0)));
    made
}

/// One line for the end of a run: how much of the calls that were made, and how to see the rest.
pub(crate) fn line(report: &Report, files: &Files) -> String {
    let made = made(report);
    let of_made = made.iter().fold(Tally::default(), |sum, (_, call)| Tally {
        hit: sum.hit + call.partitions_hit,
        total: sum.total + call.partitions_total,
    });
    format!(
        "coverage: {} of {} partitions of {} kinds of calls ({}): {}\n",
        grouped(of_made.hit as u64),
        grouped(of_made.total as u64),
        made.len(),
        share(of_made.hit, of_made.total),
        files.command(),
    )
}

/// What `--json` says of it: the sums, and each call that was made.
pub(crate) fn json(report: &Report) -> Map<String, Value> {
    let tally = |call: &CallReport| json!({"partitions_hit": call.partitions_hit, "partitions_total": call.partitions_total});
    let calls: Map<String, Value> =
        made(report).into_iter().map(|(base, call)| (base.to_owned(), tally(call))).collect();
    Map::from_iter([
        ("partitions_hit".to_owned(), report.partitions_hit.into()),
        ("partitions_total".to_owned(), report.partitions_total.into()),
        ("coverage".to_owned(), calls.into()),
    ])
}
