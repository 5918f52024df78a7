//! Tells how a search goes, and asks the clock and the machine whether it may go on.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::plan::Plan;
use super::report::{Discovery, Stop};

/// How often an observer is told.
pub(super) const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// Where a search is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Different states visited.
    pub states: u64,
    /// Steps taken.
    pub transitions: u64,
    /// The largest number of steps to a state.
    pub depth: usize,
    /// States that wait to be explored (walks: that wait to be made).
    pub open: u64,
    /// Memory for visited states and the ways to them.
    pub bytes: usize,
    /// Time of this run.
    pub elapsed: Duration,
}

/// Is told what happens; the search itself never prints.
pub trait Observer {
    /// Called a few times per second; `Break` ends the search.
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()>;

    /// A violation or a witness was found.
    fn discovery(&mut self, discovery: &Discovery);
}

/// An observer that does not look.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn progress(&mut self, _: &Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn discovery(&mut self, _: &Discovery) {}
}

/// The clock of a search.
pub(super) struct Clock {
    pub(super) started: Instant,
    told: Instant,
}

impl Clock {
    pub(super) fn start() -> Clock {
        let now = Instant::now();
        Clock { started: now, told: now }
    }

    /// The bounds that do not depend on the search, and the observer's wish.
    pub(super) fn check(
        &mut self,
        plan: &Plan,
        observer: &mut dyn Observer,
        progress: impl FnOnce() -> Progress,
    ) -> Option<Stop> {
        let now = Instant::now();
        if plan.time_max.is_some_and(|max| now - self.started >= max) {
            return Some(Stop::Time);
        }
        if now - self.told < PROGRESS_EVERY {
            return None;
        }
        self.told = now;
        let progress = Progress { elapsed: now - self.started, ..progress() };
        let occupied = || resident_bytes().unwrap_or(progress.bytes as u64);
        if plan.memory_max_bytes.is_some_and(|max| occupied() > max) {
            return Some(Stop::Memory);
        }
        observer.progress(&progress).is_break().then_some(Stop::Asked)
    }
}

/// Memory that the process occupies (proc_pid_status(5), `VmRSS`); none where there is no `/proc`.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}
