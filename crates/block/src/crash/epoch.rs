//! Enumerates every subset of the epoch in flight.

use std::collections::HashSet;
use std::ops::ControlFlow;

use fathom_core::Digest;

use super::{CrashPoint, Enumerator, Level, Subset, Visitor, Window};
use crate::image::Image;
use crate::log::{Event, WriteLog};

/// Whatever was written or erased since the last flush may be missing, in any combination. The state
/// in which event `i` arrived is shown at position `i + 1` only: each combination appears once.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    /// Greatest number of subsets per position; above that, a sample (see [`super::Bounds`]).
    pub subsets_max: u64,
}

/// An effect of the epoch in flight.
#[derive(Clone, Copy)]
struct Pending {
    event: usize,
    /// Whether it may be missing at the present position.
    optional: bool,
}

/// The epoch in flight: the image at its start, and the events in it.
struct Flight<'a> {
    log: &'a WriteLog,
    durable: Image,
    pending: Vec<Pending>,
}

impl Enumerator for Epoch {
    fn level(&self) -> Level {
        Level::Epoch
    }

    fn count(&self, window: &Window<'_>) -> u128 {
        let subsets = |volatile: usize| match u32::try_from(volatile) {
            Ok(volatile @ 0..64) => (1_u64 << volatile).min(self.limit()),
            _ => self.limit(),
        };
        let added: u128 = window.effects().map(|(_, _, before)| u128::from(subsets(before))).sum();
        u128::from(subsets(window.volatile_at_start())) + added
    }

    fn visit(&self, window: &Window<'_>, visitor: &mut Visitor<'_>) -> ControlFlow<()> {
        let (log, from) = (window.log(), window.from());
        let durable = window.image_at(log.epoch_start(from));
        let mut flight = Flight { log, durable, pending: Vec::new() };
        for event in window.in_flight(from) {
            flight.pending.push(Pending { event, optional: log.event(event).is_volatile() });
        }
        self.visit_position(&flight, from, visitor)?;
        for (index, event) in window.events() {
            if event == Event::Flush {
                flight.flush();
            }
            if event.is_effect() {
                // Subsets without event `index` were shown before.
                flight.pending.push(Pending { event: index, optional: false });
                self.visit_position(&flight, index + 1, visitor)?;
                flight.pending.last_mut().expect("just pushed").optional = event.is_volatile();
            }
        }
        ControlFlow::Continue(())
    }
}

impl Epoch {
    /// Greatest number of subsets per position, at least 1: the prefix is part of every sample.
    fn limit(&self) -> u64 {
        self.subsets_max.max(1)
    }

    fn visit_position(
        &self,
        flight: &Flight<'_>,
        position: usize,
        visitor: &mut Visitor<'_>,
    ) -> ControlFlow<()> {
        let mut show = |lost: &Subset, image: &Image| {
            visitor(&CrashPoint::Epoch { position, lost: lost.clone() }, image)
        };
        let optional = flight.pending.iter().filter(|pending| pending.optional).count();
        if optional < 64 && 1 << optional <= self.limit() {
            let image = flight.durable.clone();
            return flight.every_subset(0, 0, image, &mut Subset::default(), &mut show);
        }
        for lost in sample(position as u64, optional, self.limit()) {
            show(&lost, &flight.without(&lost))?;
        }
        ControlFlow::Continue(())
    }
}

impl Flight<'_> {
    /// Applies a flush: everything in flight becomes durable.
    fn flush(&mut self) {
        for pending in self.pending.drain(..) {
            self.log.event(pending.event).apply(&mut self.durable);
        }
    }

    /// Shows every way in which the effects from `next` on can be missing. `number` is the number of
    /// the next optional one. Each image extends the one that it branches off from, so that a state
    /// costs two writes on average, however many are in flight.
    fn every_subset(
        &self,
        next: usize,
        number: usize,
        mut image: Image,
        lost: &mut Subset,
        show: &mut dyn FnMut(&Subset, &Image) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let mut number = number;
        for (index, pending) in self.pending.iter().enumerate().skip(next) {
            if pending.optional {
                lost.insert(number);
                self.every_subset(index + 1, number + 1, image.clone(), lost, show)?;
                lost.remove(number);
                number += 1;
            }
            self.log.event(pending.event).apply(&mut image);
        }
        show(lost, &image)
    }

    fn without(&self, lost: &Subset) -> Image {
        let mut image = self.durable.clone();
        let mut number = 0;
        for pending in &self.pending {
            let missing = pending.optional && lost.contains(number);
            number += usize::from(pending.optional);
            if !missing {
                self.log.event(pending.event).apply(&mut image);
            }
        }
        image
    }
}

/// Chooses `count` different subsets of `0..len`, where there are more than `count`: none (the
/// prefix), all, the single ones from the last to the first, then pseudo-random ones that depend on
/// nothing but `position` and `len`.
fn sample(position: u64, len: usize, count: u64) -> Vec<Subset> {
    let single = |number| {
        let mut set = Subset::default();
        set.insert(number);
        set
    };
    let random = |draw: u64| {
        let word = |index: u64| {
            let place = [draw.to_le_bytes(), index.to_le_bytes()].concat();
            Digest::of(position, &place).0 as u64
        };
        let mut words: Vec<u64> = (0..len.div_ceil(64) as u64).map(word).collect();
        if let Some(last) = words.last_mut().filter(|_| !len.is_multiple_of(64)) {
            *last &= (1 << (len % 64)) - 1;
        }
        Subset::from_words(words)
    };
    let candidates = [Subset::default(), Subset::all_below(len)]
        .into_iter()
        .chain((0..len).rev().map(single))
        .chain((0..).map(random));
    let mut seen = HashSet::new();
    candidates.filter(|set| seen.insert(set.clone())).take(count as usize).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_distinct_bounded_and_always_the_same() {
        for len in [5, 64, 65, 200] {
            let sets = sample(3, len, 31);
            assert_eq!(sets, sample(3, len, 31));
            assert_eq!(sets.iter().collect::<HashSet<_>>().len(), 31);
            assert!(sets.iter().all(|set| set.last().is_none_or(|last| last < len)));
            assert_eq!((sets[0].len(), sets[1].len(), sets[2].last()), (0, len, Some(len - 1)));
        }
        assert_ne!(sample(3, 200, 300), sample(4, 200, 300));
        // Golden: findings name these subsets.
        assert_eq!(
            sample(7, 20, 24)[22..].iter().map(Subset::to_string).collect::<Vec<_>>(),
            ["8dc2f", "1e1c5"]
        );
    }
}
