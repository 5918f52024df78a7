//! What an end of the worker means, and the finding that is made of it.

use std::path::Path;
use std::process::ExitCode;

use fathom_core::{Activity, Op, Target, Violation};
use fathom_record::{Kept, Known, RunDirectory};
use fathom_subjects::supervise::{Board, LaneState};
use serde_json::{Value, json};

use super::confirm::{Confirmation, DeathFinding, Fatal};
use super::output::shown;
use super::worker::About;
use crate::args::{Cli, Command};
use crate::progress::KnownArgs;
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
    /// What the worker was doing.
    pub(crate) board: &'a Board,
    /// What the kernel does not let go of.
    pub(crate) held: &'a [String],
    /// How a finding is run again; what is a replay itself is not.
    pub(crate) confirmation: Option<Confirmation<'a>>,
}

impl Teller<'_> {
    pub(crate) fn tell(&self, death: &Death) -> ExitCode {
        let about: About = serde_json::from_slice(&self.board.about()).unwrap_or_default();
        let what = match death {
            Death::Interrupted => "interrupted: what was told is not complete".to_owned(),
            Death::Failed(how) => format!("the worker ended ({how}): see above"),
            Death::Caused { violation, lane } => {
                match self.finding(&about, lane.as_ref(), violation) {
                    Ok(finding) => return self.told(&about, finding),
                    Err(what) => what,
                }
            }
        };
        keep_last(about.run_in.as_deref(), self.out, known(self.cli), &what, None);
        self.incomplete(&what, None)
    }

    /// Makes a finding of a death, or says why it is none: nothing was asked of the subject yet.
    fn finding(
        &self,
        about: &About,
        lane: Option<&LaneState>,
        violation: &Violation,
    ) -> Result<DeathFinding, String> {
        let (board, held) = (self.board, self.held);
        let early = || format!("{} while the subject was being set up", words(violation));
        let Some(lane) = lane else { return Err(early()) };
        let fatal = Fatal::read(&about.sources, about.crash.as_ref(), board, lane)?;
        let Some(mut fatal) = fatal else {
            return Err(format!("{}; nothing of a subject was being executed", words(violation)));
        };
        if let Fatal::Check(_, ops) = &mut fatal
            && ops.is_empty()
            && lane.activity == Activity::SettingUp
        {
            // A program of ours that does not end says nothing about the subject; a call that the
            // kernel does not let go of does.
            let guilty = match violation {
                Violation::Died { .. }
                | Violation::Oops { .. }
                | Violation::KernelReport { .. } => true,
                Violation::Hang { .. } => held.iter().any(|line| line.contains("state D")),
                _ => false,
            };
            if !guilty {
                return Err(early());
            }
            // Whoever sets a subject up looks at it first.
            ops.push(Op::Stat { target: Target::Path(".".into()) });
        }
        if fatal.is_empty() {
            return Err(early());
        }
        let mut finding = fatal.finding(violation);
        finding.note("while", lane.activity.to_string());
        if lane.dropped > 0 {
            let text = format!("{} operations before the end are not in the trace", lane.dropped);
            finding.note("incomplete", text);
        }
        if !held.is_empty() {
            finding.note("held", held.join("; "));
        }
        Ok(if about.replayed.is_some() {
            finding
        } else {
            self.confirmed(&fatal, violation, finding)
        })
    }

    /// Keeps and tells the finding as it was first seen, then runs it again.
    fn confirmed(
        &self,
        fatal: &Fatal<'_>,
        violation: &Violation,
        mut first: DeathFinding,
    ) -> DeathFinding {
        let Some(confirmation) = &self.confirmation else { return first };
        if let Some(why) = confirmation.refuses(violation, self.held) {
            first.note("again", why);
            return first;
        }
        // On disk before anything else is tried. What cannot be written is told at the end.
        let record = first.record();
        let _ = record.write(self.out);
        say!("fathom: {}: running it again, then shrinking", words(violation));
        let Some(confirmed) = confirmation.confirm(fatal, violation, &first) else {
            return first;
        };
        if confirmed.record().id != record.id {
            // It goes by another name now.
            let _ = std::fs::remove_dir_all(self.out.join(&record.id));
        }
        confirmed
    }

    /// Tells a finding: of a campaign it is new, of a replay it is the answer.
    fn told(&self, about: &About, finding: DeathFinding) -> ExitCode {
        if let Some(recorded) = &about.replayed {
            return self.told_replay(about.run_in.as_deref(), recorded, &finding);
        }
        let (record, what) = (finding.record(), "the campaign ended with this finding");
        let kept =
            keep_last(about.run_in.as_deref(), self.out, known(self.cli), what, Some(&record));
        let place = match &kept {
            None | Some(Kept::Known) => "known: counted, not reported".to_owned(),
            Some(Kept::Written(dir)) => format!("files:  {}", shown(dir)),
            Some(Kept::NotWritten(error)) => format!("cannot write it, it is only here: {error}"),
        };
        let again = record.labels.get("again").map_or(String::new(), |why| format!("{why}\n"));
        let activity = record.labels.get("while").map_or("", String::as_str);
        let text = format!("{}{again}while it was {activity}\n{place}\n\n", record.story);
        if self.cli.json.is_some() {
            say!("{text}");
        } else {
            // If nobody reads there is nobody to tell.
            let _ = print(&text);
        }
        match kept {
            Some(Kept::Known) => self.incomplete("the campaign ended with a known finding", None),
            _ => self.incomplete(what, Some(&finding)),
        }
    }

    fn told_replay(
        &self,
        run_in: Option<&Path>,
        recorded: &str,
        finding: &DeathFinding,
    ) -> ExitCode {
        let record = finding.record();
        let now = &record.signature;
        let same = recorded == now;
        let verdict = if same { "reproduced" } else { "different" };
        if let Some(Ok(mut run)) = run_in.map(|dir| RunDirectory::resume(dir, Known::default())) {
            run.finish(|run| run.stop = format!("{verdict}: {now}"));
        }
        let _ = if self.cli.json.is_some() {
            print_json(&json!({
                "verdict": verdict,
                "signature": now,
                "recorded": recorded,
                "ops": finding.ops(),
            }))
        } else {
            let tail = if same { now.clone() } else { format!("now {now}, recorded {recorded}") };
            print(&format!("{}\n{verdict}: {tail}\n", record.story)).map_err(Into::into)
        };
        // As for every replay: 0 says that the record is true.
        ExitCode::from(u8::from(!same))
    }

    /// The campaign did not come to its end: 1 if something was found, 2 if not.
    fn incomplete(&self, what: &str, found: Option<&DeathFinding>) -> ExitCode {
        let board = self.board;
        let count = board.findings() + u64::from(found.is_some());
        let earlier = match board.findings() {
            0 => String::new(),
            1 => format!("; 1 finding before it is in {}", shown(self.out)),
            n => format!("; {n} findings before it are in {}", shown(self.out)),
        };
        say!("fathom: {what}{earlier}");
        if self.cli.json.is_some() && !board.is_told() {
            let findings: Vec<Value> = found.iter().map(|finding| finding_json(finding)).collect();
            let command = match &self.cli.command {
                Some(Command::Check(_)) => "check",
                Some(Command::Design(_)) => "design",
                Some(Command::Replay(_)) => "replay",
                Some(Command::Shrink(_)) => "shrink",
                Some(Command::Fsck(_)) => "fsck",
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

fn finding_json(finding: &DeathFinding) -> Value {
    let record = finding.record();
    json!({
        "id": record.id,
        "class": record.class,
        "signature": record.signature,
        "ops": finding.ops(),
        "runs": record.runs,
        "runs_reproduced": record.runs_reproduced,
    })
}

/// The list of known findings that the command was given.
fn known(cli: &Cli) -> Known {
    let given = match &cli.command {
        Some(Command::Check(args)) => args.known.clone(),
        Some(Command::Crash(args)) => args.known.clone(),
        Some(Command::Design(args)) => args.known.clone(),
        _ => KnownArgs { known: None },
    };
    // The worker has read it before: if it is damaged, that was said.
    Known::read(&given.path()).unwrap_or_default()
}

/// Records the last finding of a process that cannot go on, and says in its `run.json` how it ended.
/// Where the process has not begun one, what is there belongs to an earlier run and is left alone.
pub(crate) fn keep_last(
    run_in: Option<&Path>,
    out: &Path,
    known: Known,
    what: &str,
    finding: Option<&fathom_record::Finding>,
) -> Option<Kept> {
    let alone = |finding: &fathom_record::Finding| match finding.write(out) {
        Ok(dir) => Kept::Written(dir),
        Err(error) => Kept::NotWritten(error),
    };
    let directory = run_in.map(|dir| RunDirectory::resume(dir, known));
    let Some(Ok(mut directory)) = directory else { return finding.map(alone) };
    let kept = finding.map(|finding| directory.keep(finding, None));
    directory.finish(|run| (run.complete, run.stop) = (false, what.to_owned()));
    if let Some(problem) = directory.problem() {
        say!("fathom: run.json is not up to date: {problem}");
    }
    kept
}

/// What happened, in words.
pub(super) fn words(violation: &Violation) -> String {
    match violation {
        Violation::Died { how } => format!("the worker was ended by {how}"),
        Violation::Hang { seconds } => format!("nothing moved for {seconds} s"),
        Violation::OutOfMemory { mib } => format!("{mib} MiB of memory were used up"),
        Violation::Oops { .. } => "the kernel oopsed".to_owned(),
        Violation::KernelReport { title, .. } => format!("the guest's kernel says {title}"),
        other => other.class().to_owned(),
    }
}

/// The same without numbers: part of what makes two findings the same.
pub(super) fn how(violation: &Violation) -> String {
    match violation {
        Violation::Died { how } => how.clone(),
        Violation::KernelReport { title, .. } => title.clone(),
        other => other.class().to_owned(),
    }
}
