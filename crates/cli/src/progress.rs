//! Progress on the standard error, for people; nothing where that is not a terminal.

use std::time::Duration;

use fathom_engine::{Finding, Plan, Reporter, Signature, Stats};
use indicatif::{ProgressBar, ProgressStyle};

use crate::text::grouped;

/// A bar with rate, states, findings and the time left.
pub(crate) struct Bar {
    bar: ProgressBar,
    ops_max: Option<u64>,
    budget: Option<Duration>,
}

impl Bar {
    /// A bar for a plan; `quiet` shows nothing.
    pub(crate) fn new(plan: &Plan, quiet: bool) -> Bar {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(1000) };
        bar.set_style(
            ProgressStyle::with_template("{bar:24} {msg}").expect("the template is constant"),
        );
        Bar { bar, ops_max: plan.ops_max, budget: plan.budget }
    }
}

impl Reporter for Bar {
    fn progress(&mut self, stats: &Stats) {
        let seconds = stats.elapsed.as_secs_f64();
        let share = match (self.ops_max, self.budget) {
            (Some(ops_max), _) => stats.ops as f64 / ops_max as f64,
            (None, Some(budget)) => seconds / budget.as_secs_f64(),
            (None, None) => 0.0,
        };
        let left = if share > 0.0 { (seconds / share - seconds).max(0.0) } else { 0.0 };
        self.bar.set_position((share * 1000.0) as u64);
        self.bar.set_message(format!(
            "{} operations, {}/s, {} states, {} findings, {left:.0} s left",
            grouped(stats.ops),
            grouped(stats.rate() as u64),
            grouped(stats.states() as u64),
            stats.findings,
        ));
        if share >= 1.0 {
            self.bar.finish_and_clear();
        }
    }

    fn suspicion(&mut self, signature: &Signature, ops: usize) {
        self.bar.set_message(format!(
            "{signature} after {} operations: running it again, then shrinking",
            grouped(ops as u64)
        ));
    }

    fn finding(&mut self, _: &Finding) {}
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
