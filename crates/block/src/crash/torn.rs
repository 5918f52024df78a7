//! Enumerates every write torn between atomic units.

use std::ops::ControlFlow;

use super::part::{Units, visit_parts};
use super::{CrashPoint, Enumerator, Level, Part, Visitor, Window};
use crate::log::Event;

/// The power fails while one write is on its way: its first units arrived, or only its last ones (a
/// device may start anywhere). Everything before it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Torn {
    /// Greatest number of cuts per write.
    pub cuts_max: usize,
}

impl Torn {
    fn cuts(self, event: Event<'_>, window: &Window<'_>) -> impl Iterator<Item = usize> {
        let write = matches!(event, Event::Write { .. });
        let region = event.region().filter(|_| write).unwrap_or_default();
        Units::of(&region, window.atomic_bytes()).cuts(self.cuts_max)
    }
}

impl Enumerator for Torn {
    fn level(&self) -> Level {
        Level::Torn
    }

    fn count(&self, window: &Window<'_>) -> u128 {
        window.events().map(|(_, event)| 2 * self.cuts(event, window).count() as u128).sum()
    }

    fn visit(&self, window: &Window<'_>, visitor: &mut Visitor<'_>) -> ControlFlow<()> {
        let point = |position, arrived| CrashPoint::Torn { position, arrived };
        let parts =
            |event| self.cuts(event, window).flat_map(|cut| [Part::Head(cut), Part::Tail(cut)]);
        visit_parts(window, parts, point, visitor)
    }
}
