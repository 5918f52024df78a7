//! Notices a call that does not return.
//!
//! The thread that executes operations tells its [`CallMonitor`] when one begins and ends; a [`HangWatchdog`] on
//! another thread looks at it. A call that is overdue is ended by the subject's [`Unblock`] (a daemon
//! is killed); one that does not return even then has the process in its hands, and the last thing
//! that can be done is to tell what was executed and to exit.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fathom_core::{Op, Step, Unblock};

/// ExplainedSystem which operations began and which is running, when no answer comes even after the unblock.
pub type OnStuck = Arc<dyn Fn(&[Op], Duration) + Send + Sync>;

/// What the executing thread does.
pub struct CallMonitor {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Since the file system was empty; the last one may be running.
    ops: Vec<Op>,
    running: Option<Instant>,
    /// When the unblock was called for the running operation, and how late that was.
    rescued: Option<Duration>,
    unblock: Option<Unblock>,
}

impl CallMonitor {
    /// Nothing executed yet.
    pub fn new() -> Arc<CallMonitor> {
        Arc::new(CallMonitor { state: Mutex::new(State::default()) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn restart(&self, unblock: Option<Unblock>) {
        *self.state() = State { unblock, ..State::default() };
    }

    pub(crate) fn resume(&self, steps: &[Step], unblock: Option<Unblock>) {
        let mut state = self.state();
        state.ops.truncate(steps.len());
        state.unblock = unblock;
    }

    /// An operation begins.
    pub(crate) fn begin(&self, op: &Op) {
        let mut state = self.state();
        state.ops.push(op.clone());
        state.running = Some(Instant::now());
    }

    /// Looking at what the last operation did begins.
    pub(crate) fn begin_looking(&self) {
        self.state().running = Some(Instant::now());
    }

    /// What began has ended: the seconds after which it had to be rescued, if it had to.
    pub(crate) fn end(&self) -> Option<u64> {
        let mut state = self.state();
        state.running = None;
        state.rescued.take().map(|late| late.as_secs().max(1))
    }
}

/// Watches a monitor until it is dropped.
pub struct HangWatchdog {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl HangWatchdog {
    /// An operation may take `deadline`; after a second one without an answer, `on_stuck`.
    pub fn start(monitor: Arc<CallMonitor>, deadline: Duration, on_stuck: OnStuck) -> HangWatchdog {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (stopped, bell) = &*told;
            let mut guard = stopped.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            while !*guard {
                look(&monitor, deadline, &on_stuck);
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

fn look(monitor: &CallMonitor, deadline: Duration, on_stuck: &OnStuck) {
    let mut state = monitor.state();
    let Some(late) = state.running.map(|since| since.elapsed()) else { return };
    if late >= deadline && state.rescued.is_none() {
        state.rescued = Some(late);
        if let Some(unblock) = &state.unblock {
            unblock();
        }
    } else if late >= deadline * 2 {
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
