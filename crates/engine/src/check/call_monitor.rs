//! Notices a call that does not return.
//!
//! The thread that executes operations tells its [`CallMonitor`] what begins and ends: operations,
//! looking, going back, the checker. A [`HangWatchdog`] on another thread looks at it. What is
//! overdue is ended by the subject's [`Unblock`] (a daemon is killed, so is a checker); what does
//! not return even then has the process in its hands. Then whoever supervises the process, who reads
//! the same [`Journal`], ends it and tells what was executed; without a supervisor [`OnStuck`] does.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fathom_core::{Activity, Journal, Op, Unblock};

/// Is told which operations began and how long the last one has been running, when no answer comes
/// even after the unblock.
pub type OnStuck = Arc<dyn Fn(&[Op], Duration) + Send + Sync>;

/// How many deadlines something may take: what consists of several calls (a daemon is stopped and
/// started, a disk unmounted and mounted) takes longer than one of them.
pub fn patience(activity: Activity) -> u32 {
    match activity {
        Activity::Idle | Activity::Operation | Activity::Looking | Activity::Examining => 1,
        Activity::SettingUp
        | Activity::Restoring
        | Activity::Saving
        | Activity::Checking
        | Activity::Closing => 2,
    }
}

/// A monitor of what the executing thread does.
pub struct CallMonitor {
    state: Mutex<State>,
    /// Outlives the process; without a supervisor there is none.
    journal: Option<Arc<dyn Journal>>,
}

/// Something that has begun and not ended. When it began is noted by the watchdog, as soon as that sees it:
/// asking for the time before every call is a system call where there is no vDSO, as in guests.
#[derive(Clone, Copy)]
struct Running {
    /// Its number among all that began.
    number: u64,
    /// How many deadlines it may take.
    deadlines: u32,
    /// How long it waits on purpose.
    waits: Duration,
}

#[derive(Default)]
struct State {
    /// Since the file system was empty; the last one may be running. Only without a journal.
    ops: Vec<Op>,
    /// The operation as the journal has it; kept to be filled again.
    record: Vec<u8>,
    /// What is running.
    running: Option<Running>,
    /// How many things have begun.
    begun: u64,
    /// When the unblock was called for what is running, and how late that was.
    rescued: Option<Duration>,
    unblock: Option<Unblock>,
}

impl State {
    fn begin(&mut self, deadlines: u32, waits: Duration) {
        self.begun += 1;
        self.running = Some(Running { number: self.begun, deadlines, waits });
    }
}

impl CallMonitor {
    /// Nothing executed yet.
    pub fn new(journal: Option<Arc<dyn Journal>>) -> Arc<CallMonitor> {
        Arc::new(CallMonitor { state: Mutex::new(State::default()), journal })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The file system is empty.
    pub(crate) fn clear(&self) {
        self.state().ops.clear();
        if let Some(journal) = &self.journal {
            journal.clear();
        }
    }

    /// Sets how to end a call from now on: the subject was started again.
    pub(crate) fn set_unblock(&self, unblock: Option<Unblock>) {
        self.state().unblock = unblock;
    }

    /// The file system is what it was after so many operations.
    pub(crate) fn truncate(&self, ops: usize) {
        self.state().ops.truncate(ops);
        if let Some(journal) = &self.journal {
            journal.truncate(ops);
        }
    }

    /// An operation begins.
    pub(crate) fn begin(&self, op: &Op) {
        let mut state = self.state();
        let waits = match op {
            Op::Wait { seconds } => Duration::from_secs(u64::from(*seconds)),
            _ => Duration::ZERO,
        };
        state.begin(patience(Activity::Operation), waits);
        let Some(journal) = &self.journal else {
            state.ops.push(op.clone());
            return;
        };
        state.record.clear();
        op.pack(&mut state.record);
        journal.append(&state.record);
        journal.begin(Activity::Operation);
    }

    /// Something else begins that may not return.
    pub(crate) fn begin_activity(&self, activity: Activity) {
        self.state().begin(patience(activity), Duration::ZERO);
        if let Some(journal) = &self.journal {
            journal.begin(activity);
        }
    }

    /// Notes the end of what began; returns the seconds after which it had to be rescued, if it had to.
    pub(crate) fn end(&self) -> Option<u64> {
        if let Some(journal) = &self.journal {
            journal.end();
        }
        let mut state = self.state();
        state.running = None;
        state.rescued.take().map(|late| late.as_secs().max(1))
    }
}

/// Watches a monitor until it is dropped.
pub(crate) struct HangWatchdog {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl HangWatchdog {
    /// An operation may take `deadline`; after a second one without an answer, `on_stuck`.
    pub(crate) fn start(
        monitor: Arc<CallMonitor>,
        deadline: Duration,
        on_stuck: OnStuck,
    ) -> HangWatchdog {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (stopped, bell) = &*told;
            let mut guard = stopped.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let mut seen = (0, Instant::now());
            while !*guard {
                look(&monitor, &mut seen, deadline, &on_stuck);
                let pause = (deadline / 8).clamp(Duration::from_millis(10), Duration::from_secs(1));
                guard = bell
                    .wait_timeout(guard, pause)
                    .unwrap_or_else(|poisoned| poisoned.into_inner())
                    .0;
            }
        });
        HangWatchdog { stop, thread: Some(thread) }
    }
}

/// Looks whether what runs is late; `seen` is what ran last time, and when it was first seen.
fn look(monitor: &CallMonitor, seen: &mut (u64, Instant), deadline: Duration, on_stuck: &OnStuck) {
    let mut state = monitor.state();
    let Some(running) = state.running else { return };
    if running.number != seen.0 {
        *seen = (running.number, Instant::now());
    }
    let late = seen.1.elapsed().saturating_sub(running.waits);
    let deadline = deadline * running.deadlines;
    if late >= deadline && state.rescued.is_none() {
        state.rescued = Some(late);
        if let Some(unblock) = &state.unblock {
            unblock();
        }
    } else if late >= deadline * 2 && monitor.journal.is_none() {
        let ops = state.ops.clone();
        drop(state);
        on_stuck(&ops, late);
    }
}

impl Drop for HangWatchdog {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // It only looks and waits; if it panicked there is nothing to be cleaned up.
            let _ = thread.join();
        }
    }
}
