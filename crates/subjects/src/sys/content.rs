//! Reads the contents of one file: digest and data segments.

use std::os::fd::RawFd;

use fathom_core::digest::{PAGE_BYTES, content_term};
use fathom_core::{Digest, Errno};

use super::buffer::Buffer;
use super::call;
use super::observe_entry::{OfCall, Stop};

/// Size up to which a file is read from end to end; in a larger one holes are skipped.
const READ_WHOLE_BYTES: u64 = 1 << 20;

/// Bytes of one read: a multiple of the page of the content digest.
const CHUNK_BYTES: usize = 64 * PAGE_BYTES;

/// Bytes of data in one file above which the observation gives up: comparing would take minutes.
const DATA_BYTES_MAX: u64 = 1 << 30;

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
pub(super) fn digest(fd: RawFd, size: u64, buffer: &mut Buffer) -> Result<Digest, Stop> {
    let mut sum = Digest::default();
    if size <= READ_WHOLE_BYTES {
        // One byte more than there should be, so that a file that goes on is noticed.
        let end = add_range(fd, 0, size + 1, buffer, &mut sum)?;
        return if end == size {
            Ok(sum)
        } else {
            Err(Errno::EIO).of("pread, whose end is not st_size")
        };
    }
    let segments = segments(fd, size).of("lseek")?;
    let data_bytes: u64 = segments.iter().map(|(start, end)| end - start).sum();
    if data_bytes > DATA_BYTES_MAX {
        return Err(Stop::fault(format!("{data_bytes} bytes in one file are too many to compare")));
    }
    let mut done = 0;
    for (start, end) in segments {
        // Segments end at blocks, which may be smaller than pages; every page counts once.
        let start = (start - start % PAGE_BYTES as u64).max(done);
        let end = end.next_multiple_of(PAGE_BYTES as u64).min(size);
        done = done.max(add_range(fd, start, end, buffer, &mut sum)?);
        if done < end {
            return Err(Errno::EIO).of("pread, which ends before st_size");
        }
    }
    Ok(sum)
}

/// Adds the pages of `[start, end)` to the sum; `start` is the beginning of a page. Returns the end
/// of the file if it came first, or `end`.
fn add_range(
    fd: RawFd,
    start: u64,
    end: u64,
    buffer: &mut Buffer,
    sum: &mut Digest,
) -> Result<u64, Stop> {
    let mut at = start;
    while at < end {
        let want = (end - at).min(CHUNK_BYTES as u64) as usize;
        let chunk = buffer.slice(want);
        let have = pread_full(fd, chunk, at).of("pread")?;
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
    let mut have = 0;
    while have < to.len() {
        match call::pread(fd, &mut to[have..], (offset + have as u64) as i64)? {
            0 => break,
            count => have += count as usize,
        }
    }
    Ok(have)
}
