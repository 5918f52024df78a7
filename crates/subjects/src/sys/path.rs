//! [`CPath`]: a byte string as the kernel takes it, without a heap allocation for ordinary lengths.

use std::ffi::CStr;

use fathom_core::FsBytes;

use super::guard::Refusal;

/// Bytes of the longest string (with its NUL) that is kept on the stack.
const INLINE_BYTES: usize = 128;

/// A NUL-terminated copy of a path or name.
pub(super) struct CPath {
    inline: [u8; INLINE_BYTES],
    /// The bytes of a longer string; else empty.
    heap: Vec<u8>,
}

impl CPath {
    /// Copies a string. Refuses one with a NUL inside: there is no way to hand it to the kernel.
    pub(super) fn new(text: &FsBytes) -> Result<CPath, Refusal> {
        let bytes = text.as_bytes();
        if bytes.contains(&0) {
            return Err(Refusal::Nul(text.clone()));
        }
        let mut path = CPath { inline: [0; INLINE_BYTES], heap: Vec::new() };
        if bytes.len() < INLINE_BYTES {
            path.inline[..bytes.len()].copy_from_slice(bytes);
        } else {
            path.heap.reserve_exact(bytes.len() + 1);
            path.heap.extend_from_slice(bytes);
            path.heap.push(0);
        }
        Ok(path)
    }

    /// The string for a call.
    pub(super) fn c(&self) -> &CStr {
        let bytes = if self.heap.is_empty() { &self.inline[..] } else { &self.heap };
        CStr::from_bytes_until_nul(bytes).expect("new() put a NUL at the end")
    }
}
