//! `fathom crash`: cuts the power of a library file system at every write of every short workload.

pub(crate) mod again;
mod import;
mod library;
mod mutant;
pub(crate) mod plan;
mod subject;
pub(crate) mod tell;
mod workload;

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use fathom_block::DiskFileSystem;
use fathom_engine::crash::last_words::CrashSource;
use fathom_engine::crash::run::CrashError;
use fathom_engine::crash::sequences::crash_sequences;
use fathom_engine::crash::{self, CrashPlan, CrashReport};
use fathom_record::coverage::Report;
use fathom_record::{Known, Observer};
use fathom_subjects::catalogue::Asked;
use serde_json::json;

use super::Ending;
use crate::args::{CrashArgs, CrashCommand};
use crate::cover::own::{self, Files, LiveCoverage};
use crate::progress::RunObserver;
use crate::supervise::worker::{self, About};
use crate::text::{print, print_json};
use tell::{describe, geometry_text, report_json, run_of, summary};

use library::LeftOut;
pub(crate) use subject::open;
pub(crate) use workload::Source;

/// One session with a library file system, or one image, may take so long.
const DEADLINE: Duration = Duration::from_secs(30);

/// Shrinking and writing may add so much to the budget.
const GRACE: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &CrashArgs, out: &Path, json: bool) -> Result<Ending> {
    if let Some(CrashCommand::Import(args)) = &args.command {
        return import::run(args, out, json);
    }
    let source = Source::of(args)?;
    if args.count || args.export_jlang.is_some() {
        return workload::only_list(&source, args, json);
    }
    subject::say_what_is_assumed(&args.subject, &asked(args));
    let subject = match &args.worker_guest {
        Some(kernel) => subject::open_in_guest(&args.subject, &asked(args), kernel, args.seed)?,
        None => open(&args.subject, &asked(args), args.jobs)?,
    };
    if source.is_given() {
        library::limits(&*subject)?;
    }
    let mut plan = plan::plan(args, &*subject, out)?;
    mutant::add_level(args, &*subject, &mut plan);
    plan.config.validate()?;
    if args.dry_run {
        return dry_run(&*subject, &plan, json);
    }
    let files = Files::new(out, args.coverage.as_ref())?;
    crash::quiet_panics();
    // What a kernel file system shows without a lie would take as long again.
    let without = match &args.mutant {
        Some(_) if subject.is_deterministic() => {
            mutant::found_without(args, &*subject, &plan, &source)?
        }
        _ => Known::default(),
    };
    let (mut observer, report) = match check(&*subject, &plan, &source, out, args, without, json)? {
        Checked::Done(observer, report) => (observer, report),
        Checked::Failed(ending) => return Ok(ending),
    };
    let coverage = coverage(&*subject, &report);
    files.write_or_say(&coverage);
    let ending = observer.finish(|run| describe(run, &report, &plan))?;
    if report.crash_images == 0 && ending == Ending::Clean {
        bail!("{}", nothing_examined(subject.name(), &report));
    }
    if json {
        let mut value = report_json(&*subject, &report, observer.run());
        value.as_object_mut().expect("it is one").extend(own::json(&coverage));
        print_json(&value)?;
    } else {
        print(&summary(&*subject, &report, observer.run()))?;
        print(&own::line(&coverage, &files))?;
        print(&mutant::verdict(args, subject.is_deterministic(), observer.run()))?;
    }
    Ok(ending)
}

/// Why a run says nothing, and what to do.
fn nothing_examined(name: &str, report: &CrashReport) -> String {
    let why = match &report.workloads {
        Some(counts) if counts.workloads > 0 && counts.not_followed == counts.workloads => format!(
            ": {name} could follow none of the {} workloads to its end (it lacks an operation of \
             each, or its disk is too small): give others",
            counts.workloads
        ),
        _ => String::new(),
    };
    format!("no crash image was examined: this run says nothing about {name}{why}")
}

/// What is asked of the subject.
fn asked(args: &CrashArgs) -> Asked<'_> {
    Asked {
        geometry: args.geometry.as_deref(),
        mutant: args.mutant.as_deref(),
        mkfs: args.mkfs_opts.as_deref(),
        mount: args.mount_opts.as_deref(),
        promises: args.promises.as_deref(),
        profile: args.profile.as_deref(),
        quirks: args.profile.as_deref(),
        ..Asked::default()
    }
}

/// What the workloads have exercised.
fn coverage(subject: &dyn DiskFileSystem, report: &CrashReport) -> Report {
    let seconds = report.search.elapsed.as_secs_f64();
    own::final_report(&report.coverage, &title(subject), seconds)
}

fn title(subject: &dyn DiskFileSystem) -> String {
    format!("fathom crash {}", subject.name())
}

/// Runs whose states are identified in the same way.
fn states_space(subject: &dyn DiskFileSystem, plan: &CrashPlan) -> String {
    let identity = plan.config.identity;
    format!("crash {} by {identity:?}, {} last steps", subject.name(), plan.config.remember)
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
    subject: &dyn DiskFileSystem,
    plan: &CrashPlan,
    source: &Source,
    out: &Path,
    args: &CrashArgs,
    without_mutant: Known,
    json: bool,
) -> Result<Checked> {
    crash::quiet_panics();
    let crash = Some(CrashSource::new(subject, &plan.config, Some(plan)));
    worker::describe(About { crash, ..About::default() });
    worker::limit(DEADLINE, plan.time_max.map(|time| time + GRACE));
    let mut observer = RunObserver::start(out, run_of(subject, plan), &args.known, json)?;
    observer.subtract(without_mutant);
    observer.keep_states(&states_space(subject, plan), &plan.states);
    observer.keep_coverage(LiveCoverage::start(out, title(subject)));
    match execute(subject, plan, source, &mut observer)? {
        Ok(report) => Ok(Checked::Done(Box::new(observer), Box::new(report))),
        Err(error) => Ok(Checked::Failed(observer.fail(error.into())?)),
    }
}

/// Executes the workloads of a source, or searches.
fn execute(
    subject: &dyn DiskFileSystem,
    plan: &CrashPlan,
    source: &Source,
    observer: &mut dyn Observer,
) -> Result<Result<CrashReport, CrashError>> {
    let left_out = LeftOut::default();
    let Some(mut workloads) = source.workloads(subject, &left_out)? else {
        return Ok(crash::crash(subject, plan, observer));
    };
    let name = source.to_string();
    let report = crash_sequences(subject, plan, &name, &mut workloads, observer);
    Ok(report.map(|mut report| {
        if let Some(counts) = &mut report.workloads {
            counts.ops_left_out = left_out.get();
        }
        report
    }))
}

fn dry_run(subject: &dyn DiskFileSystem, plan: &CrashPlan, json: bool) -> Result<Ending> {
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
