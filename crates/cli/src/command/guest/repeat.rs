//! `fathom replay ID --guest KERNEL --execution`: repeats the whole execution that found something.
//!
//! A finding that depends on what happened before its operations (a timer, a race between threads) does
//! not show when its operations alone are executed in a fresh guest. A guest with a clock of its own is a
//! function of its seed, so the command that found it finds it again, after the same operations with the
//! same answers at the same times.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fathom_record::Finding;
use serde_json::json;

use crate::execution::{COMMAND_LABEL, LABEL};
use crate::locate::finding_dir;
use crate::text::{bold, print, print_json};

/// How often the findings of the repetition are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

pub(crate) fn run(what: &str, kernel: &str, out: &Path, json: bool) -> Result<ExitCode> {
    let recorded = Finding::read(&finding_dir(what, out)?)?;
    let label = |name: &str| {
        recorded.labels.get(name).with_context(|| {
            format!("{what} was not found in a guest with a clock of its own: it has no {name}")
        })
    };
    let (seed, command) = (label("guest_seed")?, label(COMMAND_LABEL)?);
    let words: Vec<String> = serde_json::from_str(command).context("its command is damaged")?;
    let place = tempfile::tempdir().context("making a directory for the repetition")?;
    let errors = tempfile::NamedTempFile::new().context("making a file for its errors")?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut child = Command::new(program)
        .args(&words)
        .args(["--guest", kernel, "--guest-seed", seed, "--out"])
        .arg(place.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(File::create(errors.path()).context("its errors")?)
        .spawn()
        .context("cannot start the repetition")?;
    let found = wait_for(&mut child, place.path(), errors.path(), &recorded.signature)?;
    tell(&recorded, found.as_ref(), json)
}

/// The finding of the repetition with this signature; ends the repetition as soon as it is there.
fn wait_for(
    child: &mut Child,
    place: &Path,
    errors: &Path,
    signature: &str,
) -> Result<Option<Finding>> {
    loop {
        let ended = child.try_wait().context("waiting for the repetition")?;
        let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
        let findings = entries.filter_map(|entry| Finding::read(&entry.path()).ok());
        let found = findings.into_iter().find(|finding| finding.signature == signature);
        if found.is_some() {
            if ended.is_none() {
                // Its guest ends with it. If that fails it has ended between two looks.
                let _ = child.kill();
                let _ = child.wait();
            }
            return Ok(found);
        }
        match ended.map(|status| status.code()) {
            Some(Some(0 | 1)) => return Ok(None),
            Some(_) => {
                let words = std::fs::read_to_string(errors).unwrap_or_default();
                let last = words.lines().rev().find(|line| !line.trim().is_empty());
                bail!("the repetition failed: {}", last.unwrap_or("without a word"));
            }
            None => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// Says whether it was the same execution: 0 if so, 1 if not.
fn tell(recorded: &Finding, found: Option<&Finding>, json: bool) -> Result<ExitCode> {
    let then = recorded.labels.get(LABEL);
    let now = found.and_then(|finding| finding.labels.get(LABEL));
    let verdict = match found {
        None => "not_reproduced",
        Some(_) if then.is_some() && then == now => "same_execution",
        Some(_) if then.is_none() => "reproduced",
        Some(_) => "other_execution",
    };
    if json {
        print_json(&json!({
            "verdict": verdict,
            "signature": recorded.signature,
            "execution": now,
            "recorded": then,
        }))?;
    } else {
        let nothing = "not recorded".to_owned();
        let (then, now) = (then.unwrap_or(&nothing), now.unwrap_or(&nothing));
        let text = match verdict {
            "same_execution" => format!("{}: {now}", bold("the same execution")),
            "reproduced" => format!("{}: {}", bold("reproduced"), recorded.signature),
            "other_execution" => {
                format!("{}, in another execution: {now}, recorded {then}", bold("reproduced"))
            }
            _ => format!("{}: {}", bold("not reproduced"), recorded.signature),
        };
        print(&format!("{text}\n"))?;
    }
    Ok(ExitCode::from(u8::from(!matches!(verdict, "same_execution" | "reproduced"))))
}
