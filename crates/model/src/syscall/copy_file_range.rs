//! copy_file_range(2): fs/read_write.c `generic_copy_file_checks`, `vfs_copy_file_range`.

use fathom_core::flags::OpenFlags;
use fathom_core::{Errno, Kind, Slot};

use super::Model;
use super::file::OpenFile;
use super::read::{TRANSFER_BYTES_MAX, verify_area};
use super::write::room_below;

/// A slot, and an offset unless the file position counts.
type At = (Slot, Option<i64>);

impl Model {
    pub(super) fn copy_file_range(
        &mut self,
        from: At,
        to: At,
        len: u64,
        flags: u32,
    ) -> Result<u64, Errno> {
        let (source, target) = (self.file(from.0)?, self.file(to.0)?);
        let from_offset = from.1.unwrap_or(source.position);
        let to_offset = to.1.unwrap_or(target.position);
        if flags != 0 {
            return Err(Errno::EINVAL);
        }
        check_files(&source, &target)?;
        let len = self.copy_len((&source, from_offset), (&target, to_offset), len)?;
        verify_area(from_offset, len)?;
        verify_area(to_offset, len)?;
        if len == 0 {
            return Ok(0);
        }
        if !self.quirks().copy_range {
            return Err(Errno::EINVAL);
        }
        let len = self.writable_bytes(to_offset as u64, len)?;
        self.drop_privileges(target.ino)?;
        let (from_start, to_start) = (from_offset as u64, to_offset as u64);
        let len = len.min(TRANSFER_BYTES_MAX);
        let copied = self.volume.copy_range(source.ino, from_start, target.ino, to_start, len)?;
        if from.1.is_none() {
            self.seek(from.0, from_offset + copied as i64);
        }
        if to.1.is_none() {
            self.seek(to.0, to_offset + copied as i64);
        }
        Ok(copied)
    }

    /// How much can be copied. Offsets are compared as the kernel does, negative ones too: they are
    /// refused only afterwards.
    fn copy_len(
        &self,
        from: (&OpenFile, i64),
        to: (&OpenFile, i64),
        len: u64,
    ) -> Result<u64, Errno> {
        let ((source, from_offset), (target, to_offset)) = (from, to);
        for offset in [from_offset, to_offset] {
            (offset as u64).checked_add(len).ok_or(Errno::EOVERFLOW)?;
        }
        let size = self.volume.attr(source.ino)?.size;
        let len = match from_offset >= size as i64 {
            true => 0,
            false => len.min(size.wrapping_sub(from_offset as u64)),
        };
        let len = match u64::try_from(to_offset) {
            Ok(to_offset) => room_below(self.quirks().vfs_file_bytes_max, to_offset, len)?,
            Err(_) => len,
        };
        let (from_end, to_end) =
            (from_offset.wrapping_add(len as i64), to_offset.wrapping_add(len as i64));
        if source.ino == target.ino && to_end > from_offset && to_offset < from_end {
            return Err(Errno::EINVAL);
        }
        Ok(len)
    }
}

/// `generic_file_rw_checks`
fn check_files(source: &OpenFile, target: &OpenFile) -> Result<(), Errno> {
    if source.kind == Kind::Dir || target.kind == Kind::Dir {
        return Err(Errno::EISDIR);
    }
    if source.kind != Kind::File || target.kind != Kind::File {
        return Err(Errno::EINVAL);
    }
    if !source.readable() || !target.writable() || target.flags.contains(OpenFlags::O_APPEND) {
        return Err(Errno::EBADF);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use fathom_core::{Mode, Op, Pattern};

    use super::super::testing::*;
    use super::*;
    use crate::quirks::Quirks;

    fn copy(from: At, to: At, len: u64) -> Op {
        copy_flags(from, to, len, 0)
    }

    fn copy_flags(from: At, to: At, len: u64, flags: u32) -> Op {
        let ((from, from_offset), (to, to_offset)) = (from, to);
        Op::CopyFileRange { from, from_offset, to, to_offset, len, flags }
    }

    /// Slot 0: five bytes, read and write; 1: an empty file; 2: append; 3: read only; 4: write only;
    /// 5: a directory; 6: a FIFO; 7: `O_PATH`.
    fn furnished() -> Model {
        let (create, rw) = (OpenFlags::O_CREAT | OpenFlags::O_RDWR, OpenFlags::O_RDWR);
        let limit = 1 << 40;
        let quirks =
            Quirks { file_bytes_max: limit, vfs_file_bytes_max: limit, ..Quirks::default() };
        let mut m = model_with(quirks);
        given(
            &mut m,
            &[open(0, "f", create), write(0, 7, 5), open(0, "f", rw), open(1, "g", create)],
        );
        given(
            &mut m,
            &[
                open(2, "f", rw | OpenFlags::O_APPEND),
                open(3, "f", OpenFlags::empty()),
                open(4, "f", OpenFlags::O_WRONLY),
            ],
        );
        given(
            &mut m,
            &[
                open(5, ".", OpenFlags::empty()),
                mknod("p", Mode::S_IFIFO | 0o666),
                open(6, "p", rw),
                open(7, "f", OpenFlags::O_PATH),
            ],
        );
        m
    }

    #[test]
    fn files_are_checked_before_ranges() {
        let at = |slot| (slot, Some(0));
        let table = [
            (copy_flags(at(9), at(1), 1, 1), Err(E::EBADF)),
            (copy_flags(at(0), at(7), 1, 1), Err(E::EBADF)),
            (copy_flags(at(5), at(1), 1, 1), Err(E::EINVAL)),
            (copy(at(5), at(4), 1), Err(E::EISDIR)),
            (copy(at(0), at(5), 1), Err(E::EISDIR)),
            (copy(at(6), at(3), 1), Err(E::EINVAL)),
            (copy(at(4), at(1), 1), Err(E::EBADF)),
            (copy(at(0), at(3), 1), Err(E::EBADF)),
            (copy(at(0), at(2), 1), Err(E::EBADF)),
        ];
        check_each(&furnished(), &table);
    }

    #[test]
    fn ranges() {
        let ranges = |from, to, len| copy((0, Some(from)), (1, Some(to)), len);
        let same = |from, to, len| copy((0, Some(from)), (0, Some(to)), len);
        let table = [
            (ranges(-1, 0, 1), Err(E::EOVERFLOW)),
            (ranges(-1, 0, 0), Err(E::EINVAL)),
            (ranges(-1000, 0, 5), Err(E::EINVAL)),
            (ranges(0, -1, 1), Err(E::EOVERFLOW)),
            (ranges(0, -1000, 5), Err(E::EINVAL)),
            (ranges(0, 0, u64::MAX), Ok(5)),
            (ranges(1, 0, u64::MAX), Err(E::EOVERFLOW)),
            (ranges(0, 1 << 40, 1), Err(E::EFBIG)),
            (ranges(100, 1 << 40, 0), Err(E::EFBIG)),
            (ranges(0, (1 << 40) - 1, 5), Ok(1)),
            (ranges(5, 0, 1), Ok(0)),
            (same(0, 0, 0), Ok(0)),
            (same(0, 0, 1), Err(E::EINVAL)),
            (same(0, 4, 5), Err(E::EINVAL)),
            (same(0, 4, 1), Ok(1)),
            (same(0, 5, 9), Ok(5)),
            (same(10, 10, 9), Ok(0)),
        ];
        check_each(&furnished(), &table);
    }

    #[test]
    fn positions_move_unless_offsets_are_given() {
        let mut m = furnished();
        check(
            &mut m,
            &[(copy((0, None), (1, Some(2)), 3), Ok(3)), (copy((0, None), (1, None), 9), Ok(2))],
        );
        let bytes = Pattern { seed: 7, len: 5 }.to_vec();
        let expected = [bytes[3], bytes[4], bytes[0], bytes[1], bytes[2]];
        data_of(m.execute(&Op::Pread { slot: 1, offset: 0, len: 9 }), &expected);
        data_of(m.execute(&Op::Read { slot: 1, len: 9 }), &expected[2..]);
    }
}
