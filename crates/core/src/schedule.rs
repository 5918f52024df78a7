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
}

impl Schedule {
    /// The number of calls.
    pub fn len(&self) -> usize {
        self.lanes.iter().map(Vec::len).sum()
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
