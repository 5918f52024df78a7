//! write(2), pwrite(2): fs/read_write.c, mm/filemap.c.

use fathom_core::flags::OpenFlags;
use fathom_core::{Errno, Kind, Pattern, Slot};

use super::Model;
use super::file::OpenFile;
use super::read::{TRANSFER_BYTES_MAX, verify_area};

impl Model {
    pub(super) fn write(&mut self, slot: Slot, data: Pattern) -> Result<u64, Errno> {
        let file = self.file(slot)?;
        let (start, written) = self.write_at(&file, file.position, data)?;
        if written > 0 && file.kind == Kind::File {
            self.seek(slot, start + written as i64);
        }
        Ok(written)
    }

    /// With `O_APPEND`, Linux appends whatever the offset (pwrite(2), BUGS).
    pub(super) fn pwrite(&mut self, slot: Slot, offset: i64, data: Pattern) -> Result<u64, Errno> {
        if offset < 0 {
            return Err(Errno::EINVAL);
        }
        let file = self.file(slot)?;
        if file.kind == Kind::Fifo {
            return Err(Errno::ESPIPE);
        }
        self.write_at(&file, offset, data).map(|(_, written)| written)
    }

    /// `vfs_write`: where the data went, and how much of it.
    fn write_at(
        &mut self,
        file: &OpenFile,
        offset: i64,
        data: Pattern,
    ) -> Result<(i64, u64), Errno> {
        if !file.writable() {
            return Err(Errno::EBADF);
        }
        if file.kind == Kind::Fifo {
            return self.write_fifo(file, data.len).map(|written| (0, written));
        }
        verify_area(offset, data.len)?;
        let len = data.len.min(TRANSFER_BYTES_MAX);
        if len == 0 {
            return Ok((offset, 0));
        }
        let append = file.flags.contains(OpenFlags::O_APPEND);
        let start = if append { self.volume.attr(file.ino)?.size as i64 } else { offset };
        let len = self.writable_bytes(start as u64, len)?;
        self.check_direct(file, start, len)?;
        // Before the write, and even if that then finds no space (`file_modified`).
        self.drop_privileges(file.ino)?;
        let bytes = Pattern { seed: data.seed, len }.to_vec();
        let written = self.volume.write(file.ino, start as u64, &bytes)?;
        Ok((start, written as u64))
    }

    /// How much of `len` bytes at `offset` the largest possible file has room for.
    pub(super) fn writable_bytes(&self, offset: u64, len: u64) -> Result<u64, Errno> {
        room_below(self.quirks().file_bytes_max, offset, len)
    }

    /// fs/pipe.c `pipe_write`. The pipes of the model have no room: see [`Model::unspecified`].
    fn write_fifo(&self, file: &OpenFile, len: u64) -> Result<u64, Errno> {
        let (readers, _) = self.fifo_peers(file.ino);
        if len == 0 {
            Ok(0)
        } else if readers == 0 {
            Err(Errno::EPIPE)
        } else if file.flags.contains(OpenFlags::O_NONBLOCK) {
            Err(Errno::EAGAIN)
        } else {
            Err(Errno::EINTR)
        }
    }
}

/// How much of `len` bytes at `offset` lies below `limit` (`generic_write_check_limits`).
pub(super) fn room_below(limit: u64, offset: u64, len: u64) -> Result<u64, Errno> {
    match limit.saturating_sub(offset) {
        0 => Err(Errno::EFBIG),
        room => Ok(len.min(room)),
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::{Mode, Op, Outcome};

    use super::super::testing::*;
    use super::*;
    use crate::quirks::Quirks;

    fn pwrite(slot: Slot, offset: i64, len: u64) -> Op {
        Op::Pwrite { slot, offset, data: Pattern { seed: 1, len } }
    }

    const CREATE: OpenFlags = OpenFlags::O_CREAT.union(OpenFlags::O_RDWR);

    #[test]
    fn errors() {
        let mut m = model();
        given(
            &mut m,
            &[
                open(0, "f", CREATE),
                open(1, "f", OpenFlags::empty()),
                mkdir("d", 0o755),
                open(2, "d", OpenFlags::empty()),
            ],
        );
        let table = [
            (pwrite(9, -1, 1), Err(E::EINVAL)),
            (pwrite(9, 0, 1), Err(E::EBADF)),
            (pwrite(1, 0, 0), Err(E::EBADF)),
            (pwrite(2, 0, 1), Err(E::EBADF)),
            (pwrite(0, i64::MAX, 1), Err(E::EINVAL)),
            (pwrite(0, i64::MAX, 0), Ok(0)),
        ];
        check(&mut m, &table);
        assert_eq!(attr(&m, "f").size, 0);
    }

    #[test]
    fn the_largest_file_ends_a_write() {
        let mut m = model_with(Quirks { file_bytes_max: 10_000, ..Quirks::default() });
        given(&mut m, &[open(0, "f", CREATE)]);
        let table = [
            (pwrite(0, 10_000, 1), Err(E::EFBIG)),
            (pwrite(0, 10_000, 0), Ok(0)),
            (pwrite(0, 9_999, 5), Ok(1)),
            (Op::Truncate { target: at("f"), len: 10_001 }, Err(E::EFBIG)),
        ];
        check(&mut m, &table);
        assert_eq!(attr(&m, "f").size, 10_000);
    }

    #[test]
    fn appending_ignores_positions_and_offsets() {
        let mut m = model();
        given(
            &mut m,
            &[open(0, "f", CREATE | OpenFlags::O_APPEND), write(0, 1, 10), pwrite(0, 0, 5)],
        );
        assert_eq!(attr(&m, "f").size, 15);
        given(
            &mut m,
            &[
                Op::Lseek { slot: 0, offset: 0, whence: fathom_core::flags::Whence::Set },
                write(0, 1, 2),
            ],
        );
        assert_eq!(attr(&m, "f").size, 17);
        assert_eq!(m.execute(&Op::Read { slot: 0, len: 5 }), Outcome::data(b""));
    }

    #[test]
    fn setuid_and_setgid_go_unless_root_writes() {
        // Mode before; mode after a write by root, by the owner in the group, by a stranger.
        let table = [
            (0o6777, [0o6777, 0o0777, 0o0777]),
            (0o2666, [0o2666, 0o2666, 0o0666]),
            (0o2676, [0o2676, 0o0676, 0o0676]),
            (0o1666, [0o1666, 0o1666, 0o1666]),
        ];
        for (before, after) in table {
            for (uid, expected) in [0, ALICE, BOB].into_iter().zip(after) {
                let mut m = model();
                given(&mut m, &[file("f", 0o666), chown("f", ALICE, ALICE), chmod("f", before)]);
                given(
                    &mut m,
                    &[become_user(uid), open(0, "f", OpenFlags::O_WRONLY), write(0, 1, 0)],
                );
                assert_eq!(mode_of(&m, "f"), before);
                given(&mut m, &[write(0, 1, 1)]);
                assert_eq!(Mode(mode_of(&m, "f")), Mode(expected), "{before:o} written by {uid}");
            }
        }
    }
}
