//! A campaign in guests: the same command, with the same program, in kernels that may die.
//!
//! A guest that dies is a finding, and the campaign goes on in a new guest with what is left of its
//! operations or its time, and with the next seeds. The host keeps the clock: that of a guest with time
//! travel stands still while it computes (docs/adr/0016-a-guest-is-a-place.md).
//!
//! * [`round`]: one guest, from its boot to its end; [`boot_watch`]: whether it gets to its command.
//! * [`finding`]: a death as a finding, and `run.json` of all guests together.

mod boot_watch;
mod finding;
mod round;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Parser;
use fathom_core::Violation;
use fathom_guest::{Boot, Kernel};
use fathom_record::Finding;
use fathom_subjects::supervise::{Board, LaneState, SignalSource};

use self::finding::Deaths;
use self::round::{Round, RoundEnd};
use super::confirm::{Confirmation, NotRun, Rerun};
use super::death::{Death, Teller};
use super::worker::InGuest;
use crate::args::{Cli, Command};
use crate::command::list::refuse_missing;
use crate::locate::finding_dir;
use crate::plan::clock_seed;
use crate::text::{print, say};

/// Guests that may die one after the other without a single operation before the campaign is given up.
const FRUITLESS_MAX: u32 = 3;

/// Shrinking a death may take so long, and takes so long even if hardly any time is left.
const CONFIRM_MAX: Duration = Duration::from_secs(20);
const CONFIRM_MIN: Duration = Duration::from_secs(5);

/// What was found last is not run again when so much time has passed beyond that of the campaign.
const LATE_MAX: Duration = Duration::from_secs(50);

/// A campaign in guests.
pub(crate) struct GuestCampaign<'a> {
    cli: &'a Cli,
    out: &'a Path,
    signals: &'a SignalSource,
    kernel: Kernel,
    started: Instant,
    seed: u64,
    kernel_seed: u64,
    ops_before: u64,
}

/// Runs the command in guests with this kernel.
pub(crate) fn run(cli: &Cli, out: &Path, signals: &SignalSource, kernel: &str) -> Result<ExitCode> {
    let kernel = fathom_guest::resolve(kernel)?;
    match &cli.command {
        Some(Command::Check(args)) => refuse_missing(&args.subject, &kernel)?,
        Some(Command::Crash(args)) => refuse_missing(&args.subject, &kernel)?,
        _ => {}
    }
    if !kernel.has_time_travel {
        say!(
            "fathom: the kernel {} has no clock of its own (time travel): its guests do not repeat \
             themselves",
            kernel.release
        );
    }
    let seed = seed(cli, out);
    let first = cli.guest_seed.unwrap_or(seed);
    let mut worst = 0;
    for kernel_seed in (0..cli.guest_seeds.unwrap_or(1)).map(|nth| first.wrapping_add(nth)) {
        if cli.guest_seeds.is_some() {
            say!("guest seed {kernel_seed}");
        }
        let campaign = GuestCampaign {
            cli,
            out,
            signals,
            kernel: kernel.clone(),
            started: Instant::now(),
            seed,
            kernel_seed,
            ops_before: 0,
        };
        let code = campaign.run()?;
        // Something found counts more than a run that was incomplete.
        worst = match (worst, code) {
            (1, _) | (_, 1) => 1,
            (worst, code) => worst.max(code),
        };
        if code == 2 {
            break;
        }
    }
    Ok(ExitCode::from(worst))
}

/// The seed of the campaign, as typed or from the clock; of what is repeated, that of the finding's guest.
fn seed(cli: &Cli, out: &Path) -> u64 {
    let recorded = |what: &str| {
        let finding = Finding::read(&finding_dir(what, out).ok()?).ok()?;
        finding.labels.get("guest_seed")?.parse().ok()
    };
    match &cli.command {
        Some(Command::Check(args)) => args.seed.unwrap_or_else(clock_seed),
        Some(Command::Crash(args)) => args.seed,
        Some(Command::Replay(args)) => recorded(&args.what).unwrap_or(1),
        Some(Command::Shrink(args)) => recorded(&args.what).unwrap_or(1),
        _ => 1,
    }
}

impl GuestCampaign<'_> {
    fn run(mut self) -> Result<u8> {
        let mut deaths = Deaths::new(self.cli, self.out)?;
        self.forget_last_replay();
        let mut fruitless = 0;
        loop {
            let mut round = Round::start(&self.boot()?, self.in_guest(), self.cli, self.signals)?;
            let end = round.watch(self.started)?;
            let ops = round.operations();
            match end {
                RoundEnd::Code(code) => return deaths.finish(code, &round, self.ops_before + ops),
                RoundEnd::Death(death @ Death::Caused { .. }) => {
                    if round.is_replay() {
                        let (cli, out, board) = (self.cli, self.out, round.board()?);
                        let teller = Teller { cli, out, board, held: &[], confirmation: None };
                        return Ok(code_of(teller.tell(&death)));
                    }
                    let end = round.budget().map(|budget| self.started + budget + LATE_MAX);
                    let guests = InGuests { campaign: &self, signals: self.signals, end };
                    let deadline = round.deadline();
                    let within = self.confirm_within(round.budget());
                    let confirmation = Confirmation { deadline, within, place: &guests };
                    deaths.add(&round, death, &confirmation)?;
                }
                RoundEnd::TimeOver => return deaths.time_over(&round, self.ops_before + ops),
                RoundEnd::Death(Death::Interrupted) => return deaths.interrupted(&round),
                RoundEnd::Death(Death::Failed(how)) => bail!("{how}"),
            }
            self.ops_before += ops;
            fruitless = if ops == 0 { fruitless + 1 } else { 0 };
            if fruitless >= FRUITLESS_MAX {
                say!("fathom: {fruitless} guests died before their first operation: giving up");
                return deaths.over(self.ops_before);
            }
            if self.is_over(round.budget()) {
                return deaths.over(self.ops_before);
            }
            self.seed = self.seed.wrapping_add(1);
            self.kernel_seed = self.kernel_seed.wrapping_add(1);
            if self.cli.json.is_none() {
                // That nobody reads it is no reason to stop.
                let _ = print(&format!("going on in a new guest with seed {}\n", self.seed));
            }
        }
    }

    /// How long shrinking a death may take: a part of the time that is left, which it counts for.
    fn confirm_within(&self, budget: Option<Duration>) -> Duration {
        if let Some(Command::Shrink(args)) = &self.cli.command {
            return args.budget;
        }
        let left = budget.map(|budget| budget.saturating_sub(self.started.elapsed()));
        left.map_or(CONFIRM_MAX, |left| (left / 2).clamp(CONFIRM_MIN, CONFIRM_MAX))
    }

    /// Removes the `run.json` of the last replay of a finding: every replay finds the same files, since
    /// what a guest does with those of the host moves its clock.
    fn forget_last_replay(&self) {
        if let Some(Command::Replay(args)) = &self.cli.command
            && let Ok(dir) = finding_dir(&args.what, self.out)
        {
            // If it cannot be removed, the comparison of the executions shows it.
            let _ = std::fs::remove_file(dir.join(fathom_record::run::FILE));
        }
    }

    /// Whether nothing is left of the operations or the time.
    fn is_over(&self, budget: Option<Duration>) -> bool {
        let (ops, first) = match &self.cli.command {
            Some(Command::Check(args)) => (args.ops, args.first),
            Some(Command::Crash(args)) => (None, args.first),
            _ => return true,
        };
        first
            || ops.is_some_and(|ops| self.ops_before >= ops)
            || budget.is_some_and(|budget| self.started.elapsed() >= budget)
            || (ops.is_none() && budget.is_none())
    }

    fn in_guest(&self) -> InGuest {
        InGuest {
            kernel: self.kernel.release.clone(),
            kernel_seed: self.kernel_seed,
            seed: self.seed,
            ops_before: self.ops_before,
            virtual_clock: self.kernel.has_time_travel,
        }
    }

    /// The same program with the same arguments, which may change what the command writes.
    fn boot(&self) -> Result<Boot> {
        self.boot_with(std::env::args_os().skip(1).collect(), self.writable())
    }

    /// The same program with other arguments.
    fn boot_with(&self, arguments: Vec<OsString>, writable: Vec<PathBuf>) -> Result<Boot> {
        let mut boot = Boot::new(&self.kernel, self.kernel_seed, Vec::new())?;
        boot.command.push(boot.program.clone().into());
        boot.command.push("--in-guest".into());
        boot.command.extend(arguments);
        boot.writable = writable;
        for name in ["NO_COLOR", "RUST_BACKTRACE"] {
            boot.environment.extend(std::env::var(name).ok().map(|value| (name.to_owned(), value)));
        }
        let kept = std::env::vars().filter(|(name, _)| name.starts_with("FATHOM_TEST_"));
        boot.environment.extend(kept);
        Ok(boot)
    }

    /// The output directory and where other files are to be written, as far as they are there.
    fn writable(&self) -> Vec<PathBuf> {
        let files = match &self.cli.command {
            Some(Command::Check(args)) => vec![args.coverage.clone(), args.map.clone()],
            Some(Command::Crash(args)) => vec![args.coverage.clone()],
            Some(Command::Shrink(args)) => vec![Some(PathBuf::from(&args.what))],
            _ => Vec::new(),
        };
        let above = |file: PathBuf| {
            let parent = file.parent().map(Path::to_owned)?;
            Some(if parent.as_os_str().is_empty() { PathBuf::from(".") } else { parent })
        };
        let named = files.into_iter().flatten().filter(|file| file.components().count() > 0);
        let mut places: Vec<PathBuf> = named.filter_map(above).filter(|dir| dir.is_dir()).collect();
        // A finding that was named by its id lies in the output directory.
        if matches!(self.cli.command, Some(Command::Shrink(_))) {
            places.retain(|place| place != Path::new("."));
        }
        places.extend(self.out.is_dir().then(|| self.out.to_owned()));
        // What a replay leaves is beside the finding, wherever that is.
        if let Some(Command::Replay(args)) = &self.cli.command {
            places.extend(finding_dir(&args.what, self.out));
        }
        places
    }
}

/// Fresh guests with the kernel and the seed of the one that died.
struct InGuests<'a> {
    campaign: &'a GuestCampaign<'a>,
    signals: &'a SignalSource,
    /// When the last of them is ended.
    end: Option<Instant>,
}

impl Rerun for InGuests<'_> {
    fn refuses(&self, violation: &Violation) -> Option<String> {
        match violation {
            Violation::Hang { seconds } if *seconds > CONFIRM_MAX.as_secs() => {
                Some(format!("not run again by itself: that takes {seconds} s each time"))
            }
            _ => None,
        }
    }

    fn rerun(
        &self,
        arguments: Vec<OsString>,
        out: &Path,
        died: &mut dyn FnMut(&Board, &Violation, &LaneState),
    ) -> Result<(), NotRun> {
        let campaign = self.campaign;
        let typed = [OsString::from("fathom")].into_iter().chain(arguments.iter().cloned());
        let cli = Cli::try_parse_from(typed).map_err(|_| NotRun)?;
        let boot = campaign.boot_with(arguments, vec![out.to_owned()]).map_err(|_| NotRun)?;
        let decided = InGuest { ops_before: 0, ..campaign.in_guest() };
        let round = Round::start(&boot, decided, &cli, self.signals).map_err(|_| NotRun)?;
        let mut round = round.silent().ending(self.end);
        let end = round.watch(Instant::now());
        match (end, round.board()) {
            (Ok(RoundEnd::Death(Death::Interrupted)), _) => Err(NotRun),
            (Ok(RoundEnd::Death(Death::Caused { violation, lane: Some(lane) })), Ok(board)) => {
                died(board, &violation, &lane);
                Ok(())
            }
            // A guest that does not boot says nothing about the operations.
            _ => Ok(()),
        }
    }
}

/// The number of an exit code, which the standard library does not tell.
fn code_of(code: ExitCode) -> u8 {
    (0..=2).find(|number| ExitCode::from(*number) == code).unwrap_or(2)
}
