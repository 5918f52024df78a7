//! Inodes, and the blocks through which they find their data.

use super::super::guard::{Piece, Store};
use super::super::layout::Order;
use super::super::{Field, Kind};
use super::Walk;
use crate::ext::{BlockKind, Inode, JOURNAL, ROOT, flag};

/// The journal has no bounds in the number of pointers; other files of a disk for tests are small.
const POINTERS_MAX: usize = 4;

impl Walk<'_> {
    /// Every inode in use, and one that is free.
    pub(super) fn inodes(&mut self) {
        let mut free = None;
        for number in 1..=self.volume.inodes {
            let Some(inode) = self.volume.inode(number) else { continue };
            let in_use = inode.mode != 0 || inode.links != 0 || number < 11;
            if in_use {
                self.inode(&inode);
            } else if free.is_none() {
                free = Some(number);
                self.out.target(Kind::Inode, "free inode", number);
                self.inode(&inode);
            }
        }
    }

    /// What an inode is called: its number, and its path or purpose.
    pub(super) fn called(&self, number: u64) -> String {
        let purpose = match number {
            1 => Some("bad blocks"),
            7 => Some("resize"),
            JOURNAL => Some("journal"),
            _ => None,
        };
        match self.paths.get(&number).map(String::as_str).or(purpose) {
            Some(words) => format!("{number} \"{words}\""),
            None => format!("{number}"),
        }
    }

    fn inode_guard(&mut self, inode: &Inode) -> Option<usize> {
        let (at, size) = (inode.at, self.volume.inode_bytes);
        let mut pieces = self.of_inode(inode);
        pieces.extend([Piece::Range(at, 0x7c), Piece::Zeros(2), Piece::Range(at + 0x7e, 2)]);
        let mut stores = vec![Store::low(at + 0x7c)];
        if size > 128 {
            pieces.push(Piece::Range(at + 0x80, 2));
            match self.volume.u16(at + 0x80) >= 4 {
                true => {
                    pieces.extend([Piece::Zeros(2), Piece::Range(at + 0x84, size - 0x84)]);
                    stores.push(Store::high(at + 0x82));
                }
                false => pieces.push(Piece::Range(at + 0x82, size - 0x82)),
            }
        }
        self.seeded(pieces, stores, None)
    }

    /// Alike inodes are of the same sort: one of each is tried.
    fn sort(&self, inode: &Inode) -> String {
        if inode.number < 11 {
            return format!("inode {}", inode.number);
        }
        let tree = match inode.has(flag::EXTENTS) {
            true => format!("extents {}", self.volume.u16(inode.at + 46)),
            false => {
                let pointer = |index: u64| self.volume.u32(inode.at + 40 + 4 * index) != 0;
                format!("blocks {} {} {}", pointer(12), pointer(13), pointer(14))
            }
        };
        let marks = inode.flags & (flag::INDEX | flag::INLINE_DATA | 0x20_0000);
        let attributes = crate::ext::xattr::in_inode(&self.volume, inode).is_some();
        let in_block = crate::ext::xattr::block_of(&self.volume, inode).is_some();
        let unlinked = inode.links == 0;
        let long = inode.size >= 60;
        format!(
            "inode {:x} {tree} {marks:x} {attributes} {in_block} {unlinked} {} {long}",
            inode.file_type(),
            inode.links > 1
        )
    }

    fn inode(&mut self, inode: &Inode) {
        let called = format!("inode[{}]", self.called(inode.number));
        // An inode that was never used is all zeros, its checksum too.
        let unused =
            self.volume.bytes(inode.at, self.volume.inode_bytes).iter().all(|byte| *byte == 0);
        let guard = if unused { None } else { self.inode_guard(inode) };
        let sort = self.sort(inode);
        self.sample(&sort);
        let sampled = self.out.sampled;
        self.inode_targets(inode);
        let extra = match self.volume.inode_bytes > 128 {
            true => 128 + u64::from(self.volume.u16(inode.at + 128)).min(32),
            false => 128,
        };
        // Without extra bytes the field that says so is still there.
        let extra = if self.volume.inode_bytes > 128 { extra.max(132) } else { extra };
        let is_short_link = inode.is_symlink() && inode.size < 60;
        let has_pointers = !inode.has(flag::EXTENTS | flag::INLINE_DATA) && !is_short_link;
        self.out.put_where("inode", &called, inode.at, guard, |part| {
            part.at < extra && (has_pointers || !(40..100).contains(&part.at))
        });
        if inode.has(flag::EXTENTS) {
            self.extent_node(&called, inode.at + 40, 60, guard);
        } else if inode.is_symlink() && inode.size < 60 {
            self.out.put("symlink", &called, inode.at + 40, guard);
        } else if inode.has(flag::INLINE_DATA) && inode.is_dir() {
            self.inline_directory(inode, &called, guard);
        }
        self.tree_blocks(inode);
        self.out.sampled = sampled;
        self.xattrs(inode, &called, guard);
        self.out.sampled = sampled;
        if inode.is_dir() {
            self.directory(inode, sampled);
        } else if inode.is_symlink() && inode.size >= 60 {
            self.long_symlink(inode, &called);
        }
        self.quota(inode);
        self.orphan_file(inode);
    }

    fn inode_targets(&mut self, inode: &Inode) {
        let what = match (inode.number, inode.file_type()) {
            (ROOT, _) => "root directory",
            (JOURNAL, _) => "journal inode",
            (_, 0x4000) => "directory",
            (_, 0x8000) if inode.links > 1 => "file with two names",
            (_, 0x8000) => "file",
            (_, 0xa000) => "symlink",
            (_, 0x1000) => "fifo",
            (_, 0x2000 | 0x6000) => "device",
            _ => return,
        };
        self.out.target(Kind::Inode, what, inode.number);
    }

    fn long_symlink(&mut self, inode: &Inode, called: &str) {
        if let Some(block) = self.volume.blocks_of(inode).last() {
            self.out.put("symlink", called, block.physical * self.volume.block_bytes, None);
        }
    }

    /// A node of the tree of extents: its header, its entries, and one place behind the last.
    fn extent_node(&mut self, called: &str, at: u64, bytes: u64, guard: Option<usize>) {
        if self.volume.u16(at) != 0xf30a {
            self.out.note(format!("{called} has no tree of extents"));
            return;
        }
        let called = format!("{called}.extents");
        self.out.put("extent_header", &called, at, guard);
        let (entries, depth) = (u64::from(self.volume.u16(at + 2)), self.volume.u16(at + 6));
        let structure = if depth == 0 { "extent" } else { "extent_index" };
        let sampled = self.out.sampled;
        for index in 0..(entries + 1).min((bytes - 12) / 12) {
            let near_end = index + 2 >= entries && index <= entries;
            self.out.sampled = sampled && (index < 2 || near_end);
            self.out.put(structure, &format!("{called}[{index}]"), at + 12 + 12 * index, guard);
        }
        self.out.sampled = sampled;
    }

    /// The blocks between an inode and its data.
    fn tree_blocks(&mut self, inode: &Inode) {
        let sampled = self.out.sampled;
        let mut seen = std::collections::BTreeMap::<String, usize>::new();
        for block in self.volume.blocks_of(inode) {
            let count = seen.entry(format!("{:?}", block.kind)).or_default();
            *count += 1;
            self.out.sampled = sampled && *count <= 2;
            let at = block.physical * self.volume.block_bytes;
            let name = self.called(inode.number);
            match block.kind {
                BlockKind::Data => self.data_target(inode, block.physical),
                BlockKind::Extents => {
                    self.out.target(Kind::Block, "block of extents", block.physical);
                    self.extent_block(
                        inode,
                        &format!("extent_block[{} of {name}]", block.physical),
                        at,
                    );
                }
                BlockKind::Indirect(level) => {
                    let what =
                        ["indirect", "double_indirect", "triple_indirect"][usize::from(level - 1)];
                    self.out.target(Kind::Block, &what.replace('_', " "), block.physical);
                    self.pointers(&format!("{what}[{} of {name}]", block.physical), at);
                }
            }
        }
        self.out.sampled = sampled;
    }

    fn data_target(&mut self, inode: &Inode, block: u64) {
        let what = match (inode.number, inode.file_type()) {
            (ROOT, _) => "root directory",
            (JOURNAL, _) => "journal",
            (_, 0x4000) => "directory",
            (_, 0x8000) => "data of a file",
            (_, 0xa000) => "target of a symlink",
            _ => return,
        };
        self.out.target(Kind::Block, what, block);
    }

    fn extent_block(&mut self, inode: &Inode, called: &str, at: u64) {
        let most = u64::from(self.volume.u16(at + 4));
        let tail = 12 + 12 * most;
        let mut pieces = self.of_inode(inode);
        pieces.push(Piece::Range(at, tail));
        let fits = tail + 4 <= self.volume.block_bytes;
        let stores = vec![Store::whole(at + tail, Order::Little)];
        let guard = fits.then(|| self.seeded(pieces, stores, None)).flatten();
        self.extent_node(called, at, self.volume.block_bytes, guard);
        if guard.is_some() {
            self.out.put("extent_tail", called, at + tail, guard);
        }
    }

    /// A block of pointers: those in use, the first that is not, the last.
    fn pointers(&mut self, called: &str, at: u64) {
        let count = self.volume.block_bytes / 4;
        let sampled = self.out.sampled;
        let (mut used, mut unused) = (0, 0);
        for index in 0..count {
            let in_use = self.volume.u32(at + 4 * index) != 0;
            *(if in_use { &mut used } else { &mut unused }) += 1;
            if !in_use && unused > 1 && index + 1 != count {
                continue;
            }
            self.out.sampled = sampled && (!in_use || used <= POINTERS_MAX);
            let field = Field {
                structure: called.into(),
                name: format!("block[{index}]").into(),
                at: at + 4 * index,
                width: 4,
                order: Order::Little,
                kind: Kind::Block,
                guard: None,
                sampled: self.out.sampled,
            };
            self.out.add(field);
        }
        self.out.sampled = sampled;
    }
}
