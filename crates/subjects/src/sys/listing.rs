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
    pub(super) const NEXT: usize = 8;
    pub(super) const RECORD_BYTES: usize = 16;
    pub(super) const KIND: usize = 18;
    pub(super) const NAME: usize = 19;
}

/// More than this is not asked for in one piece.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// What is remembered of a directory that is read in pieces.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    /// The positions where the pieces began.
    starts: Vec<i64>,
    /// The position where the last one ended.
    next: i64,
}

impl Pieces {
    /// Where the next piece begins, and whether that has to be sought.
    fn go(&mut self, back: u32) -> (i64, bool) {
        let count = self.starts.len();
        let back = back as usize;
        if count == 0 || back >= count {
            *self = Pieces::default();
            return (0, true);
        }
        if back > 0 {
            self.next = self.starts[count - back];
            self.starts.truncate(count - back);
        }
        (self.next, back > 0)
    }
}

impl Executor {
    /// The next piece of a listing is a first one.
    pub(super) fn end_listing(&mut self, slot: Slot) {
        if let Some(open) = &mut self.slots[usize::from(slot)] {
            open.pieces = Pieces::default();
        }
    }

    pub(super) fn list_piece(&mut self, slot: Slot, back: u32, len: u64) -> Outcome {
        let fd = self.fd(slot);
        let len = len.min(PIECE_BYTES_MAX) as usize;
        let place = self.slots[usize::from(slot)].as_mut().map(|open| open.pieces.go(back));
        let sought = match place {
            Some((position, true)) if is_dir(fd) => call::lseek(fd, position, libc::SEEK_SET),
            _ => Ok(0),
        };
        let view = &self.view;
        let (mut entries, mut next) = (Vec::new(), place.map_or(0, |(position, _)| position));
        loop {
            let to = self.buffer.slice(len);
            let count = match call::getdents64(fd, to) {
                Ok(count) => count as usize,
                Err(errno) => return Outcome::err(errno),
            };
            // In a directory that was removed there may be no positions; what is said of it comes first.
            if let Err(errno) = sought {
                return Outcome::err(errno);
            }
            for_each_record(&to[..count], |record| {
                next = record.next;
                if !view.hides_name(record.name.to_bytes()) {
                    entries.push((FsBytes::from(record.name.to_bytes()), record.letter));
                }
            });
            // A piece of which nothing is shown would look like the end.
            if count == 0 || !entries.is_empty() {
                break;
            }
        }
        if let (Some(open), Some((position, _))) = (&mut self.slots[usize::from(slot)], place) {
            open.pieces.starts.push(position);
            open.pieces.next = next;
        }
        entries.sort();
        Outcome { result: Ok(entries.len() as u64), payload: Payload::Entries(entries) }
    }

    pub(super) fn getdents(&mut self, slot: Slot) -> Outcome {
        self.end_listing(slot);
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
        for_each_record(&to[..count], |record| visit(record.name, record.letter));
        listed_bytes += count;
        if listed_bytes > LISTING_BYTES_MAX {
            return Err(Errno::EOVERFLOW);
        }
    }
}

/// One entry as the kernel returns it.
struct Record<'a> {
    name: &'a CStr,
    letter: char,
    /// The position behind it.
    next: i64,
}

fn for_each_record(mut rest: &[u8], mut visit: impl FnMut(Record<'_>)) {
    while rest.len() > dirent::NAME {
        let bytes =
            u16::from_ne_bytes([rest[dirent::RECORD_BYTES], rest[dirent::RECORD_BYTES + 1]]);
        let (this, others) = rest.split_at(usize::from(bytes).clamp(dirent::NAME, rest.len()));
        let next = this[dirent::NEXT..dirent::RECORD_BYTES].try_into().expect("eight bytes");
        if let Ok(name) = CStr::from_bytes_until_nul(&this[dirent::NAME..]) {
            let letter = letter(this[dirent::KIND]);
            visit(Record { name, letter, next: i64::from_ne_bytes(next) });
        }
        rest = others;
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
