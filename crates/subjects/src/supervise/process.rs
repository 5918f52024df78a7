//! Starting a worker, watching it, and ending it with everything that it started.

#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::ptr;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::board::Board;
use super::remains;

/// Signals that ask for an end.
pub(super) const STOPPING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Helpers of a dead worker (who thaw or unmount what it left) need a moment to do so.
const HELPERS_WITHIN: Duration = Duration::from_secs(3);

/// A set of signals.
pub(super) fn signal_set(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: a set is plain memory, initialised by sigemptyset(3).
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        set
    }
}

/// The signals that ask this process to end, as something to be read.
#[derive(Debug)]
pub struct SignalSource {
    descriptor: OwnedFd,
}

impl SignalSource {
    /// From now on these signals are read and do nothing else. Only for a process with one thread.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn new() -> io::Result<SignalSource> {
        let set = signal_set(&STOPPING);
        // SAFETY: the set is initialised; the descriptor is new and owned by nobody else.
        unsafe {
            if libc::sigprocmask(libc::SIG_BLOCK, &set, ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
            let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
            match libc::signalfd(-1, &set, flags) {
                -1 => Err(io::Error::last_os_error()),
                descriptor => Ok(SignalSource { descriptor: OwnedFd::from_raw_fd(descriptor) }),
            }
        }
    }

    /// The next signal that has come, by its name.
    pub fn next(&self) -> Option<&'static str> {
        let mut record = [0; size_of::<libc::signalfd_siginfo>()];
        let count = rustix::io::read(&self.descriptor, &mut record).ok()?;
        let number = record.first_chunk::<4>().filter(|_| count > 0)?;
        Some(signal_name(u32::from_ne_bytes(*number) as i32))
    }
}

impl Drop for SignalSource {
    /// From now on the signals do again what they did before.
    fn drop(&mut self) {
        let set = signal_set(&STOPPING);
        // SAFETY: the set is initialised.
        unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &set, ptr::null_mut()) };
    }
}

/// The name of a signal.
pub fn signal_name(number: i32) -> &'static str {
    match number {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        libc::SIGXCPU => "SIGXCPU",
        libc::SIGXFSZ => "SIGXFSZ",
        libc::SIGSYS => "SIGSYS",
        _ => "another signal",
    }
}

/// How a worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By itself, with this code.
    Code(i32),
    /// By a signal.
    Signal(&'static str),
}

impl From<ExitStatus> for Ended {
    fn from(status: ExitStatus) -> Ended {
        match (status.code(), status.signal()) {
            (Some(code), _) => Ended::Code(code),
            (None, signal) => Ended::Signal(signal_name(signal.unwrap_or(0))),
        }
    }
}

/// Where a worker writes what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Where its supervisor does.
    Inherited,
    /// Nowhere.
    Discarded,
}

/// A worker process.
#[derive(Debug)]
pub struct WorkerProcess {
    child: Child,
    handle: OwnedFd,
}

impl WorkerProcess {
    /// Executes this program again with other arguments; `arguments` is given the number under which
    /// the worker finds the board. It ends when we do, however we do.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(
        board: &Board,
        output: Output,
        arguments: impl FnOnce(i32) -> Vec<OsString>,
    ) -> io::Result<WorkerProcess> {
        // Orphans of the worker become children of ours, so that none is overlooked at the end.
        // SAFETY: takes numbers only.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
        let number = board.as_fd().as_raw_fd();
        let parent = std::process::id() as libc::pid_t;
        let signals = signal_set(&STOPPING);
        let mut command = Command::new("/proc/self/exe");
        command.args(arguments(number));
        if output == Output::Discarded {
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        }
        if let Some(name) = std::env::args_os().next() {
            command.arg0(name);
        }
        // SAFETY: between fork and exec only system calls on values that were copied into the
        // closure; no allocation, no lock.
        unsafe {
            command.pre_exec(move || {
                // Until the worker listens to them: one that comes now must not end it.
                libc::sigprocmask(libc::SIG_BLOCK, &signals, ptr::null_mut());
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::getppid() != parent {
                    libc::_exit(2); // the supervisor died before the signal was asked for
                }
                match libc::fcntl(number, libc::F_SETFD, 0) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
        }
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(WorkerProcess { child, handle })
    }

    /// The number of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the worker or a signal, not longer than `time`.
    pub fn wait(&mut self, signals: &SignalSource, time: Duration) -> io::Result<Option<Ended>> {
        let timeout =
            Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
        let mut sources = [
            PollFd::new(&self.handle, PollFlags::IN),
            PollFd::new(&signals.descriptor, PollFlags::IN),
        ];
        match poll(&mut sources, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(self.child.try_wait()?.map(Ended::from))
    }

    /// Ends the worker and what it started; `None` if the kernel does not let go of it in time.
    pub fn kill(&mut self, within: Duration) -> Option<Ended> {
        // What it started, too: a thread that waits for a daemon cannot end before the daemon does.
        let deadline = Instant::now() + within;
        loop {
            let _ = pidfd_send_signal(&self.handle, Signal::KILL);
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(Ended::from(status));
            }
            for process in remains::descendants(self.id()) {
                if !remains::is_helper(process) {
                    kill(process);
                }
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Ends what is left of a worker that has ended: its helpers are given a moment, everything else is
/// killed. Returns the processes that are still there.
pub fn end_orphans() -> Vec<u32> {
    let deadline = Instant::now() + HELPERS_WITHIN;
    loop {
        if !reap() {
            return Vec::new();
        }
        let left = remains::descendants(std::process::id());
        let late = Instant::now() >= deadline;
        for process in &left {
            if late || !remains::is_helper(*process) {
                kill(*process);
            }
        }
        if Instant::now() >= deadline + HELPERS_WITHIN {
            return left;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits for orphans that have ended; whether there are others.
fn reap() -> bool {
    loop {
        // SAFETY: a null status is allowed; only orphans are left to be waited for.
        match unsafe { libc::waitpid(-1, ptr::null_mut(), libc::WNOHANG) } {
            0 => return true,
            process if process > 0 => {}
            _ => return false,
        }
    }
}

fn kill(process: u32) {
    // SAFETY: takes numbers only. The process is a descendant of ours that nobody has waited for, so
    // that its number cannot belong to another one yet.
    unsafe { libc::kill(process as libc::pid_t, libc::SIGKILL) };
}
