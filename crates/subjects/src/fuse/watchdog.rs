//! A process that cleans up after a server that was killed.
//!
//! SIGKILL leaves a server no time to unmount, and everybody who touches the mount point afterwards
//! gets `ENOTCONN`. So a child process waits for the end of a pipe that only the server holds, and
//! then detaches the dead mount. It holds no descriptor of the server's (in particular not the
//! device, which would keep the connection alive) and has a session of its own, so that a signal to
//! the server's process group does not reach it.

#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::ffi::CString;
use std::io::{self, PipeWriter, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use super::attach;

/// Message: from now on there is a mount to clean up.
const ARM: u8 = b'a';
/// Message: the mount is gone, there is nothing left to do.
const DISMISS: u8 = b'd';

/// The process that watches over one mount of this process.
#[derive(Debug)]
pub(super) struct Watchdog {
    pipe: PipeWriter,
    child: libc::pid_t,
}

impl Watchdog {
    /// Starts the process. It does nothing until it is armed.
    pub(super) fn start(point: &Path) -> io::Result<Watchdog> {
        let task = CleanUpTask::new(point)?;
        let (reader, writer) = io::pipe()?;
        // SAFETY: the child only makes async-signal-safe calls on memory prepared before the fork,
        // and never returns; so it does not matter what other threads were doing.
        let child = unsafe { libc::fork() };
        match child {
            -1 => Err(io::Error::last_os_error()),
            0 => task.run(reader.as_raw_fd()),
            child => Ok(Watchdog { pipe: writer, child }),
        }
    }

    /// Tells the process that the file system is mounted.
    pub(super) fn arm(&mut self) -> io::Result<()> {
        self.pipe.write_all(&[ARM])
    }

    /// Tells the process that the file system is unmounted; waits for its end.
    pub(super) fn dismiss(mut self) {
        if self.pipe.write_all(&[DISMISS]).is_err() {
            return; // somebody has killed it
        }
        // SAFETY: the child is ours and nobody else waits for it; a null status is allowed.
        unsafe { libc::waitpid(self.child, ptr::null_mut(), 0) };
    }
}

/// The paths that the child needs, allocated before the fork.
struct CleanUpTask {
    point: CString,
    helper: CString,
}

impl CleanUpTask {
    fn new(point: &Path) -> io::Result<CleanUpTask> {
        let helper = attach::find_helper().unwrap_or_default();
        Ok(CleanUpTask {
            point: CString::new(point.as_os_str().as_bytes())?,
            helper: CString::new(helper.as_os_str().as_bytes())?,
        })
    }

    fn run(&self, pipe: RawFd) -> ! {
        // SAFETY: only async-signal-safe functions (signal-safety(7)) and plain system calls, on
        // buffers that live in `self` or on the stack.
        unsafe {
            libc::setsid();
            libc::chdir(c"/".as_ptr());
            libc::dup2(pipe, 0);
            libc::close_range(1, u32::MAX, 0);
            libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            libc::prctl(libc::PR_SET_NAME, c"reffs-watchdog".as_ptr());
            if must_clean_up() && self.is_dead() {
                self.clean_up();
            }
            libc::_exit(0)
        }
    }

    /// Whether the mount at the point is that of a dead server, and not one that somebody else has
    /// put there.
    unsafe fn is_dead(&self) -> bool {
        // SAFETY: the path is NUL-terminated and the buffer is of the right type.
        unsafe {
            let mut buffer: libc::statfs = std::mem::zeroed();
            let failed = libc::statfs(self.point.as_ptr(), &mut buffer) != 0;
            failed && [libc::ENOTCONN, libc::ECONNABORTED].contains(&*libc::__errno_location())
        }
    }

    unsafe fn clean_up(&self) {
        // SAFETY: all strings are NUL-terminated and the argument list ends with a null pointer.
        unsafe {
            if libc::umount2(self.point.as_ptr(), libc::MNT_DETACH) == 0 {
                return;
            }
            let arguments = [
                self.helper.as_ptr(),
                c"-u".as_ptr(),
                c"-q".as_ptr(),
                c"-z".as_ptr(),
                c"--".as_ptr(),
                self.point.as_ptr(),
                ptr::null(),
            ];
            libc::execv(self.helper.as_ptr(), arguments.as_ptr());
        }
    }
}

/// Waits for the end of the pipe at descriptor 0; returns whether it came with a mount in place.
unsafe fn must_clean_up() -> bool {
    let mut armed = false;
    loop {
        let mut byte = 0u8;
        // SAFETY: reads at most one byte into a buffer of one byte; errno is this thread's.
        let (count, interrupted) = unsafe {
            let count = libc::read(0, (&raw mut byte).cast(), 1);
            (count, *libc::__errno_location() == libc::EINTR)
        };
        match (count, byte) {
            (1, ARM) => armed = true,
            (1, _) => return false,
            (-1, _) if interrupted => {}
            _ => return armed,
        }
    }
}
