//! What happened to a device, in order, with the data.

use std::fmt;
use std::ops::Range;

use fathom_core::FsBytes;

use crate::image::Image;

/// One thing that happened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// Bytes were written (flash: programmed).
    Write {
        /// Where.
        at: usize,
        /// What.
        data: &'a [u8],
        /// Forced unit access: this write, and no other, is durable when it completes.
        fua: bool,
        /// The file system called it metadata (`REQ_META`): for people, not for the fault model.
        metadata: bool,
    },
    /// A region was erased (disk: discarded).
    Erase {
        /// Where.
        at: usize,
        /// How many bytes.
        len: usize,
    },
    /// Everything before is durable.
    Flush,
    /// A name for this position: the start of an operation, a checkpoint.
    Mark(&'a [u8]),
}

impl Event<'_> {
    /// The region that the event changes: `None` for flushes and marks.
    pub fn region(&self) -> Option<Range<usize>> {
        match *self {
            Event::Write { at, data, .. } => Some(at..at + data.len()),
            Event::Erase { at, len } => Some(at..at + len),
            Event::Flush | Event::Mark(_) => None,
        }
    }

    /// Whether the event changes the device.
    pub fn is_effect(&self) -> bool {
        matches!(self, Event::Write { .. } | Event::Erase { .. })
    }

    /// Whether a power failure can undo the event until a flush comes.
    pub fn is_volatile(&self) -> bool {
        matches!(self, Event::Write { fua: false, .. } | Event::Erase { .. })
    }

    /// Does to `image` what the event did to the device.
    pub fn apply(&self, image: &mut Image) {
        match *self {
            Event::Write { at, data, .. } => image.write(at, data),
            Event::Erase { at, len } => image.erase(at, len),
            Event::Flush | Event::Mark(_) => {}
        }
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Write { at, data, fua, metadata } => {
                write!(f, "write {} bytes at {at:#x}", data.len())?;
                f.write_str(if *fua { ", FUA" } else { "" })?;
                f.write_str(if *metadata { ", metadata" } else { "" })
            }
            Event::Erase { at, len } => write!(f, "erase {len} bytes at {at:#x}"),
            Event::Flush => f.write_str("flush"),
            Event::Mark(name) => write!(f, "mark {}", FsBytes::from(*name)),
        }
    }
}

impl fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Room for so many records, or so many bytes, in a log that is no longer empty: where there is one
/// write there are more, and growing from almost nothing takes longer than writing.
const FIRST_RECORDS: usize = 16;
const FIRST_BYTES: usize = 1024;

/// An [`Event`] whose bytes are a range of the log's data.
#[derive(Clone)]
enum Record {
    Write { at: usize, data: Range<usize>, fua: bool, metadata: bool },
    Erase { at: usize, len: usize },
    Flush,
    Mark(Range<usize>),
}

/// All events of a run. The bytes of all writes lie in one buffer, so that logging a small write
/// costs a copy and no allocation.
///
/// A *position* is a number of events: at position `p`, the events `0..p` have been issued.
#[derive(Clone, Default)]
pub struct WriteLog {
    records: Vec<Record>,
    data: Vec<u8>,
}

impl WriteLog {
    /// Nothing happened yet.
    pub fn new() -> WriteLog {
        WriteLog::default()
    }

    /// Appends an event.
    pub fn push(&mut self, event: Event<'_>) {
        let record = match event {
            Event::Write { at, data, fua, metadata } => {
                Record::Write { at, data: self.keep(data), fua, metadata }
            }
            Event::Erase { at, len } => Record::Erase { at, len },
            Event::Flush => Record::Flush,
            Event::Mark(name) => Record::Mark(self.keep(name)),
        };
        self.records.push(record);
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.data.len();
        if self.data.capacity() == 0 {
            self.data.reserve((FIRST_RECORDS * bytes.len()).min(FIRST_BYTES));
            self.records.reserve(FIRST_RECORDS);
        }
        self.data.extend_from_slice(bytes);
        start..self.data.len()
    }

    /// Events so far; also the present position.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Forgets everything but keeps the memory.
    pub fn clear(&mut self) {
        self.records.clear();
        self.data.clear();
    }

    /// Event number `index`.
    ///
    /// # Panics
    /// If there is no such event.
    pub fn event(&self, index: usize) -> Event<'_> {
        match &self.records[index] {
            Record::Write { at, data, fua, metadata } => Event::Write {
                at: *at,
                data: &self.data[data.clone()],
                fua: *fua,
                metadata: *metadata,
            },
            Record::Erase { at, len } => Event::Erase { at: *at, len: *len },
            Record::Flush => Event::Flush,
            Record::Mark(name) => Event::Mark(&self.data[name.clone()]),
        }
    }

    /// The events in order.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = Event<'_>> + ExactSizeIterator {
        (0..self.len()).map(|index| self.event(index))
    }

    /// Does to `image` what the events in `range` did to the device.
    pub fn apply(&self, range: Range<usize>, image: &mut Image) {
        for index in range {
            self.event(index).apply(image);
        }
    }

    /// The position just after the last flush among the events `0..position`, or 0: whatever lies
    /// before is durable, whatever lies after belongs to the epoch in flight.
    pub fn epoch_start(&self, position: usize) -> usize {
        let flush = |index: &usize| matches!(self.records[*index], Record::Flush);
        (0..position).rev().find(flush).map_or(0, |index| index + 1)
    }

    /// The end of the furthest region that an event changes: a device must have at least this size.
    pub fn extent_bytes(&self) -> usize {
        self.events().filter_map(|event| event.region()).map(|region| region.end).max().unwrap_or(0)
    }
}

impl PartialEq for WriteLog {
    fn eq(&self, other: &WriteLog) -> bool {
        self.events().eq(other.events())
    }
}

impl Eq for WriteLog {}

impl<'a> Extend<Event<'a>> for WriteLog {
    fn extend<I: IntoIterator<Item = Event<'a>>>(&mut self, events: I) {
        events.into_iter().for_each(|event| self.push(event));
    }
}

impl<'a> FromIterator<Event<'a>> for WriteLog {
    fn from_iter<I: IntoIterator<Item = Event<'a>>>(events: I) -> WriteLog {
        let mut log = WriteLog::new();
        log.extend(events);
        log
    }
}

impl fmt::Debug for WriteLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.events()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::Erased;

    #[test]
    fn a_log_tells_what_it_was_told() {
        let write = Event::Write { at: 512, data: b"data", fua: true, metadata: false };
        let events = [Event::Mark(b"op 1"), write, Event::Flush, Event::Erase { at: 0, len: 512 }];
        let log: WriteLog = events.into_iter().collect();
        assert!(log.events().eq(events));
        assert_eq!(
            format!("{log:?}"),
            "[mark op 1, write 4 bytes at 0x200, FUA, flush, erase 512 bytes at 0x0]"
        );
        assert_eq!([0, 2, 3, 4].map(|position| log.epoch_start(position)), [0, 0, 3, 3]);
        assert_eq!(log.extent_bytes(), 516);
    }

    #[test]
    fn applying_a_range_changes_only_what_it_says() {
        let log: WriteLog = [
            Event::Write { at: 0, data: b"ab", fua: false, metadata: false },
            Event::Erase { at: 1, len: 1 },
        ]
        .into_iter()
        .collect();
        let mut image = Image::new(4, Erased::Ones);
        log.apply(0..1, &mut image);
        assert_eq!(image.to_vec(), b"ab\xff\xff");
        log.apply(1..2, &mut image);
        assert_eq!(image.to_vec(), b"a\xff\xff\xff");
    }
}
