//! Enumerates every prefix of the log.

use std::ops::ControlFlow;

use super::{CrashPoint, Enumerator, Level, Visitor, Window};

/// The device writes everything at once and in order: a crash leaves a prefix.
#[derive(Clone, Copy, Debug)]
pub struct Linear;

impl Enumerator for Linear {
    fn level(&self) -> Level {
        Level::Linear
    }

    fn count(&self, window: &Window<'_>) -> u128 {
        1 + window.effects().count() as u128
    }

    fn visit(&self, window: &Window<'_>, visitor: &mut Visitor<'_>) -> ControlFlow<()> {
        let mut image = window.image_at(window.from());
        visitor(&CrashPoint::Linear { position: window.from() }, &image)?;
        for (index, event, _) in window.effects() {
            event.apply(&mut image);
            visitor(&CrashPoint::Linear { position: index + 1 }, &image)?;
        }
        ControlFlow::Continue(())
    }
}
