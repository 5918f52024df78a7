//! What an end of the worker means, and the finding that is made of it.

use std::path::Path;
use std::process::ExitCode;

use fathom_core::{Activity, Op, Violation};
use fathom_engine::crash::{Event, Script};
use fathom_subjects::supervise::{Board, LaneState};
use serde_json::{Value, json};

use super::output::shown;
use super::worker::About;
use crate::args::{Cli, Command};
use crate::text::{print, print_json, say};

/// How a campaign ended that did not come to its end.
#[derive(Clone, Debug)]
pub(crate) enum Death {
    /// Somebody wanted that.
    Interrupted,
    /// The harness itself failed.
    Failed(String),
    /// What was tested is the cause, or may be.
    Caused {
        /// What happened.
        violation: Violation,
        /// To whom; none if no operation was being executed.
        lane: Option<LaneState>,
    },
}

impl Death {
    pub(crate) fn of(violation: Violation) -> Death {
        Death::Caused { violation, lane: None }
    }

    pub(crate) fn in_lane(self, lane: LaneState) -> Death {
        match self {
            Death::Caused { violation, .. } => Death::Caused { violation, lane: Some(lane) },
            other => other,
        }
    }

    /// The lane that was busy; otherwise one that has executed something.
    pub(crate) fn with_lane_of(self, board: &Board) -> Death {
        match self {
            Death::Caused { violation, lane: None } => {
                let lanes = board.lanes();
                let busy = lanes.iter().find(|lane| lane.activity != Activity::Idle);
                let used = || lanes.iter().find(|lane| !board.records(lane.index).is_empty());
                let lane = busy.or_else(used).cloned();
                Death::Caused { violation, lane }
            }
            other => other,
        }
    }

    /// What the kernel's log adds: an oops is the cause of a death or a hang, and so is want of
    /// memory.
    pub(crate) fn considering(self, trouble: &[String], memory: bool, mib: u64) -> Death {
        let Death::Caused { violation, lane } = self else { return self };
        let violation = match violation {
            _ if !trouble.is_empty() => Violation::Oops { lines: trouble.to_vec() },
            Violation::Died { how } if memory && how == "SIGKILL" => Violation::OutOfMemory { mib },
            other => other,
        };
        Death::Caused { violation, lane }
    }
}

/// Said of a journal that this program did not write.
pub(super) const NO_RECORD: &str =
    "the journal of the worker cannot be read: an operation is damaged";

/// Tells how a campaign ended.
pub(crate) struct Teller<'a> {
    pub(crate) cli: &'a Cli,
    pub(crate) out: &'a Path,
    pub(crate) board: &'a Board,
}

/// A finding that was made of a death.
struct Written {
    id: String,
    class: String,
    signature: String,
    ops: usize,
    story: String,
    /// Where it was written, or why it was not.
    dir: Result<String, String>,
}

impl Teller<'_> {
    pub(crate) fn tell(&self, death: Death, held: &[String]) -> ExitCode {
        let about: About = serde_json::from_slice(&self.board.about()).unwrap_or_default();
        match death {
            Death::Interrupted => {
                self.incomplete("interrupted: what was told is not complete", &[])
            }
            Death::Failed(how) => {
                self.incomplete(&format!("the worker ended ({how}): see above"), &[])
            }
            Death::Caused { violation, lane } => {
                let set_up = lane.as_ref().is_none_or(|lane| lane.activity == Activity::SettingUp);
                let records = lane.as_ref().map(|lane| self.board.records(lane.index));
                let records = records.unwrap_or_default();
                let blamed = matches!(violation, Violation::Died { .. } | Violation::Oops { .. })
                    && !about.sources.is_empty()
                    && lane.is_some();
                if set_up && records.is_empty() && !blamed {
                    let what = format!("{} while the subject was being set up", words(&violation));
                    return self.incomplete(&what, &[]);
                }
                let lane = lane.expect("one without a lane has no records");
                match self.finding(&about, &lane, &records, violation, held) {
                    Ok(written) => self.told(&about, &lane, written),
                    Err(what) => self.incomplete(&what, &[]),
                }
            }
        }
    }

    /// Writes the finding.
    fn finding(
        &self,
        about: &About,
        lane: &LaneState,
        records: &[Vec<u8>],
        violation: Violation,
        held: &[String],
    ) -> Result<Written, String> {
        let dropped = lane.dropped;
        let replay = about.replayed.is_some();
        if let Some(source) = about.sources.get(lane.subject) {
            let ops: Option<Vec<Op>> = records.iter().map(|record| Op::unpack(record)).collect();
            let ops = ops.ok_or(NO_RECORD)?;
            let mut finding = source.last_words(&ops, violation);
            finding.labels.insert("while".to_owned(), lane.activity.to_string());
            if dropped > 0 {
                let text = format!("{dropped} operations before the end are not in the trace");
                finding.labels.insert("incomplete".to_owned(), text);
            }
            if !held.is_empty() {
                finding.labels.insert("held".to_owned(), held.join("; "));
            }
            let dir = if replay { Ok(String::new()) } else { written(finding.write(self.out)) };
            let recorded = finding.recorded();
            return Ok(Written {
                id: recorded.id,
                class: recorded.class,
                signature: recorded.signature.to_string(),
                ops: recorded.ops,
                story: finding.to_string(),
                dir,
            });
        }
        if let Some(source) = &about.crash {
            let events: Option<_> = records.iter().map(|record| Event::unpack(record)).collect();
            let script = Script(events.ok_or(NO_RECORD)?);
            let finding = source.last_words(script, &how(&violation));
            let dir = if replay { Ok(String::new()) } else { written(finding.write(self.out)) };
            return Ok(Written {
                id: finding.record.id.clone(),
                class: violation.class().to_owned(),
                signature: finding.record.cause.to_string(),
                ops: finding.record.ops,
                story: finding.to_string(),
                dir,
            });
        }
        Err(format!("{} {}", words(&violation), "before the campaign began"))
    }

    /// Tells a finding: of a campaign it is new, of a replay it is the answer.
    fn told(&self, about: &About, lane: &LaneState, written: Written) -> ExitCode {
        if let Some(recorded) = &about.replayed {
            return self.told_replay(recorded, &written);
        }
        let json = self.cli.json.is_some();
        let place = match &written.dir {
            Ok(dir) => format!("files:  {dir}"),
            Err(error) => format!("cannot write it, it is only here: {error}"),
        };
        let text = format!("{}while it was {}\n{place}\n\n", written.story, lane.activity);
        if json {
            say!("{text}");
        } else {
            // If nobody reads there is nobody to tell.
            let _ = print(&text);
        }
        self.incomplete("the campaign ended with this finding", &[written])
    }

    fn told_replay(&self, recorded: &str, written: &Written) -> ExitCode {
        let same = *recorded == written.signature;
        let verdict = if same { "reproduced" } else { "different" };
        let now = &written.signature;
        let _ = if self.cli.json.is_some() {
            print_json(&json!({
                "verdict": verdict,
                "signature": now,
                "recorded": recorded,
                "ops": written.ops,
            }))
        } else {
            let tail = if same { now.clone() } else { format!("now {now}, recorded {recorded}") };
            print(&format!("{}\n{verdict}: {tail}\n", written.story)).map_err(Into::into)
        };
        // As for every replay: 0 says that the record is true.
        ExitCode::from(u8::from(!same))
    }

    /// The campaign did not come to its end: 1 if something was found, 2 if not.
    fn incomplete(&self, what: &str, found: &[Written]) -> ExitCode {
        let count = self.board.findings() + found.len() as u64;
        let earlier = match self.board.findings() {
            0 => String::new(),
            1 => format!("; 1 finding before it is in {}", shown(self.out)),
            n => format!("; {n} findings before it are in {}", shown(self.out)),
        };
        say!("fathom: {what}{earlier}");
        if self.cli.json.is_some() && !self.board.is_told() {
            let findings: Vec<Value> = found
                .iter()
                .map(|written| {
                    json!({
                        "id": written.id,
                        "class": written.class,
                        "signature": written.signature,
                        "ops": written.ops,
                    })
                })
                .collect();
            let command = match &self.cli.command {
                Some(Command::Check(_)) => "check",
                Some(Command::Design(_)) => "design",
                Some(Command::Replay(_)) => "replay",
                Some(Command::Shrink(_)) => "shrink",
                _ => "crash",
            };
            let _ = print_json(&json!({
                "command": command,
                "complete": false,
                "ended": what,
                "findings": findings,
                "findings_recorded": count,
            }));
        }
        ExitCode::from(if count > 0 { 1 } else { 2 })
    }
}

fn written<E: std::fmt::Display>(dir: Result<std::path::PathBuf, E>) -> Result<String, String> {
    dir.map(|dir| shown(&dir)).map_err(|error| error.to_string())
}

/// What happened, in words.
fn words(violation: &Violation) -> String {
    match violation {
        Violation::Died { how } => format!("the worker was ended by {how}"),
        Violation::Hang { seconds } => format!("nothing moved for {seconds} s"),
        Violation::OutOfMemory { mib } => format!("{mib} MiB of memory were used up"),
        Violation::Oops { .. } => "the kernel oopsed".to_owned(),
        other => other.class().to_owned(),
    }
}

/// The same without numbers: part of what makes two findings the same.
fn how(violation: &Violation) -> String {
    match violation {
        Violation::Died { how } => how.clone(),
        other => other.class().to_owned(),
    }
}
