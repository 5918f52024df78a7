//! The map of f2fs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::builder::Table;
use super::guard::{Algorithm, Guard, Piece, Store};
use super::layout::{Layouts, Order};
use super::{Builder, Kind, Map, MapError};

static LAYOUTS: LazyLock<Layouts> = LazyLock::new(|| {
    Layouts::parse(include_str!("../../maps/f2fs.layout")).expect("the layout is tested")
});

const MAGIC: u32 = 0xf2f5_2010;
const SUPERBLOCK: u64 = 1024;
const BLOCK: u64 = 4096;
/// Features and flags that decide where something lies.
const INODE_SUMS: u64 = 0x20;
const SUPERBLOCK_SUMS: u64 = 0x800;
const FLEXIBLE_XATTRS: u64 = 0x40;
const ORPHANS: u64 = 2;
const COMPACT: u64 = 4;
const UNMOUNTED: u64 = 1;
const INLINE_XATTR: u64 = 1;
const INLINE_DATA: u64 = 2;
const INLINE_DENTRY: u64 = 4;
const EXTRA: u64 = 0x20;
/// Sizes of tables in a block.
const NAT_ENTRIES: u64 = 455;
const SIT_ENTRIES: u64 = 55;
const JOURNAL_BYTES: u64 = 507;
const SUMMARIES: u64 = 512;
const ADDRESSES: u64 = 923;
const NODE_POINTERS: u64 = 1018;
const DENTRIES: u64 = 214;
/// Places in an inode block.
const ADDRESS: u64 = 360;
const NIDS: u64 = 4052;
const FOOTER: u64 = 4072;
/// Inodes of each type that campaigns try, and entries of a directory.
const INODES_SAMPLED: u64 = 2;
const ENTRIES_SAMPLED: u64 = 5;

/// Whether an image has a superblock of f2fs.
pub(super) fn is_in(disk: &[u8]) -> bool {
    disk.get(1024..1028) == Some(&MAGIC.to_le_bytes())
}

/// Maps an image.
pub(super) fn walk(disk: &[u8]) -> Result<Map, MapError> {
    let mut out = Builder::new(disk, &LAYOUTS, "f2fs");
    out.map.block_bytes = BLOCK;
    let misfit = |what: &str| MapError::Misfit { file_system: "f2fs", what: what.to_owned() };
    let get = |field: &str| out.get("superblock", field, SUPERBLOCK);
    if get("log_blocksize") != 12 || get("log_blocks_per_seg") != 9 {
        return Err(misfit("blocks are not of 4096 bytes, or segments not of 512 blocks"));
    }
    let checkpoint = get("cp_blkaddr") * BLOCK;
    let second = checkpoint + 512 * BLOCK;
    let version = |at: u64| out.u64(at);
    let pack = if version(second) > version(checkpoint) { second } else { checkpoint };
    let mut walk = Walk {
        features: get("feature"),
        nat: get("nat_blkaddr"),
        sit: get("sit_blkaddr"),
        sit_blocks: get("segment_count_sit") / 2 * 512,
        ssa: get("ssa_blkaddr"),
        main: get("main_blkaddr"),
        segments: get("segment_count_main"),
        payload: get("cp_payload"),
        root: get("root_ino"),
        pack,
        journal: BTreeMap::new(),
        seen: BTreeSet::new(),
        out,
    };
    walk.superblocks();
    walk.checkpoint(if pack == checkpoint { second } else { checkpoint });
    walk.summaries();
    walk.segments();
    walk.targets();
    walk.tree();
    Ok(walk.out.map)
}

struct Walk<'a> {
    out: Builder<'a>,
    features: u64,
    nat: u64,
    sit: u64,
    /// Blocks of one copy of the table of segments.
    sit_blocks: u64,
    ssa: u64,
    main: u64,
    segments: u64,
    payload: u64,
    root: u64,
    /// The first byte of the valid checkpoint.
    pack: u64,
    /// Entries of the journal, which are newer than those of the table: node, place of its entry.
    journal: BTreeMap<u64, u64>,
    seen: BTreeSet<u64>,
}

/// How many words of an inode are for attributes, and where its data begins.
#[derive(Clone, Copy)]
struct InodeShape {
    data: u64,
    addresses: u64,
    xattr_words: u64,
}

impl Walk<'_> {
    fn superblocks(&mut self) {
        for (called, at) in [("superblock", SUPERBLOCK), ("superblock_copy", BLOCK + SUPERBLOCK)] {
            self.out.sampled = called == "superblock";
            let kept = self.out.get("superblock", "checksum_offset", at);
            let summed = self.features & SUPERBLOCK_SUMS != 0 && kept + 4 <= BLOCK - SUPERBLOCK;
            let guard = summed.then(|| {
                self.out.guard(Guard {
                    algorithm: Algorithm::Crc32Raw(MAGIC),
                    pieces: vec![Piece::Range(at, kept)],
                    stores: vec![Store::whole(at + kept, Order::Little)],
                    next: None,
                })
            });
            self.out.put("superblock", called, at, guard);
        }
        self.out.sampled = true;
    }

    /// Maps both packs; the other one is only shown.
    fn checkpoint(&mut self, other: u64) {
        for (called, at) in [("checkpoint", self.pack), ("old_checkpoint", other)] {
            let last = self.out.get("checkpoint", "cp_pack_total_block_count", at);
            let guard = self.checkpoint_block(called, at);
            self.out.sampled = called == "checkpoint";
            for (name, field) in [("sit", 0), ("nat", 1)] {
                let base = self.version_bitmap(at, field);
                let fields = ["sit_ver_bitmap_bytesize", "nat_ver_bitmap_bytesize"];
                let bytes = self.out.get("checkpoint", fields[field], at);
                let called = format!("{called}.{name}_bitmap");
                self.out.bitmap(&called, base, bytes * 8, guard, bytes.min(256));
            }
            if (2..512).contains(&last) {
                self.out.sampled = false;
                self.checkpoint_block(&format!("{called}_end"), at + (last - 1) * BLOCK);
            }
            self.out.sampled = true;
        }
        if self.out.get("checkpoint", "ckpt_flags", self.pack) & ORPHANS != 0 {
            let at = self.pack + (1 + self.payload) * BLOCK;
            self.out.put("orphans", "orphans", at, None);
        }
    }

    fn checkpoint_block(&mut self, called: &str, at: u64) -> Option<usize> {
        self.out.sampled = called == "checkpoint";
        let kept = self.out.get("checkpoint", "checksum_offset", at);
        let guard = (kept == BLOCK - 4).then(|| {
            self.out.guard(Guard {
                algorithm: Algorithm::Crc32Raw(MAGIC),
                pieces: vec![Piece::Range(at, kept)],
                stores: vec![Store::whole(at + kept, Order::Little)],
                next: None,
            })
        });
        self.out.put("checkpoint", called, at, guard);
        if guard.is_some() {
            self.out.put("checkpoint_sum", called, at + kept, guard);
        }
        guard
    }

    /// Where the bits lie that say which copy of a block of a table is the valid one: 0 the table of
    /// segments, 1 that of nodes.
    fn version_bitmap(&self, pack: u64, which: usize) -> u64 {
        let first = pack + 192;
        match (self.payload > 0, which) {
            (true, 0) => pack + BLOCK,
            (true, _) | (false, 0) => first,
            (false, _) => first + self.out.get("checkpoint", "sit_ver_bitmap_bytesize", pack),
        }
    }

    fn bit(&self, which: usize, index: u64) -> bool {
        let byte = self.out.u8(self.version_bitmap(self.pack, which) + index / 8);
        byte >> (7 - index % 8) & 1 == 1
    }

    /// The summaries of the segments in use, with the journals in them.
    fn summaries(&mut self) {
        let flags = self.out.get("checkpoint", "ckpt_flags", self.pack);
        let start = self.pack + self.out.get("checkpoint", "cp_pack_start_sum", self.pack) * BLOCK;
        if flags & COMPACT != 0 {
            self.nat_journal(start);
            self.sit_journal(start + JOURNAL_BYTES);
            self.summary_entries("compact_summary", start + 2 * JOURNAL_BYTES, 200);
        } else {
            let journal = 7 * SUMMARIES;
            for index in 0..3 {
                self.summary_block(&format!("data_summary[{index}]"), start + index * BLOCK);
            }
            self.nat_journal(start + journal);
            self.sit_journal(start + 2 * BLOCK + journal);
        }
        if flags & UNMOUNTED != 0 {
            let nodes = start + if flags & COMPACT != 0 { BLOCK } else { 3 * BLOCK };
            for index in 0..3 {
                self.summary_block(&format!("node_summary[{index}]"), nodes + index * BLOCK);
            }
        }
        self.out.sampled = true;
    }

    fn summary_block(&mut self, called: &str, at: u64) {
        self.summary_entries(called, at, SUMMARIES);
        self.out.put("summary_footer", called, at + BLOCK - 5, None);
    }

    fn summary_entries(&mut self, called: &str, at: u64, count: u64) {
        let mut used = 0;
        for index in 0..count {
            let place = at + 7 * index;
            if self.out.u32(place) == 0 && index > 0 {
                continue;
            }
            used += 1;
            self.out.sampled = used <= 2;
            self.out.put("summary", &format!("{called}.entry[{index}]"), place, None);
        }
        self.out.sampled = true;
    }

    fn nat_journal(&mut self, at: u64) {
        self.out.put("journal_count", "nat_journal", at, None);
        let count = self.out.u16(at).min((JOURNAL_BYTES - 2) / 13);
        for index in 0..count {
            let place = at + 2 + 13 * index;
            self.journal.insert(self.out.u32(place), place + 4);
            self.out.sampled = index < 2 || index + 1 == count;
            self.out.put("nat_journal", &format!("nat_journal[{index}]"), place, None);
        }
        self.out.sampled = true;
    }

    fn sit_journal(&mut self, at: u64) {
        self.out.put("journal_count", "sit_journal", at, None);
        let count = self.out.u16(at).min((JOURNAL_BYTES - 2) / 78);
        for index in 0..count {
            self.out.sampled = index < 2;
            let place = at + 2 + 78 * index;
            self.out.put("sit_journal", &format!("sit_journal[{index}]"), place, None);
        }
        self.out.sampled = true;
    }

    /// The table of segments, and the summaries of segments that are full.
    fn segments(&mut self) {
        for segment in 0..self.segments {
            let block = segment / SIT_ENTRIES;
            let copy = if self.bit(0, block) { self.sit_blocks } else { 0 };
            let at = (self.sit + block + copy) * BLOCK + segment % SIT_ENTRIES * 74;
            let in_use = self.out.u16(at) & 0x3ff;
            self.out.sample(if in_use > 0 { "used segment" } else { "free segment" }, 2);
            let called = format!("sit[{segment}]");
            self.out.put("sit", &called, at, None);
            if in_use > 0 {
                self.out.bitmap(&format!("{called}.valid_map"), at + 2, 512, None, 64);
                let sum = (self.ssa + segment) * BLOCK;
                if self.out.sampled {
                    self.summary_block(&format!("ssa[{segment}]"), sum);
                }
            }
        }
        self.out.sampled = true;
    }

    fn targets(&mut self) {
        let blocks = [
            ("nothing", 0),
            ("superblock", 1),
            ("checkpoint", self.pack / BLOCK),
            ("table of segments", self.sit),
            ("table of nodes", self.nat),
            ("summaries", self.ssa),
            ("first block", self.main),
            ("last block", self.main + self.segments * 512 - 1),
            ("block behind the last", self.main + self.segments * 512),
            ("new block", 0xffff_ffff),
            ("compressed block", 0xffff_fffe),
        ];
        for (what, number) in blocks {
            self.out.target(Kind::Block, what, number);
        }
        let count = self.out.get("checkpoint", "next_free_nid", self.pack);
        let nodes = [("nothing", 0), ("inode of nodes", 1), ("root", self.root), ("free", count)];
        for (what, number) in nodes {
            self.out.target(Kind::Inode, what, number);
        }
    }

    /// The place of the entry of a node in the table, and whether it is in the journal.
    fn nat_entry(&self, node: u64) -> (u64, bool) {
        if let Some(place) = self.journal.get(&node) {
            return (*place, true);
        }
        let block = node / NAT_ENTRIES;
        let first = self.nat + block / 512 * 1024 + block % 512;
        let copy = if self.bit(1, block) { 512 } else { 0 };
        ((first + copy) * BLOCK + node % NAT_ENTRIES * 9, false)
    }

    /// The first byte of a node.
    fn node(&mut self, node: u64, sort: &str) -> Option<u64> {
        let (entry, is_in_journal) = self.nat_entry(node);
        if !is_in_journal {
            self.out.sample(&format!("entry of {sort}"), 1);
            self.out.put("nat", &format!("nat[{node}]"), entry, None);
        }
        let block = self.out.u32(entry + 5);
        let inside = block >= self.main && block < self.main + self.segments * 512;
        if inside {
            self.out.target(Kind::Block, sort, block);
            self.out.target(Kind::Inode, sort, node);
        }
        inside.then_some(block * BLOCK)
    }

    fn tree(&mut self) {
        let mut todo = vec![(self.root, "/".to_owned())];
        while let Some((number, path)) = todo.pop() {
            if self.seen.insert(number) {
                let mut below = self.inode(number, &path);
                below.reverse();
                todo.extend(below);
            }
        }
    }

    fn inode_guard(&mut self, at: u64, has_extra: bool) -> Option<usize> {
        let reaches = self.out.u16(at + ADDRESS) >= 12;
        (has_extra && reaches && self.features & INODE_SUMS != 0).then(|| {
            let kept = at + ADDRESS + 8;
            self.out.guard(Guard {
                algorithm: Algorithm::Crc32Raw(u32::MAX),
                pieces: vec![
                    Piece::Range(SUPERBLOCK + 108, 16),
                    Piece::Range(at + FOOTER + 4, 4),
                    Piece::Range(at + 68, 4),
                    Piece::Range(at, kept - at),
                    Piece::Zeros(4),
                    Piece::Range(kept + 4, at + BLOCK - kept - 4),
                ],
                stores: vec![Store::whole(kept, Order::Little)],
                next: None,
            })
        })
    }

    /// Maps an inode and what it leads to; what a directory names comes back.
    fn inode(&mut self, number: u64, path: &str) -> Vec<(u64, String)> {
        let Some(at) = self.node(number, "inode") else { return Vec::new() };
        let (mode, flags) = (self.out.u16(at), self.out.u8(at + 3));
        let sort = match (mode >> 12, flags & (INLINE_DATA | INLINE_DENTRY)) {
            (0o04, 0) => "directory",
            (0o04, _) => "inline directory",
            (0o10, 0) => "file",
            (0o10, _) => "inline file",
            (0o12, _) => "symbolic link",
            _ => "special file",
        };
        self.out.sample(sort, INODES_SAMPLED);
        let chosen = self.out.sampled;
        self.out.target(Kind::Inode, sort, number);
        let has_extra = flags & EXTRA != 0;
        let guard = self.inode_guard(at, has_extra);
        let called = format!("inode[{number} \"{path}\"]");
        self.out.put("inode", &called, at, guard);
        if has_extra {
            self.out.put("inode_extra", &called, at + ADDRESS, guard);
        }
        self.out.put("inode_nids", &called, at + NIDS, guard);
        self.out.put("footer", &called, at + FOOTER, guard);
        let shape = self.inode_shape(at, flags);
        self.attributes(&called, at, shape, guard);
        self.out.sampled = chosen;
        if flags & INLINE_DENTRY != 0 {
            let below = self.inline_entries(path, shape, guard);
            self.out.sampled = chosen;
            return below;
        }
        if flags & INLINE_DATA != 0 {
            return Vec::new();
        }
        let blocks = self.blocks(&called, at, shape, guard, path);
        self.out.sampled = chosen;
        if mode >> 12 == 0o04 { self.directory(path, &blocks) } else { Vec::new() }
    }

    fn inode_shape(&self, at: u64, flags: u64) -> InodeShape {
        let has_extra = flags & EXTRA != 0;
        let extra = if has_extra { self.out.u16(at + ADDRESS).min(400) } else { 0 };
        let flexible = has_extra && self.features & FLEXIBLE_XATTRS != 0;
        let xattr_words = match (flexible, flags & (INLINE_XATTR | INLINE_DENTRY)) {
            (true, _) => self.out.u16(at + ADDRESS + 2).min(200),
            (false, 0) => 0,
            _ => 50,
        };
        let addresses = ADDRESSES - extra / 4 - xattr_words;
        InodeShape { data: at + ADDRESS + extra, addresses, xattr_words }
    }

    /// The attributes in the inode, and those in a node of their own.
    fn attributes(&mut self, called: &str, at: u64, shape: InodeShape, guard: Option<usize>) {
        if shape.xattr_words > 0 {
            let first = shape.data + 4 * shape.addresses;
            self.attribute_list(&format!("{called}.xattrs"), first, 4 * shape.xattr_words, guard);
        }
        let node = self.out.u32(at + 76);
        if node != 0
            && let Some(place) = self.node(node, "node of attributes")
        {
            let called = format!("{called}.xattr_node");
            self.out.sample("node of attributes", 1);
            self.attribute_list(&called, place, BLOCK - 24, None);
            self.out.put("footer", &called, place + FOOTER, None);
        }
    }

    fn attribute_list(&mut self, called: &str, first: u64, bytes: u64, guard: Option<usize>) {
        let magic = self.out.u32(first) == 0xf2f5_2011;
        if magic {
            self.out.put("xattr_header", called, first, guard);
        }
        let mut at = first + if magic { 24 } else { 0 };
        for index in 0..8 {
            if at + 4 > first + bytes || self.out.u32(at) == 0 {
                break;
            }
            self.out.put("xattr", &format!("{called}[{index}]"), at, guard);
            let length = 4 + self.out.u8(at + 1) + self.out.u16(at + 2);
            at += length.next_multiple_of(4);
        }
    }

    /// The blocks with data of an inode; nodes of pointers are mapped on the way.
    fn blocks(
        &mut self,
        called: &str,
        at: u64,
        shape: InodeShape,
        guard: Option<usize>,
        path: &str,
    ) -> Vec<u64> {
        let (base, count) = (shape.data, shape.addresses);
        self.out.table(&Table {
            called,
            item: "i_addr",
            base,
            width: 4,
            order: Order::Little,
            count,
            kind: Kind::Block,
            guard,
        });
        let mut blocks: Vec<u64> = (0..count).map(|index| self.out.u32(base + 4 * index)).collect();
        for (index, depth) in [(0, 0), (1, 0), (2, 1), (3, 1), (4, 2)] {
            let node = self.out.u32(at + NIDS + 4 * index);
            self.pointers(node, depth, path, &mut blocks);
        }
        let inside = self.main..self.main + self.segments * 512;
        blocks.retain(|block| inside.contains(block));
        if let Some(first) = blocks.first() {
            self.out.target(Kind::Block, "data", *first);
        }
        blocks
    }

    fn pointers(&mut self, node: u64, depth: u64, path: &str, blocks: &mut Vec<u64>) {
        if node == 0 || !self.seen.insert(node) {
            return;
        }
        let sort = ["direct node", "indirect node", "double indirect node"][depth as usize];
        let Some(at) = self.node(node, sort) else { return };
        let called = format!("node[{node} \"{path}\"]");
        self.out.sample(sort, 1);
        let (item, kind) = if depth == 0 { ("addr", Kind::Block) } else { ("nid", Kind::Inode) };
        self.out.table(&Table {
            called: &called,
            item,
            base: at,
            width: 4,
            order: Order::Little,
            count: NODE_POINTERS,
            kind,
            guard: None,
        });
        self.out.put("footer", &called, at + FOOTER, None);
        for index in 0..NODE_POINTERS {
            let next = self.out.u32(at + 4 * index);
            match depth {
                0 => blocks.push(next),
                _ => self.pointers(next, depth - 1, path, blocks),
            }
        }
    }

    fn directory(&mut self, path: &str, blocks: &[u64]) -> Vec<(u64, String)> {
        let mut below = Vec::new();
        for block in blocks {
            let at = block * BLOCK;
            self.out.target(Kind::Block, "directory", *block);
            let list = Entries {
                bitmap: at,
                first: at + 30,
                names: at + 30 + 11 * DENTRIES,
                count: DENTRIES,
            };
            self.out.sample("block of a directory", 2);
            below.extend(self.entries(path, &list, None));
        }
        below
    }

    fn inline_entries(
        &mut self,
        path: &str,
        shape: InodeShape,
        guard: Option<usize>,
    ) -> Vec<(u64, String)> {
        let bytes = 4 * (shape.addresses - 1);
        let count = bytes * 8 / (19 * 8 + 1);
        let bitmap = shape.data + 4;
        let first = bitmap + bytes - 19 * count;
        let list = Entries { bitmap, first, names: first + 11 * count, count };
        self.entries(path, &list, guard)
    }

    fn entries(&mut self, path: &str, list: &Entries, guard: Option<usize>) -> Vec<(u64, String)> {
        let chosen = self.out.sampled;
        self.out.bitmap(
            &format!("dentry_bitmap[{} \"{path}\"]", list.bitmap),
            list.bitmap,
            list.count,
            guard,
            list.count / 8,
        );
        let mut below = Vec::new();
        let (mut index, mut seen) = (0, 0);
        while index < list.count {
            let in_use = self.out.u8(list.bitmap + index / 8) >> (index % 8) & 1 == 1;
            if !in_use {
                index += 1;
                continue;
            }
            let at = list.first + 11 * index;
            let (number, length) = (self.out.u32(at + 4), self.out.u16(at + 8).min(255));
            let name = self.out.bytes(list.names + 8 * index, length);
            let name = String::from_utf8_lossy(name).into_owned();
            seen += 1;
            self.out.sampled = chosen && seen <= ENTRIES_SAMPLED;
            let called = format!("dirent[{at} \"{path}\" \"{name}\"]");
            self.out.put("dentry", &called, at, guard);
            if name != "." && name != ".." {
                below.push((number, format!("{}/{name}", path.trim_end_matches('/'))));
            }
            index += length.div_ceil(8).max(1);
        }
        self.out.sampled = chosen;
        below
    }
}

/// Where the parts of a list of directory entries lie.
struct Entries {
    bitmap: u64,
    first: u64,
    names: u64,
    count: u64,
}
