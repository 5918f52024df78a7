//! The first process of a guest.
//!
//! It mounts what a system has, runs one command, says how that ended, writes what is still in memory of
//! hostfs, and halts. It is this same program, started by the guest's kernel from the host's files.

#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use rustix::mount::MountFlags;
use serde::{Deserialize, Serialize};

use crate::boot::{InitPlan, MESSAGES, MODPROBE, build_id};
use crate::keeper::file;

/// How the command in a guest ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommandEnd {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// Why it was not run.
    pub(crate) error: Option<String>,
}

/// What marks the end of the boot in the console's text.
pub(crate) const BOOTED: &str = "fathom: booted";

/// The private directory on the host: the one in which the kernel was started.
const PRIVATE: &CStr = c"/proc/self/cwd";

/// Runs the first process: the program was started by a guest's kernel with [`crate::boot::INIT`].
pub fn init() -> ! {
    let end = match prepare().and_then(|plan| run(&plan)) {
        Ok(end) => end,
        Err(error) => {
            say(&format!("fathom: {error}"));
            CommandEnd { error: Some(error.to_string()), ..CommandEnd::default() }
        }
    };
    let text = serde_json::to_vec(&end).unwrap_or_default();
    // If that fails, its absence says so.
    let _ = fs::write(Path::new(MESSAGES).join(file::ENDED), text);
    write_back();
    halt()
}

/// Says something on the console. If that is not possible there is nobody to tell.
pub(crate) fn say(text: &str) {
    let _ = fs::write("/dev/console", format!("{text}\n"));
}

/// Writes what hostfs has not written yet. Not sync(2): the file systems under test may hang.
fn write_back() {
    for place in ["/", MESSAGES] {
        if let Ok(directory) = File::open(place) {
            // SAFETY: takes a descriptor of ours.
            unsafe { libc::syncfs(directory.as_raw_fd()) };
        }
    }
}

fn halt() -> ! {
    // SAFETY: takes a number only; the guest ends with it.
    unsafe { libc::reboot(libc::RB_POWER_OFF) };
    loop {
        thread::park();
    }
}

/// An error with what was tried.
fn context(what: impl std::fmt::Display, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{what}: {error}"))
}

fn prepare() -> io::Result<InitPlan> {
    mount("proc", None, "/proc")?;
    mount("sysfs", None, "/sys")?;
    if !is_mounted("/dev") {
        mount("devtmpfs", None, "/dev")?;
    }
    make_and_mount("tmpfs", None, "/dev/shm")?;
    make_and_mount("hostfs", Some(PRIVATE), MESSAGES)?;
    let text = fs::read(Path::new(MESSAGES).join(file::INIT_PLAN))?;
    let plan: InitPlan = serde_json::from_slice(&text).map_err(|error| context("plan", error))?;
    let here = build_id(Path::new("/proc/self/exe"));
    if here != plan.build_id {
        return Err(io::Error::other(format!(
            "the program was replaced while the guest started: build {here}, not {}",
            plan.build_id
        )));
    }
    settings(&plan);
    // Without it some programs do not find each other; nothing else hears it.
    if let Err(error) = loopback_up() {
        say(&format!("fathom: no loopback network: {error}"));
    }
    // The console's text after this line is the command's doing.
    say(BOOTED);
    Ok(plan)
}

fn is_mounted(place: &str) -> bool {
    let text = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    text.lines().any(|line| line.split(' ').nth(1) == Some(place))
}

fn make_and_mount(kind: &str, data: Option<&CStr>, at: &str) -> io::Result<()> {
    match fs::create_dir(at) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(context(at, error)),
        _ => mount(kind, data, at),
    }
}

/// Mounts a file system that needs no device.
fn mount(kind: &str, data: Option<&CStr>, at: &str) -> io::Result<()> {
    rustix::mount::mount(kind, at, kind, MountFlags::empty(), data)
        .map_err(|error| context(format!("mounting {kind} on {at}"), error))
}

/// Names of the open files of a process that programs expect.
const STREAMS: [(&str, &str); 4] = [
    ("/dev/fd", "/proc/self/fd"),
    ("/dev/stdin", "/proc/self/fd/0"),
    ("/dev/stdout", "/proc/self/fd/1"),
    ("/dev/stderr", "/proc/self/fd/2"),
];

/// Settings of the kernel. One that a kernel does not have is none that it needs.
fn settings(plan: &InitPlan) {
    let helper = format!("/dev/{MODPROBE}");
    let _ = std::os::unix::fs::symlink(&plan.program, &helper);
    // The kernel makes devices; these names are made by whoever sets a system up.
    for (name, target) in STREAMS {
        let _ = std::os::unix::fs::symlink(target, name);
    }
    let settings = [
        // Every report ends the guest, so that it is one finding with what led there.
        ("kernel/panic_on_oops", "1"),
        ("kernel/panic_on_warn", "1"),
        ("kernel/hung_task_panic", "1"),
        // The shared memory of the supervisor stays where it is.
        ("vm/compact_unevictable_allowed", "0"),
        ("kernel/modprobe", helper.as_str()),
        ("kernel/sysrq", "1"),
    ];
    for (name, value) in settings {
        let _ = fs::write(format!("/proc/sys/{name}"), value);
    }
    devices(plan);
}

/// Loads modules that nobody could ask for: a device whose node is not there cannot be opened.
fn devices(plan: &InitPlan) {
    let Some(modules) = &plan.modules else { return };
    for (node, module) in [("/dev/loop-control", "loop"), ("/dev/fuse", "fuse")] {
        if !Path::new(node).exists() {
            // Whoever needs a device that is not there says so.
            let _ = crate::modules::load(modules, module);
        }
    }
}

/// Switches the loopback interface on.
fn loopback_up() -> io::Result<()> {
    // SAFETY: the request is zeroed, its name is ended by a zero, and it lives during the calls.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if socket < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        let done = libc::ioctl(socket, libc::SIOCSIFFLAGS, &request);
        let error = io::Error::last_os_error();
        libc::close(socket);
        if done == 0 { Ok(()) } else { Err(error) }
    }
}

/// Runs the command with its outputs on the two serial lines.
fn run(plan: &InitPlan) -> io::Result<CommandEnd> {
    let [out_line, err_line] = [open_line("/dev/ttyS0")?, open_line("/dev/ttyS1")?];
    let (program, arguments) =
        plan.command.split_first().ok_or_else(|| io::Error::other("no command"))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(&plan.directory)
        .env_clear()
        .envs(ENVIRONMENT)
        .envs(plan.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .process_group(0);
    let mut relays = Vec::new();
    let (out, relay) = output(out_line, plan.terminals[0])?;
    command.stdout(out);
    relays.extend(relay);
    let (err, relay) = output(err_line, plan.terminals[1])?;
    command.stderr(err);
    relays.extend(relay);
    let child = command.spawn().map_err(|error| context(program, error))?;
    // The command's ends of the pipes are held by it alone from now on.
    drop(command);
    let status = wait(&child)?;
    // What it left would keep the pipes open.
    // SAFETY: takes numbers only; everything but this process.
    unsafe { libc::kill(-1, libc::SIGKILL) };
    relays.into_iter().for_each(|relay| drop(relay.join()));
    let status = std::process::ExitStatus::from_raw(status);
    Ok(CommandEnd { code: status.code(), signal: status.signal(), error: None })
}

/// The same in every guest. Names and sizes of an environment are visible in addresses.
const ENVIRONMENT: [(&str, &str); 7] = [
    ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    ("HOME", "/dev/shm"),
    ("TMPDIR", "/dev/shm"),
    ("LANG", "C.UTF-8"),
    ("TZ", "UTC"),
    // The machine is the guest: a subject may do what would touch others elsewhere.
    ("FATHOM_IN_GUEST", "1"),
    // An allocator that gives unused memory back asks for the time again and again, which is a system call
    // here, and every page that it takes back costs two changes of processes.
    ("MIMALLOC_PURGE_DELAY", "-1"),
];

/// A serial line that passes bytes on as they are.
fn open_line(path: &str) -> io::Result<File> {
    let line = File::options().write(true).open(path).map_err(|error| context(path, error))?;
    // SAFETY: the settings are filled in by the first call; the line is open during all of them.
    unsafe {
        let mut settings: libc::termios = std::mem::zeroed();
        if libc::tcgetattr(line.as_raw_fd(), &mut settings) == 0 {
            libc::cfmakeraw(&mut settings);
            libc::tcsetattr(line.as_raw_fd(), libc::TCSANOW, &settings);
        }
    }
    Ok(line)
}

/// What an output of the command is: the line itself where the user has a terminal, otherwise a pipe, so
/// that the command sees no terminal either.
fn output(line: File, terminal: Option<(u16, u16)>) -> io::Result<(Stdio, Option<JoinHandle<()>>)> {
    if let Some((columns, rows)) = terminal {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the size lives during the call.
        unsafe { libc::ioctl(line.as_raw_fd(), libc::TIOCSWINSZ, &size) };
        return Ok((Stdio::from(line), None));
    }
    let (from, to) = io::pipe()?;
    let relay = thread::spawn(move || relay(from, line));
    Ok((Stdio::from(OwnedFd::from(to)), Some(relay)))
}

fn relay(mut from: impl Read, mut to: impl Write) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..count]).is_err() {
            return;
        }
    }
}

/// Waits for the command, and for whatever else becomes a child of the first process.
fn wait(child: &Child) -> io::Result<i32> {
    loop {
        let mut status = 0;
        // SAFETY: fills a local variable.
        let ended = unsafe { libc::waitpid(-1, &mut status, 0) };
        if ended == child.id() as libc::pid_t {
            return Ok(status);
        }
        if ended < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return Err(io::Error::last_os_error());
        }
    }
}
