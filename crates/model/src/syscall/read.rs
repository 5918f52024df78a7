//! read(2), pread(2): fs/read_write.c.

use fathom_core::flags::OpenFlags;
use fathom_core::{Errno, Kind, Slot};

use super::Model;
use super::file::OpenFile;

/// One call transfers at most this much (`MAX_RW_COUNT`).
pub(super) const TRANSFER_BYTES_MAX: u64 = 0x7fff_f000;

impl Model {
    pub(super) fn read(&mut self, slot: Slot, len: u64) -> Result<Vec<u8>, Errno> {
        let file = self.file(slot)?;
        let bytes = self.read_at(&file, file.position, len)?;
        self.seek(slot, file.position + bytes.len() as i64);
        Ok(bytes)
    }

    pub(super) fn pread(&mut self, slot: Slot, offset: i64, len: u64) -> Result<Vec<u8>, Errno> {
        if offset < 0 {
            return Err(Errno::EINVAL);
        }
        let file = self.file(slot)?;
        if file.kind == Kind::Fifo {
            return Err(Errno::ESPIPE);
        }
        self.read_at(&file, offset, len)
    }

    /// `vfs_read`
    fn read_at(&mut self, file: &OpenFile, offset: i64, len: u64) -> Result<Vec<u8>, Errno> {
        if !file.readable() {
            return Err(Errno::EBADF);
        }
        if file.kind == Kind::Fifo {
            return self.read_fifo(file, len);
        }
        verify_area(offset, len)?;
        if file.kind == Kind::Dir {
            let invalid = self.quirks().directory_read_invalid;
            return Err(if invalid { Errno::EINVAL } else { Errno::EISDIR });
        }
        let len = len.min(TRANSFER_BYTES_MAX);
        let size = self.volume.attr(file.ino)?.size;
        let mut bytes = Vec::new();
        if len == 0 || offset as u64 >= size {
            return Ok(bytes);
        }
        self.check_direct(file, offset, len)?;
        self.volume.read(file.ino, offset as u64, len as usize, &mut bytes)?;
        if !file.flags.contains(OpenFlags::O_NOATIME) {
            self.volume.note_access(file.ino);
        }
        Ok(bytes)
    }

    /// fs/pipe.c `pipe_read`. The pipes of the model hold no data: see [`Model::unspecified`].
    fn read_fifo(&self, file: &OpenFile, len: u64) -> Result<Vec<u8>, Errno> {
        let (_, writers) = self.fifo_peers(file.ino);
        if len == 0 || writers == 0 {
            Ok(Vec::new())
        } else if file.flags.contains(OpenFlags::O_NONBLOCK) {
            Err(Errno::EAGAIN)
        } else {
            Err(Errno::EINTR)
        }
    }

    /// A direct transfer goes by sectors of the disk (open(2), NOTES on `O_DIRECT`).
    pub(super) fn check_direct(&self, file: &OpenFile, offset: i64, len: u64) -> Result<(), Errno> {
        if file.flags.contains(OpenFlags::O_DIRECT) && !self.is_direct_aligned(offset, len) {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    pub(super) fn is_direct_aligned(&self, offset: i64, len: u64) -> bool {
        let align = u64::from(self.quirks().direct_align_bytes);
        (offset as u64).is_multiple_of(align) && len.is_multiple_of(align)
    }
}

/// The end of a transfer must be a possible offset (`rw_verify_area`).
pub(super) fn verify_area(offset: i64, len: u64) -> Result<(), Errno> {
    let end = i64::try_from(len).ok().and_then(|len| offset.checked_add(len));
    if offset < 0 || end.is_none() { Err(Errno::EINVAL) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use fathom_core::{Op, Outcome, Pattern};

    use super::super::testing::*;
    use super::*;

    fn pread(slot: Slot, offset: i64, len: u64) -> Op {
        Op::Pread { slot, offset, len }
    }

    #[test]
    fn data_comes_back_and_the_position_moves() {
        let mut m = model();
        let bytes = Pattern { seed: 7, len: 10 }.to_vec();
        given(&mut m, &[open(0, "f", OpenFlags::O_RDWR | OpenFlags::O_CREAT), write(0, 7, 10)]);
        assert_eq!(m.execute(&pread(0, 4, 100)), Outcome::data(&bytes[4..]));
        assert_eq!(m.execute(&Op::Read { slot: 0, len: 3 }), Outcome::data(b""));
        given(&mut m, &[open(0, "f", OpenFlags::empty())]);
        assert_eq!(m.execute(&Op::Read { slot: 0, len: 3 }), Outcome::data(&bytes[..3]));
        assert_eq!(m.execute(&Op::Read { slot: 0, len: 0 }), Outcome::data(b""));
        assert_eq!(m.execute(&Op::Read { slot: 0, len: 9 }), Outcome::data(&bytes[3..]));
    }

    #[test]
    fn errors() {
        let mut m = model();
        given(&mut m, &[file("f", 0o644), mkdir("d", 0o755), open(0, "f", OpenFlags::O_WRONLY)]);
        given(
            &mut m,
            &[
                open(1, "d", OpenFlags::empty()),
                open(2, "f", OpenFlags::O_PATH),
                open(3, "f", OpenFlags::empty()),
            ],
        );
        let table = [
            (pread(9, -1, 1), Err(E::EINVAL)),
            (pread(9, 0, 1), Err(E::EBADF)),
            (pread(0, 0, 0), Err(E::EBADF)),
            (pread(1, 0, 0), Err(E::EISDIR)),
            (pread(2, 0, 1), Err(E::EBADF)),
            (pread(3, i64::MAX, 1), Err(E::EINVAL)),
            (pread(3, i64::MAX - 1, 1), Ok(0)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn direct_transfers_go_by_sectors() {
        let mut m = model();
        given(
            &mut m,
            &[
                open(0, "f", OpenFlags::O_RDWR | OpenFlags::O_CREAT | OpenFlags::O_DIRECT),
                write(0, 1, 1024),
            ],
        );
        let table = [
            (pread(0, 512, 512), Ok(512)),
            (pread(0, 512, 4096), Ok(512)),
            (pread(0, 1, 512), Err(E::EINVAL)),
            (pread(0, 0, 1), Err(E::EINVAL)),
            (pread(0, 0, 0), Ok(0)),
            (pread(0, 1025, 1), Ok(0)),
            (write(0, 1, 1), Err(E::EINVAL)),
        ];
        check(&mut m, &table);
    }
}
