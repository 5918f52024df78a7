//! Reports the progress of a search, and checks the bounds on time and memory.

use std::ops::ControlFlow;
use std::time::Duration;

use fathom_record::pace::Moment;

use super::plan::Plan;
use super::report::{Discovery, Stop};

/// Interval between two reports to an observer.
pub(super) const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// The progress of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Number of different states visited.
    pub states: u64,
    /// Number of steps taken.
    pub transitions: u64,
    /// The largest number of steps to a state.
    pub depth: usize,
    /// Number of states that wait to be explored (walks: that wait to be made).
    pub open: u64,
    /// Bytes of memory for visited states and the ways to them.
    pub bytes: usize,
    /// Time since this run began.
    pub elapsed: Duration,
}

/// Receives the progress and the discoveries of a search, which itself never prints.
pub trait Observer {
    /// Called a few times per second; `Break` ends the search.
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()>;

    /// Called when a violation or a witness was found.
    fn discovery(&mut self, discovery: &Discovery);
}

/// An observer that ignores everything.
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
    pub(super) started: Moment,
    told: Moment,
}

impl Clock {
    pub(super) fn start() -> Clock {
        let now = Moment::now();
        Clock { started: now, told: now }
    }

    /// Checks the bounds that do not depend on the search, and asks the observer.
    pub(super) fn check(
        &mut self,
        plan: &Plan,
        observer: &mut dyn Observer,
        progress: impl FnOnce() -> Progress,
    ) -> Option<Stop> {
        let now = Moment::now();
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

/// Reads the memory that the process occupies (proc_pid_status(5), `VmRSS`); none where there is no
/// `/proc`.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}
