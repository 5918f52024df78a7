//! Where a checker dies: violations of one signal at one place of the program have one cause.
//!
//! The run is made once more, and this time its thread is told of the signal before it kills (ptrace(2)). Debian's
//! programs come without frame pointers, so the stack is not unwound: the place is where the processor was, if that
//! is in the program itself, and otherwise the first address on the stack that is; a program that aborts dies
//! in the C library, and that address is who called it.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use libc::{c_int, c_void};

use super::image::DiskFile;
use super::spawn::{Command, start};
use super::{Limits, RunError, Sandbox};

/// Bytes of the stack that are looked at.
const STACK_BYTES: usize = 16 << 10;
/// Time between two looks at a program that neither dies nor ends.
const PAUSE: Duration = Duration::from_millis(1);

/// Runs a checker that is known to die of a signal, and tells where: "jfs_fsck+0x1234". Nothing if it does not
/// die this time, or not in its first thread.
///
/// # Errors
/// If it cannot be started.
pub(crate) fn place_of_death(
    command: &Command,
    disk: &DiskFile,
    limits: &Limits,
    sandbox: &Sandbox,
) -> Result<Option<String>, RunError> {
    let (pid, _pidfd) = start(command, disk, limits, sandbox, true)?;
    let deadline = Instant::now() + limits.time;
    let mut place = None;
    loop {
        let mut status = 0;
        // SAFETY: the process is our child; the status is ours.
        let waited = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
        if waited < 0 && io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return Err(RunError::last("wait for the checker"));
        }
        if waited <= 0 && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
            continue;
        }
        if waited == pid && !libc::WIFSTOPPED(status) {
            return Ok(place);
        }
        let signal = if waited == pid { libc::WSTOPSIG(status) } else { libc::SIGKILL };
        if is_deadly(signal) && place.is_none() {
            place = place_of(pid, &command.program());
        }
        go_on(pid, signal);
    }
}

fn is_deadly(signal: c_int) -> bool {
    [libc::SIGSEGV, libc::SIGABRT, libc::SIGBUS, libc::SIGFPE, libc::SIGILL].contains(&signal)
}

/// Lets a stopped process go on with the signal that stopped it; one that does not stop is killed.
fn go_on(pid: c_int, signal: c_int) {
    // The stop after execve(2) is ptrace's own.
    let passed_on = if signal == libc::SIGTRAP { 0 } else { signal };
    // SAFETY: the process is our child and has not been waited for to its end.
    unsafe {
        if signal == libc::SIGKILL {
            libc::kill(pid, libc::SIGKILL);
        } else {
            let none = std::ptr::null_mut::<c_void>();
            libc::ptrace(libc::PTRACE_CONT, pid, none, passed_on as usize as *mut c_void);
        }
    }
}

/// The place of a process that has stopped.
fn place_of(pid: c_int, program: &str) -> Option<String> {
    let (instruction, stack) = registers(pid)?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let program = fs::canonicalize(program).ok()?;
    let name = program.file_name()?.to_string_lossy().into_owned();
    let code = code_of(&maps, &program.to_string_lossy());
    let offset = |address: u64| {
        let (from, to, at) = code.iter().find(|(from, to, _)| (*from..*to).contains(&address))?;
        debug_assert!(from < to);
        Some(address - from + at)
    };
    let words = || {
        let mut bytes = vec![0; STACK_BYTES];
        let memory = fs::File::open(format!("/proc/{pid}/mem")).ok()?;
        let read = memory.read_at(&mut bytes, stack).ok()?;
        let words = bytes[..read].chunks_exact(8);
        let words = words.filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)));
        words.into_iter().find_map(offset)
    };
    offset(instruction).or_else(words).map(|at| format!("{name}+{at:#x}"))
}

/// The parts of a program's file that are mapped as code: addresses from and to, and the place in the file.
fn code_of(maps: &str, program: &str) -> Vec<(u64, u64, u64)> {
    maps.lines()
        .filter(|line| line.ends_with(program))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (from, to) = words.next()?.split_once('-')?;
            let is_code = words.next()?.contains('x');
            let number = |text: &str| u64::from_str_radix(text, 16).ok();
            let found = (number(from)?, number(to)?, number(words.next()?)?);
            is_code.then_some(found)
        })
        .collect()
}

/// Where the processor was, and where the stack is.
#[cfg(target_arch = "x86_64")]
fn registers(pid: c_int) -> Option<(u64, u64)> {
    // SAFETY: zeroed registers are valid, and the call fills in the structure that it is given.
    unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        let none = std::ptr::null_mut::<c_void>();
        let asked = libc::ptrace(libc::PTRACE_GETREGS, pid, none, &raw mut registers);
        (asked == 0).then_some((registers.rip, registers.rsp))
    }
}

/// Other processors: not told.
#[cfg(not(target_arch = "x86_64"))]
fn registers(_pid: c_int) -> Option<(u64, u64)> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_found_in_the_list_of_mappings() {
        let maps = "5500-5600 r--p 00000000 08:01 7  /sbin/some\n5600-5900 r-xp 00001000 08:01 7  /sbin/some\n\
                    7f00-7f10 r-xp 00000000 08:01 8  /lib/libc.so.6\n";
        assert_eq!(code_of(maps, "/sbin/some"), [(0x5600, 0x5900, 0x1000)]);
    }
}
