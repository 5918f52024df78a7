//! Several callers at the same time: each on its own thread, all from one barrier on.
//!
//! Delays make them meet. On an ordinary machine they are a few microseconds, which is less than a thread
//! takes to sleep and wake, so callers count time; and callers are kept on different processors, as far as
//! there are several. In a guest the clock stands still while anybody computes, so callers sleep there, and
//! who wakes first follows from the delays alone.

use std::io;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fathom_core::schedule::{Affinity, EventClock, Planned, in_order, scheduled_step};
use fathom_core::{Caller, HarnessFault, Schedule, Step};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::{Backend, HostSubject, Reconfigure};
use crate::sys::{Executor, IN_GUEST};

/// Longer delays are slept.
const SPIN_NS_MAX: u64 = 50_000;

/// What all callers of one schedule share.
struct Start {
    clock: EventClock,
    barrier: Barrier,
    sleeps: bool,
    processors: Vec<usize>,
    affinity: Affinity,
}

impl Start {
    fn new(callers: usize, affinity: Affinity) -> Start {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        let processors = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
        let sleeps = std::env::var_os(IN_GUEST).is_some();
        let (clock, barrier) = (EventClock::default(), Barrier::new(callers));
        Start { clock, barrier, sleeps, processors, affinity }
    }

    /// Keeps the thread of a caller on one of the processors, or lets it go where it was kept before. Where that is
    /// not allowed it goes anywhere.
    fn place(&self, caller: Caller) {
        if self.processors.len() < 2 {
            return;
        }
        let mut here = CpuSet::new();
        match self.affinity.of(caller, self.processors.len()) {
            Some(place) => here.set(self.processors[place]),
            None => self.processors.iter().for_each(|processor| here.set(*processor)),
        }
        let _ = sched_setaffinity(None, &here);
    }

    fn wait(&self, delay_ns: u64) {
        let delay = Duration::from_nanos(delay_ns);
        if delay_ns == 0 {
            return;
        }
        if self.sleeps || delay_ns > SPIN_NS_MAX {
            std::thread::sleep(delay);
            return;
        }
        let start = Instant::now();
        while start.elapsed() < delay {
            std::hint::spin_loop();
        }
    }

    /// All calls of one caller.
    fn run(
        &self,
        caller: Caller,
        lane: &[Planned],
        executor: &mut Executor,
    ) -> Result<Vec<Step>, HarnessFault> {
        let mut steps = Vec::with_capacity(lane.len());
        self.barrier.wait();
        for planned in lane {
            self.wait(planned.delay_ns);
            let (outcome, interval) = executor.apply_timed(&planned.op, &self.clock)?;
            steps.push(scheduled_step(caller, &planned.op, outcome, interval));
        }
        Ok(steps)
    }
}

/// Remounts beside the callers, on a thread of its own.
fn remount_beside(
    start: &Arc<Start>,
    mut reconfigure: Reconfigure,
    delays: Vec<u64>,
) -> JoinHandle<io::Result<()>> {
    let start = Arc::clone(start);
    std::thread::spawn(move || {
        start.barrier.wait();
        for delay_ns in delays {
            start.wait(delay_ns);
            reconfigure()?;
        }
        Ok(())
    })
}

impl<B: Backend> HostSubject<B> {
    /// Lets callers 0 to n execute their lanes at the same time.
    pub(super) fn run_at_once(&mut self, schedule: &Schedule) -> Result<Vec<Step>, HarnessFault> {
        let reconfigure = match schedule.remounts.is_empty() {
            true => None,
            false => self.backend.reconfigurer()?,
        };
        let remounters = usize::from(reconfigure.is_some());
        let start =
            Arc::new(Start::new(schedule.lanes.len() + remounters, schedule.affinity.clone()));
        let guard = self.executor.guard().clone();
        let mut answers = Vec::new();
        for (caller, lane) in schedule.lanes.iter().enumerate().skip(1) {
            // All threads are there before one of them waits for the others.
            self.other(caller as Caller)?;
            answers.push((caller as Caller, lane.clone(), None));
        }
        for (caller, lane, answer) in &mut answers {
            let (start, guard) = (Arc::clone(&start), guard.clone());
            let (caller, lane) = (*caller, std::mem::take(lane));
            let begun = self.others[&caller].begin(move |executor| {
                start.place(caller);
                executor.set_guard(guard);
                start.run(caller, &lane, executor)
            })?;
            *answer = Some(begun);
        }
        self.backend.delay_requests(schedule.disk);
        let remounts = reconfigure.map(|it| remount_beside(&start, it, schedule.remounts.clone()));
        let mut steps = Vec::with_capacity(schedule.len());
        let first = schedule.lanes.first().map_or(&[][..], Vec::as_slice);
        let mine = start.run(0, first, &mut self.executor);
        let mut others = Ok(());
        for (caller, _, answer) in &answers {
            let Some(answer) = answer else { continue };
            match self.others[caller].wait(answer).and_then(|answered| answered) {
                Ok(theirs) => steps.extend(theirs),
                Err(fault) => others = Err(fault),
            }
        }
        let remounted = remounts.map_or(Ok(Ok(())), JoinHandle::join);
        self.backend.delay_requests(None);
        steps.extend(mine?);
        others?;
        match remounted {
            Ok(Ok(())) => Ok(in_order(steps)),
            Ok(Err(error)) => Err(HarnessFault::new("remounting beside the callers", error)),
            Err(_) => Err(HarnessFault::new("remounting beside the callers", "it panicked")),
        }
    }
}
