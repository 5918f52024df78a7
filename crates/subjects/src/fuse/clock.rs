//! Shows the volume's logical clock as wall-clock time.
//!
//! The model stamps inodes with ticks, of which only the order means something. Programs on a mount
//! compare times with each other *and* with the system clock (`make`, `git`, `find -newer`), so a tick
//! must be shown as about the time at which it happened. Three promises:
//!
//! * a later tick is never shown as an earlier time, and different ticks as different times;
//! * the time of a tick never changes once it could have been shown;
//! * no time lies in the future, as long as the system clock does not go back.
//!
//! The clock keeps marks (tick, time) and counts one nanosecond per tick from the last mark on. An
//! operation takes far longer than a nanosecond, so this can never overtake the system clock.

use std::time::{SystemTime, UNIX_EPOCH};

/// A new mark is worth its 16 bytes when the shown time has fallen this far behind: the resolution
/// of the kernel's own file times on a kernel with `HZ=100`.
const LAG_NS_MAX: u64 = 10_000_000;

#[derive(Clone, Copy, Debug)]
struct Mark {
    tick: u64,
    unix_ns: u64,
}

/// The history of a mount: the time of each tick.
#[derive(Debug)]
pub(super) struct Clock {
    /// Marks, never none; both fields increase.
    marks: Vec<Mark>,
}

impl Clock {
    /// A clock that starts now, for a volume whose next tick is `tick`.
    pub(super) fn starting_at(tick: u64) -> Clock {
        // Ticks before the first mark (of a volume that was made before it was mounted) are shown
        // as the moments before it.
        let first = Mark { tick: 0, unix_ns: unix_ns().saturating_sub(tick) };
        Clock { marks: vec![first] }
    }

    /// Notes that `tick`, which nobody has used yet, would be used now.
    pub(super) fn advance_to(&mut self, tick: u64) {
        self.mark(tick, unix_ns());
    }

    fn mark(&mut self, tick: u64, now_ns: u64) {
        let last = self.marks.last_mut().expect("a clock has marks");
        if tick == last.tick {
            last.unix_ns = last.unix_ns.max(now_ns);
        } else if now_ns >= last.unix_ns + (tick - last.tick) + LAG_NS_MAX {
            self.marks.push(Mark { tick, unix_ns: now_ns });
        }
    }

    /// The present: seconds and nanoseconds since the epoch.
    pub(super) fn now(&self) -> (i64, u32) {
        let ns = unix_ns();
        ((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as u32)
    }

    /// The time of `tick`: seconds and nanoseconds since the epoch.
    pub(super) fn time_of(&self, tick: u64) -> (i64, u32) {
        let after = self.marks.partition_point(|mark| mark.tick <= tick);
        let mark = self.marks[after - 1];
        let ns = mark.unix_ns + (tick - mark.tick);
        ((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as u32)
    }
}

fn unix_ns() -> u64 {
    // A system clock before 1970 is as good as 1970.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_and_shown_times_never_change() {
        let mut clock = Clock { marks: vec![Mark { tick: 0, unix_ns: 1_000 }] };
        let mut shown = Vec::new();
        // The system clock jumps forward (sleep), stands still (coarse), and goes back.
        let nows = [1_000, 5, 2_000, 90_000_000, 90_000_000, 60_000_000, 300_000_000, 300_000_050];
        for (tick, now_ns) in (1..).zip(nows) {
            clock.mark(tick, now_ns);
            shown.push(clock.time_of(tick));
        }
        assert!(shown.is_sorted_by(|a, b| a < b), "{shown:?}");
        let again: Vec<_> = (1..=nows.len() as u64).map(|tick| clock.time_of(tick)).collect();
        assert_eq!(shown, again);
        assert_eq!(shown[3], (0, 90_000_000));
    }

    #[test]
    fn a_tick_that_was_not_used_gets_the_time_of_its_use() {
        let mut clock = Clock { marks: vec![Mark { tick: 0, unix_ns: 0 }] };
        clock.mark(1, 50_000_000); // a call that failed
        clock.mark(1, 90_000_000);
        assert_eq!(clock.time_of(1), (0, 90_000_000));
    }

    #[test]
    fn now_is_not_in_the_future() {
        let mut clock = Clock::starting_at(1_000);
        clock.advance_to(1_001);
        let now = unix_ns();
        let (sec, nsec) = clock.time_of(1_001);
        assert!(sec as u64 * 1_000_000_000 + u64::from(nsec) <= now);
    }
}
