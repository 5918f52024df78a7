//! Executes operations on mapped memory.
//!
//! A store or load that the file system cannot serve (a hole on a full disk, a block that cannot be
//! read) raises `SIGBUS` and would kill us. So the pages are populated first by `madvise(2)` with
//! `MADV_POPULATE_WRITE` or `MADV_POPULATE_READ`, which takes the same fault path and reports
//! `EFAULT` where the access would raise the signal. That is then the outcome.
#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::os::fd::RawFd;
use std::ptr::{self, NonNull};

use fathom_core::flags::MsyncFlags;
use fathom_core::{Errno, Outcome, Pattern, Slot};

use super::guard::Refusal;
use super::{Applied, Executor, buffer_len, call};

/// A shared mapping of the pages around `[offset, offset + len)` of a file.
struct Window {
    start: NonNull<u8>,
    mapped_bytes: usize,
    /// The index of the byte at `offset` in it.
    lead_bytes: usize,
}

impl Window {
    /// Maps a file. mmap(2) needs an offset that is a multiple of the page size.
    fn map(fd: RawFd, offset: i64, len: usize, protection: i32) -> Result<Window, Errno> {
        let page = page_bytes();
        let lead_bytes = offset.rem_euclid(page);
        let mapped_bytes = len.checked_add(lead_bytes as usize).ok_or(Errno::ENOMEM)?;
        let from = offset - lead_bytes;
        // SAFETY: a new mapping at an address that the kernel chooses disturbs nothing.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), mapped_bytes, protection, libc::MAP_SHARED, fd, from)
        };
        if start == libc::MAP_FAILED {
            return Err(last_errno());
        }
        let start = NonNull::new(start.cast()).expect("mmap never returns page zero");
        Ok(Window { start, mapped_bytes, lead_bytes: lead_bytes as usize })
    }

    /// Number of bytes of the `len` at `offset` that lie inside the file.
    fn inside(fd: RawFd, offset: i64, len: usize) -> Result<usize, Errno> {
        Window::within(fd, offset, len).map(|(inside, _)| inside)
    }

    /// Number of bytes of the `len` at `offset` that lie inside the file, and inside its last page: those
    /// beyond it must not be touched.
    fn within(fd: RawFd, offset: i64, len: usize) -> Result<(usize, usize), Errno> {
        let size = call::statx(fd, c"", libc::AT_EMPTY_PATH)?.stx_size;
        let mapped = size.checked_next_multiple_of(page_bytes() as u64).unwrap_or(size);
        let until = |end: u64| end.saturating_sub(offset as u64).min(len as u64) as usize;
        Ok((until(size), until(mapped)))
    }

    /// Makes sure that the first `len` bytes from the file's offset on can be touched.
    fn populate(&self, len: usize, advice: i32) -> Result<(), Errno> {
        if len == 0 {
            return Ok(());
        }
        // SAFETY: the range lies in the mapping, and populating changes no byte of it.
        let done =
            unsafe { libc::madvise(self.start.as_ptr().cast(), self.lead_bytes + len, advice) };
        match if done == 0 { Ok(()) } else { Err(last_errno()) } {
            // New in Linux 5.14. Without it the access goes ahead unprotected.
            Err(Errno::EINVAL) => Ok(()),
            answer => answer,
        }
    }

    fn at_offset(&self) -> *mut u8 {
        // SAFETY: the lead is shorter than the mapping, or equal for an empty range.
        unsafe { self.start.as_ptr().add(self.lead_bytes) }
    }

    fn msync(&self, flags: MsyncFlags) -> Result<(), Errno> {
        // SAFETY: the range is the whole mapping.
        let done = unsafe {
            libc::msync(self.start.as_ptr().cast(), self.mapped_bytes, flags.bits() as i32)
        };
        if done == 0 { Ok(()) } else { Err(last_errno()) }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no pointer into it is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped_bytes) };
    }
}

impl Executor {
    pub(super) fn mmap_store(
        &mut self,
        slot: Slot,
        offset: i64,
        data: Pattern,
        sync: MsyncFlags,
    ) -> Applied {
        let len = buffer_len(data.len)?;
        let (fd, bytes) = (self.fd(slot), self.buffer.pattern(data));
        let store = || -> Result<u64, Errno> {
            let window = Window::map(fd, offset, len, libc::PROT_READ | libc::PROT_WRITE)?;
            let (inside, touched) = Window::within(fd, offset, len)?;
            window.populate(touched, libc::MADV_POPULATE_WRITE)?;
            // SAFETY: `touched` bytes from the offset on are inside the mapping and inside the last page
            // of the file, and nobody else shortens the file.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), window.at_offset(), touched) };
            window.msync(sync)?;
            Ok(inside as u64)
        };
        Ok(store().into())
    }

    pub(super) fn mmap_load(&mut self, slot: Slot, offset: i64, len: u64) -> Applied {
        let fd = self.fd(slot);
        let len = usize::try_from(len).map_err(|_| Refusal::TooLong { len, max: usize::MAX })?;
        let window = match Window::map(fd, offset, len, libc::PROT_READ) {
            Ok(window) => window,
            Err(errno) => return Ok(Outcome::err(errno)),
        };
        let inside = match Window::inside(fd, offset, len) {
            Ok(inside) => buffer_len(inside as u64)?,
            Err(errno) => return Ok(Outcome::err(errno)),
        };
        if let Err(errno) = window.populate(inside, libc::MADV_POPULATE_READ) {
            return Ok(Outcome::err(errno));
        }
        let to = self.buffer.slice(inside);
        // SAFETY: `inside` bytes from the offset on are inside the mapping and inside the file, and
        // nobody else shortens the file.
        unsafe { ptr::copy_nonoverlapping(window.at_offset(), to.as_mut_ptr(), inside) };
        Ok(Outcome::data(to))
    }
}

/// The size of a page, as the C library knows it from the start of the process. Whoever asks the kernel
/// (rustix does, at the first use) has to read /proc/self/auxv before Linux 6.4, which an executor that
/// acts for another user may not.
fn page_bytes() -> i64 {
    // SAFETY: takes a number only.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }
}

fn last_errno() -> Errno {
    Errno::from_io(&std::io::Error::last_os_error()).expect("a failed system call sets errno")
}
