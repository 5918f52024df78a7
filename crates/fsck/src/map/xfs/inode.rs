//! Inodes, their extents, and what their attributes are in.

use super::super::layout::Order;
use super::super::{Field, Kind};
use super::Walk;

/// Inodes of each sort that campaigns try.
const INODES_SAMPLED: u64 = 2;
/// Extents of a list that campaigns try, besides the last.
const EXTENTS_SAMPLED: u64 = 3;
/// Blocks of one tree that are followed at most.
const BLOCKS_MAX: u64 = 2000;
/// How a fork keeps what it holds.
const LOCAL: u64 = 1;
const EXTENTS: u64 = 2;
const TREE: u64 = 3;

/// A run of blocks of a file: place in the file, first block, length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) offset: u64,
    pub(super) block: u64,
    pub(super) length: u64,
}

/// A fork of an inode: where it is, how large, how it keeps what it holds.
struct Fork {
    at: u64,
    bytes: u64,
    format: u64,
    extents: u64,
}

impl Walk<'_> {
    /// Maps an inode and what it leads to; what a directory names comes back.
    pub(super) fn inode(&mut self, number: u64, path: &str) -> Vec<(u64, String)> {
        let at = self.volume.inode_place(number);
        let bytes = self.volume.inode_bytes;
        if at + bytes > self.out.end() || self.out.b16(at) != 0x494e {
            return Vec::new();
        }
        let (mode, format) = (self.out.b16(at + 2) >> 12, self.out.u8(at + 5));
        let sort = match mode {
            0o04 => "directory",
            0o10 => "file",
            0o12 => "symbolic link",
            _ => "special file",
        };
        self.out.sample(&format!("{sort} {format}"), INODES_SAMPLED);
        let chosen = self.out.sampled;
        self.out.target(Kind::Inode, sort, number);
        let guard = self.guard(at, bytes, 100);
        let called = format!("inode[{number} \"{path}\"]");
        self.out.put("inode", &called, at, guard);
        let head = if self.out.u8(at + 4) >= 3 { 176 } else { 100 };
        if head == 176 {
            self.out.put("inode3", &called, at + 100, guard);
        }
        let split = self.out.u8(at + 82) * 8;
        let room = bytes - head;
        let data_bytes = if split == 0 { room } else { split.min(room) };
        let extents = self.out.b32(at + 76);
        let data = Fork { at: at + head, bytes: data_bytes, format, extents };
        if split != 0 && split < room {
            let (format, extents) = (self.out.u8(at + 83), self.out.b16(at + 80));
            let fork = Fork { at: at + head + split, bytes: room - split, format, extents };
            self.attributes(&called, &fork, guard);
        }
        self.out.sampled = chosen;
        let below = self.data(&called, &data, guard, mode, path);
        self.out.sampled = chosen;
        below
    }

    fn data(
        &mut self,
        called: &str,
        fork: &Fork,
        guard: Option<usize>,
        mode: u64,
        path: &str,
    ) -> Vec<(u64, String)> {
        match (mode, fork.format) {
            (0o04, LOCAL) => self.short_directory(fork.at, path, guard),
            (0o04, _) => {
                let runs = self.runs(called, fork, guard);
                self.directory(path, &runs)
            }
            (0o10 | 0o12, EXTENTS | TREE) => {
                let runs = self.runs(called, fork, guard);
                if let Some(run) = runs.first() {
                    self.out.target(Kind::Block, "data", run.block);
                    if mode == 0o12 && self.volume.five {
                        let at = self.volume.place(run.block);
                        let guard = self.guard(at, self.volume.block_bytes, 12);
                        self.out.put("remote_block", &format!("{called}.target"), at, guard);
                    }
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// The extents of a fork, in a list or in a tree.
    fn runs(&mut self, called: &str, fork: &Fork, guard: Option<usize>) -> Vec<Run> {
        match fork.format {
            EXTENTS => {
                let count = fork.extents.min(fork.bytes / 16);
                self.extents(called, fork.at, count, guard)
            }
            TREE => self.extent_tree(called, fork, guard),
            _ => Vec::new(),
        }
    }

    fn extents(&mut self, called: &str, first: u64, count: u64, guard: Option<usize>) -> Vec<Run> {
        let chosen = self.out.sampled;
        let mut runs = Vec::new();
        for index in 0..count {
            let at = first + 16 * index;
            self.out.sampled = chosen && (index < EXTENTS_SAMPLED || index + 1 == count);
            self.out.put("extent", &format!("{called}.extent[{index}]"), at, guard);
            // 1 bit of state, 54 of place in the file, 52 of the first block, 21 of length.
            let (high, low) = (self.out.b64(at), self.out.b64(at + 8));
            runs.push(Run {
                offset: high >> 9 & ((1 << 54) - 1),
                block: (high & 0x1ff) << 43 | low >> 21,
                length: low & 0x1f_ffff,
            });
        }
        self.out.sampled = chosen;
        runs
    }

    fn extent_tree(&mut self, called: &str, fork: &Fork, guard: Option<usize>) -> Vec<Run> {
        let chosen = self.out.sampled;
        let called = format!("{called}.tree");
        self.out.put("tree_root", &called, fork.at, guard);
        let most = (fork.bytes - 4) / 16;
        let count = self.out.b16(fork.at + 2).min(most);
        let mut todo = self.long_pointers(&called, fork.at + 4, count, most, guard);
        let mut runs = Vec::new();
        let mut blocks = 0;
        while let Some(block) = todo.pop() {
            let at = self.volume.place(block);
            blocks += 1;
            if blocks > BLOCKS_MAX || at + self.volume.block_bytes > self.out.end() {
                break;
            }
            let (level, count) = (self.out.b16(at + 4), self.out.b16(at + 6));
            self.out.target(Kind::Block, "tree of extents", block);
            self.out.sampled = chosen && blocks <= 2;
            let called = format!("{called}[{block}]");
            let guard = self.guard(at, self.volume.block_bytes, 64);
            self.out.put("long_block", &called, at, guard);
            let head = if self.volume.five { 72 } else { 24 };
            if self.volume.five {
                self.out.put("long_block5", &called, at + 24, guard);
            }
            let most = (self.volume.block_bytes - head) / 16;
            match level {
                0 => runs.extend(self.extents(&called, at + head, count.min(most), guard)),
                _ => {
                    let below =
                        self.long_pointers(&called, at + head, count.min(most), most, guard);
                    todo.extend(below);
                }
            }
        }
        self.out.sampled = chosen;
        runs.sort_by_key(|run: &Run| run.offset);
        runs
    }

    fn long_pointers(
        &mut self,
        called: &str,
        first: u64,
        count: u64,
        most: u64,
        guard: Option<usize>,
    ) -> Vec<u64> {
        let chosen = self.out.sampled;
        let mut below = Vec::new();
        for index in 0..count {
            self.out.sampled = chosen && (index < EXTENTS_SAMPLED || index + 1 == count);
            let (key, pointer) = (first + 8 * index, first + 8 * most + 8 * index);
            self.out.put("long_key", &format!("{called}.key[{index}]"), key, guard);
            self.out.put("long_pointer", &format!("{called}.pointer[{index}]"), pointer, guard);
            below.push(self.out.b64(pointer));
        }
        self.out.sampled = chosen;
        below.reverse();
        below
    }

    fn attributes(&mut self, called: &str, fork: &Fork, guard: Option<usize>) {
        let called = format!("{called}.attributes");
        self.out.sample(&format!("attributes {}", fork.format), 2);
        if fork.format == LOCAL {
            self.out.put("short_attributes", &called, fork.at, guard);
            let mut at = fork.at + 4;
            for index in 0..self.out.u8(fork.at + 2) {
                if at + 3 > fork.at + fork.bytes {
                    break;
                }
                self.out.put("short_attribute", &format!("{called}[{index}]"), at, guard);
                at += 3 + self.out.u8(at) + self.out.u8(at + 1);
            }
            return;
        }
        for run in self.runs(&called, fork, guard) {
            for index in 0..run.length.min(16) {
                self.attribute_block(&called, run.block + index);
            }
        }
    }

    fn attribute_block(&mut self, called: &str, block: u64) {
        let at = self.volume.place(block);
        let bytes = self.volume.block_bytes;
        if at + bytes > self.out.end() {
            return;
        }
        let called = format!("{called}[{block}]");
        if self.out.b32(at) == 0x5841_524d {
            let guard = self.guard(at, bytes, 12);
            self.out.put("remote_block", &called, at, guard);
            return;
        }
        if ![0xfbee, 0x3bee].contains(&self.out.b16(at + 8)) {
            return;
        }
        self.out.target(Kind::Block, "block of attributes", block);
        let guard = self.guard(at, bytes, 12);
        self.out.put("da_block", &called, at, guard);
        let (head, size) = if self.volume.five { (56, 80) } else { (12, 32) };
        if self.volume.five {
            self.out.put("da_block5", &called, at + 12, guard);
        }
        self.out.put("attribute_head", &called, at + head, guard);
        for index in 0..self.out.b16(at + head).min(4) {
            let entry = at + size + 8 * index;
            let name = format!("{called}.entry[{index}]");
            self.out.put("attribute_entry", &name, entry, guard);
            let place = at + self.out.b16(entry + 4).min(bytes - 12);
            let is_local = self.out.u8(entry + 6) & 1 == 1;
            let structure = if is_local { "local_attribute" } else { "remote_attribute" };
            self.out.put(structure, &name, place, guard);
        }
    }

    /// Adds one field that no layout can place.
    pub(super) fn one(
        &mut self,
        called: &str,
        name: &str,
        at: u64,
        width: u8,
        kind: Kind,
        guard: Option<usize>,
    ) {
        let (order, sampled) = (Order::Big, self.out.sampled);
        let (structure, name) = (called.into(), name.into());
        self.out.add(Field { structure, name, at, width, order, kind, guard, sampled });
    }
}
