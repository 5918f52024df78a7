//! [`Board`]: what a worker is doing, in a memfd that outlives it.
//!
//! ```text
//!  page 0      words: stop, findings, lanes, length of the description, deadline, end
//!  then        the description of the campaign (JSON), up to 1 MiB
//!  then        lanes of 256 MiB: one per thread that executes operations
//!                page 0   words: bytes, records, activity, beat, thread, subject, dropped
//!                then     records: length (4 bytes), bytes
//! ```
//!
//! The file is sparse: what is not written takes no memory, so that a lane grows as it is needed and
//! yet has its bound. A record counts once `bytes` includes it, which is stored after its bytes; a
//! process that dies between two instructions leaves whole records.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fathom_core::Activity;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

/// Bytes of a page, and of the words at the start.
pub(super) const PAGE: u64 = 4096;
/// Room for the description.
pub(super) const ABOUT_BYTES: u64 = 1 << 20;
/// Room of a lane. A record of `check` takes about 20 bytes: ten million operations since the file
/// system was empty.
pub(super) const LANE_BYTES: u64 = 256 << 20;
/// Threads that can execute operations.
pub(super) const LANES_MAX: u64 = 128;

/// Somebody interrupted the campaign.
pub(super) const STOP_INTERRUPTED: u64 = 1;
/// The time of the campaign is over.
pub(super) const STOP_TIME: u64 = 2;

/// The words of the first page.
pub(super) mod word {
    pub(in super::super) const STOP: u64 = 0;
    pub(in super::super) const FINDINGS: u64 = 1;
    pub(in super::super) const LANES: u64 = 2;
    pub(in super::super) const ABOUT_LEN: u64 = 3;
    pub(in super::super) const DEADLINE_MS: u64 = 4;
    /// Milliseconds after the start of the worker; 0 if there is no end.
    pub(in super::super) const END_MS: u64 = 5;
    /// The campaign is over, the process only has to end.
    pub(in super::super) const TOLD: u64 = 6;
    /// Milliseconds that the campaign in a guest may take outside; 0 if there is no end.
    pub(in super::super) const BUDGET_MS: u64 = 7;
    /// Milliseconds that have passed outside of a guest.
    pub(in super::super) const ELAPSED_MS: u64 = 8;
}

/// The words of a lane.
pub(super) mod lane {
    pub(in super::super) const BYTES: u64 = 0;
    pub(in super::super) const RECORDS: u64 = 1;
    pub(in super::super) const ACTIVITY: u64 = 2;
    /// Grows by one whenever something begins.
    pub(in super::super) const BEAT: u64 = 3;
    pub(in super::super) const THREAD: u64 = 4;
    pub(in super::super) const SUBJECT: u64 = 5;
    /// Records for which there was no room.
    pub(in super::super) const DROPPED: u64 = 6;
    /// Operations that have begun.
    pub(in super::super) const OPERATIONS: u64 = 7;
}

/// Where a lane begins, if each takes so many bytes.
pub(super) fn lane_at(index: u64, lane_bytes: u64) -> u64 {
    PAGE + ABOUT_BYTES + index * lane_bytes
}

/// Room of a lane in a guest, whose memory is small and not sparse.
pub(super) const GUEST_LANE_BYTES: u64 = 8 << 20;

/// The supervisor's side.
#[derive(Debug)]
pub struct Board {
    memory: Memory,
    lane_bytes: u64,
}

/// Where the bytes of a board are.
#[derive(Debug)]
enum Memory {
    /// In a memfd, one after the other.
    Shared(File),
    /// In the memory of a guest, which is a file of the host: each page where the guest's kernel has
    /// put it. The worker in the guest appends the number of each page to a file.
    Guest { memory: File, table: PathBuf, pages: Mutex<Vec<u64>> },
}

impl Memory {
    /// Where the page at `at` is in the file, and how many bytes of it are left.
    fn place(&self, at: u64) -> Option<u64> {
        match self {
            Memory::Shared(_) => Some(at),
            Memory::Guest { table, pages, .. } => {
                let index = (at / PAGE) as usize;
                let mut pages = pages.lock().unwrap_or_else(PoisonError::into_inner);
                if index >= pages.len() {
                    let bytes = std::fs::read(table).unwrap_or_default();
                    let numbers = bytes.chunks_exact(8).filter_map(|word| word.try_into().ok());
                    *pages = numbers.map(u64::from_ne_bytes).collect();
                }
                pages.get(index).map(|page| page * PAGE + at % PAGE)
            }
        }
    }

    fn file(&self) -> &File {
        match self {
            Memory::Shared(file) | Memory::Guest { memory: file, .. } => file,
        }
    }

    /// Does something with every part of a range that is in one piece.
    fn pieces(
        &self,
        at: u64,
        bytes: usize,
        mut each: impl FnMut(&File, std::ops::Range<usize>, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = 0;
        while done < bytes {
            let from = at + done as u64;
            let piece = match self {
                Memory::Shared(_) => bytes - done,
                Memory::Guest { .. } => (bytes - done).min((PAGE - from % PAGE) as usize),
            };
            let place = self.place(from).ok_or_else(|| io::Error::other("not there yet"))?;
            each(self.file(), done..done + piece, place)?;
            done += piece;
        }
        Ok(())
    }

    fn read(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let count = buffer.len();
        self.pieces(at, count, |file, part, place| file.read_exact_at(&mut buffer[part], place))
    }

    fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.pieces(at, bytes.len(), |file, part, place| file.write_all_at(&bytes[part], place))
    }
}

/// What one thread of the worker is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneState {
    /// Which lane.
    pub index: u64,
    /// What it is doing.
    pub activity: Activity,
    /// Changes whenever something begins.
    pub beat: u64,
    /// The number of the thread.
    pub thread: u32,
    /// The subject on which it works.
    pub subject: usize,
    /// Records for which there was no room.
    pub dropped: u64,
}

impl Board {
    /// An empty board.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn create() -> io::Result<Board> {
        let memory = memfd_create("fathom-board", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, lane_at(LANES_MAX, LANE_BYTES))?;
        Ok(Board { memory: Memory::Shared(File::from(memory)), lane_bytes: LANE_BYTES })
    }

    /// The board of a worker in a guest: `memory` is the guest's, `table` the file to which the worker
    /// appends where its pages are. It can be read as soon as the worker has begun, and after the
    /// guest's death.
    pub fn in_guest(memory: File, table: PathBuf) -> Board {
        let memory = Memory::Guest { memory, table, pages: Mutex::default() };
        Board { memory, lane_bytes: GUEST_LANE_BYTES }
    }

    fn word(&self, at: u64, index: u64) -> u64 {
        let mut bytes = [0; 8];
        match self.memory.read(&mut bytes, at + index * 8) {
            Ok(()) => u64::from_ne_bytes(bytes),
            Err(_) => 0,
        }
    }

    fn set_word(&self, index: u64, value: u64) {
        // Memory cannot fail to take eight bytes that are there; in a guest they may not be yet.
        let _ = self.memory.write(&value.to_ne_bytes(), index * 8);
    }

    /// Asks the worker to end at the next opportunity.
    pub fn ask_to_stop(&self) {
        self.set_word(word::STOP, STOP_INTERRUPTED);
    }

    /// Tells the worker that its time is over: it ends at the next opportunity, as planned.
    pub fn end_the_time(&self) {
        self.set_word(word::STOP, STOP_TIME);
    }

    /// Tells the worker in a guest what time has passed outside.
    pub fn tell_elapsed(&self, elapsed: Duration) {
        self.set_word(word::ELAPSED_MS, elapsed.as_millis() as u64);
    }

    /// For how long the worker in a guest wants to go on, on the clock outside.
    pub fn budget(&self) -> Option<Duration> {
        Some(self.word(0, word::BUDGET_MS)).filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    /// How many operations have begun in all lanes.
    pub fn operations(&self) -> u64 {
        let lanes = 0..self.word(0, word::LANES).min(LANES_MAX);
        lanes.map(|index| self.word(lane_at(index, self.lane_bytes), lane::OPERATIONS)).sum()
    }

    /// Whether the worker was asked to end, or decided so because of a signal of its own.
    pub fn is_stopping(&self) -> bool {
        self.word(0, word::STOP) != 0
    }

    /// How many findings the worker has written.
    pub fn findings(&self) -> u64 {
        self.word(0, word::FINDINGS)
    }

    /// Whether the worker has told its results.
    pub fn is_told(&self) -> bool {
        self.word(0, word::TOLD) != 0
    }

    /// How long one call of the subject may take, if the worker has said so.
    pub fn deadline(&self) -> Option<Duration> {
        Some(self.word(0, word::DEADLINE_MS)).filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    /// When the worker should have ended, counted from its start.
    pub fn end(&self) -> Option<Duration> {
        Some(self.word(0, word::END_MS)).filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    /// What the worker said of its campaign.
    pub fn about(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.word(0, word::ABOUT_LEN).min(ABOUT_BYTES) as usize];
        match self.memory.read(&mut bytes, PAGE) {
            Ok(()) => bytes,
            Err(_) => Vec::new(),
        }
    }

    /// What every thread is doing.
    pub fn lanes(&self) -> Vec<LaneState> {
        let count = self.word(0, word::LANES).min(LANES_MAX);
        let state = |index: u64| {
            let at = lane_at(index, self.lane_bytes);
            let activity = self.word(at, lane::ACTIVITY) as usize;
            LaneState {
                index,
                activity: Activity::ALL.get(activity).copied().unwrap_or(Activity::Idle),
                beat: self.word(at, lane::BEAT),
                thread: self.word(at, lane::THREAD) as u32,
                subject: self.word(at, lane::SUBJECT) as usize,
                dropped: self.word(at, lane::DROPPED),
            }
        };
        (0..count).map(state).collect()
    }

    /// The records of a lane.
    pub fn records(&self, index: u64) -> Vec<Vec<u8>> {
        let at = lane_at(index, self.lane_bytes);
        let len = self.word(at, lane::BYTES).min(self.lane_bytes - PAGE) as usize;
        let mut bytes = vec![0; len];
        if self.memory.read(&mut bytes, at + PAGE).is_err() {
            return Vec::new();
        }
        let mut records = Vec::new();
        let mut rest = bytes.as_slice();
        while let Some((head, tail)) = rest.split_first_chunk::<4>() {
            let Some((record, tail)) = tail.split_at_checked(u32::from_ne_bytes(*head) as usize)
            else {
                break;
            };
            records.push(record.to_vec());
            rest = tail;
        }
        records
    }
}

impl AsFd for Board {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.memory.file().as_fd()
    }
}
