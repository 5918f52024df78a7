//! A reader of ext2, ext3 and ext4 images that never trusts them.
//!
//! The map of a healthy disk and the tree of a repaired one are both made with it, so it must end on
//! every image: walks are bounded, places beyond the end read as zeros.

mod blocks;
mod directory;
pub(crate) mod tree;
pub(crate) mod xattr;

pub(crate) use blocks::BlockKind;
pub(crate) use directory::{DirEntry, entries_of_block};

/// The magic number of the superblock.
const MAGIC: u16 = 0xef53;
/// The first byte of the superblock.
pub(crate) const SUPERBLOCK: u64 = 1024;
/// The root directory.
pub(crate) const ROOT: u64 = 2;
/// Journal inode by convention.
pub(crate) const JOURNAL: u64 = 8;

/// Feature bits that change how the disk is read.
pub(crate) mod feature {
    pub(crate) const COMPAT_HAS_JOURNAL: u32 = 0x4;
    pub(crate) const INCOMPAT_EXTENTS: u32 = 0x40;
    pub(crate) const INCOMPAT_64BIT: u32 = 0x80;
    pub(crate) const INCOMPAT_MMP: u32 = 0x100;
    pub(crate) const INCOMPAT_META_BG: u32 = 0x10;
    pub(crate) const INCOMPAT_CSUM_SEED: u32 = 0x2000;
    pub(crate) const RO_COMPAT_SPARSE_SUPER: u32 = 0x1;
    pub(crate) const RO_COMPAT_GDT_CSUM: u32 = 0x10;
    pub(crate) const RO_COMPAT_METADATA_CSUM: u32 = 0x400;
}

/// Flags of an inode.
pub(crate) mod flag {
    pub(crate) const INDEX: u32 = 0x1000;
    pub(crate) const EXTENTS: u32 = 0x8_0000;
    pub(crate) const INLINE_DATA: u32 = 0x1000_0000;
}

/// The shape of an ext file system in an image.
#[derive(Clone, Debug)]
pub(crate) struct Volume<'a> {
    disk: &'a [u8],
    pub(crate) block_bytes: u64,
    pub(crate) blocks: u64,
    pub(crate) first_data_block: u64,
    pub(crate) blocks_per_group: u64,
    pub(crate) inodes: u64,
    pub(crate) inodes_per_group: u64,
    pub(crate) inode_bytes: u64,
    pub(crate) groups: u64,
    pub(crate) descriptor_bytes: u64,
    pub(crate) compat: u32,
    pub(crate) incompat: u32,
    pub(crate) ro_compat: u32,
}

/// What an inode says about itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Inode {
    pub(crate) number: u64,
    /// The first byte of the inode.
    pub(crate) at: u64,
    pub(crate) mode: u16,
    pub(crate) links: u16,
    pub(crate) flags: u32,
    pub(crate) size: u64,
}

impl Inode {
    /// The type bits of the mode.
    pub(crate) fn file_type(&self) -> u16 {
        self.mode & 0xf000
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.file_type() == 0x4000
    }

    pub(crate) fn is_symlink(&self) -> bool {
        self.file_type() == 0xa000
    }

    pub(crate) fn is_regular(&self) -> bool {
        self.file_type() == 0x8000
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

/// Whether an image has the magic number of ext.
pub(crate) fn is_in(disk: &[u8]) -> bool {
    read16(disk, SUPERBLOCK + 56) == MAGIC
}

fn read16(disk: &[u8], at: u64) -> u16 {
    let at = at as usize;
    disk.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
}

fn read32(disk: &[u8], at: u64) -> u32 {
    let at = at as usize;
    let bytes = disk.get(at..at.saturating_add(4));
    bytes.map_or(0, |bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

impl<'a> Volume<'a> {
    /// Reads the superblock.
    ///
    /// # Errors
    /// What makes the superblock unusable.
    pub(crate) fn open(disk: &'a [u8]) -> Result<Volume<'a>, String> {
        if !is_in(disk) {
            return Err("there is no superblock with the magic number 0xef53".to_owned());
        }
        let at = |offset| u64::from(read32(disk, SUPERBLOCK + offset));
        let log_block = at(24);
        if log_block > 6 {
            return Err(format!("s_log_block_size is {log_block}, more than 6"));
        }
        let incompat = at(96) as u32;
        let wide = incompat & feature::INCOMPAT_64BIT != 0;
        let descriptor_bytes = match (wide, u64::from(read16(disk, SUPERBLOCK + 254))) {
            (true, bytes @ 32..=1024) => bytes,
            (true, bytes) => return Err(format!("s_desc_size is {bytes}")),
            (false, _) => 32,
        };
        let volume = Volume {
            disk,
            block_bytes: 1024 << log_block,
            blocks: at(4) | if wide { at(336) << 32 } else { 0 },
            first_data_block: at(20),
            blocks_per_group: at(32),
            inodes: at(0),
            inodes_per_group: at(40),
            inode_bytes: if at(76) == 0 { 128 } else { u64::from(read16(disk, SUPERBLOCK + 88)) },
            groups: 0,
            descriptor_bytes,
            compat: at(92) as u32,
            incompat,
            ro_compat: at(100) as u32,
        };
        volume.checked()
    }

    fn checked(mut self) -> Result<Volume<'a>, String> {
        let needed = [
            ("s_blocks_per_group", self.blocks_per_group, 1, 8 * self.block_bytes),
            ("s_inodes_per_group", self.inodes_per_group, 1, 8 * self.block_bytes),
            ("s_inode_size", self.inode_bytes, 128, self.block_bytes),
            ("s_blocks_count", self.blocks, self.first_data_block + 1, u64::MAX / self.block_bytes),
        ];
        for (name, value, low, high) in needed {
            if !(low..=high).contains(&value) {
                return Err(format!("{name} is {value}: not between {low} and {high}"));
            }
        }
        self.groups = (self.blocks - self.first_data_block).div_ceil(self.blocks_per_group);
        let held = self.disk.len() as u64 / self.block_bytes;
        if self.groups > held {
            return Err(format!("{} groups of blocks in an image of {held} blocks", self.groups));
        }
        Ok(self)
    }

    pub(crate) fn u16(&self, at: u64) -> u16 {
        read16(self.disk, at)
    }

    pub(crate) fn u32(&self, at: u64) -> u32 {
        read32(self.disk, at)
    }

    pub(crate) fn bytes(&self, at: u64, length: u64) -> &'a [u8] {
        let end = at.saturating_add(length).min(self.disk.len() as u64);
        self.disk.get(at as usize..end as usize).unwrap_or_default()
    }

    /// The bytes of a block; short or empty at the end of the image.
    pub(crate) fn block(&self, number: u64) -> &'a [u8] {
        self.bytes(number.saturating_mul(self.block_bytes), self.block_bytes)
    }

    /// The first byte of a group descriptor (of the first table).
    pub(crate) fn descriptor(&self, group: u64) -> u64 {
        (self.first_data_block + 1) * self.block_bytes + group * self.descriptor_bytes
    }

    /// A block number of a group descriptor: its two halves at these places.
    pub(crate) fn in_descriptor(&self, group: u64, low: u64, high: u64) -> u64 {
        let at = self.descriptor(group);
        let high = if self.descriptor_bytes >= 64 { self.u32(at + high) } else { 0 };
        u64::from(self.u32(at + low)) | u64::from(high) << 32
    }

    /// The first byte of an inode; nothing if there is no such inode.
    pub(crate) fn inode_place(&self, number: u64) -> Option<u64> {
        if number == 0 || number > self.inodes {
            return None;
        }
        let (group, index) =
            ((number - 1) / self.inodes_per_group, (number - 1) % self.inodes_per_group);
        if group >= self.groups {
            return None;
        }
        let table = self.in_descriptor(group, 8, 40);
        let at = table.checked_mul(self.block_bytes)?.checked_add(index * self.inode_bytes)?;
        (at + self.inode_bytes <= self.disk.len() as u64).then_some(at)
    }

    /// Reads an inode.
    pub(crate) fn inode(&self, number: u64) -> Option<Inode> {
        let at = self.inode_place(number)?;
        let mode = self.u16(at);
        let high = if mode & 0xf000 == 0x8000 { u64::from(self.u32(at + 108)) << 32 } else { 0 };
        Some(Inode {
            number,
            at,
            mode,
            links: self.u16(at + 26),
            flags: self.u32(at + 32),
            size: u64::from(self.u32(at + 4)) | high,
        })
    }

    /// Whether a block or an inode of a group is marked as used.
    pub(crate) fn is_used(&self, bitmap_block: u64, index: u64) -> bool {
        let byte = self.bytes(bitmap_block.saturating_mul(self.block_bytes) + index / 8, 1);
        byte.first().is_some_and(|byte| byte >> (index % 8) & 1 == 1)
    }

    pub(crate) fn has_compat(&self, bits: u32) -> bool {
        self.compat & bits != 0
    }

    pub(crate) fn has_incompat(&self, bits: u32) -> bool {
        self.incompat & bits != 0
    }

    pub(crate) fn has_ro_compat(&self, bits: u32) -> bool {
        self.ro_compat & bits != 0
    }
}
