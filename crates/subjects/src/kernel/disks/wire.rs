//! The part of the FUSE protocol that a disk needs (the kernel's include/uapi/linux/fuse.h, 7.31).

/// Operations.
pub(super) const LOOKUP: u32 = 1;
pub(super) const FORGET: u32 = 2;
pub(super) const GETATTR: u32 = 3;
pub(super) const SETATTR: u32 = 4;
pub(super) const OPEN: u32 = 14;
pub(super) const READ: u32 = 15;
pub(super) const WRITE: u32 = 16;
pub(super) const STATFS: u32 = 17;
pub(super) const RELEASE: u32 = 18;
pub(super) const FSYNC: u32 = 20;
pub(super) const FLUSH: u32 = 25;
pub(super) const INIT: u32 = 26;
pub(super) const INTERRUPT: u32 = 36;
pub(super) const DESTROY: u32 = 38;
pub(super) const BATCH_FORGET: u32 = 42;
pub(super) const FALLOCATE: u32 = 43;

/// Bytes of the header of a request, of an answer, and of a write before its data.
pub(super) const IN_HEADER: usize = 40;
pub(super) const OUT_HEADER: usize = 16;
pub(super) const WRITE_HEADER: usize = 40;

/// Flags of `INIT`: reads and direct transfers may overlap, writes may be large.
const ASYNC_READ: u32 = 1;
const BIG_WRITES: u32 = 1 << 5;
const ASYNC_DIO: u32 = 1 << 15;
const MAX_PAGES: u32 = 1 << 22;

/// Flags of an open file: nothing is cached, writes may overlap.
const DIRECT_IO: u32 = 1;
const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

/// The largest write.
pub(super) const WRITE_MAX: usize = 1 << 20;

/// How many requests may be in flight.
const BACKGROUND_MAX: u16 = 64;

/// The number of the only file; that of the root is 1.
pub(super) const FILE: u64 = 2;

/// The name of the only file.
pub(super) const FILE_NAME: &[u8] = b"disk";

/// A 32-bit field of a request.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |field| u32::from_ne_bytes(*field))
}

/// A 64-bit field of a request.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let field = bytes.get(at..).and_then(|rest| rest.first_chunk());
    field.map_or(0, |field| u64::from_ne_bytes(*field))
}

/// An answer under construction: at most a header and 128 bytes.
pub(super) struct Answer {
    pub(super) bytes: [u8; OUT_HEADER + 128],
    pub(super) len: usize,
}

impl Answer {
    /// To the request of this number; `error` is an errno or 0.
    pub(super) fn new(unique: u64, error: i32) -> Answer {
        let mut answer = Answer { bytes: [0; OUT_HEADER + 128], len: 0 };
        answer.u32(0).u32((-error) as u32).u64(unique);
        answer
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Answer {
        self.put(&value.to_ne_bytes())
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Answer {
        self.put(&value.to_ne_bytes())
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Answer {
        self.put(&value.to_ne_bytes())
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Answer {
        if let Some(to) = self.bytes.get_mut(self.len..self.len + bytes.len()) {
            to.copy_from_slice(bytes);
            self.len += bytes.len();
        }
        self
    }

    /// Appends zeros.
    pub(super) fn zeros(&mut self, count: usize) -> &mut Answer {
        self.len = (self.len + count).min(self.bytes.len());
        self
    }

    /// Writes the length, that of `more` bytes behind included.
    pub(super) fn finish(&mut self, more: usize) {
        let len = (self.len + more) as u32;
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
    }

    /// `struct fuse_attr` of the root or of the file.
    fn attributes(&mut self, node: u64, disk_bytes: u64) -> &mut Answer {
        let is_file = node == FILE;
        let size = if is_file { disk_bytes } else { 0 };
        let mode = if is_file { libc::S_IFREG | 0o600 } else { libc::S_IFDIR | 0o700 };
        self.u64(node).u64(size).u64(size / 512);
        // Times and their nanoseconds.
        self.zeros(3 * 8 + 3 * 4).u32(mode).u32(1);
        // Owner, group, device; block size; flags.
        self.zeros(3 * 4).u32(4096).u32(0)
    }

    /// The answer to `LOOKUP`.
    pub(super) fn entry(&mut self, disk_bytes: u64) {
        self.u64(FILE).u64(0).u64(3600).u64(3600).u64(0).attributes(FILE, disk_bytes);
    }

    /// The answer to `GETATTR` and `SETATTR`.
    pub(super) fn attr(&mut self, node: u64, disk_bytes: u64) {
        self.u64(3600).u64(0).attributes(node, disk_bytes);
    }

    /// The answer to `STATFS`.
    pub(super) fn statfs(&mut self, disk_bytes: u64) {
        self.u64(disk_bytes / 4096).zeros(4 * 8).u32(4096).u32(255).u32(4096).zeros(7 * 4);
    }

    /// The answer to `OPEN`.
    pub(super) fn opened(&mut self) {
        self.u64(1).u32(DIRECT_IO | PARALLEL_DIRECT_WRITES).u32(0);
    }

    /// The answer to `INIT`, which was given these flags.
    pub(super) fn init(&mut self, offered: u32) {
        let wanted = ASYNC_READ | BIG_WRITES | ASYNC_DIO | MAX_PAGES;
        self.u32(7).u32(31).u32(0).u32(offered & wanted);
        self.u16(BACKGROUND_MAX).u16(BACKGROUND_MAX).u32(WRITE_MAX as u32).u32(1);
        self.u16((WRITE_MAX / 4096) as u16).u16(0).zeros(8 * 4);
    }
}
