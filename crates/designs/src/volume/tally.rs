//! A number that many threads add to.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of parts. More threads than this share some of them.
const PARTS: usize = 16;

/// The sum of parts. A thread always adds to the same one, which has a cache line of its own: one that
/// all threads write would go from core to core at every step.
#[derive(Debug, Default)]
pub(super) struct Tally {
    parts: [Part; PARTS],
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Part(AtomicU64);

/// Number of threads that have added to any tally.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static PART: usize = THREADS.fetch_add(1, Ordering::Relaxed) % PARTS;
}

impl Tally {
    pub(super) fn add(&self, number: u64) {
        self.own().fetch_add(number, Ordering::Relaxed);
    }

    /// Whether nothing was added. Reads the parts of others only if this thread has added nothing
    /// yet.
    pub(super) fn is_zero(&self) -> bool {
        self.own().load(Ordering::Relaxed) == 0 && self.sum() == 0
    }

    pub(super) fn sum(&self) -> u64 {
        self.parts.iter().map(|part| part.0.load(Ordering::Relaxed)).sum()
    }

    fn own(&self) -> &AtomicU64 {
        &self.parts[PART.with(|part| *part)].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_with_more_threads_than_parts() {
        let tally = Tally::default();
        assert!(tally.is_zero());
        std::thread::scope(|scope| {
            for thread in 0..3 * PARTS as u64 {
                let tally = &tally;
                scope.spawn(move || (0..100).for_each(|_| tally.add(thread)));
            }
        });
        let threads = 3 * PARTS as u64;
        assert!(!tally.is_zero());
        assert_eq!(tally.sum(), 100 * threads * (threads - 1) / 2);
    }
}
