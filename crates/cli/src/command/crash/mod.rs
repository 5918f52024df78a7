//! `fathom crash`: cuts the power of a library file system at every write of every short workload.

pub(crate) mod again;
mod mutant;
pub(crate) mod plan;
mod subject;
pub(crate) mod tell;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use fathom_block::BlockBacked;
use fathom_engine::crash::last_words::CrashSource;
use fathom_engine::crash::{self, CrashPlan, CrashReport};
use fathom_record::Known;
use fathom_record::coverage::Report;
use serde_json::json;

use super::Ending;
use crate::args::CrashArgs;
use crate::cover::own::{self, Files};
use crate::progress::{KnownArgs, RunObserver};
use crate::supervise::worker::{self, About};
use crate::text::{print, print_json};
use tell::{describe, geometry_text, report_json, run_of, summary};

pub(crate) use subject::open;

/// One session with a library file system, or one image, may take so long.
const DEADLINE: Duration = Duration::from_secs(30);

/// Shrinking and writing may add so much to the budget.
const GRACE: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &CrashArgs, out: &Path, json: bool) -> Result<Ending> {
    let subject = open(&args.subject, args.geometry.as_deref(), args.mutant.as_deref())?;
    let mut plan = plan::plan(args, out)?;
    mutant::add_level(args, &*subject, &mut plan);
    plan.config.validate()?;
    if args.dry_run {
        return dry_run(&*subject, &plan, json);
    }
    let files = Files::new(out, args.coverage.as_ref())?;
    crash::quiet_panics();
    let without = match &args.mutant {
        Some(_) => mutant::found_without(args, &*subject, &plan)?,
        None => Known::default(),
    };
    let (mut observer, report) = match check(&*subject, &plan, out, &args.known, without, json)? {
        Checked::Done(observer, report) => (observer, report),
        Checked::Failed(ending) => return Ok(ending),
    };
    let coverage = coverage(&*subject, &report);
    files.write_or_say(&coverage);
    let ending = observer.finish(|run| describe(run, &report, &plan))?;
    if report.crash_images == 0 && ending == Ending::Clean {
        bail!("no crash image was examined: this run says nothing about {}", subject.name());
    }
    if json {
        let mut value = report_json(&*subject, &report, observer.run());
        value.as_object_mut().expect("it is one").extend(own::json(&coverage));
        print_json(&value)?;
    } else {
        print(&summary(&*subject, &report, observer.run()))?;
        print(&own::line(&coverage, &files))?;
        print(&mutant::verdict(args, observer.run()))?;
    }
    Ok(ending)
}

/// What the workloads have exercised.
fn coverage(subject: &dyn BlockBacked, report: &CrashReport) -> Report {
    let title = format!("fathom crash {}", subject.name());
    own::report(&report.coverage, &title, report.search.elapsed.as_secs_f64())
}

/// A check that ran.
pub(crate) enum Checked {
    /// To its end.
    Done(Box<RunObserver>, Box<CrashReport>),
    /// Until the harness failed, after something was found.
    Failed(Ending),
}

/// Runs the check; what it finds is recorded and told as it is found.
pub(crate) fn check(
    subject: &dyn BlockBacked,
    plan: &CrashPlan,
    out: &Path,
    known: &KnownArgs,
    without_mutant: Known,
    json: bool,
) -> Result<Checked> {
    crash::quiet_panics();
    let crash = Some(CrashSource::new(subject, &plan.config, Some(plan)));
    worker::describe(About { crash, ..About::default() });
    worker::limit(DEADLINE, plan.time_max.map(|time| time + GRACE));
    let mut observer = RunObserver::start(out, run_of(subject, plan), known, json)?;
    observer.subtract(without_mutant);
    match crash::crash(subject, plan, &mut observer) {
        Ok(report) => Ok(Checked::Done(Box::new(observer), Box::new(report))),
        Err(error) => Ok(Checked::Failed(observer.fail(error.into())?)),
    }
}

fn dry_run(subject: &dyn BlockBacked, plan: &CrashPlan, json: bool) -> Result<Ending> {
    let guarantee = subject.guarantee();
    if json {
        print_json(&json!({
            "subject": subject.name(),
            "version": subject.version(),
            "geometry": subject.geometry(),
            "guarantee": guarantee,
            "config": plan.config,
        }))?;
    } else {
        print(&format!(
            "# {} ({}), {}\n{}",
            subject.name(),
            subject.version(),
            geometry_text(&subject.geometry()),
            toml::to_string(&plan.config)?
        ))?;
    }
    Ok(Ending::Clean)
}
