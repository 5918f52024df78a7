//! Starts a program and waits for it, without copying the memory of this process.
//!
//! A checker is started for every disk. `fork` would mark every page of this process as shared each time,
//! which is slow in a guest (User-Mode Linux changes each mapping by a
//! call to the host). The child shares our memory until it executes the
//! program, and we stand still until then (clone(2), `CLONE_VM | CLONE_VFORK`): what posix_spawn(3) does, but
//! that cannot ask for a signal when we die.
#![allow(unsafe_code, reason = "starts a process; every block says why it is sound")]

use std::ffi::{CString, OsStr, c_char, c_int, c_void};
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Output};
use std::ptr;

use rustix::fs::{MemfdFlags, memfd_create};

/// Enough for a few system calls.
const STACK_BYTES: usize = 64 << 10;

/// What the child needs: made before, since it must not allocate.
struct Plan {
    program: CString,
    arguments: Vec<*const c_char>,
    variables: Vec<*const c_char>,
    streams: [RawFd; 3],
    parent: libc::pid_t,
    mask: libc::sigset_t,
    /// Why it could not be executed.
    errno: c_int,
}

/// Runs a program to its end. It is ended if this thread ends; `started` is told its number.
pub(super) fn output(
    program: &OsStr,
    arguments: &[&OsStr],
    variables: &[(&str, &str)],
    stdin: BorrowedFd<'_>,
    started: &mut dyn FnMut(libc::pid_t),
) -> io::Result<Output> {
    let words: Vec<CString> = [program]
        .into_iter()
        .chain(arguments.iter().copied())
        .map(text)
        .collect::<Result<_, _>>()?;
    let set = |name: &OsStr| variables.iter().any(|(other, _)| *name == **other);
    let mut environment: Vec<CString> = Vec::new();
    for (name, value) in std::env::vars_os().filter(|(name, _)| !set(name)) {
        environment.push(text(&[&name, OsStr::new("="), &value].join(OsStr::new("")))?);
    }
    for (name, value) in variables {
        environment.push(text(OsStr::new(&format!("{name}={value}")))?);
    }
    // Files take whatever is printed: nobody has to read meanwhile.
    let (out, err) = (collector()?, collector()?);
    let mut plan = Plan {
        program: text(program)?,
        arguments: pointers(&words),
        variables: pointers(&environment),
        streams: [stdin.as_raw_fd(), out.as_raw_fd(), err.as_raw_fd()],
        parent: rustix::process::getpid().as_raw_nonzero().get(),
        mask: empty_mask(),
        errno: 0,
    };
    let child = start(&mut plan)?;
    started(child);
    let status = wait(child)?;
    if plan.errno != 0 {
        return Err(io::Error::from_raw_os_error(plan.errno));
    }
    Ok(Output { status, stdout: collected(out)?, stderr: collected(err)? })
}

fn text(words: &OsStr) -> io::Result<CString> {
    Ok(CString::new(words.as_bytes())?)
}

/// The words as `execve` wants them; they must outlive the pointers.
fn pointers(words: &[CString]) -> Vec<*const c_char> {
    words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect()
}

fn collector() -> io::Result<OwnedFd> {
    Ok(memfd_create("fathom-output", MemfdFlags::CLOEXEC)?)
}

fn collected(file: OwnedFd) -> io::Result<Vec<u8>> {
    let (mut file, mut bytes) = (std::fs::File::from(file), Vec::new());
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn empty_mask() -> libc::sigset_t {
    // SAFETY: plain integers, which the call fills in.
    unsafe {
        let mut mask = std::mem::zeroed();
        libc::sigemptyset(&raw mut mask);
        mask
    }
}

/// Starts the child, and waits until it has executed the program, or failed to.
fn start(plan: &mut Plan) -> io::Result<libc::pid_t> {
    let mut stack = vec![0_u128; STACK_BYTES / size_of::<u128>()];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: all signals are blocked, so that no handler of ours runs in the child before it has a mask of
    // its own. The stack is aligned, ours alone, and lives until the child has left it: with CLONE_VFORK
    // this thread stands still until then. The plan outlives the call for the same reason.
    let child = unsafe {
        let mut all = empty_mask();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut plan.mask);
        let mask = plan.mask;
        let top = stack.as_mut_ptr().add(stack.len()).cast::<c_void>();
        let child = libc::clone(execute, top, flags, ptr::from_mut(plan).cast::<c_void>());
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const mask, ptr::null_mut());
        if child < 0 {
            return Err(error);
        }
        child
    };
    drop(stack);
    Ok(child)
}

/// The child: system calls alone, on memory that it shares with a parent that stands still.
extern "C" fn execute(plan: *mut c_void) -> c_int {
    // SAFETY: the parent made the plan for us and waits. Nothing is allocated, and no lock is taken.
    unsafe {
        let plan = &mut *plan.cast::<Plan>();
        libc::setpgid(0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != plan.parent {
            libc::_exit(127);
        }
        for (number, stream) in plan.streams.iter().enumerate() {
            if libc::dup2(*stream, number as c_int) < 0 {
                plan.errno = *libc::__errno_location();
                libc::_exit(127);
            }
        }
        libc::sigprocmask(libc::SIG_SETMASK, &raw const plan.mask, ptr::null_mut());
        let (arguments, variables) = (plan.arguments.as_ptr(), plan.variables.as_ptr());
        libc::execve(plan.program.as_ptr(), arguments, variables);
        plan.errno = *libc::__errno_location();
        libc::_exit(127)
    }
}

fn wait(child: libc::pid_t) -> io::Result<ExitStatus> {
    let mut status = 0;
    loop {
        // SAFETY: the child is ours and was not waited for.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } == child {
            return Ok(ExitStatus::from_raw(status));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn shell(script: &str) -> Output {
        let stdin = std::fs::File::open("/proc/self/cmdline").unwrap();
        let arguments = ["-c", script].map(OsStr::new);
        let (program, variables) = (OsStr::new("/bin/sh"), [("LC_ALL", "C"), ("COLOUR", "blue")]);
        let mut number = 0;
        let output = output(program, &arguments, &variables, stdin.as_fd(), &mut |child| {
            number = child;
        });
        assert!(number > 0);
        output.unwrap()
    }

    #[test]
    fn output_variables_streams_and_status_arrive() {
        let output = shell("echo $COLOUR $LC_ALL; cat >&2; exit 3");
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(output.stdout, b"blue C\n");
        assert_eq!(output.stderr, std::fs::read("/proc/self/cmdline").unwrap());
        assert_eq!(shell("kill -9 $$").status.signal(), Some(libc::SIGKILL));
        // More than a pipe holds, and an environment that is inherited.
        let output = shell("head -c 300000 /dev/zero; test -n \"$PATH\"");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 300_000));
    }

    #[test]
    fn what_is_not_there_is_an_error_and_signals_are_as_before() {
        let stdin = std::fs::File::open("/dev/null").unwrap();
        let program = OsStr::new("/no/such/program");
        let error = output(program, &[], &[], stdin.as_fd(), &mut |_| {}).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let mut mask = empty_mask();
        // SAFETY: asks for the mask and changes nothing.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut mask) };
        // SAFETY: looks into the mask.
        assert_eq!(unsafe { libc::sigismember(&raw const mask, libc::SIGTERM) }, 0);
    }
}
