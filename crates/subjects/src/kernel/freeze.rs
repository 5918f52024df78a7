//! Freezing: everything is on the disk and nothing moves, while the file system stays mounted.
//!
//! A frozen file system outlives the process that froze it: the kernel keeps a reference to it
//! until somebody thaws it (`freeze_super` in fs/super.c), and of a detached mount nobody could.
//! So there is a [`ThawGuard`], a process that shares our table of descriptors and does nothing but
//! wait for our end; if a file system is frozen then, it thaws it.

#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::fs::{Mode, OFlags};
use rustix::process::{PidfdFlags, pidfd_open};

/// From the kernel's `include/uapi/linux/fs.h`: `_IOWR('X', 119, int)` and `_IOWR('X', 120, int)`.
const FIFREEZE: libc::Ioctl = 0xC004_5877_u32 as libc::Ioctl;
const FITHAW: libc::Ioctl = 0xC004_5878_u32 as libc::Ioctl;

/// The process that thaws after our death.
pub(super) struct ThawGuard {
    process: libc::pid_t,
    /// The number of the descriptor under which the guard looks for a frozen file system; something
    /// that cannot be thawed (a pipe's end) while there is none.
    number: OwnedFd,
    /// What `number` is while nothing is frozen.
    idle: OwnedFd,
    /// This process, as the guard sees it: descriptors are shared.
    _parent: OwnedFd,
}

impl ThawGuard {
    pub(super) fn start() -> io::Result<ThawGuard> {
        let (idle, ready) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let number = rustix::io::fcntl_dupfd_cloexec(&idle, 3)?;
        // Not by a signal when the parent dies: the kernel sends none if the thread that dies acts as
        // another user at that moment, who may not signal root.
        let parent = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
        // SAFETY: without CLONE_VM the child has a copy of our memory, as after fork(2); it makes
        // only system calls on its own stack and never returns. With a null stack it goes on using
        // the copied one. CLONE_FILES shares the descriptors, which is the point.
        let process = unsafe {
            let flags = libc::CLONE_FILES | libc::SIGCHLD;
            libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) as libc::pid_t
        };
        match process {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(number.as_raw_fd(), ready.as_raw_fd(), parent.as_raw_fd()),
            process => {
                let guard = ThawGuard { process, number, idle, _parent: parent };
                // Until it has left our current directory, it keeps a file system busy.
                rustix::io::retry_on_intr(|| rustix::io::read(&guard.idle, &mut [0]))?;
                Ok(guard)
            }
        }
    }

    /// Freezes the file system of `root`, does `work`, and thaws it.
    pub(super) fn frozen<T>(
        &mut self,
        root: &OwnedFd,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(root, ".", flags, Mode::empty())?;
        replace(&dir, &mut self.number)?;
        let frozen = request(dir.as_raw_fd(), FIFREEZE);
        let done = frozen.and_then(|()| {
            let done = work();
            request(dir.as_raw_fd(), FITHAW)?;
            done
        });
        replace(&self.idle, &mut self.number)?;
        done
    }
}

impl Drop for ThawGuard {
    fn drop(&mut self) {
        // SAFETY: the process is our child and nobody else waits for it; a null status is allowed.
        unsafe {
            libc::kill(self.process, libc::SIGKILL);
            libc::waitpid(self.process, ptr::null_mut(), 0);
        }
    }
}

/// `dup3`: the descriptor keeps its number and becomes another file.
fn replace(file: &OwnedFd, number: &mut OwnedFd) -> io::Result<()> {
    Ok(rustix::io::dup3(file, number, rustix::io::DupFlags::CLOEXEC)?)
}

fn request(fd: RawFd, request: libc::Ioctl) -> io::Result<()> {
    // SAFETY: both requests take an argument that the kernel does not look at.
    let done = unsafe { libc::ioctl(fd, request, 0) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// What the guard does. All signals are blocked, so that one that is sent to our whole group (an
/// interrupt from the terminal) finds it waiting.
fn watch(number: RawFd, ready: RawFd, parent: RawFd) -> ! {
    // SAFETY: only system calls on values of this stack; the signal set is initialised by
    // sigfillset(3), which touches no other memory.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, ptr::null_mut());
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        libc::write(ready, c"r".as_ptr().cast(), 1);
        libc::prctl(libc::PR_SET_NAME, c"fathom-guard".as_ptr());
        let mut end = libc::pollfd { fd: parent, events: libc::POLLIN, revents: 0 };
        while libc::poll(&mut end, 1, -1) != 1 {}
        libc::ioctl(number, FITHAW, 0);
        libc::_exit(0)
    }
}
