//! fallocate(2): fs/open.c `vfs_fallocate`.

use fathom_core::flags::FallocateMode;
use fathom_core::{Errno, Kind, Slot};

use super::Model;
use crate::volume::SetTime;

const KEEP_SIZE: FallocateMode = FallocateMode::FALLOC_FL_KEEP_SIZE;

impl Model {
    pub(super) fn fallocate(
        &mut self,
        slot: Slot,
        mode: FallocateMode,
        offset: i64,
        len: i64,
    ) -> Result<u64, Errno> {
        let file = self.file(slot)?;
        if offset < 0 || len <= 0 {
            return Err(Errno::EINVAL);
        }
        if mode.contains(FallocateMode::FALLOC_FL_WRITE_ZEROES)
            && !self.quirks().fallocate_write_zeroes_known
        {
            return Err(Errno::EOPNOTSUPP);
        }
        check_mode(mode, self.quirks().fallocate_conflict_invalid)?;
        if !file.writable() {
            return Err(Errno::EBADF);
        }
        match file.kind {
            Kind::File => {}
            Kind::Fifo => return Err(Errno::ESPIPE),
            _ => return Err(Errno::ENODEV),
        }
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        if end as u64 > self.quirks().vfs_file_bytes_max {
            return Err(Errno::EFBIG);
        }
        if !self.supports(mode) {
            return Err(Errno::EOPNOTSUPP);
        }
        // file_modified comes before the file system looks at the range, which may still be wrong.
        self.drop_privileges(file.ino)?;
        self.volume.set_times(file.ino, None, Some(SetTime::Now))?;
        let len = match mode.contains(FallocateMode::FALLOC_FL_PUNCH_HOLE) {
            // There is nothing to punch beyond the largest file, and that is no error.
            true => (len as u64).min(self.quirks().file_bytes_max.saturating_sub(offset as u64)),
            false => len as u64,
        };
        if len > 0 {
            self.volume.fallocate(file.ino, mode, offset as u64, len)?;
        }
        Ok(0)
    }

    fn supports(&self, mode: FallocateMode) -> bool {
        let operation = mode.difference(KEEP_SIZE);
        match operation.is_empty() {
            true => {
                let keeps = mode.contains(KEEP_SIZE);
                self.quirks().fallocate_allocate && (!keeps || self.quirks().fallocate_keep_size)
            }
            false => self.quirks().fallocate_modes.contains(operation),
        }
    }
}

/// What a kernel before 6.12 says of modes that cannot be combined: some are `EINVAL`, and which is looked
/// at first is not that of newer ones.
fn check_combination_before_6_12(mode: FallocateMode) -> Result<(), Errno> {
    use FallocateMode as F;
    let (punch, zero, unshare) =
        (F::FALLOC_FL_PUNCH_HOLE, F::FALLOC_FL_ZERO_RANGE, F::FALLOC_FL_UNSHARE_RANGE);
    let alone = [F::FALLOC_FL_COLLAPSE_RANGE, F::FALLOC_FL_INSERT_RANGE];
    let known = KEEP_SIZE | punch | zero | unshare | alone[0] | alone[1];
    if !known.contains(mode)
        || mode.contains(punch | zero)
        || (mode.contains(punch) && !mode.contains(KEEP_SIZE))
    {
        return Err(Errno::EOPNOTSUPP);
    }
    let conflicts = alone.into_iter().any(|one| mode.contains(one) && mode != one)
        || (mode.contains(unshare) && !(unshare | KEEP_SIZE).contains(mode));
    if conflicts { Err(Errno::EINVAL) } else { Ok(()) }
}

/// The modes exclude each other, and only some go with `KEEP_SIZE`.
fn check_mode(mode: FallocateMode, before_6_12: bool) -> Result<(), Errno> {
    if before_6_12 {
        check_combination_before_6_12(mode)?;
    }
    let keep_size = mode.contains(KEEP_SIZE);
    let possible = match mode.difference(KEEP_SIZE) {
        FallocateMode::FALLOC_FL_UNSHARE_RANGE | FallocateMode::FALLOC_FL_ZERO_RANGE => true,
        FallocateMode::FALLOC_FL_PUNCH_HOLE => keep_size,
        FallocateMode::FALLOC_FL_COLLAPSE_RANGE
        | FallocateMode::FALLOC_FL_INSERT_RANGE
        | FallocateMode::FALLOC_FL_WRITE_ZEROES => !keep_size,
        allocate => allocate.is_empty(),
    };
    if possible { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
}

#[cfg(test)]
mod tests {
    use fathom_core::flags::OpenFlags;
    use fathom_core::{Mode, Op};

    use super::super::testing::*;
    use super::*;
    use crate::quirks::Quirks;

    fn fallocate(slot: Slot, mode: u32, offset: i64, len: i64) -> Op {
        Op::Fallocate { slot, mode: FallocateMode::from_bits_retain(mode), offset, len }
    }

    fn with_file(quirks: Quirks) -> Model {
        let mut m = model_with(quirks);
        given(&mut m, &[open(0, "f", OpenFlags::O_CREAT | OpenFlags::O_RDWR), write(0, 1, 16384)]);
        given(
            &mut m,
            &[
                open(1, "f", OpenFlags::empty()),
                mknod("p", Mode::S_IFIFO | 0o666),
                open(2, "p", OpenFlags::O_RDWR),
            ],
        );
        m
    }

    #[test]
    fn checks_in_order() {
        let limit = 1 << 40;
        let quirks =
            Quirks { file_bytes_max: limit, vfs_file_bytes_max: limit, ..Quirks::default() };
        let m = with_file(quirks);
        let table = [
            (fallocate(9, 0, -1, 0), Err(E::EBADF)),
            (fallocate(1, 0, -1, 1), Err(E::EINVAL)),
            (fallocate(1, 0, 0, 0), Err(E::EINVAL)),
            (fallocate(1, 2, 0, 1), Err(E::EOPNOTSUPP)),
            (fallocate(1, 0, 0, 1), Err(E::EBADF)),
            (fallocate(2, 0, 0, 1), Err(E::ESPIPE)),
            (fallocate(0, 0, i64::MAX, 1), Err(E::EFBIG)),
            (fallocate(0, 3, 1 << 40, 1), Err(E::EFBIG)),
            (fallocate(0, 3, 0, 1), Ok(0)),
            (fallocate(0, 8, 4096, 4096), Ok(0)),
            (fallocate(0, 8, 1, 4096), Err(E::EINVAL)),
            (fallocate(0, 8, 8192, 8192), Err(E::EINVAL)),
            (fallocate(0, 32, 12288, 4096), Ok(0)),
            (fallocate(0, 32, 16384, 4096), Err(E::EINVAL)),
            (fallocate(0, 64, 0, 1), Ok(0)),
            (fallocate(0, 0x100, 0, 1), Err(E::EOPNOTSUPP)),
        ];
        check_each(&m, &table);
    }

    #[test]
    fn clusters_are_moved_as_a_whole() {
        let m = with_file(Quirks { move_align_bytes: 8192, ..Quirks::default() });
        let table = [
            (fallocate(0, 8, 4096, 4096), Err(E::EINVAL)),
            (fallocate(0, 8, 0, 8192), Ok(0)),
            (fallocate(0, 32, 4096, 8192), Err(E::EINVAL)),
            (fallocate(0, 32, 8192, 4096), Err(E::EINVAL)),
            (fallocate(0, 32, 8192, 8192), Ok(0)),
            // What moves nothing has no unit.
            (fallocate(0, 3, 1, 1), Ok(0)),
        ];
        check_each(&m, &table);
    }

    #[test]
    fn modes_exclude_each_other() {
        let m = with_file(Quirks::default());
        let possible = [0, 1, 3, 8, 16, 17, 32, 64, 65];
        for mode in 0..256 {
            let expected = if possible.contains(&mode) { Ok(0) } else { Err(E::EOPNOTSUPP) };
            check_each(&m, &[(fallocate(0, mode, 4096, 4096), expected)]);
        }
    }

    #[test]
    fn profiles_support_what_their_file_systems_do() {
        for (profile, possible) in [
            ("tmpfs", &[0, 1, 3][..]),
            ("ext2", &[3]),
            ("ext4", &[0, 1, 3, 8, 16, 17, 32]),
            ("xfs", &[0, 1, 3, 8, 16, 17, 32, 64, 65]),
            ("btrfs", &[0, 1, 3, 16, 17]),
        ] {
            let m = with_file(Quirks::profile(profile).unwrap());
            for mode in 0..128 {
                let expected = if possible.contains(&mode) { Ok(0) } else { Err(E::EOPNOTSUPP) };
                check_each(&m, &[(fallocate(0, mode, 4096, 4096), expected)]);
            }
        }
    }

    /// Found with ext4 behind NFS on 6.12, with a file that was open to be read.
    #[test]
    fn older_kernels_do_not_know_write_zeroes() {
        let older = Quirks { fallocate_write_zeroes_known: false, ..Quirks::default() };
        for (quirks, answer) in [(older, E::EOPNOTSUPP), (Quirks::default(), E::EBADF)] {
            check(&mut with_file(quirks), &[(fallocate(1, 128, 0, 4096), Err(answer))]);
        }
    }

    #[test]
    fn older_kernels_call_some_combinations_invalid() {
        let (keep, punch, collapse, zero, insert, unshare) = (1, 2, 8, 16, 32, 64);
        let older = Quirks { fallocate_conflict_invalid: true, ..Quirks::default() };
        let answers = |quirks: Quirks, mode| {
            let mut m = with_file(quirks);
            m.execute(&fallocate(0, mode, 0, 4096)).result.err()
        };
        for (mode, then, now) in [
            (keep | collapse, Some(E::EINVAL), Some(E::EOPNOTSUPP)),
            (keep | insert, Some(E::EINVAL), Some(E::EOPNOTSUPP)),
            (zero | insert, Some(E::EINVAL), Some(E::EOPNOTSUPP)),
            (unshare | zero, Some(E::EINVAL), Some(E::EOPNOTSUPP)),
            (punch, Some(E::EOPNOTSUPP), Some(E::EOPNOTSUPP)),
            (keep | punch | zero, Some(E::EOPNOTSUPP), Some(E::EOPNOTSUPP)),
            (keep | punch, None, None),
            (keep | zero, None, None),
        ] {
            assert_eq!(answers(older.clone(), mode), then, "{mode:#x} before 6.12");
            assert_eq!(answers(Quirks::default(), mode), now, "{mode:#x}");
        }
    }
}
