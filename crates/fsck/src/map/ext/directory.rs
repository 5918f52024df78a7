//! Directories: entries, indices, and their checksums.

use super::super::guard::{Piece, Store};
use super::super::layout::Order;
use super::Walk;
use crate::ext::{BlockKind, Inode, entries_of_block, flag};

/// Entries of one block that a campaign tries: the first ones and the last.
const ENTRIES_SAMPLED: usize = 6;

impl Walk<'_> {
    /// The blocks of a directory.
    pub(super) fn directory(&mut self, inode: &Inode, sampled: bool) {
        let indexed = inode.has(flag::INDEX);
        let blocks = self.volume.blocks_of(inode);
        let blocks = blocks.iter().filter(|block| block.kind == BlockKind::Data);
        for (count, block) in blocks.enumerate() {
            self.out.sampled = sampled && (count < 2 || indexed && count < 3);
            let at = block.physical * self.volume.block_bytes;
            if indexed && block.logical == 0 {
                self.index_root(inode, at);
            } else if indexed && self.is_index_node(at) {
                self.index_node(inode, at);
            } else {
                self.entries(inode, at);
            }
        }
        self.out.sampled = sampled;
    }

    /// A node of an index begins with an empty entry over the whole block.
    fn is_index_node(&self, at: u64) -> bool {
        self.volume.u32(at) == 0
            && u64::from(self.volume.u16(at + 4)) == self.volume.block_bytes
            && self.volume.u16(at + 6) == 0
    }

    fn entries(&mut self, inode: &Inode, at: u64) {
        let bytes = self.volume.block_bytes;
        let tail = at + bytes - 12;
        let mut pieces = self.of_inode(inode);
        pieces.push(Piece::Range(at, bytes - 12));
        let has_tail = self.volume.u16(tail + 6) == 0xde00 && self.volume.u16(tail + 4) == 12;
        let stores = vec![Store::whole(tail + 8, Order::Little)];
        let guard = has_tail.then(|| self.seeded(pieces, stores, None)).flatten();
        let list = entries_of_block(&self.volume, at, if has_tail { bytes - 12 } else { bytes });
        self.put_entries(inode, list, guard);
        if has_tail {
            let called = format!("directory[{}].tail[{at}]", self.called(inode.number));
            self.out.put("dirent_tail", &called, tail, guard);
        }
    }

    fn put_entries(
        &mut self,
        inode: &Inode,
        list: Vec<crate::ext::DirEntry>,
        guard: Option<usize>,
    ) {
        let directory = self.called(inode.number);
        let sampled = self.out.sampled;
        let count = list.len();
        for (index, entry) in list.into_iter().enumerate() {
            self.out.sampled = sampled && (index < ENTRIES_SAMPLED || index + 2 >= count);
            // The name identifies an entry for people; the place does where names may repeat.
            let called = format!("dirent[{directory}].entry[{} \"{}\"]", entry.at, entry.text());
            let room = entry.length.min(8 + (entry.name.len() as u64).max(1));
            self.out.put_where("dirent", &called, entry.at, guard, |part| part.at < room);
        }
        self.out.sampled = sampled;
    }

    pub(super) fn inline_directory(&mut self, inode: &Inode, called: &str, guard: Option<usize>) {
        let list = entries_of_block(&self.volume, inode.at + 44, 56);
        self.put_entries(inode, list, guard);
        let field = super::super::Field {
            structure: called.into(),
            name: "inline_parent".into(),
            at: inode.at + 40,
            width: 4,
            order: Order::Little,
            kind: super::super::Kind::Inode,
            guard,
            sampled: self.out.sampled,
        };
        self.out.add(field);
    }

    /// The checksum of a block of an index whose list of places begins at `list`.
    fn index_guard(&mut self, inode: &Inode, at: u64, list: u64) -> Option<usize> {
        let (limit, count) =
            (u64::from(self.volume.u16(list)), u64::from(self.volume.u16(list + 2)));
        let tail = list + 8 * limit;
        let end = at + self.volume.block_bytes;
        if tail + 8 > end || count > limit {
            return None;
        }
        let mut pieces = self.of_inode(inode);
        pieces.extend([
            Piece::Range(at, list + 8 * count - at),
            Piece::Range(tail, 4),
            Piece::Zeros(4),
        ]);
        let guard = self.seeded(pieces, vec![Store::whole(tail + 4, Order::Little)], None)?;
        let called = format!("htree[{}].tail[{at}]", self.called(inode.number));
        self.out.put("htree_tail", &called, tail, Some(guard));
        Some(guard)
    }

    fn index_root(&mut self, inode: &Inode, at: u64) {
        let guard = self.index_guard(inode, at, at + 32);
        let dots = entries_of_block(&self.volume, at, 24);
        // `..` covers the rest of the block, so the bounded list has only `.`.
        self.put_entries(inode, dots, guard);
        let parent = format!("dirent[{}].entry[{} \"..\"]", self.called(inode.number), at + 12);
        self.out.put("dirent", &parent, at + 12, guard);
        let called = format!("htree[{}]", self.called(inode.number));
        self.out.put("htree_root", &called, at + 24, guard);
        self.index_entries(&called, at + 32, guard);
    }

    fn index_node(&mut self, inode: &Inode, at: u64) {
        let guard = self.index_guard(inode, at, at + 8);
        let called = format!("htree[{}].node[{at}]", self.called(inode.number));
        self.out.put("htree_node", &called, at, guard);
        self.index_entries(&called, at + 8, guard);
    }

    fn index_entries(&mut self, called: &str, list: u64, guard: Option<usize>) {
        let sampled = self.out.sampled;
        let count = u64::from(self.volume.u16(list + 2)).min(self.volume.block_bytes / 8);
        for index in 1..count {
            self.out.sampled = sampled && (index < 3 || index + 1 == count);
            self.out.put(
                "htree_entry",
                &format!("{called}.entry[{index}]"),
                list + 8 * index,
                guard,
            );
        }
        self.out.sampled = sampled;
    }
}
