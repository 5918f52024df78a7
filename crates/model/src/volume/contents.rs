//! The bytes of a file: sparse pages, and the blocks of them that take up space.
//!
//! A block is *written* (it holds data: `SEEK_DATA` finds it), *reserved* (`fallocate` set it aside:
//! it takes up space and reads as zeros, and is a hole for `SEEK_HOLE`) or a hole. Bytes live in pages
//! of [`PAGE_BYTES`], whatever the block size, because the content digest is a sum over such pages.

use std::sync::Arc;

use fathom_core::digest::{PAGE_BYTES, content_term};
use fathom_core::{Digest, Errno};

use super::extents::Extents;

const PAGE: u64 = PAGE_BYTES as u64;

/// One page of a file that has at least one written block.
#[derive(Clone, Debug, Default)]
struct Page {
    /// The bytes from the start of the page to the last one that was written; zeros follow. Bytes
    /// outside of written blocks are zero.
    bytes: Vec<u8>,
    /// One bit for every written block of the page, the lowest for the first.
    written: u8,
    /// The term of the page in the content digest.
    term: Digest,
}

impl Page {
    fn put(&mut self, from: usize, bytes: &[u8]) {
        if self.bytes.len() < from {
            self.bytes.resize(from, 0);
        }
        let (over, beyond) = bytes.split_at(bytes.len().min(self.bytes.len() - from));
        self.bytes[from..from + over.len()].copy_from_slice(over);
        self.bytes.extend_from_slice(beyond);
    }

    fn zero(&mut self, from: usize, to: usize) {
        if to >= self.bytes.len() {
            self.bytes.truncate(from);
        } else {
            self.bytes[from..to].fill(0);
        }
    }
}

/// The contents of a file.
#[derive(Clone, Debug)]
pub(super) struct Contents {
    block_bytes: u64,
    size: u64,
    /// The pages, sorted by page number.
    pages: Vec<(u64, Arc<Page>)>,
    /// Number of written blocks.
    written: u64,
    /// Blocks that are reserved; none of them is written.
    reserved: Extents,
    digest: Digest,
}

impl Contents {
    pub(super) fn new(block_bytes: u32) -> Contents {
        Contents {
            block_bytes: u64::from(block_bytes),
            size: 0,
            pages: Vec::new(),
            written: 0,
            reserved: Extents::default(),
            digest: Digest::default(),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    pub(super) fn digest(&self) -> Digest {
        self.digest
    }

    /// Iterates over the pages: number, written blocks, bytes up to the end of the file (behind it
    /// only [`crate::Mutant::StaleHole`] has any).
    pub(super) fn visible_pages(&self) -> impl Iterator<Item = (u64, u8, &[u8])> {
        self.pages.iter().map(|(number, page)| {
            let visible = self.size.saturating_sub(number * PAGE).min(page.bytes.len() as u64);
            (*number, page.written, &page.bytes[..visible as usize])
        })
    }

    pub(super) fn reserved(&self) -> &Extents {
        &self.reserved
    }

    /// Number of blocks that take up space.
    pub(super) fn blocks(&self) -> u64 {
        self.written + self.reserved.count()
    }

    /// Whether the block at `offset` takes up space already.
    pub(super) fn has_block_at(&self, offset: u64) -> bool {
        let block = offset / self.block_bytes;
        self.written_from(block).next() == Some(block)
            || self.reserved.overlap(block, block + 1) == 1
    }

    fn find(&self, page: u64) -> Result<usize, usize> {
        match self.pages.last() {
            // Appending is the common case.
            Some((last, _)) if *last < page => Err(self.pages.len()),
            Some((last, _)) if *last == page => Ok(self.pages.len() - 1),
            _ => self.pages.binary_search_by_key(&page, |(number, _)| *number),
        }
    }

    /// The positions in `pages` of those that `[start, end)` touches.
    fn pages_in(&self, start: u64, end: u64) -> std::ops::Range<usize> {
        let lo = self.pages.partition_point(|(page, _)| *page < start / PAGE);
        let hi = self.pages.partition_point(|(page, _)| page * PAGE < end);
        lo..hi.max(lo)
    }

    /// The numbers of the written blocks from block `first` on.
    fn written_from(&self, first: u64) -> impl Iterator<Item = u64> {
        let per_page = PAGE / self.block_bytes;
        let lo = self.pages.partition_point(|(page, _)| *page < first / per_page);
        self.pages[lo..]
            .iter()
            .flat_map(move |(number, page)| {
                let bits = (0..per_page).filter(|bit| page.written >> bit & 1 == 1);
                bits.map(move |bit| number * per_page + bit)
            })
            .skip_while(move |block| *block < first)
    }

    /// Appends up to `len` bytes to `out`, fewer at the end of the file.
    pub(super) fn read(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        let end = offset.saturating_add(len as u64).min(self.size);
        if offset >= end {
            return;
        }
        let before = out.len();
        out.reserve((end - offset) as usize);
        for (number, page) in &self.pages[self.pages_in(offset, end)] {
            let start = number * PAGE;
            let from = offset.saturating_sub(start) as usize;
            let to = page.bytes.len().min((end - start) as usize);
            if from < to {
                out.resize(before + (start + from as u64 - offset) as usize, 0);
                out.extend_from_slice(&page.bytes[from..to]);
            }
        }
        out.resize(before + (end - offset) as usize, 0);
    }

    /// Writes as much as `blocks_free` more blocks can hold; returns the number of bytes.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8], mut blocks_free: u64) -> usize {
        let mut done = 0;
        while done < bytes.len() {
            // Page by page; when space gets short, block by block to use all of it.
            let whole_page = blocks_free >= PAGE / self.block_bytes;
            let unit = if whole_page { PAGE } else { self.block_bytes };
            let at = offset + done as u64;
            let len = (bytes.len() - done).min((unit - at % unit) as usize);
            match self.write_in_page(at, &bytes[done..done + len], blocks_free) {
                Some(blocks_taken) => blocks_free -= blocks_taken,
                None => break,
            }
            done += len;
        }
        if done > 0 {
            self.size = self.size.max(offset + done as u64);
        }
        done
    }

    /// Writes within one page; returns the number of blocks that this took, `None` if that is too
    /// many. Without any bytes it still makes the block at `at` a written one.
    fn write_in_page(&mut self, at: u64, bytes: &[u8], blocks_free: u64) -> Option<u64> {
        let (number, from) = (at / PAGE, (at % PAGE) as usize);
        let touched = touched(self.block_bytes, from, from + bytes.len().max(1));
        let place = self.find(number);
        let missing = touched & !place.map_or(0, |at| self.pages[at].1.written);
        let blocks_taken = u64::from(missing.count_ones()) - self.reserved_in(number, missing);
        if blocks_taken > blocks_free {
            return None;
        }
        self.written += u64::from(missing.count_ones());
        self.unreserve(number, missing);
        let place = place.unwrap_or_else(|place| {
            self.pages.insert(place, (number, Arc::default()));
            place
        });
        let page = Arc::make_mut(&mut self.pages[place].1);
        page.put(from, bytes);
        page.written |= touched;
        self.digest -= page.term;
        page.term = content_term(number, &page.bytes);
        self.digest += page.term;
        Some(blocks_taken)
    }

    /// Number of the blocks `mask` of a page that are reserved.
    fn reserved_in(&self, page: u64, mask: u8) -> u64 {
        if self.reserved.is_empty() {
            return 0;
        }
        let first = page * (PAGE / self.block_bytes);
        let bits = (0..8).filter(|bit| mask >> bit & 1 == 1);
        bits.map(|bit| self.reserved.overlap(first + bit, first + bit + 1)).sum()
    }

    fn unreserve(&mut self, page: u64, mask: u8) {
        if self.reserved.is_empty() {
            return;
        }
        let first = page * (PAGE / self.block_bytes);
        for bit in (0..8).filter(|bit| mask >> bit & 1 == 1) {
            self.reserved.remove(first + bit, first + bit + 1);
        }
    }

    /// Changes every page that `[start, end)` touches, and drops those without a written block.
    fn edit(&mut self, start: u64, end: u64, change: impl Fn(&mut Page, usize, usize)) {
        let range = self.pages_in(start, end);
        let mut some_empty = false;
        for (number, page) in &mut self.pages[range] {
            let page = Arc::make_mut(page);
            let page_start = *number * PAGE;
            let from = start.saturating_sub(page_start) as usize;
            let to = (end - page_start).min(PAGE) as usize;
            self.digest -= page.term;
            self.written -= u64::from(page.written.count_ones());
            change(page, from, to);
            self.written += u64::from(page.written.count_ones());
            page.term = content_term(*number, &page.bytes);
            self.digest += page.term;
            some_empty |= page.written == 0;
        }
        if some_empty {
            self.pages.retain(|(_, page)| page.written != 0);
        }
    }

    /// Makes `[start, end)` read as zeros without giving any block back.
    pub(super) fn zero(&mut self, start: u64, end: u64) {
        self.edit(start, end, |page, from, to| page.zero(from, to));
    }

    /// Gives back the space of every block that lies entirely in `[start, end)`; the last block of
    /// the file does so if the range reaches the end of the file (`ext4_punch_hole` does the same).
    pub(super) fn free_blocks(&mut self, start: u64, end: u64) {
        let end =
            if end >= self.size { end.max(round_up(self.size, self.block_bytes)) } else { end };
        let (first, last) = (start.div_ceil(self.block_bytes), end / self.block_bytes);
        if first < last {
            self.reserved.remove(first, last);
            let block_bytes = self.block_bytes;
            self.edit(start, end, |page, from, to| {
                let covered = covered(block_bytes, from, to);
                page.written &= !covered;
                for bit in (0..8).filter(|bit| covered >> bit & 1 == 1) {
                    page.zero(bit * block_bytes as usize, (bit + 1) * block_bytes as usize);
                }
            });
        }
    }

    /// Makes a hole: zeros, and no space for blocks that lie entirely in it.
    pub(super) fn punch(&mut self, start: u64, end: u64) {
        self.zero(start, end);
        self.free_blocks(start, end);
    }

    /// Grows with a hole, or shrinks and gives back everything beyond the new end, reserved blocks
    /// included.
    pub(super) fn set_size(&mut self, size: u64) {
        if size <= self.size {
            self.size = size;
            self.punch(size, u64::MAX);
        }
        self.size = size;
    }

    /// Shrinks like [`Contents::set_size`], but the bytes after the new end stay in its page (for
    /// [`crate::Mutant::StaleHole`]).
    pub(super) fn shrink_and_keep_bytes(&mut self, size: u64) {
        self.size = size;
        self.free_blocks(size, u64::MAX);
        self.show_kept_bytes(size);
    }

    /// Updates the digest after a change of size from `size_before` or more by
    /// [`crate::Mutant::StaleHole`]: it counts what can be read.
    pub(super) fn show_kept_bytes(&mut self, size_before: u64) {
        let first = self.pages.partition_point(|(number, _)| *number < size_before / PAGE);
        for (number, page) in &mut self.pages[first..] {
            let visible = self.size.saturating_sub(*number * PAGE).min(page.bytes.len() as u64);
            let term = content_term(*number, &page.bytes[..visible as usize]);
            if term != page.term {
                self.digest -= page.term;
                self.digest += term;
                Arc::make_mut(page).term = term;
            }
        }
    }

    /// Sets space aside for every block of `[start, end)` that has none.
    pub(super) fn reserve(&mut self, start: u64, end: u64, blocks_free: u64) -> Result<(), Errno> {
        let (first, last) = (start / self.block_bytes, end.div_ceil(self.block_bytes));
        let written: Vec<u64> =
            self.written_from(first).take_while(|block| *block < last).collect();
        let present = written.len() as u64 + self.reserved.overlap(first, last);
        if last - first - present > blocks_free {
            return Err(Errno::ENOSPC);
        }
        let mut next = first;
        for block in written.into_iter().chain([last]) {
            self.reserved.insert(next, block);
            next = block + 1;
        }
        Ok(())
    }

    /// Makes `[start, end)` read as zeros; whole blocks become reserved ones, holes too.
    pub(super) fn zero_range(
        &mut self,
        start: u64,
        end: u64,
        blocks_free: u64,
    ) -> Result<(), Errno> {
        self.reserve(start, end, blocks_free)?;
        self.zero(start, end);
        let (first, last) = (start.div_ceil(self.block_bytes), end / self.block_bytes);
        if first < last {
            let block_bytes = self.block_bytes;
            self.edit(start, end, |page, from, to| page.written &= !covered(block_bytes, from, to));
            self.reserved.insert(first, last);
        }
        Ok(())
    }

    /// Removes `[start, start + len)`, both multiples of the block size, and moves down what
    /// follows.
    pub(super) fn collapse(&mut self, start: u64, len: u64) {
        let moved = self.take_written(start);
        self.reserved.collapse(start / self.block_bytes, (start + len) / self.block_bytes);
        self.size -= len;
        for (at, bytes) in moved.into_iter().filter(|(at, _)| *at >= start + len) {
            self.write_in_page(at - len, &bytes, u64::MAX);
        }
    }

    /// Inserts a hole of `len` bytes at `start`, both multiples of the block size, and moves up
    /// what was there and what follows.
    pub(super) fn insert(&mut self, start: u64, len: u64) {
        let moved = self.take_written(start);
        self.reserved.shift_up(start / self.block_bytes, len / self.block_bytes);
        self.size += len;
        for (at, bytes) in moved {
            self.write_in_page(at + len, &bytes, u64::MAX);
        }
    }

    /// Removes the written blocks from the block boundary `start` on; returns them with their
    /// offsets.
    fn take_written(&mut self, start: u64) -> Vec<(u64, Vec<u8>)> {
        let copy = |block: u64| {
            let at = block * self.block_bytes;
            let page = &self.pages[self.find(at / PAGE).expect("a written block has a page")].1;
            let from = page.bytes.len().min((at % PAGE) as usize);
            let to = page.bytes.len().min((at % PAGE + self.block_bytes) as usize);
            (at, page.bytes[from..to].to_vec())
        };
        let taken = self.written_from(start / self.block_bytes).map(copy).collect();
        let block_bytes = self.block_bytes;
        self.edit(start, u64::MAX, |page, from, to| {
            page.zero(from, to);
            page.written &= !covered(block_bytes, from, to);
        });
        taken
    }

    /// The first byte from `offset` on that is not zero.
    pub(super) fn first_byte_from(&self, offset: u64) -> Option<u64> {
        let lo = self.pages.partition_point(|(page, _)| *page < offset / PAGE);
        let byte = self.pages[lo..].iter().find_map(|(number, page)| {
            let start = number * PAGE;
            let from = offset.saturating_sub(start) as usize;
            let bytes = page.bytes.get(from..)?;
            let at = bytes.iter().position(|byte| *byte != 0)?;
            Some(start + (from + at) as u64)
        });
        byte.filter(|at| *at < self.size)
    }

    /// Finds the first byte of data at or after `offset`.
    pub(super) fn seek_data(&self, offset: u64) -> Option<u64> {
        let block = self.written_from(offset / self.block_bytes).next()?;
        Some(offset.max(block * self.block_bytes)).filter(|at| *at < self.size)
    }

    /// Finds the first hole at or after `offset`, which is before the end of the file.
    pub(super) fn seek_hole(&self, offset: u64) -> u64 {
        let mut hole = offset / self.block_bytes;
        for block in self.written_from(hole) {
            if block != hole {
                break;
            }
            hole += 1;
        }
        offset.max(hole.saturating_mul(self.block_bytes)).min(self.size)
    }

    /// Lists all segments of data `[start, end)`.
    pub(super) fn segments(&self) -> Vec<(u64, u64)> {
        let mut segments = Vec::new();
        let mut at = 0;
        while let Some(start) = self.seek_data(at) {
            at = self.seek_hole(start);
            segments.push((start, at));
        }
        segments
    }

    /// Makes contents from stored parts, which may be hostile; the error says what cannot be.
    pub(super) fn from_parts(
        block_bytes: u32,
        size: u64,
        pages: Vec<(u64, u8, Vec<u8>)>,
        reserved: &[(u64, u64)],
    ) -> Result<Contents, String> {
        let mut contents = Contents { size, ..Contents::new(block_bytes) };
        let per_page = PAGE / contents.block_bytes;
        for (number, written, bytes) in pages {
            if contents.pages.last().is_some_and(|(last, _)| *last >= number) {
                return Err(format!("page {number} is out of order"));
            }
            if number > u64::MAX / PAGE || bytes.len() > PAGE_BYTES {
                return Err(format!("page {number} is out of bounds"));
            }
            let term = content_term(number, &bytes);
            contents.written += u64::from(written.count_ones());
            contents.digest += term;
            contents.pages.push((number, Arc::new(Page { bytes, written, term })));
        }
        for &(start, end) in reserved {
            let blocks_max = u64::MAX / PAGE * per_page;
            let after = contents.reserved.ranges().last().map_or(0, |last| last.1 + 1);
            if start < after || start >= end || end > blocks_max {
                return Err(format!("reserved blocks {start}..{end} are out of order"));
            }
            contents.reserved.insert(start, end);
        }
        contents.check()?;
        Ok(contents)
    }

    /// Checks that everything that is kept redundantly agrees.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut digest = Digest::default();
        let mut written = 0;
        for (number, page) in &self.pages {
            let visible = self.size.saturating_sub(number * PAGE).min(PAGE) as usize;
            let inside = touched(self.block_bytes, 0, visible.max(1));
            if visible == 0 || page.written == 0 || page.written & !inside != 0 {
                return Err(format!("page {number} has wrong blocks {:#b}", page.written));
            }
            if page.bytes.len() > visible {
                return Err(format!("page {number} has bytes after the end of the file"));
            }
            let block_of = |at: usize| at / self.block_bytes as usize;
            let stray =
                |(at, byte): (usize, &u8)| *byte != 0 && page.written >> block_of(at) & 1 == 0;
            if page.bytes.iter().enumerate().any(stray) {
                return Err(format!("page {number} has data in a hole"));
            }
            if self.reserved_in(*number, page.written) != 0 {
                return Err(format!("page {number} has blocks both written and reserved"));
            }
            digest += content_term(*number, &page.bytes);
            written += u64::from(page.written.count_ones());
        }
        if digest != self.digest || written != self.written {
            return Err("content digest or block count is wrong".to_owned());
        }
        Ok(())
    }
}

/// Mask of the blocks of a page that `[from, to)` touches.
fn touched(block_bytes: u64, from: usize, to: usize) -> u8 {
    let (first, end) = (from / block_bytes as usize, to.div_ceil(block_bytes as usize));
    ((1u16 << end) - (1u16 << first)) as u8
}

/// Mask of the blocks of a page that lie entirely in `[from, to)`.
fn covered(block_bytes: u64, from: usize, to: usize) -> u8 {
    let (first, end) = (from.div_ceil(block_bytes as usize), to / block_bytes as usize);
    if first < end { ((1u16 << end) - (1u16 << first)) as u8 } else { 0 }
}

/// Rounds `value` up to the next multiple of `unit`.
pub(super) fn round_up(value: u64, unit: u64) -> u64 {
    value.div_ceil(unit).saturating_mul(unit)
}
