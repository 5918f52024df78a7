//! One worker from its start to its end: signals are passed on, deadlines and memory are watched, and
//! it always ends.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use fathom_core::{Activity, Violation};
use fathom_engine::check::call_monitor::patience;
use fathom_subjects::kernel::log::{KernelLog, is_out_of_memory};
use fathom_subjects::supervise::process::end_orphans;
use fathom_subjects::supervise::{Board, Ended, Output, SignalSource, WorkerProcess, remains};

use super::death::Death;
use crate::args::{Cli, Command};
use crate::text::{grouped, say};

/// The hidden argument that makes a process a worker.
pub(crate) const WORKER: &str = "--worker";

/// How often the worker is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A worker that was asked to end may take so long before it is ended.
const GRACE: Duration = Duration::from_secs(10);

/// A killed process may take so long to be gone.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// A thread that is gone for so long, while its process is not, has ended alone.
const GONE_WITHIN: Duration = Duration::from_millis(300);

/// One call may take so long where the command has no --deadline.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(30);

/// The worker ends an overdue call itself, by ending the daemon or the checker; if that does not
/// help either within the same time again, the supervisor does.
const DEADLINES: u32 = 2;

/// The worker is asked to end when it uses this share of the memory that it may use.
const MEMORY_SOFT: f64 = 0.9;

/// Of the memory that is available, unless --memory-max says otherwise.
const MEMORY_DEFAULT: f64 = 0.8;

/// Why the worker was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Signal,
    Memory,
    Time,
}

/// What a worker may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Time for one call, unless the worker says otherwise.
    pub(crate) deadline: Duration,
    /// Bytes of memory.
    pub(crate) memory_max: u64,
    /// Time for everything, unless the worker says otherwise.
    pub(crate) end: Option<Duration>,
}

impl Limits {
    pub(crate) fn of(cli: &Cli) -> Limits {
        let available = remains::available_bytes().unwrap_or(u64::MAX) as f64;
        let deadline = match &cli.command {
            Some(Command::Check(args)) => args.deadline,
            _ => DEADLINE_DEFAULT,
        };
        let memory_max = cli.memory_max.unwrap_or((available * MEMORY_DEFAULT) as u64);
        Limits { deadline, memory_max, end: None }
    }
}

/// How a worker ended.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(crate) enum WorkerEnd {
    /// By itself, with one of the exit codes of the program.
    Code(u8),
    /// In another way.
    Death(Death),
}

/// A worker that has ended, and what it left.
#[derive(Debug)]
pub(crate) struct EndedWorker {
    pub(crate) how: WorkerEnd,
    /// What it was doing.
    pub(crate) board: Board,
    /// What the kernel does not let go of.
    pub(crate) held: Vec<String>,
    /// Whether somebody wanted an end.
    pub(crate) interrupted: bool,
}

/// Watches one worker.
pub(crate) struct Watch<'a> {
    limits: Limits,
    board: Board,
    signals: &'a SignalSource,
    worker: WorkerProcess,
    started: Instant,
    log: Option<KernelLog>,
    /// Why and since when the worker is to end.
    asked: Option<(Asked, Instant)>,
    /// When each lane began what it is doing now.
    since: BTreeMap<u64, (u64, Instant)>,
    /// When each thread was first seen to be gone.
    gone: BTreeMap<u64, Instant>,
    /// Memory that the worker used when it was last looked at.
    resident: u64,
    /// Whether the worker says anything.
    output: Output,
}

/// Runs this program with arguments in a worker, to its end.
///
/// # Errors
/// If there cannot be a worker.
pub(crate) fn watch(
    arguments: Vec<OsString>,
    output: Output,
    limits: Limits,
    signals: &SignalSource,
) -> io::Result<EndedWorker> {
    let board = Board::create()?;
    // Before anything can go wrong, so that all of it is seen.
    let log = KernelLog::open().ok();
    let worker = WorkerProcess::start(&board, output, |number| {
        let mut all: Vec<OsString> = vec![format!("{WORKER}={number}").into()];
        all.extend(arguments);
        all
    })?;
    // Lower than the worker's; not everybody may.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-500");
    let watch = Watch {
        limits,
        board,
        signals,
        worker,
        started: Instant::now(),
        log,
        asked: None,
        since: BTreeMap::new(),
        gone: BTreeMap::new(),
        resident: 0,
        output,
    };
    watch.until_end()
}

impl Watch<'_> {
    fn until_end(mut self) -> io::Result<EndedWorker> {
        loop {
            let ended = self.worker.wait(self.signals, LOOK_EVERY)?;
            while let Some(signal) = self.signals.next() {
                if matches!(self.asked, Some((Asked::Signal, _))) {
                    return Ok(self.end(Death::Interrupted));
                }
                self.ask(
                    Asked::Signal,
                    &format!("{signal}: stopping at the next operation; again: at once"),
                );
            }
            if let Some(ended) = ended {
                return Ok(self.ended(ended));
            }
            let death = self.watch_memory().or_else(|| self.watch_lanes());
            if let Some(death) = death.or_else(|| self.watch_clock()) {
                return Ok(self.end(death));
            }
        }
    }

    /// Asks the worker to end at the next operation.
    fn ask(&mut self, why: Asked, words: &str) {
        self.board.ask_to_stop();
        self.asked = Some((why, Instant::now()));
        if self.output == Output::Inherited || why == Asked::Signal {
            clear_line();
            say!("fathom: {words}");
        }
    }

    fn watch_memory(&mut self) -> Option<Death> {
        self.resident = remains::resident_bytes(self.worker.id()).unwrap_or(self.resident);
        let mib = self.limits.memory_max >> 20;
        if self.resident > self.limits.memory_max {
            return Some(Death::of(Violation::OutOfMemory { mib }));
        }
        if self.asked.is_none()
            && self.resident as f64 > self.limits.memory_max as f64 * MEMORY_SOFT
        {
            let used = grouped(self.resident >> 20);
            let limit = grouped(mib);
            self.ask(
                Asked::Memory,
                &format!("{used} of {limit} MiB of memory are used: stopping (--memory-max)"),
            );
        }
        None
    }

    fn deadline(&self) -> Duration {
        self.board.deadline().unwrap_or(self.limits.deadline)
    }

    /// A call that does not return, or whose thread is gone.
    fn watch_lanes(&mut self) -> Option<Death> {
        let deadline = self.deadline();
        for lane in self.board.lanes() {
            if lane.activity == Activity::Idle {
                self.since.remove(&lane.index);
                continue;
            }
            let entry = self.since.entry(lane.index).or_insert((lane.beat, Instant::now()));
            if entry.0 != lane.beat {
                *entry = (lane.beat, Instant::now());
                continue;
            }
            let late = entry.1.elapsed();
            if remains::thread_is_gone(self.worker.id(), lane.thread) {
                // It may have ended properly between two looks, or with its whole process.
                let since = *self.gone.entry(lane.index).or_insert_with(Instant::now);
                if since.elapsed() >= GONE_WITHIN && self.board.lanes().contains(&lane) {
                    return Some(Death::of(Violation::Oops { lines: Vec::new() }).in_lane(lane));
                }
                continue;
            }
            self.gone.remove(&lane.index);
            let times = DEADLINES * patience(lane.activity);
            if late >= deadline * times {
                let seconds = late.as_secs();
                return Some(Death::of(Violation::Hang { seconds }).in_lane(lane));
            }
        }
        None
    }

    fn watch_clock(&mut self) -> Option<Death> {
        if let Some((_, since)) = self.asked {
            let patience = if self.asked.is_some_and(|(why, _)| why == Asked::Time) {
                GRACE + self.deadline() * DEADLINES
            } else {
                GRACE
            };
            return (since.elapsed() >= patience).then_some(Death::Interrupted);
        }
        let end = self.board.end().or(self.limits.end);
        if end.is_some_and(|end| self.started.elapsed() >= end) {
            self.ask(Asked::Time, "the time is over: stopping");
        }
        None
    }

    /// Ends the worker.
    fn end(mut self, death: Death) -> EndedWorker {
        let death = death.with_lane_of(&self.board);
        // What is left after that is in the kernel's hands.
        let held = match self.worker.kill(KILLED_WITHIN) {
            Some(_) => end_orphans().into_iter().flat_map(remains::describe).collect(),
            None => remains::describe(self.worker.id()),
        };
        self.died(death, held)
    }

    /// The worker has ended by itself.
    fn ended(self, ended: Ended) -> EndedWorker {
        let left: Vec<String> = end_orphans().into_iter().flat_map(remains::describe).collect();
        match ended {
            Ended::Code(code @ 0..=2) => EndedWorker {
                how: WorkerEnd::Code(code as u8),
                interrupted: self.is_interrupted(),
                board: self.board,
                held: left,
            },
            Ended::Code(code) => self.died(Death::Failed(format!("exit code {code}")), left),
            Ended::Signal(name)
                if self.asked.is_some() && ["SIGINT", "SIGTERM", "SIGHUP"].contains(&name) =>
            {
                self.died(Death::Interrupted, left)
            }
            Ended::Signal(name) => {
                let near = self.resident as f64 > self.limits.memory_max as f64 * MEMORY_SOFT;
                let violation = match name {
                    "SIGKILL" if near => {
                        Violation::OutOfMemory { mib: self.limits.memory_max >> 20 }
                    }
                    name => Violation::Died { how: name.to_owned() },
                };
                let death = Death::of(violation).with_lane_of(&self.board);
                self.died(death, left)
            }
        }
    }

    fn is_interrupted(&self) -> bool {
        matches!(self.asked, Some((Asked::Signal, _)))
    }

    /// The end, with what the kernel's log adds to it.
    fn died(mut self, death: Death, held: Vec<String>) -> EndedWorker {
        clear_line();
        let log = self.log.as_mut().and_then(|log| log.trouble().ok()).unwrap_or_default();
        let (memory, trouble): (Vec<String>, Vec<String>) =
            log.into_iter().partition(|line| is_out_of_memory(line));
        let pid = format!("process {} ", self.worker.id());
        let killed = memory.iter().any(|line| line.contains(&pid) || line.contains("oom-kill:"));
        let death = death.considering(&trouble, killed, self.limits.memory_max >> 20);
        let interrupted = self.is_interrupted();
        EndedWorker { how: WorkerEnd::Death(death), board: self.board, held, interrupted }
    }
}

/// Names what the kernel does not let go of.
pub(crate) fn name_left(left: &[String]) {
    if !left.is_empty() {
        say!("fathom: what the kernel does not let go of:");
        left.iter().for_each(|line| say!("  {line}"));
    }
}

/// A worker that was killed leaves half a progress bar.
fn clear_line() {
    if io::stderr().is_terminal() {
        let _ = io::stderr().write_all(b"\r\x1b[K");
    }
}
