//! Judges states by the properties of their system, and counts.

use std::sync::atomic::{AtomicBool, Ordering};

use super::path::Path;
use super::report::Discovery;
use super::system::{Expectation, Property, System};

/// The properties of a search.
pub(super) struct Judge<'a, S: System> {
    system: &'a S,
    properties: Vec<Property<S>>,
    /// Whether the witness of each `sometimes` property is known: no need to look again.
    settled: Vec<AtomicBool>,
    deadlock: bool,
}

/// The finds of one property: the place of the first, and their number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tally<P> {
    pub(super) first: Option<P>,
    pub(super) count: u64,
}

impl<P> Tally<P> {
    fn add(&mut self, place: impl FnOnce() -> P) {
        self.first.get_or_insert_with(place);
        self.count += 1;
    }
}

/// One tally for each property, and one for deadlocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tallies<P>(pub(super) Vec<Tally<P>>);

impl<'a, S: System> Judge<'a, S> {
    pub(super) fn new(system: &'a S, deadlock: bool) -> Judge<'a, S> {
        let properties = system.properties();
        let settled = properties.iter().map(|_| AtomicBool::new(false)).collect();
        Judge { system, properties, settled, deadlock }
    }

    /// Makes tallies without any finds.
    pub(super) fn tallies<P>(&self) -> Tallies<P> {
        let empty = || Tally { first: None, count: 0 };
        Tallies((0..=self.properties.len()).map(|_| empty()).collect())
    }

    /// The names of the properties, in the order of [`Tallies`].
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.properties.iter().map(|property| property.name).chain([Discovery::DEADLOCK])
    }

    /// Judges a state; returns true if it violates something.
    #[inline]
    pub(super) fn state<P: Copy>(
        &self,
        state: &S::State,
        place: P,
        tallies: &mut Tallies<P>,
    ) -> bool {
        let mut violated = false;
        for (index, property) in self.properties.iter().enumerate() {
            let tally = &mut tallies.0[index];
            match property.expectation {
                Expectation::Always if !(property.holds)(self.system, state) => {
                    tally.add(|| place);
                    violated = true;
                }
                Expectation::Sometimes
                    if tally.first.is_none()
                        && !self.settled[index].load(Ordering::Relaxed)
                        && (property.holds)(self.system, state) =>
                {
                    tally.add(|| place);
                }
                _ => {}
            }
        }
        violated
    }

    /// Whether a state without successors should have some.
    pub(super) fn is_deadlock(&self, state: &S::State) -> bool {
        self.deadlock && !self.system.may_end(state)
    }

    /// Counts a deadlock.
    pub(super) fn deadlock<P>(&self, place: P, tallies: &mut Tallies<P>) {
        tallies.0[self.properties.len()].add(|| place);
    }

    /// Adds the finds of a later part of the search; calls `news` with each property that had none.
    pub(super) fn merge<P, Q>(
        &self,
        total: &mut Tallies<Q>,
        part: Tallies<P>,
        mut news: impl FnMut(usize),
        place: impl Fn(P) -> Q,
    ) {
        for (index, (total, part)) in total.0.iter_mut().zip(part.0).enumerate() {
            let Some(first) = part.first else { continue };
            let witness = !self.is_violation(index);
            if total.first.is_none() {
                total.first = Some(place(first));
                news(index);
            }
            // Witnesses are not counted: after the first nobody looks.
            total.count = if witness { 1 } else { total.count + part.count };
            if witness {
                self.settled[index].store(true, Ordering::Relaxed);
            }
        }
    }

    /// Takes over the finds of an earlier run.
    pub(super) fn settle<P>(&self, found: &Tallies<P>) {
        for (settled, tally) in self.settled.iter().zip(&found.0) {
            settled.store(tally.first.is_some(), Ordering::Relaxed);
        }
    }

    fn is_violation(&self, index: usize) -> bool {
        self.properties.get(index).is_none_or(|p| p.expectation == Expectation::Always)
    }

    /// Whether anything is violated.
    pub(super) fn any_violation<P>(&self, tallies: &Tallies<P>) -> bool {
        (0..tallies.0.len()).any(|i| self.is_violation(i) && tallies.0[i].count > 0)
    }

    /// Makes a discovery as people read it.
    pub(super) fn discovery(&self, index: usize, path: Path, count: u64) -> Discovery {
        let property = self.names().nth(index).expect("a tally per property").to_owned();
        Discovery { property, violation: self.is_violation(index), path, count }
    }

    /// Makes all discoveries.
    pub(super) fn discoveries<P>(
        &self,
        tallies: &Tallies<P>,
        path: impl Fn(&P) -> Path,
    ) -> Vec<Discovery> {
        let found = tallies.0.iter().enumerate();
        found
            .filter_map(|(index, tally)| {
                let first = tally.first.as_ref()?;
                Some(self.discovery(index, path(first), tally.count))
            })
            .collect()
    }

    /// Lists the `sometimes` properties without a witness.
    pub(super) fn never<P>(&self, tallies: &Tallies<P>) -> Vec<&'static str> {
        let unseen = self.names().zip(&tallies.0).enumerate();
        unseen
            .filter(|(index, (_, tally))| !self.is_violation(*index) && tally.first.is_none())
            .map(|(_, (name, _))| name)
            .collect()
    }
}
