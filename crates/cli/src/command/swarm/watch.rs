//! Shows a swarm: a line in the terminal, the page.

use std::cell::Cell;

use fathom_record::swarm::SwarmStatus;
use fathom_report::html;
use fathom_subjects::supervise::SignalSource;
use fathom_swarm::{Listener, Merged, Page, SwarmDirectory, Watcher};
use indicatif::{ProgressBar, ProgressStyle};

use crate::text::{grouped, say};

/// Shows a swarm to whoever started it.
pub(super) struct Terminal<'a> {
    directory: &'a SwarmDirectory,
    signals: SignalSource,
    asked: Cell<bool>,
    listener: Option<Listener>,
    bar: ProgressBar,
    json: bool,
    /// Causes that were told.
    told: std::collections::BTreeSet<String>,
}

impl<'a> Terminal<'a> {
    pub(super) fn new(
        directory: &'a SwarmDirectory,
        signals: SignalSource,
        listener: Option<Listener>,
        json: bool,
    ) -> Terminal<'a> {
        let bar = if json { ProgressBar::hidden() } else { ProgressBar::new(1000) };
        bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("constant"));
        Terminal {
            directory,
            signals,
            asked: Cell::new(false),
            listener,
            bar,
            json,
            told: Default::default(),
        }
    }
}

impl Watcher for Terminal<'_> {
    fn event(&mut self, text: &str) {
        if !self.json {
            self.bar.suspend(|| say!("{text}"));
        }
    }

    fn status(&mut self, status: &SwarmStatus, merged: &Merged) {
        for finding in &merged.findings {
            let key = format!("{} {} {}", finding.kind, finding.subject, finding.signature);
            if self.told.insert(key) && !self.json {
                let (title, place) = (&finding.page.title, finding.directory.display());
                self.bar.suspend(|| say!("found: {title} ({place})"));
            }
        }
        let tally = &status.tally;
        let silent = status.tasks.iter().filter(|task| task.remark.starts_with("silent")).count();
        let mut parts = vec![
            format!("{}/{} tasks", grouped(tally.done + tally.found), grouped(tally.total())),
            format!("{} running", grouped(tally.running)),
            format!("{} operations", grouped(merged.count("operations"))),
            format!("{} states", grouped(merged.states_total().states)),
            format!("{} findings", merged.findings.len()),
        ];
        if let [.., before, last] = &status.course[..] {
            let seconds = (last.seconds - before.seconds).max(0.1);
            let more = last.operations.saturating_sub(before.operations) as f64;
            parts.insert(3, format!("{}/s", grouped((more / seconds) as u64)));
        }
        if silent > 0 {
            parts.push(format!("{silent} silent"));
        }
        if tally.failed > 0 {
            parts.push(format!("{} given up", tally.failed));
        }
        self.bar.set_message(parts.join(", "));
        self.bar.tick();
        // The page is also a file: what is shown outlives the coordinator, whatever ends it.
        let file = html::swarm::page(status, false);
        if let Err(error) = self.directory.write("index.html", file.as_bytes()) {
            self.event(&format!("the page is not up to date: {error}"));
        }
        if let Some(listener) = &self.listener {
            let json = serde_json::to_string(status).unwrap_or_default();
            listener.show(Page { html: html::swarm::page(status, true), json });
        }
    }

    fn wants_the_end(&self) -> bool {
        self.asked.set(self.asked.get() || self.signals.next().is_some());
        self.asked.get()
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
