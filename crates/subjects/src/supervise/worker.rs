//! [`Worker`]: the side of the process that runs the campaign.

#![allow(unsafe_code, reason = "shares memory; every block says why it is sound")]

use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fathom_core::{Activity, Journal, Supervisor};
use rustix::mm::{MapFlags, ProtFlags, mmap};

use super::board::{
    ABOUT_BYTES, GUEST_LANE_BYTES, LANE_BYTES, LANES_MAX, PAGE, STOP_INTERRUPTED, lane, lane_at,
    word,
};
use super::process::{STOPPING, signal_set};

/// A lane that had more than this gives its memory back when it is cleared.
const KEPT_BYTES: u64 = 8 << 20;

/// A part of the board, mapped for as long as the process lives.
struct Mapping {
    start: NonNull<u8>,
    bytes: u64,
    /// Somebody knows where its pages are: it never gives them back.
    stays: bool,
}

// SAFETY: the memory stays mapped until the process ends. Words are atomics; the bytes of records
// are written by the one thread that owns the lane, under its lock.
unsafe impl Send for Mapping {}
// SAFETY: see above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(memory: &OwnedFd, at: u64, bytes: u64) -> io::Result<Mapping> {
        // SAFETY: a new mapping at a place of the kernel's choice; nobody else knows of it.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                bytes as usize,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                memory,
                at,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped nowhere"))?;
        Ok(Mapping { start, bytes, stays: false })
    }

    /// Memory in a guest that stays where it is, and the numbers of its pages.
    fn pinned(bytes: u64) -> io::Result<(Mapping, Vec<u64>)> {
        // A file, so that its pages stay what they are when this process is killed and its guest lives on.
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("/dev/shm/.fathom-board-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let file = std::fs::File::options().read(true).write(true).create_new(true).open(name)?;
        file.set_len(bytes)?;
        // SAFETY: a new mapping at a place of the kernel's choice; nobody else knows of it. Shared, so
        // that a process that is started meanwhile does not make us write to a copy.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes as usize,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE | libc::MAP_LOCKED,
                file.as_raw_fd(),
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped nowhere"))?;
        let mapping = Mapping { start, bytes, stays: true };
        let pages = mapping.page_numbers()?;
        Ok((mapping, pages))
    }

    /// The number of the page behind every page of the mapping (proc_pid_pagemap(5)).
    fn page_numbers(&self) -> io::Result<Vec<u64>> {
        const PRESENT: u64 = 1 << 63;
        const NUMBER: u64 = (1 << 55) - 1;
        let mut entries = vec![0; (self.bytes / PAGE * 8) as usize];
        let at = self.start.as_ptr() as u64 / PAGE * 8;
        std::fs::File::open("/proc/self/pagemap")?.read_exact_at(&mut entries, at)?;
        let entries = entries.chunks_exact(8).filter_map(|entry| entry.try_into().ok());
        let numbers: Vec<u64> = entries.map(u64::from_ne_bytes).collect();
        match numbers.iter().all(|entry| entry & PRESENT != 0 && entry & NUMBER != 0) {
            true => Ok(numbers.into_iter().map(|entry| entry & NUMBER).collect()),
            false => Err(io::Error::other("the kernel does not say where memory is")),
        }
    }

    fn word(&self, index: u64) -> &AtomicU64 {
        assert!(index * 8 < PAGE, "words are in the first page");
        // SAFETY: the page is mapped for the life of the process and aligned; all sides access its
        // words as atomics (or through the file, which is the same as another process).
        unsafe { self.start.cast::<AtomicU64>().add(index as usize).as_ref() }
    }

    /// Copies bytes to a place behind the first page.
    fn write(&self, at: u64, bytes: &[u8]) {
        let end = at + bytes.len() as u64;
        assert!(at >= PAGE && end <= self.bytes, "inside of the mapping");
        // SAFETY: the range is inside of the mapping, which no reference covers; one thread writes.
        unsafe {
            let to = self.start.as_ptr().add(at as usize);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }

    /// Gives the memory behind the first page back.
    fn give_back(&self) {
        if self.stays {
            return;
        }
        // SAFETY: the range is a mapping of shared memory of ours, behind which nobody looks: its
        // records were just declared void.
        unsafe {
            let from = self.start.as_ptr().add(PAGE as usize);
            libc::madvise(from.cast(), (self.bytes - PAGE) as usize, libc::MADV_REMOVE);
        }
    }
}

/// A process that is supervised.
pub struct Worker {
    memory: Source,
    head: Mapping,
}

/// Where lanes come from.
enum Source {
    /// The memfd that the supervisor made.
    Shared(OwnedFd),
    /// Memory of a guest: the file in which the supervisor reads where it is.
    Guest(Mutex<std::fs::File>),
}

impl Source {
    /// The memory of a lane.
    fn lane(&self, index: u64) -> io::Result<Mapping> {
        match self {
            Source::Shared(memory) => Mapping::new(memory, lane_at(index, LANE_BYTES), LANE_BYTES),
            Source::Guest(table) => {
                let (mapping, pages) = Mapping::pinned(GUEST_LANE_BYTES)?;
                let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
                publish(&mut table, &pages)?;
                Ok(mapping)
            }
        }
    }
}

/// Appends the numbers of pages to the table, on the host.
fn publish(table: &mut std::fs::File, pages: &[u64]) -> io::Result<()> {
    let bytes: Vec<u8> = pages.iter().flat_map(|page| page.to_ne_bytes()).collect();
    table.write_all(&bytes)?;
    table.sync_all()
}

impl Worker {
    /// Takes the board over from the supervisor, who left it under this number, and listens to the
    /// signals that ask for an end. To be called once, before there are other threads.
    ///
    /// # Errors
    /// If there is no board.
    pub fn attach(number: RawFd) -> io::Result<Arc<Worker>> {
        let is_board = std::fs::read_link(format!("/proc/self/fd/{number}"))
            .is_ok_and(|path| path.to_string_lossy().contains("fathom-board"));
        if !is_board {
            return Err(io::Error::other(format!(
                "descriptor {number} is no board of a supervisor"
            )));
        }
        // SAFETY: the descriptor is ours (the supervisor made it for us), and this is its only owner.
        let memory = unsafe { OwnedFd::from_raw_fd(number) };
        rustix::io::fcntl_setfd(&memory, rustix::io::FdFlags::CLOEXEC)?;
        let head = Mapping::new(&memory, 0, PAGE + ABOUT_BYTES)?;
        let worker = Arc::new(Worker { memory: Source::Shared(memory), head });
        // SAFETY: the name is a constant with its NUL.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"fathom".as_ptr()) };
        // If memory is short, it is the worker that the kernel should end. More is always allowed.
        let _ = std::fs::write("/proc/self/oom_score_adj", "500");
        worker.listen()?;
        Ok(worker)
    }

    /// Makes a board in this guest's memory, which the supervisor outside reads through the file that
    /// is that memory: `table` is where it finds out which pages. To be called once.
    ///
    /// # Errors
    /// If this is no guest, or its kernel does not say where memory is.
    pub fn in_guest(table: &Path) -> io::Result<Arc<Worker>> {
        let (head, pages) = Mapping::pinned(PAGE + ABOUT_BYTES)?;
        let mut table = std::fs::File::options().create(true).append(true).open(table)?;
        publish(&mut table, &pages)?;
        // If memory is short, it is the worker that the kernel should end.
        let _ = std::fs::write("/proc/self/oom_score_adj", "500");
        Ok(Arc::new(Worker { memory: Source::Guest(Mutex::new(table)), head }))
    }

    /// Whether somebody interrupted the campaign; that its time is over is no interruption.
    pub fn is_interrupted(&self) -> bool {
        self.head.word(word::STOP).load(Ordering::Relaxed) == STOP_INTERRUPTED
    }

    /// What time has passed outside; `None` if this is no guest.
    pub fn elapsed_outside(&self) -> Option<Duration> {
        let ms = self.head.word(word::ELAPSED_MS).load(Ordering::Relaxed);
        matches!(self.memory, Source::Guest(_)).then(|| Duration::from_millis(ms))
    }

    /// Says for how long the campaign may go on, on the clock outside of this guest.
    pub fn limit_outside(&self, budget: Option<Duration>) {
        let ms = budget.map_or(0, |budget| budget.as_millis().max(1) as u64);
        self.head.word(word::BUDGET_MS).store(ms, Ordering::Relaxed);
    }

    /// A thread that waits for signals: they are blocked everywhere else (the supervisor saw to
    /// that), so that no call of the subject is ever interrupted by one.
    fn listen(self: &Arc<Self>) -> io::Result<()> {
        let worker = Arc::clone(self);
        let thread = std::thread::Builder::new().name("signals".to_owned());
        thread.spawn(move || {
            let signals = signal_set(&STOPPING);
            loop {
                let mut got = 0;
                // SAFETY: the set is initialised and the number is a local variable.
                if unsafe { libc::sigwait(&signals, &mut got) } == 0 {
                    worker.head.word(word::STOP).store(1, Ordering::Relaxed);
                }
            }
        })?;
        Ok(())
    }

    /// Says what a finding must know of the campaign; JSON.
    pub fn describe(&self, about: &[u8]) {
        if about.len() as u64 <= ABOUT_BYTES {
            self.head.word(word::ABOUT_LEN).store(0, Ordering::Release);
            self.head.write(PAGE, about);
            self.head.word(word::ABOUT_LEN).store(about.len() as u64, Ordering::Release);
        }
    }

    /// Says how long one call of the subject may take, and when the campaign should be over, counted
    /// from now on.
    pub fn limit(&self, deadline: Duration, end: Option<Duration>) {
        let ms = |time: Duration| time.as_millis().clamp(1, u128::from(u64::MAX)) as u64;
        self.head.word(word::DEADLINE_MS).store(ms(deadline), Ordering::Relaxed);
        self.head.word(word::END_MS).store(end.map_or(0, ms), Ordering::Relaxed);
    }

    /// A finding was written.
    pub fn found(&self) {
        self.head.word(word::FINDINGS).fetch_add(1, Ordering::Relaxed);
    }

    /// How many findings were written.
    pub fn findings(&self) -> u64 {
        self.head.word(word::FINDINGS).load(Ordering::Relaxed)
    }

    /// The results have been told.
    pub fn told(&self) {
        self.head.word(word::TOLD).store(1, Ordering::Relaxed);
    }

    fn lane(&self, subject: usize) -> io::Result<Lane> {
        let index = self.head.word(word::LANES).load(Ordering::Relaxed);
        if index >= LANES_MAX {
            return Err(io::Error::other("too many threads"));
        }
        let mapping = self.memory.lane(index)?;
        mapping.word(lane::SUBJECT).store(subject as u64, Ordering::Relaxed);
        // SAFETY: takes and changes nothing.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) } as u64;
        mapping.word(lane::THREAD).store(thread, Ordering::Relaxed);
        self.head.word(word::LANES).store(index + 1, Ordering::Release);
        Ok(Lane { mapping, ends: Mutex::default() })
    }
}

/// Threads that begin at the same time take lanes one after the other.
static TAKING: Mutex<()> = Mutex::new(());

impl Supervisor for Worker {
    fn journal(&self, subject: usize) -> Arc<dyn Journal> {
        let _taking = TAKING.lock().unwrap_or_else(PoisonError::into_inner);
        match self.lane(subject) {
            Ok(lane) => Arc::new(lane),
            // Nothing is read along then; the campaign itself does not need it.
            Err(_) => Arc::new(Unread),
        }
    }

    fn wants_the_end(&self) -> bool {
        self.head.word(word::STOP).load(Ordering::Relaxed) != 0
    }
}

/// A journal that nobody reads.
struct Unread;

impl Journal for Unread {
    fn clear(&self) {}
    fn truncate(&self, _: usize) {}
    fn append(&self, _: &[u8]) {}
    fn begin(&self, _: Activity) {}
    fn end(&self) {}
}

/// The journal of one thread.
struct Lane {
    mapping: Mapping,
    /// Where each record ends.
    ends: Mutex<Vec<u64>>,
}

impl Lane {
    fn set(&self, index: u64, value: u64, order: Ordering) {
        self.mapping.word(index).store(value, order);
    }
}

impl Journal for Lane {
    fn clear(&self) {
        self.truncate(0);
    }

    fn truncate(&self, records: usize) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let before = ends.last().copied().unwrap_or(0);
        let dropped = records.saturating_sub(ends.len());
        ends.truncate(records);
        let bytes = ends.last().copied().unwrap_or(0);
        self.set(lane::BYTES, bytes, Ordering::Release);
        self.set(lane::RECORDS, ends.len() as u64, Ordering::Relaxed);
        self.set(lane::DROPPED, dropped as u64, Ordering::Relaxed);
        if bytes == 0 && before > KEPT_BYTES {
            self.mapping.give_back();
        }
    }

    fn append(&self, record: &[u8]) {
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let at = ends.last().copied().unwrap_or(0);
        let end = at + 4 + record.len() as u64;
        let room = self.mapping.bytes - PAGE;
        let dropped = self.mapping.word(lane::DROPPED);
        if end > room || dropped.load(Ordering::Relaxed) > 0 {
            dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.mapping.write(PAGE + at, &(record.len() as u32).to_ne_bytes());
        self.mapping.write(PAGE + at + 4, record);
        ends.push(end);
        self.set(lane::BYTES, end, Ordering::Release);
        self.set(lane::RECORDS, ends.len() as u64, Ordering::Relaxed);
    }

    fn begin(&self, activity: Activity) {
        let beat = self.mapping.word(lane::BEAT);
        beat.store(beat.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        if activity == Activity::Operation {
            let begun = self.mapping.word(lane::OPERATIONS);
            begun.store(begun.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        self.set(lane::ACTIVITY, activity as u64, Ordering::Release);
    }

    fn end(&self) {
        self.set(lane::ACTIVITY, Activity::Idle as u64, Ordering::Release);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        self.end();
    }
}

/// A board for the present process alone: for tests and measurements.
///
/// # Errors
/// If there is no memory for it.
pub fn alone() -> io::Result<(super::Board, Arc<Worker>)> {
    use std::os::fd::AsFd;
    let board = super::Board::create()?;
    let memory = board.as_fd().try_clone_to_owned()?;
    let head = Mapping::new(&memory, 0, PAGE + ABOUT_BYTES)?;
    Ok((board, Arc::new(Worker { memory: Source::Shared(memory), head })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_process_writes_the_other_reads() {
        let (board, worker) = alone().unwrap();
        worker.describe(b"{}");
        worker.limit(Duration::from_secs(2), None);
        assert_eq!(
            (board.about(), board.deadline()),
            (b"{}".to_vec(), Some(Duration::from_secs(2)))
        );
        let journal = worker.journal(3);
        for record in ["one", "two", "three"] {
            journal.append(record.as_bytes());
        }
        journal.begin(Activity::Operation);
        let lanes = board.lanes();
        assert_eq!((lanes.len(), lanes[0].activity, lanes[0].subject), (1, Activity::Operation, 3));
        assert_eq!(lanes[0].thread, rustix::thread::gettid().as_raw_nonzero().get() as u32);
        assert_eq!(board.records(0), [&b"one"[..], b"two", b"three"]);
        journal.truncate(1);
        journal.append(b"four");
        assert_eq!(board.records(0), [&b"one"[..], b"four"]);
        journal.end();
        journal.clear();
        assert!(board.records(0).is_empty());
        assert_eq!(board.lanes()[0].activity, Activity::Idle);
        assert!(!worker.wants_the_end());
        board.ask_to_stop();
        assert!(worker.wants_the_end() && board.is_stopping());
        worker.found();
        assert_eq!(board.findings(), 1);
    }

    #[test]
    fn a_full_lane_counts_what_it_drops_and_gives_its_memory_back() {
        let (board, worker) = alone().unwrap();
        let journal = worker.journal(0);
        let record = vec![7; 16 << 20];
        for _ in 0..17 {
            journal.append(&record);
        }
        assert_eq!((board.records(0).len(), board.lanes()[0].dropped), (15, 2));
        // What comes after a record that is missing would be a wrong trace.
        journal.append(b"small");
        assert_eq!((board.records(0).len(), board.lanes()[0].dropped), (15, 3));
        journal.truncate(16);
        assert_eq!((board.records(0).len(), board.lanes()[0].dropped), (15, 1));
        journal.clear();
        let blocks = rustix::fs::fstat(&board).unwrap().st_blocks;
        assert!(blocks < 4096, "{blocks} blocks of 512 bytes are still there");
        journal.append(b"again");
        assert_eq!(board.records(0), [b"again"]);
    }

    #[test]
    #[ignore = "a measurement: cargo test --release -p fathom-subjects -- --ignored cost_of_a_record --nocapture"]
    fn cost_of_a_record() {
        let (_board, worker) = alone().unwrap();
        let journal = worker.journal(0);
        let op = fathom_core::Op::Open {
            slot: 3,
            path: "d0/d1/f0".into(),
            flags: fathom_core::flags::OpenFlags::O_CREAT,
            mode: fathom_core::Mode(0o644),
        };
        let mut record = Vec::new();
        let rounds = 1_000_000;
        let began = std::time::Instant::now();
        for round in 0..rounds {
            if round % 10_000 == 0 {
                journal.clear();
            }
            record.clear();
            op.pack(&mut record);
            journal.append(&record);
            journal.begin(Activity::Operation);
            journal.end();
        }
        println!("{} ns per record", began.elapsed().as_nanos() / rounds);
        let began = std::time::Instant::now();
        for round in 0..rounds {
            if round % 10_000 == 0 {
                journal.clear();
            }
            journal.append(&record);
            journal.begin(Activity::Operation);
            journal.end();
        }
        println!("{} ns of them without encoding", began.elapsed().as_nanos() / rounds);
    }
}
