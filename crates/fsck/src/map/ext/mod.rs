//! The map of ext2, ext3 and ext4.

mod directory;
mod inode;
mod journal;
mod quota;
mod xattr;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::guard::{Algorithm, Guard, Piece, Store};
use super::layout::{Layouts, Order};
use super::{Builder, Kind, Map, MapError};
use crate::ext::{BlockKind, Inode, JOURNAL, ROOT, SUPERBLOCK, Volume, feature};

pub(super) use crate::ext::is_in;
use crate::ext::xattr::all as xattr_entries;

static LAYOUTS: LazyLock<Layouts> = LazyLock::new(|| {
    Layouts::parse(include_str!("../../../maps/ext.layout")).expect("the layout is tested")
});

/// How much of alike structures a campaign tries.
const ALIKE_MAX: usize = 1;

/// A walk through one image.
struct Walk<'a> {
    volume: Volume<'a>,
    out: Builder<'a>,
    /// The first of the paths of each inode.
    paths: BTreeMap<u64, String>,
    /// How many structures of each sort were sampled.
    sorts: BTreeMap<String, usize>,
    /// Guards of group descriptors, by group.
    descriptors: Vec<Option<usize>>,
    /// Blocks of attributes that were mapped: several inodes may share one.
    xattr_blocks: BTreeSet<u64>,
}

/// Maps an ext image.
pub(super) fn walk(disk: &[u8]) -> Result<Map, MapError> {
    let misfit = |what| MapError::Misfit { file_system: "ext", what };
    let volume = Volume::open(disk).map_err(misfit)?;
    let name = name_of(&volume);
    let mut out = Builder::new(disk, &LAYOUTS, name);
    out.map.block_bytes = volume.block_bytes;
    let paths = paths(&volume);
    let mut walk = Walk {
        volume,
        out,
        paths,
        sorts: BTreeMap::new(),
        descriptors: Vec::new(),
        xattr_blocks: BTreeSet::new(),
    };
    walk.superblock();
    walk.groups();
    walk.inodes();
    walk.journal();
    walk.mmp();
    walk.backups();
    walk.block_targets();
    Ok(walk.out.map)
}

fn name_of(volume: &Volume<'_>) -> &'static str {
    let four = feature::INCOMPAT_EXTENTS | feature::INCOMPAT_64BIT | 0x8200;
    let four_ro = feature::RO_COMPAT_GDT_CSUM | feature::RO_COMPAT_METADATA_CSUM | 0x68;
    if volume.has_incompat(four) || volume.has_ro_compat(four_ro) {
        "ext4"
    } else if volume.has_compat(feature::COMPAT_HAS_JOURNAL) {
        "ext3"
    } else {
        "ext2"
    }
}

/// The first path of every inode, by a walk over all directories.
fn paths(volume: &Volume<'_>) -> BTreeMap<u64, String> {
    let mut paths = BTreeMap::from([(ROOT, "/".to_owned())]);
    let mut todo = vec![(ROOT, String::new())];
    while let Some((number, path)) = todo.pop() {
        let Some(directory) = volume.inode(number) else { continue };
        for entry in volume.names(&directory) {
            if paths.contains_key(&entry.inode) {
                continue;
            }
            let path = format!("{path}/{}", entry.text());
            paths.insert(entry.inode, path.clone());
            for attribute in
                volume.inode(entry.inode).iter().flat_map(|inode| xattr_entries(volume, inode))
            {
                if attribute.value_inode != 0 {
                    paths.entry(attribute.value_inode).or_insert(format!("attribute of {path}"));
                }
            }
            if volume.inode(entry.inode).is_some_and(|inode| inode.is_dir()) {
                todo.push((entry.inode, path));
            }
        }
    }
    paths
}

impl Walk<'_> {
    fn has_sums(&self) -> bool {
        self.volume.has_ro_compat(feature::RO_COMPAT_METADATA_CSUM)
    }

    /// A checksum that begins with the seed of the file system.
    fn seeded(
        &mut self,
        pieces: Vec<Piece>,
        stores: Vec<Store>,
        next: Option<usize>,
    ) -> Option<usize> {
        if !self.has_sums() {
            return None;
        }
        let has_seed = self.volume.has_incompat(feature::INCOMPAT_CSUM_SEED);
        let (start, first) = match has_seed {
            true => (self.volume.u32(SUPERBLOCK + 0x270), None),
            false => (u32::MAX, Some(Piece::Range(SUPERBLOCK + 0x68, 16))),
        };
        let pieces = first.into_iter().chain(pieces).collect();
        Some(self.out.guard(Guard { algorithm: Algorithm::Crc32cRaw(start), pieces, stores, next }))
    }

    /// The pieces that every structure of an inode begins with: its number and generation.
    fn of_inode(&self, inode: &Inode) -> Vec<Piece> {
        let number = (inode.number as u32).to_le_bytes().to_vec();
        vec![Piece::Bytes(number), Piece::Range(inode.at + 100, 4)]
    }

    /// Lets campaigns try the first few structures of a sort only.
    fn sample(&mut self, sort: &str) {
        let seen = self.sorts.entry(sort.to_owned()).or_default();
        *seen += 1;
        self.out.sampled = *seen <= ALIKE_MAX;
    }

    /// Puts a superblock; the primary one at 1024.
    fn put_superblock(&mut self, called: &str, at: u64) {
        let guard = self.has_sums().then(|| {
            self.out.guard(Guard {
                algorithm: Algorithm::Crc32cRaw(u32::MAX),
                pieces: vec![Piece::Range(at, 1020)],
                stores: vec![Store::whole(at + 1020, Order::Little)],
                next: None,
            })
        });
        self.out.put("superblock", called, at, guard);
    }

    fn superblock(&mut self) {
        self.put_superblock("superblock", SUPERBLOCK);
        self.out.target(Kind::Block, "superblock", self.volume.first_data_block);
        self.out.target(Kind::Block, "block 0", 0);
        self.out.target(Kind::Block, "group descriptors", self.volume.first_data_block + 1);
        self.out.target(Kind::Block, "last block", self.volume.blocks - 1);
        self.out.target(Kind::Block, "block behind the last", self.volume.blocks);
        self.out.target(Kind::Inode, "inode behind the last", self.volume.inodes + 1);
        self.out.target(Kind::Inode, "last inode", self.volume.inodes);
        for (number, what) in [(1, "bad blocks"), (7, "resize inode"), (5, "reserved inode")] {
            self.out.target(Kind::Inode, what, number);
        }
    }

    /// The checksum of a group descriptor.
    fn descriptor_guard(&mut self, group: u64, at: u64) -> Option<usize> {
        let number = Piece::Bytes((group as u32).to_le_bytes().to_vec());
        let rest = self.volume.descriptor_bytes - 32;
        let store = vec![Store::low(at + 30)];
        if self.has_sums() {
            let pieces =
                vec![number, Piece::Range(at, 30), Piece::Zeros(2), Piece::Range(at + 32, rest)];
            return self.seeded(pieces, store, None);
        }
        if !self.volume.has_ro_compat(feature::RO_COMPAT_GDT_CSUM) {
            return None;
        }
        let uuid = Piece::Range(SUPERBLOCK + 0x68, 16);
        let pieces = vec![uuid, number, Piece::Range(at, 30), Piece::Range(at + 32, rest)];
        let algorithm = Algorithm::Crc16;
        Some(self.out.guard(Guard { algorithm, pieces, stores: store, next: None }))
    }

    fn put_descriptor(&mut self, called: &str, group: u64, at: u64) -> Option<usize> {
        let guard = self.descriptor_guard(group, at);
        let bytes = self.volume.descriptor_bytes;
        self.out.put_where("group_descriptor", called, at, guard, |part| part.at < bytes);
        guard
    }

    fn groups(&mut self) {
        for group in 0..self.volume.groups {
            let at = self.volume.descriptor(group);
            let guard = self.put_descriptor(&format!("group[{group}]"), group, at);
            self.descriptors.push(guard);
            let first = self.volume.first_data_block + group * self.volume.blocks_per_group;
            let blocks = self.volume.blocks_per_group.min(self.volume.blocks - first);
            let whole = self.volume.blocks_per_group;
            self.bitmap(group, ("block", 0, 32), (24, 56), blocks, whole);
            let inodes = self.volume.inodes_per_group;
            self.bitmap(group, ("inode", 4, 36), (26, 58), inodes, inodes);
            let table = self.volume.in_descriptor(group, 8, 40);
            self.out.target(Kind::Block, "inode table", table);
        }
    }

    /// A bitmap: `place` is its name and where the descriptor has its block, `sum` where it has its
    /// checksum.
    fn bitmap(
        &mut self,
        group: u64,
        place: (&str, u64, u64),
        sum: (u64, u64),
        bits: u64,
        summed: u64,
    ) {
        let (name, low, high) = place;
        let block = self.volume.in_descriptor(group, low, high);
        if block == 0 || block >= self.volume.blocks {
            self.out.note(format!("group[{group}] has its {name} bitmap outside: {block}"));
            return;
        }
        let descriptor = self.volume.descriptor(group);
        let at = block * self.volume.block_bytes;
        let mut stores = vec![Store::low(descriptor + sum.0)];
        if self.volume.descriptor_bytes >= 64 {
            stores.push(Store::high(descriptor + sum.1));
        }
        let next = self.descriptors.get(group as usize).copied().flatten();
        let guard = self.seeded(vec![Piece::Range(at, summed / 8)], stores, next);
        let end = self.volume.block_bytes;
        self.out.bitmap(&format!("{name}_bitmap[{group}]"), at, bits, guard, end);
        self.out.target(Kind::Block, &format!("{name} bitmap"), block);
    }

    fn backups(&mut self) {
        self.out.sampled = true;
        let sparse = self.volume.has_ro_compat(feature::RO_COMPAT_SPARSE_SUPER);
        let power = |group: u64, base: u64| {
            let mut value = base;
            while value < group {
                value *= base;
            }
            value == group
        };
        let mut first = true;
        for group in 1..self.volume.groups {
            if sparse && group != 1 && ![3, 5, 7].iter().any(|base| power(group, *base)) {
                continue;
            }
            self.out.sampled = first;
            first = false;
            let block = self.volume.first_data_block + group * self.volume.blocks_per_group;
            let at = block * self.volume.block_bytes;
            if self.volume.u16(at + 56) != 0xef53 {
                continue;
            }
            self.put_superblock(&format!("backup_superblock[{group}]"), at);
            self.out.target(Kind::Block, "backup superblock", block);
            if !self.volume.has_incompat(feature::INCOMPAT_META_BG) {
                for index in 0..self.volume.groups {
                    let called = format!("backup_group[{group}:{index}]");
                    let place = at + self.volume.block_bytes + index * self.volume.descriptor_bytes;
                    self.put_descriptor(&called, index, place);
                }
            }
        }
    }

    fn mmp(&mut self) {
        let block = u64::from(self.volume.u32(SUPERBLOCK + 0x168));
        if !self.volume.has_incompat(feature::INCOMPAT_MMP) || block >= self.volume.blocks {
            return;
        }
        self.out.sampled = true;
        let at = block * self.volume.block_bytes;
        let stores = vec![Store::whole(at + 1020, Order::Little)];
        let guard = self.seeded(vec![Piece::Range(at, 1020)], stores, None);
        self.out.put("mmp", "mmp", at, guard);
        self.out.target(Kind::Block, "multiple-mount protection", block);
    }

    /// Blocks of each sort that pointers may point to, beyond what the walk has met.
    fn block_targets(&mut self) {
        let mut free = Vec::new();
        for block in self.volume.first_data_block..self.volume.blocks {
            let relative = block - self.volume.first_data_block;
            let (group, index) =
                (relative / self.volume.blocks_per_group, relative % self.volume.blocks_per_group);
            if !self.volume.is_used(self.volume.in_descriptor(group, 0, 32), index) {
                free.push(block);
            }
        }
        if let (Some(first), Some(last)) = (free.first(), free.last()) {
            self.out.target(Kind::Block, "first free block", *first);
            self.out.target(Kind::Block, "last free block", *last);
        }
        let journal = self.volume.inode(JOURNAL).map(|inode| self.volume.blocks_of(&inode));
        let journal = journal.unwrap_or_default();
        if let Some(first) = journal.iter().find(|block| block.kind == BlockKind::Data) {
            self.out.target(Kind::Block, "journal superblock", first.physical);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_has_the_sizes_of_the_structures() {
        for (structure, bytes) in [
            ("superblock", 1024),
            ("group_descriptor", 64),
            ("inode", 160),
            ("extent_header", 12),
            ("extent", 12),
            ("extent_index", 12),
            ("journal_superblock", 272),
            ("journal_tag", 8),
            ("journal_tag3", 16),
            ("journal_commit", 48),
            ("mmp", 1024),
            ("quota_header", 32),
            ("quota_entry", 72),
            ("xattr_entry", 17),
        ] {
            assert_eq!(LAYOUTS.size(structure), bytes, "{structure}");
        }
    }
}
