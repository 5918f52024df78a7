//! A set that notes every new key in the sketch of the run.

use fathom_record::VisitedStates;

use super::{Arrival, Visited};

/// Any set; its new keys are also added to a sketch that outlives the search.
#[derive(Clone, Debug)]
pub(crate) struct Noted<V> {
    set: V,
    states: VisitedStates,
}

impl<V> Noted<V> {
    pub(crate) fn new(set: V, states: &VisitedStates) -> Noted<V> {
        Noted { set, states: states.clone() }
    }
}

impl<V: Visited> Visited for Noted<V> {
    #[inline]
    fn knows(&self, key: u128, depth: u32) -> bool {
        self.set.knows(key, depth)
    }

    #[inline]
    fn insert(&mut self, key: u128, depth: u32) -> Arrival {
        let arrival = self.set.insert(key, depth);
        if arrival == Arrival::New {
            self.states.add(key);
        }
        arrival
    }

    #[inline]
    fn touch(&self, key: u128) -> u64 {
        self.set.touch(key)
    }

    fn keeps_depths(&self) -> bool {
        self.set.keeps_depths()
    }

    fn bytes(&self) -> usize {
        self.set.bytes()
    }

    fn omitted(&self) -> f64 {
        self.set.omitted()
    }
}
