//! `fathom cover`: which inputs and outputs of the system calls a test tool exercises.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use fathom_core::partition::Granularity;
use fathom_record::coverage::{Report, Tally, VERSION, Watched, ratio};
use fathom_record::run::{Count, Kind};
use fathom_record::{Known, RunDirectory};
use fathom_report::cover::{diff, export, html, text};
use fathom_trace::report::{Unreachable, of_coverage, of_traced, without_outputs};
use fathom_trace::run::{Plan, Tracer as Choice, Who};
use fathom_trace::{Ended, Target, Traced, import, run as trace, spawn};

use super::Ending;
use crate::cover::args::{
    CoverAction, CoverArgs, CoverOutput, DiffArgs, Forms, ImportArgs, LogFormat, ShowArgs, Tracer,
};
use crate::cover::own;
use crate::near::did_you_mean;
use crate::progress::started;
use crate::text::{print, print_json, say, writable};

pub(crate) fn run(args: &CoverArgs, out: &Path) -> Result<Ending> {
    match &args.action {
        Some(CoverAction::Import(import)) => imported(import),
        Some(CoverAction::Report(show)) => shown(show),
        Some(CoverAction::Diff(diff)) => compared(diff),
        None => traced(args, out),
    }
}

fn traced(args: &CoverArgs, out: &Path) -> Result<Ending> {
    let options = Options::new(&args.output)?;
    let targets = targets(&args.mount)?;
    let (who, title) = who(args);
    let plan = Plan {
        who,
        targets: targets.clone(),
        tracer: match args.tracer {
            Tracer::Auto => Choice::Auto,
            Tracer::Bpf => Choice::Bpf,
            Tracer::Stream => Choice::Stream,
            Tracer::Ptrace => Choice::Ptrace,
        },
        record: args.record.clone(),
        budget: args.budget,
        distrust: false,
    };
    let mut directory = run_directory(out, &targets, &title)?;
    let start = Instant::now();
    let traced = trace::run(&plan)?;
    let mut report = of_traced(&traced, &title, options.amounts, &options.unreachable);
    report.seconds = start.elapsed().as_secs_f64();
    report.mounts = targets
        .iter()
        .map(|target| Watched {
            path: target.path.display().to_string(),
            kind: target.kind.clone(),
        })
        .collect();
    if directory.is_none() {
        // What is watched was left alone as long as it was watched.
        directory = match start_run(out, &title) {
            Ok(directory) => Some(directory),
            Err(error) => {
                say!("fathom: no run.json: {error:#}");
                None
            }
        };
    }
    if let Some(directory) = &mut directory {
        describe(directory, &report);
    }
    let told = tell(&report, &args.output.forms)?;
    match traced.ended {
        None | Some(Ended::Exit(0)) if report.calls == 0 => {
            say!("fathom: no call on a watched file system was seen: this run says nothing");
            Ok(Ending::Incomplete)
        }
        None | Some(Ended::Exit(0)) => Ok(told),
        // Its coverage was told all the same.
        Some(ended) => {
            say!("fathom: the command itself failed: {ended}");
            Ok(Ending::Findings)
        }
    }
}

/// The directory of the run; none yet if it lies on what is watched, as it does by default.
fn run_directory(out: &Path, targets: &[Target], title: &str) -> Result<Option<RunDirectory>> {
    let out = std::path::absolute(out)?;
    let lies_on = |target: &Target| {
        std::path::absolute(&target.path).is_ok_and(|watched| out.starts_with(watched))
    };
    if targets.iter().any(lies_on) {
        return Ok(None);
    }
    start_run(&out, title).map(Some)
}

fn start_run(out: &Path, title: &str) -> Result<RunDirectory> {
    Ok(RunDirectory::start(out, started(Kind::Cover, title), Known::default())?)
}

/// Ends the run with what was counted.
fn describe(directory: &mut RunDirectory, report: &Report) {
    let count = |name: &str, value, about: &str| Count {
        name: name.to_owned(),
        value,
        about: about.to_owned(),
    };
    directory.finish(|run| {
        run.seconds = report.seconds;
        run.version = report.tracer.clone();
        run.stop = match report.ended {
            Some(ended) => format!("the command ended: {ended}"),
            None => "its time was over".to_owned(),
        };
        run.counts = vec![
            count("calls", report.calls, "on the watched file systems"),
            count("partitions_hit", report.partitions_hit as u64, "exercised at least once"),
            count("partitions_total", report.partitions_total as u64, "reachable"),
            count("pairs_hit", report.pairs_hit as u64, "pairs of flags that met"),
        ];
    });
}

fn who(args: &CoverArgs) -> (Who, String) {
    if let Some(pid) = args.pid {
        (Who::Process(pid), format!("process {pid}"))
    } else if let Some(dir) = &args.cgroup {
        (Who::Cgroup(dir.clone()), format!("control group {}", dir.display()))
    } else if args.system {
        (Who::Everybody, "every process".to_owned())
    } else {
        (Who::Command(args.command.clone()), spawn::shown(&args.command))
    }
}

fn targets(mounts: &[PathBuf]) -> Result<Vec<Target>> {
    let here = [PathBuf::from(".")];
    let mounts = if mounts.is_empty() { &here } else { mounts };
    Ok(mounts.iter().map(|path| Target::new(path)).collect::<Result<_, _>>()?)
}

fn imported(args: &ImportArgs) -> Result<Ending> {
    let options = Options::new(&args.output)?;
    let format = args.format.map(|format| match format {
        LogFormat::Strace => import::Format::Strace,
        LogFormat::Lttng => import::Format::Lttng,
        LogFormat::Syzkaller => import::Format::Syzkaller,
        LogFormat::Metis => import::Format::Metis,
        LogFormat::Record => import::Format::Record,
        LogFormat::Trace => import::Format::Trace,
    });
    let logs = import::read(&args.files, format, &args.mount, options.amounts)?;
    let names: Vec<String> = args.files.iter().map(|file| file.display().to_string()).collect();
    let title = names.join(" ");
    let mut report = match &logs.coverage {
        Some(coverage) => of_coverage(coverage, &title, &options.unreachable),
        None => of_traced(&logs.traced, &title, options.amounts, &options.unreachable),
    };
    let Traced { tracer, limits, .. } = &logs.traced;
    (report.tracer, report.limits) = (tracer.clone(), limits.clone());
    if !logs.has_outputs {
        report = without_outputs(report);
    }
    tell(&report, &args.output.forms)
}

fn shown(args: &ShowArgs) -> Result<Ending> {
    let path = match args.report.is_dir() {
        true => &args.report.join(own::FILE),
        false => &args.report,
    };
    let (_, report) = read_report(path)?;
    check_demands(&report, &args.output)?;
    tell(&report, &args.output)
}

fn compared(args: &DiffArgs) -> Result<Ending> {
    let reports: Vec<(String, Report)> =
        args.reports.iter().map(|path| read_report(path)).collect::<Result<_>>()?;
    if let Some(file) = &args.html {
        write(file, &html::page(&reports))?;
    }
    if let Some(file) = &args.csv {
        write(file, &export::csv(&reports))?;
    }
    match args.json.as_deref() {
        Some("-") => print_json(&diff::json(&reports))?,
        Some(file) => write(Path::new(file), &format!("{}\n", diff::json(&reports)))?,
        None => {}
    }
    if args.json.as_deref() != Some("-") {
        print(&diff::text(&reports))?;
    }
    Ok(Ending::Clean)
}

fn read_report(path: &Path) -> Result<(String, Report)> {
    let text = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let report: Report = serde_json::from_slice(&text).with_context(|| {
        format!("{} is no report of `fathom cover --json FILE`", path.display())
    })?;
    if report.fathom_cover != VERSION {
        bail!("{}: version {} of the report is not known", path.display(), report.fathom_cover);
    }
    let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    Ok((name, report))
}

/// How counts become a report.
struct Options {
    amounts: Granularity,
    unreachable: Unreachable,
}

impl Options {
    /// Everything that can be wrong with the arguments, before anything runs.
    fn new(output: &CoverOutput) -> Result<Options> {
        let mut unreachable = Unreachable::standard();
        if let Some(path) = &output.unreachable {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let more =
                Unreachable::parse(&text).with_context(|| format!("in {}", path.display()))?;
            unreachable.extend(more);
        }
        let amounts = if output.boundaries { Granularity::Boundaries } else { Granularity::Powers };
        let options = Options { amounts, unreachable };
        let empty = fathom_core::partition::Coverage::new(options.amounts);
        let empty = of_coverage(&empty, "", &options.unreachable);
        check_demands(&empty, &output.forms)?;
        Ok(options)
    }
}

/// Whether what CI asks for exists, and what is to be written can be.
fn check_demands(report: &Report, forms: &Forms) -> Result<()> {
    for id in &forms.require {
        if report.count(id).is_none() {
            let ids = report.ids();
            let hint = did_you_mean(id, ids.iter().map(String::as_str));
            bail!("--require {id}: there is no such partition (see docs/COVER.md){hint}");
        }
    }
    restricted(report, &forms.calls)?;
    let json = forms.json.as_ref().filter(|file| *file != "-").map(Path::new);
    let files = [&forms.html, &forms.csv, &forms.iocov].map(|file| file.as_deref());
    for file in files.into_iter().flatten().chain(json) {
        writable(file).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// Hit and total of some calls; of all if none are named.
fn restricted(report: &Report, calls: &[String]) -> Result<Tally> {
    let mut tally = Tally::default();
    let known = |name: &String| {
        report.bases.contains_key(name) || report.bases.values().any(|call| call.scope == *name)
    };
    if let Some(unknown) = calls.iter().find(|name| !known(name)) {
        bail!("--calls {unknown}: there is no such call and no such kind of calls");
    }
    for (base, call) in &report.bases {
        if calls.is_empty() || calls.contains(base) || calls.contains(&call.scope) {
            tally.hit += call.partitions_hit;
            tally.total += call.partitions_total;
        }
    }
    Ok(tally)
}

/// Writes everything that was asked for.
fn tell(report: &Report, output: &Forms) -> Result<Ending> {
    let named = [(report.title.clone(), report.clone())];
    if let Some(file) = &output.html {
        write(file, &html::page(&named))?;
    }
    if let Some(file) = &output.csv {
        write(file, &export::csv(&named))?;
    }
    if let Some(file) = &output.iocov {
        write(file, &format!("{:#}\n", export::iocov(report)))?;
    }
    if output.json.as_deref() != Some("-") {
        print(&text::report(report, output.full))?;
    }
    let ending = demands(report, output)?;
    match output.json.as_deref() {
        Some("-") => print_json(report)?,
        Some(file) => write(Path::new(file), &format!("{}\n", serde_json::to_string(report)?))?,
        None => {}
    }
    Ok(ending)
}

/// What CI asks for.
fn demands(report: &Report, output: &Forms) -> Result<Ending> {
    let mut ending = Ending::Clean;
    for id in &output.require {
        if report.count(id).unwrap_or(0) == 0 {
            say!("fathom: {id} was never exercised");
            ending = Ending::Findings;
        }
    }
    let tally = restricted(report, &output.calls)?;
    if !output.calls.is_empty() && output.json.as_deref() != Some("-") {
        let share = text::share(tally.hit, tally.total);
        print(&format!("\nof {}: {share}\n", output.calls.join(", ")))?;
    }
    if output.fail_under.is_some_and(|least| ratio(tally.hit, tally.total) < least) {
        let least = 100.0 * output.fail_under.unwrap_or(0.0);
        let share = text::share(tally.hit, tally.total);
        say!("fathom: {share} of the partitions were exercised, less than {least}%");
        ending = Ending::Findings;
    }
    Ok(ending)
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
