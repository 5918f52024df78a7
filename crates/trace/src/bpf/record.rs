//! Writes every call as a line of JSON, for debugging and for reading again.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use aya::maps::{MapData, RingBuf};

use crate::error::{Result, TraceError};
use crate::record::Line;
use crate::sample::Sample;

/// A recorded call: `struct event` of `bpf/cover.bpf.c`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Event {
    time: u64,
    pid: u32,
    tid: u32,
    result: i64,
    args: [u64; 6],
    sample: Sample,
    path: [u8; 256],
}

/// Writes events as they come.
pub(super) struct Recorder {
    ring: RingBuf<MapData>,
    file: BufWriter<File>,
    name: String,
}

impl Recorder {
    pub(super) fn new(ring: RingBuf<MapData>, path: &Path) -> Result<Recorder> {
        let name = path.display().to_string();
        let file = File::create(path).map_err(|source| TraceError::System {
            doing: format!("cannot write {name}"),
            source,
        })?;
        Ok(Recorder { ring, file: BufWriter::new(file), name })
    }

    /// Writes the events that have come since the last call.
    pub(super) fn drain(&mut self) -> Result<()> {
        let Recorder { ring, file, name } = self;
        let failed = |source| TraceError::System { doing: format!("cannot write {name}"), source };
        while let Some(item) = ring.next() {
            if item.len() < size_of::<Event>() {
                continue;
            }
            // SAFETY: the kernel wrote a whole event: integers and bytes, of any value.
            let event: Event = unsafe { std::ptr::read_unaligned(item.as_ptr().cast()) };
            let end = event.path.iter().position(|byte| *byte == 0).unwrap_or(event.path.len());
            let line = Line {
                time_ns: event.time,
                pid: event.pid,
                tid: event.tid,
                call: event.sample.call().name.to_owned(),
                args: event.args,
                path: String::from_utf8_lossy(&event.path[..end]).into_owned(),
                result: event.result,
                touch: event.sample.touch,
                slots: event.sample.slots,
            };
            let written = serde_json::to_writer(&mut *file, &line).map_err(Into::into);
            written.and_then(|()| file.write_all(b"\n")).map_err(failed)?;
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.drain()?;
        let Recorder { mut file, name, .. } = self;
        let failed = |source| TraceError::System { doing: format!("cannot write {name}"), source };
        file.flush().map_err(failed)
    }
}
