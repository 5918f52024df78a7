//! [`CallerThread`]: a caller beyond the first one, as a thread of its own.
//!
//! What makes a process of its own for a file system (open files, mask, identity, current directory)
//! belongs to a thread in Linux, if it asks for it (see [`crate::sys::thread_context`]). So a caller is
//! an [`Executor`] on a thread; whoever drives the subject hands it one piece of work at a time and
//! waits for the answer: the history stays sequential. Callers that overlap ([`super::at_once`]) do not
//! wait.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};

use fathom_core::{Caller, HarnessFault};

use crate::sys::{Executor, View};

/// A piece of work for the executor of a caller.
type Job = Box<dyn FnOnce(&mut Executor) + Send>;

/// The thread of one caller. Ends when it is dropped.
pub(super) struct CallerThread {
    caller: Caller,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl CallerThread {
    /// Starts a caller in `root`. The thread that calls this must be in its own directory and act for
    /// nobody else: a new thread inherits both.
    pub(super) fn start(
        caller: Caller,
        root: OwnedFd,
        view: View,
    ) -> Result<CallerThread, HarnessFault> {
        let (jobs, queue) = channel::<Job>();
        let (ready, answer) = channel();
        let thread = Builder::new().name(format!("caller {caller}")).spawn(move || {
            match Executor::new(root, view) {
                Ok(executor) => {
                    // If nobody waits for it there will be no work either.
                    let _ = ready.send(Ok(()));
                    work(executor, &queue);
                }
                Err(fault) => drop(ready.send(Err(fault))),
            }
        });
        let failed = |error: &dyn std::fmt::Display| {
            HarnessFault::new(format!("starting caller {caller}"), error)
        };
        let thread = thread.map_err(|error| failed(&error))?;
        answer.recv().map_err(|error| failed(&error))??;
        Ok(CallerThread { caller, jobs: Some(jobs), thread: Some(thread) })
    }

    /// Does something on the thread of the caller and waits for the answer.
    pub(super) fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Executor) -> T + Send + 'static,
    ) -> Result<T, HarnessFault> {
        let answer = self.begin(job)?;
        self.wait(&answer)
    }

    /// Begins to do something on the thread of the caller; [`CallerThread::wait`] has the answer.
    pub(super) fn begin<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Executor) -> T + Send + 'static,
    ) -> Result<Receiver<T>, HarnessFault> {
        let (done, answer) = channel();
        let job: Job = Box::new(move |executor| drop(done.send(job(executor))));
        let jobs = self.jobs.as_ref().ok_or_else(|| self.gone())?;
        jobs.send(job).map_err(|_| self.gone())?;
        Ok(answer)
    }

    /// Waits for what was begun.
    pub(super) fn wait<T>(&self, answer: &Receiver<T>) -> Result<T, HarnessFault> {
        answer.recv().map_err(|_| self.gone())
    }

    fn gone(&self) -> HarnessFault {
        HarnessFault::new(format!("asking caller {}", self.caller), "it has ended")
    }
}

fn work(mut executor: Executor, queue: &Receiver<Job>) {
    while let Ok(job) = queue.recv() {
        job(&mut executor);
    }
}

impl Drop for CallerThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It has closed its files then. A panic in it was told where it happened.
            let _ = thread.join();
        }
    }
}
