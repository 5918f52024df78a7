//! [`Coverage`]: how often each partition was exercised, and which never.

use std::collections::BTreeMap;

use super::pair::{Pair, pairs_in};
use super::table::table;
use super::value::Granularity;
use super::{Hit, Partition, Place, op};
use crate::op::Op;
use crate::outcome::Outcome;

/// Counts of partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    granularity: Granularity,
    counts: BTreeMap<Hit, u64>,
    pairs: BTreeMap<Pair, u64>,
}

/// How much of a call was exercised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Partitions that were exercised.
    pub hit: usize,
    /// Partitions that there are.
    pub total: usize,
}

impl Coverage {
    /// Nothing counted yet.
    pub fn new(granularity: Granularity) -> Coverage {
        Coverage { granularity, counts: BTreeMap::new(), pairs: BTreeMap::new() }
    }

    /// Counts an executed operation.
    pub fn add(&mut self, op: &Op, outcome: &Outcome) {
        self.add_call(&op::partitions_at(op, outcome, self.granularity), 1);
    }

    /// Counts the partitions of one call that was made so many times, and the pairs of its flags.
    pub fn add_call(&mut self, hits: &[Hit], times: u64) {
        for hit in hits {
            *self.counts.entry(*hit).or_default() += times;
        }
        for pair in pairs_in(hits) {
            *self.pairs.entry(pair).or_default() += times;
        }
    }

    /// Counts one partition.
    pub fn add_hit(&mut self, hit: Hit) {
        *self.counts.entry(hit).or_default() += 1;
    }

    /// How finely amounts are partitioned here.
    pub fn granularity(&self) -> Granularity {
        self.granularity
    }

    /// How often two flags were set in the same call.
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

    /// How often a partition was exercised.
    pub fn count(&self, hit: &Hit) -> u64 {
        self.counts.get(hit).copied().unwrap_or(0)
    }

    /// Everything exercised, with its count.
    pub fn hits(&self) -> impl Iterator<Item = (&Hit, u64)> {
        self.counts.iter().map(|(hit, count)| (hit, *count))
    }

    /// What of a call was exercised.
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

    /// Exercised, but not in the table: errors that no manual page mentions.
    pub fn undocumented(&self) -> impl Iterator<Item = (&Hit, u64)> {
        let known = |hit: &Hit| match (hit.partition, table().base(hit.base)) {
            (Partition::Error(errno), Some((_, base))) => base.errnos.contains(&errno),
            _ => true,
        };
        self.hits().filter(move |(hit, _)| !known(hit))
    }
}

/// Every partition of a call: of its arguments, of success, of its documented errors.
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
