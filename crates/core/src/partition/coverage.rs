//! [`Coverage`]: counts how often each partition was exercised, and finds those that never were.

use std::collections::BTreeMap;

use super::pair::{Pair, pairs_in};
use super::table::table;
use super::value::Granularity;
use super::{Hit, Partition, Place, op};
use crate::op::Op;
use crate::outcome::Outcome;

/// Counts of exercised partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    granularity: Granularity,
    counts: BTreeMap<Hit, u64>,
    pairs: BTreeMap<Pair, u64>,
}

/// Exercised and existing partitions of a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of partitions that were exercised.
    pub hit: usize,
    /// Number of partitions that there are.
    pub total: usize,
}

impl Coverage {
    /// Makes empty counts.
    pub fn new(granularity: Granularity) -> Coverage {
        Coverage { granularity, counts: BTreeMap::new(), pairs: BTreeMap::new() }
    }

    /// Counts an executed operation.
    pub fn add(&mut self, op: &Op, outcome: &Outcome) {
        self.add_call(&op::partitions_at(op, outcome, self.granularity), 1);
    }

    /// Counts the partitions of one call that was made `times` times, and the pairs of its flags.
    pub fn add_call(&mut self, hits: &[Hit], times: u64) {
        for hit in hits {
            *self.counts.entry(*hit).or_default() += times;
        }
        for pair in pairs_in(hits) {
            *self.pairs.entry(pair).or_default() += times;
        }
    }

    /// The granularity of amounts.
    pub fn granularity(&self) -> Granularity {
        self.granularity
    }

    /// Number of calls in which both flags were set.
    pub fn pair_count(&self, pair: &Pair) -> u64 {
        self.pairs.get(pair).copied().unwrap_or(0)
    }

    /// Takes over the counts of another run.
    pub fn merge(&mut self, other: &Coverage) {
        for (hit, count) in &other.counts {
            *self.counts.entry(*hit).or_default() += count;
        }
        for (pair, count) in &other.pairs {
            *self.pairs.entry(*pair).or_default() += count;
        }
    }

    /// Number of times that a partition was exercised.
    pub fn count(&self, hit: &Hit) -> u64 {
        self.counts.get(hit).copied().unwrap_or(0)
    }

    /// Iterates over everything exercised, with its count.
    pub fn hits(&self) -> impl Iterator<Item = (&Hit, u64)> {
        self.counts.iter().map(|(hit, count)| (hit, *count))
    }

    /// Counts the exercised and all partitions of a call.
    pub fn tally(&self, base: &str) -> Tally {
        let all = all_hits(base, self.granularity);
        Tally { hit: all.iter().filter(|hit| self.count(hit) > 0).count(), total: all.len() }
    }

    /// The partitions of a call that were never exercised.
    pub fn holes(&self, base: &str) -> Vec<Hit> {
        let mut all = all_hits(base, self.granularity);
        all.retain(|hit| self.count(hit) == 0);
        all
    }

    /// Partitions that were exercised but are not in the table: errors that no manual page
    /// mentions.
    pub fn undocumented(&self) -> impl Iterator<Item = (&Hit, u64)> {
        let known = |hit: &Hit| match (hit.partition, table().base(hit.base)) {
            (Partition::Error(errno), Some((_, base))) => base.errnos.contains(&errno),
            _ => true,
        };
        self.hits().filter(move |(hit, _)| !known(hit))
    }
}

/// Lists every partition of a call: of its arguments, of success, of its documented errors.
pub fn all_hits(base: &str, how: Granularity) -> Vec<Hit> {
    let Some((name, base)) = table().base(base) else {
        return Vec::new();
    };
    let hit = |place, partition| Hit { base: name, place, partition };
    let mut all = Vec::new();
    for (arg, details) in &base.args {
        let place = Place::Arg(arg);
        all.extend(details.all_partitions(how).into_iter().map(|partition| hit(place, partition)));
    }
    let errors = base.errnos.iter().map(|errno| Partition::Error(*errno));
    let outputs = base.returns.all_successes().into_iter().chain(errors);
    all.extend(outputs.map(|partition| hit(Place::Output, partition)));
    all
}
