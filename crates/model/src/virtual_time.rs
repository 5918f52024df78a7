//! Several callers in a time of their own: who runs when follows from the delays of the schedule alone.
//!
//! The caller whose turn comes first makes its call, and nobody else runs meanwhile, but for calls in halves
//! ([`crate::Race`]), which let the others in. So one schedule is one history, as in a guest whose clock stands
//! still while anybody computes.

use std::cell::{Cell, RefCell};

use fathom_core::schedule::{EventClock, Planned, in_order, scheduled_step};
use fathom_core::{Caller, Schedule, Step};

use crate::race;
use crate::syscall::Model;

/// How long a call takes.
const CALL_NS: u64 = 100;

/// How long a call in halves lets others in.
const GAP_NS: u64 = 300;

/// What callers do in virtual time.
struct Callers<'a> {
    model: RefCell<Model>,
    clock: EventClock,
    lanes: Vec<RefCell<Lane<'a>>>,
    steps: RefCell<Vec<Step>>,
}

/// A caller: what it has not done yet, and when it goes on.
struct Lane<'a> {
    calls: &'a [Planned],
    at_ns: u64,
}

impl Lane<'_> {
    /// When its next call begins.
    fn begins(&self) -> Option<u64> {
        Some(self.at_ns + self.calls.first()?.delay_ns)
    }
}

/// Lets callers work on a model; returns it with what they did.
pub(crate) fn run(model: Model, schedule: &Schedule) -> (Model, Vec<Step>) {
    let lanes = schedule.lanes.iter().map(|calls| RefCell::new(Lane { calls, at_ns: 0 }));
    let callers = Callers {
        model: RefCell::new(model),
        clock: EventClock::default(),
        lanes: lanes.collect(),
        steps: RefCell::default(),
    };
    callers.run_until(u64::MAX);
    (callers.model.into_inner(), in_order(callers.steps.into_inner()))
}

impl Callers<'_> {
    /// Lets everybody make the calls that begin before this moment.
    fn run_until(&self, until_ns: u64) {
        while let Some((begins, caller)) = self.first().filter(|(begins, _)| *begins < until_ns) {
            self.call(caller, begins);
        }
    }

    /// Whose turn comes first. Who is in the middle of a call has none.
    fn first(&self) -> Option<(u64, usize)> {
        let lanes = self.lanes.iter().enumerate();
        let turn = |(caller, lane): (usize, &RefCell<Lane<'_>>)| {
            lane.try_borrow().ok()?.begins().map(|begins| (begins, caller))
        };
        lanes.filter_map(turn).min()
    }

    fn call(&self, caller: usize, begins: u64) {
        // Held until the call is done: so it has no other turn meanwhile.
        let mut lane = self.lanes[caller].borrow_mut();
        let [planned, rest @ ..] = lane.calls else { return };
        let (number, ends) = (caller as Caller, Cell::new(begins + CALL_NS));
        let gap = || {
            self.run_until(begins + GAP_NS);
            ends.set(begins + GAP_NS + CALL_NS);
        };
        let race = self.model.borrow().volume().config().race;
        let (outcome, from, to) = self.clock.timed(|| match race {
            None => self.model.borrow_mut().execute_as(number, &planned.op),
            Some(race) => {
                let locked = |work: &mut dyn FnMut(&mut Model)| work(&mut self.model.borrow_mut());
                race::execute(race, number, &planned.op, &locked, &gap)
            }
        });
        self.steps.borrow_mut().push(scheduled_step(number, &planned.op, outcome, (from, to)));
        (lane.calls, lane.at_ns) = (rest, ends.get());
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::OpenFlags;
    use fathom_core::{Mode, Op, Outcome, Pattern, Subject, Testbed};

    use crate::{Config, ModelSubject, Race};

    use super::*;

    fn append(delay_ns: u64) -> Planned {
        Planned { delay_ns, op: Op::Write { slot: 0, data: Pattern { seed: 1, len: 10 } } }
    }

    /// The size of a file to which two callers append, one of them a while after the other.
    fn size_after(race: Option<Race>, delay_ns: u64) -> (u64, Vec<Step>) {
        let config = Config { race, ..Config::default() };
        let mut subject = ModelSubject::new(config).unwrap().with_virtual_time();
        let flags = OpenFlags::O_CREAT | OpenFlags::O_RDWR | OpenFlags::O_APPEND;
        for caller in 0..2 {
            let open = Op::Open { slot: 0, path: "f".into(), flags, mode: Mode(0o644) };
            assert_eq!(subject.apply_as(caller, &open).unwrap(), Outcome::ok(0));
        }
        let lanes = vec![vec![append(0)], vec![append(delay_ns)]];
        let steps = subject.run_callers(&Schedule { lanes, ..Schedule::default() }).unwrap();
        let tree = subject.observe().unwrap();
        let file = tree.entries.values().find(|entry| entry.kind == fathom_core::Kind::File);
        (file.unwrap().size, steps)
    }

    #[test]
    fn delays_alone_decide_who_meets_whom() {
        let overlap = |steps: &[Step]| steps[0].interval.unwrap().returned() > 1;
        let (size, steps) = size_after(Some(Race::Append), GAP_NS - 1);
        assert!(size == 10 && overlap(&steps), "{steps:?}");
        let (size, steps) = size_after(Some(Race::Append), GAP_NS);
        assert!(size == 20 && !overlap(&steps), "{steps:?}");
        assert_eq!(size_after(None, 0).0, 20);
        for _ in 0..3 {
            assert_eq!(size_after(Some(Race::Append), 7), size_after(Some(Race::Append), 7));
        }
    }
}
