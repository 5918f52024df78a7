//! [`BootWatch`]: does a guest that has not begun its command still get anywhere?
//!
//! On a busy host a boot may take minutes, so time alone says nothing: a kernel that says something or uses
//! the processor is on its way, unless it computes for longer than any boot does.

use std::time::{Duration, Instant};

/// A kernel that neither said nor computed anything for so long will not boot.
const STILL_MAX: Duration = Duration::from_secs(60);

/// No boot takes so much processor time: half a second is usual, some seconds with KASAN.
const COMPUTED_MAX: Duration = Duration::from_secs(120);

/// What changes while a kernel boots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// What it has said.
    pub(super) console_bytes: usize,
    /// Processor time of its process.
    pub(super) computed: Duration,
}

/// The progress of one boot.
pub(super) struct BootWatch {
    last: Progress,
    since: Instant,
}

impl BootWatch {
    pub(super) fn start(now: Instant) -> BootWatch {
        BootWatch { last: Progress::default(), since: now }
    }

    /// Why the kernel will not boot, if it will not.
    pub(super) fn look(&mut self, progress: Progress, now: Instant) -> Option<String> {
        if progress != self.last {
            (self.last, self.since) = (progress, now);
        }
        let still = now.duration_since(self.since);
        if progress.computed >= COMPUTED_MAX {
            let seconds = progress.computed.as_secs();
            return Some(format!("it has computed for {seconds} s"));
        }
        (still >= STILL_MAX).then(|| format!("nothing happened for {} s", still.as_secs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_boot_goes_on_and_one_that_stands_still_or_computes_for_ever_does_not() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let said = |console_bytes, computed_ms| Progress {
            console_bytes,
            computed: Duration::from_millis(computed_ms),
        };
        let mut slow = BootWatch::start(start);
        for minute in 1..30 {
            assert_eq!(slow.look(said(0, minute * 10), at(minute * 59)), None);
        }
        assert_eq!(slow.look(said(0, 290), at(29 * 59 + 59)), None);
        let why = slow.look(said(0, 290), at(29 * 59 + 60));
        assert_eq!(why.as_deref(), Some("nothing happened for 60 s"));
        assert_eq!(slow.look(said(1, 290), at(29 * 59 + 61)), None, "it says something again");
        let why = slow.look(said(2, 120_000), at(29 * 59 + 62));
        assert_eq!(why.as_deref(), Some("it has computed for 120 s"));
    }
}
