//! Reads logs that others have written.
//!
//! One file per format; each turns lines into samples, so that a log of any length needs memory only
//! for the different calls in it.

mod lttng;
mod metis;
mod own;
mod paths;
mod strace;
mod syzkaller;
mod values;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use fathom_core::partition::{Coverage, Granularity};

use crate::error::{Result, TraceError};
use crate::sample::Samples;
use crate::traced::Traced;

/// The format of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `strace -f -y -X raw`.
    Strace,
    /// Text of babeltrace.
    Lttng,
    /// Programs of syzkaller.
    Syzkaller,
    /// Logs of Metis.
    Metis,
    /// Calls recorded by our tracer.
    Record,
    /// Traces of Fathom.
    Trace,
}

/// The contents of one or more logs.
#[derive(Debug, Default)]
pub struct Imported {
    /// Counted calls.
    pub traced: Traced,
    /// Counted partitions, where the log has operations rather than calls.
    pub coverage: Option<Coverage>,
    /// Whether the log has results.
    pub has_outputs: bool,
    /// Lines that were not understood.
    pub skipped: u64,
}

/// Reads the lines of one format.
trait Reader {
    /// Takes one line; returns whether it was understood. Lines that say nothing about calls are
    /// understood.
    fn line(&mut self, line: &[u8]) -> bool;
    /// Returns the counts.
    fn finish(self: Box<Self>) -> Found;
}

/// The counts that a reader made, and what it could not know.
#[derive(Default)]
struct Found {
    samples: Samples,
    has_outputs: bool,
    limits: Vec<String>,
}

/// Reads logs and adds them up.
pub fn read(
    files: &[PathBuf],
    format: Option<Format>,
    mounts: &[PathBuf],
    how: Granularity,
) -> Result<Imported> {
    let mut all = Imported { has_outputs: true, ..Imported::default() };
    for file in files {
        let format = match format {
            Some(format) => format,
            None => guess(file)?,
        };
        if format == Format::Trace {
            let coverage = own::trace(file, how)?;
            all.coverage.get_or_insert_with(|| Coverage::new(how)).merge(&coverage);
            all.traced.tracer = "trace of fathom".to_owned();
            continue;
        }
        let (found, skipped) = read_lines(file, reader(format, mounts))?;
        all.traced.samples.merge(&found.samples);
        all.traced.tracer = format!("log of {format:?}").to_lowercase();
        all.traced.limits.extend(found.limits);
        all.has_outputs &= found.has_outputs;
        all.skipped += skipped;
        if skipped > 0 {
            let file = file.display();
            all.traced.limits.push(format!("{file}: {skipped} lines were not understood"));
        }
    }
    Ok(all)
}

fn reader(format: Format, mounts: &[PathBuf]) -> Box<dyn Reader> {
    match format {
        Format::Strace => Box::new(strace::Strace::new(mounts)),
        Format::Lttng => Box::new(lttng::Lttng::new(mounts)),
        Format::Syzkaller => Box::<syzkaller::Syzkaller>::default(),
        Format::Metis => Box::new(metis::Metis::new(mounts)),
        Format::Record | Format::Trace => Box::<own::Record>::default(),
    }
}

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Feeds every line to the reader; returns how many were not understood. Lines are taken from the
/// buffer where they lie: copying each would cost a tenth of the time.
fn read_lines(path: &Path, mut reader: Box<dyn Reader>) -> Result<(Found, u64)> {
    let failed =
        |source| TraceError::System { doing: format!("cannot read {}", path.display()), source };
    let mut file = File::open(path).map_err(failed)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let (mut have, mut lines, mut skipped) = (0, 0u64, 0);
    loop {
        if have == buffer.len() {
            buffer.resize(2 * have, 0);
        }
        let read = file.read(&mut buffer[have..]).map_err(failed)?;
        have += read;
        let mut rest = &buffer[..have];
        while let Some(end) = memchr::memchr(b'\n', rest) {
            lines += 1;
            skipped += u64::from(!reader.line(&rest[..end]));
            rest = &rest[end + 1..];
        }
        if read == 0 {
            if !rest.is_empty() {
                lines += 1;
                skipped += u64::from(!reader.line(rest));
            }
            break;
        }
        let left = rest.len();
        buffer.copy_within(have - left..have, 0);
        have = left;
    }
    if lines > 0 && skipped == lines {
        let reason = "no line of it was understood: is it another format?".to_owned();
        return Err(TraceError::Log { path: path.to_owned(), line: 1, reason });
    }
    Ok((reader.finish(), skipped))
}

/// Guesses the format from the first lines.
fn guess(path: &Path) -> Result<Format> {
    let failed =
        |source| TraceError::System { doing: format!("cannot read {}", path.display()), source };
    let mut start = vec![0; 1 << 16];
    let mut file = File::open(path).map_err(failed)?;
    let length = file.read(&mut start).map_err(failed)?;
    let text = String::from_utf8_lossy(&start[..length]);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let found = lines.by_ref().take(50).find_map(|line| {
        let line = line.trim();
        match () {
            () if line.contains("syscall_entry_") || line.contains("syscall_exit_") => {
                Some(Format::Lttng)
            }
            () if line.starts_with("{\"time_ns\"") => Some(Format::Record),
            () if line.starts_with('{') => Some(Format::Trace),
            () if line.contains("seqid = ") => Some(Format::Metis),
            () if syzkaller::looks_like(line) => Some(Format::Syzkaller),
            () if line.contains(") = ") || line.contains("<unfinished ...>") => {
                Some(Format::Strace)
            }
            () if metis::looks_like(line) => Some(Format::Metis),
            () => None,
        }
    });
    found.ok_or_else(|| TraceError::Log {
        path: path.to_owned(),
        line: 1,
        reason: "the format was not recognised: name it with --format".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_log_longer_than_the_buffer_is_read_whole() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        let line = "1 mkdir(\"/m/a\", 0755) = 0\n";
        let times = 3 * CHUNK_BYTES / line.len() + 1;
        // The last line has no end.
        let text = line.repeat(times);
        file.write_all(text.trim_end().as_bytes()).expect("it is written");
        let found = read(&[file.path().to_owned()], None, &[], Granularity::Powers).expect("a log");
        assert_eq!(found.traced.samples.calls(), times as u64);
        assert_eq!(found.skipped, 0);
    }
}
