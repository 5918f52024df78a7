//! Starts a checker and waits for it.
//!
//! The child shares our memory until `execve` (`CLONE_VM | CLONE_VFORK`), so a start costs the same
//! however large this process is. It dies with the thread that started it.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use libc::{c_char, c_int, c_void};

use super::image::{DiskFile, OUTPUT_BYTES_MAX};
use super::{End, Limits, Outcome, RunError, Sandbox};

/// The descriptor under which a checker finds its disk: `/proc/self/fd/100`.
const DISK_FD: c_int = 100;
/// The path of the disk for the checker.
pub(crate) const DISK_PATH: &str = "/proc/self/fd/100";
/// The descriptor of a second file that the checker may write: a log.
const LOG_FD: c_int = 101;
/// A checker that waits, rather than computes, may take so many times its limit: the machine may be busy.
const WALL_FACTOR: u32 = 4;

/// Halves of that time that a checker gets at most, whatever the machine is busy with.
const HALVES_MAX: u32 = 30;
/// The descriptor of the record of an instrumented checker.
const RECORD_FD: c_int = 102;
/// Moves a descriptor off the numbers under which a checker finds its files: the child puts these there, and
/// would replace it. Many threads, or many disks, reach such numbers.
pub(super) fn off_fixed_numbers(fd: OwnedFd) -> Result<OwnedFd, RunError> {
    if !(DISK_FD..=RECORD_FD).contains(&fd.as_raw_fd()) {
        return Ok(fd);
    }
    // SAFETY: a system call on a descriptor that lives.
    let moved = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, RECORD_FD + 1) };
    if moved < 0 {
        return Err(RunError::last("move a descriptor"));
    }
    // SAFETY: the descriptor was made just now and is ours.
    Ok(unsafe { OwnedFd::from_raw_fd(moved) })
}

/// The stack of the child until `execve`.
const STACK_BYTES: usize = 64 << 10;

/// A program with its arguments, ready to be started again and again.
pub(crate) struct Command {
    program: CString,
    /// Keeps what the pointers point to.
    _words: Vec<CString>,
    argv: Vec<*const c_char>,
    envp: Vec<*const c_char>,
}

// SAFETY: the pointers point into `_words`, which is never changed.
unsafe impl Send for Command {}
// SAFETY: as above; nothing is mutable.
unsafe impl Sync for Command {}

impl Command {
    /// The path of the program.
    pub(super) fn program(&self) -> std::borrow::Cow<'_, str> {
        self.program.to_string_lossy()
    }

    /// A program by path. In the arguments `{}` stands for the disk.
    ///
    /// # Errors
    /// If a word has a zero byte in it.
    pub(crate) fn new(
        program: &str,
        args: &[String],
        env: &[(String, String)],
    ) -> Result<Command, RunError> {
        let bad = |word: &str| RunError {
            what: format!("pass {word:?} to a program"),
            source: std::io::Error::from_raw_os_error(libc::EINVAL),
        };
        let text = |word: &str| CString::new(word).map_err(|_| bad(word));
        let program_text = text(program)?;
        let args = args.iter().map(|word| text(&word.replace("{}", DISK_PATH)));
        let argv: Vec<CString> =
            std::iter::once(text(program)).chain(args).collect::<Result<_, _>>()?;
        let env = env.iter().map(|(name, value)| text(&format!("{name}={value}")));
        let env: Vec<CString> = env.collect::<Result<_, _>>()?;
        let pointers = |words: &[CString]| {
            let list = words.iter().map(|word| word.as_ptr());
            list.chain([std::ptr::null()]).collect::<Vec<_>>()
        };
        let (argv_pointers, envp) = (pointers(&argv), pointers(&env));
        let words = argv.into_iter().chain(env).collect();
        Ok(Command { program: program_text, _words: words, argv: argv_pointers, envp })
    }
}

/// What the child needs, by reference: it shares our memory.
struct Child<'a> {
    command: &'a Command,
    limits: Limits,
    sandbox: &'a Sandbox,
    disk: c_int,
    log: c_int,
    /// Negative if nothing is recorded.
    record: c_int,
    output: c_int,
    input: c_int,
    /// Whether the thread that starts it is told of its signals before they kill it.
    traced: bool,
    /// What went wrong before `execve`: a step and its errno.
    failed: (u8, c_int),
}

extern "C" fn child(argument: *mut c_void) -> c_int {
    // SAFETY: the parent waits in clone(2) until we have executed or ended, so what it lent us lives;
    // only system calls are made.
    unsafe {
        let child = &mut *argument.cast::<Child<'_>>();
        let step = run_child(child);
        child.failed = (step, *libc::__errno_location());
        libc::_exit(127)
    }
}

/// Prepares the process and executes the checker; returns only if a step fails.
unsafe fn run_child(child: &Child<'_>) -> u8 {
    // SAFETY: system calls on descriptors and pointers that the parent keeps alive.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        // Ctrl-C on the terminal is for us, not for the checker.
        libc::setsid();
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        for (from, to) in [
            (child.input, 0),
            (child.output, 1),
            (child.output, 2),
            (child.disk, DISK_FD),
            (child.log, LOG_FD),
            (child.record, RECORD_FD),
        ] {
            if from >= 0 && libc::dup2(from, to) < 0 {
                return 1;
            }
        }
        for (resource, limit) in [
            (libc::RLIMIT_AS, child.limits.memory_bytes),
            (libc::RLIMIT_FSIZE, child.limits.file_bytes),
            (libc::RLIMIT_CORE, 0),
        ] {
            let limit = libc::rlimit { rlim_cur: limit, rlim_max: limit };
            if libc::setrlimit(resource, &limit) != 0 {
                return 2;
            }
        }
        // SIGXCPU at the limit, SIGKILL for whoever ignores that.
        let seconds = child.limits.time.as_secs().max(1);
        let cpu = libc::rlimit { rlim_cur: seconds, rlim_max: seconds + 1 };
        if libc::setrlimit(libc::RLIMIT_CPU, &cpu) != 0 {
            return 2;
        }
        if child.traced && libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
            return 3;
        }
        if child.sandbox.enter().is_err() {
            return 3;
        }
        let command = child.command;
        libc::execve(command.program.as_ptr(), command.argv.as_ptr(), command.envp.as_ptr());
        4
    }
}

/// Runs a checker on a disk until it ends or its time is over.
///
/// # Errors
/// If it cannot be started: a fault of the harness.
pub(crate) fn spawn(
    command: &Command,
    disk: &DiskFile,
    limits: &Limits,
    sandbox: &Sandbox,
) -> Result<Outcome, RunError> {
    let clock = Instant::now();
    let (pid, pidfd) = start(command, disk, limits, sandbox, false)?;
    let in_time = ends(pid, &pidfd, limits.time * WALL_FACTOR)?;
    if !in_time {
        // SAFETY: the process is our child and has not been waited for: the number is its own.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    let (status, resident_bytes) = wait(pid)?;
    let over = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGXCPU;
    let end = match in_time {
        _ if over => End::Hang,
        false => End::Hang,
        true if libc::WIFSIGNALED(status) => End::Signal(libc::WTERMSIG(status)),
        true => End::Code(libc::WEXITSTATUS(status)),
    };
    let time = clock.elapsed();
    let output = disk.output()?;
    let output_full = output.len() >= OUTPUT_BYTES_MAX;
    Ok(Outcome { end, output, output_full, time, resident_bytes })
}

/// Starts a checker on a disk; `traced` as [`super::place_of_death`] needs it. Whoever starts it waits for it.
///
/// # Errors
/// If it cannot be started.
pub(super) fn start(
    command: &Command,
    disk: &DiskFile,
    limits: &Limits,
    sandbox: &Sandbox,
    traced: bool,
) -> Result<(c_int, OwnedFd), RunError> {
    disk.rewind()?;
    let mut stack = vec![0_u8; STACK_BYTES];
    let mut context = Child {
        command,
        limits: *limits,
        sandbox,
        disk: disk.disk_fd(),
        log: disk.log_fd(),
        record: disk.record_fd(),
        output: disk.output_fd(),
        input: disk.input_fd(),
        traced,
        failed: (0, 0),
    };
    let mut pidfd: c_int = -1;
    // SAFETY: the stack is ours and large enough; the child runs on it until execve while this thread
    // waits (CLONE_VFORK). Stacks grow down and are aligned to 16 bytes.
    let pid = unsafe {
        let top = stack.as_mut_ptr().add(STACK_BYTES).cast::<c_void>();
        let top = top.wrapping_sub(top as usize % 16);
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD | libc::SIGCHLD;
        libc::clone(child, top, flags, (&raw mut context).cast(), &raw mut pidfd)
    };
    if pid < 0 {
        return Err(RunError::last("start a process"));
    }
    // SAFETY: clone(2) made the descriptor for us.
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    if context.failed.0 != 0 {
        wait(pid)?;
        let steps = ["", "set up descriptors", "set limits", "restrict the checker", "execute it"];
        let what = format!(
            "{}: {}",
            steps[usize::from(context.failed.0)],
            command.program.to_string_lossy()
        );
        return Err(RunError { what, source: std::io::Error::from_raw_os_error(context.failed.1) });
    }
    Ok((pid, pidfd))
}

/// Waits until a checker ends; false if it hangs. Its processor time has a limit of its own, so whoever
/// still computes, or waits for the processor of a busy machine, gets more time; whoever has done neither
/// for half of `time` waits for something that will not come.
fn ends(pid: c_int, pidfd: &OwnedFd, time: Duration) -> Result<bool, RunError> {
    let mut before = None;
    for _ in 0..HALVES_MAX {
        if ends_within(pidfd, time / 2)? {
            return Ok(true);
        }
        let Some(now) = processor_use(pid) else { continue };
        if !now.is_runnable && before == Some(now.ticks) {
            return Ok(false);
        }
        before = Some(now.ticks);
    }
    Ok(false)
}

/// How a process uses the processor.
struct Use {
    /// Whether it runs, or would if it got the processor.
    is_runnable: bool,
    /// What it and its threads have used so far.
    ticks: u64,
}

/// Asks the kernel; `None` if the process has just ended.
fn processor_use(pid: c_int) -> Option<Use> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program may hold anything; what follows the last bracket is in proc_pid_stat(5).
    let (_, fields) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some(Use { is_runnable: fields.first() == Some(&"R"), ticks: number(11)? + number(12)? })
}

fn ends_within(pidfd: &OwnedFd, time: Duration) -> Result<bool, RunError> {
    let deadline = Instant::now() + time;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid structure.
        let ready = unsafe { libc::poll(&mut poll, 1, left.as_millis() as c_int) };
        match ready {
            0 if left.is_zero() || Instant::now() >= deadline => return Ok(false),
            0 => {}
            1 => return Ok(true),
            _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            _ => return Err(RunError::last("wait for the checker")),
        }
    }
}

/// Takes the status of a child that has ended, and the most memory that it used.
fn wait(pid: c_int) -> Result<(c_int, u64), RunError> {
    let mut status = 0;
    loop {
        // SAFETY: zeroed usage is a valid value; both places are ours.
        let (waited, usage) = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            (libc::wait4(pid, &mut status, 0, &mut usage), usage)
        };
        if waited == pid {
            return Ok((status, usage.ru_maxrss.max(0) as u64 * 1024));
        }
        if std::io::Error::last_os_error().raw_os_error() != Some(libc::EINTR) {
            return Err(RunError::last("wait for the checker"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_computes_is_told_from_who_sleeps() {
        let start = |program: &str, args: &[&str]| {
            std::process::Command::new(program).args(args).spawn().expect("it is everywhere")
        };
        let busy = start("sh", &["-c", "while :; do :; done"]);
        let used = |child: &std::process::Child| {
            processor_use(child.id() as c_int).expect("it runs until it is killed")
        };
        while used(&busy).ticks == 0 {
            std::thread::yield_now();
        }
        assert!(used(&busy).is_runnable);
        let sleeper = start("sleep", &["600"]);
        while used(&sleeper).is_runnable {
            std::thread::yield_now();
        }
        for mut child in [busy, sleeper] {
            child.kill().expect("our child");
            child.wait().expect("our child");
        }
    }
}
