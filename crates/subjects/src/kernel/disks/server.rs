//! The process that is the disk: it serves one file by FUSE and notes everything that it is told.
//!
//! A process of its own, since a request to a server in a process that is being killed would never be
//! answered. One thread, since two would note requests in another order than they came. Answers to
//! writes are held until nothing has arrived for a while: a file system that flushes without having
//! waited for its writes shows it by a flush that arrives while they are held.
//!
//! The process was forked from one with many threads: it allocates nothing and takes no lock.

#![allow(unsafe_code, reason = "a process of its own; every block says why it is sound")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering;

use super::shared::{Journal, SharedMemory, Told};
use super::wire::{self, Answer};

/// Answers that can be held at the same time; more are not held.
const HELD_MAX: usize = 256;

/// After the death of the process that records, the disk is still served for so long, so that
/// unmounting is orderly.
const AFTERWARDS_MILLIS: i32 = 3000;

/// Most descriptors that a server keeps beside the one that tells it that we are gone.
const KEPT_MAX: usize = 2;

/// The name of the process: see [`crate::supervise`].
pub(crate) const PROCESS_NAME: &str = "fathom-disk";

/// A running server; ends it when dropped.
pub(super) struct Server {
    process: libc::pid_t,
    /// Open as long as we live.
    _lifeline: OwnedFd,
}

/// What the server works on.
pub(super) struct Served<'a> {
    pub(super) connection: &'a OwnedFd,
    pub(super) disk: &'a SharedMemory,
    pub(super) journal: &'a Journal,
    /// Memory for one request.
    pub(super) buffer: &'a SharedMemory,
}

/// Bytes of the buffer for one request.
pub(super) const BUFFER_BYTES: usize = wire::WRITE_MAX + (64 << 10);

impl Server {
    /// Starts the server of a connection that is not mounted yet.
    pub(super) fn start(served: &Served<'_>) -> io::Result<Server> {
        let connection = served.connection.as_raw_fd();
        // SAFETY: only the child serves, and it alone uses the memory of one request.
        Server::fork(&[connection], |lifeline| unsafe { serve(served, lifeline) })
    }

    /// Starts a process that serves, with these descriptors and the end of one that closes when we are gone.
    /// It must make only system calls, on memory that is shared or its own copy.
    pub(super) fn fork(keep: &[RawFd], serve: impl FnOnce(RawFd)) -> io::Result<Server> {
        let (theirs, ours) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let mut kept = [theirs.as_raw_fd(); KEPT_MAX + 1];
        let keep = keep.get(..keep.len().min(KEPT_MAX)).unwrap_or_default();
        kept[..keep.len()].copy_from_slice(keep);
        // SAFETY: the child makes only system calls, on memory that is shared or its own copy, and
        // never returns.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: as above; nothing here is used after this.
                unsafe {
                    settle(kept);
                    serve(theirs.as_raw_fd());
                    libc::_exit(0)
                }
            }
            process => Ok(Server { process, _lifeline: ours }),
        }
    }

    /// Whether it still serves.
    pub(super) fn is_alive(&self) -> bool {
        // SAFETY: plain integers, all zeros if nothing has happened. WNOWAIT leaves the process to be
        // waited for, so that its number stays its own.
        unsafe {
            let mut about: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
            let asked = libc::waitid(libc::P_PID, self.process as u32, &raw mut about, flags);
            asked == 0 && about.si_pid() == 0
        }
    }

    /// Ends the server: whoever waits for an answer gets an error.
    #[cfg(test)]
    pub(super) fn kill(&self) {
        // SAFETY: the process is our child and was not waited for.
        unsafe { libc::kill(self.process, libc::SIGKILL) };
    }

    /// The number of the process.
    #[cfg(test)]
    pub(super) fn id(&self) -> u32 {
        self.process as u32
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SAFETY: the process is our child; a null status is allowed.
        unsafe {
            libc::kill(self.process, libc::SIGKILL);
            libc::waitpid(self.process, std::ptr::null_mut(), 0);
        }
    }
}

/// Leaves everything behind that belongs to the process that forked us: its descriptors (a file system
/// that it mounts must not be kept busy by us), its directory, its terminal.
///
/// # Safety
/// Only in a child that never returns.
unsafe fn settle(mut keep: [RawFd; KEPT_MAX + 1]) {
    keep.sort_unstable();
    // SAFETY: closes descriptors that nobody uses any more; the rest takes numbers and constants.
    unsafe {
        let close = |from: libc::c_uint, to: libc::c_uint| {
            if from < to {
                libc::syscall(libc::SYS_close_range, from, to - 1, 0);
            }
        };
        let mut from = 0;
        for fd in keep.map(|fd| fd as libc::c_uint) {
            close(from, fd);
            from = fd + 1;
        }
        close(from, libc::c_uint::MAX);
        libc::chdir(c"/".as_ptr());
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, c"fathom-disk".as_ptr());
    }
}

/// An answer that is held back.
#[derive(Clone, Copy)]
struct Held {
    unique: u64,
    /// Its request in the journal.
    index: usize,
    /// What a write answers; `None` for a discard.
    written: Option<u32>,
}

struct Serving<'a> {
    served: &'a Served<'a>,
    fd: RawFd,
    held: [Held; HELD_MAX],
    held_len: usize,
}

/// What to do next.
enum Next {
    Request,
    Release,
    End,
}

/// Serves until the connection ends.
///
/// # Safety
/// Only in the process that alone has the other end of the memory of one request.
unsafe fn serve(served: &Served<'_>, lifeline: RawFd) {
    let none = Held { unique: 0, index: 0, written: None };
    let fd = served.connection.as_raw_fd();
    let mut serving = Serving { served, fd, held: [none; HELD_MAX], held_len: 0 };
    let mut orphaned = false;
    loop {
        match serving.wait(lifeline, &mut orphaned) {
            Next::Release => serving.release(),
            Next::End => return,
            Next::Request => {
                let (start, len) = (served.buffer.start(), served.buffer.len());
                // SAFETY: the buffer is ours and as long as we say.
                let count = unsafe { libc::read(fd, start.cast(), len) };
                if count < 0 {
                    match io::Error::last_os_error().raw_os_error() {
                        Some(libc::EINTR | libc::EAGAIN | libc::ENOENT) => continue,
                        _ => return,
                    }
                }
                // SAFETY: the kernel has filled in so many bytes; nobody else uses the buffer.
                let request = unsafe { std::slice::from_raw_parts(start, count as usize) };
                serving.dispatch(request);
            }
        }
    }
}

impl Serving<'_> {
    /// Waits for a request, for the end of the hold, or for the end of the one who records.
    fn wait(&self, lifeline: RawFd, orphaned: &mut bool) -> Next {
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut sources = [poll(self.fd), poll(if *orphaned { -1 } else { lifeline })];
        let hold = self.served.journal.head().hold_nanos.load(Ordering::Relaxed);
        let hold = libc::timespec { tv_sec: 0, tv_nsec: hold.into() };
        let grace = libc::timespec { tv_sec: (AFTERWARDS_MILLIS / 1000).into(), tv_nsec: 0 };
        let timeout: *const libc::timespec = match (self.held_len, *orphaned) {
            (0, false) => std::ptr::null(),
            (0, true) => &raw const grace,
            _ => &raw const hold,
        };
        // SAFETY: two structures of ours and a time or nothing.
        let ready = unsafe { libc::ppoll(sources.as_mut_ptr(), 2, timeout, std::ptr::null()) };
        if sources[0].revents & libc::POLLIN != 0 {
            return Next::Request;
        }
        if sources[0].revents != 0 {
            return Next::End;
        }
        if sources[1].revents != 0 {
            *orphaned = true;
        }
        match ready {
            0 if self.held_len == 0 => Next::End,
            _ => Next::Release,
        }
    }

    /// Answers what was held.
    fn release(&mut self) {
        for index in 0..self.held_len {
            self.answer_held(self.held[index]);
        }
        self.held_len = 0;
    }

    fn answer_held(&self, held: Held) {
        self.served.journal.answer(held.index);
        let mut answer = Answer::new(held.unique, 0);
        if let Some(written) = held.written {
            answer.u32(written).u32(0);
        }
        self.send(&mut answer);
    }

    fn hold(&mut self, held: Held) {
        if self.held_len == HELD_MAX {
            return self.answer_held(held);
        }
        self.held[self.held_len] = held;
        self.held_len += 1;
    }

    fn send(&self, answer: &mut Answer) {
        answer.finish(0);
        // SAFETY: so many bytes are there. An error means that nobody waits any more.
        unsafe { libc::write(self.fd, answer.bytes.as_ptr().cast(), answer.len) };
    }

    fn dispatch(&mut self, request: &[u8]) {
        let (operation, unique) = (wire::u32_at(request, 4), wire::u64_at(request, 8));
        let node = wire::u64_at(request, 16);
        let body = request.get(wire::IN_HEADER..).unwrap_or_default();
        let disk_bytes = self.served.disk.len() as u64;
        let mut answer = Answer::new(unique, 0);
        match operation {
            wire::INIT => answer.init(wire::u32_at(body, 12)),
            wire::LOOKUP if body.starts_with(wire::FILE_NAME) => answer.entry(disk_bytes),
            wire::LOOKUP => answer = Answer::new(unique, libc::ENOENT),
            wire::GETATTR | wire::SETATTR => answer.attr(node, disk_bytes),
            wire::OPEN => answer.opened(),
            wire::STATFS => answer.statfs(disk_bytes),
            wire::RELEASE | wire::FLUSH | wire::DESTROY => {}
            wire::FORGET | wire::BATCH_FORGET | wire::INTERRUPT => return,
            wire::READ => return self.read(unique, body),
            wire::WRITE => return self.write(unique, body),
            wire::FALLOCATE => return self.fallocate(unique, body),
            wire::FSYNC => {
                if let Some(index) = self.served.journal.push(Told::Flush, 0, 0, &[]) {
                    self.served.journal.answer(index);
                }
            }
            _ => answer = Answer::new(unique, libc::ENOSYS),
        }
        self.send(&mut answer);
    }

    fn refuse(&self, unique: u64, errno: i32) {
        self.send(&mut Answer::new(unique, errno));
    }

    fn read(&self, unique: u64, body: &[u8]) {
        let at = wire::u64_at(body, 8).min(self.served.disk.len() as u64) as usize;
        let len = (wire::u32_at(body, 16) as usize).min(self.served.disk.len() - at);
        self.served.journal.note_read(at, len);
        let mut answer = Answer::new(unique, 0);
        answer.finish(len);
        // SAFETY: both pieces are there: the header, and `len` bytes of the disk from `at` on.
        unsafe {
            let pieces = [
                libc::iovec { iov_base: answer.bytes.as_mut_ptr().cast(), iov_len: answer.len },
                libc::iovec { iov_base: self.served.disk.start().add(at).cast(), iov_len: len },
            ];
            libc::writev(self.fd, pieces.as_ptr(), 2);
        }
    }

    fn write(&mut self, unique: u64, body: &[u8]) {
        let (at, size) = (wire::u64_at(body, 8), wire::u32_at(body, 16));
        let data = body.get(wire::WRITE_HEADER..).unwrap_or_default();
        let data = data.get(..size as usize).unwrap_or(data);
        let end = at.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > self.served.disk.len() as u64) {
            return self.refuse(unique, libc::ENOSPC);
        }
        let Some(index) = self.served.journal.push(Told::Write, at, data.len() as u64, data) else {
            return self.refuse(unique, libc::EIO);
        };
        self.served.journal.note_written(at as usize, data.len());
        // SAFETY: the range lies in the disk, and we are the only ones who change it while something
        // is mounted from it.
        unsafe {
            let to = self.served.disk.start().add(at as usize);
            std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
        }
        self.hold(Held { unique, index, written: Some(data.len() as u32) });
    }

    /// A discard or a request for zeros: both leave zeros.
    fn fallocate(&mut self, unique: u64, body: &[u8]) {
        let (at, len) = (wire::u64_at(body, 8), wire::u64_at(body, 16));
        let mode = wire::u32_at(body, 24) as i32;
        if mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) == 0 {
            return self.refuse(unique, libc::EOPNOTSUPP);
        }
        if at.checked_add(len).is_none_or(|end| end > self.served.disk.len() as u64) {
            return self.refuse(unique, libc::ENOSPC);
        }
        let Some(index) = self.served.journal.push(Told::Erase, at, len, &[]) else {
            return self.refuse(unique, libc::EIO);
        };
        self.served.journal.note_written(at as usize, len as usize);
        // SAFETY: as for a write.
        unsafe {
            std::ptr::write_bytes(self.served.disk.start().add(at as usize), 0, len as usize)
        };
        self.hold(Held { unique, index, written: None });
    }
}
