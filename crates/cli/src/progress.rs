//! The one observer of every command: shows progress, keeps what is found, and tells it at once.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result};
use fathom_core::partition::Coverage;
use fathom_record::run::{Kind, Run};
use fathom_record::{
    Finding, KNOWN_FILE, Kept, Known, Observer, Progress, RunDirectory, STATES_FILE, VisitedStates,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::command::Ending;
use crate::cover::own::LiveCoverage;
use crate::execution;
use crate::supervise::output::shown;
use crate::supervise::worker;
use crate::text::{grouped, print, print_json, say};

/// Findings that are told in full; the others are named.
const STORIES_MAX: usize = 10;

/// What every command that finds something is asked with.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct KnownArgs {
    /// Findings that are counted and not reported: see `fathom known` [default: fathom-known.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) known: Option<PathBuf>,
}

impl KnownArgs {
    /// The file that was named, or the one in the current directory.
    pub(crate) fn path(&self) -> PathBuf {
        self.known.clone().unwrap_or_else(|| PathBuf::from(KNOWN_FILE))
    }
}

/// Watches a run for people and keeps what it finds.
pub(crate) struct RunObserver {
    bar: ProgressBar,
    directory: RunDirectory,
    coverage: Option<LiveCoverage>,
    /// Machines read the output: only one value may appear on it.
    json: bool,
    /// Ids that were told in full or by name.
    told: BTreeSet<String>,
    /// What was noted.
    notes: Vec<String>,
    /// How far the execution had come when something was last seen.
    seen_at: Option<String>,
}

impl RunObserver {
    /// Makes the directory of the run and shows where it goes.
    pub(crate) fn start(out: &Path, run: Run, known: &KnownArgs, json: bool) -> Result<Self> {
        let known = Known::read(&known.path())?;
        if let (Some(seed), false) = (run.seed, json) {
            say!("seed {seed}");
        }
        let directory = RunDirectory::start(out, run, known)
            .with_context(|| format!("cannot write to {}: give another --out", out.display()))?;
        // Those of an earlier run; there may be none.
        let _ = std::fs::remove_file(out.join(STATES_FILE));
        worker::run_started(out);
        let bar = if json { ProgressBar::hidden() } else { ProgressBar::new(1000) };
        bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("constant"));
        let (told, notes) = (BTreeSet::new(), Vec::new());
        Ok(RunObserver { bar, directory, coverage: None, json, told, notes, seen_at: None })
    }

    /// Counts findings that are known to this run alone: see [`RunDirectory::subtract`].
    pub(crate) fn subtract(&mut self, known: Known) {
        self.directory.subtract(known);
    }

    /// Keeps the states that the run visits: see [`RunDirectory::keep_states`].
    pub(crate) fn keep_states(&mut self, space: &str, states: &VisitedStates) {
        self.directory.keep_states(space, states);
    }

    /// Writes what the run has exercised while it goes on.
    pub(crate) fn keep_coverage(&mut self, coverage: LiveCoverage) {
        self.coverage = Some(coverage);
    }

    /// The run so far.
    pub(crate) fn run(&self) -> &Run {
        self.directory.run()
    }

    /// Whether findings on this subject are known.
    pub(crate) fn has_known(&self) -> bool {
        self.directory.has_known()
    }

    /// Ends a run: `change` fills in what is known only now.
    pub(crate) fn finish(&mut self, change: impl FnOnce(&mut Run)) -> Result<Ending> {
        self.bar.finish_and_clear();
        let notes = std::mem::take(&mut self.notes);
        self.directory.finish(|run| {
            run.notes = notes;
            change(run);
            // The time that somebody outside of this guest keeps.
            if !run.complete && worker::wants_the_end() && !worker::is_interrupted() {
                (run.complete, run.stop) = (true, "the time was over".to_owned());
            }
        });
        if let Some(problem) = self.directory.problem() {
            say!("fathom: run.json is not up to date: {problem}");
        }
        let run = self.directory.run();
        if !self.json {
            print(&known_text(run))?;
        }
        Ok(ending(run))
    }

    /// Ends a run that failed. What was found before counts more than why it failed.
    pub(crate) fn fail(mut self, error: Error) -> Result<Ending> {
        let stop = format!("the harness failed: {error:#}");
        let ending = self.finish(|run| (run.complete, run.stop) = (false, stop.clone()))?;
        if ending != Ending::Findings {
            return Err(error);
        }
        say!("fathom: {stop}");
        if self.json {
            print_json(self.run())?;
        }
        Ok(ending)
    }

    /// Says something between two lines of progress.
    fn say(&self, text: &str) {
        // That nobody reads the output is no reason to stop a run.
        self.bar.suspend(|| drop(print(text)));
    }

    /// The finding with the point of the execution at which it was seen: see `replay --execution`.
    fn with_execution(&self, finding: &Finding) -> Finding {
        let mut finding = finding.clone();
        if let Some(point) = &self.seen_at {
            finding.labels.insert(execution::LABEL.to_owned(), point.clone());
        }
        finding
    }

    fn tell(&mut self, finding: &Finding, kept: &Kept) {
        let place = match kept {
            Kept::Known => return,
            Kept::Written(dir) => format!("files:  {}\n\n", shown(dir)),
            Kept::NotWritten(error) => format!("NOT RECORDED: {error}\n\n"),
        };
        if self.json || !self.told.insert(finding.id.clone()) {
            return;
        }
        let lost = matches!(kept, Kept::NotWritten(_));
        if self.told.len() <= STORIES_MAX || lost {
            self.say(&format!("{}{place}", finding.story));
        } else {
            self.say(&format!("also found: {}  {}\n", finding.id, finding.title));
        }
    }
}

/// How a run ended: something found counts most, then whether it came to its end.
pub(crate) fn ending(run: &Run) -> Ending {
    match (run.findings.is_empty(), run.complete) {
        (false, _) => Ending::Findings,
        (true, true) => Ending::Clean,
        (true, false) => Ending::Incomplete,
    }
}

/// A run that has just been started, as typed.
pub(crate) fn started(kind: Kind, subject: &str) -> Run {
    Run::start(kind, &command_line(), subject)
}

/// The command as typed, without the directory of the program.
fn command_line() -> String {
    let is_typed = |word: &std::ffi::OsString| {
        !word.as_encoded_bytes().starts_with(b"--worker=") && word != "--in-guest"
    };
    let words = std::env::args_os().filter(is_typed);
    let mut words = words.map(|word| word.to_string_lossy().into_owned());
    let program = words.next().unwrap_or_default();
    let name = Path::new(&program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
}

/// What the run says about known findings.
fn known_text(run: &Run) -> String {
    let mut text = String::new();
    for known in &run.known {
        text.push_str(&format!(
            "known: {} (seen {} times; {})\n",
            known.signature,
            grouped(known.sightings),
            known.because
        ));
    }
    for gone in &run.no_longer_seen {
        text.push_str(&format!("NO LONGER SEEN, although it is known: {gone}\n"));
    }
    text
}

impl Observer for RunObserver {
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()> {
        self.directory.progress(progress);
        let seconds = progress.elapsed.as_secs_f64();
        let mut parts: Vec<String> = progress
            .counts
            .iter()
            .map(|(name, value)| format!("{} {}", grouped(*value), name.replace('_', " ")))
            .collect();
        if let Some((_, value)) = progress.counts.first() {
            parts.insert(1, format!("{}/s", grouped((*value as f64 / seconds.max(1e-3)) as u64)));
        }
        parts.push(format!("{} findings", progress.findings));
        if let Some(share) = progress.share.filter(|share| *share > 0.0) {
            parts.push(format!("{:.0} s left", (seconds / share - seconds).max(0.0)));
        }
        self.bar.set_message(parts.join(", "));
        self.bar.tick();
        match worker::wants_the_end() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn coverage(&mut self, coverage: &dyn Fn() -> Coverage) {
        if let Some(live) = &mut self.coverage {
            live.write_sometimes(coverage);
        }
    }

    fn note(&mut self, note: &str) {
        self.bar.suspend(|| say!("note: {note}"));
        self.notes.push(note.to_owned());
    }

    fn seen(&mut self, finding: &Finding) -> bool {
        self.seen_at = execution::point();
        let finding = &self.with_execution(finding);
        let kept = self.directory.keep(finding, None);
        match &kept {
            Kept::Known => return false,
            Kept::NotWritten(_) => self.tell(finding, &kept),
            Kept::Written(dir) if !self.json => {
                let line = format!("found: {} (until it is shrunk: {})", finding.title, shown(dir));
                self.bar.suspend(|| say!("{line}"));
            }
            Kept::Written(_) => {}
        }
        // The exit code will say so, whatever ends this process.
        worker::found();
        self.bar.set_message(format!("{}: running it again, then shrinking", finding.title));
        self.bar.tick();
        true
    }

    fn finding(&mut self, finding: &Finding, seen_as: Option<&str>) {
        let finding = &self.with_execution(finding);
        let kept = self.directory.keep(finding, seen_as);
        if seen_as.is_none() && !matches!(kept, Kept::Known) {
            worker::found();
        }
        self.tell(finding, &kept);
    }
}

impl Drop for RunObserver {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
