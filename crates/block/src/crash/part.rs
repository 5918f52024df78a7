//! Parts of a write or of an erase that arrived when the power failed in the middle.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::str::FromStr;

use fathom_core::Digest;

use super::{CrashPoint, Visitor, Window};
use crate::image::Image;
use crate::log::Event;

/// The part of an interrupted event that arrived. Units are atomic units, aligned to their own size
/// and counted from the first one that the event touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The first units, as many as the number says.
    Head(usize),
    /// All units but the first ones, as many as the number says.
    Tail(usize),
    /// Each bit of an erased region is either as before or erased. NOR flash clears bits by charge,
    /// not in address order, and an interrupted erase leaves cells on both sides of the threshold.
    Noise,
}

/// The atomic units that a region touches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Units {
    first: usize,
    count: usize,
    unit_bytes: usize,
}

impl Units {
    pub(super) fn of(region: &Range<usize>, unit_bytes: usize) -> Units {
        let first = region.start / unit_bytes;
        Units { first, count: region.end.div_ceil(unit_bytes).saturating_sub(first), unit_bytes }
    }

    /// Number of possible cuts: the boundaries inside the region.
    fn inner_boundaries(self) -> usize {
        self.count.saturating_sub(1)
    }

    /// The cuts that are made: all, or the first, the last and evenly spaced ones between.
    pub(super) fn cuts(self, cuts_max: usize) -> impl Iterator<Item = usize> {
        let (all, made) = (self.inner_boundaries(), self.inner_boundaries().min(cuts_max));
        (0..made).map(move |index| match made {
            // A single cut goes through the middle.
            1 => all.div_ceil(2),
            _ => 1 + index * (all - 1) / (made - 1),
        })
    }

    /// The offset on the device of cut number `cut` (1 is the first), if it is inside the region.
    fn boundary(self, cut: usize) -> Option<usize> {
        (1..=self.inner_boundaries()).contains(&cut).then(|| (self.first + cut) * self.unit_bytes)
    }
}

impl Part {
    /// Applies this part of `event` to `image`; `None` if the event has no such part. `seed`
    /// chooses the noise.
    pub(super) fn apply(
        self,
        event: Event<'_>,
        unit_bytes: usize,
        seed: u64,
        image: &mut Image,
    ) -> Option<()> {
        let region = event.region()?;
        let units = Units::of(&region, unit_bytes);
        let arrived = match self {
            Part::Head(cut) => region.start..units.boundary(cut)?,
            Part::Tail(cut) => units.boundary(cut)?..region.end,
            Part::Noise => region,
        };
        match (event, self) {
            (Event::Write { .. }, Part::Noise) => return None,
            (Event::Erase { .. }, Part::Noise) => half_erase(image, arrived, seed),
            (Event::Erase { .. }, _) => image.erase(arrived.start, arrived.len()),
            (Event::Write { at, data, .. }, _) => {
                image.write(arrived.start, &data[arrived.start - at..arrived.end - at]);
            }
            (Event::Flush | Event::Mark(_), _) => return None,
        }
        Some(())
    }
}

/// Shows, for every event of the window, the image before it with each of its `parts` done.
pub(super) fn visit_parts<'a, Parts: Iterator<Item = Part>>(
    window: &Window<'a>,
    parts: impl Fn(Event<'a>) -> Parts,
    point: impl Fn(usize, Part) -> CrashPoint,
    visitor: &mut Visitor<'_>,
) -> ControlFlow<()> {
    let mut before = window.image_at(window.from());
    for (index, event) in window.events() {
        for part in parts(event) {
            let mut image = before.clone();
            part.apply(event, window.atomic_bytes(), index as u64, &mut image)
                .expect("an enumerator asks for parts that exist");
            visitor(&point(index, part), &image)?;
        }
        event.apply(&mut before);
    }
    ControlFlow::Continue(())
}

/// Erases about half of the bits.
fn half_erase(image: &mut Image, region: Range<usize>, seed: u64) {
    let erased = image.erased().byte();
    let mut bytes = vec![0; region.len()];
    image.read(region.start, &mut bytes);
    for (index, chunk) in bytes.chunks_mut(16).enumerate() {
        let keep = Digest::of(seed, &(index as u64).to_le_bytes()).0.to_le_bytes();
        for (byte, keep) in chunk.iter_mut().zip(keep) {
            *byte = (*byte & keep) | (erased & !keep);
        }
    }
    image.write(region.start, &bytes);
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Head(units) => write!(f, "head{units}"),
            Part::Tail(units) => write!(f, "tail{units}"),
            Part::Noise => f.write_str("noise"),
        }
    }
}

impl FromStr for Part {
    type Err = ();

    fn from_str(text: &str) -> Result<Part, ()> {
        if text == "noise" {
            return Ok(Part::Noise);
        }
        let units = |digits| super::point::number(digits).ok_or(());
        match (text.strip_prefix("head"), text.strip_prefix("tail")) {
            (Some(digits), _) => units(digits).map(Part::Head),
            (_, Some(digits)) => units(digits).map(Part::Tail),
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Erased;

    #[test]
    fn cuts_are_spread_over_the_region() {
        let cuts = |units: usize, cuts_max| {
            Units::of(&(0..16 * units), 16).cuts(cuts_max).collect::<Vec<usize>>()
        };
        assert_eq!(cuts(1, 9), [0; 0]);
        assert_eq!(cuts(5, 9), [1, 2, 3, 4]);
        assert_eq!(cuts(5, 1), [2]);
        assert_eq!(cuts(101, 5), [1, 25, 50, 75, 100]);
        assert_eq!(cuts(101, 0), [0; 0]);
        // A region that is not aligned: units 1, 2 and 3 are touched.
        assert_eq!(Units::of(&(31..49), 16).inner_boundaries(), 2);
    }

    #[test]
    fn parts_do_what_they_say() {
        let write = Event::Write { at: 4, data: b"abcdefgh", fua: false, metadata: false };
        let after = |part: Part, event| {
            let mut image = Image::from_bytes(b"................", Erased::Ones);
            part.apply(event, 4, 1, &mut image).map(|()| image.to_vec())
        };
        assert_eq!(after(Part::Head(1), write).unwrap(), b"....abcd........");
        assert_eq!(after(Part::Tail(1), write).unwrap(), b"........efgh....");
        let erase = Event::Erase { at: 4, len: 8 };
        assert_eq!(after(Part::Tail(1), erase).unwrap(), b"........\xff\xff\xff\xff....");
        let noise = after(Part::Noise, erase).unwrap();
        assert!(noise.iter().all(|byte| byte & b'.' == b'.'), "erasing never clears a set bit");
        assert_eq!((&noise[..4], &noise[12..]), (&b"...."[..], &b"...."[..]));
        assert_ne!(&noise[4..12], b"........");
        for (part, event) in [
            (Part::Head(0), write),
            (Part::Head(2), write),
            (Part::Noise, write),
            (Part::Head(1), Event::Flush),
        ] {
            assert_eq!(after(part, event), None, "{part:?} {event:?}");
        }
    }
}
