//! `fathom crash`: cuts the power of a library file system at every write of every short workload.

pub(crate) mod again;
mod bar;
pub(crate) mod plan;
mod subject;
pub(crate) mod tell;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fathom_block::BlockBacked;
use fathom_engine::crash::last_words::CrashSource;
use fathom_engine::crash::{self, CrashPlan, CrashReport};
use fathom_report::run::FILE;
use fathom_trace::report::Report;
use serde_json::json;

use super::Ending;
use crate::args::CrashArgs;
use crate::cover::own::{self, Files};
use crate::supervise::output::keep;
use crate::supervise::worker::{self, About};
use crate::text::{print, print_json};
use bar::Bar;
use tell::{geometry_text, page, report_json, tell};

pub(crate) use subject::open;

/// One session with a library file system, or one image, may take so long.
const DEADLINE: Duration = Duration::from_secs(30);

/// Shrinking and writing may add so much to the budget.
const GRACE: Duration = Duration::from_secs(60);

pub(crate) fn run(args: &CrashArgs, out: &Path, json: bool) -> Result<Ending> {
    let subject = open(&args.subject, args.geometry.as_deref(), args.mutant.as_deref())?;
    let plan = plan::plan(args, out)?;
    plan.config.validate()?;
    if args.dry_run {
        return dry_run(&*subject, &plan, json);
    }
    let files = Files::new(out, args.coverage.as_ref())?;
    let report = check(&*subject, &plan, out, json)?;
    let coverage = coverage(&*subject, &report);
    files.write_or_say(&coverage);
    if json {
        let mut value = report_json(&*subject, &report);
        value.as_object_mut().expect("it is one").extend(own::json(&coverage));
        print_json(&value)?;
    } else {
        print(&tell(&*subject, &report, out))?;
        print(&own::short(&coverage, &files))?;
    }
    if report.crash_images == 0 && report.findings.is_empty() {
        bail!("no crash image was examined: this run says nothing about {}", subject.name());
    }
    Ok(if report.findings.is_empty() { Ending::Clean } else { Ending::Findings })
}

/// What the workloads have exercised.
fn coverage(subject: &dyn BlockBacked, report: &CrashReport) -> Report {
    let title = format!("fathom crash {}", subject.name());
    own::report(&report.coverage, &title, report.search.elapsed.as_secs_f64())
}

/// Runs the check and records what it finds.
pub(crate) fn check(
    subject: &dyn BlockBacked,
    plan: &CrashPlan,
    out: &Path,
    quiet: bool,
) -> Result<CrashReport> {
    fs::create_dir_all(out)
        .with_context(|| format!("cannot write to {}: give another --out", out.display()))?;
    crash::quiet_panics();
    let crash = Some(CrashSource::new(subject, &plan.config, Some(plan)));
    worker::describe(&About { crash, ..About::default() });
    worker::limit(DEADLINE, plan.time_max.map(|time| time + GRACE));
    let mut bar = Bar::new(plan.time_max, quiet);
    let report = crash::crash(subject, plan, &mut bar)?;
    drop(bar);
    for finding in &report.findings {
        keep(finding.write(out));
    }
    if let Err(error) = page(subject, &report, plan.threads, out).write(&out.join(FILE)) {
        eprintln!(
            "fathom: {FILE} cannot be written, `fathom report` will not show this run: {error}"
        );
    }
    Ok(report)
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
