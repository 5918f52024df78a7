//! Recorded crash findings: played again, shrunk further.

use std::path::Path;

use anyhow::{Result, bail};
use fathom_engine::crash::finding::shrink_further;
use fathom_engine::crash::last_words::{CrashSource, with_script};
use fathom_engine::crash::stored::{CrashVerdict, StoredCrash};
use fathom_engine::crash::{self, CrashReplay};
use fathom_record::run::Kind;
use serde_json::json;

use super::subject::reopen;
use crate::args::{ReplayArgs, ShrinkArgs};
use crate::command::Ending;
use crate::command::again::AgainRun;
use crate::command::shrink::how_much;
use crate::supervise::worker::{self, About};
use crate::text::{bold, print, print_json};

/// Plays a recorded finding: the same operations, the same crash point.
pub(crate) fn replay(args: &ReplayArgs, dir: &Path, out: &Path, json: bool) -> Result<Ending> {
    let mut stored = StoredCrash::read(dir)?;
    if args.full {
        stored.minimal = stored.script.clone();
        // The recording is that of the minimal run.
        stored.recording = None;
    }
    let name = args.subject.as_ref().unwrap_or(&stored.record.subject);
    let subject = reopen(name, stored.record.geometry)?;
    crash::quiet_panics();
    let crash = Some(CrashSource::new(&*subject, &stored.record.config, None));
    let replayed = Some(stored.record.cause.to_string());
    worker::limit(args.deadline, None);
    worker::describe(About { crash, replayed, ..About::default() });
    let run = AgainRun::replay(args, subject.name(), out);
    let replay = with_script(&worker::supervision(), &stored.minimal, || {
        CrashReplay::play(&*subject, &stored)
    })?;
    let cause = replay.cause.as_ref().unwrap_or(&stored.record.cause);
    run.finish(stored.minimal.ops_len(), format!("{}: {cause}", replay.verdict));
    if json {
        print_json(&json!({
            "verdict": replay.verdict,
            "subject": subject.name(),
            "version": subject.version(),
            "ops": stored.minimal.ops_len(),
            "cause": replay.cause.as_ref().map(ToString::to_string),
            "recorded": stored.record.cause.to_string(),
            "run_again": replay.run_again,
        }))?;
    } else {
        let mut text = match replay.verdict {
            CrashVerdict::NotReproduced => String::new(),
            _ => replay.finding.to_string(),
        };
        text.push_str(&format!("\n{} on {}", bold(&replay.verdict.to_string()), subject.version()));
        match (&replay.cause, replay.verdict) {
            (_, CrashVerdict::Reproduced) => {
                text.push_str(": the same image, the same violation\n");
            }
            (Some(now), _) => {
                text.push_str(&format!(": now {now}, recorded {}\n", stored.record.cause));
            }
            (None, _) => text.push_str(&format!(": recorded {}\n", stored.record.cause)),
        }
        if let Some(again) = replay.run_again {
            text.push_str(&format!("{}\n", again.explain()));
        }
        print(&text)?;
    }
    // 0 says that the record is true, so that scripts can `bisect run` on it.
    let same = replay.verdict == CrashVerdict::Reproduced;
    Ok(if same { Ending::Clean } else { Ending::Findings })
}

/// Looks longer for a shorter way.
pub(crate) fn shrink(args: &ShrinkArgs, dir: &Path, out: &Path, json: bool) -> Result<Ending> {
    let stored = StoredCrash::read(dir)?;
    let name = args.subject.as_ref().unwrap_or(&stored.record.subject);
    let subject = reopen(name, stored.record.geometry)?;
    crash::quiet_panics();
    let run = AgainRun::start(Kind::Shrink, subject.name(), &args.what, out);
    let Some(finding) = shrink_further(&*subject, &stored, args.budget)? else {
        run.finish(stored.record.ops, "the finding does not show now".to_owned());
        bail!("{name} does not show the finding now: try `fathom replay {}`", args.what);
    };
    let dir = finding.write(out)?;
    let (ops, ops_before) = (finding.record.ops, stored.record.ops);
    run.finish(ops, format!("from {ops_before} to {ops} operations: {}", finding.record.id));
    if json {
        print_json(&json!({"id": finding.record.id, "ops": ops, "ops_before": ops_before}))?;
    } else {
        let told = how_much(finding.record.ops as u64, stored.record.ops as u64);
        print(&format!("{finding}files:  {}\n{told}", crate::supervise::output::shown(&dir)))?;
    }
    Ok(Ending::Findings)
}
