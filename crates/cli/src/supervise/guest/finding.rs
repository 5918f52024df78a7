//! Deaths of guests as findings, and `run.json` of all guests of a campaign together.

use std::path::Path;

use anyhow::{Context, Result};
use fathom_core::{Activity, Op, Violation};
use fathom_engine::crash::{Event, Script};
use fathom_record::{Evidence, Finding, Kept, Known, Run, RunDirectory};
use fathom_subjects::supervise::LaneState;
use serde_json::{Value, json};

use super::super::death::{Death, NO_RECORD};
use super::super::output::shown;
use super::round::Round;
use crate::args::{Cli, Command};
use crate::text::{print, print_json, say};

/// The name of `run.json`.
const RUN: &str = "run.json";

/// Deaths of a campaign's guests.
pub(super) struct Deaths<'a> {
    cli: &'a Cli,
    out: &'a Path,
    known: Known,
    /// One for each cause.
    findings: Vec<Finding>,
    /// What guests that died had recorded themselves.
    earlier: Vec<Run>,
    /// How many guests died.
    count: u64,
}

impl<'a> Deaths<'a> {
    pub(super) fn new(cli: &'a Cli, out: &'a Path) -> Result<Deaths<'a>> {
        let known = match &cli.command {
            Some(Command::Check(args)) => Known::read(&args.known.path())?,
            Some(Command::Crash(args)) => Known::read(&args.known.path())?,
            _ => Known::default(),
        };
        Ok(Deaths { cli, out, known, findings: Vec::new(), earlier: Vec::new(), count: 0 })
    }

    /// Records a death at once, and tells it.
    pub(super) fn add(&mut self, round: &mut Round<'_>, death: Death) -> Result<()> {
        let Death::Caused { violation, lane } = death else { return Ok(()) };
        self.count += 1;
        let finding = finding(round, violation, lane)?;
        let run = Run::read(&self.out.join(RUN)).ok();
        let seen = self.findings.iter_mut().find(|known| known.signature == finding.signature);
        let is_new = seen.is_none();
        let finding = match seen {
            Some(known) => {
                known.sightings += 1;
                known.clone()
            }
            None => {
                self.findings.push(finding.clone());
                finding
            }
        };
        let kept = match run {
            Some(run) => {
                self.earlier.push(run.clone());
                RunDirectory::start(self.out, run, self.known.clone())?.keep(&finding, None)
            }
            None => match (self.known.covers(&finding), finding.write(self.out)) {
                (Some(_), _) => Kept::Known,
                (None, Ok(dir)) => Kept::Written(dir),
                (None, Err(error)) => Kept::NotWritten(error),
            },
        };
        self.tell(&finding, &kept, is_new);
        Ok(())
    }

    fn tell(&self, finding: &Finding, kept: &Kept, is_new: bool) {
        let place = match kept {
            Kept::Known => {
                format!("known: {} (seen {} times)\n", finding.signature, finding.sightings)
            }
            _ if !is_new => format!("again: {} ({} times)\n", finding.signature, finding.sightings),
            Kept::Written(_) => {
                let dir = shown(&self.out.join(&finding.id));
                format!("{}files:  {dir}\n\n", finding.story)
            }
            Kept::NotWritten(error) => format!("{}NOT RECORDED: {error}\n\n", finding.story),
        };
        match self.cli.json.is_some() {
            true => say!("{place}"),
            // If nobody reads there is nobody to tell.
            false => drop(print(&place)),
        }
    }

    /// Deaths that are not known.
    fn reported(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| self.known.covers(finding).is_none())
    }

    /// The last guest came to its end: adds what the others left.
    pub(super) fn finish(&self, code: u8, round: &Round<'_>, operations: u64) -> Result<u8> {
        let mut code = code;
        let before: usize = self.earlier.iter().map(|run| run.findings.len()).sum();
        if code != 2 && (self.reported().count() > 0 || before > 0) {
            code = 1;
        }
        if self.count > 0 {
            self.merge(None, operations);
            say!("fathom: {} guests died; operations in all: {operations}", self.count);
        }
        if self.cli.json.is_some() {
            print(&self.with_deaths(&round.held_output))?;
        }
        Ok(code)
    }

    /// Nothing is left to do after a death.
    pub(super) fn over(&self, operations: u64) -> Result<u8> {
        self.merge(Some("its limit of time, operations or findings was reached"), operations);
        self.summary(true, operations)
    }

    /// The time was over and the last guest was in the middle of something: what it has found is on disk.
    pub(super) fn time_over(&self, round: &Round<'_>, operations: u64) -> Result<u8> {
        say!("fathom: the time is over: the guest was ended in the middle of its work");
        let code = self.over(operations)?;
        Ok(if round.findings() > 0 { 1 } else { code })
    }

    /// Somebody interrupted the campaign.
    pub(super) fn interrupted(&self, round: &Round<'_>) -> Result<u8> {
        say!("fathom: interrupted: what was told is not complete");
        let code = self.summary(false, round.operations())?;
        Ok(if round.findings() > 0 { 1 } else { code })
    }

    fn summary(&self, complete: bool, operations: u64) -> Result<u8> {
        let found = self.reported().count()
            + self.earlier.iter().map(|run| run.findings.len()).sum::<usize>();
        say!("fathom: {} guests died; operations in all: {operations}", self.count);
        if self.cli.json.is_some() {
            print_json(&json!({
                "complete": complete,
                "ops": operations,
                "guests_died": self.count,
                "findings": self.pages(),
            }))?;
        }
        Ok(match (found, complete) {
            (1.., _) => 1,
            (0, true) => 0,
            (0, false) => 2,
        })
    }

    fn pages(&self) -> Vec<Value> {
        let page = |finding: &Finding| {
            json!({
                "id": finding.id,
                "class": finding.class,
                "signature": finding.signature,
                "sightings": finding.sightings,
            })
        };
        self.reported().map(page).collect()
    }

    /// The worker's own value with the deaths in it.
    fn with_deaths(&self, output: &[u8]) -> String {
        let text = String::from_utf8_lossy(output).into_owned();
        let line = text.lines().last().unwrap_or_default();
        let Ok(Value::Object(mut value)) = serde_json::from_str::<Value>(line) else { return text };
        if self.count > 0 {
            value.insert("guests_died".to_owned(), self.count.into());
            let findings = value.entry("findings").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(findings) = findings {
                findings.extend(self.pages());
            }
        }
        let before = text.lines().count().saturating_sub(1);
        let before: String = text.lines().take(before).map(|line| format!("{line}\n")).collect();
        format!("{before}{}\n", Value::Object(value))
    }

    /// Puts what all guests found into the last `run.json`.
    fn merge(&self, stop: Option<&str>, operations: u64) {
        let Ok(mut run) = Run::read(&self.out.join(RUN)) else { return };
        for page in self.earlier.iter().flat_map(|run| &run.findings) {
            if run.findings.iter().all(|known| known.id != page.id) {
                run.findings.push(page.clone());
            }
        }
        let complete = run.complete || stop.is_some();
        let stop = stop.map_or_else(|| run.stop.clone(), ToOwned::to_owned);
        let Ok(mut directory) = RunDirectory::start(self.out, run, self.known.clone()) else {
            return;
        };
        for finding in &self.findings {
            directory.keep(finding, None);
        }
        directory.finish(|run| {
            (run.complete, run.stop) = (complete, stop);
            for count in &mut run.counts {
                if count.name == "operations" {
                    count.value = operations;
                }
            }
        });
    }
}

/// A finding of a death: what the worker left says what led there, the console how it ended.
fn finding(round: &Round<'_>, violation: Violation, lane: Option<LaneState>) -> Result<Finding> {
    let board = round.board()?;
    let about = round.about();
    let records = lane.as_ref().map(|lane| board.records(lane.index)).unwrap_or_default();
    let (subject, activity) =
        lane.as_ref().map_or((0, Activity::SettingUp), |lane| (lane.subject, lane.activity));
    let mut finding = if let Some(source) = about.sources.get(subject) {
        let ops: Option<Vec<Op>> = records.iter().map(|record| Op::unpack(record)).collect();
        source.last_words(&ops.context(NO_RECORD)?, violation).record()
    } else if let Some(source) = &about.crash {
        let events: Option<_> = records.iter().map(|record| Event::unpack(record)).collect();
        let how = match &violation {
            Violation::KernelReport { title, .. } => title.clone(),
            Violation::Died { how } => how.clone(),
            other => other.class().to_owned(),
        };
        source.last_words(Script(events.context(NO_RECORD)?), &how).record()
    } else {
        anyhow::bail!(
            "the guest died before the campaign began; its console says:\n{}",
            round.guest.console_since_boot()
        );
    };
    if let Some(lane) = lane.filter(|lane| lane.dropped > 0) {
        let text = format!("{} operations before the end are not in the trace", lane.dropped);
        finding.labels.insert("incomplete".to_owned(), text);
    }
    finding.labels.insert("while".to_owned(), activity.to_string());
    finding.evidence.push(Evidence::text("console.txt", round.guest.console()));
    Ok(finding)
}
