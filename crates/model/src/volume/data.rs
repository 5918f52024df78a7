//! Operations on the contents of files: `read`, `write`, `truncate`, `fallocate`, `lseek`,
//! `copy_file_range`.

use fathom_core::Errno;
use fathom_core::digest::PAGE_BYTES;
use fathom_core::flags::FallocateMode;

use super::contents::{Contents, round_up};
use super::inode::Body;
use super::state::State;
use super::{Ino, Volume};
use crate::mutant::Mutant;

/// Greatest number of bytes that one call transfers (`MAX_RW_COUNT` in `include/linux/fs.h`).
const TRANSFER_BYTES_MAX: u64 = 0x7fff_f000;

/// Number of bytes that [`Volume::copy_range`] moves at a time.
const COPY_BYTES: u64 = 1 << 20;

/// Number of blocks of a file that [`Mutant::IndirectBlockLost`] keeps: the direct ones of an ext2
/// inode.
const DIRECT_BLOCKS: u64 = 12;

/// The effect of `fallocate`, apart from the size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fallocate {
    Reserve,
    PunchHole,
    ZeroRange,
    CollapseRange,
    InsertRange,
}

/// Reads the mode, with the checks of `vfs_fallocate` (`fs/open.c`).
fn fallocate_kind(mode: FallocateMode) -> Result<Fallocate, Errno> {
    let keep_size = mode.contains(FallocateMode::FALLOC_FL_KEEP_SIZE);
    match (mode - FallocateMode::FALLOC_FL_KEEP_SIZE, keep_size) {
        // Nothing is ever shared here, so there is nothing to unshare: only space is reserved.
        (kind, _) if kind.is_empty() => Ok(Fallocate::Reserve),
        (FallocateMode::FALLOC_FL_UNSHARE_RANGE, _) => Ok(Fallocate::Reserve),
        (FallocateMode::FALLOC_FL_ZERO_RANGE, _) => Ok(Fallocate::ZeroRange),
        (FallocateMode::FALLOC_FL_PUNCH_HOLE, true) => Ok(Fallocate::PunchHole),
        (FallocateMode::FALLOC_FL_COLLAPSE_RANGE, false) => Ok(Fallocate::CollapseRange),
        (FallocateMode::FALLOC_FL_INSERT_RANGE, false) => Ok(Fallocate::InsertRange),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

impl Volume {
    /// Appends up to `len` bytes to `out`, fewer at the end of the file.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL` (not a regular file).
    pub fn read(&self, ino: Ino, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<(), Errno> {
        self.state.file(ino)?.read(offset, len, out);
        Ok(())
    }

    /// Writes; returns the number of bytes: fewer than given if space or the largest file size
    /// ends.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL` (not a regular file), `EFBIG`, `ENOSPC` (not a single byte fits).
    pub fn write(&mut self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize, Errno> {
        let state = &*self.state;
        let contents = state.file(ino)?;
        let size_before = contents.size();
        if bytes.is_empty() {
            return Ok(0);
        }
        let room = state.config.quirks.file_bytes_max.saturating_sub(offset);
        if room == 0 {
            return Err(Errno::EFBIG);
        }
        let bytes = &bytes[..bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        let blocks_free = state.blocks_free();
        if blocks_free == 0 && !contents.has_block_at(offset) {
            return Err(Errno::ENOSPC);
        }
        let (offset, kept) = state.misplace(size_before, offset, bytes.len());
        let (state, now) = self.edit();
        let stale = state.mutant(Mutant::StaleHole) || state.mutant(Mutant::MappedTailShows);
        Ok(state.update(ino, |inode| {
            inode.times.mtime = now;
            inode.times.ctime = now;
            let Body::File(contents) = &mut inode.body else { return 0 };
            let mut written = contents.write(offset, &bytes[..kept], blocks_free);
            if written == kept && kept < bytes.len() {
                written = bytes.len();
                contents.set_size(contents.size().max(offset + written as u64));
            }
            if stale {
                contents.show_kept_bytes(size_before.min(offset));
            }
            written
        }))
    }

    /// Stores bytes behind the end of a file, in its last page. Nothing comes of it, but with
    /// [`Mutant::MappedTailShows`].
    pub(crate) fn store_behind_end(&mut self, ino: Ino, offset: u64, bytes: &[u8]) {
        if !self.state.mutant(Mutant::MappedTailShows) {
            return;
        }
        let blocks_free = self.state.blocks_free();
        let (state, _) = self.edit();
        state.update(ino, |inode| {
            let Body::File(contents) = &mut inode.body else { return };
            let size = contents.size();
            contents.write(offset, bytes, blocks_free);
            contents.shrink_and_keep_bytes(size);
        });
    }

    /// Cuts the file at `size`, or lets it grow to that with a hole. As with `truncate(2)` on ext4
    /// and xfs the times change only if the size does; `ftruncate(2)` and `O_TRUNC` always set them,
    /// which their caller does with [`Volume::set_times`].
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL` (not a regular file), `EFBIG`.
    pub fn truncate(&mut self, ino: Ino, size: u64) -> Result<(), Errno> {
        let state = &*self.state;
        let size_before = state.file(ino)?.size();
        if size > state.config.quirks.file_bytes_max {
            return Err(Errno::EFBIG);
        }
        let linked = state.get(ino)?.nlink > 1;
        if state.mutant(Mutant::TruncateThroughLink) && size == 0 && linked {
            return Ok(());
        }
        let size_mutated = state.wrong_size(size_before, size);
        let (state, now) = self.edit();
        let stale = state.mutant(Mutant::StaleHole);
        let tail = state.mutant(Mutant::MappedTailShows);
        if size < size_before {
            state.remember_contents(ino, size, Mutant::ShrinkLostOnRemount);
        }
        state.update(ino, |inode| {
            if size != size_before {
                inode.times.mtime = now;
                inode.times.ctime = now;
            }
            let Body::File(contents) = &mut inode.body else { return };
            if stale && size < size_before {
                contents.shrink_and_keep_bytes(size);
            } else {
                contents.set_size(size_mutated);
            }
            if (stale || tail) && size > size_before {
                contents.show_kept_bytes(size_before);
            }
        });
        Ok(())
    }

    /// Executes `fallocate(2)` in all modes but `FALLOC_FL_WRITE_ZEROES`, which needs a device that
    /// can do it. All or nothing: if there is not enough space, nothing changes.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EISDIR`, `ENODEV` (not a regular file), `EFBIG`, `ENOSPC`, and `EINVAL` for an
    /// empty range, and for a range to collapse or insert that does not consist of whole blocks or
    /// does not end (insert: begin) before the end of the file.
    pub fn fallocate(
        &mut self,
        ino: Ino,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<(), Errno> {
        let state = &*self.state;
        let kind = fallocate_kind(mode)?;
        let inode = state.get(ino)?;
        let not_a_file = if inode.is_dir() { Errno::EISDIR } else { Errno::ENODEV };
        let size = inode.as_file().ok_or(not_a_file)?.size();
        let end = offset.checked_add(len).ok_or(Errno::EFBIG)?;
        let limit = state.config.quirks.file_bytes_max;
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        if end > limit {
            return Err(Errno::EFBIG);
        }
        if matches!(kind, Fallocate::CollapseRange | Fallocate::InsertRange) {
            let unit = u64::from(state.config.move_bytes());
            let whole = offset.is_multiple_of(unit) && len.is_multiple_of(unit);
            let border = if kind == Fallocate::CollapseRange { end } else { offset };
            if !whole || border >= size {
                return Err(Errno::EINVAL);
            }
            if kind == Fallocate::InsertRange && size + len > limit {
                return Err(Errno::EFBIG);
            }
        }
        let keep_size =
            mode.contains(FallocateMode::FALLOC_FL_KEEP_SIZE) && !state.keep_size_ignored(kind);
        let blocks_free = state.blocks_free();
        // On a copy first, which costs little: an error must leave everything as it was.
        let mut contents = state.file(ino)?.clone();
        state.allocate(&mut contents, kind, offset, len, blocks_free)?;
        let grows = matches!(kind, Fallocate::Reserve | Fallocate::ZeroRange) && !keep_size;
        if grows && end > contents.size() {
            contents.set_size(end);
        }
        let (state, now) = self.edit();
        if kind == Fallocate::PunchHole {
            state.remember_contents(ino, contents.size(), Mutant::PunchLostOnRemount);
        }
        state.update(ino, |inode| {
            inode.times.mtime = now;
            inode.times.ctime = now;
            inode.body = Body::File(contents);
        });
        Ok(())
    }

    /// Finds the first data at or after `offset`.
    ///
    /// # Errors
    /// `ENXIO` if there is none, or `offset` is at or past the end; `EISDIR`, `EINVAL`.
    pub fn seek_data(&self, ino: Ino, offset: u64) -> Result<u64, Errno> {
        let contents = self.state.file(ino)?;
        if offset >= contents.size() {
            return Err(Errno::ENXIO);
        }
        let data = contents.seek_data(offset).ok_or(Errno::ENXIO)?;
        let mapped_bytes = DIRECT_BLOCKS * u64::from(self.state.config.block_bytes);
        if self.state.mutant(Mutant::SeekDataBlind) && data >= mapped_bytes {
            return Err(Errno::ENXIO);
        }
        Ok(data)
    }

    /// Finds the first byte at or after `offset` that is not zero.
    ///
    /// # Errors
    /// `EISDIR`, `EINVAL`.
    pub(crate) fn first_byte_from(&self, ino: Ino, offset: u64) -> Result<Option<u64>, Errno> {
        Ok(self.state.file(ino)?.first_byte_from(offset))
    }

    /// Finds the first hole at or after `offset`; the end of the file is one.
    ///
    /// # Errors
    /// `ENXIO` if `offset` is at or past the end; `EISDIR`, `EINVAL`.
    pub fn seek_hole(&self, ino: Ino, offset: u64) -> Result<u64, Errno> {
        let contents = self.state.file(ino)?;
        if offset >= contents.size() {
            return Err(Errno::ENXIO);
        }
        let hole = contents.seek_hole(offset);
        if self.state.mutant(Mutant::SeekHolePastEnd) && hole == contents.size() {
            return Ok(round_up(hole, u64::from(self.state.config.block_bytes)));
        }
        Ok(hole)
    }

    /// Copies bytes from one file to another, or within one; returns their number. Holes are copied
    /// as zeros. Overlapping ranges of one file are the caller's error
    /// (`generic_copy_file_checks`).
    ///
    /// # Errors
    /// The same as of [`Volume::write`].
    pub fn copy_range(
        &mut self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64, Errno> {
        let size = self.state.file(from)?.size();
        self.state.file(to)?;
        let len = len.min(size.saturating_sub(from_offset)).min(TRANSFER_BYTES_MAX);
        let mut end = len;
        if self.state.mutant(Mutant::CopyRangeShort) {
            end -= len % u64::from(self.state.config.block_bytes);
        }
        let mut bytes = Vec::new();
        let mut done = 0;
        while done < end {
            bytes.clear();
            let step = (end - done).min(COPY_BYTES) as usize;
            self.read(from, from_offset + done, step, &mut bytes)?;
            match self.write(to, to_offset.saturating_add(done), &bytes) {
                Ok(written) => done += written as u64,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => return Ok(done),
            }
        }
        Ok(len)
    }
}

impl State {
    /// Applies `fallocate` to contents, without the growth of the file.
    fn allocate(
        &self,
        contents: &mut Contents,
        kind: Fallocate,
        offset: u64,
        len: u64,
        blocks_free: u64,
    ) -> Result<(), Errno> {
        let end = offset + len;
        match kind {
            Fallocate::Reserve => {
                contents.reserve(offset, end, blocks_free)?;
                if self.mutant(Mutant::FallocateZeroes) {
                    contents.zero(offset, end);
                }
            }
            Fallocate::PunchHole if self.mutant(Mutant::PunchPartialBlock) => {
                contents.free_blocks(offset, end);
            }
            Fallocate::PunchHole => contents.punch(offset, end),
            Fallocate::ZeroRange => contents.zero_range(offset, end, blocks_free)?,
            Fallocate::CollapseRange => contents.collapse(offset, len),
            Fallocate::InsertRange => contents.insert(offset, len),
        }
        Ok(())
    }

    /// Computes the offset of a write and the number of its bytes that are kept: a mutant may get
    /// both wrong.
    fn misplace(&self, size: u64, offset: u64, len: usize) -> (u64, usize) {
        let page_bytes = PAGE_BYTES as u64;
        let up_to = |end: u64| len.min(usize::try_from(end.saturating_sub(offset)).unwrap_or(len));
        let at_page_end = offset == size && size > 0 && size.is_multiple_of(page_bytes);
        if self.mutant(Mutant::AppendAtPage) && at_page_end {
            return (offset - page_bytes, len);
        }
        if self.mutant(Mutant::WriteSplit) {
            return (offset, up_to((offset / page_bytes + 1) * page_bytes));
        }
        if self.mutant(Mutant::IndirectBlockLost) {
            return (offset, up_to(DIRECT_BLOCKS * u64::from(self.config.block_bytes)));
        }
        (offset, len)
    }

    /// Computes the size that truncation leads to: a mutant may get it wrong.
    fn wrong_size(&self, before: u64, size: u64) -> u64 {
        let whole_blocks = round_up(size, u64::from(self.config.block_bytes));
        if size > before && self.mutant(Mutant::ExtendSize) {
            return whole_blocks;
        }
        if size < before && self.mutant(Mutant::ShrinkSize) {
            return whole_blocks.min(before);
        }
        size
    }

    fn keep_size_ignored(&self, kind: Fallocate) -> bool {
        match kind {
            Fallocate::Reserve => self.mutant(Mutant::KeepSizeIgnored),
            Fallocate::ZeroRange => self.mutant(Mutant::ZeroRangeExtends),
            _ => false,
        }
    }
}
