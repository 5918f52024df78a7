//! The process between us and the traced command: nothing that the command starts outlives it, or us.
//!
//! A command may leave daemons behind. When we are killed nobody would end them: a process can ask to
//! end with its parent, its children cannot. So the command is started by a process of ours that
//! becomes the parent of every orphan below it (`PR_SET_CHILD_SUBREAPER` of prctl(2)), hears of our end
//! by a signal, and then ends all of them. It ends as the command did. (The tracer by ptrace needs none:
//! the kernel kills whatever it traces, `PTRACE_O_EXITKILL`.)
//!
//! All of it runs between fork and exec: no allocation, no lock.

use std::io;
use std::os::fd::RawFd;

/// How often what is left is looked for, every two milliseconds, before the kernel may have it.
const LOOKS_MAX: u32 = 2500;

/// Starts the command, waits for its end and ends with it. Never returns in the guard; an error is one
/// of starting the command. `tracer` is the process to end with.
pub(crate) fn run(
    tracer: libc::pid_t,
    failure: RawFd,
    execute: impl FnOnce() -> io::Error,
) -> io::Error {
    // SAFETY: system calls on local variables; the child executes or ends.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut signals);
        libc::sigaddset(&mut signals, libc::SIGCHLD);
        libc::sigaddset(&mut signals, libc::SIGTERM);
        libc::sigprocmask(libc::SIG_BLOCK, &signals, &mut before);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        if libc::getppid() != tracer {
            return io::Error::from_raw_os_error(libc::ECHILD);
        }
        let guard = libc::getpid();
        let command = libc::fork();
        if command < 0 {
            return io::Error::last_os_error();
        }
        if command == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::sigprocmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            if libc::getppid() == guard {
                let number = execute().raw_os_error().unwrap_or(libc::EINVAL);
                libc::write(failure, (&raw const number).cast(), 4);
            }
            libc::_exit(127);
        }
        // The terminal tells the command, too: it decides.
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGQUIT, libc::SIG_IGN);
        let status = wait(tracer, command, &signals);
        end_everything();
        end_like(status)
    }
}

/// Waits for the command, or for our own end; returns the status of the command.
unsafe fn wait(tracer: libc::pid_t, command: libc::pid_t, signals: &libc::sigset_t) -> libc::c_int {
    loop {
        let mut status = 0;
        // SAFETY: the set is initialised, the status is a local variable.
        unsafe {
            loop {
                match libc::waitpid(-1, &mut status, libc::WNOHANG) {
                    ended if ended == command => return status,
                    ended if ended <= 0 => break,
                    _ => {}
                }
            }
            if libc::getppid() != tracer {
                return libc::SIGKILL;
            }
            let mut got = 0;
            libc::sigwait(signals, &mut got);
            if got == libc::SIGTERM && libc::getppid() == tracer {
                libc::kill(command, libc::SIGTERM);
            }
        }
    }
}

/// Kills all children; the orphans of each become ours, until there are none.
unsafe fn end_everything() {
    for _ in 0..LOOKS_MAX {
        // SAFETY: system calls on local memory; the children are ours, nobody has waited for them.
        unsafe {
            let mut list = [0u8; 4096];
            let path = c"/proc/thread-self/children";
            let file = libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            let count = libc::read(file, list.as_mut_ptr().cast(), list.len());
            libc::close(file);
            let text = list.get(..usize::try_from(count).unwrap_or(0)).unwrap_or_default();
            for number in text.split(|byte| *byte == b' ').filter_map(number) {
                libc::kill(number, libc::SIGKILL);
            }
            while libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) > 0 {}
            if libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG) < 0 {
                return; // ECHILD: there are none
            }
            libc::usleep(2000);
        }
    }
}

/// A decimal number; none for other text.
fn number(text: &[u8]) -> Option<libc::pid_t> {
    let mut value: libc::pid_t = 0;
    for digit in text {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value = value.checked_mul(10)?.checked_add(digit.into())?;
    }
    (!text.is_empty()).then_some(value)
}

/// Ends with this status of waitpid(2).
unsafe fn end_like(status: libc::c_int) -> ! {
    // SAFETY: takes numbers; what becomes of the process is the purpose.
    unsafe {
        if libc::WIFSIGNALED(status) {
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // The command has written its core, if it was to write one.
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            let signal = libc::WTERMSIG(status);
            libc::signal(signal, libc::SIG_DFL);
            let mut signals: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut signals);
            libc::sigprocmask(libc::SIG_SETMASK, &signals, std::ptr::null_mut());
            libc::raise(signal);
        }
        libc::_exit(libc::WEXITSTATUS(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_nothing_else() {
        assert_eq!(number(b"4194304"), Some(4_194_304));
        for text in [&b""[..], b"-1", b"12x", b"99999999999"] {
            assert_eq!(number(text), None);
        }
    }
}
