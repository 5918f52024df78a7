//! `fathom`: finds bugs in file systems.

#![forbid(unsafe_code)]

mod args;
mod campaign;
mod command;
mod cover;
mod locate;
mod near;
mod plan;
mod progress;
mod subjects;
mod text;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use mimalloc::MiMalloc;

use args::{Cli, Command};
use command::Ending;

/// States are made by one thread and dropped by another. The allocator of glibc takes a lock for that,
/// and two threads of a search are then hardly faster than one.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(&cli) {
        Ok(Ending::Clean) => ExitCode::SUCCESS,
        Ok(Ending::Findings) => ExitCode::from(1),
        Ok(Ending::Incomplete) => ExitCode::from(2),
        Err(error) => {
            eprintln!("fathom: {}", told(&error));
            if cli.json.as_deref() == Some("-") {
                // Whoever reads it wants one value whatever happens; a broken pipe is fine.
                let _ = text::print_json(&serde_json::json!({
                    "error": told(&error),
                    "complete": false,
                }));
            }
            ExitCode::from(2)
        }
    }
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

fn run(cli: &Cli) -> Result<Ending> {
    let (out, json) = (cli.out.as_path(), cli.json.is_some());
    match &cli.command {
        None => command::demo::run(out, json),
        Some(Command::Check(args)) => command::check::run(args, out, json),
        Some(Command::Crash(args)) => command::crash::run(args, out, json),
        Some(Command::Design(args)) => command::design::run(args, out, json),
        Some(Command::Replay(args)) => command::replay::run(args, out, json),
        Some(Command::Shrink(args)) => command::shrink::run(args, out, json),
        Some(Command::Export(args)) => command::export::run(args, out, json),
        Some(Command::Cover(args)) => command::cover::run(args, out),
        Some(Command::Mount(args)) => command::mount::run(args, json),
        Some(Command::Snapshot(args)) => command::snapshot::run(&args.action, json),
        Some(Command::Known(args)) => command::known::run(&args.action, out, json),
        Some(Command::Report(args)) => command::report::run(args, out, json),
        Some(Command::List(args)) => command::list::run(args.what, json),
        Some(Command::Config(args)) => command::config::run(args.of, json),
    }
}
