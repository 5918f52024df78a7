//! Enumerates every prefix without one write of the epoch in flight.

use std::ops::ControlFlow;

use super::{CrashPoint, Enumerator, Level, Visitor, Window};
use crate::image::Image;
use crate::log::Event;

/// One write or erase is lost, everything else up to the crash arrived: quadratic in the length of
/// an epoch where [`super::Epoch`] is exponential.
#[derive(Clone, Copy, Debug)]
pub struct Lost;

impl Enumerator for Lost {
    fn level(&self) -> Level {
        Level::Lost
    }

    fn count(&self, window: &Window<'_>) -> u128 {
        let added: u128 = window.effects().map(|(_, _, in_flight)| in_flight as u128).sum();
        window.volatile_at_start() as u128 + added
    }

    fn visit(&self, window: &Window<'_>, visitor: &mut Visitor<'_>) -> ControlFlow<()> {
        let from = window.from();
        let mut complete = window.image_at(window.log().epoch_start(from));
        // One image for each volatile event in flight: everything but this event.
        let mut without: Vec<(usize, Image)> = Vec::new();
        for index in window.in_flight(from) {
            advance(&mut complete, &mut without, index, window.log().event(index));
        }
        for (event, image) in &without {
            visitor(&CrashPoint::Lost { position: from, event: *event }, image)?;
        }
        for (index, event) in window.events() {
            let before = without.len();
            advance(&mut complete, &mut without, index, event);
            if event.is_effect() {
                // Without `index` itself it is the prefix before it: a linear state.
                for (lost, image) in &without[..before] {
                    visitor(&CrashPoint::Lost { position: index + 1, event: *lost }, image)?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

/// Applies an event to the complete image and to all that miss an earlier one.
fn advance(
    complete: &mut Image,
    without: &mut Vec<(usize, Image)>,
    index: usize,
    event: Event<'_>,
) {
    if event == Event::Flush {
        without.clear();
    }
    without.iter_mut().for_each(|(_, image)| event.apply(image));
    if event.is_volatile() {
        without.push((index, complete.clone()));
    }
    event.apply(complete);
}
