//! `fathom swarm`: splits a campaign into tasks, runs them, and unites their results.

mod args;
mod tasks;
mod watch;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fathom_record::swarm::{SwarmStatus, TaskPhase};
use fathom_report::html;
use fathom_subjects::supervise::SignalSource;
use fathom_swarm::engine::{Engine, Local, Slurm};
use fathom_swarm::image::{Image, Tool};
use fathom_swarm::{Coordinator, Listener, Merged, Plan, RunTask, SwarmDirectory, Tasks, merge};
use serde_json::json;

use super::Ending;
use crate::supervise::output::shown;
use crate::text::{bold, grouped, print, print_json, say};
pub(crate) use args::SwarmArgs;
use args::{ImageArgs, On, SwarmAction};
use watch::Terminal;

pub(crate) fn run(args: &SwarmArgs, out: &Path, json: bool) -> Result<Ending> {
    let directory = SwarmDirectory::new(out);
    match &args.action {
        None => start(args, &directory, json),
        Some(SwarmAction::Status) => status(&directory, json),
        Some(SwarmAction::Logs { task, attempt }) => logs(&directory, task, *attempt, json),
        Some(SwarmAction::Stop { anyway }) => stop(&directory, *anyway, json),
        Some(SwarmAction::Resume { listen }) => {
            directory.ask_to_stop(false)?;
            coordinate(&directory, *listen, json)
        }
        Some(SwarmAction::Add { tasks }) => add(&directory, *tasks, json),
        Some(SwarmAction::Merge { directories }) => merge_directories(directories, out, json),
        Some(SwarmAction::Image(args)) => image(args, json),
        Some(SwarmAction::RunTask { name, attempt }) => run_task(&directory, name, *attempt),
        Some(SwarmAction::Keep { name, attempt }) => keep(&directory, name, *attempt),
        Some(SwarmAction::HandOver { name, attempt }) => {
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            fathom_swarm::hand_over(&directory, name, *attempt, &mut out)?;
            Ok(Ending::Clean)
        }
    }
}

/// Starts a new swarm, or shows what it would be.
fn start(args: &SwarmArgs, directory: &SwarmDirectory, json: bool) -> Result<Ending> {
    let path = args.plan.as_deref().expect("clap asks for it");
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let plan = Plan::parse(&text).with_context(|| format!("in {}", path.display()))?;
    let checked = tasks::checked(&plan).with_context(|| format!("in {}", path.display()))?;
    if let Some(folder) = &args.manifests {
        return manifests(&plan, &checked, folder, json);
    }
    if args.dry_run {
        return dry_run(&plan, &checked, args.on, json);
    }
    // The engine is asked before anything is made.
    drop(engine(args.on, directory, &plan)?);
    if let Some(address) = args.listen {
        std::net::TcpListener::bind(address)
            .with_context(|| format!("cannot listen on {address}"))?;
    }
    directory.create(&plan, args.on.name(), &checked.tasks)?;
    coordinate(directory, args.listen, json)
}

/// The engine of a swarm.
fn engine(on: On, directory: &SwarmDirectory, plan: &Plan) -> Result<Box<dyn Engine>> {
    let program = std::env::current_exe().context("where is this program?")?;
    Ok(match on {
        On::Local => Box::new(Local::new(directory, program, &plan.limits)?),
        On::Slurm => Box::new(Slurm::new(directory, program, plan)?),
        #[cfg(feature = "kubernetes")]
        On::Kubernetes => Box::new(fathom_swarm::engine::Kubernetes::new(directory, plan)?),
        #[cfg(not(feature = "kubernetes"))]
        On::Kubernetes => bail!(
            "this build does not speak to Kubernetes itself: build it with `--features kubernetes`, or have \
             `fathom swarm PLAN --manifests DIR` write what `kubectl apply -f DIR` takes"
        ),
    })
}

/// Works on the swarm until it is over.
fn coordinate(
    directory: &SwarmDirectory,
    listen: Option<SocketAddr>,
    json: bool,
) -> Result<Ending> {
    let (plan, state) = (directory.plan()?, directory.state()?);
    let on = match state.engine.as_str() {
        "slurm" => On::Slurm,
        "kubernetes" => On::Kubernetes,
        _ => On::Local,
    };
    let _lock = directory.coordinate()?;
    let signals = SignalSource::new().context("signals")?;
    let listener = listen.map(Listener::start).transpose()?;
    if let Some(listener) = &listener {
        say!("page: http://{}/", listener.address());
        if !listener.address().ip().is_loopback() {
            say!("fathom: anybody who reaches this address can read the page");
        }
    }
    let engine = engine(on, directory, &plan)?;
    let mut terminal = Terminal::new(directory, signals, listener, json);
    let merged = Coordinator::new(directory, engine, &mut terminal)?.run()?;
    drop(terminal);
    let (status, _) = directory.status()?;
    finish(directory, &status, &merged, json)
}

/// The last words, the page as a file, and the exit code.
fn finish(
    directory: &SwarmDirectory,
    status: &SwarmStatus,
    merged: &Merged,
    json: bool,
) -> Result<Ending> {
    let status = SwarmStatus { active: false, ..status.clone() };
    directory.write("index.html", html::swarm::page(&status, false).as_bytes())?;
    if json {
        print_json(&status_json(&status, merged))?;
    } else {
        print(&summary(directory, &status, merged))?;
    }
    Ok(ending(&status, directory))
}

fn ending(status: &SwarmStatus, directory: &SwarmDirectory) -> Ending {
    let tally = &status.tally;
    match () {
        () if !status.run.findings.is_empty() => Ending::Findings,
        // What the budget left open was never promised.
        () if tally.failed > 0 || directory.is_stopping() => Ending::Incomplete,
        () => Ending::Clean,
    }
}

fn status_json(status: &SwarmStatus, merged: &Merged) -> serde_json::Value {
    let states = merged.states_total();
    json!({
        "engine": status.engine, "active": status.active, "seconds": status.seconds,
        "tasks": status.tally, "runs": merged.runs, "operations": merged.count("operations"),
        "states": states.states, "states_error": states.error,
        "partitions_hit": merged.coverage.as_ref().map(|report| report.partitions_hit),
        "findings": merged.findings.iter().map(|finding| json!({
            "id": finding.page.id, "kind": finding.kind, "subject": finding.subject,
            "signature": finding.signature, "runs": finding.runs, "sightings": finding.sightings,
        })).collect::<Vec<_>>(),
        "refused": merged.refused_total,
        "complete": status.run.complete,
    })
}

fn summary(directory: &SwarmDirectory, status: &SwarmStatus, merged: &Merged) -> String {
    let tally = &status.tally;
    let mut text = format!(
        "{}: {} of {} tasks over, {} running, {} waiting, {} given up, {} started again\n",
        bold("swarm"),
        grouped(tally.done + tally.found),
        grouped(tally.total()),
        grouped(tally.running),
        grouped(tally.waiting),
        grouped(tally.failed),
        grouped(tally.retries),
    );
    text.push_str(&result_text(merged));
    for task in status.tasks.iter().filter(|task| task.phase == TaskPhase::Failed).take(10) {
        text.push_str(&format!(
            "given up: task {}: {}\n  {}\n",
            task.number, task.remark, task.command
        ));
    }
    let place = shown(directory.path());
    text.push_str(&format!("page: {place}/index.html; result: fathom report {place}/united\n"));
    text
}

/// The united result, for people.
fn result_text(merged: &Merged) -> String {
    let states = merged.states_total();
    let error = match states.error {
        0.0 => String::new(),
        error => format!(" (±{:.1} %)", error * 100.0),
    };
    let coverage = match &merged.coverage {
        None => String::new(),
        Some(report) => format!(", {} inputs and outputs", grouped(report.partitions_hit as u64)),
    };
    let mut text = format!(
        "{} runs, {} operations, {} different states{error}{coverage}\n",
        grouped(merged.runs),
        grouped(merged.count("operations")),
        grouped(states.states),
    );
    for finding in &merged.findings {
        text.push_str(&format!(
            "found: {} on {} ({} runs, {} times): {}\n",
            finding.page.title,
            finding.subject,
            grouped(finding.runs),
            grouped(finding.sightings),
            shown(&finding.directory),
        ));
    }
    for refused in merged.refused.iter().take(10) {
        text.push_str(&format!("refused: {refused}\n"));
    }
    if merged.refused_total > 10 {
        text.push_str(&format!("refused: {} in all\n", grouped(merged.refused_total)));
    }
    text
}

fn dry_run(plan: &Plan, checked: &tasks::Checked, on: On, json: bool) -> Result<Ending> {
    if json {
        let lines: Vec<String> = checked.tasks.iter().map(|task| task.command_line()).collect();
        print_json(&json!({
            "on": on.name(), "tasks": lines, "endless": plan.tasks_number().is_none(),
            "privileged": checked.privileged,
        }))?;
        return Ok(Ending::Clean);
    }
    let mut text = format!(
        "# {} tasks on {}{}; each: {} processors, {} MiB of memory, {} MiB of disk\n",
        checked.tasks.len(),
        on.name(),
        if plan.tasks_number().is_none() { ", and so on until the budget is used" } else { "" },
        plan.limits.cpus,
        plan.limits.memory >> 20,
        plan.limits.disk >> 20,
    );
    text.push_str(match checked.privileged {
        true => "# privileged: tasks use the rights of the superuser\n",
        false => "# unprivileged: no task needs the rights of the superuser\n",
    });
    for task in &checked.tasks {
        text.push_str(&task.command_line());
        text.push('\n');
    }
    print(&text)?;
    Ok(Ending::Clean)
}

fn manifests(plan: &Plan, checked: &tasks::Checked, folder: &Path, json: bool) -> Result<Ending> {
    if plan.tasks_number().is_none() {
        bail!("manifests need a number of tasks: give tasks = N in the plan");
    }
    let files = fathom_swarm::manifests(plan, &checked.tasks);
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for (name, text) in &files {
        let path = folder.join(name);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    match json {
        true => print_json(&json!({ "files": files.len(), "directory": folder }))?,
        false => print(&format!("{} files: kubectl apply -f {}\n", files.len(), folder.display()))?,
    }
    Ok(Ending::Clean)
}

fn status(directory: &SwarmDirectory, json: bool) -> Result<Ending> {
    let (status, merged) = directory.status()?;
    if json {
        print_json(&status_json(&status, &merged))?;
        return Ok(Ending::Clean);
    }
    let mut text = summary(directory, &status, &merged);
    for task in status.tasks.iter().filter(|task| task.phase == TaskPhase::Running) {
        text.push_str(&format!(
            "running: task {} on {}, {:.0} s, {} operations, {} findings {}\n",
            task.number,
            task.node,
            task.seconds,
            grouped(task.operations),
            task.findings,
            task.remark
        ));
    }
    if !status.active && status.tally.running + status.tally.waiting > 0 {
        text.push_str("no coordinator works on it: `fathom swarm resume` goes on\n");
    }
    print(&text)?;
    Ok(Ending::Clean)
}

fn logs(
    directory: &SwarmDirectory,
    task: &str,
    attempt: Option<u32>,
    json: bool,
) -> Result<Ending> {
    let tasks = directory.tasks()?;
    let Some(found) = tasks.iter().find(|known| known.is_called(task)) else {
        bail!("no task is called {task:?}: give its number, 1 to {}", tasks.len());
    };
    let last = directory.last_attempt(&found.name()).map(|(last, _)| last);
    let Some(attempt) = attempt.or(last) else {
        bail!("task {} was not started yet", found.number);
    };
    let path = directory.attempt(&found.name(), attempt).join("output.log");
    let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    match json {
        true => print_json(&json!({ "task": found.number, "attempt": attempt, "log": text }))?,
        false => print(&text)?,
    }
    Ok(Ending::Clean)
}

fn stop(directory: &SwarmDirectory, anyway: bool, json: bool) -> Result<Ending> {
    if !anyway {
        directory.state()?;
    }
    directory.ask_to_stop(true)?;
    match json {
        true => print_json(&json!({ "stopping": true }))?,
        false => print("stopping: `fathom swarm status` shows how far it is, `resume` goes on\n")?,
    }
    Ok(Ending::Clean)
}

fn add(directory: &SwarmDirectory, more: u64, json: bool) -> Result<Ending> {
    let plan = directory.plan()?;
    if plan.campaigns.iter().all(|campaign| campaign.parts.is_some()) {
        bail!("the tasks of this plan are the parts of a space: there are no more");
    }
    let added = directory.add_tasks(|tasks| {
        let Ok(mut all) = Tasks::new(&plan) else { return Vec::new() };
        all.extend(more + tasks.len() as u64);
        all.skip(tasks.len()).take(more as usize).collect()
    })?;
    match json {
        true => print_json(&json!({ "added": added.len() }))?,
        false => print(&format!("{} tasks added\n", added.len()))?,
    }
    Ok(Ending::Clean)
}

fn merge_directories(directories: &[PathBuf], out: &Path, json: bool) -> Result<Ending> {
    let merged = merge(directories);
    if merged.runs == 0 {
        let why = merged.refused.first().map(|refused| format!(" ({refused})")).unwrap_or_default();
        bail!("there is no run in these directories: give those that runs wrote to (--out){why}");
    }
    let run = merged.run("fathom swarm merge", &format!("{} runs", merged.runs));
    merged.write(&run, out)?;
    match json {
        true => {
            let states = merged.states_total();
            print_json(&json!({
                "runs": merged.runs, "complete_runs": merged.complete,
                "operations": merged.count("operations"), "states": states.states,
                "states_error": states.error, "findings": merged.findings.len(),
                "partitions_hit": merged.coverage.as_ref().map(|report| report.partitions_hit),
                "refused": merged.refused_total,
            }))?;
        }
        false => {
            print(&result_text(&merged))?;
            print(&format!("result: fathom report {}\n", shown(out)))?;
        }
    }
    Ok(if merged.findings.is_empty() { Ending::Clean } else { Ending::Findings })
}

fn image(args: &ImageArgs, json: bool) -> Result<Ending> {
    let program = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().context("where is this program?")?,
    };
    let tools = args.tool.iter().map(|name| Tool::find(name)).collect::<Result<Vec<_>, _>>()?;
    let image = Image { program, kernel: args.kernel.clone(), tools, tag: args.tag.clone() };
    let digest = image.write(&args.output)?;
    match json {
        true => print_json(&json!({ "file": args.output, "digest": digest, "tag": args.tag }))?,
        false => print(&format!("{}: {} ({digest})\n", args.output.display(), args.tag))?,
    }
    Ok(Ending::Clean)
}

/// Runs one attempt of a task, on whatever machine this is.
fn run_task(directory: &SwarmDirectory, name: &str, attempt: u32) -> Result<Ending> {
    let signals = SignalSource::new().context("signals")?;
    let node = match std::env::var("SLURMD_NODENAME").or_else(|_| std::env::var("NODE_NAME")) {
        Ok(node) => node,
        Err(_) => fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default(),
    };
    let asked = std::cell::Cell::new(false);
    let is_asked = || {
        asked.set(asked.get() || signals.next().is_some());
        asked.get()
    };
    let program = std::env::current_exe().context("where is this program?")?;
    let node = node.trim().to_owned();
    RunTask { directory, name, attempt, program, node, is_asked: &is_asked }.run()?;
    Ok(Ending::Clean)
}

/// Keeps the results of an attempt until they were fetched.
fn keep(directory: &SwarmDirectory, name: &str, attempt: u32) -> Result<Ending> {
    let signals = SignalSource::new().context("signals")?;
    fathom_swarm::keep(directory, name, attempt, &|| signals.next().is_some());
    Ok(Ending::Clean)
}
