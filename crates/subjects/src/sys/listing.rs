//! Reads directory entries as getdents64(2) returns them.

use std::ffi::CStr;
use std::os::fd::RawFd;

use fathom_core::{Errno, FsBytes, Kind, Outcome, Payload, Slot};

use super::buffer::Buffer;
use super::{Executor, call};

/// Bytes that one call asks for: the same as the C library's `readdir`.
const CHUNK_BYTES: usize = 32 << 10;

/// Bytes above which a listing is taken for one that never ends (`EOVERFLOW`): a million long
/// names.
const LISTING_BYTES_MAX: usize = 256 << 20;

/// Offsets in `struct linux_dirent64` (getdents(2)).
mod dirent {
    pub(super) const RECORD_BYTES: usize = 16;
    pub(super) const KIND: usize = 18;
    pub(super) const NAME: usize = 19;
}

impl Executor {
    pub(super) fn getdents(&mut self, slot: Slot) -> Outcome {
        let fd = self.fd(slot);
        // Only a directory is rewound: the position of a file is not ours to move.
        if is_dir(fd) {
            let _ = call::lseek(fd, 0, libc::SEEK_SET);
        }
        let mut entries: Vec<(FsBytes, char)> = Vec::new();
        let view = &self.view;
        let listed = for_each(fd, &mut self.buffer, |name, letter| {
            if !view.hides_name(name.to_bytes()) {
                entries.push((FsBytes::from(name.to_bytes()), letter));
            }
        });
        entries.sort();
        match listed {
            Ok(()) => {
                Outcome { result: Ok(entries.len() as u64), payload: Payload::Entries(entries) }
            }
            Err(errno) => Outcome::err(errno),
        }
    }
}

fn is_dir(fd: RawFd) -> bool {
    call::statx(fd, c"", libc::AT_EMPTY_PATH)
        .is_ok_and(|stat| Kind::of_mode(stat.stx_mode.into()) == Some(Kind::Dir))
}

/// Calls `visit` with the name and type letter of every entry from the present position on.
pub(super) fn for_each(
    fd: RawFd,
    buffer: &mut Buffer,
    mut visit: impl FnMut(&CStr, char),
) -> Result<(), Errno> {
    let mut listed_bytes = 0;
    loop {
        let to = buffer.slice(CHUNK_BYTES);
        let count = call::getdents64(fd, to)? as usize;
        if count == 0 {
            return Ok(());
        }
        let mut rest = &to[..count];
        while rest.len() > dirent::NAME {
            let record =
                u16::from_ne_bytes([rest[dirent::RECORD_BYTES], rest[dirent::RECORD_BYTES + 1]]);
            let (this, others) = rest.split_at(usize::from(record).clamp(dirent::NAME, rest.len()));
            if let Ok(name) = CStr::from_bytes_until_nul(&this[dirent::NAME..]) {
                visit(name, letter(this[dirent::KIND]));
            }
            rest = others;
        }
        listed_bytes += count;
        if listed_bytes > LISTING_BYTES_MAX {
            return Err(Errno::EOVERFLOW);
        }
    }
}

/// Converts a `DT_…` value to its letter: the type bits of a mode, shifted (the kernel's
/// `fs_types.h`).
fn letter(kind: u8) -> char {
    Kind::of_mode(u32::from(kind) << 12).map_or('?', Kind::letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_those_of_ls() {
        let kinds = [libc::DT_REG, libc::DT_DIR, libc::DT_LNK, libc::DT_FIFO, libc::DT_SOCK];
        assert_eq!(kinds.map(letter), ['-', 'd', 'l', 'p', 's']);
        assert_eq!([libc::DT_CHR, libc::DT_BLK, libc::DT_UNKNOWN].map(letter), ['c', 'b', '?']);
    }
}
