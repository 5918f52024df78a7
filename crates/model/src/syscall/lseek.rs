//! lseek(2): fs/read_write.c `generic_file_llseek_size`, `vfs_setpos`.

use fathom_core::flags::Whence;
use fathom_core::{Errno, Kind, Op, Outcome, Slot};

use super::Model;
use super::file::OpenFile;

impl Model {
    pub(super) fn lseek(&mut self, slot: Slot, offset: i64, whence: Whence) -> Result<u64, Errno> {
        let file = self.file(slot)?;
        if file.kind == Kind::Fifo {
            return Err(Errno::ESPIPE);
        }
        self.end_listing(slot);
        let position = self.seek_target(&file, offset, whence)?;
        self.seek(slot, position);
        Ok(position as u64)
    }

    /// Whether `found` is an answer that lseek(2) allows to `SEEK_DATA` or `SEEK_HOLE` in a regular file:
    /// how a file system allocates is its own business, but it must not skip a byte that is not zero,
    /// nor call one a hole. `None` if the call is another one, or its answer is known exactly.
    pub fn segment_is_allowed(&self, op: &Op, found: &Outcome) -> Option<bool> {
        let Op::Lseek { slot, offset, whence } = op else { return None };
        let file = self.file(*slot).ok().filter(|file| file.kind == Kind::File)?;
        let size = self.volume.attr(file.ino).ok()?.size;
        let offset = match u64::try_from(*offset) {
            Ok(offset) => offset,
            Err(_) if self.quirks().seek_negative_is_zero => 0,
            Err(_) => return None,
        };
        if offset >= size || !matches!(whence, Whence::Data | Whence::Hole) {
            return None;
        }
        let byte_from = |offset| self.volume.first_byte_from(file.ino, offset).ok().flatten();
        Some(match (whence, found.result) {
            (Whence::Data, Ok(data)) => {
                (offset..size).contains(&data) && byte_from(offset).is_none_or(|byte| byte >= data)
            }
            (Whence::Data, Err(Errno::ENXIO)) => byte_from(offset).is_none(),
            (_, Ok(hole)) => (offset..=size).contains(&hole) && byte_from(hole) != Some(hole),
            (_, Err(_)) => false,
        })
    }

    fn seek_target(&self, file: &OpenFile, offset: i64, whence: Whence) -> Result<i64, Errno> {
        let size = self.volume.attr(file.ino)?.size as i64;
        let position = match whence {
            Whence::Set => Some(offset),
            Whence::Cur => file.position.checked_add(offset),
            Whence::End => size.checked_add(offset),
            Whence::Data | Whence::Hole => return self.seek_segment(file, offset, whence),
        };
        match position {
            Some(position) if (0..=self.position_max(file)).contains(&position) => Ok(position),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The largest position: that of the largest file, but any number in most directories, where
    /// positions are cookies.
    fn position_max(&self, file: &OpenFile) -> i64 {
        match file.kind {
            Kind::Dir if self.quirks().directory_seek_limited => {
                self.quirks().vfs_file_bytes_max as i64
            }
            Kind::Dir => i64::MAX,
            _ => self.quirks().file_bytes_max as i64,
        }
    }

    fn seek_segment(&self, file: &OpenFile, offset: i64, whence: Whence) -> Result<i64, Errno> {
        if file.kind == Kind::Dir {
            // Differs between file systems: see [`Model::unspecified`].
            return Err(Errno::EINVAL);
        }
        let offset = match u64::try_from(offset) {
            Ok(offset) => offset,
            Err(_) if self.quirks().seek_negative_is_zero => 0,
            Err(_) => return Err(Errno::ENXIO),
        };
        let found = match whence {
            Whence::Data => self.volume.seek_data(file.ino, offset),
            _ => self.volume.seek_hole(file.ino, offset),
        };
        found.map(|position| position as i64)
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::OpenFlags;
    use fathom_core::{Mode, Pattern};

    use super::super::testing::*;
    use super::*;
    use crate::quirks::Quirks;

    fn lseek(offset: i64, whence: Whence) -> Op {
        Op::Lseek { slot: 0, offset, whence }
    }

    fn sparse(quirks: Quirks) -> Model {
        let mut m = model_with(quirks);
        let data = Pattern { seed: 1, len: 10 };
        given(
            &mut m,
            &[
                open(0, "f", OpenFlags::O_CREAT | OpenFlags::O_RDWR),
                Op::Pwrite { slot: 0, offset: 8192, data },
            ],
        );
        m
    }

    #[test]
    fn positions() {
        let mut m = sparse(Quirks { file_bytes_max: 1 << 40, ..Quirks::default() });
        let table = [
            (lseek(-1, Whence::Set), Err(E::EINVAL)),
            (lseek(1 << 40, Whence::Set), Ok(1 << 40)),
            (lseek(1, Whence::Cur), Err(E::EINVAL)),
            (lseek((1 << 40) + 1, Whence::Set), Err(E::EINVAL)),
            (lseek(-1, Whence::Cur), Ok((1 << 40) - 1)),
            (lseek(-8202, Whence::End), Ok(0)),
            (lseek(-8203, Whence::End), Err(E::EINVAL)),
            (lseek(i64::MAX, Whence::End), Err(E::EINVAL)),
            (lseek(0, Whence::Cur), Ok(0)),
        ];
        check(&mut m, &table);
    }

    #[test]
    fn segments() {
        let mut m = sparse(Quirks::default());
        let table = [
            (lseek(-1, Whence::Data), Err(E::ENXIO)),
            (lseek(0, Whence::Data), Ok(8192)),
            (lseek(0, Whence::Hole), Ok(0)),
            (lseek(8193, Whence::Data), Ok(8193)),
            (lseek(8193, Whence::Hole), Ok(8202)),
            (lseek(8202, Whence::Hole), Err(E::ENXIO)),
            (lseek(8202, Whence::Data), Err(E::ENXIO)),
            (lseek(0, Whence::Cur), Ok(8202)),
        ];
        check(&mut m, &table);
        let mut btrfs = sparse(Quirks { seek_negative_is_zero: true, ..Quirks::default() });
        check(&mut btrfs, &[(lseek(-1, Whence::Data), Ok(8192)), (lseek(-1, Whence::Hole), Ok(0))]);
    }

    #[test]
    fn allocation_is_free_but_data_is_not_skipped() {
        let m = sparse(Quirks::default());
        let allowed = |op: Op, answer| m.segment_is_allowed(&op, &Outcome::from(answer));
        for (offset, whence, answer, expected) in [
            (0, Whence::Data, Ok(8192), Some(true)),
            (0, Whence::Data, Ok(0), Some(true)),
            (0, Whence::Data, Ok(4096), Some(true)),
            (0, Whence::Data, Ok(8193), Some(false)),
            (0, Whence::Data, Err(E::ENXIO), Some(false)),
            (8195, Whence::Data, Ok(8192), Some(false)),
            (0, Whence::Hole, Ok(0), Some(true)),
            (0, Whence::Hole, Ok(8202), Some(true)),
            (0, Whence::Hole, Ok(8193), Some(false)),
            (0, Whence::Hole, Ok(12288), Some(false)),
            (0, Whence::Hole, Err(E::ENOENT), Some(false)),
            (8202, Whence::Data, Err(E::ENXIO), None),
            (-1, Whence::Hole, Err(E::ENXIO), None),
            (0, Whence::Set, Ok(1), None),
        ] {
            assert_eq!(allowed(lseek(offset, whence), answer), expected, "{offset} {whence:?}");
        }
    }

    #[test]
    fn what_cannot_seek() {
        let mut m = model();
        given(&mut m, &[mknod("p", Mode::S_IFIFO | 0o666), open(0, "p", OpenFlags::O_RDWR)]);
        check(&mut m, &[(lseek(-1, Whence::Set), Err(E::ESPIPE))]);
        given(&mut m, &[open(0, ".", OpenFlags::O_PATH)]);
        check(&mut m, &[(lseek(0, Whence::Set), Err(E::EBADF))]);
        given(&mut m, &[open(0, ".", OpenFlags::empty())]);
        check(&mut m, &[(lseek(-1, Whence::Set), Err(E::EINVAL)), (lseek(5, Whence::Set), Ok(5))]);
    }

    #[test]
    fn positions_in_directories_are_cookies_or_limited_like_those_in_files() {
        let limited = Quirks {
            vfs_file_bytes_max: 1 << 40,
            directory_seek_limited: true,
            ..Quirks::default()
        };
        let any = Quirks::default();
        for (quirks, far) in [(any, Ok(i64::MAX as u64)), (limited, Err(E::EINVAL))] {
            let mut m = model_with(quirks);
            given(&mut m, &[open(0, ".", OpenFlags::O_DIRECTORY)]);
            let at_limit = (lseek(1 << 40, Whence::Set), Ok(1 << 40));
            check(&mut m, &[(lseek(i64::MAX, Whence::Set), far), at_limit]);
        }
    }
}
