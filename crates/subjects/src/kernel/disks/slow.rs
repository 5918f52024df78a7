//! [`SlowDisk`]: a disk in memory whose requests complete after seeded delays.
//!
//! ```text
//!  file system ──► loop device (direct I/O) ──► FUSE file ──► server process ──► memfd
//! ```
//!
//! Every request gets a delay of its own ([`DiskDelays`]), so requests that were made one after the other
//! complete in another order, and callers that wait for the disk run in another order. In a guest with a
//! virtual clock that costs no time, and is the same in every boot.
//!
//! What is written is in the memory at once, only its answer is late: nothing is cut off here, that is what
//! the recording disk is for.

#![allow(unsafe_code, reason = "a process of its own; every block says why it is sound")]

use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use fathom_core::schedule::DiskDelays;
use rustix::fs::{Mode, OFlags};

use super::recorder::connect;
use super::server::{BUFFER_BYTES, Server};
use super::shared::SharedMemory;
use super::wire::{self, Answer};
use crate::error::SubjectError;

/// Requests that can wait at the same time; more are answered at once.
const HELD_MAX: usize = 256;

/// After the death of the process that owns the disk it is still served for so long, so that unmounting is
/// orderly.
const AFTERWARDS_NANOS: u64 = 3_000_000_000;

/// A disk in memory behind a process that answers late.
pub(in crate::kernel) struct SlowDisk {
    /// Dropped first: then the server's connection ends.
    file: OwnedFd,
    _server: Server,
    control: SharedMemory,
    /// For one request: the server's.
    _buffer: SharedMemory,
}

/// What both processes know: the delays, and how many requests there were since they were set.
#[repr(C)]
struct Control {
    seed: AtomicU64,
    max_ns: AtomicU64,
    requests: AtomicU64,
}

fn control(memory: &SharedMemory) -> &Control {
    // SAFETY: the memory is a page or more, aligned to one, zeroed, and lives as long as the reference.
    unsafe { &*memory.start().cast() }
}

fn failed(what: &'static str) -> impl FnOnce(std::io::Error) -> SubjectError {
    SubjectError::io(what, "the slow disk")
}

impl SlowDisk {
    /// Serves `memory`, a file of so many bytes, without delays at first.
    pub(in crate::kernel) fn new(memory: &OwnedFd, bytes: u64) -> Result<SlowDisk, SubjectError> {
        let control_memory = SharedMemory::new("fathom-disk-delays", size_of::<Control>())
            .map_err(failed("make"))?;
        let buffer =
            SharedMemory::new("fathom-disk-buffer", BUFFER_BYTES).map_err(failed("make"))?;
        let (connection, mount) = connect().map_err(failed("mount"))?;
        let (fd, memory_fd) = (connection.as_raw_fd(), memory.as_raw_fd());
        let server = Server::fork(&[fd, memory_fd], |lifeline| {
            let control = control(&control_memory);
            let served = Served { fd, memory: memory_fd, bytes, buffer: &buffer, control };
            Serving::new(served, lifeline).run();
        });
        let server = server.map_err(failed("serve"))?;
        // Only the server has it now: when the server ends, so does the connection.
        drop(connection);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&mount, "disk", flags, Mode::empty())
            .map_err(|errno| failed("open")(errno.into()))?;
        Ok(SlowDisk { file, _server: server, control: control_memory, _buffer: buffer })
    }

    /// The disk as a file.
    pub(in crate::kernel) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// Delays the requests from now on, or no longer.
    pub(in crate::kernel) fn delay(&self, delays: Option<DiskDelays>) {
        let control = control(&self.control);
        let delays = delays.unwrap_or(DiskDelays { seed: 0, max_ns: 0 });
        control.max_ns.store(0, Ordering::SeqCst);
        control.seed.store(delays.seed, Ordering::SeqCst);
        control.requests.store(0, Ordering::SeqCst);
        control.max_ns.store(delays.max_ns, Ordering::SeqCst);
    }
}

struct Served<'a> {
    fd: RawFd,
    memory: RawFd,
    bytes: u64,
    buffer: &'a SharedMemory,
    control: &'a Control,
}

/// What is answered when a request is due.
#[derive(Clone, Copy)]
enum Late {
    Read { at: u64, len: usize },
    Written(u32),
    Done,
    Refused(i32),
}

#[derive(Clone, Copy)]
struct Held {
    unique: u64,
    due_ns: u64,
    late: Late,
}

struct Serving<'a> {
    served: Served<'a>,
    lifeline: RawFd,
    held: [Held; HELD_MAX],
    held_len: usize,
}

fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a structure of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl<'a> Serving<'a> {
    fn new(served: Served<'a>, lifeline: RawFd) -> Serving<'a> {
        let none = Held { unique: 0, due_ns: 0, late: Late::Done };
        Serving { served, lifeline, held: [none; HELD_MAX], held_len: 0 }
    }

    /// Serves until the connection ends. Allocates nothing: the process was forked from one with threads.
    fn run(&mut self) {
        let mut until = None;
        loop {
            self.answer_due();
            let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            let lifeline = if until.is_some() { -1 } else { self.lifeline };
            let mut sources = [poll(self.served.fd), poll(lifeline)];
            let first = self.held[..self.held_len].iter().map(|held| held.due_ns).min();
            let wake = first.into_iter().chain(until).min();
            let wait = wake.map(|wake| wake.saturating_sub(now_ns()));
            let wait = wait.map(|ns| libc::timespec {
                tv_sec: (ns / 1_000_000_000) as i64,
                tv_nsec: (ns % 1_000_000_000) as i64,
            });
            let timeout = wait.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            // SAFETY: two structures of ours and a time or nothing.
            unsafe { libc::ppoll(sources.as_mut_ptr(), 2, timeout, std::ptr::null()) };
            if sources[1].revents != 0 {
                until = Some(now_ns() + AFTERWARDS_NANOS);
            }
            let ended = sources[0].revents & libc::POLLIN == 0 && sources[0].revents != 0;
            if ended || until.is_some_and(|until| now_ns() >= until) {
                return;
            }
            if sources[0].revents & libc::POLLIN != 0 && !self.take() {
                return;
            }
        }
    }

    /// Takes a request. Returns whether there may be others.
    fn take(&mut self) -> bool {
        let (start, len) = (self.served.buffer.start(), self.served.buffer.len());
        // SAFETY: the buffer is ours and as long as we say.
        let count = unsafe { libc::read(self.served.fd, start.cast(), len) };
        if count < 0 {
            let error = std::io::Error::last_os_error().raw_os_error();
            return matches!(error, Some(libc::EINTR | libc::EAGAIN | libc::ENOENT));
        }
        // SAFETY: the kernel has filled in so many bytes; nobody else uses the buffer until the request is
        // dealt with.
        let request = unsafe { std::slice::from_raw_parts(start, count as usize) };
        self.dispatch(request);
        true
    }

    fn dispatch(&mut self, request: &[u8]) {
        let (operation, unique) = (wire::u32_at(request, 4), wire::u64_at(request, 8));
        let node = wire::u64_at(request, 16);
        let body = request.get(wire::IN_HEADER..).unwrap_or_default();
        let bytes = self.served.bytes;
        let mut answer = Answer::new(unique, 0);
        match operation {
            wire::INIT => answer.init(wire::u32_at(body, 12)),
            wire::LOOKUP if body.starts_with(wire::FILE_NAME) => answer.entry(bytes),
            wire::LOOKUP => answer = Answer::new(unique, libc::ENOENT),
            wire::GETATTR | wire::SETATTR => answer.attr(node, bytes),
            wire::OPEN => answer.opened(),
            wire::STATFS => answer.statfs(bytes),
            wire::RELEASE | wire::FLUSH | wire::DESTROY => {}
            wire::FORGET | wire::BATCH_FORGET | wire::INTERRUPT => return,
            wire::READ => {
                let at = wire::u64_at(body, 8).min(bytes);
                let len = u64::from(wire::u32_at(body, 16)).min(bytes - at) as usize;
                return self.hold(unique, Late::Read { at, len });
            }
            wire::WRITE => return self.hold(unique, self.write(body)),
            wire::FALLOCATE => return self.hold(unique, self.fallocate(body)),
            wire::FSYNC => return self.hold(unique, Late::Done),
            _ => answer = Answer::new(unique, libc::ENOSYS),
        }
        self.send(&mut answer);
    }

    fn write(&self, body: &[u8]) -> Late {
        let (at, size) = (wire::u64_at(body, 8), wire::u32_at(body, 16));
        let data = body.get(wire::WRITE_HEADER..).unwrap_or_default();
        let data = data.get(..size as usize).unwrap_or(data);
        if at.checked_add(data.len() as u64).is_none_or(|end| end > self.served.bytes) {
            return Late::Refused(libc::ENOSPC);
        }
        // SAFETY: so many bytes are there.
        let done = unsafe {
            libc::pwrite(self.served.memory, data.as_ptr().cast(), data.len(), at as i64)
        };
        if done == data.len() as isize { Late::Written(size) } else { Late::Refused(libc::EIO) }
    }

    /// A discard or a request for zeros: both leave zeros.
    fn fallocate(&self, body: &[u8]) -> Late {
        let (at, len) = (wire::u64_at(body, 8), wire::u64_at(body, 16));
        let mode = wire::u32_at(body, 24) as i32;
        if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) == 0 {
            return Late::Refused(libc::EOPNOTSUPP);
        }
        let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: takes numbers alone.
        let done = unsafe { libc::fallocate(self.served.memory, hole, at as i64, len as i64) };
        if done == 0 { Late::Done } else { Late::Refused(libc::EIO) }
    }

    fn hold(&mut self, unique: u64, late: Late) {
        let control = self.served.control;
        let max_ns = control.max_ns.load(Ordering::SeqCst);
        let held = Held { unique, due_ns: 0, late };
        if max_ns == 0 || self.held_len == HELD_MAX {
            return self.answer(held);
        }
        let number = control.requests.fetch_add(1, Ordering::SeqCst);
        let delays = DiskDelays { seed: control.seed.load(Ordering::SeqCst), max_ns };
        self.held[self.held_len] = Held { due_ns: now_ns() + delays.of(number), ..held };
        self.held_len += 1;
    }

    /// Answers what is due, the earliest first.
    fn answer_due(&mut self) {
        loop {
            let now = now_ns();
            let held = self.held[..self.held_len].iter().enumerate();
            let due = held.filter(|(_, held)| held.due_ns <= now);
            let Some((place, _)) = due.min_by_key(|(_, held)| (held.due_ns, held.unique)) else {
                return;
            };
            let held = self.held[place];
            self.held_len -= 1;
            self.held[place] = self.held[self.held_len];
            self.answer(held);
        }
    }

    fn answer(&self, held: Held) {
        let mut answer = Answer::new(held.unique, 0);
        match held.late {
            Late::Done => {}
            Late::Written(bytes) => _ = answer.u32(bytes).u32(0),
            Late::Refused(errno) => answer = Answer::new(held.unique, errno),
            Late::Read { at, len } => return self.send_read(held.unique, at, len),
        }
        self.send(&mut answer);
    }

    fn send_read(&self, unique: u64, at: u64, len: usize) {
        let (start, room) = (self.served.buffer.start(), self.served.buffer.len());
        let mut answer = Answer::new(unique, 0);
        // SAFETY: the buffer is ours, and whatever request was in it is dealt with.
        let read =
            unsafe { libc::pread(self.served.memory, start.cast(), len.min(room), at as i64) };
        if read < 0 {
            return self.send(&mut Answer::new(unique, libc::EIO));
        }
        answer.finish(read as usize);
        let pieces = [
            libc::iovec { iov_base: answer.bytes.as_mut_ptr().cast(), iov_len: answer.len },
            libc::iovec { iov_base: start.cast(), iov_len: read as usize },
        ];
        // SAFETY: both pieces are there. An error means that nobody waits any more.
        unsafe { libc::writev(self.served.fd, pieces.as_ptr(), 2) };
    }

    fn send(&self, answer: &mut Answer) {
        answer.finish(0);
        // SAFETY: so many bytes are there. An error means that nobody waits any more.
        unsafe { libc::write(self.served.fd, answer.bytes.as_ptr().cast(), answer.len) };
    }
}
