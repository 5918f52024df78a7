//! Operations on open files and their contents.

use fathom_core::flags::{FallocateMode as F, MsyncFlags, OpenFlags as O, SyncRangeFlags, Whence};
use fathom_core::{Kind, Mode, Op, Slot, Target};

use super::Generator;

/// How often each flag of `open` is set, in percent. `O_CREAT`, the access mode and `O_TMPFILE` are
/// chosen with the path.
const OPEN_FLAGS: &[(O, u32)] = &[
    (O::O_EXCL, 8),
    (O::O_NOCTTY, 1),
    (O::O_TRUNC, 12),
    (O::O_APPEND, 12),
    (O::O_NONBLOCK, 5),
    (O::O_DSYNC, 2),
    (O::O_SYNC, 2),
    (O::O_DIRECT, 1),
    (O::O_LARGEFILE, 2),
    (O::O_DIRECTORY, 3),
    (O::O_NOFOLLOW, 5),
    (O::O_NOATIME, 2),
    (O::O_CLOEXEC, 5),
    (O::O_PATH, 3),
];

/// The modes of `fallocate` that some file system has, and combinations that none should accept.
const FALLOCATE_MODES: &[(F, u32)] = &[
    (F::empty(), 5),
    (F::FALLOC_FL_KEEP_SIZE, 5),
    (F::FALLOC_FL_PUNCH_HOLE.union(F::FALLOC_FL_KEEP_SIZE), 8),
    (F::FALLOC_FL_ZERO_RANGE, 5),
    (F::FALLOC_FL_ZERO_RANGE.union(F::FALLOC_FL_KEEP_SIZE), 5),
    (F::FALLOC_FL_COLLAPSE_RANGE, 6),
    (F::FALLOC_FL_INSERT_RANGE, 6),
    (F::FALLOC_FL_UNSHARE_RANGE, 1),
    (F::FALLOC_FL_PUNCH_HOLE, 1),
    (F::FALLOC_FL_COLLAPSE_RANGE.union(F::FALLOC_FL_KEEP_SIZE), 1),
    (F::FALLOC_FL_INSERT_RANGE.union(F::FALLOC_FL_ZERO_RANGE), 1),
];

impl Generator {
    pub(super) fn open(&mut self) -> Op {
        let access = self.choices.weighted(&[(O::empty(), 3), (O::O_WRONLY, 2), (O::O_RDWR, 6)]);
        let mut flags = access | self.flags(OPEN_FLAGS);
        let path = match self.choices.below(20) {
            0..8 => self.existing(&[Kind::File]),
            8..13 => {
                flags |= O::O_CREAT;
                self.fresh(Kind::File)
            }
            13..17 => {
                flags = (flags - O::O_WRONLY - O::O_RDWR - O::O_TRUNC) | O::O_DIRECTORY;
                self.existing(&[Kind::Dir])
            }
            17 => {
                flags = (flags - O::O_TRUNC) | O::O_TMPFILE | O::O_RDWR;
                self.existing(&[Kind::Dir])
            }
            18 => self.existing(&[Kind::Symlink]),
            _ => self.anything(),
        };
        if self.odd && self.choices.percent(10) {
            flags |= *self.choices.pick(&[O::O_CREAT, O::O_WRONLY | O::O_RDWR, O::O_TMPFILE_BIT]);
        }
        Op::Open { slot: self.slot_to_open(), path, flags, mode: self.mode() }
    }

    /// Mostly a free slot.
    fn slot_to_open(&mut self) -> Slot {
        let free: Vec<usize> =
            (0..self.slots.len()).filter(|&index| self.slots[index].is_none()).collect();
        if free.is_empty() || self.choices.percent(10) {
            return self.choices.index(self.slots.len()) as Slot;
        }
        *self.choices.pick(&free) as Slot
    }

    pub(super) fn read(&mut self) -> Op {
        Op::Read { slot: self.readable_slot(), len: self.len() }
    }

    pub(super) fn pread(&mut self) -> Op {
        Op::Pread { slot: self.readable_slot(), offset: self.offset(), len: self.len() }
    }

    pub(super) fn write(&mut self) -> Op {
        let len = self.len();
        Op::Write { slot: self.writable_slot(), data: self.pattern(len) }
    }

    pub(super) fn pwrite(&mut self) -> Op {
        let len = self.len();
        Op::Pwrite { slot: self.writable_slot(), offset: self.offset(), data: self.pattern(len) }
    }

    pub(super) fn lseek(&mut self) -> Op {
        use Whence::{Cur, Data, End, Hole, Set};
        let whence = self.choices.weighted(&[(Set, 6), (Cur, 3), (End, 3), (Data, 4), (Hole, 4)]);
        let back = self.choices.percent(40);
        let offset = self.offset();
        let offset = match whence {
            Cur | End if back => offset.wrapping_neg(),
            // Most files are small, and behind their end there is nothing to seek.
            Data | Hole if self.choices.percent(50) => self.size(4096) as i64,
            _ => offset,
        };
        Op::Lseek { slot: self.readable_slot(), offset, whence }
    }

    pub(super) fn truncate(&mut self) -> Op {
        let target = if self.choices.percent(50) {
            Target::Slot(self.writable_slot())
        } else {
            Target::Path(self.existing(&[Kind::File]))
        };
        Op::Truncate { target, len: self.offset() }
    }

    pub(super) fn fallocate(&mut self) -> Op {
        let mut mode = self.choices.weighted(FALLOCATE_MODES);
        let aligned_only = mode.intersects(F::FALLOC_FL_COLLAPSE_RANGE | F::FALLOC_FL_INSERT_RANGE);
        if self.odd {
            mode |= self.flags(&[]);
        }
        let (offset, len) = if aligned_only && self.choices.percent(80) {
            (self.aligned_offset(), self.aligned_offset().max(4096))
        } else {
            (self.offset(), self.len() as i64)
        };
        Op::Fallocate { slot: self.writable_slot(), mode, offset, len }
    }

    pub(super) fn sync_file_range(&mut self) -> Op {
        use SyncRangeFlags as S;
        let flags = self.flags(&[
            (S::SYNC_FILE_RANGE_WAIT_BEFORE, 50),
            (S::SYNC_FILE_RANGE_WRITE, 80),
            (S::SYNC_FILE_RANGE_WAIT_AFTER, 50),
        ]);
        let len = self.len() as i64;
        Op::SyncFileRange { slot: self.writable_slot(), offset: self.offset(), len, flags }
    }

    pub(super) fn mmap_store(&mut self) -> Op {
        use MsyncFlags as M;
        let sync = *self.choices.pick(&[M::MS_SYNC, M::MS_ASYNC, M::MS_SYNC | M::MS_INVALIDATE]);
        let len = self.len().max(1);
        Op::MmapStore {
            slot: self.writable_slot(),
            offset: self.offset(),
            data: self.pattern(len),
            sync,
        }
    }

    pub(super) fn mmap_load(&mut self) -> Op {
        Op::MmapLoad { slot: self.readable_slot(), offset: self.offset(), len: self.len().max(1) }
    }

    pub(super) fn copy_file_range(&mut self) -> Op {
        let (from, to) = (self.readable_slot(), self.writable_slot());
        let mut offset = || self.choices.percent(60).then(|| self.offset());
        let (from_offset, to_offset) = (offset(), offset());
        let flags = u32::from(self.odd && self.choices.percent(10));
        Op::CopyFileRange { from, from_offset, to, to_offset, len: self.len(), flags }
    }

    pub(super) fn umask(&mut self) -> Op {
        let mask = *self.choices.pick(&[0, 0o022, 0o022, 0o077, 0o027, 0o002]);
        Op::Umask { mask: Mode(mask) }
    }
}
