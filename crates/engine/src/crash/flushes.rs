//! Where a subject flushes, and where it does not: what tells one missing flush from another.
//!
//! Whether two violations come from the same missing flush cannot be seen in what they leave. It can be
//! seen in the log: the write that is lost belongs to an operation, and either the operation had
//! returned, so that a flush is missing after it, or it had not, so that one is missing inside. If no
//! operation flushes there, all of them have one cause: a routine that they share, or the device.

use std::collections::BTreeMap;

use fathom_block::{CrashPoint, Event, Window, WriteLog};
use fathom_core::Op;
use serde::{Deserialize, Serialize};

use super::judge::{Unflushed, describe};

/// What is written while a file system is being mounted.
const MOUNT: &str = "mount";

/// The operations that a log was written by.
#[derive(Clone, Copy)]
pub(super) struct Issued<'a> {
    /// The operations since the mount, before the step.
    pub(super) since: &'a [Op],
    /// The operations of the step.
    pub(super) step: &'a [Op],
    /// The position before the first operation, and after each.
    pub(super) marks: &'a [usize],
}

impl<'a> Issued<'a> {
    /// Each operation with the range of events that it issued.
    fn operations(&self) -> impl Iterator<Item = (&'a Op, usize, usize)> {
        let marks = self.marks;
        let ops = self.since.iter().chain(self.step).enumerate();
        ops.take_while(|(index, _)| index + 1 < marks.len())
            .map(|(index, op)| (op, marks[index], marks[index + 1]))
    }

    /// The place where a flush is missing if a power failure in the window shows something; `None` if
    /// nothing was lost or reordered. `returned` says whether the interrupted operation had.
    pub(super) fn unflushed(
        &self,
        window: &Window<'_>,
        point: &CrashPoint,
        returned: bool,
    ) -> Option<Unflushed> {
        let lost = first_lost(window.log(), point)?;
        let mut operations = self.operations();
        let writer = operations.find(|(_, from, to)| (*from..*to).contains(&lost));
        let op = writer.map_or_else(|| MOUNT.to_owned(), |(op, ..)| describe(op));
        // An operation that has issued everything is as good as one that has returned.
        let is_over = lost < window.from() || point.position() == window.to();
        Some(Unflushed { op, returned: returned || is_over })
    }
}

/// The first event that is missing although a later one may be there.
fn first_lost(log: &WriteLog, point: &CrashPoint) -> Option<usize> {
    match point {
        CrashPoint::Lost { event, .. } => Some(*event),
        CrashPoint::Epoch { position, lost } => {
            let number = lost.iter().next()?;
            let mut volatile = (log.epoch_start(*position)..*position)
                .filter(|index| log.event(*index).is_volatile());
            volatile.nth(number)
        }
        CrashPoint::Linear { .. } | CrashPoint::Torn { .. } | CrashPoint::Erase { .. } => None,
    }
}

/// Whether operations of one kind flush.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Habit {
    /// At least one returned with everything durable that it wrote.
    at_end: bool,
    /// At least one flushed before its last write.
    inside: bool,
}

/// Where operations flush, by their kinds; only those that write.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Flushes(BTreeMap<String, Habit>);

/// The place of a missing flush.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FlushPlace {
    /// Nothing is ever flushed.
    Everywhere,
    /// No operation flushes there: at its end, or inside.
    EveryOperation {
        /// At the end.
        returned: bool,
    },
    /// Others do.
    Here(Unflushed),
}

impl Flushes {
    /// Notes what the operations of a step did.
    pub(super) fn note(&mut self, issued: &Issued<'_>, log: &WriteLog) {
        for (op, from, to) in issued.operations().skip(issued.since.len()) {
            let effects = |index: &usize| log.event(*index).is_effect();
            let Some(last) = (from..to).rev().find(effects) else { continue };
            let flushes = |mut range: std::ops::Range<usize>| {
                range.any(|index| matches!(log.event(index), Event::Flush))
            };
            let (at_end, inside) = (flushes(last..to), flushes(from..last));
            let habit = self.0.entry(describe(op)).or_default();
            habit.at_end |= at_end;
            habit.inside |= inside;
        }
    }

    /// Takes over what was noted elsewhere.
    pub(super) fn merge(&mut self, other: Flushes) {
        for (op, habit) in other.0 {
            let mine = self.0.entry(op).or_default();
            mine.at_end |= habit.at_end;
            mine.inside |= habit.inside;
        }
    }

    /// Where a flush is missing.
    pub(super) fn place_of(&self, unflushed: &Unflushed) -> FlushPlace {
        let at_end = self.0.values().any(|habit| habit.at_end);
        let inside = self.0.values().any(|habit| habit.inside);
        match unflushed.returned {
            _ if !at_end && !inside => FlushPlace::Everywhere,
            true if !at_end => FlushPlace::EveryOperation { returned: true },
            false if !inside => FlushPlace::EveryOperation { returned: false },
            _ => FlushPlace::Here(unflushed.clone()),
        }
    }
}
