//! [`Moment`]: when something is told, saved or over, on the clock of whoever waits for it.
//!
//! A guest may have a clock of its own that stands still while it computes. What is measured there says how
//! long somebody would have waited in the guest; people wait outside. So a program in such a guest says where
//! it reads the time of its host ([`follow`]), and what is paced by moments is paced by that.

use std::ops::{Add, Sub};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

/// Tells how long this program has been running, if it is not this machine's clock that counts.
type Outside = fn() -> Duration;

static OUTSIDE: OnceLock<Outside> = OnceLock::new();

static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// From now on, moments are read from this clock. Only the first call counts.
pub fn follow(outside: Outside) {
    let _ = OUTSIDE.set(outside);
}

/// A point in time, as [`Instant`] is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// This moment.
    pub fn now() -> Moment {
        Moment(OUTSIDE.get().map_or_else(|| BEGAN.elapsed(), |outside| outside()))
    }

    /// What has passed since.
    pub fn elapsed(self) -> Duration {
        Moment::now() - self
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(span))
    }
}

impl Sub for Moment {
    type Output = Duration;

    fn sub(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_ordered_and_have_distances() {
        let first = Moment::now();
        let second = Moment::now();
        assert!(first <= second && second < second + Duration::from_secs(1));
        assert_eq!((first + Duration::from_secs(2)) - first, Duration::from_secs(2));
        assert_eq!(first - (first + Duration::from_secs(2)), Duration::ZERO);
    }

    #[test]
    fn a_clock_that_is_followed_counts_and_ours_does_not() {
        // In a process of its own it would be the program's; here it is that of all tests of this crate.
        follow(|| Duration::from_secs(7));
        let before = Moment::now();
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(Moment::now() - before, Duration::ZERO);
    }
}
