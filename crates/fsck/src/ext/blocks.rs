//! The blocks of a file: through extents or through blocks of pointers.

use super::{Inode, Volume, flag};

/// Blocks that one walk visits at most: cycles end here.
const VISITED_MAX: usize = 200_000;

/// What a block of a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Data,
    /// A block of pointers, so many steps above the data.
    Indirect(u8),
    /// A node of the tree of extents.
    Extents,
}

/// A block of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mapped {
    /// Its place in the file, of data only.
    pub(crate) logical: u64,
    pub(crate) physical: u64,
    pub(crate) kind: BlockKind,
    /// Whether it reads as zeros: preallocated.
    pub(crate) unwritten: bool,
}

impl Volume<'_> {
    /// The blocks of a file in the order of the walk; nothing for files without any.
    pub(crate) fn blocks_of(&self, inode: &Inode) -> Vec<Mapped> {
        let mut out = Vec::new();
        let long_symlink = inode.is_symlink() && inode.size >= 60;
        let system = inode.number < 11 && inode.mode == 0;
        let has_blocks = inode.is_regular() || inode.is_dir() || long_symlink || system;
        if !has_blocks || inode.has(flag::INLINE_DATA) {
            return out;
        }
        if inode.has(flag::EXTENTS) {
            self.extents(inode.at + 40, 60, 0, &mut out);
        } else {
            self.pointers(inode.at + 40, &mut out);
        }
        out
    }

    fn extents(&self, node: u64, bytes: u64, level: u8, out: &mut Vec<Mapped>) {
        let (magic, entries, depth) = (self.u16(node), self.u16(node + 2), self.u16(node + 6));
        if magic != 0xf30a || level > 5 {
            return;
        }
        for index in 0..u64::from(entries).min((bytes - 12) / 12) {
            let at = node + 12 + 12 * index;
            if out.len() >= VISITED_MAX {
                return;
            }
            if depth == 0 {
                self.extent(at, out);
                continue;
            }
            let block = u64::from(self.u32(at + 4)) | u64::from(self.u16(at + 8)) << 32;
            if block == 0 || block >= self.blocks {
                continue;
            }
            let kind = BlockKind::Extents;
            out.push(Mapped { logical: 0, physical: block, kind, unwritten: false });
            self.extents(block * self.block_bytes, self.block_bytes, level + 1, out);
        }
    }

    fn extent(&self, at: u64, out: &mut Vec<Mapped>) {
        let logical = u64::from(self.u32(at));
        let length = u64::from(self.u16(at + 4));
        let (length, unwritten) =
            if length > 32768 { (length - 32768, true) } else { (length, false) };
        let start = u64::from(self.u32(at + 8)) | u64::from(self.u16(at + 6)) << 32;
        for step in 0..length {
            if out.len() >= VISITED_MAX {
                return;
            }
            let (logical, physical) = (logical + step, start + step);
            out.push(Mapped { logical, physical, kind: BlockKind::Data, unwritten });
        }
    }

    fn pointers(&self, at: u64, out: &mut Vec<Mapped>) {
        for index in 0..12 {
            let block = u64::from(self.u32(at + 4 * index));
            if block != 0 && block < self.blocks {
                out.push(data(index, block));
            }
        }
        let per_block = self.block_bytes / 4;
        let mut base = 12;
        for (index, level) in [(12, 1), (13, 2), (14, 3)] {
            self.indirect(u64::from(self.u32(at + 4 * index)), level, base, out);
            base += per_block.pow(u32::from(level));
        }
    }

    fn indirect(&self, block: u64, level: u8, base: u64, out: &mut Vec<Mapped>) {
        if block == 0 || block >= self.blocks || out.len() >= VISITED_MAX {
            return;
        }
        let kind = BlockKind::Indirect(level);
        out.push(Mapped { logical: base, physical: block, kind, unwritten: false });
        let per_block = self.block_bytes / 4;
        let below = per_block.pow(u32::from(level) - 1);
        for index in 0..per_block {
            let pointer = u64::from(self.u32(block * self.block_bytes + 4 * index));
            let logical = base + index * below;
            match level {
                _ if pointer == 0 || pointer >= self.blocks => {}
                1 => out.push(data(logical, pointer)),
                _ => self.indirect(pointer, level - 1, logical, out),
            }
        }
    }
}

fn data(logical: u64, physical: u64) -> Mapped {
    Mapped { logical, physical, kind: BlockKind::Data, unwritten: false }
}
