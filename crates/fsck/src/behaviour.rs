//! Behaviours: cases on which a checker does the same are of one class.
//!
//! An instrumented checker tells which branches it took. Of any other one can see how its runs end, what they
//! print, and which sorts of fields the first repair writes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::cause;
use crate::judge::Observation;
use crate::map::Map;

/// How much longer a campaign must be for another point of its growth to be kept: a curve needs no more.
const GROWTH_STEP: f64 = 1.03;

/// The sorts of fields by place: `inode.i_mode` of every inode is one sort.
pub(crate) struct FieldSorts {
    /// First byte, byte behind the last, number of the sort; in order.
    places: Vec<(u64, u64, u32)>,
}

impl FieldSorts {
    pub(crate) fn of(map: &Map) -> FieldSorts {
        let mut numbers = BTreeMap::new();
        let mut places: Vec<(u64, u64, u32)> = Vec::with_capacity(map.fields.len());
        for field in &map.fields {
            let next = numbers.len() as u32;
            let sort = cause::field_sort(&field.to_string());
            let number = *numbers.entry(sort).or_insert(next);
            places.push((field.bytes().start, field.bytes().end, number));
        }
        places.sort_unstable();
        FieldSorts { places }
    }

    /// The sorts that changed bytes, which are in order, belong to. A byte of no field belongs to none.
    fn written(&self, changed: &[(u64, u8, u8)]) -> BTreeSet<u32> {
        let mut out = BTreeSet::new();
        let mut known_until = 0;
        for (at, _, _) in changed {
            if *at < known_until {
                continue;
            }
            let before = self.places.partition_point(|(from, _, _)| from <= at);
            if let Some((_, to, sort)) = before.checked_sub(1).map(|index| self.places[index])
                && *at < to
            {
                out.insert(sort);
                known_until = to;
            }
        }
        out
    }
}

/// A number that two cases share if the checker did the same on them.
pub(crate) fn behaviour(seen: &Observation, sorts: &FieldSorts) -> u64 {
    let mut text = String::new();
    for run in std::iter::once(&seen.check).chain(&seen.repairs) {
        text.push_str(&format!("{} {}\n", run.outcome.end, cause::shape(&run.outcome.output)));
    }
    let first = seen.repairs.first().map(|run| sorts.written(&run.changed)).unwrap_or_default();
    text.push_str(&format!("{first:?}"));
    XxHash3_128::oneshot(text.as_bytes()) as u64
}

/// What a campaign had seen after so many cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Growth {
    /// Cases.
    pub cases: u64,
    /// Different behaviours.
    pub behaviours: u64,
    /// Branches that an instrumented checker took.
    pub branches: u64,
}

/// Everything different that a campaign has seen a checker do.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Coverage {
    /// Behaviours by number.
    pub behaviours: BTreeSet<u64>,
    /// Branches of an instrumented checker.
    pub branches: BTreeSet<u32>,
    /// How both grew with the cases; more points at the beginning.
    pub growth: Vec<Growth>,
}

impl Coverage {
    /// Adds the case that is the last of so many.
    pub(crate) fn add(&mut self, cases: u64, behaviour: u64, branches: &BTreeSet<u32>) {
        self.behaviours.insert(behaviour);
        self.branches.extend(branches);
        let last = self.growth.last().map_or(0, |point| point.cases);
        if cases as f64 >= last as f64 * GROWTH_STEP {
            self.growth.push(self.now(cases));
        }
    }

    /// The point of the growth after so many cases.
    pub fn now(&self, cases: u64) -> Growth {
        let (behaviours, branches) = (self.behaviours.len() as u64, self.branches.len() as u64);
        Growth { cases, behaviours, branches }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_bytes_are_told_by_the_sorts_of_their_fields() {
        let sorts = FieldSorts { places: vec![(0, 4, 0), (8, 10, 1), (10, 12, 0), (20, 21, 2)] };
        let changed = |places: &[u64]| places.iter().map(|at| (*at, 0, 1)).collect::<Vec<_>>();
        let written =
            |places: &[u64]| sorts.written(&changed(places)).into_iter().collect::<Vec<_>>();
        assert_eq!(written(&[]), [0; 0]);
        assert_eq!(written(&[1, 2, 3, 11]), [0]);
        assert_eq!(written(&[5, 9, 20, 30]), [1, 2]);
    }

    #[test]
    fn growth_keeps_few_points_and_the_first_of_them() {
        let mut coverage = Coverage::default();
        for case in 1..=10_000 {
            coverage.add(case, case / 10, &BTreeSet::from([(case % 7) as u32]));
        }
        assert_eq!(coverage.growth[0], Growth { cases: 1, behaviours: 1, branches: 1 });
        assert!(coverage.growth.len() < 250, "{}", coverage.growth.len());
        assert_eq!(coverage.now(10_000), Growth { cases: 10_000, behaviours: 1001, branches: 7 });
    }
}
