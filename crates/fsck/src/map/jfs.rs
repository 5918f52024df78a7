//! The map of JFS.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::builder::Table;
use super::layout::{Layouts, Order};
use super::{Builder, Kind, Map, MapError};

static LAYOUTS: LazyLock<Layouts> = LazyLock::new(|| {
    Layouts::parse(include_str!("../../maps/jfs.layout")).expect("the layout is tested")
});

const SUPERBLOCK: u64 = 0x8000;
const SUPERBLOCK_COPY: u64 = 0xf000;
/// The aggregate's own map and table of inodes.
const MAP: u64 = 0x9000;
const TABLE: u64 = 0xb000;
const PAGE: u64 = 4096;
const INODE: u64 = 512;
/// Inodes of the aggregate: the map of blocks, the inodes of the fileset.
const BLOCK_MAP: u64 = 2;
const FILESET: u64 = 16;
const ROOT: u64 = 2;
/// Flags of a page of a tree.
const IS_LEAF: u64 = 2;
const IS_INNER: u64 = 4;
/// Pages that one tree has at most: loops end here.
const PAGES_MAX: usize = 1000;
/// Inodes of each type that campaigns try, and entries of a directory.
const INODES_SAMPLED: u64 = 2;
const ENTRIES_SAMPLED: u64 = 5;

/// Whether an image has a superblock of JFS.
pub(super) fn is_in(disk: &[u8]) -> bool {
    disk.get(0x8000..0x8004) == Some(b"JFS1")
}

/// Maps an image.
pub(super) fn walk(disk: &[u8]) -> Result<Map, MapError> {
    let out = Builder::new(disk, &LAYOUTS, "jfs");
    let block_bytes = out.get("superblock", "s_bsize", SUPERBLOCK);
    if !(512..=4096).contains(&block_bytes) || !block_bytes.is_power_of_two() {
        let what = format!("s_bsize is {block_bytes}");
        return Err(MapError::Misfit { file_system: "jfs", what });
    }
    let mut walk = Walk { out, block_bytes, extents: Vec::new(), seen: BTreeSet::new() };
    walk.out.map.block_bytes = block_bytes;
    walk.superblocks();
    walk.targets();
    walk.aggregate();
    walk.log();
    walk.tree();
    Ok(walk.out.map)
}

/// A run of blocks: place in the file, first block, length.
type Run = (u64, u64, u64);

struct Walk<'a> {
    out: Builder<'a>,
    block_bytes: u64,
    /// The first byte of each extent of 32 inodes of the fileset; 0 for none.
    extents: Vec<u64>,
    seen: BTreeSet<u64>,
}

impl Walk<'_> {
    fn superblocks(&mut self) {
        self.out.put("superblock", "superblock", SUPERBLOCK, None);
        let (length, block) = self.extent(SUPERBLOCK + 80);
        let first = block * self.block_bytes;
        let space = first..first + length * self.block_bytes;
        self.out.map.areas.push(("fsck_workspace".to_owned(), space));
        self.out.sampled = false;
        self.out.put("superblock", "superblock_copy", SUPERBLOCK_COPY, None);
        self.out.sampled = true;
    }

    /// Length and first block of an extent.
    fn extent(&self, at: u64) -> (u64, u64) {
        let word = self.out.u32(at);
        (word & 0xff_ffff, (word >> 24) << 32 | self.out.u32(at + 4))
    }

    fn targets(&mut self) {
        let block = |at: u64| at / self.block_bytes;
        let blocks = self.out.end() / self.block_bytes;
        let list = [
            ("nothing", 0),
            ("superblock", block(SUPERBLOCK)),
            ("map of the aggregate's inodes", block(MAP)),
            ("the aggregate's inodes", block(TABLE)),
            ("second superblock", block(SUPERBLOCK_COPY)),
            ("log", self.extent(SUPERBLOCK + 72).1),
            ("work space", self.extent(SUPERBLOCK + 80).1),
            ("last block", blocks - 1),
            ("block behind the last", blocks),
        ];
        for (what, number) in list {
            self.out.target(Kind::Block, what, number);
        }
        for (what, number) in [("reserved inode", 0), ("root", ROOT), ("far inode", 1 << 20)] {
            self.out.target(Kind::Inode, what, number);
        }
    }

    /// The inodes of the aggregate: its maps, and with them the inodes of the fileset.
    fn aggregate(&mut self) {
        self.out.sampled = true;
        self.inode_map_page("aggregate_map", MAP);
        self.iag("aggregate_iag[0]", MAP + PAGE);
        for number in [1, BLOCK_MAP, 3, 4, FILESET] {
            let at = TABLE + number * INODE;
            self.out.sampled = number == BLOCK_MAP || number == FILESET;
            let called = format!("aggregate_inode[{number}]");
            self.out.put("inode", &called, at, None);
            let runs = self.extents_of(&called, at + 224);
            let pages: Vec<u64> = runs.iter().flat_map(|run| self.pages(run)).collect();
            match number {
                BLOCK_MAP => self.block_map(&pages),
                FILESET => self.inode_map(&pages),
                _ => {}
            }
        }
        self.out.sampled = true;
    }

    /// The first bytes of the pages of a run.
    fn pages(&self, run: &Run) -> Vec<u64> {
        let bytes = run.2 * self.block_bytes;
        let first = run.1 * self.block_bytes;
        (0..bytes / PAGE).map(|index| first + index * PAGE).take(PAGES_MAX).collect()
    }

    fn block_map(&mut self, pages: &[u64]) {
        self.out.sampled = true;
        let Some(first) = pages.first() else { return };
        self.out.put("block_map", "block_map", *first, None);
        self.out.target(Kind::Block, "map of blocks", first / self.block_bytes);
        for (level, at) in pages.iter().skip(1).take(3).enumerate() {
            let called = format!("block_map_control[{}]", 2 - level);
            self.out.sampled = level == 2;
            self.out.put("tree_page", &called, *at, None);
        }
        for (index, at) in pages.iter().skip(4).enumerate() {
            self.out.sampled = index == 0;
            let called = format!("dmap[{index}]");
            self.out.put("dmap", &called, *at, None);
            for (item, base) in [("wmap", at + 2048), ("pmap", at + 3072)] {
                self.out.table(&Table {
                    called: &called,
                    item,
                    base,
                    width: 4,
                    order: Order::Little,
                    count: 256,
                    kind: Kind::Flags,
                    guard: None,
                });
            }
        }
        self.out.sampled = true;
    }

    fn inode_map_page(&mut self, called: &str, at: u64) {
        self.out.put("map_control", called, at, None);
        self.out.put("ag_control", &format!("{called}.ag[0]"), at + 2048, None);
    }

    /// The map of the fileset's inodes.
    fn inode_map(&mut self, pages: &[u64]) {
        self.out.sampled = true;
        let Some(first) = pages.first() else { return };
        self.inode_map_page("inode_map", *first);
        self.out.target(Kind::Block, "map of inodes", first / self.block_bytes);
        for (index, at) in pages.iter().skip(1).enumerate() {
            self.out.sampled = index == 0;
            self.iag(&format!("iag[{index}]"), *at);
            for extent in 0..128 {
                let (_, block) = self.extent(at + 3072 + 8 * extent);
                self.extents.push(block * self.block_bytes);
            }
        }
        self.out.sampled = true;
    }

    fn iag(&mut self, called: &str, at: u64) {
        let chosen = self.out.sampled;
        self.out.put("iag", called, at, None);
        for (item, base) in [("wmap", at + 2048), ("pmap", at + 2560)] {
            self.out.table(&Table {
                called,
                item,
                base,
                width: 4,
                order: Order::Little,
                count: 128,
                kind: Kind::Flags,
                guard: None,
            });
        }
        let mut used = 0;
        for index in 0..128 {
            let place = at + 3072 + 8 * index;
            if self.out.u64(place) == 0 && index > 0 {
                continue;
            }
            used += 1;
            self.out.sampled = chosen && used <= 2;
            self.out.put("inode_extent", &format!("{called}.inoext[{index}]"), place, None);
        }
        self.out.sampled = chosen;
    }

    fn log(&mut self) {
        let (length, block) = self.extent(SUPERBLOCK + 72);
        let first = block * self.block_bytes;
        let pages = length * self.block_bytes / PAGE;
        if block == 0 || first + pages * PAGE > self.out.end() {
            return;
        }
        self.out.put("log_superblock", "log", first + PAGE, None);
        let mut used = 0;
        for index in 2..pages {
            let at = first + index * PAGE;
            let end = self.out.u16(at + 6);
            if self.out.u32(at) == 0 && end == 0 {
                continue;
            }
            used += 1;
            self.out.sampled = used <= 2;
            let called = format!("log_page[{index}]");
            self.out.put("log_page_head", &called, at, None);
            self.out.put("log_page_head", &format!("{called}.tail"), at + PAGE - 8, None);
            if (44..=PAGE - 8).contains(&end) {
                self.out.put("log_record", &format!("{called}.last_record"), at + end - 36, None);
            }
        }
        self.out.sampled = true;
    }

    fn tree(&mut self) {
        let mut todo = vec![(ROOT, "/".to_owned())];
        while let Some((number, path)) = todo.pop() {
            if self.seen.insert(number) {
                let mut below = self.inode(number, &path);
                below.reverse();
                todo.extend(below);
            }
        }
    }

    /// Maps an inode and what it leads to; what a directory names comes back.
    fn inode(&mut self, number: u64, path: &str) -> Vec<(u64, String)> {
        let extent = self.extents.get((number / 32) as usize).copied().unwrap_or(0);
        if extent == 0 {
            return Vec::new();
        }
        let at = extent + number % 32 * INODE;
        let mode = self.out.u32(at + 52);
        let sort = match mode >> 12 & 0xf {
            0o04 => "directory",
            0o10 => "file",
            0o12 => "symbolic link",
            _ => "special file",
        };
        self.out.sample(sort, INODES_SAMPLED);
        let chosen = self.out.sampled;
        self.out.target(Kind::Inode, sort, number);
        self.out.target(Kind::Block, "inodes", extent / self.block_bytes);
        let called = format!("inode[{number} \"{path}\"]");
        self.out.put("inode", &called, at, None);
        self.attributes(&called, at);
        match sort {
            "directory" => {
                let below = self.directory(at, path);
                self.out.sampled = chosen;
                below
            }
            "file" => {
                let runs = self.extents_of(&called, at + 224);
                if let Some((_, block, _)) = runs.first() {
                    self.out.target(Kind::Block, "data", *block);
                }
                self.out.sampled = chosen;
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn attributes(&mut self, called: &str, at: u64) {
        let (length, block) = self.extent(at + 112);
        // The flag says whether they are in the inode or in blocks of their own.
        let place = match self.out.u8(at + 104) {
            1 if length > 0 => block * self.block_bytes,
            4 => at + 384,
            _ => return,
        };
        self.out.put("ea_list", &format!("{called}.ea"), place, None);
    }

    /// The runs of a tree of extents, whose pages are mapped on the way.
    fn extents_of(&mut self, called: &str, root: u64) -> Vec<Run> {
        let chosen = self.out.sampled;
        let mut runs = Vec::new();
        let mut todo = vec![(root, format!("{called}.xtree"))];
        let mut pages = 0;
        while let Some((at, name)) = todo.pop() {
            pages += 1;
            if pages > PAGES_MAX {
                break;
            }
            self.out.sampled = chosen && pages <= 3;
            let sampled = self.out.sampled;
            self.out.put("xtree_header", &name, at, None);
            let last = self.out.u16(at + 18).min(256);
            let is_leaf = self.out.u8(at + 16) & IS_LEAF != 0;
            for index in 2..last {
                let place = at + 16 * index;
                self.out.sampled = sampled && (index < 4 || index + 1 == last);
                self.out.put("xad", &format!("{name}.xad[{index}]"), place, None);
                let (length, block) = self.extent(place + 8);
                let offset = self.out.u8(place + 3) << 32 | self.out.u32(place + 4);
                match is_leaf {
                    true => runs.push((offset, block, length)),
                    false => {
                        self.out.target(Kind::Block, "page of extents", block);
                        todo.push((block * self.block_bytes, format!("{called}.xtree[{block}]")));
                    }
                }
            }
        }
        self.out.sampled = chosen;
        runs
    }

    fn directory(&mut self, at: u64, path: &str) -> Vec<(u64, String)> {
        let chosen = self.out.sampled;
        for index in 0..self.out.u32(at + 120).clamp(2, 13) - 2 {
            self.out.sampled = chosen && index < 2;
            let called = format!("dir_table[{index} \"{path}\"]");
            self.out.put("dir_table_slot", &called, at + 128 + 8 * index, None);
        }
        self.out.sampled = chosen;
        let root = at + 224;
        self.out.put("dtree_root", &format!("dtree[\"{path}\"]"), root, None);
        let table = (0..self.out.u8(root + 17).min(8)).map(|index| root + 24 + index).collect();
        let page = DirectoryPage { at: root, flag: self.out.u8(root + 16), table };
        let mut todo = vec![page];
        let mut below = Vec::new();
        let mut pages = 0;
        while let Some(page) = todo.pop() {
            pages += 1;
            if pages > PAGES_MAX {
                break;
            }
            self.out.sampled = chosen && pages <= 3;
            let children = self.entries(&page, path, &mut below);
            todo.extend(children);
        }
        below
    }

    /// The entries of a page of a directory; the pages below it come back.
    fn entries(
        &mut self,
        page: &DirectoryPage,
        path: &str,
        below: &mut Vec<(u64, String)>,
    ) -> Vec<DirectoryPage> {
        let chosen = self.out.sampled;
        let mut children = Vec::new();
        for (index, place) in page.table.iter().enumerate() {
            let slot = page.at + 32 * self.out.u8(*place).min(127);
            let near = (index as u64) < ENTRIES_SAMPLED || index + 1 == page.table.len();
            self.out.sampled = chosen && near;
            if page.flag & IS_INNER != 0 {
                let called = format!("inner_entry[{slot} \"{path}\"]");
                self.out.put("inner_entry", &called, slot, None);
                let (_, block) = self.extent(slot);
                self.out.target(Kind::Block, "page of a directory", block);
                self.out.sampled = chosen;
                children.extend(self.directory_page(block, path));
            } else {
                let name = self.name(page.at, slot);
                let called = format!("dirent[{slot} \"{path}\" \"{name}\"]");
                self.out.put("leaf_entry", &called, slot, None);
                let next = self.out.u8(slot + 4);
                if next < 128 {
                    let more = page.at + 32 * next;
                    self.out.put("slot", &format!("{called}.more"), more, None);
                }
                let number = self.out.u32(slot);
                below.push((number, format!("{}/{name}", path.trim_end_matches('/'))));
            }
        }
        self.out.sampled = chosen;
        children
    }

    fn directory_page(&mut self, block: u64, path: &str) -> Option<DirectoryPage> {
        let at = block * self.block_bytes;
        if at + PAGE > self.out.end() || !self.seen.insert(at | 1 << 63) {
            return None;
        }
        self.out.put("dtree_page", &format!("dtree_page[{block} \"{path}\"]"), at, None);
        let first = at + 32 * self.out.u8(at + 21).min(127);
        let table = (0..self.out.u8(at + 17).min(127)).map(|index| first + index).collect();
        Some(DirectoryPage { at, flag: self.out.u8(at + 16), table })
    }

    /// The name of an entry, of its first two slots.
    fn name(&self, page: u64, slot: u64) -> String {
        let length = self.out.u8(slot + 5);
        let next = page + 32 * self.out.u8(slot + 4).min(127);
        let place = |index: u64| match index {
            0..11 => slot + 6 + 2 * index,
            _ => next + 2 + 2 * (index - 11),
        };
        let units: Vec<u16> =
            (0..length.min(26)).map(|index| self.out.u16(place(index)) as u16).collect();
        String::from_utf16_lossy(&units)
    }
}

/// A page of a directory: its first byte, its flags, and where the numbers of its entries' slots lie.
struct DirectoryPage {
    at: u64,
    flag: u64,
    table: Vec<u64>,
}
