//! What came out, for people and for machines.

use std::fmt::Write as _;
use std::path::Path;

use fathom_block::Geometry;
use fathom_designs::catalog::Spec;
use fathom_designs::finding::Finding;
use fathom_engine::search::Report;
use serde_json::{Value, json};

use super::DesignArgs;
use crate::command::Ending;
use crate::text::{bold, grouped};

/// A property that does not hold.
pub(super) struct Violation {
    pub(super) property: String,
    pub(super) critical: bool,
    pub(super) count: u64,
    pub(super) steps: usize,
    pub(super) path: String,
    /// None if the path cannot be played again: the design is not deterministic.
    pub(super) finding: Option<Finding>,
}

/// What came out.
pub(super) struct Outcome {
    pub(super) spec: Spec,
    pub(super) device: Option<Geometry>,
    pub(super) report: Report,
    /// Steps taken and power failures judged.
    pub(super) ops: u64,
    /// Power failures judged inside steps.
    pub(super) recoveries: u64,
    pub(super) violations: Vec<Violation>,
}

impl Outcome {
    /// What is kept: what matters.
    pub(super) fn findings(&self) -> impl Iterator<Item = &Finding> {
        let critical = self.violations.iter().filter(|violation| violation.critical);
        critical.filter_map(|violation| violation.finding.as_ref())
    }

    pub(super) fn ending(&self) -> Ending {
        match self.violations.iter().any(|violation| violation.critical) {
            true => Ending::Findings,
            false => Ending::Clean,
        }
    }

    pub(super) fn json(&self) -> Value {
        let report = &self.report;
        let violation = |violation: &Violation| {
            let finding = violation.finding.as_ref();
            json!({
                "property": violation.property,
                "critical": violation.critical,
                "states": violation.count,
                "steps": violation.steps,
                "path": violation.path,
                "id": finding.filter(|_| violation.critical).map(|finding| &finding.record.id),
                "steps_minimal": finding.map(|finding| finding.record.steps),
                "story": finding.map(|finding| finding.story.to_string()),
            })
        };
        json!({
            "design": self.spec.name,
            "states": report.states,
            "ops": self.ops,
            "recoveries": self.recoveries,
            "depth": report.depth(),
            "violations": self.violations.iter().map(violation).collect::<Vec<_>>(),
            "stop": report.stop.to_string(),
            "bytes_per_state": report.bytes_per_state(),
            "coverage": report.coverage(),
            "seconds": report.elapsed.as_secs_f64(),
        })
    }

    pub(super) fn text(&self, args: &DesignArgs, out: &Path) -> String {
        let mut text = String::new();
        for violation in &self.violations {
            tell_violation(&mut text, violation, out);
        }
        self.tell_effort(&mut text);
        if args.bitstate_mib.is_some() {
            let percent = self.report.coverage() * 100.0;
            let _ = writeln!(text, "about {percent:.3} % of the states were seen");
        }
        if self.violations.is_empty() {
            let _ = writeln!(text, "nothing is wrong as far as the search went");
        }
        text
    }

    fn tell_effort(&self, text: &mut String) {
        let report = &self.report;
        let seconds = report.elapsed.as_secs_f64();
        let _ = writeln!(
            text,
            "{}: {} states, {} operations ({} power failures), depth {}: {}",
            self.spec,
            grouped(report.states),
            grouped(self.ops),
            grouped(self.recoveries),
            report.depth(),
            report.stop
        );
        let _ = writeln!(
            text,
            "{seconds:.2} s, {} operations/s, {:.1} bytes per visited state",
            grouped((self.ops as f64 / seconds.max(1e-9)) as u64),
            report.bytes_per_state()
        );
    }
}

fn tell_violation(text: &mut String, violation: &Violation, out: &Path) {
    let severity = if violation.critical { "" } else { " (harmless: repaired)" };
    let states = grouped(violation.count);
    let heading = format!("{}{severity} is violated in {states} states", violation.property);
    let _ = writeln!(text, "{}; the shortest way:", bold(&heading));
    let Some(finding) = &violation.finding else {
        let _ = writeln!(
            text,
            "  path {} cannot be played again: the design does not do the same twice, which is a \
             mistake in the design itself\n",
            violation.path
        );
        return;
    };
    let _ = write!(text, "{}", finding.story);
    let drawing = finding.story.drawing();
    if !drawing.is_empty() {
        let _ = write!(text, "\n{drawing}");
    }
    if violation.critical {
        let id = &finding.record.id;
        let _ = writeln!(text, "replay: fathom replay {id}");
        let _ = writeln!(text, "files:  {}", crate::supervise::output::shown(&out.join(id)));
    }
    text.push('\n');
}
