//! Findings on checkers once more: replayed, and on another version.

use std::path::Path;

use anyhow::{Context, Result};
use fathom_fsck::campaign::State;
use fathom_fsck::{Case, Checker, Details, Disk, Subject, SubjectOptions, campaign};
use fathom_record::Finding;
use serde_json::{Value, json};

use super::open_disk;
use crate::args::ReplayArgs;
use crate::command::Ending;
use crate::text::{bold, print, print_json};

/// Whether a directory has a finding of `fathom fsck`.
pub(crate) fn is_in(dir: &Path) -> bool {
    Finding::read(dir).is_ok_and(|finding| finding.kind == fathom_fsck::KIND)
}

/// Runs the case of a finding again.
pub(crate) fn replay(args: &ReplayArgs, dir: &Path, json: bool) -> Result<Ending> {
    let finding = Finding::read(dir)?;
    let details: Details = finding.record(dir)?;
    let checker = Checker::named(&details.checker).or_else(|_| Checker::named(&finding.subject))?;
    let program = args.subject.as_ref().unwrap_or(&details.checker_program);
    let options = SubjectOptions { program: Some(program.into()), ..SubjectOptions::default() };
    let disk = match details.case.crashed {
        true => Disk::before_crash(Path::new(&details.disk)).map_err(anyhow::Error::from),
        false => open_disk(&details.disk),
    };
    let disk = disk.context("the disk of the finding")?;
    let subject = Subject::new(checker, disk, &options)?;
    let again = campaign::again(&subject, &details.case)?;
    let same = again.signatures.contains(&finding.signature);
    let verdict = match (same, again.signatures.is_empty()) {
        (true, _) => "reproduced",
        (false, true) => "not reproduced",
        (false, false) => "different",
    };
    if json {
        print_json(&json!({
            "verdict": verdict.replace(' ', "_"),
            "case": details.case.text(),
            "ends": again.ends,
            "recorded": finding.signature,
            "signatures": again.signatures,
        }))?;
    } else {
        print(&format!(
            "{}\n{}\n{}: {}\n",
            details.case.text(),
            again.story,
            bold(verdict),
            finding.signature
        ))?;
    }
    Ok(if same { Ending::Clean } else { Ending::Findings })
}

/// Runs corruptions that the user typed, in the sandbox of a campaign, and shows what the runs said.
pub(super) fn cases(subject: &Subject, texts: &[String], json: bool) -> Result<(Ending, Value)> {
    let mut ending = Ending::Clean;
    let mut values = Vec::new();
    for text in texts {
        let case = Case::parse(text, &subject.map, &subject.disk.bytes, true)?;
        let again = campaign::again(subject, &case)?;
        if !again.signatures.is_empty() {
            ending = Ending::Findings;
        }
        if !json {
            let verdict = match again.signatures.is_empty() {
                true => "nothing is wrong".to_owned(),
                false => again.signatures.join("\n"),
            };
            print(&format!("{}\n{}\n{}\n", bold(&case.text()), again.story, verdict))?;
        }
        values.push(json!({
            "case": case.text(),
            "ends": again.ends,
            "signatures": again.signatures,
            "losses": again.losses,
        }));
    }
    Ok((ending, json!({"disk": subject.disk.name, "cases": values})))
}

/// Runs the simplest case of every cause of a campaign on another version of the checker, and says what that
/// does with it: the same, nothing wrong, or something else. As text and as JSON.
pub(super) fn against(
    subject: &Subject,
    other: &Path,
    options: &SubjectOptions,
    state: &State,
) -> Result<(String, Value)> {
    let options = SubjectOptions { program: Some(other.to_owned()), ..options.clone() };
    let other = Subject::new(subject.checker.clone(), subject.disk.clone(), &options)?;
    let version = other.checker.version_line();
    let mut text = format!("\nagainst {} ({version}):\n", other.program.display());
    let (mut same, mut only_here, mut differs) = (0, Vec::new(), Vec::new());
    for (signature, cause) in &state.causes {
        let again = campaign::again(&other, &cause.case)?;
        let case = cause.case.text();
        if again.signatures.contains(signature) {
            same += 1;
        } else if again.signatures.is_empty() {
            text.push_str(&format!("  only here: {case}: {signature}\n"));
            only_here.push(json!({"case": case, "signature": signature}));
        } else {
            let there = again.signatures.join("; ");
            text.push_str(&format!("  differs: {case}: {there} there, {signature} here\n"));
            differs.push(json!({"case": case, "signature": signature, "there": again.signatures}));
        }
    }
    text.push_str(&format!(
        "  {same} the same, {} only here, {} different\n",
        only_here.len(),
        differs.len()
    ));
    let program = other.program.display().to_string();
    Ok((
        text,
        json!({
            "program": program,
            "version": version,
            "same": same,
            "only_here": only_here,
            "differs": differs,
        }),
    ))
}
