//! Streaming: calls with paths come to user space, which resolves them.
//!
//! Used where the walk through the kernel's directory cache is not proven, and for paths through links
//! whose text is not in the kernel's memory (`bpf/stream.h`). An event has the paths, and the places
//! where they start, as they were at the call. If all paths come, whatever has changed since (links made
//! and removed, mounts) is known from the events before it; else it is looked up as it is now.

mod names;

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::AsRawFd;

use aya::maps::{MapData, RingBuf};

use crate::error::Result;
use crate::sample::{Sample, Samples, Touch, is_restart};
use crate::target::Target;
use names::{End, Last, Names, Place};

const PLACE_BYTES: usize = 512;
const PATH_BYTES: usize = 1024;

/// A streamed call with its paths: `struct streamed` of `bpf/stream.h`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Event {
    time: u64,
    request: u64,
    result: i64,
    pid: u32,
    tid: u32,
    pending: u32,
    follow: u32,
    parent_from: u32,
    completes: u32,
    resolve: u64,
    flags: u64,
    sample: Sample,
    places: [[u8; PLACE_BYTES]; 3],
    paths: [[u8; PATH_BYTES]; 2],
}

/// Bits of `enum touch`.
const INSIDE: u8 = 1;
const OUTSIDE: u8 = 2;
const UNRESOLVED: u8 = 16;

/// Flag of openat2(2).
const RESOLVE_NO_SYMLINKS: u64 = 0x04;

/// Resolves the paths of streamed calls, and counts the calls.
pub(super) struct Stream {
    ring: RingBuf<MapData>,
    names: Names,
    /// Requests of io_uring that have not completed.
    submitted: HashMap<u64, Event>,
    samples: Samples,
    /// Whether the calls of all paths come, and not only those that the walk leaves.
    all: bool,
}

impl Stream {
    pub(super) fn new(ring: RingBuf<MapData>, targets: &[Target], all: bool) -> Result<Stream> {
        let names = Names::new(targets)?;
        Ok(Stream { ring, names, submitted: HashMap::new(), samples: Samples::default(), all })
    }

    /// The descriptor of the ring, readable when something has come.
    pub(super) fn fd(&self) -> i32 {
        self.ring.as_raw_fd()
    }

    /// Takes what was counted since the last time it was taken.
    pub(super) fn take(&mut self) -> Samples {
        self.drain();
        std::mem::take(&mut self.samples)
    }

    /// Counts the calls that have come.
    pub(super) fn drain(&mut self) {
        while let Some(event) = self.next() {
            if !self.all {
                self.names.look_at_mounts();
            }
            match (event.completes, event.request) {
                (0, 0) => self.count(event),
                (0, request) => drop(self.submitted.insert(request, event)),
                (_, request) => {
                    if let Some(submitted) = self.submitted.remove(&request) {
                        self.count(Event { result: event.result, ..submitted });
                    }
                }
            }
        }
    }

    fn next(&mut self) -> Option<Event> {
        let item = self.ring.next()?;
        assert!(item.len() >= size_of::<Event>(), "events of the stream have one size");
        // SAFETY: the kernel wrote a whole event: integers and bytes, of any value.
        Some(unsafe { std::ptr::read_unaligned(item.as_ptr().cast()) })
    }

    fn count(&mut self, event: Event) {
        if is_restart(event.result) {
            return;
        }
        let ends = [0, 1].map(|index| self.resolve(&event, index));
        let mut touch = event.sample.touch;
        for (index, end) in ends.iter().enumerate() {
            if event.pending & 1 << index != 0 {
                touch |= match end {
                    Some(end) if self.names.is_inside(&end.at) => INSIDE,
                    Some(_) => OUTSIDE,
                    None => UNRESOLVED,
                };
            }
        }
        let call = event.sample.call();
        if event.result >= 0 && self.all {
            self.names.learn(call.name, &ends, text(&event.paths[1]), event.flags);
        }
        let touch = match touch {
            bits if bits & INSIDE != 0 => Touch::Inside,
            bits if bits & UNRESOLVED != 0 => Touch::Unresolved,
            bits if bits & OUTSIDE != 0 => return,
            _ => Touch::Nothing,
        };
        self.samples
            .add(Sample::new(event.sample.call, touch, event.sample.slots, event.result), 1);
    }

    /// Resolves a path of a call; `None` if it has no such path or it cannot be told.
    fn resolve(&self, event: &Event, index: usize) -> Option<End> {
        let path = text(&event.paths[index]);
        if event.pending & 1 << index == 0 || path.is_empty() || path.len() >= PATH_BYTES - 1 {
            return None;
        }
        let last = Last {
            follow: event.follow != 0,
            parent: index as u32 >= event.parent_from,
            no_links: event.resolve & RESOLVE_NO_SYMLINKS != 0,
            missing: matches!(-event.result, 2 | 20),
        };
        let (root, base) = (place(&event.places[0])?, place(&event.places[1 + index]));
        self.names.resolve(&root, base.as_ref(), path, last, (event.pid, event.tid))
    }
}

/// Cuts a buffer at the first NUL.
fn text(bytes: &[u8]) -> &[u8] {
    CStr::from_bytes_until_nul(bytes).map_or(bytes, CStr::to_bytes)
}

/// Reads a place: its names from the inside out, each with NUL, then an empty one. A name with a
/// slash means that there is no place.
fn place(bytes: &[u8]) -> Option<Place> {
    let mut place: Place = Vec::new();
    for name in bytes.split(|byte| *byte == 0) {
        match name {
            [] => {
                place.reverse();
                return Some(place);
            }
            b"/" => return None,
            name => place.push(name.to_vec()),
        }
    }
    None
}

const _: () = assert!(size_of::<Event>() == 3696);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_from_the_inside_out() {
        let found = place(b"c\0bb\0a\0\0rubbish\0").expect("it is complete");
        assert_eq!(found, [b"a".to_vec(), b"bb".to_vec(), b"c".to_vec()]);
        assert_eq!(place(b"\0rubbish"), Some(Vec::new()));
        assert_eq!(place(b"c\0/\0"), None);
        assert_eq!(place(b"cut off"), None);
    }
}
