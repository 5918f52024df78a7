//! [`Buffer`]: the memory for the data of calls, page-aligned so that `O_DIRECT` judges offset and
//! length only, reused by all operations of an executor.
#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};

use fathom_core::{Pattern, pattern};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// Greatest number of bytes that one operation may move. Memory is only used as far as it is
/// touched.
pub(super) const BUFFER_BYTES: usize = 64 << 20;

/// A private anonymous mapping of [`BUFFER_BYTES`].
pub(super) struct Buffer {
    start: NonNull<u8>,
}

impl Buffer {
    /// Reserves the address range.
    pub(super) fn new() -> io::Result<Buffer> {
        let (read_write, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address that the kernel chooses disturbs nothing.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), BUFFER_BYTES, read_write, flags)? };
        Ok(Buffer { start: NonNull::new(start.cast()).expect("mmap never returns page zero") })
    }

    /// The first `len` bytes, at most [`BUFFER_BYTES`]; they hold what earlier use left.
    pub(super) fn slice(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= BUFFER_BYTES, "callers refuse or clamp longer operations");
        // SAFETY: the mapping is that long, initialised by the kernel with zeros, only reachable
        // through `self`, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), len) }
    }

    /// Fills the buffer with a pattern of at most [`BUFFER_BYTES`]; returns its bytes.
    pub(super) fn pattern(&mut self, data: Pattern) -> &[u8] {
        let bytes = self.slice(data.len as usize);
        for (index, chunk) in bytes.chunks_mut(8).enumerate() {
            let word = pattern::word(data.seed, index as u64).to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and no slice of it outlives `self`. A failure would only leak.
        let _ = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), BUFFER_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_the_core_and_page_aligned() {
        let mut buffer = Buffer::new().unwrap();
        for len in [0, 1, 7, 8, 9, 4096, 5001] {
            let data = Pattern { seed: 42 + len, len };
            assert_eq!(buffer.pattern(data), data.to_vec());
        }
        assert_eq!(buffer.slice(1).as_ptr() as usize % 4096, 0);
    }
}
