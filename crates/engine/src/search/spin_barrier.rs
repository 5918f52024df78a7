//! A barrier at which threads wait for each other.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

/// Number of times that a thread looks whether all have come before it goes to sleep: some 30 µs, a
/// little longer than it takes to wake a thread.
const SPINS: u32 = 700;

/// A barrier for phases that are often shorter than falling asleep and waking up
/// ([`std::sync::Barrier`] always sleeps).
pub(super) struct SpinBarrier {
    threads: usize,
    arrived: AtomicUsize,
    /// Number of times that all have met.
    met: AtomicUsize,
    asleep: Mutex<()>,
    awake: Condvar,
}

impl SpinBarrier {
    /// Makes a barrier of so many threads.
    pub(super) fn new(threads: usize) -> SpinBarrier {
        SpinBarrier {
            threads,
            arrived: AtomicUsize::new(0),
            met: AtomicUsize::new(0),
            asleep: Mutex::new(()),
            awake: Condvar::new(),
        }
    }

    /// Returns when all threads have called this. Whatever any of them did before, all see after.
    pub(super) fn wait(&self) {
        let met = self.met.load(Ordering::Relaxed);
        // Release what this thread did; acquire, in the last one, what all others did.
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            // With the lock, nobody is between looking and falling asleep.
            let _asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
            self.met.store(met.wrapping_add(1), Ordering::Release);
            self.awake.notify_all();
            return;
        }
        for _ in 0..SPINS {
            if self.met.load(Ordering::Acquire) != met {
                return;
            }
            spin_loop();
        }
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        while self.met.load(Ordering::Acquire) == met {
            asleep = self.awake.wait(asleep).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn nobody_leaves_before_all_have_come() {
        for threads in [1, 2, 5] {
            let (barrier, rounds) = (SpinBarrier::new(threads), 2000);
            let counts: Vec<AtomicUsize> = (0..rounds).map(|_| AtomicUsize::new(0)).collect();
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let (barrier, counts) = (&barrier, &counts);
                    scope.spawn(move || {
                        for (round, count) in counts.iter().enumerate() {
                            if round % 400 == thread {
                                // Long enough that the others fall asleep.
                                std::thread::sleep(Duration::from_millis(3));
                            }
                            count.fetch_add(1, Ordering::Relaxed);
                            barrier.wait();
                            assert_eq!(count.load(Ordering::Relaxed), threads);
                        }
                    });
                }
            });
        }
    }
}
