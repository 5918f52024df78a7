//! `fathom` alone: ten seconds that show what it does, without root, without anything installed.
//!
//! First a comparison that should find nothing: a directory of this machine against the reference.
//! Then one that must find something: the reference against itself with a bug switched on.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use fathom_engine::{Config, Plan, Report, replay};
use fathom_model::Mutant;
use serde_json::json;

use super::Ending;
use super::check::{report_json, summary};
use crate::campaign::{run_check, with_subject};
use crate::plan::{Checked, labels};
use crate::subjects::{Spec, read_profile};
use crate::text::{bold, print, print_json};

const HOST_BUDGET: Duration = Duration::from_secs(3);
const MUTANT_BUDGET: Duration = Duration::from_secs(5);
const SHRINK_SECONDS: u64 = 1;
const SEED: u64 = 1;

const NEXT: &str = "  \
  fathom check dir:PATH   any directory, without root
  fathom list             what else can be checked on this machine
  fathom -h               all commands
";

pub(crate) fn run(out: &Path, json: bool) -> Result<Ending> {
    let directory = tempfile::tempdir().context("cannot make a directory for temporary files")?;
    let host = checked(Spec::Dir(directory.path().to_owned()), HOST_BUDGET)?;
    if !json {
        print(&format!(
            "{}\nA fresh directory of this machine ({}) and the reference file system execute the\n\
             same random operations; every answer and every tree is compared.\n\n",
            bold("1. Does your file system behave like a file system?"),
            host.plan.labels["profile"],
        ))?;
    }
    let host_report = run_check(&host, json)?;
    if !json {
        print(&stories(&host_report, out)?)?;
        print(&summary(&host, &host_report))?;
    }
    let mutant = Mutant::RenameNlink;
    let liar = checked(Spec::Model(Some(mutant)), MUTANT_BUDGET)?;
    if !json {
        print(&format!(
            "\n{}\nThe same with a file system that has a known bug switched on:\n{}.\n\n",
            bold("2. Would it notice?"),
            mutant.describe().trim_end_matches('.'),
        ))?;
    }
    let liar_report = run_check(&liar, json)?;
    let replayed = replay_first(&liar, &liar_report)?;
    if json {
        return print_json(&json!({
            "host": report_json(&host, &host_report),
            "mutant": report_json(&liar, &liar_report),
            "replay": replayed,
        }))
        .map(|()| Ending::Clean);
    }
    print(&stories(&liar_report, out)?)?;
    print(&format!("replayed now: {replayed}\n\n{}\n{NEXT}", bold("Next")))?;
    Ok(Ending::Clean)
}

fn checked(spec: Spec, budget: Duration) -> Result<Checked> {
    let profile = spec.profile()?;
    let mut config = Config::default();
    config.check.shrink_seconds = SHRINK_SECONDS;
    let reference = spec.reference(read_profile(&profile)?)?;
    let plan = Plan {
        seed: SEED,
        config,
        reference,
        ops_max: None,
        budget: Some(budget),
        labels: labels(&profile),
    };
    Ok(Checked { spec, plan })
}

/// Tells and records what was found.
fn stories(report: &Report, out: &Path) -> Result<String> {
    let mut text = String::new();
    for finding in &report.findings {
        let dir = finding.write(out)?;
        text.push_str(&format!("{finding}files:  {}\n\n", dir.display()));
    }
    Ok(text)
}

fn replay_first(checked: &Checked, report: &Report) -> Result<String> {
    let Some(finding) = report.findings.first() else {
        return Ok("nothing to replay: the bug was not met in this time".to_owned());
    };
    with_subject(&checked.spec, &checked.plan.reference, false, |subject| {
        Ok(replay(subject, &finding.minimal)?.verdict.to_string())
    })
}
