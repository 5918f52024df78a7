//! The map of the file systems of MINIX 1, 2 and 3.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::builder::Table;
use super::layout::{Layouts, Order};
use super::{Builder, Kind, Map, MapError};

static LAYOUTS: LazyLock<Layouts> = LazyLock::new(|| {
    Layouts::parse(include_str!("../../maps/minix.layout")).expect("the layout is tested")
});

const SUPERBLOCK: u64 = 1024;
const ROOT: u64 = 1;
/// Pointers of an inode that lead to data at once.
const DIRECT: u64 = 7;
/// Inodes of each type that campaigns try.
const INODES_SAMPLED: u64 = 2;
/// Entries at the beginning of a directory that campaigns try.
const ENTRIES_SAMPLED: usize = 5;

/// The shape of one of them.
#[derive(Clone, Copy, Debug)]
struct Shape {
    version: u8,
    block_bytes: u64,
    inodes: u64,
    zones: u64,
    first_zone: u64,
    inode_map: u64,
    zone_map: u64,
    table: u64,
    /// Bytes of an entry of a directory, and of the number at its beginning.
    entry_bytes: u64,
    number_bytes: u64,
}

/// The version and the bytes of a directory entry, by magic number.
fn version(disk: &[u8]) -> Option<(u8, u64)> {
    let word =
        |at: usize| disk.get(at..at + 2).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
    match (word(1024 + 16), word(1024 + 24)) {
        (_, Some(0x4d5a)) => Some((3, 64)),
        (Some(0x137f), _) => Some((1, 16)),
        (Some(0x138f), _) => Some((1, 32)),
        (Some(0x2468), _) => Some((2, 16)),
        (Some(0x2478), _) => Some((2, 32)),
        _ => None,
    }
}

/// Whether an image has a superblock of MINIX.
pub(super) fn is_in(disk: &[u8]) -> bool {
    version(disk).is_some()
}

/// Maps an image.
pub(super) fn walk(disk: &[u8]) -> Result<Map, MapError> {
    let mut out = Builder::new(disk, &LAYOUTS, "minix");
    let misfit = |what: String| MapError::Misfit { file_system: "minix", what };
    let shape = shape(&out, disk).map_err(misfit)?;
    out.map.block_bytes = shape.block_bytes;
    let superblock = if shape.version == 3 { "superblock3" } else { "superblock" };
    out.put_where(superblock, "superblock", SUPERBLOCK, None, |part| {
        // The first version ends before it.
        shape.version != 1 || part.name != "s_zones"
    });
    out.bitmap(
        "inode_map",
        shape.inode_map,
        shape.inodes + 1,
        None,
        shape.zone_map - shape.inode_map,
    );
    let bits = shape.zones - shape.first_zone + 1;
    out.bitmap("zone_map", shape.zone_map, bits, None, shape.table - shape.zone_map);
    targets(&mut out, &shape);
    let mut walk = Walk { out, shape, seen: BTreeSet::new() };
    let mut todo = vec![(ROOT, "/".to_owned())];
    while let Some((number, path)) = todo.pop() {
        if walk.seen.insert(number) {
            let mut below = walk.inode(number, &path);
            below.reverse();
            todo.extend(below);
        }
    }
    Ok(walk.out.map)
}

fn shape(out: &Builder<'_>, disk: &[u8]) -> Result<Shape, String> {
    let (version, entry_bytes) = version(disk).unwrap_or((1, 16));
    let name = if version == 3 { "superblock3" } else { "superblock" };
    let get = |field: &str| out.get(name, field, SUPERBLOCK);
    let block_bytes = if version == 3 { get("s_blocksize") } else { 1024 };
    if block_bytes < 1024 || !block_bytes.is_power_of_two() {
        return Err(format!("s_blocksize is {block_bytes}"));
    }
    let zones = if version == 1 { get("s_nzones") } else { get("s_zones") };
    let first_zone = get("s_firstdatazone");
    if first_zone > zones {
        return Err(format!("the first zone {first_zone} is behind the last of {zones}"));
    }
    let inode_map = 2 * block_bytes;
    let zone_map = inode_map + get("s_imap_blocks") * block_bytes;
    let table = zone_map + get("s_zmap_blocks") * block_bytes;
    if table > out.end() {
        return Err(format!("the table of inodes at {table} is behind the end"));
    }
    Ok(Shape {
        version,
        block_bytes,
        inodes: get("s_ninodes"),
        zones,
        first_zone,
        inode_map,
        zone_map,
        table,
        entry_bytes,
        number_bytes: if version == 3 { 4 } else { 2 },
    })
}

fn targets(out: &mut Builder<'_>, shape: &Shape) {
    let block = |at: u64| at / shape.block_bytes;
    let blocks = [
        ("nothing", 0),
        ("superblock", 1),
        ("map of inodes", block(shape.inode_map)),
        ("map of zones", block(shape.zone_map)),
        ("table of inodes", block(shape.table)),
        ("first zone", shape.first_zone),
        ("last zone", shape.zones - 1),
        ("zone behind the last", shape.zones),
    ];
    for (what, number) in blocks {
        out.target(Kind::Block, what, number);
    }
    let inodes = [("nothing", 0), ("root", ROOT), ("last inode", shape.inodes)];
    for (what, number) in inodes {
        out.target(Kind::Inode, what, number);
    }
    out.target(Kind::Inode, "inode behind the last", shape.inodes + 1);
}

struct Walk<'a> {
    out: Builder<'a>,
    shape: Shape,
    seen: BTreeSet<u64>,
}

impl Walk<'_> {
    /// Maps an inode and what it points to; what a directory names comes back.
    fn inode(&mut self, number: u64, path: &str) -> Vec<(u64, String)> {
        if number == 0 || number > self.shape.inodes {
            return Vec::new();
        }
        let small = self.shape.version == 1;
        let (structure, bytes) = if small { ("inode1", 32) } else { ("inode2", 64) };
        let at = self.shape.table + (number - 1) * bytes;
        let mode = self.out.get(structure, "i_mode", at);
        let (sort, target) = match mode >> 12 {
            0o04 => ("directory", "directory"),
            0o10 => ("file", "file"),
            0o12 => ("link", "symbolic link"),
            0o02 | 0o06 => ("device", "device"),
            0o01 => ("fifo", "fifo"),
            _ => ("other", "other inode"),
        };
        self.out.sample(sort, INODES_SAMPLED);
        let chosen = self.out.sampled;
        self.out.target(Kind::Inode, target, number);
        self.out.put(structure, &format!("inode[{number} \"{path}\"]"), at, None);
        let size = self.out.get(structure, "i_size", at);
        let blocks = match mode >> 12 {
            0o04 | 0o10 | 0o12 => self.blocks(at, path),
            _ => Vec::new(),
        };
        if let Some(first) = blocks.first() {
            self.out.target(Kind::Block, &format!("data of a {target}"), *first);
        }
        self.out.sampled = chosen;
        if mode >> 12 == 0o04 { self.directory(path, &blocks, size) } else { Vec::new() }
    }

    fn pointer(&self, at: u64) -> u64 {
        self.out.number(at, self.pointer_bytes(), Order::Little)
    }

    fn pointer_bytes(&self) -> u8 {
        if self.shape.version == 1 { 2 } else { 4 }
    }

    /// The blocks with data of an inode; blocks of pointers are mapped on the way.
    fn blocks(&mut self, at: u64, path: &str) -> Vec<u64> {
        let width = u64::from(self.pointer_bytes());
        let first = at + if self.shape.version == 1 { 14 } else { 24 };
        let levels = if self.shape.version == 1 { 2 } else { 3 };
        let mut blocks = Vec::new();
        for index in 0..DIRECT + levels {
            let number = self.pointer(first + index * width);
            self.follow(number, index.saturating_sub(DIRECT - 1), path, &mut blocks);
        }
        blocks
    }

    fn follow(&mut self, block: u64, depth: u64, path: &str, blocks: &mut Vec<u64>) {
        if block < self.shape.first_zone || block >= self.shape.zones {
            return;
        }
        if depth == 0 {
            blocks.push(block);
            return;
        }
        let base = block * self.shape.block_bytes;
        let width = self.pointer_bytes();
        let count = self.shape.block_bytes / u64::from(width);
        let called = format!("indirect[{block} \"{path}\"]");
        self.out.sample(&format!("pointers of depth {depth}"), 1);
        self.out.target(Kind::Block, &format!("pointers of depth {depth}"), block);
        self.out.table(&Table {
            called: &called,
            item: "zone",
            base,
            width,
            order: Order::Little,
            count,
            kind: Kind::Block,
            guard: None,
        });
        for index in 0..count {
            let next = self.pointer(base + index * u64::from(width));
            self.follow(next, depth - 1, path, blocks);
        }
    }

    fn directory(&mut self, path: &str, blocks: &[u64], size: u64) -> Vec<(u64, String)> {
        let chosen = self.out.sampled;
        let per_block = self.shape.block_bytes / self.shape.entry_bytes;
        let structure = if self.shape.version == 3 { "entry3" } else { "entry" };
        let count = (size / self.shape.entry_bytes).min(blocks.len() as u64 * per_block);
        let mut below = Vec::new();
        for index in 0..count {
            let block = blocks[(index / per_block) as usize];
            let at = block * self.shape.block_bytes + index % per_block * self.shape.entry_bytes;
            let bytes = self.shape.number_bytes;
            let number = self.out.number(at, bytes as u8, Order::Little);
            let name = self.out.bytes(at + bytes, self.shape.entry_bytes - bytes);
            let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            let name = String::from_utf8_lossy(&name[..length]).into_owned();
            let near = (index as usize) < ENTRIES_SAMPLED || index + 1 == count;
            self.out.sampled = chosen && near;
            let called = format!("dirent[{at} \"{path}\" \"{name}\"]");
            self.out.put(structure, &called, at, None);
            if name != "." && name != ".." {
                below.push((number, format!("{}/{name}", path.trim_end_matches('/'))));
            }
        }
        self.out.sampled = chosen;
        below
    }
}
