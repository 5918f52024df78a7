//! `fathom`: finds bugs in file systems.

#![forbid(unsafe_code)]

mod args;
mod campaign;
mod command;
mod cover;
mod drawn_options;
mod execution;
mod locate;
mod near;
mod plan;
mod progress;
mod sizes;
mod subjects;
mod supervise;
mod text;
mod worker_guest;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use fathom_core::Activity;
use fathom_subjects::supervise::SignalSource;
use mimalloc::MiMalloc;

use args::{Cli, Command};
use command::Ending;
use supervise::{is_campaign, output, worker};
use text::say;

/// States are made by one thread and dropped by another. The allocator of glibc takes a lock for that,
/// and two threads of a search are then hardly faster than one.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Runs the campaign in this process, for debuggers: whatever ends it then loses what was found.
const NO_SUPERVISOR: &str = "FATHOM_NO_SUPERVISOR";

fn main() -> ExitCode {
    // The program keeps its guests, and is the first process in them.
    if let Some(code) = fathom_guest::take_over() {
        return ExitCode::from(code as u8);
    }
    fathom_swarm::end_with_runner();
    let typed: Vec<_> = std::env::args_os().collect();
    let typed = command::mount::as_mount_helper(&typed).unwrap_or(typed);
    let cli = match Cli::try_parse_from(typed) {
        Ok(cli) => cli,
        Err(refused) => return refuse(&refused),
    };
    match supervised(&cli) {
        Ok(code) => code,
        Err(error) => {
            say!("fathom: {}", told(&error));
            if cli.json.as_deref() == Some("-") {
                // Whoever reads it wants one value whatever happens; a broken pipe is fine.
                let _ = text::print_json(&serde_json::json!({
                    "error": told(&error),
                    "complete": false,
                }));
            }
            // What was found before the harness failed stays found.
            ExitCode::from(if worker::findings() > 0 { 1 } else { 2 })
        }
    }
}

/// Says what is wrong with the arguments (or the help, which is no error).
fn refuse(refused: &clap::Error) -> ExitCode {
    // If nobody reads there is nobody to tell.
    let _ = refused.print();
    if !refused.use_stderr() {
        return ExitCode::SUCCESS;
    }
    if wants_json() {
        let text = refused.render().to_string();
        // Up to the first empty line: what is wrong, without how the program is called.
        let lines: Vec<&str> = text.lines().take_while(|line| !line.is_empty()).collect();
        let text = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        let _ = text::print_json(&serde_json::json!({
            "error": text.trim_start_matches("error: "),
            "complete": false,
        }));
    }
    ExitCode::from(2)
}

/// Whether whoever typed arguments that cannot be understood wanted one JSON value on the output; that
/// of `cover` may go to a file.
fn wants_json() -> bool {
    let words: Vec<_> = std::env::args_os().skip(1).take_while(|word| word != "--").collect();
    let Some(at) = words.iter().position(|word| word == "--json") else { return false };
    let next_is_value =
        words.get(at + 1).is_some_and(|next| !next.as_encoded_bytes().starts_with(b"-"));
    !(next_is_value && words.iter().any(|word| word == "cover"))
}

/// Runs the command, a campaign in a worker.
fn supervised(cli: &Cli) -> Result<ExitCode> {
    if let Some(number) = cli.worker {
        worker::attach(number)?;
    }
    if cli.in_guest {
        worker::attach_in_guest()?;
    }
    if let (Some(Command::Replay(args)), Some(kernel), false) =
        (&cli.command, &cli.guest, cli.in_guest)
        && args.bisect
    {
        return command::guest::bisect_step(&args.what, kernel, &cli.out, cli.json.is_some());
    }
    if let (Some(Command::Replay(args)), Some(kernel), false) =
        (&cli.command, &cli.guest, cli.in_guest)
        && args.execution
    {
        return command::guest::repeat::run(&args.what, kernel, &cli.out, cli.json.is_some());
    }
    if let Some(Command::Guest(args)) = &cli.command
        && let command::guest::GuestAction::Run(args) = &args.action
    {
        return command::guest::run::run(args, cli.guest.as_deref(), cli.json.is_some());
    }
    // Who only asks for a list may stand in a directory that is gone.
    let out = match is_campaign(cli) {
        true => output::absolute(&cli.out)?,
        false => output::absolute(&cli.out).unwrap_or_else(|_| cli.out.clone()),
    };
    // First of all: a signal that comes from now on loses nothing.
    let is_supervisor = is_campaign(cli)
        && worker::supervision().is_none()
        && std::env::var_os(NO_SUPERVISOR).is_none();
    if let (Some(kernel), true) = (&cli.guest, is_campaign(cli) && !cli.in_guest) {
        let signals = SignalSource::new().context("signals")?;
        let _made = output::prepare(cli, &out)?;
        return supervise::guest::run(cli, &out, &signals, kernel);
    }
    if is_supervisor {
        // The supervisor touches neither the subject nor the output directory before it has to: both
        // may hang.
        match SignalSource::new().and_then(|signals| supervise::run(cli, &out, &signals)) {
            Ok(code) => return Ok(code),
            Err(error) => say!("fathom: no supervisor, going on without: {error}"),
        }
    }
    if let Some(Command::Check(args)) = &cli.command {
        // Already the look for a place to write may touch the subject, and it may not answer.
        command::check::announce(args);
    }
    let _made = match is_campaign(cli) {
        true => Some(worker::watched(Activity::SettingUp, || output::prepare(cli, &out))?),
        false => None,
    };
    let ending = run(cli, &out);
    worker::told();
    let ending = ending?;
    Ok(match ending {
        Ending::Clean if worker::is_interrupted() => {
            say!("fathom: interrupted: what was told is not complete");
            ExitCode::from(2)
        }
        Ending::Clean => ExitCode::SUCCESS,
        Ending::Findings => ExitCode::from(1),
        Ending::Incomplete => ExitCode::from(2),
    })
}

/// The error with its causes; one that has been said is not said again.
fn told(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.ends_with(&cause) {
            text.push_str(&format!(": {cause}"));
        }
    }
    text
}

fn run(cli: &Cli, out: &Path) -> Result<Ending> {
    let json = cli.json.is_some();
    match &cli.command {
        None => command::demo::run(out, json),
        Some(Command::Check(args)) => command::check::run(args, out, json),
        Some(Command::Crash(args)) => command::crash::run(args, out, json),
        Some(Command::Design(args)) => command::design::run(args, out, json),
        Some(Command::Fsck(args)) => command::fsck::run(args, out, json),
        Some(Command::Replay(args)) => command::replay::run(args, out, json),
        Some(Command::Shrink(args)) => command::shrink::run(args, out, json),
        Some(Command::Export(args)) => command::export::run(args, out, json),
        Some(Command::Cover(args)) => command::cover::run(args, out),
        Some(Command::Mount(args)) => command::mount::run(args, json),
        Some(Command::Snapshot(args)) => command::snapshot::run(&args.action, json),
        Some(Command::Known(args)) => command::known::run(&args.action, out, json),
        Some(Command::Report(args)) => command::report::run(args, out, json),
        Some(Command::Guest(args)) => command::guest::run(&args.action, out, json),
        Some(Command::Swarm(_)) if cli.guest.is_some() => {
            anyhow::bail!("--guest is for one run: name kernels in the plan of a swarm")
        }
        Some(Command::Swarm(args)) => command::swarm::run(args, out, json),
        Some(Command::List(args)) => command::list::run(args.what, cli.guest.as_deref(), json),
        Some(Command::Config(args)) => command::config::run(args.of, json),
        Some(Command::Completions(args)) => command::manual::completions(args, json),
        Some(Command::Man(args)) => command::manual::pages(args, json),
    }
}
