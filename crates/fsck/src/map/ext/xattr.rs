//! Extended attributes, in inodes and in blocks of their own.

use super::super::Kind;
use super::super::guard::{Piece, Store};
use super::super::layout::Order;
use super::Walk;
use crate::ext::Inode;
use crate::ext::xattr::{block_of, entries, in_inode};

impl Walk<'_> {
    /// All attributes of an inode.
    pub(super) fn xattrs(&mut self, inode: &Inode, called: &str, guard: Option<usize>) {
        if let Some((at, end)) = in_inode(&self.volume, inode) {
            let called = format!("{called}.xattr");
            self.out.put("xattr_ibody_header", &called, at, guard);
            self.put_xattrs(&called, at + 4, end, at + 4, guard);
        }
        let Some(block) = block_of(&self.volume, inode) else { return };
        if !self.xattr_blocks.insert(block) {
            return;
        }
        self.out.target(Kind::Block, "block of attributes", block);
        let at = block * self.volume.block_bytes;
        let pieces = vec![
            Piece::Bytes(block.to_le_bytes().to_vec()),
            Piece::Range(at, 16),
            Piece::Zeros(4),
            Piece::Range(at + 20, self.volume.block_bytes - 20),
        ];
        let guard = self.seeded(pieces, vec![Store::whole(at + 16, Order::Little)], None);
        let called = format!("xattr_block[{block} of {}]", self.called(inode.number));
        self.out.put("xattr_header", &called, at, guard);
        self.put_xattrs(&called, at + 32, at + self.volume.block_bytes, at, guard);
    }

    fn put_xattrs(&mut self, called: &str, at: u64, end: u64, values: u64, guard: Option<usize>) {
        let sampled = self.out.sampled;
        for (index, entry) in entries(&self.volume, at, end, values).iter().enumerate() {
            self.out.sampled = sampled && index < 2;
            let name = String::from_utf8_lossy(&entry.name).into_owned();
            self.out.put(
                "xattr_entry",
                &format!("{called}.entry[{index} \"{name}\"]"),
                entry.at,
                guard,
            );
        }
        self.out.sampled = sampled;
    }
}
