//! `fathom` alone: the crash check of a real embedded file system, without root, without anything
//! installed.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use fathom_record::Known;
use fathom_subjects::catalogue::Asked;

use super::Ending;
use super::crash::{Checked, Source, check, open, plan, tell};
use crate::args::{Cli, Command};
use crate::supervise::output::shown;
use crate::text::{bold, print, print_json};

/// A run that is longer than this on a slow machine stops and tells what it has.
const BUDGET: Duration = Duration::from_secs(60);

const NEXT: &str = "  \
  fathom crash --depth 5        longer workloads
  fathom crash --level epoch    writes that arrive out of order
  fathom check dir:PATH         does a directory behave like a file system? without root
  fathom list                   what else can be checked on this machine
";

pub(crate) fn run(out: &Path, json: bool) -> Result<Ending> {
    let Some(Command::Crash(args)) = Cli::parse_from(["fathom", "crash"]).command else {
        unreachable!("just said so")
    };
    let subject = open(&args.subject, &Asked::default(), args.jobs)?;
    let mut plan = plan::plan(&args, &*subject, out)?;
    plan.time_max = Some(BUDGET);
    if !json {
        print(&format!(
            "{}\n{} ({}) executes every workload of up to {} steps. In each of them the\n\
             power fails at every write, and in the middle of it; then the file system is mounted\n\
             again, and everything that it had promised must be there.\n\n",
            bold("Does a power failure lose anything?"),
            subject.name(),
            subject.version(),
            plan.config.depth,
        ))?;
    }
    let checked = check(&*subject, &plan, &Source::STEPS, out, &args, Known::default(), json)?;
    let (mut observer, report) = match checked {
        Checked::Done(observer, report) => (observer, report),
        Checked::Failed(ending) => return Ok(ending),
    };
    let ending = observer.finish(|run| tell::describe(run, &report, &plan))?;
    if report.crash_images == 0 && ending == Ending::Clean {
        bail!("no crash image was examined: this run says nothing about {}", subject.name());
    }
    if json {
        print_json(&tell::report_json(&*subject, &report, observer.run()))?;
    } else {
        let html = out.join("report.html");
        std::fs::write(&html, fathom_report::html::page(observer.run()))
            .with_context(|| format!("cannot write {}", html.display()))?;
        print(&tell::summary(&*subject, &report, observer.run()))?;
        print(&format!("report: {}\n\n{}\n{NEXT}", shown(&html), bold("Next")))?;
    }
    Ok(ending)
}
