//! The stretch of a log in which the power fails; rebuilds the image of a crash point.

use std::ops::Range;

use super::{CrashPoint, Part, Subset};
use crate::image::Image;
use crate::log::{Event, WriteLog};

/// A log, the image before it, and the positions at which the power may fail.
#[derive(Clone, Debug)]
pub struct Window<'a> {
    base: &'a Image,
    log: &'a WriteLog,
    atomic_bytes: usize,
    /// The positions at which the power may fail (both ends included).
    positions: Range<usize>,
}

/// A crash point that this log does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("crash point {point} does not fit a log of {events} events: {why}")]
pub struct PointError {
    /// The crash point that was asked for.
    pub point: CrashPoint,
    /// Number of events in the log.
    pub events: usize,
    /// The part of the point that does not fit.
    pub why: &'static str,
}

impl<'a> Window<'a> {
    /// Makes a window in which the power may fail anywhere in `log`, which happened to a device
    /// that held `base` and cannot split `atomic_bytes` ([`crate::Geometry::atomic_bytes`]).
    ///
    /// # Panics
    /// If the log writes beyond the image, or the atomic unit has no bytes.
    pub fn new(base: &'a Image, log: &'a WriteLog, atomic_bytes: usize) -> Window<'a> {
        assert!(atomic_bytes > 0, "an atomic unit has at least one byte");
        let (extent, size) = (log.extent_bytes(), base.size());
        assert!(extent <= size, "the log writes up to {extent}, the image has {size} bytes");
        Window { base, log, atomic_bytes, positions: 0..log.len() }
    }

    /// Narrows the window: the power fails only at a position from `from` to `to`, while the events
    /// `from..to` were issued.
    ///
    /// # Panics
    /// If the log is shorter than `to`, or `from` is after `to`.
    #[must_use]
    pub fn between(self, from: usize, to: usize) -> Window<'a> {
        assert!(from <= to && to <= self.log.len(), "no window {from}..{to} in {}", self.log.len());
        Window { positions: from..to, ..self }
    }

    /// The image before the log.
    pub fn base(&self) -> &'a Image {
        self.base
    }

    /// The log.
    pub fn log(&self) -> &'a WriteLog {
        self.log
    }

    /// Bytes that a power failure cannot split.
    pub fn atomic_bytes(&self) -> usize {
        self.atomic_bytes
    }

    /// The first position.
    pub fn from(&self) -> usize {
        self.positions.start
    }

    /// The last position.
    pub fn to(&self) -> usize {
        self.positions.end
    }

    /// The events of the window with their indexes: those that can be interrupted.
    pub fn events(&self) -> impl Iterator<Item = (usize, Event<'a>)> {
        let log = self.log;
        self.positions.clone().map(move |index| (index, log.event(index)))
    }

    /// The indexes of the writes and erases since the last flush before `position`.
    pub(super) fn in_flight(&self, position: usize) -> impl Iterator<Item = usize> {
        let log = self.log;
        (log.epoch_start(position)..position).filter(move |&index| log.event(index).is_effect())
    }

    /// Iterates over the effects in the window: the index, the event, and the number of volatile
    /// events in flight before it.
    pub(super) fn effects(&self) -> impl Iterator<Item = (usize, Event<'a>, usize)> {
        let mut in_flight = self.volatile_at_start();
        self.events().filter_map(move |(index, event)| {
            let before = in_flight;
            match event {
                Event::Flush => in_flight = 0,
                _ => in_flight += usize::from(event.is_volatile()),
            }
            event.is_effect().then_some((index, event, before))
        })
    }

    /// Number of volatile events in flight at the first position.
    pub(super) fn volatile_at_start(&self) -> usize {
        self.in_flight(self.from()).filter(|&index| self.log.event(index).is_volatile()).count()
    }

    /// Builds the image at `position` if everything arrived.
    pub fn image_at(&self, position: usize) -> Image {
        let mut image = self.base.clone();
        self.log.apply(0..position, &mut image);
        image
    }

    /// Builds the image of a crash point, which need not lie in the window.
    ///
    /// # Errors
    /// If this log has no such crash point.
    pub fn rebuild(&self, point: &CrashPoint) -> Result<Image, PointError> {
        let image = if point.position() > self.log.len() {
            Err("the log ends before this position")
        } else {
            match point {
                CrashPoint::Linear { position } => Ok(self.image_at(*position)),
                CrashPoint::Epoch { position, lost } => self.without(*position, lost),
                CrashPoint::Lost { position, event } => self.without_event(*position, *event),
                CrashPoint::Torn { position, arrived } => {
                    self.interrupted(*position, *arrived, false)
                }
                CrashPoint::Erase { position, arrived } => {
                    self.interrupted(*position, *arrived, true)
                }
            }
        };
        let events = self.log.len();
        image.map_err(|why| PointError { point: point.clone(), events, why })
    }

    fn without(&self, position: usize, lost: &Subset) -> Result<Image, &'static str> {
        let mut image = self.image_at(self.log.epoch_start(position));
        let mut volatile = 0;
        for index in self.in_flight(position) {
            let event = self.log.event(index);
            let missing = event.is_volatile() && lost.contains(volatile);
            volatile += usize::from(event.is_volatile());
            if !missing {
                event.apply(&mut image);
            }
        }
        match lost.last() {
            Some(last) if last >= volatile => Err("fewer volatile events were in flight"),
            _ => Ok(image),
        }
    }

    fn without_event(&self, position: usize, lost: usize) -> Result<Image, &'static str> {
        let in_flight = (self.log.epoch_start(position)..position).contains(&lost);
        if !in_flight || !self.log.event(lost).is_volatile() {
            return Err("the missing event was not a volatile one in flight");
        }
        let mut image = self.image_at(lost);
        self.log.apply(lost + 1..position, &mut image);
        Ok(image)
    }

    fn interrupted(&self, index: usize, part: Part, erase: bool) -> Result<Image, &'static str> {
        let mut image = self.image_at(index);
        match (index < self.log.len()).then(|| self.log.event(index)) {
            Some(event @ Event::Write { .. }) if !erase => {
                part.apply(event, self.atomic_bytes, index as u64, &mut image)
            }
            Some(event @ Event::Erase { .. }) if erase => {
                part.apply(event, self.atomic_bytes, index as u64, &mut image)
            }
            _ => return Err("another kind of event is at this position"),
        }
        .ok_or("the event has fewer atomic units")?;
        Ok(image)
    }
}
