//! Allocation groups: their headers, the lists of free blocks, and the trees of blocks and inodes.

use super::super::Kind;
use super::super::builder::Table;
use super::super::layout::Order;
use super::Walk;

/// Blocks of one tree that are followed at most.
const BLOCKS_MAX: u64 = 2000;
/// Records of a block that campaigns try, besides the last.
const RECORDS_SAMPLED: u64 = 3;

/// A tree of a group: its name, the structure of its records, and the bytes of records and keys.
struct Tree {
    name: &'static str,
    record: &'static str,
    record_bytes: u64,
    key: &'static str,
    key_bytes: u64,
}

impl Walk<'_> {
    pub(super) fn groups(&mut self) {
        for group in 0..self.volume.groups {
            let base = group * self.volume.group_blocks * self.volume.block_bytes;
            if base + 4 * self.volume.sector_bytes > self.out.end() {
                return;
            }
            self.out.sampled = group == 0;
            self.headers(group, base);
            self.trees(group, base);
        }
        self.out.sampled = true;
    }

    fn headers(&mut self, group: u64, base: u64) {
        let sector = self.volume.sector_bytes;
        let (five, chosen) = (self.volume.five, self.out.sampled);
        let called =
            if group == 0 { "superblock".to_owned() } else { format!("superblock[{group}]") };
        let guard = self.guard(base, sector, 224);
        self.out.put("superblock", &called, base, guard);
        if five {
            self.out.put("superblock5", &called, base + 208, guard);
        }
        // The second group differs in what is in it, so its headers are tried too.
        self.out.sampled = group < 2;
        let (agf, agi, list) = (base + sector, base + 2 * sector, base + 3 * sector);
        let guard = self.guard(agf, sector, 216);
        let called = format!("agf[{group}]");
        self.out.put_where("agf", &called, agf, guard, |part| five || !part.name.contains("rmap"));
        if five {
            self.out.put("agf5", &called, agf + 64, guard);
        }
        let guard = self.guard(agi, sector, 312);
        let called = format!("agi[{group}]");
        self.out.put("agi", &called, agi, guard);
        if five {
            self.out.put("agi5", &called, agi + 296, guard);
        }
        let guard = self.guard(list, sector, 32);
        let called = format!("agfl[{group}]");
        if five {
            self.out.put("agfl5", &called, list, guard);
        }
        let head = if five { 36 } else { 0 };
        self.out.table(&Table {
            called: &called,
            item: "bno",
            base: list + head,
            width: 4,
            order: Order::Big,
            count: (sector - head) / 4,
            kind: Kind::Block,
            guard,
        });
        self.out.sampled = chosen;
    }

    fn trees(&mut self, group: u64, base: u64) {
        let (five, sector) = (self.volume.five, self.volume.sector_bytes);
        let inodes = if self.volume.has_sparse_inodes { "inode_record" } else { "inode_record4" };
        let tree = |name, record, record_bytes, key, key_bytes| Tree {
            name,
            record,
            record_bytes,
            key,
            key_bytes,
        };
        let (agf, agi) = (base + sector, base + 2 * sector);
        let mut trees = vec![
            (agf + 16, tree("free_by_block", "free_record", 8, "free_record", 8)),
            (agf + 20, tree("free_by_size", "free_record", 8, "free_record", 8)),
            (agi + 20, tree("inodes", inodes, 16, "pointer", 4)),
        ];
        if five {
            trees.push((agf + 24, tree("reverse_map", "rmap_record", 24, "rmap_record", 40)));
            trees.push((agf + 88, tree("reference_counts", "refcount_record", 12, "pointer", 4)));
            trees.push((agi + 328, tree("free_inodes", inodes, 16, "pointer", 4)));
        }
        for (place, tree) in trees {
            let root = self.out.b32(place);
            if root != 0 && root < self.volume.group_blocks {
                self.group_tree(group, base, root, &tree);
            }
        }
    }

    fn group_tree(&mut self, group: u64, base: u64, root: u64, tree: &Tree) {
        let mut todo = vec![root];
        let mut count = 0;
        while let Some(block) = todo.pop() {
            let at = base + block * self.volume.block_bytes;
            count += 1;
            if count > BLOCKS_MAX || at + self.volume.block_bytes > self.out.end() {
                return;
            }
            let level = self.out.b16(at + 4);
            self.out.target(Kind::Block, &format!("tree {}", tree.name), block);
            self.out.sample(&format!("{} of level {level}", tree.name), 1);
            let called = format!("{}[{group}/{block}]", tree.name);
            let guard = self.guard(at, self.volume.block_bytes, 52);
            self.out.put("short_block", &called, at, guard);
            let head = if self.volume.five { 56 } else { 16 };
            if self.volume.five {
                self.out.put("short_block5", &called, at + 16, guard);
            }
            if level == 0 {
                self.records(&called, at + head, self.out.b16(at + 6), tree, guard);
            } else {
                let below = self.pointers(&called, at, head, tree, guard);
                todo.extend(below.into_iter().filter(|block| *block < self.volume.group_blocks));
            }
        }
    }

    fn records(&mut self, called: &str, first: u64, count: u64, tree: &Tree, guard: Option<usize>) {
        let chosen = self.out.sampled;
        for index in 0..count.min(self.volume.block_bytes / tree.record_bytes) {
            self.out.sampled = chosen && (index < RECORDS_SAMPLED || index + 1 == count);
            let place = first + tree.record_bytes * index;
            self.out.put(tree.record, &format!("{called}.record[{index}]"), place, guard);
        }
        self.out.sampled = chosen;
    }

    /// Keys and pointers of an inner block; the blocks below come back.
    fn pointers(
        &mut self,
        called: &str,
        at: u64,
        head: u64,
        tree: &Tree,
        guard: Option<usize>,
    ) -> Vec<u64> {
        let chosen = self.out.sampled;
        let most = (self.volume.block_bytes - head) / (tree.key_bytes + 4);
        let count = self.out.b16(at + 6).min(most);
        let mut below = Vec::new();
        for index in 0..count {
            self.out.sampled = chosen && (index < RECORDS_SAMPLED || index + 1 == count);
            let key = at + head + tree.key_bytes * index;
            let pointer = at + head + tree.key_bytes * most + 4 * index;
            self.out.put(tree.key, &format!("{called}.key[{index}]"), key, guard);
            self.out.put("pointer", &format!("{called}.pointer[{index}]"), pointer, guard);
            below.push(self.out.b32(pointer));
        }
        self.out.sampled = chosen;
        below
    }
}
