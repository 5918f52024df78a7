//! Quota files and the orphan file.

use super::super::guard::{Piece, Store};
use super::super::layout::Order;
use super::super::{Field, Kind};
use super::Walk;
use crate::ext::{BlockKind, Inode, SUPERBLOCK};

/// Magic numbers of the quota files of users, groups and projects.
const MAGICS: [u32; 3] = [0xd9c0_1f11, 0xd9c0_1927, 0xd9c0_3f14];
/// The magic number at the end of a block of the orphan file.
const ORPHAN: u32 = 0x0b10_ca04;
/// Blocks of a quota file have this size, whatever the file system's is.
const QUOTA_BLOCK: u64 = 1024;

impl Walk<'_> {
    /// Maps a quota file: header, blocks of the tree with a pointer in them, leaves with entries.
    pub(super) fn quota(&mut self, inode: &Inode) {
        let quota_inodes =
            [0x240, 0x244, 0x26c].map(|at| u64::from(self.volume.u32(SUPERBLOCK + at)));
        if inode.number == 0 || !quota_inodes.contains(&inode.number) {
            return;
        }
        let sampled = self.out.sampled;
        let name = self.called(inode.number);
        let blocks = self.volume.blocks_of(inode);
        for block in blocks.iter().filter(|block| block.kind == BlockKind::Data) {
            for part in 0..self.volume.block_bytes / QUOTA_BLOCK {
                let at = block.physical * self.volume.block_bytes + part * QUOTA_BLOCK;
                let number = block.logical * (self.volume.block_bytes / QUOTA_BLOCK) + part;
                let called = format!("quota[{name}].block[{number}]");
                self.quota_block(&called, at);
            }
        }
        self.out.sampled = sampled;
    }

    fn quota_block(&mut self, called: &str, at: u64) {
        if MAGICS.contains(&self.volume.u32(at)) {
            self.out.put("quota_header", called, at, None);
            return;
        }
        let entries = self.volume.u16(at + 8);
        let head_is_leaf = self.volume.u32(at) == 0 && (1..=14).contains(&entries);
        if head_is_leaf {
            self.out.put("quota_leaf", called, at, None);
            for index in 0..u64::from(entries) {
                let place = at + 16 + 72 * index;
                self.out.put("quota_entry", &format!("{called}.entry[{index}]"), place, None);
            }
            return;
        }
        for index in 0..QUOTA_BLOCK / 4 {
            if self.volume.u32(at + 4 * index) != 0 {
                let (structure, name) = (called.into(), format!("dqt_block[{index}]").into());
                self.item(structure, name, at + 4 * index, Kind::Block, None);
            }
        }
    }

    fn item(
        &mut self,
        structure: std::sync::Arc<str>,
        name: std::sync::Arc<str>,
        at: u64,
        kind: Kind,
        guard: Option<usize>,
    ) {
        let (width, order, sampled) = (4, Order::Little, self.out.sampled);
        self.out.add(Field { structure, name, at, width, order, kind, guard, sampled });
    }

    /// Maps the blocks of the orphan file: entries in use, the first that is not, the tail.
    pub(super) fn orphan_file(&mut self, inode: &Inode) {
        if u64::from(self.volume.u32(SUPERBLOCK + 0x280)) != inode.number || inode.number == 0 {
            return;
        }
        let blocks = self.volume.blocks_of(inode);
        for block in blocks.iter().filter(|block| block.kind == BlockKind::Data) {
            let at = block.physical * self.volume.block_bytes;
            let tail = at + self.volume.block_bytes - 8;
            if self.volume.u32(tail) != ORPHAN {
                continue;
            }
            let mut pieces = self.of_inode(inode);
            pieces.push(Piece::Bytes(block.physical.to_le_bytes().to_vec()));
            pieces.push(Piece::Range(at, self.volume.block_bytes - 8));
            let guard = self.seeded(pieces, vec![Store::whole(tail + 4, Order::Little)], None);
            let called =
                format!("orphan_block[{} of {}]", block.physical, self.called(inode.number));
            let mut unused = 0;
            for index in 0..(self.volume.block_bytes - 8) / 4 {
                if self.volume.u32(at + 4 * index) == 0 {
                    unused += 1;
                    if unused > 1 {
                        continue;
                    }
                }
                let (structure, name) = (called.as_str().into(), format!("inode[{index}]").into());
                self.item(structure, name, at + 4 * index, Kind::Inode, guard);
            }
            self.out.put("orphan_tail", &called, tail, guard);
        }
    }
}
