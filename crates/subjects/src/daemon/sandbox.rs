//! [`DaemonSandbox`]: where a daemon lives, so that nothing of it can get out or stay behind.
//!
//! The daemon runs in a process namespace of its own, whose first process ends with us: then the
//! kernel ends every process in it (pid_namespaces(7)), also those that daemonised. Mount point and
//! storage are in a `tmpfs` that is mounted in a mount namespace of its own, which lives as long as
//! the daemon or our descriptor of it does. So there is no mount and no file that others could see.

#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, MemfdFlags, Mode, OFlags, StatxFlags, memfd_create, openat, statx};
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::SubjectError;

/// Directories over which our `tmpfs` may be mounted, in the eyes of the daemon only; the first one
/// that is there and that the command does not mention.
const PLACES: [&str; 4] = ["/mnt", "/media", "/srv", "/opt"];

/// How long a daemon may take to mount, and to end after it was unmounted, in milliseconds: 20 s unless
/// [`set_limits`] says otherwise.
static START_WITHIN: AtomicU64 = AtomicU64::new(20_000);
static STOP_WITHIN: AtomicU64 = AtomicU64::new(20_000);

/// Sets how long daemons of this process may take to mount, and to end after they were unmounted.
pub fn set_limits(start: Duration, stop: Duration) {
    START_WITHIN.store(start.as_millis() as u64, Ordering::Relaxed);
    STOP_WITHIN.store(stop.as_millis() as u64, Ordering::Relaxed);
}

fn limit(of: &AtomicU64) -> Duration {
    Duration::from_millis(of.load(Ordering::Relaxed))
}

/// Waits a millisecond at a time, and counts only time in which we were running: while a machine is
/// suspended, or has no time for us, it has none for the daemon either.
struct Patience {
    left: Duration,
    last_look: Instant,
}

impl Patience {
    /// A longer pause between two looks is not the daemon's.
    const PAUSE_MAX: Duration = Duration::from_millis(100);

    fn new(limit: Duration) -> Patience {
        Patience { left: limit, last_look: Instant::now() }
    }

    /// Whether it has ended.
    fn has_ended(&self) -> bool {
        self.left.is_zero()
    }

    fn wait(&mut self) {
        std::thread::sleep(Duration::from_millis(1));
        self.look(Instant::now());
    }

    fn look(&mut self, now: Instant) {
        let pause = now.duration_since(self.last_look).min(Self::PAUSE_MAX);
        self.left = self.left.saturating_sub(pause);
        self.last_look = now;
    }
}

/// How long a daemon may take to end after its connection has.
const ENDS_WITHIN: Duration = Duration::from_millis(500);

/// Exit code of our own first process if the sandbox could not be made; what a shell uses for "cannot
/// execute" is the nearest.
const NO_ROOM: i32 = 126;

/// The number under which the first process keeps the pipe that tells of our end, the first behind the
/// standard streams.
const GONE: RawFd = 3;

/// See the module documentation.
pub(super) struct DaemonSandbox {
    place: &'static str,
    /// What is executed by a shell, with our directories in it.
    command: CString,
    /// The mount namespace, from the first start on.
    mounts: Option<OwnedFd>,
    /// The process that ends everything; shared with who wants to do so in an emergency.
    first: Arc<Mutex<Option<First>>>,
    /// Whether somebody has ended it in an emergency.
    killed: Arc<AtomicBool>,
    /// Set when the daemon has ended: what it had printed.
    said: Option<String>,
}

/// The first process of the namespace.
struct First {
    process: libc::pid_t,
    handle: OwnedFd,
    output: File,
    /// Its end tells the process that we are gone.
    _alive: OwnedFd,
}

impl DaemonSandbox {
    /// A sandbox for `command`, in which `{mnt}` is the mount point (added at the end if it is not
    /// there) and `{state}` a directory that survives restarts.
    pub(super) fn new(command: &str) -> Result<DaemonSandbox, SubjectError> {
        let is_usable =
            |place: &&&str| std::path::Path::new(place).is_dir() && !command.contains(**place);
        let place = PLACES.iter().find(is_usable).ok_or_else(|| {
            SubjectError::Daemon(format!("the command mentions all of {}", PLACES.join(", ")))
        })?;
        let whole = if command.contains("{mnt}") {
            command.to_owned()
        } else {
            format!("{command} {{mnt}}")
        };
        let whole = whole.replace("{mnt}", &format!("{place}/mnt"));
        let whole = whole.replace("{state}", &format!("{place}/state"));
        let command = CString::new(whole)
            .map_err(|_| SubjectError::Daemon("the command contains a NUL byte".to_owned()))?;
        Ok(DaemonSandbox {
            place,
            command,
            mounts: None,
            first: Arc::default(),
            killed: Arc::default(),
            said: None,
        })
    }

    /// Starts the daemon and waits until it has mounted; returns the root of its file system.
    pub(super) fn start(&mut self) -> Result<OwnedFd, SubjectError> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |error: io::Error| SubjectError::Daemon(format!("cannot {what}: {error}"))
        };
        let first = self.spawn().map_err(failed("start a process namespace"))?;
        let process = first.process;
        self.killed.store(false, Ordering::Relaxed);
        self.said = None;
        *self.first.lock().unwrap_or_else(PoisonError::into_inner) = Some(first);
        let root = match self.wait_for_mount(process) {
            Ok(root) => root,
            Err(error) => {
                self.kill();
                return Err(error);
            }
        };
        if self.mounts.is_none() {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let mounts = openat(CWD, format!("/proc/{process}/ns/mnt"), flags, Mode::empty());
            self.mounts = Some(mounts.map_err(|e| failed("keep the mount namespace")(e.into()))?);
        }
        Ok(root)
    }

    /// Fails if the daemon has ended by itself and nobody has noticed so far: one that is about to be
    /// stopped would take its death with it.
    pub(super) fn refuse_unnoticed_death(&mut self) -> Result<(), SubjectError> {
        let is_known = self.first.lock().unwrap_or_else(PoisonError::into_inner).is_none();
        if is_known || !self.has_ended_by_itself() {
            return Ok(());
        }
        let said = self.said.as_deref().unwrap_or_default();
        Err(SubjectError::Daemon(format!("it ended by itself while nothing was asked of it{said}")))
    }

    /// Unmounts and waits for the daemon to end. Nothing of ours may be open in the file system.
    pub(super) fn stop(&mut self) -> Result<(), SubjectError> {
        let asked = match self.first.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
            Some(first) => pidfd_send_signal(&first.handle, Signal::TERM),
            None => return Ok(()),
        };
        let mut patience = Patience::new(limit(&STOP_WITHIN));
        while asked.is_ok() && !patience.has_ended() {
            if self.has_ended() {
                return Ok(());
            }
            patience.wait();
        }
        let output = self.output();
        self.kill();
        let seconds = limit(&STOP_WITHIN).as_secs();
        let message = format!(
            "it did not end within {seconds} s after it was unmounted (--stop-within gives it more){output}"
        );
        Err(SubjectError::Daemon(message))
    }

    /// Forgets what the daemon stored; it must not run.
    pub(super) fn forget_state(&mut self) {
        self.mounts = None;
    }

    /// The root of the mounted file system.
    pub(super) fn root(&self) -> Result<OwnedFd, SubjectError> {
        let process = {
            let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            first.as_ref().map(|first| first.process)
        };
        let root = process.and_then(|process| self.mounted_root(process));
        root.ok_or_else(|| SubjectError::Daemon("its mount is gone".to_owned()))
    }

    /// Whether other users than root may use the mount: without the option `allow_other` the kernel
    /// lets only the owner in (fuse_allow_current_process in fs/fuse/dir.c).
    pub(super) fn is_open_to_others(&self) -> bool {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(process) = first.as_ref().map(|first| first.process) else { return false };
        let mounts = std::fs::read_to_string(format!("/proc/{process}/mountinfo"));
        let point = format!(" {}/mnt ", self.place);
        mounts.unwrap_or_default().lines().any(|line| {
            line.contains(&point) && line.split([' ', ',']).any(|word| word == "allow_other")
        })
    }

    /// What is mounted at the mount point, seen through the eyes of a process of the sandbox.
    fn mounted_root(&self, process: libc::pid_t) -> Option<OwnedFd> {
        let above = format!("/proc/{process}/root{}", self.place);
        mounted_root(&PathBuf::from(format!("{above}/mnt")), &above)
    }

    /// Ends the daemon at once, from any thread.
    pub(super) fn killer(&self) -> impl Fn() + Send + 'static {
        let (first, killed) = (Arc::clone(&self.first), Arc::clone(&self.killed));
        move || {
            killed.store(true, Ordering::Relaxed);
            if let Some(first) = first.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
                // It may have ended meanwhile: then there is nothing to do.
                let _ = pidfd_send_signal(&first.handle, Signal::KILL);
            }
        }
    }

    fn kill(&mut self) {
        self.killer()();
        if let Some(first) = self.first.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // SAFETY: the process is our child and nobody else waits for it.
            unsafe { libc::waitpid(first.process, ptr::null_mut(), 0) };
        }
    }

    /// Whether all processes of the daemon have ended.
    fn has_ended(&mut self) -> bool {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = first.as_mut() else { return true };
        let process = running.process;
        // SAFETY: the process is our child and nobody else waits for it.
        let ended = unsafe { libc::waitpid(process, ptr::null_mut(), libc::WNOHANG) } == process;
        if ended {
            self.said = Some(read_output(&mut running.output));
            *first = None;
        }
        ended
    }

    /// Whether all processes of the daemon have ended although nobody had asked for it.
    pub(super) fn has_ended_by_itself(&mut self) -> bool {
        !self.killed.load(Ordering::Relaxed) && self.has_ended()
    }

    /// If every process of the daemon has ended by itself: what it printed last.
    pub(super) fn last_words(&mut self) -> Option<String> {
        // Its end may be a moment later than that of its connection.
        let deadline = Instant::now() + ENDS_WITHIN;
        while !self.has_ended() {
            if Instant::now() > deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let said = self.said.as_deref().unwrap_or_default();
        Some(format!("it ended{said}"))
    }

    /// What the daemon has printed, ready to be appended to a message.
    fn output(&self) -> String {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(first) = first.as_mut() else { return String::new() };
        read_output(&mut first.output)
    }

    /// Looks through the eyes of the first process until something is mounted.
    fn wait_for_mount(&mut self, process: libc::pid_t) -> Result<OwnedFd, SubjectError> {
        let mut patience = Patience::new(limit(&START_WITHIN));
        let mut output = {
            let first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            let first = first.as_ref().expect("it has just been started");
            first.output.try_clone().map_err(SubjectError::io("share", "the output"))?
        };
        loop {
            if let Some(root) = self.mounted_root(process) {
                return Ok(root);
            }
            if self.has_ended() {
                let said = read_output(&mut output);
                return Err(SubjectError::Daemon(format!("it ended before it had mounted{said}")));
            }
            if patience.has_ended() {
                let (seconds, said) = (limit(&START_WITHIN).as_secs(), read_output(&mut output));
                let processes = processes_from(process).join(", ");
                let message = format!(
                    "it had not mounted after {seconds} s (--start-within gives it more){said}; \
                     its processes: {processes}"
                );
                return Err(SubjectError::Daemon(message));
            }
            patience.wait();
        }
    }

    fn spawn(&self) -> io::Result<First> {
        let output = File::from(memfd_create("fathom-output", MemfdFlags::CLOEXEC)?);
        let null = openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let (gone, alive) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let first = FirstProcess {
            place: CString::new(self.place)?,
            mount_point: CString::new(format!("{}/mnt", self.place))?,
            state: CString::new(format!("{}/state", self.place))?,
            command: self.command.clone(),
            mounts: self.mounts.as_ref().map_or(-1, AsRawFd::as_raw_fd),
            null: null.as_raw_fd(),
            output: output.as_raw_fd(),
            gone: gone.as_raw_fd(),
        };
        // SAFETY: the child only makes async-signal-safe calls on what was prepared in `first`, and
        // never returns.
        match unsafe { copy_process(libc::CLONE_NEWPID) } {
            -1 => Err(io::Error::last_os_error()),
            0 => first.live(),
            process => {
                let pid = rustix::process::Pid::from_raw(process).expect("a child has a number");
                let handle = pidfd_open(pid, PidfdFlags::empty())?;
                Ok(First { process, handle, output, _alive: alive })
            }
        }
    }
}

impl Drop for DaemonSandbox {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read_output(output: &mut File) -> String {
    let mut text = Vec::new();
    let read = output.seek(SeekFrom::Start(0)).and_then(|_| output.read_to_end(&mut text));
    match (read, String::from_utf8_lossy(&text).trim()) {
        (Ok(_), "") => " and printed nothing".to_owned(),
        (Ok(_), text) => format!("; it printed: {text}"),
        (Err(_), _) => String::new(),
    }
}

/// A process and those that it has started, each with its name, its state and where in the kernel it waits
/// (proc(5)): what a daemon does that should have done something else by now.
fn processes_from(process: libc::pid_t) -> Vec<String> {
    let read = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
        text.trim().to_owned()
    };
    let status = read("status");
    let state = status.lines().find_map(|line| line.strip_prefix("State:")).unwrap_or("gone");
    let mut found = vec![format!("{} ({}, {})", read("comm"), state.trim(), read("wchan"))];
    let children = read(&format!("task/{process}/children"));
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    found.extend(children.flat_map(processes_from));
    found
}

/// The root of what is mounted at `path`, if it is not just a directory of `above`. Asks nothing of
/// the daemon, which might not answer.
fn mounted_root(path: &std::path::Path, above: &str) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let device = |fd: &OwnedFd| {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(fd, "", flags, StatxFlags::TYPE).ok()?;
        Some((stat.stx_dev_major, stat.stx_dev_minor))
    };
    let root = openat(CWD, path, flags, Mode::empty()).ok()?;
    let above = openat(CWD, above, flags, Mode::empty()).ok()?;
    (device(&root)? != device(&above)?).then_some(root)
}

/// What the first process needs, all of it allocated before it is born.
struct FirstProcess {
    place: CString,
    mount_point: CString,
    state: CString,
    command: CString,
    /// −1 for the first start.
    mounts: RawFd,
    null: RawFd,
    output: RawFd,
    gone: RawFd,
}

impl FirstProcess {
    /// The life of the first process: makes the sandbox, starts the daemon, and waits for all its
    /// processes. SIGTERM asks it to unmount.
    fn live(&self) -> ! {
        // SAFETY: only async-signal-safe functions (signal-safety(7)) and plain system calls, on
        // strings that live in `self` and values of this stack.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::sigprocmask(libc::SIG_BLOCK, &all, ptr::null_mut());
            libc::setsid();
            libc::prctl(libc::PR_SET_NAME, c"fathom-sandbox".as_ptr());
            libc::dup2(self.null, 0);
            libc::dup2(self.output, 1);
            libc::dup2(self.output, 2);
            self.furnish();
            // What is ours is not the daemon's; it would keep file systems busy. If the pipe has its number
            // already, this fails, and it is closed on execution as it should be.
            libc::dup3(self.gone, GONE, libc::O_CLOEXEC);
            libc::close_range(GONE as u32 + 1, u32::MAX, 0);
            let signals = libc::signalfd(-1, &all, libc::SFD_CLOEXEC);
            if signals < 0 {
                fail(c"cannot wait for signals: ");
            }
            match copy_process(0) {
                -1 => fail(c"cannot start a process: "),
                0 => self.execute(),
                _ => {}
            }
            // The working directory is the daemon's business from now on.
            libc::chdir(c"/".as_ptr());
            loop {
                reap();
                if next_signal(signals) == libc::SIGTERM
                    && libc::umount2(self.mount_point.as_ptr(), 0) != 0
                {
                    libc::umount2(self.mount_point.as_ptr(), libc::MNT_DETACH);
                }
            }
        }
    }

    /// Enters the mount namespace, or makes it.
    unsafe fn furnish(&self) {
        // SAFETY: see `live`.
        unsafe {
            if self.mounts >= 0 {
                if libc::setns(self.mounts, libc::CLONE_NEWNS) != 0 {
                    fail(c"cannot enter the mount namespace: ");
                }
                return;
            }
            let none = ptr::null();
            let private = libc::MS_REC | libc::MS_PRIVATE;
            if libc::unshare(libc::CLONE_NEWNS) != 0
                || libc::mount(none, c"/".as_ptr(), none, private, none.cast()) != 0
            {
                fail(c"cannot make a mount namespace: ");
            }
            let (tmpfs, mode) = (c"tmpfs".as_ptr(), c"mode=0755".as_ptr());
            let place = self.place.as_ptr();
            if libc::mount(tmpfs, place, tmpfs, 0, mode.cast()) != 0
                || libc::mkdir(self.mount_point.as_ptr(), 0o755) != 0
                || libc::mkdir(self.state.as_ptr(), 0o755) != 0
            {
                fail(c"cannot make a mount point: ");
            }
        }
    }

    /// Becomes the daemon.
    unsafe fn execute(&self) -> ! {
        // SAFETY: see `live`; the argument list ends with a null pointer.
        unsafe {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigprocmask(libc::SIG_SETMASK, &none, ptr::null_mut());
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
            let shell = c"/bin/sh".as_ptr();
            let arguments = [shell, c"-c".as_ptr(), self.command.as_ptr(), ptr::null()];
            libc::execv(shell, arguments.as_ptr());
            fail(c"cannot execute /bin/sh: ")
        }
    }
}

/// Makes a process with a copy of this one's memory, in new namespaces as `flags` says; returns what
/// fork(2) returns. The C library's own fork would do for neither generation: it waits for the locks of
/// the allocator, and in the first process these may be held for ever by threads that it does not have.
///
/// # Safety
///
/// The child may only make async-signal-safe calls.
unsafe fn copy_process(flags: libc::c_int) -> libc::pid_t {
    // SAFETY: without CLONE_VM the child shares no memory with us; the stack and the places for
    // identifiers may be null then (clone(2)).
    unsafe { libc::syscall(libc::SYS_clone, flags | libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t }
}

/// Waits for every process that has ended; ends if none is left.
unsafe fn reap() {
    loop {
        // SAFETY: a null status is allowed; errno is this thread's.
        unsafe {
            match libc::waitpid(-1, ptr::null_mut(), libc::WNOHANG) {
                0 => return,
                -1 if *libc::__errno_location() == libc::ECHILD => libc::_exit(0),
                _ => {}
            }
        }
    }
}

/// Waits for the next signal; ends if we are gone, and with the first process everything in its namespace.
///
/// Our end closes the pipe. The kernel could send a signal instead (PR_SET_PDEATHSIG), but does not if the
/// thread that dies acts as another user at that moment, who may not signal root.
unsafe fn next_signal(signals: RawFd) -> libc::c_int {
    // SAFETY: structures of the right types and sizes; all zeros are valid ones.
    unsafe {
        let waited = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut ends = [waited(GONE, 0), waited(signals, libc::POLLIN)];
        libc::poll(ends.as_mut_ptr(), 2, -1);
        if ends[0].revents != 0 {
            libc::_exit(0);
        }
        let mut about: libc::signalfd_siginfo = std::mem::zeroed();
        libc::read(signals, (&raw mut about).cast(), size_of_val(&about));
        about.ssi_signo as libc::c_int
    }
}

/// Says why and ends.
unsafe fn fail(what: &CStr) -> ! {
    // SAFETY: writes strings of known length; errno is this thread's.
    unsafe {
        let errno = *libc::__errno_location();
        libc::write(2, what.as_ptr().cast(), what.count_bytes());
        let digits = [100, 10, 1].map(|unit| b'0' + (errno / unit % 10) as u8);
        libc::write(2, c"errno ".as_ptr().cast(), 6);
        libc::write(2, digits.as_ptr().cast(), digits.len());
        libc::_exit(NO_ROOM)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_the_machine_is_not_the_daemons() {
        let mut patience = Patience::new(Duration::from_secs(2));
        let begin = patience.last_look;
        patience.look(begin + Duration::from_secs(60));
        assert_eq!(patience.left, Duration::from_millis(1900));
        let seconds = (1..=1900).map(|tick| Duration::from_secs(60) + Duration::from_millis(tick));
        for (tick, at) in seconds.enumerate() {
            assert!(!patience.has_ended(), "after {tick} looks");
            patience.look(begin + at);
        }
        assert!(patience.has_ended());
    }
}
