//! The tracer that needs no privilege: ptrace(2), with a seccomp filter so that the program stops only
//! at calls on files.
//!
//! Which file system a call concerns is found out at the stop, through `/proc`. What it cannot see:
//! io_uring (refused, so that programs fall back to calls), calls of 32-bit programs, and what another
//! thread changes between the stop and the call.

mod aio;
mod filter;
mod resolve;
mod tracee;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::{Result, TraceError};
use crate::layout::{Call, SLOTS_MAX, SlotKind, Source, calls, index_of_nr};
use crate::sample::{AT_FDCWD, Raw, Sample, Samples, Touch, encode, is_restart};
use crate::signals::SignalGuard;
use crate::spawn::{Orphans, spawn};
use crate::target::Target;
use crate::traced::{Ended, Traced, ended};
use resolve::{Last, touch_cwd, touch_fd, touch_path};
use tracee::{Mounts, Tracee};

/// Marks the stops at the end of a call (ptrace(2), PTRACE_O_TRACESYSGOOD).
const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;
/// The architecture of a 64-bit call, `AUDIT_ARCH_X86_64`.
const ARCH_X86_64: u32 = 0xc000_003e;

const LIMITS: [&str; 3] = [
    "io_uring is refused to the program (EPERM), because its operations would not be seen",
    "calls of 32-bit programs are not counted",
    "a path is resolved just before the call: what other threads change in between is not seen",
];

/// Runs a command and counts its calls.
pub fn run(argv: &[OsString], targets: &[Target], budget: Option<Duration>) -> Result<Traced> {
    let program = filter::program();
    let header =
        libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let waiting = spawn(argv, Orphans::Traced, || install(&header))?;
    seize(waiting.pid)?;
    let mut started = waiting.go()?;
    let mut tracer = Tracer::new(started.pid, targets);
    let caught = SignalGuard::new();
    let timer = budget.map(|budget| Timer::new(started.pid, budget));
    tracer.until_all_ended(&caught)?;
    drop(timer);
    if let Some(failure) = started.failure() {
        return Err(failure);
    }
    let mut limits: Vec<String> = LIMITS.map(str::to_owned).to_vec();
    if tracer.foreign > 0 {
        limits.push(format!("{} calls of 32-bit programs were seen", tracer.foreign));
    }
    let unfetched = tracer.pending.unfetched();
    if unfetched > 0 {
        limits.push(format!(
            "{unfetched} operations of io_submit are not counted: no call fetched their completion"
        ));
    }
    Ok(Traced {
        samples: tracer.samples,
        tracer: "ptrace".to_owned(),
        limits,
        ended: tracer.ended,
        lost: 0,
        guessed: 0,
    })
}

/// Installs the seccomp filter, in the child between fork and exec.
fn install(header: &libc::sock_fprog) -> io::Result<()> {
    // SAFETY: the filter outlives the call; only integers otherwise.
    unsafe {
        let install = || {
            let mode = libc::SECCOMP_SET_MODE_FILTER;
            libc::syscall(libc::SYS_seccomp, mode, 0, std::ptr::from_ref(header))
        };
        // With CAP_SYS_ADMIN there is no need to take setuid programs their effect.
        if install() != 0 {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            if install() != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(())
}

fn seize(pid: i32) -> Result<()> {
    let options = libc::PTRACE_O_TRACESECCOMP
        | libc::PTRACE_O_TRACESYSGOOD
        | libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC
        | libc::PTRACE_O_EXITKILL;
    // SAFETY: integers only.
    if unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, options) } != 0 {
        return Err(TraceError::last("cannot trace the command (ptrace)"));
    }
    Ok(())
}

/// Asks a process to end when the time is over, unless it is dropped before.
struct Timer {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Timer {
    fn new(pid: i32, budget: Duration) -> Timer {
        let (stop, stopped) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            if stopped.recv_timeout(budget) == Err(RecvTimeoutError::Timeout) {
                ask_to_end(pid);
            }
        });
        Timer { stop, thread: Some(thread) }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        // It may have fired already; then nobody listens.
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn ask_to_end(pid: i32) {
    // SAFETY: integers only.
    unsafe { libc::kill(pid, libc::SIGTERM) };
}

/// A call that has begun.
#[derive(Debug)]
struct PendingCall {
    call: u16,
    slots: [u32; SLOTS_MAX],
    touch: Touch,
    args: [u64; 6],
}

struct Tracer {
    root: i32,
    begun: HashMap<i32, PendingCall>,
    mounts: Mounts,
    samples: Samples,
    ended: Option<Ended>,
    foreign: u64,
    pending: aio::Pending,
}

impl Tracer {
    fn new(root: i32, targets: &[Target]) -> Tracer {
        Tracer {
            root,
            begun: HashMap::new(),
            mounts: Mounts::new(targets),
            samples: Samples::default(),
            ended: None,
            foreign: 0,
            pending: aio::Pending::default(),
        }
    }

    fn until_all_ended(&mut self, caught: &SignalGuard) -> Result<()> {
        loop {
            let mut status = 0;
            // Not for children of other threads, who wait for them themselves.
            let options = libc::__WALL | libc::__WNOTHREAD;
            // SAFETY: `status` is a local integer.
            let tid = unsafe { libc::waitpid(-1, &raw mut status, options) };
            if tid < 0 {
                match io::Error::last_os_error().raw_os_error() {
                    Some(libc::ECHILD) => return Ok(()),
                    Some(libc::EINTR) => {
                        // An interrupt from the terminal has reached it already.
                        if caught.take() == Some(libc::SIGTERM) {
                            ask_to_end(self.root);
                        }
                        continue;
                    }
                    _ => return Err(TraceError::last("cannot wait for the command")),
                }
            }
            if libc::WIFSTOPPED(status) {
                self.stopped(tid, status);
            } else {
                self.begun.remove(&tid);
                if tid == self.root {
                    self.ended = Some(ended(status));
                }
            }
        }
    }

    fn stopped(&mut self, tid: i32, status: i32) {
        let (signal, event) = (libc::WSTOPSIG(status), status >> 16);
        match event {
            libc::PTRACE_EVENT_SECCOMP => self.begin(tid),
            libc::PTRACE_EVENT_EXEC => self.executed(tid),
            libc::PTRACE_EVENT_STOP if signal != libc::SIGTRAP => {
                // Job control stopped it; it stays stopped.
                resume(libc::PTRACE_LISTEN, tid, 0);
                return;
            }
            0 if signal == SYSCALL_STOP => self.end(tid),
            _ => {}
        }
        let request =
            if self.begun.contains_key(&tid) { libc::PTRACE_SYSCALL } else { libc::PTRACE_CONT };
        let delivered = if event == 0 && signal != SYSCALL_STOP { signal } else { 0 };
        resume(request, tid, delivered);
    }

    /// Notes that a thread has executed a program. It may be another one than the first, whose
    /// number it takes over.
    fn executed(&mut self, tid: i32) {
        let mut former: libc::c_ulong = 0;
        // SAFETY: the kernel writes one long.
        unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut former) };
        if let Some(begun) = self.begun.remove(&(former as i32)) {
            self.begun.insert(tid, begun);
        }
    }

    fn begin(&mut self, tid: i32) {
        let Some(info) = syscall_info(tid) else {
            return;
        };
        // SAFETY: at a stop of seccomp the kernel fills this member of the union.
        let (nr, args) = unsafe { (info.u.seccomp.nr, info.u.seccomp.args) };
        if info.arch != ARCH_X86_64 {
            self.foreign += 1;
            return;
        }
        let Some(call) = index_of_nr(nr) else {
            return;
        };
        let tracee = Tracee { tid };
        let details = &calls()[usize::from(call)];
        if is_anonymous(details, &args) {
            return;
        }
        if details.name == "io_submit" {
            self.submit(tracee, &args);
        }
        let (slots, touch) = self.read(tracee, details, &args);
        self.begun.insert(tid, PendingCall { call, slots, touch, args });
    }

    fn end(&mut self, tid: i32) {
        let (Some(begun), Some(info)) = (self.begun.remove(&tid), syscall_info(tid)) else {
            return;
        };
        // SAFETY: at the end of a call the kernel fills this member of the union.
        let result = unsafe { info.u.exit.sval };
        if is_restart(result) {
            return;
        }
        let details = &calls()[usize::from(begun.call)];
        let mut touch = begun.touch;
        if details.opens && result >= 0 {
            touch = touch_fd(Tracee { tid }, &mut self.mounts, result as i32);
        }
        if changes_mounts(details) && result >= 0 {
            self.mounts.changed();
            // A new mount is a call on the file system that is there now.
            let (_, after) = self.read(Tracee { tid }, details, &begun.args);
            touch = either(touch, after);
        }
        if touch != Touch::Outside {
            self.samples.add(Sample::new(begun.call, touch, begun.slots, result), 1);
        }
        match details.base {
            "io_submit" => self.settle(Tracee { tid }, &begun.args, result),
            "io_getevents" => {
                let process = Tracee { tid }.process();
                for (block, result) in aio::completions(Tracee { tid }, &begun.args, result) {
                    self.complete(process, block, result);
                }
            }
            _ => {}
        }
    }

    /// Notes the blocks of io_submit, which begins, as the calls that they stand for.
    fn submit(&mut self, tracee: Tracee, args: &[u64; 6]) {
        let process = tracee.process();
        for address in aio::addresses(tracee, args) {
            let Some((call, args)) = aio::block(tracee, address) else { continue };
            let (slots, touch) = self.read(tracee, &calls()[usize::from(call)], &args);
            self.pending.add(process, address, aio::Submitted { call, slots, touch });
        }
    }

    /// Forgets the blocks that io_submit, which has ended, did not take; an error is that of the
    /// first.
    fn settle(&mut self, tracee: Tracee, args: &[u64; 6], result: i64) {
        let process = tracee.process();
        let taken = usize::try_from(result).unwrap_or(0);
        for (index, address) in aio::addresses(tracee, args).into_iter().enumerate().skip(taken) {
            if index == 0 && result < 0 && aio::is_context(tracee, args[0]) {
                self.complete(process, address, result);
            } else {
                self.pending.take(process, address);
            }
        }
    }

    fn complete(&mut self, process: i32, block: u64, result: i64) {
        let Some(aio::Submitted { call, slots, touch }) = self.pending.take(process, block) else {
            return;
        };
        if touch != Touch::Outside {
            self.samples.add(Sample::new(call, touch, slots, result), 1);
        }
    }

    /// Reads the codes of the arguments, and which file systems they concern.
    fn read(&mut self, tracee: Tracee, call: &Call, args: &[u64; 6]) -> ([u32; SLOTS_MAX], Touch) {
        let mut slots = [0; SLOTS_MAX];
        let mut operands = Operands { dirfd: AT_FDCWD, paths: 0, touch: None };
        for (slot, code) in call.slots.iter().zip(&mut slots) {
            let value = match slot.source {
                Source::Register(register) => Some(args[usize::from(register)]),
                Source::Field { register, offset, bytes } => {
                    field(tracee, args[usize::from(register)], offset, bytes)
                }
            };
            let Some(value) = value else {
                *code = encode(slot.kind, Raw::Unknown);
                continue;
            };
            *code = self.operand(tracee, call, args, slot.kind, value, &mut operands);
        }
        if call.name == "close_range" {
            for fd in tracee.fds(args[0] as u32, args[1] as u32) {
                operands.add(touch_fd(tracee, &mut self.mounts, fd as i32));
            }
            operands.touch.get_or_insert(Touch::Outside);
        }
        if call.here {
            operands.add(touch_cwd(tracee, &mut self.mounts));
        }
        let none = if call.global { Touch::Inside } else { Touch::Nothing };
        (slots, operands.touch.unwrap_or(none))
    }

    fn operand(
        &mut self,
        tracee: Tracee,
        call: &Call,
        args: &[u64; 6],
        kind: SlotKind,
        value: u64,
        operands: &mut Operands,
    ) -> u32 {
        match kind {
            SlotKind::Fd => {
                let touch = touch_fd(tracee, &mut self.mounts, value as i32);
                operands.add(touch);
                encode(kind, Raw::Fd(touch != Touch::Nothing))
            }
            SlotKind::FdNumber => encode(kind, Raw::Fd(tracee.has_fd(value as i32))),
            SlotKind::DirFd => {
                operands.dirfd = value as i32;
                match value as i32 {
                    AT_FDCWD => encode(kind, Raw::Number(value)),
                    fd => encode(kind, Raw::Fd(tracee.has_fd(fd))),
                }
            }
            SlotKind::Path | SlotKind::PathOrText => {
                let dirfd = std::mem::replace(&mut operands.dirfd, AT_FDCWD);
                let last = last_component(tracee, call, args, operands.paths);
                operands.paths += 1;
                let text = if value == 0 { Some(Vec::new()) } else { tracee.text(value) };
                let Some(text) = text else {
                    operands.add(Touch::Nothing);
                    return encode(kind, Raw::Unreadable);
                };
                if kind == SlotKind::PathOrText && !text.starts_with(b"/") {
                    return encode(kind, Raw::Text((value != 0).then_some(&text)));
                }
                // A null path is the descriptor itself where it is allowed (utimensat(2)).
                operands.add(if value == 0 && dirfd == AT_FDCWD {
                    Touch::Nothing
                } else {
                    touch_path(tracee, &mut self.mounts, dirfd, &text, last)
                });
                encode(kind, Raw::Text((value != 0).then_some(&text)))
            }
            SlotKind::Mapping => {
                let device = tracee.mapped_device(value);
                let watched = device.is_some_and(|device| self.mounts.watches(&device));
                operands.add(if watched { Touch::Inside } else { Touch::Outside });
                encode(kind, Raw::Number(value))
            }
            _ => encode_plain(tracee, kind, value),
        }
    }
}

/// The operands of a call that were read so far.
struct Operands {
    dirfd: i32,
    paths: u8,
    touch: Option<Touch>,
}

impl Operands {
    fn add(&mut self, touch: Touch) {
        self.touch = Some(self.touch.map_or(touch, |before| either(before, touch)));
    }
}

/// Combines two operands: one inside is enough; a bad one matters only if there is no other.
fn either(a: Touch, b: Touch) -> Touch {
    let order = [Touch::Inside, Touch::Unresolved, Touch::Outside];
    order.into_iter().find(|touch| *touch == a || *touch == b).unwrap_or(Touch::Nothing)
}

fn encode_plain(tracee: Tracee, kind: SlotKind, value: u64) -> u32 {
    match kind {
        SlotKind::Text | SlotKind::XattrName if value == 0 => encode(kind, Raw::Text(None)),
        SlotKind::Text | SlotKind::XattrName => match tracee.text(value) {
            Some(text) => encode(kind, Raw::Text(Some(&text))),
            None => encode(kind, Raw::Unreadable),
        },
        SlotKind::Offset if value != 0 => match field(tracee, value, 0, 8) {
            Some(offset) => encode(kind, Raw::Offset(offset as i64)),
            None => encode(kind, Raw::Unreadable),
        },
        _ => encode(kind, Raw::Number(value)),
    }
}

fn field(tracee: Tracee, address: u64, offset: u8, bytes: u8) -> Option<u64> {
    let mut buffer = [0; 8];
    let bytes = usize::from(bytes);
    let read = tracee.read(address.wrapping_add(offset.into()), &mut buffer[..bytes]);
    (address != 0 && read == bytes).then(|| u64::from_le_bytes(buffer))
}

/// Flags of openat2(2) that keep a call below its base: RESOLVE_NO_XDEV, RESOLVE_BENEATH,
/// RESOLVE_IN_ROOT.
const RESOLVE_CONFINED: u64 = 0x01 | 0x08 | 0x10;
const RESOLVE_NO_SYMLINKS: u64 = 0x04;
const O_NOFOLLOW: u64 = 0o400_000;
const O_CREAT_EXCL: u64 = 0o300;

fn last_component(tracee: Tracee, call: &Call, args: &[u64; 6], path: u8) -> Last {
    let (mut flags, mut resolve) = (0, 0);
    match call.name {
        "open" => flags = args[1],
        "openat" => flags = args[2],
        "openat2" => {
            flags = field(tracee, args[2], 0, 8).unwrap_or(0);
            resolve = field(tracee, args[2], 16, 8).unwrap_or(0);
        }
        _ => {}
    }
    let toggled =
        call.follow.toggle.is_some_and(|(reg, mask)| args[usize::from(reg)] as u32 & mask != 0);
    let refused = flags & O_NOFOLLOW != 0
        || flags & O_CREAT_EXCL == O_CREAT_EXCL
        || resolve & RESOLVE_NO_SYMLINKS != 0;
    Last {
        follow: call.follow.by_default != toggled && !refused,
        parent: path >= call.follow.parent_from,
        confined: resolve & RESOLVE_CONFINED != 0,
    }
}

/// Whether a call maps memory without a file, which concerns no file system.
fn is_anonymous(call: &Call, args: &[u64; 6]) -> bool {
    call.name == "mmap" && args[3] & libc::MAP_ANONYMOUS as u64 != 0
}

fn changes_mounts(call: &Call) -> bool {
    matches!(call.name, "mount" | "umount2" | "move_mount" | "pivot_root")
}

fn syscall_info(tid: i32) -> Option<libc::ptrace_syscall_info> {
    // SAFETY: a plain structure for which all zeroes are valid, and its true size.
    unsafe {
        let mut info: libc::ptrace_syscall_info = std::mem::zeroed();
        let size = size_of::<libc::ptrace_syscall_info>();
        let got = libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, tid, size, &raw mut info);
        (got > 0).then_some(info)
    }
}

/// Resumes a thread. One that has just been killed cannot be resumed; its end will be reported.
fn resume(request: libc::c_uint, tid: i32, signal: i32) {
    // SAFETY: integers only.
    unsafe { libc::ptrace(request, tid, 0, signal) };
}
