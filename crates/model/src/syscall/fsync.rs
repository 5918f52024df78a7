//! fsync(2), fdatasync(2), syncfs(2), sync_file_range(2): fs/sync.c.
//!
//! The model keeps everything in memory: nothing is left to do once the arguments are right.

use fathom_core::flags::SyncRangeFlags;
use fathom_core::{Errno, Kind, Slot};

use super::Model;

impl Model {
    pub(super) fn fsync(&self, slot: Slot) -> Result<u64, Errno> {
        match self.file(slot)?.kind {
            Kind::Fifo => Err(Errno::EINVAL),
            _ => Ok(0),
        }
    }

    pub(super) fn syncfs(&self, slot: Slot) -> Result<u64, Errno> {
        self.file(slot).map(|_| 0)
    }

    /// A length of 0 means "to the end".
    pub(super) fn sync_file_range(
        &self,
        slot: Slot,
        offset: i64,
        len: i64,
        flags: SyncRangeFlags,
    ) -> Result<u64, Errno> {
        let file = self.file(slot)?;
        let range_is_possible = offset >= 0 && len >= 0 && offset.checked_add(len).is_some();
        if !SyncRangeFlags::from_bits_retain(7).contains(flags) || !range_is_possible {
            return Err(Errno::EINVAL);
        }
        if file.kind == Kind::Fifo {
            return Err(Errno::ESPIPE);
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::OpenFlags;
    use fathom_core::{Mode, Op};

    use super::super::testing::*;
    use super::*;

    #[test]
    fn descriptors() {
        let mut m = model();
        given(&mut m, &[file("f", 0o644), mknod("p", Mode::S_IFIFO | 0o666)]);
        given(
            &mut m,
            &[
                open(0, "f", OpenFlags::empty()),
                open(1, ".", OpenFlags::empty()),
                open(2, "p", OpenFlags::O_RDWR),
                open(3, "f", OpenFlags::O_PATH),
            ],
        );
        let range = |slot, offset, len, flags| Op::SyncFileRange {
            slot,
            offset,
            len,
            flags: SyncRangeFlags::from_bits_retain(flags),
        };
        for (slot, fsync, syncfs, plain, odd) in [
            (0, Ok(0), Ok(0), Ok(0), Err(E::EINVAL)),
            (1, Ok(0), Ok(0), Ok(0), Err(E::EINVAL)),
            (2, Err(E::EINVAL), Ok(0), Err(E::ESPIPE), Err(E::EINVAL)),
            (3, Err(E::EBADF), Err(E::EBADF), Err(E::EBADF), Err(E::EBADF)),
            (4, Err(E::EBADF), Err(E::EBADF), Err(E::EBADF), Err(E::EBADF)),
        ] {
            let table = [
                (Op::Fsync { slot }, fsync),
                (Op::Fdatasync { slot }, fsync),
                (Op::Syncfs { slot }, syncfs),
                (range(slot, 0, 0, 7), plain),
                (range(slot, 0, 0, 8), odd),
                (range(slot, -1, 0, 0), odd),
                (range(slot, 1, -1, 0), odd),
                (range(slot, i64::MAX, 1, 0), odd),
            ];
            check(&mut m, &table);
        }
        check(&mut m, &[(Op::Sync, Ok(0))]);
    }
}
