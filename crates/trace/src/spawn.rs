//! Starts the command so that no call of it is missed: it waits until the tracer says go.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use crate::error::{Result, TraceError};
use crate::guard;
use crate::traced::{Ended, ended};

/// A forked process that has not executed its command yet.
#[derive(Debug)]
pub(crate) struct SuspendedChild {
    /// Its process identifier.
    pub(crate) pid: i32,
    go: File,
    failure: File,
    command: String,
}

/// Who ends the descendants of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Orphans {
    /// The tracer does.
    Traced,
    /// A guard between us and the command does: see [`crate::guard`].
    Guarded,
}

/// Forks a process that waits. When it is told to go on, it calls `prepare`, which must be safe
/// between fork and exec (no allocation, no lock), and executes the command.
pub(crate) fn spawn(
    argv: &[OsString],
    orphans: Orphans,
    prepare: impl Fn() -> io::Result<()>,
) -> Result<SuspendedChild> {
    let words: Vec<CString> = argv
        .iter()
        .map(|word| CString::new(word.as_bytes()))
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| TraceError::Data("a word of the command has a NUL".to_owned()))?;
    let Some(first) = words.first() else {
        return Err(TraceError::Data("no command".to_owned()));
    };
    let mut pointers: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let (go_read, go_write) = pipe()?;
    let (failure_read, failure_write) = pipe()?;
    let tracer = std::process::id() as libc::pid_t;
    // SAFETY: the child only makes system calls on memory that was prepared above.
    let pid = unsafe { libc::fork() };
    if pid < 0 {
        return Err(TraceError::last("cannot fork"));
    }
    if pid == 0 {
        let execute = || {
            // SAFETY: the array ends with a null pointer, its strings outlive the call.
            unsafe { libc::execvp(first.as_ptr(), pointers.as_ptr()) };
            io::Error::last_os_error()
        };
        let error = match (wait_for_go(tracer, go_read.as_raw_fd(), &prepare), orphans) {
            (Err(error), _) => error,
            (Ok(()), Orphans::Traced) => execute(),
            (Ok(()), Orphans::Guarded) => guard::run(tracer, failure_write.as_raw_fd(), execute),
        };
        let number = error.raw_os_error().unwrap_or(libc::EINVAL);
        // SAFETY: writes from a local integer and ends the process without running destructors.
        unsafe {
            libc::write(failure_write.as_raw_fd(), (&raw const number).cast(), 4);
            libc::_exit(127);
        }
    }
    let command = argv[0].to_string_lossy().into_owned();
    Ok(SuspendedChild { pid, go: go_write, failure: failure_read, command })
}

/// Waits for the go and prepares, in the child.
fn wait_for_go(
    tracer: libc::pid_t,
    go: RawFd,
    prepare: &impl Fn() -> io::Result<()>,
) -> io::Result<()> {
    let mut byte = 0u8;
    // SAFETY: reads one byte into a local variable; restores dispositions that the parent changed.
    let read = unsafe {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
            libc::signal(signal, libc::SIG_DFL);
        }
        // The command ends with the tracer, whatever ends that; also if it has ended already.
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != tracer {
            return Err(io::Error::from_raw_os_error(libc::ECHILD));
        }
        libc::read(go, (&raw mut byte).cast(), 1)
    };
    if read != 1 {
        // The tracer has gone.
        return Err(io::Error::from_raw_os_error(libc::ECHILD));
    }
    prepare()
}

impl SuspendedChild {
    /// Lets the process go on. Whether the command could be executed is known only later: see
    /// [`Started::failure`].
    pub(crate) fn go(mut self) -> Result<Started> {
        let doing =
            |source| TraceError::System { doing: "cannot start the command".into(), source };
        self.go.write_all(b"g").map_err(doing)?;
        Ok(Started { pid: self.pid, failure: self.failure, command: self.command })
    }
}

/// A process that executes the command.
#[derive(Debug)]
pub(crate) struct Started {
    /// Its process identifier.
    pub(crate) pid: i32,
    failure: File,
    command: String,
}

impl Started {
    /// Waits until the command ends.
    pub(crate) fn wait(&self) -> Result<Ended> {
        let mut status = 0;
        loop {
            // SAFETY: `status` is a local integer.
            let pid = unsafe { libc::waitpid(self.pid, &raw mut status, 0) };
            if pid == self.pid {
                return Ok(ended(status));
            }
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return Err(TraceError::last("cannot wait for the command"));
            }
        }
    }

    /// The reason why the command was not executed, if it was not. To be asked after it has ended.
    pub(crate) fn failure(&mut self) -> Option<TraceError> {
        let mut number = [0; 4];
        self.failure.read_exact(&mut number).ok()?;
        let source = io::Error::from_raw_os_error(i32::from_ne_bytes(number));
        Some(TraceError::Command { command: self.command.clone(), source })
    }
}

/// A pipe that no executed program inherits: reading and writing end.
fn pipe() -> Result<(File, File)> {
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors, which are owned by nobody else.
    unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(TraceError::last("cannot make a pipe"));
        }
        Ok((File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])))
    }
}

/// Shows the words of a command as a person would type them.
pub fn shown(argv: &[OsString]) -> String {
    argv.iter().map(OsString::as_os_str).map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
