//! `fathom guest run`: any command in a guest, as if it ran here.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use fathom_guest::kernels::Cache;
use fathom_guest::{Boot, Guest, GuestEnd, Kernel, report};
use fathom_subjects::supervise::SignalSource;
use serde_json::json;

use crate::args::duration;
use crate::text::{print_json, say};

/// How often the guest is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Lines of a console that an error shows.
const TAIL_LINES: usize = 12;
/// The exit code of a guest that died: none that a command is likely to have.
const DIED: u8 = 125;
/// What a shell adds to the number of the signal that ended a command.
const SIGNALLED: i32 = 128;

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The kernel, as `--guest` takes it [default: the newest that was built, else debian]
    #[arg(value_name = "KERNEL")]
    kernel: Option<String>,
    /// A directory that the command may change (it sees all files and can change none)
    #[arg(long, value_name = "DIR")]
    writable: Vec<PathBuf>,
    /// End the guest after this time of the host's clock
    #[arg(long, value_name = "TIME", value_parser = duration)]
    deadline: Option<Duration>,
    /// Memory of the guest in MiB
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(32..))]
    memory: Option<u32>,
    /// Seed of the guest's random bytes
    #[arg(long, value_name = "S", default_value = "1")]
    seed: u64,
    /// Show what the kernel says, on the standard error
    #[arg(long)]
    console: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// How it ended.
enum End {
    Guest(GuestEnd),
    /// Its time was over.
    Late(Duration),
    /// Somebody wanted that.
    Interrupted(&'static str),
}

pub(crate) fn run(args: &RunArgs, guest: Option<&str>, json: bool) -> Result<ExitCode> {
    let kernel = kernel(args, guest)?;
    let mut boot = Boot::new(&kernel, args.seed, args.command.clone())?;
    boot.writable.clone_from(&args.writable);
    boot.memory_mib = args.memory.unwrap_or(boot.memory_mib);
    for name in ["NO_COLOR", "RUST_BACKTRACE", "TERM"] {
        boot.environment.extend(std::env::var(name).ok().map(|value| (name.to_owned(), value)));
    }
    if !json {
        boot.terminals = [
            fathom_guest::guest::terminal_size(&io::stdout()),
            fathom_guest::guest::terminal_size(&io::stderr()),
        ];
    }
    let signals = SignalSource::new().context("signals")?;
    let mut guest = Guest::start(&boot)?;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let end = watch(&mut guest, args, &signals, |guest| match json {
        true => guest.pass_on(&mut out, &mut err),
        // If nobody reads any more the command goes on, as it may have other things to do.
        false => guest.pass_on(&mut io::stdout(), &mut io::stderr()).or(Ok(())),
    })?;
    let code = tell(&guest, &kernel, &end, args.console)?;
    if json {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let report = report::read(&guest.console_since_boot());
        print_json(&json!({
            "kernel": kernel.release,
            "code": match &end { End::Guest(GuestEnd::Code(code)) => Some(code), _ => None },
            "exit": code,
            "died": report.filter(|_| code == DIED).map(|report| report.title),
            "stdout": text(&out),
            "stderr": text(&err),
            "console": guest.console_since_boot(),
            "seconds": guest.age().as_secs_f64(),
        }))?;
    }
    Ok(ExitCode::from(code))
}

/// The kernel that was named, or the best that is here.
fn kernel(args: &RunArgs, guest: Option<&str>) -> Result<Kernel> {
    if let Some(name) = args.kernel.as_deref().or(guest) {
        return Ok(fathom_guest::resolve(name)?);
    }
    best_kernel()
}

/// The newest kernel that was built here, or Debian's.
pub(crate) fn best_kernel() -> Result<Kernel> {
    let built = Cache::of_user().and_then(|cache| cache.kernels()).unwrap_or_default();
    let usable = built.into_iter().filter(|cached| matches!(cached.kernel, Some(Ok(_))));
    match usable.max_by_key(|cached| cached.changed) {
        Some(cached) => Ok(fathom_guest::resolve(&cached.name)?),
        None => Ok(fathom_guest::resolve(super::DEBIAN)?),
    }
}

/// Passes on what the command prints until the guest ends.
fn watch(
    guest: &mut Guest,
    args: &RunArgs,
    signals: &SignalSource,
    mut pass_on: impl FnMut(&mut Guest) -> io::Result<()>,
) -> Result<End> {
    let mut console = ConsoleTail { shown: 0, is_shown: args.console };
    let end = loop {
        pass_on(guest)?;
        console.show(guest);
        if let Some(end) = guest.try_wait()? {
            break End::Guest(end);
        }
        if let Some(signal) = signals.next() {
            guest.kill();
            break End::Interrupted(signal);
        }
        if args.deadline.is_some_and(|deadline| guest.age() >= deadline) {
            let age = guest.age();
            guest.kill();
            break End::Late(age);
        }
        std::thread::sleep(LOOK_EVERY);
    };
    pass_on(guest)?;
    console.show(guest);
    Ok(end)
}

/// Shows what the kernel says as it says it.
struct ConsoleTail {
    shown: usize,
    is_shown: bool,
}

impl ConsoleTail {
    fn show(&mut self, guest: &Guest) {
        if !self.is_shown {
            return;
        }
        let text = guest.console();
        if let Some(new) = text.get(self.shown..) {
            // If nobody reads there is nobody to tell.
            let _ = io::stderr().write_all(new.as_bytes());
            self.shown = text.len();
        }
    }
}

/// The exit code; says what is not the command's doing.
fn tell(guest: &Guest, kernel: &Kernel, end: &End, console: bool) -> Result<u8> {
    Ok(match end {
        End::Guest(GuestEnd::Code(code)) => *code as u8,
        End::Guest(GuestEnd::Signal(signal)) => {
            if report::is_out_of_mappings(&guest.console_since_boot()) {
                say!("fathom: {}", fathom_guest::guest::out_of_mappings());
            }
            (SIGNALLED + signal) as u8
        }
        End::Guest(GuestEnd::Refused(reason)) => bail!("the command was not started: {reason}"),
        End::Guest(GuestEnd::Died(_)) if !guest.is_booted() => {
            bail!("{} does not boot; its console says:\n{}", kernel.release, tail(guest))
        }
        End::Guest(GuestEnd::Died(status)) => {
            let report = report::read(&guest.console_since_boot());
            let how = match (report, status.signal) {
                (Some(report), _) => report.title,
                (None, Some(signal)) => {
                    let name = fathom_subjects::supervise::process::signal_name(signal);
                    format!("killed by {name}")
                }
                (None, None) => "it halted before the command ended".to_owned(),
            };
            say!("fathom: the guest died: {how}");
            if !console {
                say!("{}", tail(guest));
            }
            DIED
        }
        End::Late(age) => {
            say!("fathom: the guest was ended after {:.0} s (--deadline)", age.as_secs_f64());
            DIED
        }
        End::Interrupted(signal) => {
            say!("fathom: {signal}: the guest was ended");
            (SIGNALLED + if *signal == "SIGINT" { 2 } else { 15 }) as u8
        }
    })
}

/// The last lines of the console.
fn tail(guest: &Guest) -> String {
    let console = guest.console();
    let lines: Vec<&str> = console.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}
