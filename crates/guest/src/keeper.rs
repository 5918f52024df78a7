//! The keeper: a small process between the supervisor and a guest.
//!
//! It starts the kernel confined, answers what its filter asks, and when the kernel ends, ends every
//! process that it has left (a kernel that is killed leaves the processes in which it ran its tasks).
//! If whoever started the keeper dies, the keeper ends the guest and removes its directory.

#![allow(unsafe_code, reason = "starts and ends processes; every block says why it is sound")]

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::answer::{Answers, RandomBytes};
use crate::boot::{KeeperPlan, STDERR, STDOUT};
use crate::confine;
use crate::error::{GuestError, Result};
use crate::private::hold;
use crate::processor::{self, Processor};
use crate::widen;

/// Names of the files in a private directory.
pub(crate) mod file {
    pub(crate) const KEEPER_PLAN: &str = "keeper.json";
    pub(crate) const INIT_PLAN: &str = "init.json";
    pub(crate) const CONSOLE: &str = "console";
    pub(crate) const STDOUT: &str = "stdout";
    pub(crate) const STDERR: &str = "stderr";
    /// The number of the kernel's process.
    pub(crate) const PROCESS: &str = "process";
    /// How the kernel's process ended.
    pub(crate) const STATUS: &str = "status.json";
    /// How the command in the guest ended.
    pub(crate) const ENDED: &str = "ended.json";
}

/// How the process of a kernel ended, as its keeper saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelStatus {
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// How many random bytes each call wanted; empty if the host answered them.
    pub random_calls: Vec<u64>,
    /// Why there was no kernel at all.
    pub error: Option<String>,
}

/// Runs a keeper: the program was started with [`crate::boot::KEEPER`] and this directory.
pub(crate) fn keep(dir: &Path) -> i32 {
    let parent = parent();
    // SAFETY: takes numbers only.
    unsafe {
        libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
        libc::prctl(libc::PR_SET_NAME, c"fathom-keeper".as_ptr());
    }
    let Ok(_held) = hold(dir) else { return 2 };
    let status = run(dir).unwrap_or_else(|error| KernelStatus {
        error: Some(error.to_string()),
        ..KernelStatus::default()
    });
    end_children();
    if self::parent() != parent {
        // Nobody is left who would do it.
        let _ = fs::remove_dir_all(dir);
        return 2;
    }
    let text = serde_json::to_vec(&status).unwrap_or_default();
    match fs::write(dir.join(file::STATUS), text) {
        Ok(()) => 0,
        Err(_) => 2,
    }
}

fn parent() -> libc::pid_t {
    // SAFETY: takes nothing.
    unsafe { libc::getppid() }
}

fn run(dir: &Path) -> Result<KernelStatus> {
    let text =
        fs::read(dir.join(file::KEEPER_PLAN)).map_err(GuestError::io("the keeper's plan"))?;
    let plan: KeeperPlan = serde_json::from_slice(&text)
        .map_err(|error| GuestError::io("the keeper's plan")(error.into()))?;
    let signals = stop_signals().map_err(GuestError::io("signals"))?;
    let (mut kernel, listener) = start(dir, &plan)?;
    let write = fs::write(dir.join(file::PROCESS), kernel.id().to_string());
    write.map_err(GuestError::io("the private directory"))?;
    let mut answers = Answers {
        listener,
        random: RandomBytes::new(plan.seed.unwrap_or_default()),
        wanted: Vec::new(),
        writable: plan.writable,
    };
    let ended = watch(&mut kernel, &mut answers, &signals).map_err(GuestError::io("watching"))?;
    use std::os::unix::process::ExitStatusExt;
    Ok(KernelStatus {
        code: ended.code(),
        signal: ended.signal(),
        random_calls: answers.wanted,
        error: None,
    })
}

/// A descriptor that can be read when somebody wants the end.
fn stop_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised before it is used; the descriptor is new.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(&mut set, signal);
        }
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
        match libc::signalfd(-1, &set, libc::SFD_CLOEXEC) {
            -1 => Err(io::Error::last_os_error()),
            number => Ok(OwnedFd::from_raw_fd(number)),
        }
    }
}

/// Starts the kernel; returns the descriptor on which its filter asks, too.
fn start(dir: &Path, plan: &KeeperPlan) -> Result<(Child, OwnedFd)> {
    let open = |name: &str| {
        File::options().create(true).append(true).open(dir.join(name)).map_err(GuestError::io(name))
    };
    let [console, stdout, stderr] =
        [open(file::CONSOLE)?, open(file::STDOUT)?, open(file::STDERR)?];
    let ruleset = confine::landlock(&plan.writable)?;
    let filter = confine::filter(plan.seed.is_some());
    let (ours, theirs) = socket_pair().map_err(GuestError::io("socketpair"))?;
    let numbers = [stdout.as_raw_fd(), stderr.as_raw_fd()];
    let rules = ruleset.as_ref().map(AsRawFd::as_raw_fd);
    let channel = theirs.as_raw_fd();
    let keeper = std::process::id() as libc::pid_t;
    let program = widen::fitting(&plan.kernel, &plan.release, dir)?;
    let mut command = Command::new(&program);
    command
        .args(&plan.arguments)
        .env_clear()
        .env("TMPDIR", dir)
        .env("HOME", dir)
        .env("PATH", "/usr/bin:/bin")
        // A host since 6.18 writes to an area of rseq(2) that the guest's processes do not have.
        .env("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
        .current_dir(dir)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(console.try_clone().map_err(GuestError::io("console"))?)
        .stderr(console);
    // SAFETY: between fork and exec only system calls on values that were copied or made before.
    unsafe {
        command.pre_exec(move || {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != keeper {
                libc::_exit(2);
            }
            // Where the host puts things must not matter.
            libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
            let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            libc::setrlimit(libc::RLIMIT_CORE, &no_core);
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
            processor::stay()?;
            prepare(rules, &filter, channel)?;
            place(numbers)
        });
    }
    let kernel = command.spawn().map_err(GuestError::io(plan.kernel.display().to_string()))?;
    drop(theirs);
    let listener = receive(&ours).map_err(GuestError::io("the kernel's filter"))?;
    Ok((kernel, listener))
}

/// Confines the calling process and sends the descriptor of its filter away.
fn prepare(rules: Option<RawFd>, filter: &[libc::sock_filter], channel: RawFd) -> io::Result<()> {
    // SAFETY: takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if let Some(rules) = rules {
        confine::restrict(rules)?;
    }
    // The descriptor is closed when the kernel is executed.
    send(channel, confine::install(filter)?)
}

/// Puts the two outputs where the kernel's command line says.
fn place([stdout, stderr]: [RawFd; 2]) -> io::Result<()> {
    // SAFETY: takes numbers only.
    let placed = unsafe { [libc::dup2(stdout, STDOUT), libc::dup2(stderr, STDERR)] };
    match placed.contains(&-1) {
        true => Err(io::Error::last_os_error()),
        false => Ok(()),
    }
}

fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut pair = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: fills an array of ours with two new descriptors.
    unsafe {
        if libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(pair[0]), OwnedFd::from_raw_fd(pair[1])))
    }
}

/// Room for one descriptor beside a message.
#[repr(C)]
union Control {
    head: libc::cmsghdr,
    room: [u8; 32],
}

/// Sends a descriptor through a socket; only system calls and memory on the stack.
fn send(channel: RawFd, descriptor: RawFd) -> io::Result<()> {
    let mut byte = [0u8; 1];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = Control { room: [0; 32] };
    // SAFETY: the message refers to locals that live during the call; the macros stay inside of the
    // control room, which is as large as CMSG_SPACE says.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as usize;
        let head = libc::CMSG_FIRSTHDR(&message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        std::ptr::write_unaligned(libc::CMSG_DATA(head).cast::<RawFd>(), descriptor);
        match libc::sendmsg(channel, &message, 0) {
            1 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn receive(channel: &OwnedFd) -> io::Result<OwnedFd> {
    let mut byte = [0u8; 1];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    let mut control = Control { room: [0; 32] };
    // SAFETY: as for sending; a descriptor that arrives is new and nobody else's.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>();
        if libc::recvmsg(channel.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) != 1 {
            return Err(io::Error::other("it was not installed"));
        }
        let head = libc::CMSG_FIRSTHDR(&message);
        if head.is_null() || (*head).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::Error::other("no descriptor came with it"));
        }
        let number = std::ptr::read_unaligned(libc::CMSG_DATA(head).cast::<RawFd>());
        Ok(OwnedFd::from_raw_fd(number))
    }
}

/// Answers until the kernel ends; ends it if somebody wants that.
fn watch(
    kernel: &mut Child,
    answers: &mut Answers,
    signals: &OwnedFd,
) -> io::Result<std::process::ExitStatus> {
    let pid = rustix::process::Pid::from_child(kernel);
    let handle = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    let mut processor = Processor::of(kernel.id() as libc::pid_t)?;
    let look_ms = processor::LOOK_EVERY.as_millis() as libc::c_int;
    loop {
        let entry = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut sources = [
            entry(handle.as_raw_fd()),
            entry(answers.listener.as_raw_fd()),
            entry(signals.as_raw_fd()),
        ];
        // SAFETY: an array of ours of the given length.
        let ready = unsafe { libc::poll(sources.as_mut_ptr(), sources.len() as u64, look_ms) };
        if ready < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return Err(io::Error::last_os_error());
        }
        processor.look();
        if sources[2].revents != 0 {
            kernel.kill()?;
        }
        if sources[0].revents != 0 || sources[2].revents != 0 {
            return kernel.wait();
        }
        if sources[1].revents & libc::POLLIN != 0 {
            answers.one()?;
        } else if sources[1].revents != 0 {
            // Every process with this filter has ended.
            return kernel.wait();
        }
    }
}

/// Ends every child: those that the kernel left have become ours.
fn end_children() {
    loop {
        for child in processor::children(std::process::id() as libc::pid_t) {
            // SAFETY: a child of ours that nobody has waited for, so that the number is still its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
        // SAFETY: a null status is allowed.
        if unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } < 0 {
            return;
        }
    }
}
