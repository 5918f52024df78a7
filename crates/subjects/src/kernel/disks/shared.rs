//! Memory that two processes share: the disk, and what it was told.

#![allow(unsafe_code, reason = "maps memory; every block says why it is sound")]

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use rustix::fs::{FallocateFlags, MemfdFlags, SeekFrom, fallocate, ftruncate, memfd_create, seek};

/// A memfd and a mapping of all of it.
pub(super) struct SharedMemory {
    file: OwnedFd,
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process, not to a thread.
unsafe impl Send for SharedMemory {}

impl SharedMemory {
    /// Memory of so many bytes, all zeros; only what is touched takes space.
    pub(super) fn new(name: &str, len: usize) -> io::Result<SharedMemory> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC)?;
        ftruncate(&file, len as u64)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses disturbs nothing.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("page zero"))?;
        Ok(SharedMemory { file, start, len })
    }

    /// The memfd.
    pub(super) fn file(&self) -> &OwnedFd {
        &self.file
    }

    /// How many bytes there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Where the memory is.
    pub(super) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// The bytes of a range, which nobody changes now.
    pub(super) fn bytes(&self, at: usize, len: usize) -> Option<&[u8]> {
        let end = at.checked_add(len)?;
        // SAFETY: the range lies in the mapping, which lives as long as `self`; whoever shares the
        // memory writes only while a file system is mounted, and then nobody here reads it.
        (end <= self.len).then(|| unsafe { std::slice::from_raw_parts(self.start().add(at), len) })
    }

    /// The parts that take memory, in order; the rest are zeros that nobody has touched.
    pub(super) fn touched(&self) -> io::Result<Vec<Range<usize>>> {
        let mut parts = Vec::new();
        let mut at = 0;
        loop {
            let start = match seek(&self.file, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(rustix::io::Errno::NXIO) => return Ok(parts),
                Err(errno) => return Err(errno.into()),
            };
            at = seek(&self.file, SeekFrom::Hole(start))?;
            parts.push(start as usize..at as usize);
        }
    }

    /// Makes a part zeros again that take no memory.
    pub(super) fn forget(&mut self, part: Range<usize>) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(&self.file, flags, part.start as u64, part.len() as u64)?)
    }

    /// Changes bytes, which nobody else uses now.
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        assert!(
            at.checked_add(bytes.len()).is_some_and(|end| end <= self.len),
            "inside the memory"
        );
        // SAFETY: the range lies in the mapping; nothing is mounted from it while we write.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.start().add(at), bytes.len()) };
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nobody has a reference into it any more.
        unsafe { libc::munmap(self.start().cast(), self.len) };
    }
}

/// What a disk was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Told {
    Write = 1,
    Erase = 2,
    Flush = 3,
}

/// One request that arrived.
#[repr(C)]
pub(super) struct Request {
    /// A number of [`Told`].
    pub(super) told: AtomicU32,
    /// Whether it was answered.
    pub(super) answered: AtomicU32,
    pub(super) at: AtomicU64,
    pub(super) len: AtomicU64,
    /// Where its data is in [`Journal`]'s data.
    pub(super) data_at: AtomicU64,
    /// How many requests had arrived when it was answered.
    pub(super) answered_at: AtomicU64,
}

/// The head of the shared log.
#[repr(C)]
pub(super) struct Head {
    /// Requests so far.
    pub(super) requests: AtomicU64,
    /// Bytes of data so far.
    pub(super) data_bytes: AtomicU64,
    /// The log was too small: nothing can be said any more.
    pub(super) overflow: AtomicU32,
    /// Answers to writes are held until nothing has arrived for so long.
    pub(super) hold_nanos: AtomicU32,
}

/// Requests that fit.
const REQUESTS_MAX: usize = 1 << 17;

/// Bytes of data that fit.
const DATA_MAX: usize = 512 << 20;

/// What is read is noted in units of so many bytes.
pub(super) const UNIT_BYTES: usize = 4096;

/// Units of which is known whether they were read: disks of up to 512 MiB.
const UNITS_MAX: usize = 1 << 17;

/// A unit was read as the disk was given, or written whole before anybody read it.
const READ: u8 = 1;
const WRITTEN: u8 = 2;

/// Offset of the units.
const UNITS_AT: usize =
    (size_of::<Head>() + REQUESTS_MAX * size_of::<Request>()).next_multiple_of(4096);

/// Offset of the data.
const DATA_AT: usize = UNITS_AT + UNITS_MAX;

/// Everything that a disk was told, in memory that the server writes and the recorder reads.
pub(super) struct Journal {
    memory: SharedMemory,
}

impl Journal {
    pub(super) fn new() -> io::Result<Journal> {
        Ok(Journal { memory: SharedMemory::new("fathom-disk-log", DATA_AT + DATA_MAX)? })
    }

    pub(super) fn head(&self) -> &Head {
        // SAFETY: the mapping is larger than the head, aligned to a page, and zeros are a head.
        unsafe { &*self.memory.start().cast::<Head>() }
    }

    fn request_at(&self, index: usize) -> &Request {
        assert!(index < REQUESTS_MAX, "inside the memory");
        // SAFETY: the index is inside the array after the head; zeros are a request; all fields are
        // atomic.
        unsafe { &*self.memory.start().add(size_of::<Head>()).cast::<Request>().add(index) }
    }

    /// A request that has arrived.
    pub(super) fn request(&self, index: usize) -> &Request {
        self.request_at(index)
    }

    /// The data of a write.
    pub(super) fn data(&self, request: &Request) -> &[u8] {
        let at = DATA_AT + request.data_at.load(Ordering::Acquire) as usize;
        let len = request.len.load(Ordering::Acquire) as usize;
        self.memory.bytes(at, len).unwrap_or_default()
    }

    fn unit(&self, unit: usize) -> Option<&AtomicU8> {
        // SAFETY: the unit is inside the array between the requests and the data.
        (unit < UNITS_MAX)
            .then(|| unsafe { &*self.memory.start().add(UNITS_AT + unit).cast::<AtomicU8>() })
    }

    fn note(&self, units: Range<usize>, what: u8) {
        for unit in units.map_while(|unit| self.unit(unit)) {
            // Only the one thread that serves changes it, and nobody while nothing is mounted.
            if unit.load(Ordering::Relaxed) == 0 {
                unit.store(what, Ordering::Release);
            }
        }
    }

    /// Notes that bytes were read.
    pub(super) fn note_read(&self, at: usize, len: usize) {
        self.note(at / UNIT_BYTES..(at + len).div_ceil(UNIT_BYTES), READ);
    }

    /// Notes that bytes were overwritten: units that are wholly in them tell nothing of the disk any more.
    pub(super) fn note_written(&self, at: usize, len: usize) {
        self.note(at.div_ceil(UNIT_BYTES)..(at + len) / UNIT_BYTES, WRITTEN);
    }

    /// The units of a disk of so many bytes that were read as the disk was given, in ascending order;
    /// `None` if it is larger than what is noted.
    pub(super) fn units_read(&self, disk_bytes: usize) -> Option<Vec<u32>> {
        let units = disk_bytes.div_ceil(UNIT_BYTES);
        let is_read = |unit: &u32| {
            let noted = self.unit(*unit as usize);
            noted.is_some_and(|noted| noted.load(Ordering::Acquire) == READ)
        };
        (units <= UNITS_MAX).then(|| (0..units as u32).filter(is_read).collect())
    }

    /// Forgets everything about a disk of so many bytes.
    pub(super) fn clear(&self, disk_bytes: usize) {
        let units = disk_bytes.div_ceil(UNIT_BYTES);
        for unit in (0..units).map_while(|unit| self.unit(unit)) {
            unit.store(0, Ordering::Relaxed);
        }
        let head = self.head();
        head.data_bytes.store(0, Ordering::Release);
        head.overflow.store(0, Ordering::Release);
        head.requests.store(0, Ordering::Release);
    }

    /// How many requests have arrived.
    pub(super) fn len(&self) -> usize {
        self.head().requests.load(Ordering::Acquire) as usize
    }

    /// Notes a request; `None` if there is no room. Only for the one thread that serves.
    pub(super) fn push(&self, told: Told, at: u64, len: u64, data: &[u8]) -> Option<usize> {
        let head = self.head();
        let index = head.requests.load(Ordering::Relaxed) as usize;
        let data_at = head.data_bytes.load(Ordering::Relaxed) as usize;
        if index >= REQUESTS_MAX || data_at + data.len() > DATA_MAX {
            head.overflow.store(1, Ordering::Release);
            return None;
        }
        // SAFETY: the place is inside the mapping and belongs to the one who serves; the reader does
        // not look there before the count of requests says so.
        unsafe {
            let to = self.memory.start().add(DATA_AT + data_at);
            ptr::copy_nonoverlapping(data.as_ptr(), to, data.len());
        }
        let request = self.request_at(index);
        request.told.store(told as u32, Ordering::Relaxed);
        request.answered.store(0, Ordering::Relaxed);
        request.at.store(at, Ordering::Relaxed);
        request.len.store(len, Ordering::Relaxed);
        request.data_at.store(data_at as u64, Ordering::Relaxed);
        head.data_bytes.store((data_at + data.len()) as u64, Ordering::Release);
        head.requests.store(index as u64 + 1, Ordering::Release);
        Some(index)
    }

    /// Notes that a request is answered now.
    pub(super) fn answer(&self, index: usize) {
        let now = self.head().requests.load(Ordering::Relaxed);
        let request = self.request_at(index);
        request.answered_at.store(now, Ordering::Relaxed);
        request.answered.store(1, Ordering::Release);
    }
}
