//! The map of btrfs on one device.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::guard::{Algorithm, Guard, Piece, Store};
use super::layout::{Layouts, Order};
use super::{Builder, Kind, Map, MapError};

static LAYOUTS: LazyLock<Layouts> = LazyLock::new(|| {
    Layouts::parse(include_str!("../../maps/btrfs.layout")).expect("the layout is tested")
});

const SUPERBLOCK: u64 = 0x1_0000;
const SUPERBLOCK_BYTES: u64 = 4096;
/// Places in the superblock.
const SYSTEM_CHUNKS: u64 = 811;
const ROOT_BACKUPS: u64 = 2859;
const ROOT_BACKUP_BYTES: u64 = 168;
const HEADER: u64 = 101;
const ITEM: u64 = 25;
const KEY_POINTER: u64 = 33;
/// The tree of files, and its root directory.
const FILES: u64 = 5;
const ROOT_DIRECTORY: u64 = 256;
/// Items of each sort that campaigns try, and pointers of a node.
const ITEMS_SAMPLED: u64 = 3;
const POINTERS_SAMPLED: u64 = 3;
/// Nodes that are followed at most: loops end here.
const NODES_MAX: usize = 10_000;

/// The types of items with their names.
const TYPES: &[(u64, &str)] = &[
    (1, "INODE_ITEM"),
    (12, "INODE_REF"),
    (24, "XATTR_ITEM"),
    (48, "ORPHAN_ITEM"),
    (84, "DIR_ITEM"),
    (96, "DIR_INDEX"),
    (108, "EXTENT_DATA"),
    (128, "EXTENT_CSUM"),
    (132, "ROOT_ITEM"),
    (144, "ROOT_BACKREF"),
    (156, "ROOT_REF"),
    (168, "EXTENT_ITEM"),
    (169, "METADATA_ITEM"),
    (192, "BLOCK_GROUP_ITEM"),
    (198, "FREE_SPACE_INFO"),
    (199, "FREE_SPACE_EXTENT"),
    (200, "FREE_SPACE_BITMAP"),
    (204, "DEV_EXTENT"),
    (216, "DEV_ITEM"),
    (228, "CHUNK_ITEM"),
];

/// The trees with their names.
const TREES: &[(u64, &str)] = &[
    (1, "root"),
    (2, "extent"),
    (3, "chunk"),
    (4, "device"),
    (FILES, "fs"),
    (7, "csum"),
    (8, "quota"),
    (9, "uuid"),
    (10, "free_space"),
];

fn named(list: &[(u64, &'static str)], number: u64, otherwise: &'static str) -> &'static str {
    list.iter().find(|(known, _)| *known == number).map_or(otherwise, |(_, name)| name)
}

/// Whether an image has a superblock of btrfs.
pub(super) fn is_in(disk: &[u8]) -> bool {
    disk.get(0x1_0040..0x1_0048) == Some(b"_BHRfS_M")
}

/// Maps an image.
pub(super) fn walk(disk: &[u8]) -> Result<Map, MapError> {
    let out = Builder::new(disk, &LAYOUTS, "btrfs");
    let node_bytes = out.get("superblock", "nodesize", SUPERBLOCK);
    if !(4096..=65536).contains(&node_bytes) || !node_bytes.is_power_of_two() {
        let what = format!("nodesize is {node_bytes}");
        return Err(MapError::Misfit { file_system: "btrfs", what });
    }
    let mut walk = Walk { out, node_bytes, chunks: Vec::new(), paths: BTreeMap::new() };
    walk.out.map.block_bytes = node_bytes;
    let guard = walk.superblock();
    walk.system_chunks(guard);
    let get = |walk: &Walk<'_>, field: &str| walk.out.get("superblock", field, SUPERBLOCK);
    // The chunks say where everything else lies.
    let chunk_leaves = walk.nodes(get(&walk, "chunk_root"));
    for item in walk.items(&chunk_leaves) {
        if item.kind == 228 {
            let (length, place) = (walk.out.u64(item.at), walk.out.u64(item.at + 56));
            walk.chunks.push((item.offset, length, place));
        }
    }
    let root_leaves = walk.nodes(get(&walk, "root"));
    let mut leaves = vec![chunk_leaves, root_leaves.clone()];
    if get(&walk, "log_root") != 0 {
        leaves.push(walk.nodes(get(&walk, "log_root")));
    }
    for item in walk.items(&root_leaves).into_iter().filter(|item| item.kind == 132) {
        let bytes = walk.out.u64(item.at + 176);
        let below = walk.nodes(bytes);
        if item.object == FILES {
            walk.name(&below);
        }
        leaves.push(below);
    }
    for tree in leaves {
        for leaf in tree {
            walk.leaf(&leaf);
        }
    }
    walk.out.sampled = true;
    Ok(walk.out.map)
}

/// A leaf: its first byte, its checksum.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    at: u64,
    guard: usize,
}

/// An item of a leaf.
#[derive(Clone, Copy, Debug)]
struct Item {
    /// The first byte of its head, and of what it holds.
    head: u64,
    at: u64,
    bytes: u64,
    object: u64,
    kind: u64,
    offset: u64,
}

struct Walk<'a> {
    out: Builder<'a>,
    node_bytes: u64,
    /// Logical byte, length, physical byte.
    chunks: Vec<(u64, u64, u64)>,
    /// The path of each inode of the tree of files.
    paths: BTreeMap<u64, String>,
}

impl Walk<'_> {
    fn sum(&mut self, at: u64, bytes: u64) -> usize {
        self.out.guard(Guard {
            algorithm: Algorithm::Crc32c,
            pieces: vec![Piece::Range(at + 32, bytes - 32)],
            stores: vec![Store::whole(at, Order::Little)],
            next: None,
        })
    }

    fn superblock(&mut self) -> usize {
        let guard = self.sum(SUPERBLOCK, SUPERBLOCK_BYTES);
        self.out.put("superblock", "superblock", SUPERBLOCK, Some(guard));
        for index in 0..4 {
            let at = SUPERBLOCK + ROOT_BACKUPS + ROOT_BACKUP_BYTES * index;
            self.out.sampled = index == 0;
            let called = format!("superblock.backup[{index}]");
            self.out.put("root_backup", &called, at, Some(guard));
        }
        self.out.sampled = true;
        let get = |field: &str| self.out.get("superblock", field, SUPERBLOCK);
        let list = [
            ("nothing", 0),
            ("superblock", SUPERBLOCK),
            ("root of the trees", get("root")),
            ("root of the chunks", get("chunk_root")),
            ("byte behind the last", get("total_bytes")),
            ("no multiple of a sector", get("root") + 1),
        ];
        for (what, number) in list {
            self.out.target(Kind::Block, what, number);
        }
        let list = [
            ("nothing", 0),
            ("root", ROOT_DIRECTORY),
            ("free", 1 << 32),
            ("orphans", -5_i64 as u64),
        ];
        for (what, number) in list {
            self.out.target(Kind::Inode, what, number);
        }
        guard
    }

    fn system_chunks(&mut self, guard: usize) {
        let bytes = self.out.get("superblock", "sys_chunk_array_size", SUPERBLOCK).min(2048);
        let first = SUPERBLOCK + SYSTEM_CHUNKS;
        let mut at = first;
        let mut index = 0;
        while at + 17 + 48 <= first + bytes {
            let called = format!("superblock.system_chunk[{index}]");
            self.out.put("key", &called, at, Some(guard));
            let (logical, chunk) = (self.out.u64(at + 9), at + 17);
            self.chunk(&called, chunk, Some(guard));
            self.chunks.push((logical, self.out.u64(chunk), self.out.u64(chunk + 56)));
            at = chunk + 48 + 32 * self.out.u16(chunk + 44).max(1);
            index += 1;
        }
    }

    fn chunk(&mut self, called: &str, at: u64, guard: Option<usize>) {
        self.out.put("chunk", called, at, guard);
        for index in 0..self.out.u16(at + 44).min(4) {
            let place = at + 48 + 32 * index;
            self.out.put("stripe", &format!("{called}.stripe[{index}]"), place, guard);
        }
    }

    /// The physical first byte of a node.
    fn place(&self, logical: u64) -> Option<u64> {
        let holds = |chunk: &&(u64, u64, u64)| {
            (chunk.0..chunk.0.saturating_add(chunk.1)).contains(&logical)
        };
        let (first, _, physical) = self.chunks.iter().find(holds)?;
        let at = physical.checked_add(logical - first)?;
        (at.checked_add(self.node_bytes)? <= self.out.end()).then_some(at)
    }

    /// The nodes of a tree; its leaves come back, in order.
    fn nodes(&mut self, root: u64) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        let mut seen = BTreeSet::new();
        let mut todo = vec![root];
        while let Some(logical) = todo.pop() {
            let Some(at) = self.place(logical) else { continue };
            if !seen.insert(logical) || seen.len() > NODES_MAX {
                continue;
            }
            let guard = self.sum(at, self.node_bytes);
            let (owner, count, level) =
                (self.out.u64(at + 88), self.out.u32(at + 96), self.out.u8(at + 100));
            let tree = named(TREES, owner, "other");
            self.out.target(Kind::Block, &format!("tree {tree}"), logical);
            self.out.sample(&format!("{tree} {level}"), 1);
            let sort = if level == 0 { "leaf" } else { "node" };
            let called = format!("{tree}.{sort}[{logical}]");
            self.out.put("header", &called, at, Some(guard));
            if level == 0 {
                leaves.push(Leaf { at, guard });
                continue;
            }
            let chosen = self.out.sampled;
            let mut below = Vec::new();
            for index in 0..count.min((self.node_bytes - HEADER) / KEY_POINTER) {
                let place = at + HEADER + KEY_POINTER * index;
                self.out.sampled = chosen && (index < POINTERS_SAMPLED || index + 1 == count);
                let called = format!("{called}.pointer[{index}]");
                self.out.put("key_pointer", &called, place, Some(guard));
                below.push(self.out.u64(place + 17));
            }
            below.reverse();
            todo.extend(below);
        }
        self.out.sampled = true;
        leaves
    }

    fn items(&self, leaves: &[Leaf]) -> Vec<Item> {
        leaves.iter().flat_map(|leaf| self.items_of(leaf)).collect()
    }

    fn items_of(&self, leaf: &Leaf) -> Vec<Item> {
        let count = self.out.u32(leaf.at + 96).min((self.node_bytes - HEADER) / ITEM);
        (0..count)
            .map(|index| {
                let head = leaf.at + HEADER + ITEM * index;
                Item {
                    head,
                    at: leaf.at + HEADER + self.out.u32(head + 17),
                    bytes: self.out.u32(head + 21),
                    object: self.out.u64(head),
                    kind: self.out.u8(head + 8),
                    offset: self.out.u64(head + 9),
                }
            })
            .filter(|item| item.at + item.bytes <= leaf.at + self.node_bytes)
            .collect()
    }

    /// Finds the path of every inode in the tree of files.
    fn name(&mut self, leaves: &[Leaf]) {
        let mut inside: BTreeMap<u64, Vec<(u64, String)>> = BTreeMap::new();
        for item in self.items(leaves).iter().filter(|item| item.kind == 96) {
            let name = self.out.bytes(item.at + 30, self.out.u16(item.at + 27));
            let name = String::from_utf8_lossy(name).into_owned();
            inside.entry(item.object).or_default().push((self.out.u64(item.at), name));
        }
        let mut todo = vec![(ROOT_DIRECTORY, "/".to_owned())];
        while let Some((number, path)) = todo.pop() {
            if self.paths.contains_key(&number) {
                continue;
            }
            for (below, name) in inside.get(&number).into_iter().flatten() {
                todo.push((*below, format!("{}/{name}", path.trim_end_matches('/'))));
            }
            self.paths.insert(number, path);
        }
    }

    fn leaf(&mut self, leaf: &Leaf) {
        let owner = self.out.u64(leaf.at + 88);
        let tree = named(TREES, owner, "other");
        for item in self.items_of(leaf) {
            let kind = named(TYPES, item.kind, "OTHER");
            let path = self.paths.get(&item.object).filter(|_| owner == FILES);
            let path = path.map_or(String::new(), |path| format!(" \"{path}\""));
            let object = item.object as i64;
            let called = format!("{tree}.item[{object} {kind} {}{path}]", item.offset);
            self.out.sample(&format!("{tree} {kind} {}", self.variant(&item)), ITEMS_SAMPLED);
            self.out.put("item", &called, item.head, Some(leaf.guard));
            self.contents(&called, &item, Some(leaf.guard));
        }
    }

    /// What tells items of one type apart: the type of an inode, how an extent keeps its data.
    fn variant(&self, item: &Item) -> u64 {
        match item.kind {
            1 => self.out.u32(item.at + 52) >> 12,
            108 => self.out.u8(item.at + 20),
            168 => self.out.u64(item.at + 16),
            _ => 0,
        }
    }

    fn contents(&mut self, called: &str, item: &Item, guard: Option<usize>) {
        let at = item.at;
        let fits = |bytes: u64| item.bytes >= bytes;
        match item.kind {
            1 if fits(160) => {
                self.out.put("inode_item", called, at, guard);
                self.out.target(Kind::Inode, "inode", item.object);
            }
            12 if fits(11) => self.out.put("inode_ref", called, at, guard),
            24 | 84 | 96 if fits(31) => self.out.put("dir_item", called, at, guard),
            108 if fits(21) => {
                self.out.put("extent_data", called, at, guard);
                if self.out.u8(at + 20) != 0 && fits(53) {
                    self.out.put("extent_data_place", called, at + 21, guard);
                    let place = self.out.u64(at + 21);
                    if place != 0 {
                        self.out.target(Kind::Block, "data", place);
                    }
                }
            }
            128 if fits(4) => self.out.put("extent_csum", called, at, guard),
            132 if fits(247) => {
                self.out.put("inode_item", &format!("{called}.inode"), at, guard);
                self.out.put("root_item", called, at + 160, guard);
            }
            144 | 156 if fits(19) => self.out.put("root_ref", called, at, guard),
            168 | 169 if fits(24) => self.extent(called, item, guard),
            192 if fits(24) => self.out.put("block_group", called, at, guard),
            198 if fits(8) => self.out.put("free_space_info", called, at, guard),
            200 => self.out.bitmap(called, at, item.bytes * 8, guard, item.bytes),
            204 if fits(48) => self.out.put("dev_extent", called, at, guard),
            216 if fits(98) => self.out.put("dev_item", called, at, guard),
            228 if fits(80) => self.chunk(called, at, guard),
            _ => {}
        }
    }

    /// The references of an extent.
    fn extent(&mut self, called: &str, item: &Item, guard: Option<usize>) {
        self.out.put("extent_item", called, item.at, guard);
        let mut at = item.at + 24;
        let end = item.at + item.bytes;
        let is_tree_block = self.out.u64(item.at + 16) & 2 != 0;
        if item.kind == 168 && is_tree_block {
            self.out.put("tree_block_info", called, at, guard);
            at += 18;
        }
        for index in 0..4 {
            let (structure, bytes) = match self.out.u8(at) {
                178 => ("inline_data_ref", 29),
                184 => ("inline_ref", 13),
                _ => ("inline_ref", 9),
            };
            if at + bytes > end {
                break;
            }
            self.out.put(structure, &format!("{called}.ref[{index}]"), at, guard);
            at += bytes;
        }
    }
}
