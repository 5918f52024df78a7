//! What came out, for people and for machines.

use std::fmt::Write as _;

use fathom_engine::search::Report;
use serde_json::{Value, json};

use super::DesignArgs;
use crate::command::Ending;
use crate::text::{bold, grouped};

/// A violation.
pub(super) struct Story {
    pub(super) property: String,
    pub(super) critical: bool,
    pub(super) count: u64,
    pub(super) steps: usize,
    pub(super) path: String,
    pub(super) text: String,
}

/// What came out.
pub(super) struct Outcome {
    pub(super) report: Report,
    /// Steps taken and power failures judged.
    pub(super) ops: u64,
    /// Power failures judged inside steps.
    pub(super) recoveries: u64,
    pub(super) stories: Vec<Story>,
}

impl Outcome {
    pub(super) fn ending(&self) -> Ending {
        match self.stories.iter().any(|story| story.critical) {
            true => Ending::Findings,
            false => Ending::Clean,
        }
    }

    pub(super) fn json(&self, name: &str) -> Value {
        let report = &self.report;
        let violations: Vec<Value> = self
            .stories
            .iter()
            .map(|story| {
                json!({
                    "property": story.property,
                    "critical": story.critical,
                    "states": story.count,
                    "steps": story.steps,
                    "path": story.path,
                    "story": story.text,
                })
            })
            .collect();
        json!({
            "design": name,
            "states": report.states,
            "ops": self.ops,
            "recoveries": self.recoveries,
            "depth": report.depth(),
            "violations": violations,
            "stop": report.stop.to_string(),
            "bytes_per_state": report.bytes_per_state(),
            "coverage": report.coverage(),
            "seconds": report.elapsed.as_secs_f64(),
        })
    }

    pub(super) fn text(&self, name: &str, args: &DesignArgs) -> String {
        let report = &self.report;
        let mut out = String::new();
        for story in &self.stories {
            let severity = if story.critical { "" } else { " (harmless: repaired)" };
            let states = grouped(story.count);
            let heading = format!("{}{severity} is violated in {states} states", story.property);
            let _ = writeln!(out, "{}; the shortest way:", bold(&heading));
            let _ = writeln!(out, "{}", story.text);
        }
        let seconds = report.elapsed.as_secs_f64();
        let rate = self.ops as f64 / seconds.max(1e-9);
        let _ = writeln!(
            out,
            "{name}: {} states, {} operations ({} power failures), depth {}: {}",
            grouped(report.states),
            grouped(self.ops),
            grouped(self.recoveries),
            report.depth(),
            report.stop
        );
        let _ = writeln!(
            out,
            "{seconds:.2} s, {} operations/s, {:.1} bytes per visited state",
            grouped(rate as u64),
            report.bytes_per_state()
        );
        if args.bitstate_mib.is_some() {
            let _ =
                writeln!(out, "about {:.3} % of the states were seen", report.coverage() * 100.0);
        }
        if self.stories.is_empty() {
            let _ = writeln!(out, "nothing is wrong as far as the search went");
        }
        out
    }
}
