//! The map of XFS, versions 4 and 5.

mod directory;
mod groups;
mod inode;
mod log;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::guard::Guard;
use super::layout::Layouts;
use super::{Builder, Kind, Map, MapError};

static LAYOUTS: LazyLock<Layouts> = LazyLock::new(|| {
    Layouts::parse(include_str!("../../../maps/xfs.layout")).expect("the layout is tested")
});

/// Features that decide where something lies.
const FILE_TYPES: u64 = 1;
const SPARSE_INODES: u64 = 2;
const FILE_TYPES_4: u64 = 0x200;

/// Whether an image has a superblock of XFS.
pub(super) fn is_in(disk: &[u8]) -> bool {
    disk.get(..4) == Some(b"XFSB")
}

/// Maps an image.
pub(super) fn walk(disk: &[u8]) -> Result<Map, MapError> {
    let out = Builder::new(disk, &LAYOUTS, "xfs");
    let get = |field: &str| out.get("superblock", field, 0);
    let misfit = |what: String| MapError::Misfit { file_system: "xfs", what };
    let block_bytes = get("sb_blocksize");
    let (sector, inode) = (get("sb_sectsize"), get("sb_inodesize"));
    let sane = |bytes: u64| bytes.is_power_of_two() && (256..=65536).contains(&bytes);
    if !sane(block_bytes) || !sane(sector) || !sane(inode) {
        let what = format!("blocks of {block_bytes} bytes, sectors of {sector}, inodes of {inode}");
        return Err(misfit(what));
    }
    let five = get("sb_versionnum") & 0xf == 5;
    let incompatible = out.get("superblock5", "sb_features_incompat", 208);
    let types_4 = !five && get("sb_features2") & FILE_TYPES_4 != 0;
    let volume = Volume {
        five,
        block_bytes,
        sector_bytes: sector,
        inode_bytes: inode,
        group_blocks: get("sb_agblocks"),
        groups: get("sb_agcount").min(64),
        group_bits: get("sb_agblklog").min(31),
        inode_bits: get("sb_inopblog").min(12),
        directory_blocks: 1 << get("sb_dirblklog").min(6),
        has_types: types_4 || five && incompatible & FILE_TYPES != 0,
        has_sparse_inodes: five && incompatible & SPARSE_INODES != 0,
        root: get("sb_rootino"),
    };
    let mut walk = Walk { out, volume, seen: BTreeSet::new() };
    walk.out.map.block_bytes = block_bytes;
    walk.targets();
    walk.groups();
    walk.log();
    walk.tree();
    Ok(walk.out.map)
}

/// The shape of the file system.
#[derive(Clone, Copy, Debug)]
struct Volume {
    /// Whether it has version 5, with checksums.
    five: bool,
    block_bytes: u64,
    sector_bytes: u64,
    inode_bytes: u64,
    group_blocks: u64,
    groups: u64,
    /// Bits of a block in its group, and of an inode in its block.
    group_bits: u64,
    inode_bits: u64,
    /// Blocks of a block of a directory.
    directory_blocks: u64,
    has_types: bool,
    has_sparse_inodes: bool,
    root: u64,
}

impl Volume {
    /// The first byte of a block, by its number with the group in it.
    fn place(&self, block: u64) -> u64 {
        let (group, inside) = (block >> self.group_bits, block & ((1 << self.group_bits) - 1));
        (group * self.group_blocks + inside) * self.block_bytes
    }

    /// The first byte of an inode.
    fn inode_place(&self, number: u64) -> u64 {
        let inside = number & ((1 << self.inode_bits) - 1);
        self.place(number >> self.inode_bits) + inside * self.inode_bytes
    }
}

struct Walk<'a> {
    out: Builder<'a>,
    volume: Volume,
    seen: BTreeSet<u64>,
}

impl Walk<'_> {
    /// The checksum of a structure, where this version has any.
    fn guard(&mut self, at: u64, bytes: u64, kept: u64) -> Option<usize> {
        let inside = at + bytes <= self.out.end();
        (self.volume.five && inside).then(|| self.out.guard(Guard::inside(at, bytes, at + kept)))
    }

    fn targets(&mut self) {
        let get = |field: &str| self.out.get("superblock", field, 0);
        let blocks = get("sb_dblocks");
        let list = [
            ("superblock", 0),
            ("headers of the next group", 1 << self.volume.group_bits),
            ("log", get("sb_logstart")),
            ("last block of a group", self.volume.group_blocks - 1),
            ("block behind a group", self.volume.group_blocks),
            ("block behind the last", blocks),
        ];
        for (what, number) in list {
            self.out.target(Kind::Block, what, number);
        }
        self.out.target(Kind::Block, "none (short)", 0xffff_ffff);
        self.out.target(Kind::Block, "none", u64::MAX);
        for (what, number) in [("nothing", 0), ("root", self.volume.root)] {
            self.out.target(Kind::Inode, what, number);
        }
        self.out.target(Kind::Inode, "bitmap of the realtime device", self.volume.root + 1);
        self.out.target(Kind::Inode, "none", u64::MAX);
    }

    fn tree(&mut self) {
        let root = self.volume.root;
        let mut todo = vec![(root, "/".to_owned())];
        for (field, name) in [("sb_rbmino", "realtime bitmap"), ("sb_rsumino", "realtime summary")]
        {
            todo.insert(0, (self.out.get("superblock", field, 0), name.to_owned()));
        }
        while let Some((number, path)) = todo.pop() {
            if self.seen.insert(number) {
                let mut below = self.inode(number, &path);
                below.reverse();
                todo.extend(below);
            }
        }
        self.out.sampled = true;
    }
}
