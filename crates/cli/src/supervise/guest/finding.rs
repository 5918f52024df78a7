//! Deaths of guests as findings, and `run.json` of all guests of a campaign together.

use std::path::Path;

use anyhow::Result;
use fathom_core::{Activity, Violation};
use fathom_record::{Evidence, Finding, Kept, Known, Run, RunDirectory, STATES_FILE, Sketch};
use fathom_subjects::supervise::LaneState;
use serde_json::{Value, json};

use super::super::confirm::{Confirmation, DeathFinding, Fatal};
use super::super::death::{Death, words};
use super::super::output::shown;
use super::super::worker::About;
use super::round::Round;
use crate::args::{Cli, Command};
use crate::text::{print, print_json, say};

/// The name of `run.json`.
const RUN: &str = "run.json";

/// Why a campaign stopped that did not stop by itself.
const LIMIT_REACHED: &str = "its limit of time, operations or findings was reached";

/// Deaths of a campaign's guests.
pub(super) struct Deaths<'a> {
    cli: &'a Cli,
    out: &'a Path,
    known: Known,
    /// One for each cause.
    findings: Vec<Finding>,
    /// What guests that died had recorded themselves.
    earlier: Vec<Run>,
    /// The states that they had visited.
    earlier_states: Option<(String, Sketch)>,
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
        let (findings, earlier, earlier_states) = (Vec::new(), Vec::new(), None);
        Ok(Deaths { cli, out, known, findings, earlier, earlier_states, count: 0 })
    }

    /// Records a death at once, runs it again in fresh guests if it is new, and tells it.
    pub(super) fn add(
        &mut self,
        round: &Round<'_>,
        death: Death,
        confirmation: &Confirmation<'_>,
    ) -> Result<()> {
        let Death::Caused { violation, lane } = death else { return Ok(()) };
        self.count += 1;
        let about = round.about();
        let dead = DeadGuest::read(round, &about, lane)?;
        let first = dead.finding(&violation)?;
        let run = Run::read(&self.out.join(RUN)).ok();
        self.earlier.extend(run.clone());
        self.earlier_states = self.states();
        let seen = self.findings.iter().position(|known| known.signature == first.signature);
        let finding = match seen {
            Some(at) => {
                self.findings[at].sightings += 1;
                self.findings[at].clone()
            }
            None => {
                let finding = self.confirmed(&dead, &violation, first, confirmation)?;
                self.findings.push(finding.clone());
                finding
            }
        };
        let kept = match run {
            Some(run) => {
                RunDirectory::start(self.out, run, self.known.clone())?.keep(&finding, None)
            }
            None => match (self.known.covers(&finding), finding.write(self.out)) {
                (Some(_), _) => Kept::Known,
                (None, Ok(dir)) => Kept::Written(dir),
                (None, Err(error)) => Kept::NotWritten(error),
            },
        };
        self.tell(&finding, &kept, seen.is_none());
        Ok(())
    }

    /// The finding after it was run again, and shorter if that shows the same. It is on disk before
    /// anything else is tried.
    fn confirmed(
        &self,
        dead: &DeadGuest<'_>,
        violation: &Violation,
        first: Finding,
        confirmation: &Confirmation<'_>,
    ) -> Result<Finding> {
        if self.known.covers(&first).is_some() || dead.fatal.is_empty() {
            return Ok(first);
        }
        // What cannot be written is told at the end.
        let _ = first.write(self.out);
        if let Some(why) = confirmation.refuses(violation, &[]) {
            say!("fathom: {}: {why}", words(violation));
            return Ok(first);
        }
        say!("fathom: {}: running it again in fresh guests, then shrinking", words(violation));
        let unconfirmed = dead.fatal.finding(violation);
        let Some(confirmed) = confirmation.confirm(&dead.fatal, violation, &unconfirmed) else {
            return Ok(first);
        };
        let finding = dead.told(confirmed);
        if finding.id != first.id {
            // It goes by another name now.
            let _ = std::fs::remove_dir_all(self.out.join(&first.id));
        }
        Ok(finding)
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
        if code != 2 && self.found() > 0 {
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
        self.refuse_vacuous(operations)?;
        self.merge(Some(LIMIT_REACHED), operations);
        self.summary(true, operations)
    }

    /// Refuses to call a campaign clean that has executed nothing, as when its time was over before a guest
    /// on a busy host had booted.
    fn refuse_vacuous(&self, operations: u64) -> Result<()> {
        let counts = matches!(self.cli.command, Some(Command::Check(_) | Command::Crash(_)));
        if counts && operations == 0 && self.found() == 0 {
            anyhow::bail!(
                "nothing was executed: this run says nothing; give it more time (--budget)"
            );
        }
        Ok(())
    }

    /// How many findings there are that are not known.
    fn found(&self) -> usize {
        let before: usize = self.earlier.iter().map(|run| run.findings.len()).sum();
        self.reported().count() + before
    }

    /// The time was over and the last guest was in the middle of something: what it has found is on disk.
    pub(super) fn time_over(&self, round: &Round<'_>, operations: u64) -> Result<u8> {
        say!("fathom: the time is over: the guest was ended in the middle of its work");
        if round.findings() > 0 {
            self.merge(Some(LIMIT_REACHED), operations);
            self.summary(true, operations)?;
            return Ok(1);
        }
        self.over(operations)
    }

    /// Somebody interrupted the campaign.
    pub(super) fn interrupted(&self, round: &Round<'_>) -> Result<u8> {
        say!("fathom: interrupted: what was told is not complete");
        let code = self.summary(false, round.operations())?;
        Ok(if round.findings() > 0 { 1 } else { code })
    }

    fn summary(&self, complete: bool, operations: u64) -> Result<u8> {
        let found = self.found();
        say!("fathom: {} guests died; operations in all: {operations}", self.count);
        if self.cli.json.is_some() {
            print_json(&json!({
                "complete": complete,
                "ops": operations,
                "guests_died": self.count,
                "findings": self.recorded_pages(),
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

    /// Deaths, and what workers recorded that could not tell it any more.
    fn recorded_pages(&self) -> Vec<Value> {
        let mut pages = self.pages();
        let recorded = Run::read(&self.out.join(RUN)).map(|run| run.findings).unwrap_or_default();
        for finding in recorded {
            if pages.iter().all(|page| page["id"] != finding.id.as_str()) {
                pages.push(json!({
                    "id": finding.id,
                    "class": finding.class,
                    "signature": finding.title,
                    "sightings": finding.count,
                }));
            }
        }
        pages
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

    /// The states of all guests until now; each removes the file of the one before.
    fn states(&self) -> Option<(String, Sketch)> {
        let left = std::fs::read(self.out.join(STATES_FILE)).ok();
        let left = left.and_then(|bytes| Sketch::decode(&bytes).ok());
        match (self.earlier_states.clone(), left) {
            (Some((space, mut states)), Some((_, last))) => {
                states.unite(&last);
                Some((space, states))
            }
            (earlier, left) => earlier.or(left),
        }
    }

    /// Puts the states of all guests into the file of the last one.
    fn merge_states(&self) {
        let Some((space, states)) = self.states() else { return };
        // What was found matters more: that nobody can unite its states is no reason to complain.
        let _ = std::fs::write(self.out.join(STATES_FILE), states.encode(&space));
    }

    /// Puts what all guests found into the last `run.json`.
    fn merge(&self, stop: Option<&str>, operations: u64) {
        self.merge_states();
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

/// What is known of a death: what the worker left says what led there, the console how it ended.
struct DeadGuest<'a> {
    fatal: Fatal<'a>,
    activity: Activity,
    /// Operations that are not in the trace.
    dropped: u64,
    console: String,
}

impl<'a> DeadGuest<'a> {
    fn read(round: &Round<'_>, about: &'a About, lane: Option<LaneState>) -> Result<DeadGuest<'a>> {
        let board = round.board()?;
        let crash = about.crash.as_ref();
        let read = match &lane {
            Some(lane) => Fatal::read(&about.sources, crash, board, lane),
            None => Ok(Fatal::nothing(&about.sources, crash)),
        };
        let Some(fatal) = read.map_err(anyhow::Error::msg)? else {
            anyhow::bail!(
                "the guest died before the campaign began; its console says:\n{}",
                round.guest.console_since_boot()
            );
        };
        let (activity, dropped) =
            lane.map_or((Activity::SettingUp, 0), |lane| (lane.activity, lane.dropped));
        Ok(DeadGuest { fatal, activity, dropped, console: round.guest.console() })
    }

    /// The finding as it was first seen.
    fn finding(&self, violation: &Violation) -> Result<Finding> {
        Ok(self.told(self.fatal.finding(violation)))
    }

    /// The finding with what only the guest tells.
    fn told(&self, mut finding: DeathFinding) -> Finding {
        if self.dropped > 0 {
            let text = format!("{} operations before the end are not in the trace", self.dropped);
            finding.note("incomplete", text);
        }
        finding.note("while", self.activity.to_string());
        let mut record = finding.record();
        record.evidence.push(Evidence::text("console.txt", self.console.clone()));
        record
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn a_campaign_that_executed_nothing_is_not_clean() {
        let dir = tempfile::tempdir().unwrap();
        let over = |words: &[&str], operations| {
            let cli = Cli::try_parse_from([&["fathom"], words].concat()).unwrap();
            Deaths::new(&cli, dir.path()).unwrap().over(operations)
        };
        let error = over(&["check", "model", "--json"], 0).unwrap_err().to_string();
        assert!(error.contains("nothing was executed"), "{error}");
        assert_eq!(over(&["check", "model"], 1).unwrap(), 0);
        // It counts other things than operations.
        assert_eq!(over(&["fsck", "e2fsck"], 0).unwrap(), 0);
    }
}
