//! Enumerates every erase stopped half-way.

use std::ops::ControlFlow;

use super::part::{Units, visit_parts};
use super::{CrashPoint, Enumerator, Level, Part, Visitor, Window};
use crate::log::Event;

/// The power fails while a region is being erased: its first units are erased, or only its last ones,
/// or its bits are half old and half erased. Everything before it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Erase {
    /// Greatest number of cuts per erase.
    pub cuts_max: usize,
}

impl Erase {
    fn parts(self, event: Event<'_>, window: &Window<'_>) -> impl Iterator<Item = Part> {
        let region = match event {
            Event::Erase { .. } => event.region(),
            _ => None,
        };
        let noise = region.is_some().then_some(Part::Noise);
        let cuts =
            Units::of(&region.unwrap_or_default(), window.atomic_bytes()).cuts(self.cuts_max);
        cuts.flat_map(|cut| [Part::Head(cut), Part::Tail(cut)]).chain(noise)
    }
}

impl Enumerator for Erase {
    fn level(&self) -> Level {
        Level::Erase
    }

    fn count(&self, window: &Window<'_>) -> u128 {
        window.events().map(|(_, event)| self.parts(event, window).count() as u128).sum()
    }

    fn visit(&self, window: &Window<'_>, visitor: &mut Visitor<'_>) -> ControlFlow<()> {
        let point = |position, arrived| CrashPoint::Erase { position, arrived };
        visit_parts(window, |event| self.parts(event, window), point, visitor)
    }
}
