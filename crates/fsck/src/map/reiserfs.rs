//! The map of ReiserFS 3.6.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::builder::Table;
use super::layout::{Layouts, Order};
use super::{Builder, Kind, Map, MapError};

static LAYOUTS: LazyLock<Layouts> = LazyLock::new(|| {
    Layouts::parse(include_str!("../../maps/reiserfs.layout")).expect("the layout is tested")
});

const SUPERBLOCK: u64 = 0x1_0000;
/// The list of numbers of objects begins behind the superblock.
const SUPERBLOCK_BYTES: u64 = 204;
const HEAD: u64 = 24;
const ITEM_HEAD: u64 = 24;
const ENTRY_HEAD: u64 = 16;
const ROOT: u64 = 2;
/// Nodes that are followed at most: loops end here.
const NODES_MAX: usize = 10_000;
/// Items of each sort, and entries of one, that campaigns try.
const ITEMS_SAMPLED: u64 = 3;
const ENTRIES_SAMPLED: u64 = 5;

/// Whether an image has a superblock of ReiserFS.
pub(super) fn is_in(disk: &[u8]) -> bool {
    let magic = disk.get(0x1_0000 + 52..0x1_0000 + 61).unwrap_or_default();
    magic.starts_with(b"ReIsEr2Fs") || magic.starts_with(b"ReIsEr3Fs")
}

/// Maps an image.
pub(super) fn walk(disk: &[u8]) -> Result<Map, MapError> {
    let out = Builder::new(disk, &LAYOUTS, "reiserfs");
    let block_bytes = out.get("superblock", "s_blocksize", SUPERBLOCK);
    if !(512..=8192).contains(&block_bytes) || !block_bytes.is_power_of_two() {
        let what = format!("s_blocksize is {block_bytes}");
        return Err(MapError::Misfit { file_system: "reiserfs", what });
    }
    let mut walk = Walk { out, block_bytes, names: BTreeMap::new() };
    walk.out.map.block_bytes = block_bytes;
    walk.superblock();
    walk.journal();
    let leaves = walk.nodes();
    walk.names(&leaves);
    for leaf in leaves {
        walk.leaf(leaf);
    }
    Ok(walk.out.map)
}

/// What an item holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Stat,
    Pointers,
    Bytes,
    Entries,
}

/// An item of a leaf.
#[derive(Clone, Copy, Debug)]
struct Item {
    /// The first byte of its head, and of what it holds.
    head: u64,
    at: u64,
    bytes: u64,
    count: u64,
    object: u64,
    sort: Sort,
    is_new: bool,
}

struct Walk<'a> {
    out: Builder<'a>,
    block_bytes: u64,
    /// The path of each object, by number.
    names: BTreeMap<u64, String>,
}

impl Walk<'_> {
    fn get(&self, field: &str) -> u64 {
        self.out.get("superblock", field, SUPERBLOCK)
    }

    fn superblock(&mut self) {
        self.out.put("superblock", "superblock", SUPERBLOCK, None);
        let objects = self.get("s_oid_cursize").min(900);
        self.out.table(&Table {
            called: "superblock",
            item: "objectid_map",
            base: SUPERBLOCK + SUPERBLOCK_BYTES,
            width: 4,
            order: Order::Little,
            count: objects,
            kind: Kind::Inode,
            guard: None,
        });
        let blocks = self.get("s_block_count");
        let per_map = 8 * self.block_bytes;
        let first = SUPERBLOCK / self.block_bytes + 1;
        for index in 0..blocks.div_ceil(per_map) {
            let block = if index == 0 { first } else { index * per_map };
            let bits = (blocks - index * per_map).min(per_map);
            self.out.sampled = index == 0;
            let called = format!("bitmap[{index}]");
            self.out.bitmap(&called, block * self.block_bytes, bits, None, self.block_bytes);
        }
        self.out.sampled = true;
        let list = [
            ("nothing", 0),
            ("superblock", SUPERBLOCK / self.block_bytes),
            ("bitmap", first),
            ("journal", self.get("jp_journal_1st_block")),
            ("root", self.get("s_root_block")),
            ("last block", blocks.saturating_sub(1)),
            ("block behind the last", blocks),
        ];
        for (what, number) in list {
            self.out.target(Kind::Block, what, number);
        }
        for (what, number) in [("nothing", 0), ("parent of the root", 1), ("root", ROOT)] {
            self.out.target(Kind::Inode, what, number);
        }
        self.out.target(Kind::Inode, "free object", 1 << 20);
    }

    fn journal(&mut self) {
        let (first, count) = (self.get("jp_journal_1st_block"), self.get("jp_journal_size"));
        let place = |index: u64| (first + index) * self.block_bytes;
        if place(count) > self.out.end() {
            return;
        }
        let places: Vec<u64> = (0..=count).map(place).collect();
        self.out.put("journal_header", "journal_header", places[count as usize], None);
        let magic = |at: u64| at + self.block_bytes - 12;
        let mut index = 0;
        while index < count {
            let at = places[index as usize];
            if !self.out.bytes(magic(at), 8).starts_with(b"ReIsErLB") {
                index += 1;
                continue;
            }
            let length = self.out.u32(at + 4);
            self.out.sample("transaction", 2);
            let called = format!("journal_description[{index}]");
            self.out.put("journal_block", &called, at, None);
            self.out.put("journal_magic", &called, at + self.block_bytes - 12, None);
            let commit = index + length + 1;
            if commit < count {
                let called = format!("journal_commit[{commit}]");
                self.out.put("journal_block", &called, places[commit as usize], None);
            }
            index = commit.clamp(index + 1, count);
        }
        self.out.sampled = true;
    }

    /// The inner nodes; the leaves below them come back, in order.
    fn nodes(&mut self) -> Vec<u64> {
        let mut leaves = Vec::new();
        let mut seen = BTreeSet::new();
        let mut todo = vec![self.get("s_root_block")];
        while let Some(block) = todo.pop() {
            let at = block * self.block_bytes;
            if at + self.block_bytes > self.out.end()
                || !seen.insert(block)
                || seen.len() > NODES_MAX
            {
                continue;
            }
            let (level, count) = (self.out.u16(at), self.out.u16(at + 2));
            if level <= 1 {
                leaves.push(block);
                continue;
            }
            self.out.sample(&format!("node of level {level}"), 1);
            self.out.target(Kind::Block, "inner node", block);
            let chosen = self.out.sampled;
            let called = format!("node[{block}]");
            self.out.put("block_head", &called, at, None);
            let children = at + HEAD + 16 * count;
            let mut below = Vec::new();
            for index in 0..=count.min(self.block_bytes / 24) {
                self.out.sampled = chosen && (index < 2 || index == count);
                if index < count {
                    let key = at + HEAD + 16 * index;
                    self.out.put("key", &format!("{called}.key[{index}]"), key, None);
                }
                let child = children + 8 * index;
                self.out.put("child", &format!("{called}.child[{index}]"), child, None);
                below.push(self.out.u32(child));
            }
            below.reverse();
            todo.extend(below);
        }
        self.out.sampled = true;
        leaves
    }

    fn items(&self, leaf: u64) -> Vec<Item> {
        let at = leaf * self.block_bytes;
        let count = self.out.u16(at + 2).min(self.block_bytes / ITEM_HEAD);
        (0..count).map(|index| self.item(at, at + HEAD + ITEM_HEAD * index)).collect()
    }

    fn item(&self, block: u64, head: u64) -> Item {
        let is_new = self.out.u16(head + 22) == 1;
        let sort = match (is_new, self.out.u64(head + 8) >> 60, self.out.u32(head + 12)) {
            (true, 0, _) | (false, _, 0) => Sort::Stat,
            (true, 1, _) | (false, _, 0xffff_fffe) => Sort::Pointers,
            (true, 3, _) | (false, _, 500) => Sort::Entries,
            _ => Sort::Bytes,
        };
        Item {
            head,
            at: block + self.out.u16(head + 20),
            bytes: self.out.u16(head + 18),
            count: self.out.u16(head + 16),
            object: self.out.u32(head + 4),
            sort,
            is_new,
        }
    }

    /// The entries of an item of a directory: head, name.
    fn entries(&self, item: &Item) -> Vec<(u64, String)> {
        let mut end = item.bytes;
        let mut out = Vec::new();
        for index in 0..item.count.min(item.bytes / ENTRY_HEAD) {
            let head = item.at + ENTRY_HEAD * index;
            let location = self.out.u16(head + 12);
            let bytes = self.out.bytes(item.at + location, end.saturating_sub(location));
            let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            out.push((head, String::from_utf8_lossy(&bytes[..length]).into_owned()));
            end = location;
        }
        out
    }

    /// Finds the path of every object.
    fn names(&mut self, leaves: &[u64]) {
        let mut inside: BTreeMap<u64, Vec<(u64, String)>> = BTreeMap::new();
        for leaf in leaves {
            for item in self.items(*leaf).iter().filter(|item| item.sort == Sort::Entries) {
                for (head, name) in self.entries(item) {
                    if name != "." && name != ".." {
                        let object = self.out.u32(head + 8);
                        inside.entry(item.object).or_default().push((object, name));
                    }
                }
            }
        }
        let mut todo = vec![(ROOT, "/".to_owned())];
        while let Some((object, path)) = todo.pop() {
            if self.names.contains_key(&object) {
                continue;
            }
            for (below, name) in inside.get(&object).into_iter().flatten() {
                todo.push((*below, format!("{}/{name}", path.trim_end_matches('/'))));
            }
            self.names.insert(object, path);
        }
    }

    fn leaf(&mut self, block: u64) {
        let at = block * self.block_bytes;
        self.out.sample("leaf", 2);
        self.out.target(Kind::Block, "leaf", block);
        let called = format!("leaf[{block}]");
        self.out.put("block_head", &called, at, None);
        for (index, item) in self.items(block).into_iter().enumerate() {
            let path = self.names.get(&item.object).cloned().unwrap_or_default();
            let called = format!("{called}.item[{index} \"{path}\"]");
            let is_directory =
                item.sort == Sort::Stat && item.is_new && self.out.u16(item.at) >> 12 == 0o04;
            let sort = if is_directory { "directory" } else { "" };
            self.out.sample(&format!("{:?} {sort}", item.sort), ITEMS_SAMPLED);
            self.out.put("item_head", &called, item.head, None);
            self.contents(&called, &path, &item);
        }
        self.out.sampled = true;
    }

    fn contents(&mut self, called: &str, path: &str, item: &Item) {
        let inside = item.at + item.bytes <= self.out.end();
        match item.sort {
            Sort::Stat if item.is_new && inside => {
                let called = format!("stat[{} \"{path}\"]", item.object);
                self.out.put("stat_data", &called, item.at, None);
                self.out.target(Kind::Inode, "object", item.object);
            }
            Sort::Pointers if inside => {
                self.out.target(Kind::Block, "data", self.out.u32(item.at));
                self.out.table(&Table {
                    called,
                    item: "pointer",
                    base: item.at,
                    width: 4,
                    order: Order::Little,
                    count: item.bytes / 4,
                    kind: Kind::Block,
                    guard: None,
                });
            }
            Sort::Entries if inside => {
                let chosen = self.out.sampled;
                let entries = self.entries(item);
                let last = entries.len() as u64 - u64::from(!entries.is_empty());
                for (index, (head, name)) in entries.into_iter().enumerate() {
                    let index = index as u64;
                    self.out.sampled = chosen && (index < ENTRIES_SAMPLED || index == last);
                    let called = format!("dirent[{head} \"{path}\" \"{name}\"]");
                    self.out.put("entry_head", &called, head, None);
                    let place = item.at + self.out.u16(head + 12);
                    self.out.put("first_name_byte", &called, place, None);
                }
                self.out.sampled = chosen;
            }
            _ => {}
        }
    }
}
