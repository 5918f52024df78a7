//! Notices a call that does not return.
//!
//! The thread that executes operations tells its [`Pulse`] when one begins and ends; a [`Watch`] on
//! another thread looks at it. A call that is overdue is ended by the subject's [`Rescue`] (a daemon
//! is killed); one that does not return even then has the process in its hands, and the last thing
//! that can be done is to tell what was executed and to exit.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fathom_core::{Op, Rescue, Step};

/// Told which operations began and which is running, when no answer comes even after the rescue.
pub type LastWords = Arc<dyn Fn(&[Op], Duration) + Send + Sync>;

/// What the executing thread does.
pub struct Pulse {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Since the file system was empty; the last one may be running.
    ops: Vec<Op>,
    running: Option<Instant>,
    /// When the rescue was called for the running operation, and how late that was.
    rescued: Option<Duration>,
    rescue: Option<Rescue>,
}

impl Pulse {
    /// Nothing executed yet.
    pub fn new() -> Arc<Pulse> {
        Arc::new(Pulse { state: Mutex::new(State::default()) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn restart(&self, rescue: Option<Rescue>) {
        *self.state() = State { rescue, ..State::default() };
    }

    pub(crate) fn resume(&self, steps: &[Step], rescue: Option<Rescue>) {
        let mut state = self.state();
        state.ops.truncate(steps.len());
        state.rescue = rescue;
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

/// Watches a pulse until it is dropped.
pub struct Watch {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// An operation may take `deadline`; after a second one without an answer, `last_words`.
    pub fn start(pulse: Arc<Pulse>, deadline: Duration, last_words: LastWords) -> Watch {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (stopped, bell) = &*told;
            let mut guard = stopped.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            while !*guard {
                look(&pulse, deadline, &last_words);
                let pause = (deadline / 8).clamp(Duration::from_millis(10), Duration::from_secs(1));
                guard = bell
                    .wait_timeout(guard, pause)
                    .unwrap_or_else(|poisoned| poisoned.into_inner())
                    .0;
            }
        });
        Watch { stop, thread: Some(thread) }
    }
}

fn look(pulse: &Pulse, deadline: Duration, last_words: &LastWords) {
    let mut state = pulse.state();
    let Some(late) = state.running.map(|since| since.elapsed()) else { return };
    if late >= deadline && state.rescued.is_none() {
        state.rescued = Some(late);
        if let Some(rescue) = &state.rescue {
            rescue();
        }
    } else if late >= deadline * 2 {
        let ops = state.ops.clone();
        drop(state);
        last_words(&ops, late);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            // It only looks and waits; if it panicked there is nothing to be cleaned up.
            let _ = thread.join();
        }
    }
}
