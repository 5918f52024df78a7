//! `fathom crash`: cuts the power of a library file system at every write of every short workload.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fathom_block::{BlockBacked, Geometry, Level};
use fathom_engine::crash::run::{CrashObserver, CrashPlan, CrashReport, Sample};
use fathom_engine::crash::workload::StepKind;
use fathom_engine::crash::{self, Cause, CrashConfig, CrashFinding};
use fathom_engine::search::Strategy;
use fathom_subjects::library;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::Ending;
use crate::args::{CrashArgs, Search};
use crate::near::did_you_mean;
use crate::text::{bold, grouped, print, print_json};

/// The checkpoint of a run, in its output directory.
const CHECKPOINT: &str = "crash.checkpoint";

pub(crate) fn run(args: &CrashArgs, out: &Path, json: bool) -> Result<Ending> {
    let subject = open(&args.subject, args.geometry.as_deref(), args.mutant.as_deref())?;
    let plan = plan(args, out)?;
    plan.config.validate()?;
    if args.dry_run {
        return dry_run(&*subject, &plan, json);
    }
    let report = check(&*subject, &plan, out, json)?;
    if json {
        print_json(&report_json(&*subject, &report))?;
    } else {
        print(&tell(&*subject, &report, out))?;
    }
    Ok(if report.findings.is_empty() { Ending::Clean } else { Ending::Findings })
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
    let mut bar = Bar::new(plan.time_max, quiet);
    let report = crash::crash(subject, plan, &mut bar)?;
    drop(bar);
    for finding in &report.findings {
        finding.write(out)?;
    }
    Ok(report)
}

/// The library file system of that name, perhaps with a bug switched on.
pub(crate) fn open(
    name: &str,
    geometry: Option<&str>,
    mutant: Option<&str>,
) -> Result<Box<dyn BlockBacked>> {
    // A recorded name carries its mutant.
    let (name, mutant) = match name.split_once('+') {
        Some((name, mutant)) => (name, Some(mutant)),
        None => (name, mutant),
    };
    let all = library::all();
    let Some(known) = all.iter().find(|known| known.name == name) else {
        let names: Vec<&str> = all.iter().map(|known| known.name).collect();
        let hint = did_you_mean(name, names.iter().copied());
        bail!("no library file system is called {name:?}: there are {}{hint}", names.join(", "));
    };
    let geometry = match geometry {
        None => None,
        Some(text) => Some(parse_geometry(text, known.open(None)?.geometry())?),
    };
    let subject = known.open(geometry)?;
    let Some(mutant) = mutant else { return Ok(subject) };
    bail!("no crash mutant is called {mutant:?}")
}

/// `BLOCKSxBYTES` or `BLOCKSxBYTES/UNIT`.
fn parse_geometry(text: &str, default: Geometry) -> Result<Geometry> {
    let parse = || -> Option<Geometry> {
        let (blocks, rest) = text.split_once('x')?;
        let (bytes, unit) = match rest.split_once('/') {
            Some((bytes, unit)) => (bytes, Some(unit.parse().ok()?)),
            None => (rest, None),
        };
        let (blocks, bytes): (usize, usize) = (blocks.parse().ok()?, bytes.parse().ok()?);
        let unit = unit.unwrap_or(default.write_bytes);
        let size_bytes = blocks.checked_mul(bytes)?;
        let units = Geometry { read_bytes: unit, write_bytes: unit, atomic_bytes: unit, ..default };
        Some(Geometry { size_bytes, erase_bytes: bytes, ..units })
    };
    let Some(geometry) = parse() else {
        bail!(
            "{text:?} is no geometry: write BLOCKSxBYTES or BLOCKSxBYTES/UNIT, for example 32x256/16"
        );
    };
    geometry.validate().with_context(|| format!("the geometry {text} is impossible"))?;
    Ok(geometry)
}

fn plan(args: &CrashArgs, out: &Path) -> Result<CrashPlan> {
    let mut config = match &args.config {
        None => CrashConfig::default(),
        Some(path) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            toml::from_str(&text).with_context(|| format!("in {}", path.display()))?
        }
    };
    config.depth = args.depth.unwrap_or(config.depth);
    config.crashes = args.crashes.unwrap_or(config.crashes);
    config.remember = args.remember.unwrap_or(config.remember);
    config.identity = args.identity.map_or(config.identity, Into::into);
    config.probe &= !args.no_probe;
    config.second_opinion &= !args.no_checker;
    if !args.level.is_empty() {
        config.levels = args.level.iter().map(|name| name.parse::<Level>()).collect::<Result<_, _>>()?;
    }
    if !args.steps.is_empty() {
        let parse = |name: &String| {
            serde_json::from_value::<StepKind>(Value::String(name.clone()))
                .with_context(|| format!("no step is called {name:?}: see `fathom config crash`"))
        };
        config.steps = args.steps.iter().map(parse).collect::<Result<_>>()?;
    }
    if !args.sizes.is_empty() {
        config.sizes = args.sizes.clone();
    }
    let strategy = match args.strategy {
        Search::Bfs => Strategy::Bfs,
        Search::Dfs => Strategy::Dfs,
        Search::Walk => Strategy::Walk { seed: args.seed, walks: args.walks },
    };
    let checkpoint = match args.strategy {
        Search::Walk if args.resume => bail!("--resume continues bfs and dfs: walks are repeated by their seed"),
        Search::Walk => None,
        _ if args.checkpoint || args.resume => Some((out.join(CHECKPOINT), args.resume)),
        _ => None,
    };
    Ok(CrashPlan {
        config,
        strategy,
        threads: args.jobs,
        time_max: args.budget,
        states_max: args.states,
        memory_max_bytes: args.memory_mib.map(|mib| mib << 20),
        stop_at_first: args.first,
        checkpoint,
        checkpoint_every: args.checkpoint_every,
        shrink_budget: Duration::from_secs(5),
        labels: std::collections::BTreeMap::new(),
    })
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

/// A device in words.
pub(crate) fn geometry_text(geometry: &Geometry) -> String {
    format!(
        "{} blocks of {} bytes, written in units of {}",
        geometry.size_bytes / geometry.erase_bytes,
        geometry.erase_bytes,
        geometry.write_bytes
    )
}

/// A run for people: its findings as stories, then what was done.
pub(crate) fn tell(subject: &dyn BlockBacked, report: &CrashReport, out: &Path) -> String {
    let mut text = String::new();
    for finding in &report.findings {
        text.push_str(&finding.to_string());
        let directory = out.join(&finding.record.id);
        text.push_str(&format!("files:  {}\n\n", directory.display()));
    }
    text.push_str(&summary(subject, report));
    text
}

fn summary(subject: &dyn BlockBacked, report: &CrashReport) -> String {
    let search = &report.search;
    let found = match report.findings.len() {
        0 => "every crash left what was promised".to_owned(),
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    };
    let seconds = search.elapsed.as_secs_f64();
    let levels: Vec<&str> = report.levels.iter().map(|level| level.name()).collect();
    let mut text = format!(
        "{}: {} ({})\n{} states, {} steps, {} distinct crash images ({}) in {seconds:.1} s ({}/s); {}\n",
        bold(subject.name()),
        found,
        subject.version(),
        grouped(search.states),
        grouped(search.transitions),
        grouped(report.crash_images),
        levels.join(", "),
        grouped((report.crash_images as f64 / seconds.max(1e-9)) as u64),
        search.stop,
    );
    if !report.goals_missed.is_empty() {
        text.push_str(&format!("never reached: {}\n", report.goals_missed.join("; ")));
    }
    text
}

fn report_json(subject: &dyn BlockBacked, report: &CrashReport) -> Value {
    let finding = |finding: &CrashFinding| {
        let record = &finding.record;
        json!({
            "id": record.id,
            "class": record.cause.class,
            "cause": record.cause.to_string(),
            "count": record.count,
            "levels": record.levels,
            "ops": finding.minimal.ops().map(ToString::to_string).collect::<Vec<_>>(),
            "cut": finding.cut(),
            "reproduced": record.runs_reproduced == record.runs,
        })
    };
    json!({
        "subject": subject.name(),
        "version": subject.version(),
        "states": report.search.states,
        "transitions": report.search.transitions,
        "states_by_depth": report.search.states_by_depth,
        "crash_images": report.crash_images,
        "levels": report.levels,
        "seconds": report.search.elapsed.as_secs_f64(),
        "stop": report.search.stop.to_string(),
        "goals_missed": report.goals_missed,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

/// Progress on the standard error.
struct Bar {
    bar: ProgressBar,
    time_max: Option<Duration>,
}

impl Bar {
    fn new(time_max: Option<Duration>, quiet: bool) -> Bar {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("constant"));
        Bar { bar, time_max }
    }
}

impl CrashObserver for Bar {
    fn progress(&mut self, sample: &Sample) -> ControlFlow<()> {
        let seconds = sample.elapsed.as_secs_f64().max(1e-3);
        let left = self.time_max.map_or_else(String::new, |max| {
            format!(", {:.0} s left", max.saturating_sub(sample.elapsed).as_secs_f64())
        });
        self.bar.set_message(format!(
            "workloads of {} steps: {} states, {} waiting, {} crash images ({}/s), {} causes{left}",
            sample.depth,
            grouped(sample.states),
            grouped(sample.open),
            grouped(sample.crash_images),
            grouped((sample.crash_images as f64 / seconds) as u64),
            sample.findings,
        ));
        self.bar.tick();
        ControlFlow::Continue(())
    }

    fn investigating(&mut self, cause: &Cause) {
        self.bar.set_message(format!("{cause}: playing it again, then shrinking"));
        self.bar.tick();
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
