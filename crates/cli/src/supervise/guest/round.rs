//! One guest of a campaign, from its boot to its end.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use fathom_core::{Activity, Violation};
use fathom_engine::check::call_monitor::patience;
use fathom_guest::{Boot, Guest, GuestEnd, report};
use fathom_subjects::supervise::{Board, SignalSource};

use super::super::death::Death;
use super::super::worker::{About, BOARD, CAMPAIGN, InGuest};
use super::boot_watch::{BootWatch, Progress};
use crate::args::{Cli, Command};
use crate::text::{grouped, say};

/// How often the guest is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How often people are told how it goes.
const TELL_EVERY: Duration = Duration::from_millis(500);
/// A worker that was asked to end may take so long before its guest is ended.
const GRACE: Duration = Duration::from_secs(10);
/// A report may take so long to be printed completely.
const REPORT_WITHIN: Duration = Duration::from_millis(500);
/// One call may take so long on the host's clock where the command has no --deadline.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);
/// The worker judges a blocked call itself, on the guest's clock; a guest that computes for ever is
/// judged here, a little later.
const DEADLINES: u32 = 2;
/// A worker whose time is over may take so long for its last call, whatever the deadline of calls is: nobody who gave
/// a campaign a minute waits for two more.
const LAST_CALL_MAX: Duration = Duration::from_secs(40);
/// Lines of a console that an error shows.
const TAIL_LINES: usize = 12;

/// Said of a guest whose memory could not grow.
const NO_SPACE: &str = "no space is left where the guest's memory lives: free some, or name another \
                        directory with FATHOM_GUEST_MEMORY_DIR";
/// A guest in which nothing at all begins for so many deadlines does not answer any more.
const STALLED: u32 = 4;

/// A guest that has used the processor, but for less than half of a limit, has so many times the limit.
const STARVED: u32 = 10;

/// How a round ended.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(super) enum RoundEnd {
    /// The command came to its end.
    Code(u8),
    /// Its time was over, and it did not end by itself.
    TimeOver,
    /// Something ended it.
    Death(Death),
}

/// See the module documentation.
pub(super) struct Round<'a> {
    pub(super) guest: Guest,
    board: Option<Board>,
    cli: &'a Cli,
    signals: &'a SignalSource,
    /// What the command printed for machines, kept until it is known what else was found.
    pub(super) held_output: Vec<u8>,
    /// Since when the worker is to end, and whether somebody interrupted it.
    asked: Option<(Instant, bool)>,
    /// Whether the guest gets to its command.
    boot: BootWatch,
    /// Whether there was no room for its memory, or for what it says, at some moment before that.
    lacked_space: bool,
    /// When each lane began what it is doing.
    since: BTreeMap<u64, (u64, Began)>,
    told: Instant,
    console_len: usize,
    /// Whether nothing of what the command says is passed on.
    is_silent: bool,
    /// What its worker was last seen to have begun, and when.
    moved: (u64, Began),
    /// When it is ended, if it has not ended by then.
    end: Option<Instant>,
    /// Whether waiting takes no time of the host.
    waits_for_nothing: bool,
}

/// When something began, and how its guest has computed since.
#[derive(Clone, Copy)]
struct Began {
    at: Instant,
    /// Processor time of the guest when it began, when it was last looked at, and when that had changed.
    computed: Duration,
    seen: Duration,
    changed: Instant,
}

impl Began {
    fn now(guest: &Guest) -> Began {
        let (at, computed) = (Instant::now(), guest.processor_time());
        Began { at, computed, seen: computed, changed: at }
    }

    /// For how long a guest has had the chance to end it, if that is as long as `limit`.
    fn late(&mut self, guest: &Guest, limit: Duration) -> Option<Duration> {
        self.late_at(Instant::now(), guest.processor_time(), limit)
    }

    /// One that gets little of a busy host's processors has more time; one that gets none was stopped, or
    /// waits.
    fn late_at(&mut self, now: Instant, computed: Duration, limit: Duration) -> Option<Duration> {
        if computed != self.seen {
            (self.seen, self.changed) = (computed, now);
        }
        let is_starved =
            now - self.changed < limit && computed.saturating_sub(self.computed) < limit / 2;
        let late = now - self.at;
        (late >= if is_starved { limit * STARVED } else { limit }).then_some(late)
    }
}

impl<'a> Round<'a> {
    /// Boots a guest.
    pub(super) fn start(
        boot: &Boot,
        decided: InGuest,
        cli: &'a Cli,
        signals: &'a SignalSource,
    ) -> Result<Round<'a>> {
        let mut boot = boot.clone();
        // Whoever asks for values gets one at the end; others see the output as it comes.
        // Who has a clock of its own gets no terminal, whose timers would move it.
        boot.terminals[0] = terminal_size(cli).filter(|_| !decided.virtual_clock);
        let messages = [(CAMPAIGN.to_owned(), serde_json::to_vec(&decided)?)];
        let guest = Guest::start_with(&boot, &messages)?;
        let moved = (0, Began::now(&guest));
        let round = Round {
            guest,
            board: None,
            cli,
            signals,
            held_output: Vec::new(),
            asked: None,
            boot: BootWatch::start(Instant::now()),
            lacked_space: false,
            since: BTreeMap::new(),
            told: Instant::now(),
            console_len: 0,
            is_silent: false,
            moved,
            end: None,
            waits_for_nothing: decided.virtual_clock,
        };
        Ok(round)
    }

    /// The same guest, of which nobody hears.
    pub(super) fn silent(mut self) -> Round<'a> {
        self.is_silent = true;
        self
    }

    /// The same guest, which is ended at this time.
    pub(super) fn ending(mut self, end: Option<Instant>) -> Round<'a> {
        self.end = end;
        self
    }

    /// Watches the guest until it ends; `started` is when the campaign began.
    pub(super) fn watch(&mut self, started: Instant) -> Result<RoundEnd> {
        let end = loop {
            self.share_memory(started);
            self.pass_on()?;
            if let Some(end) = self.guest.try_wait()? {
                break self.ended(end)?;
            }
            if let Some(death) = self.look(started)? {
                self.guest.kill();
                break match (death, self.asked) {
                    (Death::Interrupted, Some((_, false))) => RoundEnd::TimeOver,
                    (death, _) => RoundEnd::Death(death),
                };
            }
            std::thread::sleep(LOOK_EVERY);
        };
        self.pass_on()?;
        clear_line();
        Ok(match (end, &self.board) {
            (RoundEnd::Death(death), Some(board)) => RoundEnd::Death(death.with_lane_of(board)),
            (end, _) => end,
        })
    }

    fn share_memory(&mut self, started: Instant) {
        if self.board.is_none() && self.guest.directory().join(BOARD).exists() {
            let table = self.guest.directory().join(BOARD);
            self.board = self.guest.memory().map(|memory| Board::in_guest(memory, table));
        }
        if let Some(board) = &self.board {
            board.tell_elapsed(started.elapsed());
        }
    }

    fn pass_on(&mut self) -> Result<()> {
        let (mut out, mut err) = (io::stdout(), io::stderr());
        let json = self.cli.json.is_some();
        let (mut kept, mut errors) = (Vec::new(), Vec::new());
        self.guest.pass_on(&mut kept, &mut errors)?;
        if self.is_silent {
            return Ok(());
        }
        if !errors.is_empty() || !kept.is_empty() {
            clear_line();
        }
        // Somebody who does not read any more is no reason to end the campaign.
        let _ = err.write_all(&errors);
        match json {
            true => self.held_output.extend(kept),
            false => drop(out.write_all(&kept).and_then(|()| out.flush())),
        }
        Ok(())
    }

    /// Looks at a guest that runs.
    fn look(&mut self, started: Instant) -> Result<Option<Death>> {
        while let Some(signal) = self.signals.next() {
            if matches!(self.asked, Some((_, true))) || self.board.is_none() {
                return Ok(Some(Death::Interrupted));
            }
            self.ask(true, &format!("{signal}: stopping at the next operation; again: at once"));
        }
        self.watch_boot()?;
        if let Some(death) = self.listen() {
            return Ok(Some(death));
        }
        let death = self.watch_lanes(self.deadline() * DEADLINES).or_else(|| self.watch_stall());
        self.tell(started);
        Ok(death.or_else(|| self.watch_clock(started)))
    }

    /// Gives up a kernel that does not get to its command.
    fn watch_boot(&mut self) -> Result<()> {
        if self.board.is_some() || self.guest.is_booted() {
            return Ok(());
        }
        let progress = Progress {
            console_bytes: self.guest.console().len(),
            computed: self.guest.processor_time(),
        };
        self.lacked_space |= self.guest.is_without_space();
        match self.boot.look(progress, Instant::now()) {
            Some(_) if self.lacked_space => bail!("{NO_SPACE}"),
            Some(why) => {
                bail!("the kernel does not boot ({why}); its console says:\n{}", self.tail())
            }
            None => Ok(()),
        }
    }

    fn ask(&mut self, interrupted: bool, words: &str) {
        if let Some(board) = &self.board {
            match interrupted {
                true => board.ask_to_stop(),
                false => board.end_the_time(),
            }
        }
        self.asked = Some((Instant::now(), interrupted));
        if interrupted {
            clear_line();
            say!("fathom: {words}");
        }
    }

    /// Ends a guest whose kernel has reported something after which it would go on.
    fn listen(&mut self) -> Option<Death> {
        let console = self.guest.console_since_boot();
        if console.len() == self.console_len || !self.guest.is_booted() {
            return None;
        }
        self.console_len = console.len();
        if !report::is_survivable(&console) {
            return None;
        }
        std::thread::sleep(REPORT_WITHIN);
        let report = report::read(&self.guest.console_since_boot())?;
        Some(Death::of(violation_of(report)))
    }

    pub(super) fn deadline(&self) -> Duration {
        let typed = match &self.cli.command {
            Some(Command::Check(args)) => Some(args.deadline),
            Some(Command::Replay(args)) => Some(args.deadline),
            _ => None,
        };
        // The worker gives calls more time that have to wait (`call_deadline`). Where the guest's clock passes over
        // what is waited for, that is no time of the host.
        let told = self.board.as_ref().and_then(Board::deadline);
        let limit = if self.waits_for_nothing { typed.or(told) } else { told.or(typed) };
        limit.unwrap_or(DEADLINE_DEFAULT)
    }

    /// A call that has not returned on the host's clock.
    fn watch_lanes(&mut self, limit: Duration) -> Option<Death> {
        for lane in self.board.as_ref().map(Board::lanes).unwrap_or_default() {
            if lane.activity == Activity::Idle {
                self.since.remove(&lane.index);
                continue;
            }
            let entry =
                self.since.entry(lane.index).or_insert((lane.beat, Began::now(&self.guest)));
            if entry.0 != lane.beat {
                *entry = (lane.beat, Began::now(&self.guest));
            }
            let limit = limit * patience(lane.activity);
            if let Some(late) = entry.1.late(&self.guest, limit) {
                let seconds = late.as_secs();
                return Some(Death::of(Violation::Hang { seconds }).in_lane(lane));
            }
        }
        None
    }

    /// A guest that has executed operations and in which nothing begins any more: its kernel computes for
    /// ever, or its process was stopped, while no call was being made.
    fn watch_stall(&mut self) -> Option<Death> {
        let board = self.board.as_ref()?;
        let lanes = board.lanes();
        let begun = lanes.iter().fold(board.operations(), |sum, lane| sum.wrapping_add(lane.beat));
        if begun != self.moved.0 {
            self.moved = (begun, Began::now(&self.guest));
        }
        let late = self.moved.1.late(&self.guest, self.deadline() * STALLED)?;
        if board.operations() == 0 {
            return None;
        }
        let lane = lanes.into_iter().find(|lane| !board.records(lane.index).is_empty())?;
        Some(Death::of(Violation::Hang { seconds: late.as_secs() }).in_lane(lane))
    }

    fn watch_clock(&mut self, started: Instant) -> Option<Death> {
        if let Some((since, interrupted)) = self.asked {
            if since.elapsed() < last_patience(self.deadline(), interrupted) {
                return None;
            }
            // Nobody waits for the second deadline any more.
            let hang = if interrupted { None } else { self.watch_lanes(self.deadline()) };
            return Some(hang.unwrap_or(Death::Interrupted));
        }
        if self.end.is_some_and(|end| Instant::now() >= end) {
            return Some(Death::Interrupted);
        }
        if self.budget().is_some_and(|budget| started.elapsed() >= budget) {
            self.ask(false, "the time is over: stopping");
        }
        None
    }

    /// Tells people how it goes: the guest has no clock to know when.
    fn tell(&mut self, started: Instant) {
        if self.cli.json.is_some()
            || self.is_silent
            || !io::stderr().is_terminal()
            || self.told.elapsed() < TELL_EVERY
        {
            return;
        }
        self.told = Instant::now();
        let Some(board) = &self.board else { return };
        let seconds = started.elapsed().as_secs_f64();
        let ops = board.operations();
        let age = self.guest.age().as_secs_f64();
        let left = board.budget().map(|budget| budget.as_secs_f64() - seconds);
        let left = left.map(|left| format!(", {:.0} s left", left.max(0.0))).unwrap_or_default();
        let _ = write!(
            io::stderr(),
            "\r\x1b[K{} operations in this guest, {}/s, {} findings{left}",
            grouped(ops),
            grouped((ops as f64 / age.max(1e-3)) as u64),
            board.findings()
        );
    }

    /// What the end of a guest means.
    fn ended(&self, end: GuestEnd) -> Result<RoundEnd> {
        let console = self.guest.console_since_boot();
        if matches!(end, GuestEnd::Died(_)) && self.guest.is_without_space() {
            bail!("{NO_SPACE}");
        }
        if !matches!(end, GuestEnd::Code(0 | 1)) && report::is_out_of_mappings(&console) {
            bail!("{}", fathom_guest::guest::out_of_mappings());
        }
        let status = match end {
            GuestEnd::Code(code @ 0..=2) => return Ok(RoundEnd::Code(code as u8)),
            GuestEnd::Code(code) => {
                let how = format!("the worker in the guest ended with code {code}: see above");
                return Ok(RoundEnd::Death(Death::Failed(how)));
            }
            GuestEnd::Signal(_) if report::is_out_of_memory(&console) => {
                return Ok(RoundEnd::Death(Death::of(self.out_of_memory())));
            }
            GuestEnd::Signal(signal) => {
                let how = fathom_subjects::supervise::process::signal_name(signal).to_owned();
                return Ok(RoundEnd::Death(Death::of(Violation::Died { how })));
            }
            GuestEnd::Refused(reason) => bail!("the guest started, but not the command: {reason}"),
            GuestEnd::Died(status) => status,
        };
        // Its memory could not grow, at whatever moment; what it had is given back already.
        if status.signal == Some(libc_signal::SIGBUS) {
            bail!("{NO_SPACE}");
        }
        if !self.guest.is_booted() && self.lacked_space {
            bail!("{NO_SPACE}");
        }
        if !self.guest.is_booted() {
            bail!("the kernel does not boot; its console says:\n{}", self.tail());
        }
        if let Some(report) = report::read(&console) {
            return Ok(RoundEnd::Death(Death::of(match report::is_out_of_memory(&console) {
                true => self.out_of_memory(),
                false => violation_of(report),
            })));
        }
        match status.signal {
            Some(signal) => {
                let name = fathom_subjects::supervise::process::signal_name(signal);
                let how = format!("guest killed by {name}");
                Ok(RoundEnd::Death(Death::of(Violation::Died { how })))
            }
            None => {
                let how = "the guest halted before its command ended".to_owned();
                Ok(RoundEnd::Death(Death::of(Violation::Died { how })))
            }
        }
    }

    fn out_of_memory(&self) -> Violation {
        Violation::OutOfMemory { mib: u64::from(fathom_guest::boot::MEMORY_MIB) }
    }

    /// The last lines of the console.
    fn tail(&self) -> String {
        let console = self.guest.console();
        let lines: Vec<&str> = console.lines().filter(|line| !line.contains("[<")).collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    /// What the worker said of its campaign.
    pub(super) fn about(&self) -> About {
        let text = self.board.as_ref().map(Board::about).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Whether the command replays something: its death is an answer.
    pub(super) fn is_replay(&self) -> bool {
        self.about().replayed.is_some()
    }

    /// What the worker left.
    pub(super) fn board(&self) -> Result<&Board> {
        self.board
            .as_ref()
            .ok_or_else(|| anyhow!("it died before the campaign began"))
            .with_context(|| format!("the guest's console says:\n{}", self.tail()))
    }

    /// How many operations it has executed.
    pub(super) fn operations(&self) -> u64 {
        self.board.as_ref().map_or(0, Board::operations)
    }

    /// How many findings it has recorded itself.
    pub(super) fn findings(&self) -> u64 {
        self.board.as_ref().map_or(0, Board::findings)
    }

    /// For how long the campaign may go on, on the host's clock.
    pub(super) fn budget(&self) -> Option<Duration> {
        self.board.as_ref().and_then(Board::budget)
    }
}

/// How long a worker that was asked to end may take.
fn last_patience(deadline: Duration, interrupted: bool) -> Duration {
    GRACE + if interrupted { Duration::ZERO } else { (deadline * DEADLINES).min(LAST_CALL_MAX) }
}

/// Numbers of signals that mean something here.
mod libc_signal {
    pub(super) const SIGBUS: i32 = 7;
}

fn violation_of(report: report::KernelReport) -> Violation {
    let report::KernelReport { kind, title, stack, lines } = report;
    Violation::KernelReport { kind, title, stack, lines }
}

/// The size of the terminal that is the standard output, if it is one.
fn terminal_size(cli: &Cli) -> Option<(u16, u16)> {
    if cli.json.is_some() {
        return None;
    }
    fathom_guest::guest::terminal_size(&io::stdout())
}

fn clear_line() {
    if io::stderr().is_terminal() {
        let _ = io::stderr().write_all(b"\r\x1b[K");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_campaign_outlives_its_time_by_a_minute() {
        let seconds = Duration::from_secs;
        assert_eq!(last_patience(seconds(5), false), GRACE + seconds(10));
        for deadline in [30, 120, 3600] {
            assert!(last_patience(seconds(deadline), false) < seconds(60));
            assert_eq!(last_patience(seconds(deadline), true), GRACE);
        }
    }

    #[test]
    fn a_guest_that_gets_little_of_the_processor_has_more_time() {
        let at = Instant::now();
        let after = |seconds: u64| at + Duration::from_secs(seconds);
        let (limit, tick) = (Duration::from_secs(10), Duration::from_millis(10));
        let began = Began { at, computed: tick, seen: tick, changed: at };
        let mut stopped = began;
        assert_eq!(stopped.late_at(after(9), tick, limit), None);
        assert!(stopped.late_at(after(10), tick, limit).is_some());
        let mut starved = began;
        for second in 1..100 {
            let computed = tick * (second as u32 + 1);
            assert_eq!(starved.late_at(after(second), computed, limit), None, "{second}");
        }
        assert!(starved.late_at(after(100), tick * 101, limit).is_some());
        let mut computes = began;
        assert_eq!(computes.late_at(after(9), Duration::from_secs(9), limit), None);
        assert!(computes.late_at(after(10), Duration::from_secs(10), limit).is_some());
    }
}
