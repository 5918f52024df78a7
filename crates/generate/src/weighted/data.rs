//! Generates operations on open files and their contents.

use fathom_core::flags::{FallocateMode as F, MsyncFlags, OpenFlags as O, SyncRangeFlags, Whence};
use fathom_core::{Kind, Mode, Op, Slot, Target};

use super::Generator;

/// Share of the stores through mappings that are at the end of their file.
const TAIL_PERCENT: u32 = 30;

impl Generator {
    pub(super) fn open(&mut self) -> Op {
        if self.tables.open_is_whole {
            return self.open_with_any_flags();
        }
        let access = self.choices.weighted(&[(O::empty(), 3), (O::O_WRONLY, 2), (O::O_RDWR, 6)]);
        let mut flags = access | self.flags(&self.tables.open.clone());
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

    /// Opens with all flags drawn by their weights, whatever the path is.
    fn open_with_any_flags(&mut self) -> Op {
        let flags = self.flags(&self.tables.open.clone());
        let path = match self.choices.below(10) {
            0..4 => self.existing(&[Kind::File]),
            4..7 => self.fresh(Kind::File),
            7..9 => self.existing(&[Kind::Dir]),
            _ => self.anything(),
        };
        Op::Open { slot: self.slot_to_open(), path, flags, mode: self.mode() }
    }

    /// Draws a slot to open, mostly a free one.
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
        use Whence::{Cur, Data, End, Hole};
        let whence = self.choices.weighted(&self.tables.whence);
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
        let mut mode = self.choices.weighted(&self.tables.fallocate);
        let aligned_only = mode.intersects(F::FALLOC_FL_COLLAPSE_RANGE | F::FALLOC_FL_INSERT_RANGE);
        if self.odd {
            mode |= self.flags(&[]);
        }
        let (offset, len) = if aligned_only && self.choices.percent(80) {
            (
                self.aligned_offset(),
                self.aligned_offset().max(self.view.move_bytes.max(4096) as i64),
            )
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
        let slot = self.writable_slot();
        // At the end of the file and behind it, as far as its last page reaches: what is stored there must
        // not show when the file grows.
        let open = self.slots.get(usize::from(slot)).and_then(Option::as_ref);
        let end = open.map(|open| open.size).filter(|_| self.choices.percent(TAIL_PERCENT));
        let offset = match end {
            Some(end) => (end as i64).saturating_add(self.choices.below(64) as i64 - 32).max(0),
            None => self.offset(),
        };
        Op::MmapStore { slot, offset, data: self.pattern(len), sync }
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
