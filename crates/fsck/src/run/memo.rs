//! Runs whose result is known: a checker does the same on the same disk.
//!
//! Most corruptions are repaired to one of a few disks, on which the second run says the same. Now and
//! then a remembered run is made again: a checker that answers differently is reported.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{DiskDelta, Outcome};

/// Runs that are remembered; then all are forgotten, so that memory is bounded.
const ENTRIES_MAX: usize = 4096;
/// Runs with a larger result are not remembered.
const OUTPUT_MAX: usize = 16 << 10;
/// Every so many hits the run is made again.
const AGAIN_EVERY: u64 = 64;

/// The command (as a number) and the disk.
type Key = (u8, u128);

/// Remembers runs of one checker on changes of one disk.
#[derive(Default)]
pub(crate) struct Memo {
    known: Mutex<HashMap<Key, (Outcome, DiskDelta)>>,
    hits: AtomicU64,
}

impl Memo {
    /// The result of a run, if it is known; `check_again` says whether to make it once more.
    pub(crate) fn get(&self, key: Key) -> Option<((Outcome, DiskDelta), bool)> {
        let known =
            self.known.lock().unwrap_or_else(|error| error.into_inner()).get(&key).cloned()?;
        let hits = self.hits.fetch_add(1, Ordering::Relaxed);
        Some((known, hits % AGAIN_EVERY == AGAIN_EVERY - 1))
    }

    /// Remembers a run.
    pub(crate) fn put(&self, key: Key, outcome: &Outcome, disk: &DiskDelta) {
        if outcome.output.len() > OUTPUT_MAX {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(|error| error.into_inner());
        if known.len() >= ENTRIES_MAX {
            known.clear();
        }
        known.insert(key, (outcome.clone(), disk.clone()));
    }
}
