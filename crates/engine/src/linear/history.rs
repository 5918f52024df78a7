//! [`History`]: what several callers did, with the order of invocations and returns.

use std::collections::BTreeMap;

use fathom_core::{Caller, Errno, Op, Outcome, Step, Tree};
use fathom_model::Change;

use super::footprint::{Footprint, Names};
use super::relaxed::{Relaxations, Relaxed};

/// The calls of several callers on one file system that was empty before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Every call. Those without an interval were made one after the other, in this order: before all
    /// others if they are at the beginning, after all others behind them.
    pub steps: Vec<Step>,
    /// What the file system showed at the end, when nobody was inside a call.
    pub last: Option<Tree>,
}

/// Why a history cannot be judged.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// Two calls of one caller overlap.
    #[error("caller {caller} is inside two calls at once: steps {first} and {second}")]
    Twice {
        /// Who.
        caller: Caller,
        /// The earlier call.
        first: usize,
        /// The other one.
        second: usize,
    },
    /// The reference cannot be made.
    #[error("making the reference: {0}")]
    Reference(#[from] fathom_model::ConfigError),
}

impl History {
    /// The moments of every call, in one sequence.
    pub(crate) fn moments(&self) -> Vec<(u64, u64)> {
        let mut moments = Vec::with_capacity(self.steps.len());
        let alone = self.steps.iter().take_while(|step| step.interval.is_none()).count() as u64;
        let mut last = 0;
        for step in &self.steps {
            let moment = match step.interval {
                Some(interval) => (2 * alone + interval.invoked(), 2 * alone + interval.returned()),
                None => (last, last + 1),
            };
            last = last.max(moment.1 + 1);
            moments.push(moment);
        }
        moments
    }

    /// The history of some of its calls, by their places; the last tree is not part of it.
    pub fn of(&self, places: &[usize]) -> History {
        let moments = self.moments();
        let steps = places.iter().map(|&place| {
            let (invoked, returned) = moments[place];
            let interval = fathom_core::Interval::new(invoked, returned);
            Step { interval, ..self.steps[place].clone() }
        });
        History { steps: steps.collect(), last: None }
    }

    /// How many pairs of calls overlap.
    pub fn overlaps(&self) -> usize {
        let mut moments = self.moments();
        moments.sort_unstable();
        let overlapping = |index: usize| {
            let (_, returned) = moments[index];
            moments[index + 1..].iter().take_while(move |(invoked, _)| *invoked < returned).count()
        };
        (0..moments.len()).map(overlapping).sum()
    }
}

/// One call as the search wants it.
#[derive(Clone, Debug)]
pub(super) struct Call<'h> {
    /// Its place in the history.
    pub(super) place: usize,
    pub(super) caller: Caller,
    pub(super) invoked: u64,
    pub(super) returned: u64,
    pub(super) op: &'h Op,
    pub(super) outcome: &'h Outcome,
    /// What it looks at and changes.
    pub(super) footprint: Footprint,
    /// Whether it changes nothing that another caller can see, whenever it gives this answer.
    pub(super) only_looks: bool,
    /// What is not promised of it here.
    pub(super) relaxed: Option<Relaxed>,
    /// The steps of its path, after each of which others may come: none if nobody changes names meanwhile.
    pub(super) walks: usize,
    /// What it changes one after the other, where others look at link counts: a step each.
    pub(super) order: Vec<Change>,
    /// It removes a name that others may still find meanwhile: one more step.
    pub(super) leaves: bool,
}

impl Call<'_> {
    /// Whether it answered what it may be refused with.
    pub(super) fn is_refused(&self) -> bool {
        match (&self.relaxed, &self.outcome.result) {
            (Some(Relaxed::Refused(with)), Err(errno)) => with == errno,
            _ => false,
        }
    }

    /// All steps before the one in which it answers.
    pub(super) fn steps(&self) -> usize {
        let glimpses = matches!(self.relaxed, Some(Relaxed::Fields(_)));
        self.walks + self.counts() + usize::from(glimpses || self.leaves)
    }

    /// Its steps in which link counts change: those before the names do, or else the one in which these do.
    pub(super) fn counts(&self) -> usize {
        let before = self.order.iter().position(|change| *change == Change::Name);
        before.map_or(0, |before| before.max(1))
    }
}

/// A history, sorted by callers.
#[derive(Clone, Debug)]
pub(super) struct Prepared<'h> {
    /// The calls of each caller in the order in which it made them.
    pub(super) lanes: Vec<Vec<Call<'h>>>,
    /// Whether footprints say all there is: not if something ran out, which everybody uses up.
    pub(super) commutes: bool,
}

/// Answers that depend on what everybody else has used up.
const USED_UP: [Errno; 4] = [Errno::ENOSPC, Errno::EDQUOT, Errno::EMLINK, Errno::ENOMEM];

impl<'h> Prepared<'h> {
    pub(super) fn new(
        history: &'h History,
        relaxations: &Relaxations,
    ) -> Result<Prepared<'h>, HistoryError> {
        let moments = history.moments();
        let names = Names::of(history.steps.iter().map(|step| &step.op));
        let mut lanes: BTreeMap<Caller, Vec<Call<'h>>> = BTreeMap::new();
        for (place, (step, (invoked, returned))) in history.steps.iter().zip(&moments).enumerate() {
            lanes.entry(step.caller).or_default().push(Call {
                place,
                caller: step.caller,
                invoked: *invoked,
                returned: *returned,
                op: &step.op,
                outcome: &step.outcome,
                footprint: Footprint::default(),
                only_looks: only_looks(&step.op, &step.outcome),
                relaxed: None,
                walks: 0,
                order: Vec::new(),
                leaves: false,
            });
        }
        let mut lanes: Vec<Vec<Call<'h>>> = lanes.into_values().collect();
        for lane in &mut lanes {
            lane.sort_by_key(|call| call.invoked);
            if let Some(pair) = lane.windows(2).find(|pair| pair[1].invoked < pair[0].returned) {
                let (caller, first) = (pair[0].caller, pair[0].place);
                return Err(HistoryError::Twice { caller, first, second: pair[1].place });
            }
            let mut slots = names.slots();
            for call in lane {
                call.footprint = slots.footprint(call.op);
            }
        }
        let used_up =
            |step: &Step| step.outcome.result.is_err_and(|errno| USED_UP.contains(&errno));
        let commutes = !history.steps.iter().any(used_up);
        let mut prepared = Prepared { lanes, commutes };
        prepared.relax(relaxations);
        Ok(prepared)
    }

    /// Finds out of which calls less is promised, because of what they overlap with.
    fn relax(&mut self, relaxations: &Relaxations) {
        if relaxations.is_empty() {
            return;
        }
        let mut found = Vec::new();
        for (lane, calls) in self.lanes.iter().enumerate() {
            for (index, call) in calls.iter().enumerate() {
                let overlapping = self.overlapping(lane, call);
                let beside: Vec<&Op> = overlapping
                    .iter()
                    .filter(|other| other.footprint.conflicts(&call.footprint))
                    .map(|other| other.op)
                    .collect();
                let relaxed = relaxations.of(call.op, &beside, !overlapping.is_empty());
                let walks = relaxations.walks(call.op, &beside);
                let order = relaxations.order(call.op, &beside);
                let leaves = relaxations.leaves(call.op, &beside);
                found.push((lane, index, relaxed, walks, order, leaves));
            }
        }
        for (lane, index, relaxed, walks, order, leaves) in found {
            let call = &mut self.lanes[lane][index];
            (call.relaxed, call.walks, call.order, call.leaves) = (relaxed, walks, order, leaves);
        }
    }

    /// Whether a call can be looked at in steps.
    pub(super) fn has_steps(&self) -> bool {
        self.lanes.iter().flatten().any(|call| call.steps() > 0)
    }

    /// The calls of other callers that overlap with one of this lane.
    fn overlapping(&self, lane: usize, call: &Call<'h>) -> Vec<&Call<'h>> {
        let others = self.lanes.iter().enumerate().filter(|(other, _)| *other != lane);
        others
            .flat_map(|(_, calls)| {
                let first = calls.partition_point(|other| other.returned < call.invoked);
                calls[first..].iter().take_while(|other| other.invoked < call.returned)
            })
            .collect()
    }
}

/// Whether a call with this answer changes nothing that another caller can see, in whatever state it is
/// executed. What it changes of its own caller (where a file is at, what a slot holds no longer) it changes
/// in every order.
fn only_looks(op: &Op, outcome: &Outcome) -> bool {
    match op {
        Op::Stat { .. }
        | Op::Getdents { .. }
        | Op::ListPiece { .. }
        | Op::Read { .. }
        | Op::Pread { .. }
        | Op::Lseek { .. }
        | Op::Readlink { .. }
        | Op::Getxattr { .. }
        | Op::Listxattr { .. }
        | Op::Access { .. }
        | Op::Statfs { .. }
        | Op::Fsync { .. }
        | Op::Fdatasync { .. }
        | Op::Sync
        | Op::Syncfs { .. }
        | Op::SyncFileRange { .. }
        | Op::MmapLoad { .. }
        | Op::Umask { .. }
        | Op::Identity { .. }
        | Op::Wait { .. }
        | Op::Server { .. } => true,
        // Everything a slot held is let go of before a remount, of every caller.
        Op::Remount => false,
        // A file without names goes with its last slot.
        Op::Close { .. } => true,
        // Which file was opened is part of what comes after.
        Op::Open { .. }
        | Op::Write { .. }
        | Op::Pwrite { .. }
        | Op::Truncate { .. }
        | Op::Fallocate { .. }
        | Op::Mkdir { .. }
        | Op::Rmdir { .. }
        | Op::Unlink { .. }
        | Op::Rename { .. }
        | Op::Link { .. }
        | Op::LinkSlot { .. }
        | Op::Symlink { .. }
        | Op::Mknod { .. }
        | Op::Chmod { .. }
        | Op::Chown { .. }
        | Op::Utimens { .. }
        | Op::Setxattr { .. }
        | Op::Removexattr { .. }
        | Op::MmapStore { .. }
        | Op::CopyFileRange { .. } => outcome.result.is_err(),
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::Interval;

    use super::*;

    fn step(caller: Caller, interval: Option<(u64, u64)>) -> Step {
        let interval = interval.and_then(|(from, to)| Interval::new(from, to));
        Step { caller, interval, ..Step::new(0, Op::Sync, Outcome::ok(0)) }
    }

    #[test]
    fn calls_without_an_interval_are_before_or_after_all_others() {
        let steps = vec![
            step(0, None),
            step(0, None),
            step(0, Some((0, 2))),
            step(1, Some((1, 3))),
            step(0, None),
        ];
        let history = History { steps, last: None };
        assert_eq!(history.moments(), [(0, 1), (2, 3), (4, 6), (5, 7), (8, 9)]);
        assert_eq!(history.overlaps(), 1);
        assert_eq!(history.of(&[2, 3]).overlaps(), 1);
    }

    #[test]
    fn nobody_is_inside_two_calls() {
        let steps = vec![step(1, Some((0, 2))), step(1, Some((1, 3)))];
        let history = History { steps, last: None };
        let error = Prepared::new(&history, &Relaxations::none()).unwrap_err().to_string();
        assert_eq!(error, "caller 1 is inside two calls at once: steps 0 and 1");
    }
}
