//! [`Schedule`]: what several callers do at the same time.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::op::{Caller, Op};
use crate::outcome::Outcome;
use crate::trace::{Interval, Step};

/// One call of a caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// What it waits for before the call, in nanoseconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delay_ns: u64,
    /// The call.
    pub op: Op,
}

fn is_zero(delay_ns: &u64) -> bool {
    *delay_ns == 0
}

/// The calls of every caller, from caller 0. All start at once, and nobody waits for another: only the
/// delays decide who meets whom, as far as the machine lets them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// The calls of each caller, in order.
    pub lanes: Vec<Vec<Planned>>,
    /// Beside the callers the file system is written back and given its mount options once more (`mount -o
    /// remount`), each time so many nanoseconds after the time before. That changes nothing that a caller can
    /// see, so it is no call of the history.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remounts: Vec<u64>,
    /// Delays of the requests to the disk, if there is one that can be delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<DiskDelays>,
    /// Which callers share a processor, where there are several.
    #[serde(default, skip_serializing_if = "Affinity::is_spread")]
    pub affinity: Affinity,
}

/// On which processors callers are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Affinity {
    /// Each on another one, as far as there are enough.
    #[default]
    Spread,
    /// Wherever the machine puts them.
    Anywhere,
    /// Each on the one of its number here, modulo the number that there are.
    On(Vec<u32>),
}

impl Affinity {
    fn is_spread(&self) -> bool {
        *self == Affinity::Spread
    }

    /// Which of so many processors a caller is kept on, if on any.
    pub fn of(&self, caller: Caller, processors: usize) -> Option<usize> {
        let place = match self {
            Affinity::Spread => caller,
            Affinity::Anywhere => return None,
            Affinity::On(places) => places.get(caller as usize).copied().unwrap_or(caller),
        };
        (processors > 0).then(|| place as usize % processors)
    }
}

/// How long requests to a disk take: each has a delay of its own, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskDelays {
    /// Decides all of them.
    pub seed: u64,
    /// The longest, in nanoseconds.
    pub max_ns: u64,
}

impl DiskDelays {
    /// The delay of a request, in nanoseconds. Needs no memory of its own.
    pub fn of(self, number: u64) -> u64 {
        // The finalizer of splitmix64.
        let mut mixed = self.seed.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % self.max_ns.saturating_add(1)
    }
}

impl Schedule {
    /// The number of calls.
    pub fn len(&self) -> usize {
        self.lanes.iter().map(Vec::len).sum()
    }

    /// The number of calls that something is waited for before.
    pub fn delays(&self) -> usize {
        self.lanes.iter().flatten().filter(|planned| planned.delay_ns > 0).count()
    }

    /// Whether nobody calls.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Numbers invocations and returns of all callers in one sequence.
#[derive(Debug, Default)]
pub struct EventClock(AtomicU64);

impl EventClock {
    /// The number of what happens now. Whoever draws a greater number did so later.
    pub fn now(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    /// Makes a call and says when it was made and when it returned.
    pub fn timed<T>(&self, call: impl FnOnce() -> T) -> (T, u64, u64) {
        let invoked = self.now();
        let done = call();
        (done, invoked, self.now())
    }
}

/// The step of a call of a schedule.
pub fn scheduled_step(
    caller: Caller,
    op: &Op,
    outcome: Outcome,
    (invoked, returned): (u64, u64),
) -> Step {
    let interval = Interval::new(invoked, returned);
    Step { caller, interval, ..Step::new(0, op.clone(), outcome) }
}

/// Puts the steps of all callers into one sequence, by invocation, and numbers them.
pub fn in_order(mut steps: Vec<Step>) -> Vec<Step> {
    steps.sort_by_key(|step| step.interval.map(Interval::invoked));
    for (n, step) in steps.iter_mut().enumerate() {
        step.n = n as u64;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_of_requests_come_from_the_seed_and_the_number() {
        let delays = DiskDelays { seed: 7, max_ns: 100 };
        let of = |delays: DiskDelays| (0..1000).map(|n| delays.of(n)).collect::<Vec<_>>();
        assert_eq!(of(delays), of(delays));
        assert_ne!(of(delays), of(DiskDelays { seed: 8, ..delays }));
        assert!(of(delays).iter().all(|ns| *ns <= 100));
        let (some, none) = (of(delays).iter().sum::<u64>(), of(DiskDelays { max_ns: 0, ..delays }));
        assert!((40_000..60_000).contains(&some), "{some}");
        assert!(none.iter().all(|ns| *ns == 0));
    }

    #[test]
    fn callers_are_spread_kept_together_or_left_alone() {
        let of = |affinity: &Affinity, processors| {
            (0..4).map(|caller| affinity.of(caller, processors)).collect::<Vec<_>>()
        };
        assert_eq!(of(&Affinity::Spread, 2), [Some(0), Some(1), Some(0), Some(1)]);
        assert_eq!(of(&Affinity::Anywhere, 2), [None; 4]);
        assert_eq!(of(&Affinity::On(vec![5, 5, 7]), 4), [Some(1), Some(1), Some(3), Some(3)]);
        assert_eq!(of(&Affinity::Spread, 0), [None; 4]);
    }

    #[test]
    fn a_schedule_without_anything_beside_it_is_written_as_before() {
        let text = serde_json::to_string(&Schedule::default()).unwrap();
        assert_eq!(text, r#"{"lanes":[]}"#);
        assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), Schedule::default());
    }
}
