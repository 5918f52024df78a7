//! Directories: in the inode, in one block, and with blocks of their own for hashes and free space.

use super::super::Kind;
use super::super::builder::Table;
use super::super::layout::Order;
use super::Walk;
use super::inode::Run;

/// Entries of a block that campaigns try, besides the last.
const ENTRIES_SAMPLED: u64 = 4;
/// Magic numbers: one block, data, with free space; versions 4 and 5.
const ONE: [u64; 2] = [0x5844_3242, 0x5844_4233];
const DATA: [u64; 2] = [0x5844_3244, 0x5844_4433];
const FREE: [u64; 2] = [0x5844_3246, 0x5844_4633];
/// Those of blocks of hashes: the only leaf, one of several, a node above them.
const LEAF: [u64; 2] = [0xd2f1, 0x3df1];
const LEAVES: [u64; 2] = [0xd2ff, 0x3dff];
const NODE: [u64; 2] = [0xfebe, 0x3ebe];

impl Walk<'_> {
    fn type_bytes(&self) -> u64 {
        u64::from(self.volume.has_types)
    }

    fn text(&self, at: u64, length: u64) -> String {
        String::from_utf8_lossy(self.out.bytes(at, length)).into_owned()
    }

    /// A directory in the inode.
    pub(super) fn short_directory(
        &mut self,
        at: u64,
        path: &str,
        guard: Option<usize>,
    ) -> Vec<(u64, String)> {
        let chosen = self.out.sampled;
        let called = format!("directory[\"{path}\"]");
        self.out.put("short_directory", &called, at, guard);
        // Numbers of 8 bytes are on disks that are larger than ours.
        if self.out.u8(at + 1) != 0 {
            return Vec::new();
        }
        let count = self.out.u8(at);
        let mut place = at + 6;
        let mut below = Vec::new();
        for index in 0..count {
            let length = self.out.u8(place);
            let name = self.text(place + 3, length);
            self.out.sampled = chosen && (index < ENTRIES_SAMPLED || index + 1 == count);
            let called = format!("dirent[{place} \"{path}\" \"{name}\"]");
            self.out.put("short_entry", &called, place, guard);
            let tail = place + 3 + length;
            let structure = if self.volume.has_types { "entry_tail" } else { "entry_tail4" };
            self.out.put(structure, &called, tail, guard);
            let number = self.out.b32(tail + self.type_bytes());
            below.push((number, format!("{}/{name}", path.trim_end_matches('/'))));
            place = tail + self.type_bytes() + 4;
        }
        self.out.sampled = chosen;
        below
    }

    /// A directory in blocks.
    pub(super) fn directory(&mut self, path: &str, runs: &[Run]) -> Vec<(u64, String)> {
        let chosen = self.out.sampled;
        let mut below = Vec::new();
        for run in runs {
            let step = self.volume.directory_blocks;
            for index in (0..run.length.min(512)).step_by(step as usize) {
                self.out.sampled = chosen;
                below.extend(self.directory_block(path, run.block + index));
            }
        }
        self.out.sampled = chosen;
        below
    }

    fn directory_block(&mut self, path: &str, block: u64) -> Vec<(u64, String)> {
        let at = self.volume.place(block);
        let bytes = self.volume.block_bytes * self.volume.directory_blocks;
        if at + bytes > self.out.end() {
            return Vec::new();
        }
        let (wide, narrow) = (self.out.b32(at), self.out.b16(at + 8));
        let called = format!("block[{block} \"{path}\"]");
        if ONE.contains(&wide) || DATA.contains(&wide) {
            self.out.target(Kind::Block, "entries", block);
            self.out.sample("block of entries", 3);
            return self.entries(path, &called, at, bytes, ONE.contains(&wide));
        }
        if FREE.contains(&wide) {
            self.out.target(Kind::Block, "free space of a directory", block);
            self.free_space(&called, at, bytes);
        } else if LEAF.contains(&narrow) || LEAVES.contains(&narrow) || NODE.contains(&narrow) {
            self.out.target(Kind::Block, "hashes", block);
            self.hashes(&called, at, bytes, NODE.contains(&narrow), LEAF.contains(&narrow));
        }
        Vec::new()
    }

    fn entries(
        &mut self,
        path: &str,
        called: &str,
        at: u64,
        bytes: u64,
        is_only: bool,
    ) -> Vec<(u64, String)> {
        let chosen = self.out.sampled;
        let (guard, head) = self.block_head(called, at, bytes);
        for index in 0..3 {
            let place = at + head + 4 * index;
            self.out.put("best_free", &format!("{called}.bestfree[{index}]"), place, guard);
        }
        // The space ends before the hashes of a directory that has only this block.
        let tail = at + bytes - 8;
        let end = match is_only {
            true => tail - 8 * self.out.b32(tail).min((bytes - 72) / 8),
            false => at + bytes,
        };
        let mut place = at + if self.volume.five { 64 } else { 16 };
        let mut below = Vec::new();
        let mut index = 0;
        while place + 8 <= end {
            self.out.sampled = chosen && index < ENTRIES_SAMPLED + 2;
            index += 1;
            if self.out.b16(place) == 0xffff {
                let length = self.out.b16(place + 2).max(8);
                self.out.put("unused", &format!("unused[{place} \"{path}\"]"), place, guard);
                let name = format!("unused[{place} \"{path}\"]");
                self.out.put("tag", &name, place + length - 2, guard);
                place += length;
                continue;
            }
            let (number, length) = (self.out.b64(place), self.out.u8(place + 8));
            let name = self.text(place + 9, length);
            let called = format!("dirent[{place} \"{path}\" \"{name}\"]");
            self.out.put("entry", &called, place, guard);
            if self.volume.has_types {
                self.out.put("entry_end", &called, place + 9 + length, guard);
            }
            let whole = (9 + length + self.type_bytes() + 2).next_multiple_of(8);
            self.out.put("tag", &called, place + whole - 2, guard);
            if name != "." && name != ".." {
                below.push((number, format!("{}/{name}", path.trim_end_matches('/'))));
            }
            place += whole;
        }
        self.out.sampled = chosen;
        if is_only {
            self.out.put("leaf_tail", called, tail, guard);
            self.hash_entries(called, end, self.out.b32(tail).min((bytes - 72) / 8), guard);
        }
        below
    }

    /// The head of a block with data; its checksum, and where the rest of the head is.
    fn block_head(&mut self, called: &str, at: u64, bytes: u64) -> (Option<usize>, u64) {
        let guard = self.guard(at, bytes, 4);
        let (structure, head) =
            if self.volume.five { ("directory_block5", 48) } else { ("directory_block", 4) };
        self.out.put(structure, called, at, guard);
        (guard, head)
    }

    fn hash_entries(&mut self, called: &str, first: u64, count: u64, guard: Option<usize>) {
        let chosen = self.out.sampled;
        for index in 0..count {
            self.out.sampled = chosen && (index < 3 || index + 1 == count);
            let place = first + 8 * index;
            self.out.put("hash_entry", &format!("{called}.hash[{index}]"), place, guard);
        }
        self.out.sampled = chosen;
    }

    fn hashes(&mut self, called: &str, at: u64, bytes: u64, is_node: bool, is_only: bool) {
        self.out.sample(if is_node { "node of hashes" } else { "leaf of hashes" }, 2);
        let guard = self.guard(at, bytes, 12);
        self.out.put("da_block", called, at, guard);
        let (counts, head) = if self.volume.five { (56, 64) } else { (12, 16) };
        if self.volume.five {
            self.out.put("da_block5", called, at + 12, guard);
        }
        self.out.put("da_counts", called, at + counts, guard);
        let count = self.out.b16(at + counts).min((bytes - head) / 8);
        self.hash_entries(called, at + head, count, guard);
        if is_only {
            let tail = at + bytes - 4;
            self.one(called, "bestcount", tail, 4, Kind::Count, guard);
            let count = self.out.b32(tail).min(8);
            for index in 0..count {
                let place = tail - 2 * (count - index);
                self.one(called, &format!("bests[{index}]"), place, 2, Kind::Length, guard);
            }
        }
    }

    fn free_space(&mut self, called: &str, at: u64, bytes: u64) {
        self.out.sample("free space of a directory", 1);
        let (guard, _) = self.block_head(called, at, bytes);
        let head = if self.volume.five { 48 } else { 4 };
        self.out.put_where("free_block", called, at + head, guard, |part| part.at < 12);
        let first = at + if self.volume.five { 64 } else { 16 };
        let count = self.out.b32(at + head + 4).min((bytes - 64) / 2);
        self.out.table(&Table {
            called,
            item: "bests",
            base: first,
            width: 2,
            order: Order::Big,
            count,
            kind: Kind::Length,
            guard,
        });
    }
}
