//! The layout of the device: 16 blocks of 4 bytes.
//!
//! | | link-type (FAT) | index-type (ext2) |
//! |---|---|---|
//! | inodes | 2 bytes (length, first block), two per block | 4 bytes (length, two direct blocks, the indirect block), one per block |
//! | allocation | one byte per data block: free, end of chain, or the next block | one bit per data block |
//! | indirect block | – | a data block with four numbers |
//!
//! Data blocks are numbered from 0. A written data block names its file and its place in it, so that
//! what a file should hold need not be remembered.

use std::fmt;

/// Bytes of a block.
const BLOCK_BYTES: usize = 4;
/// Blocks of the device.
const BLOCKS: usize = 16;
/// Number of data blocks of the seed's geometry.
pub(super) const DATA_BLOCKS_DEFAULT: usize = 11;
/// The number that stands for no block, no file, a free entry.
pub(super) const NONE: u8 = 0xff;
/// The entry of the last block of a chain.
const END: u8 = 0xfe;
/// The contents of an unused data block.
pub(super) const ERASED: [u8; BLOCK_BYTES] = [NONE; BLOCK_BYTES];
/// First byte of a written data block; numbers of data blocks (indirect blocks) are smaller.
const DATA_MARK: u8 = 0x40;
/// Number of blocks of a file that the inode itself names (index-type).
const DIRECT: u8 = 2;
/// Number of blocks that an indirect block names.
const INDIRECT: u8 = BLOCK_BYTES as u8;

/// The way in which files are mapped to blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Files are chains in a table, as in FAT.
    Link,
    /// Files have tables of pointers, as in ext2.
    Index,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Link => "link",
            Kind::Index => "index",
        })
    }
}

/// The contents of the device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Disk([u8; BLOCKS * BLOCK_BYTES]);

impl Disk {
    /// One block.
    pub fn block(&self, number: usize) -> &[u8; BLOCK_BYTES] {
        self.0[number * BLOCK_BYTES..].first_chunk().expect("a block of the device")
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn block_mut(&mut self, number: usize) -> &mut [u8; BLOCK_BYTES] {
        self.0[number * BLOCK_BYTES..].first_chunk_mut().expect("a block of the device")
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..BLOCKS).map(|number| self.block(number))).finish()
    }
}

/// A geometry that cannot hold the design.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{files} files and {data_blocks} data blocks do not fit: {why}")]
pub struct GeometryError {
    files: usize,
    data_blocks: usize,
    why: String,
}

/// The places of inodes, allocation tables and data on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    kind: Kind,
    files: usize,
    data_blocks: usize,
}

/// The blocks of a file, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    blocks: [u8; DATA_BLOCKS_DEFAULT],
    count: usize,
    /// The indirect block, or [`NONE`].
    pub(super) indirect: u8,
    /// Whether some block was met twice.
    pub(super) circular: bool,
}

impl Extent {
    fn push(&mut self, block: u8) {
        match self.blocks.get_mut(self.count) {
            Some(place) => *place = block,
            None => self.circular = true,
        }
        self.count = (self.count + 1).min(self.blocks.len());
    }

    pub(super) fn blocks(&self) -> &[u8] {
        &self.blocks[..self.count]
    }

    /// The block at a place, or [`NONE`].
    pub(super) fn at(&self, place: u8) -> u8 {
        self.blocks().get(usize::from(place)).copied().unwrap_or(NONE)
    }

    /// All blocks, the indirect one included, as a set.
    pub(super) fn mask(&self) -> u16 {
        let indirect = if self.indirect == NONE { 0 } else { 1 << self.indirect };
        self.blocks().iter().filter(|block| **block != NONE).fold(indirect, |m, b| m | 1 << b)
    }
}

impl Layout {
    /// Lays out a device.
    ///
    /// # Errors
    /// If it does not fit on 16 blocks, or if nothing could be done with it.
    pub fn new(kind: Kind, files: usize, data_blocks: usize) -> Result<Layout, GeometryError> {
        let layout = Layout { kind, files, data_blocks };
        let article = if kind == Kind::Index { "an" } else { "a" };
        let why = if !(1..=super::FILES_MAX).contains(&files) {
            format!("{article} {kind}-type design has 1 to {} files", super::FILES_MAX)
        } else if !(1..=DATA_BLOCKS_DEFAULT).contains(&data_blocks) {
            format!("{article} {kind}-type design has 1 to {DATA_BLOCKS_DEFAULT} data blocks")
        } else {
            return Ok(layout);
        };
        Err(GeometryError { files, data_blocks, why })
    }

    /// The way in which files are mapped to blocks.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Greatest number of files.
    pub fn files(&self) -> usize {
        self.files
    }

    /// Number of data blocks.
    pub fn data_blocks(&self) -> usize {
        self.data_blocks
    }

    /// Number of blocks in use, metadata included.
    pub fn blocks(&self) -> usize {
        self.first_data() + self.data_blocks
    }

    fn inode_blocks(&self) -> usize {
        self.files.div_ceil(self.inodes_per_block())
    }

    /// Number of inodes in one block.
    pub(super) fn inodes_per_block(&self) -> usize {
        match self.kind {
            Kind::Link => 2,
            Kind::Index => 1,
        }
    }

    fn first_data(&self) -> usize {
        let allocation_blocks = match self.kind {
            Kind::Link => self.data_blocks.div_ceil(BLOCK_BYTES),
            Kind::Index => 1,
        };
        self.inode_blocks() + allocation_blocks
    }

    /// The block number of an inode.
    pub(super) fn inode_block(&self, file: usize) -> usize {
        file / self.inodes_per_block()
    }

    /// The block number of the table that says whether a data block is allocated.
    pub(super) fn allocation_block(&self, data: u8) -> usize {
        match self.kind {
            Kind::Link => self.inode_blocks() + usize::from(data) / BLOCK_BYTES,
            Kind::Index => self.inode_blocks(),
        }
    }

    /// The block number of a data block.
    pub(super) fn data_block(&self, data: u8) -> usize {
        self.first_data() + usize::from(data)
    }

    /// The data block with this block number, if it is one.
    pub(super) fn as_data(&self, block: usize) -> Option<u8> {
        (self.first_data()..self.blocks())
            .contains(&block)
            .then(|| (block - self.first_data()) as u8)
    }

    /// Makes an empty file system.
    pub(super) fn mkfs(&self) -> Disk {
        let mut disk = Disk([NONE; BLOCKS * BLOCK_BYTES]);
        if self.kind == Kind::Index {
            *disk.block_mut(self.inode_blocks()) = [0; BLOCK_BYTES];
        }
        disk
    }

    /// The bytes of an inode.
    pub(super) fn inode<'d>(&self, disk: &'d Disk, file: usize) -> &'d [u8] {
        let bytes = BLOCK_BYTES / self.inodes_per_block();
        let within = file % self.inodes_per_block() * bytes;
        &disk.block(self.inode_block(file))[within..within + bytes]
    }

    pub(super) fn inode_mut<'d>(&self, disk: &'d mut Disk, file: usize) -> &'d mut [u8] {
        let bytes = BLOCK_BYTES / self.inodes_per_block();
        let within = file % self.inodes_per_block() * bytes;
        &mut disk.block_mut(self.inode_block(file))[within..within + bytes]
    }

    pub(super) fn exists(&self, disk: &Disk, file: usize) -> bool {
        self.inode(disk, file)[0] != NONE
    }

    /// The length of a file in blocks.
    pub(super) fn len(&self, disk: &Disk, file: usize) -> u8 {
        self.inode(disk, file)[0]
    }

    /// Greatest length of a file in blocks.
    pub(super) fn len_max(&self) -> u8 {
        match self.kind {
            Kind::Link => self.data_blocks as u8,
            Kind::Index => DIRECT + INDIRECT,
        }
    }

    fn link(&self, disk: &Disk, data: u8) -> u8 {
        disk.block(self.allocation_block(data))[usize::from(data) % BLOCK_BYTES]
    }

    /// Whether a data block is allocated.
    pub(super) fn is_allocated(&self, disk: &Disk, data: u8) -> bool {
        match self.kind {
            Kind::Link => self.link(disk, data) != NONE,
            Kind::Index => self.bitmap(disk) & (1 << data) != 0,
        }
    }

    fn bitmap(&self, disk: &Disk) -> u16 {
        let block = disk.block(self.inode_blocks());
        u16::from_le_bytes([block[0], block[1]])
    }

    /// The set of the allocated data blocks.
    pub(super) fn allocated(&self, disk: &Disk) -> u16 {
        match self.kind {
            Kind::Index => self.bitmap(disk),
            Kind::Link => (0..self.data_blocks as u8)
                .filter(|&data| self.is_allocated(disk, data))
                .fold(0, |mask, data| mask | 1 << data),
        }
    }

    /// Finds the first free data block except `but`.
    pub(super) fn find_free(&self, disk: &Disk, but: u8) -> u8 {
        let free = |data: &u8| *data != but && !self.is_allocated(disk, *data);
        (0..self.data_blocks as u8).find(free).unwrap_or(NONE)
    }

    /// Marks a data block as allocated: link-type, as the end of a chain.
    pub(super) fn allocate(&self, disk: &mut Disk, data: u8) {
        match self.kind {
            Kind::Link => self.set_link(disk, data, END),
            Kind::Index => self.set_bitmap(disk, self.bitmap(disk) | 1 << data),
        }
    }

    /// Marks a data block as free.
    pub(super) fn free(&self, disk: &mut Disk, data: u8) {
        match self.kind {
            Kind::Link => self.set_link(disk, data, NONE),
            Kind::Index => self.set_bitmap(disk, self.bitmap(disk) & !(1 << data)),
        }
    }

    /// Makes one block of a chain follow another.
    pub(super) fn set_link(&self, disk: &mut Disk, data: u8, next: u8) {
        disk.block_mut(self.allocation_block(data))[usize::from(data) % BLOCK_BYTES] = next;
    }

    fn set_bitmap(&self, disk: &mut Disk, bits: u16) {
        disk.block_mut(self.inode_blocks())[..2].copy_from_slice(&bits.to_le_bytes());
    }

    /// Reads the blocks of a file. Link-type: up to the end of the chain. Index-type: up to the
    /// first place that names none.
    pub(super) fn extent(&self, disk: &Disk, file: usize) -> Extent {
        let mut extent = Extent { blocks: [NONE; 11], count: 0, indirect: NONE, circular: false };
        let inode = self.inode(disk, file);
        if inode[0] == NONE {
            return extent;
        }
        match self.kind {
            Kind::Link => {
                let mut data = inode[1];
                while usize::from(data) < self.data_blocks && !extent.circular {
                    extent.push(data);
                    data = self.link(disk, data);
                }
            }
            Kind::Index => {
                let named = |data: &&u8| usize::from(**data) < self.data_blocks;
                inode[1..3].iter().take_while(named).for_each(|data| extent.push(*data));
                if usize::from(inode[3]) < self.data_blocks {
                    extent.indirect = inode[3];
                    let more = disk.block(self.data_block(inode[3])).iter();
                    more.take_while(named).for_each(|data| extent.push(*data));
                }
            }
        }
        extent
    }

    /// The set of the data blocks that files name.
    pub(super) fn referenced(&self, disk: &Disk) -> u16 {
        (0..self.files).fold(0, |mask, file| mask | self.extent(disk, file).mask())
    }

    /// Frees the blocks of no file: the repair of the offline checker.
    pub(super) fn free_dead_blocks(&self, disk: &mut Disk) {
        let dead = self.allocated(disk) & !self.referenced(disk);
        for data in (0..self.data_blocks as u8).filter(|data| dead & (1 << data) != 0) {
            self.free(disk, data);
        }
    }

    /// The contents of a written block of a file.
    pub(super) fn content(file: u8, place: u8) -> [u8; BLOCK_BYTES] {
        [DATA_MARK, file, place, 0]
    }

    /// Reads the file, and the place in it, from the contents of a block.
    pub(super) fn content_of(block: &[u8; BLOCK_BYTES]) -> Option<(u8, u8)> {
        (block[0] == DATA_MARK).then_some((block[1], block[2]))
    }
}
