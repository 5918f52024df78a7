//! Coverage of our own runs: which partitions of inputs and outputs the executed operations have
//! exercised. Nothing is traced: whoever executes an operation says so with one call of
//! [`OpCoverage::record`].
//!
//! Operations are counted by [`Class`](class::Class), one look into a table each; the partitions
//! (those of `core`, which `fathom cover` reports for any test tool) are worked out at the end, once
//! per class. The number of classes is that of different arguments up to their partitions: some ten
//! thousand after millions of operations.

mod class;

use std::collections::HashMap;

use fathom_core::partition::op::partitions_at;
use fathom_core::partition::{Coverage, Granularity};
use fathom_core::{Op, Outcome, Payload};
use serde::{Deserialize, Serialize};

use class::Class;

/// Executed operations by class.
#[derive(Clone, Debug, Default)]
pub struct OpCoverage {
    indices: HashMap<Class, usize>,
    seen: Vec<Seen>,
}

/// The first operation of a class, and how many there were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The operation.
    pub op: Op,
    /// How it ended, as far as partitions need it.
    pub outcome: Outcome,
    /// Operations of the class.
    pub count: u64,
}

impl OpCoverage {
    /// Counts an executed operation.
    pub fn record(&mut self, op: &Op, outcome: &Outcome) {
        self.record_times(op, outcome, 1);
    }

    fn record_times(&mut self, op: &Op, outcome: &Outcome, count: u64) {
        let Some(class) = Class::of(op, outcome) else { return };
        match self.indices.get(&class) {
            Some(index) => self.seen[*index].count += count,
            None => {
                self.indices.insert(class, self.seen.len());
                self.seen.push(Seen { op: op.clone(), outcome: without_data(outcome), count });
            }
        }
    }

    /// Takes over what others have counted.
    pub fn merge<'a>(&mut self, others: impl IntoIterator<Item = &'a Seen>) {
        for seen in others {
            self.record_times(&seen.op, &seen.outcome, seen.count);
        }
    }

    /// Everything counted, one operation per class: what to save, and what [`OpCoverage::merge`]
    /// takes back.
    pub fn seen(&self) -> &[Seen] {
        &self.seen
    }

    /// The partitions.
    pub fn partitions(&self, how: Granularity) -> Coverage {
        let mut coverage = Coverage::new(how);
        for seen in &self.seen {
            coverage.add_call(&partitions_at(&seen.op, &seen.outcome, how), seen.count);
        }
        coverage
    }
}

/// Only of a listing the partitions need more than the return value.
fn without_data(outcome: &Outcome) -> Outcome {
    match outcome.payload {
        Payload::Entries(_) => outcome.clone(),
        _ => outcome.result.into(),
    }
}
