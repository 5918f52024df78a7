//! Reads the contents of one file: digest and data segments.

use std::os::fd::RawFd;

use fathom_core::digest::{PAGE_BYTES, content_term};
use fathom_core::{Digest, Errno};

use super::buffer::Buffer;
use super::call;
use super::observe_entry::{OfCall, Stop};
use super::written::Written;

/// Size up to which a file is read from end to end; a larger one where it has data, where data was
/// written, at both ends, and in some other places.
const READ_WHOLE_BYTES: u64 = 1 << 20;

/// Bytes of one read: a multiple of the page of the content digest.
const CHUNK_BYTES: usize = 64 * PAGE_BYTES;

/// Of a data segment longer than this only the ends are read, for what lseek(2) says about them: a
/// file system without holes says that everything is data.
const SEGMENT_BYTES_MAX: u64 = 16 << 20;

/// Places of a large file that are read although nothing was written there.
const SAMPLES: u64 = 16;

const PAGE: u64 = PAGE_BYTES as u64;

/// Finds the data segments `[start, end)` as lseek(2) shows them.
pub(super) fn segments(fd: RawFd, size: u64) -> Result<Vec<(u64, u64)>, Errno> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match call::lseek(fd, at as i64, libc::SEEK_DATA) {
            Err(Errno::ENXIO) => break,
            answer => answer?,
        };
        let end = call::lseek(fd, start as i64, libc::SEEK_HOLE)?;
        if end <= start {
            // Data without a byte in it: asking on would never end.
            return Err(Errno::EIO);
        }
        found.push((start, end));
        at = end;
    }
    Ok(found)
}

/// Computes the content digest of a file of `size` bytes.
pub(super) fn digest(
    fd: RawFd,
    size: u64,
    written: &Written,
    buffer: &mut Buffer,
) -> Result<Digest, Stop> {
    let mut sum = Digest::default();
    if size <= READ_WHOLE_BYTES {
        // One byte more than there should be, so that a file that goes on is noticed.
        let end = add_range(fd, 0, size + 1, size, buffer, &mut sum)?;
        return if end == size {
            Ok(sum)
        } else {
            Err(Errno::EIO).of("pread, whose end is not st_size")
        };
    }
    for (start, end) in places(fd, size, written)?.below(size) {
        if add_range(fd, start, end, size, buffer, &mut sum)? < end {
            return Err(Errno::EIO).of("pread, which ends before st_size");
        }
    }
    Ok(sum)
}

/// The parts of a large file that are read: what lseek(2) calls data, whatever was written there or
/// elsewhere, both ends, and samples of the rest.
fn places(fd: RawFd, size: u64, written: &Written) -> Result<Written, Stop> {
    let mut places = written.clone();
    let found = match segments(fd, size) {
        // lseek(2): "whence is not valid", where there are no holes.
        Err(Errno::EINVAL | Errno::EOPNOTSUPP) => Vec::new(),
        found => found.of("lseek")?,
    };
    for (start, end) in found {
        match end - start > SEGMENT_BYTES_MAX {
            true => places.extend([(start, start + PAGE), (end - PAGE, end)]),
            false => places.extend([(start, end)]),
        }
    }
    places.extend([(0, PAGE), (size - PAGE, size)]);
    // The same places for the same size: what is read does not change from look to look.
    places.extend((0..SAMPLES).map(|sample| {
        let at = fathom_core::pattern::word(size, sample) % (size / PAGE) * PAGE;
        (at, at + PAGE)
    }));
    Ok(places)
}

/// Adds the pages of `[start, end)` to the sum; `start` is the beginning of a page. Returns the end
/// of the file if it came first, or `end`. The file should have `size` bytes.
fn add_range(
    fd: RawFd,
    start: u64,
    end: u64,
    size: u64,
    buffer: &mut Buffer,
    sum: &mut Digest,
) -> Result<u64, Stop> {
    let mut at = start;
    while at < end {
        let want = (end - at).min(CHUNK_BYTES as u64) as usize;
        let chunk = buffer.slice(want);
        let have = pread_until(fd, chunk, at, size).of("pread")?;
        for (index, page) in chunk[..have].chunks(PAGE_BYTES).enumerate() {
            *sum += content_term(at / PAGE_BYTES as u64 + index as u64, page);
        }
        at += have as u64;
        if have < want {
            break;
        }
    }
    Ok(at)
}

/// Reads until the buffer is full or the file ends.
pub(super) fn pread_full(fd: RawFd, to: &mut [u8], offset: u64) -> Result<usize, Errno> {
    pread_until(fd, to, offset, u64::MAX)
}

/// Reads until the buffer is full or the file ends. A read that was asked for more and stops exactly at
/// `end`, where the file should end, is not repeated to be told so once more.
fn pread_until(fd: RawFd, to: &mut [u8], offset: u64, end: u64) -> Result<usize, Errno> {
    let mut have = 0;
    while have < to.len() {
        let at = offset + have as u64;
        match call::pread(fd, &mut to[have..], at as i64)? {
            0 => break,
            count => have += count as usize,
        }
        if offset + have as u64 == end {
            break;
        }
    }
    Ok(have)
}
