//! A seeded bug brings the power failures that show it, and what the file system shows without it is
//! subtracted: what is left says whether the check would notice.

use std::ops::ControlFlow;

use anyhow::{Result, bail};
use fathom_block::DiskFileSystem;
use fathom_engine::crash::CrashPlan;
use fathom_record::{Finding, Known, Observer, Progress, Run};
use fathom_subjects::catalogue::Asked;
use fathom_subjects::library::faulty;

use super::{Source, open};
use crate::args::CrashArgs;
use crate::supervise::worker;
use crate::text::say;

const BECAUSE: &str = "found without the mutant too";

/// Adds the level of power failures at which the mutant shows itself, unless levels were typed.
pub(super) fn add_level(args: &CrashArgs, subject: &dyn DiskFileSystem, plan: &mut CrashPlan) {
    let Some(name) = &args.mutant else { return };
    let Some(mutant) = faulty::all().iter().find(|mutant| mutant.name == name) else { return };
    let levels = &mut plan.config.levels;
    if levels.is_empty() {
        levels.clone_from(&subject.guarantee().survives.is);
    }
    if levels.contains(&mutant.level) {
        return;
    }
    if args.level.is_empty() {
        levels.push(mutant.level);
    } else {
        say!("note: {name} shows itself with --level {}", mutant.level.name());
    }
}

/// Runs the same plan on the file system as it is.
pub(super) fn found_without(
    args: &CrashArgs,
    mutated: &dyn DiskFileSystem,
    plan: &CrashPlan,
    source: &Source,
) -> Result<Known> {
    if source.is_endless() && plan.time_max.is_none() && plan.states_max.is_none() {
        bail!(
            "what is found without the mutant is found out first, and {source} has no end: give --budget \
             or --states"
        );
    }
    let asked = Asked { mutant: None, ..super::asked(args) };
    let subject = open(&args.subject, &asked, args.jobs)?;
    let plan = CrashPlan { checkpoint: None, stop_at_first: false, ..plan.clone() };
    let mut collector = Collector::default();
    super::execute(&*subject, &plan, source, &mut collector)??;
    let mut known = collector.0;
    for entry in &mut known.entries {
        entry.subject = mutated.name().to_owned();
    }
    Ok(known)
}

/// Whether the mutant was noticed, as the last word of the run.
pub(super) fn verdict(args: &CrashArgs, is_subtracted: bool, run: &Run) -> String {
    let Some(name) = &args.mutant else { return String::new() };
    match run.findings.len() {
        n if n > 0 && !is_subtracted => {
            format!("{n} found with {name}: noticed if the same command without it finds nothing\n")
        }
        0 => format!("NOT noticed: nothing is found with {name} that is not found without it\n"),
        1 => format!("noticed: 1 finding that is not there without {name}\n"),
        n => format!("noticed: {n} findings that are not there without {name}\n"),
    }
}

/// Collects findings as they are seen; nothing is looked at any closer.
#[derive(Default)]
struct Collector(Known);

impl Observer for Collector {
    fn progress(&mut self, _: &Progress) -> ControlFlow<()> {
        match worker::is_interrupted() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn seen(&mut self, finding: &Finding) -> bool {
        self.0.add(finding, BECAUSE);
        false
    }

    fn finding(&mut self, finding: &Finding, _: Option<&str>) {
        self.0.add(finding, BECAUSE);
    }
}
