//! Operations: all of them change memory only.

use fathom_core::Errno;

use super::{BLOCK_BYTES, DATA, FIRST_DATA, HOME, INODES, Memory};
use crate::volume::{Path, Tree};

/// Kinds of inodes.
pub(super) const FREE: u8 = 0;
pub(super) const FILE: u8 = 1;
pub(super) const DIR: u8 = 2;
/// Blocks that an inode names.
const BLOCKS_OF_INODE: usize = 4;
/// First byte of a written data block.
pub(super) const WRITTEN: u8 = b'F';
/// Entries of a directory.
const NAMES: usize = BLOCK_BYTES / 2;

/// A file or a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Inode {
    kind: u8,
    pub(super) len: u8,
    /// Numbers of data blocks.
    blocks: [u8; BLOCKS_OF_INODE],
}

impl Inode {
    pub(super) fn is_dir(&self) -> bool {
        self.kind == DIR
    }

    /// The data blocks it names.
    pub(super) fn blocks(&self) -> &[u8] {
        let len = if self.is_dir() { 1 } else { usize::from(self.len) };
        &self.blocks[..len.min(BLOCKS_OF_INODE)]
    }
}

impl Memory {
    pub(super) fn blank() -> Memory {
        Memory {
            home: [[0; BLOCK_BYTES]; HOME],
            dirty: 0,
            data: 0,
            freed: 0,
            revoked: 0,
            journaled: 0,
            head: 0,
            sequence: 1,
        }
    }

    pub(super) fn make_root(&mut self) {
        let block = self.allocate().expect("an empty volume");
        self.set_inode(0, Inode { kind: DIR, len: 0, blocks: [block, 0, 0, 0] });
        (self.dirty, self.data) = (0, 0);
    }

    pub(super) fn bitmap(&self) -> u16 {
        u16::from_le_bytes([self.home[0][0], self.home[0][1]])
    }

    fn set_bitmap(&mut self, bits: u16) {
        self.home[0][..2].copy_from_slice(&bits.to_le_bytes());
        self.dirty |= 1;
    }

    /// The set of data blocks that are allocated, or were at the last commit.
    fn used(&self) -> u32 {
        u32::from(self.bitmap()) | self.freed >> FIRST_DATA
    }

    fn free_blocks(&self) -> usize {
        DATA - self.used().count_ones() as usize
    }

    /// Allocates a data block that is free, and was free at the last commit.
    fn allocate(&mut self) -> Result<u8, Errno> {
        let used = self.used();
        let free = (0..DATA).find(|data| used & (1 << data) == 0).ok_or(Errno::ENOSPC)?;
        self.set_bitmap(self.bitmap() | 1 << free);
        self.home[FIRST_DATA + free] = [0; BLOCK_BYTES];
        Ok(free as u8)
    }

    fn free(&mut self, data: u8, is_metadata: bool) {
        let bit = 1 << (FIRST_DATA + usize::from(data));
        self.set_bitmap(self.bitmap() & !(1 << data));
        self.freed |= bit;
        self.dirty &= !bit;
        self.data &= !bit;
        if is_metadata {
            self.revoked |= bit;
        }
    }

    pub(super) fn inode(&self, number: usize) -> Option<Inode> {
        let within = number % 2 * 8;
        let bytes = &self.home[1 + number / 2][within..within + 8];
        let blocks = [bytes[2], bytes[3], bytes[4], bytes[5]];
        (bytes[0] != FREE).then_some(Inode { kind: bytes[0], len: bytes[1], blocks })
    }

    fn set_inode(&mut self, number: usize, inode: Inode) {
        let within = number % 2 * 8;
        let bytes = &mut self.home[1 + number / 2][within..within + 8];
        (bytes[0], bytes[1]) = (inode.kind, inode.len);
        bytes[2..6].copy_from_slice(&inode.blocks);
        self.dirty |= 1 << (1 + number / 2);
    }

    fn entries(&self, directory: &Inode) -> [(u8, u8); NAMES] {
        let block = &self.home[FIRST_DATA + usize::from(directory.blocks[0]) % DATA];
        std::array::from_fn(|entry| (block[entry * 2], block[entry * 2 + 1]))
    }

    fn set_entry(&mut self, directory: &Inode, entry: usize, name: u8, number: u8) {
        let block = FIRST_DATA + usize::from(directory.blocks[0]);
        self.home[block][entry * 2] = name;
        self.home[block][entry * 2 + 1] = number;
        self.dirty |= 1 << block;
    }

    /// Finds the inode of a path.
    fn find(&self, path: Path) -> Result<(usize, Inode), Errno> {
        let mut number = 0;
        for name in path.names() {
            let directory = self.inode(number).filter(Inode::is_dir).ok_or(Errno::ENOTDIR)?;
            let entry = self.entries(&directory).into_iter().find(|(known, _)| known == name);
            number = usize::from(entry.ok_or(Errno::ENOENT)?.1);
        }
        Ok((number, self.inode(number).ok_or(Errno::EUCLEAN)?))
    }

    /// Finds the directory that holds a path, and the name there.
    fn parent(&self, path: Path) -> Result<(Inode, u8), Errno> {
        let (directory, name) = path.split().ok_or(Errno::EBUSY)?;
        Ok((self.find(directory)?.1, name))
    }

    fn link(&mut self, path: Path, number: usize) -> Result<(), Errno> {
        let (directory, name) = self.parent(path)?;
        let free = self.entries(&directory).into_iter().position(|(known, _)| known == 0);
        self.set_entry(&directory, free.ok_or(Errno::ENOSPC)?, name, number as u8);
        Ok(())
    }

    fn unlink(&mut self, path: Path) -> Result<(), Errno> {
        let (directory, name) = self.parent(path)?;
        let entry = self.entries(&directory).into_iter().position(|(known, _)| known == name);
        self.set_entry(&directory, entry.ok_or(Errno::ENOENT)?, 0, 0);
        Ok(())
    }

    pub(super) fn create(&mut self, path: Path, is_dir: bool) -> Result<(), Errno> {
        let number = (0..INODES).find(|n| self.inode(*n).is_none()).ok_or(Errno::ENOSPC)?;
        if is_dir && self.free_blocks() == 0 {
            return Err(Errno::ENOSPC);
        }
        self.link(path, number)?;
        let mut inode = Inode { kind: FILE, len: 0, blocks: [0; BLOCKS_OF_INODE] };
        if is_dir {
            inode.kind = DIR;
            inode.blocks[0] = self.allocate()?;
            self.dirty |= 1 << (FIRST_DATA + usize::from(inode.blocks[0]));
        }
        self.set_inode(number, inode);
        Ok(())
    }

    /// Writes new blocks at the end, and old ones in place: ordered mode does not copy data.
    pub(super) fn write(&mut self, path: Path, place: u8, contents: &[u8]) -> Result<(), Errno> {
        let (number, mut inode) = self.find(path)?;
        let end = usize::from(place) + contents.len();
        if end > BLOCKS_OF_INODE || self.free_blocks() < end.saturating_sub(inode.len.into()) {
            return Err(Errno::ENOSPC);
        }
        for (place, content) in (usize::from(place)..).zip(contents) {
            if place >= usize::from(inode.len) {
                inode.blocks[place] = self.allocate()?;
                inode.len += 1;
            }
            let block = FIRST_DATA + usize::from(inode.blocks[place]);
            (self.home[block][0], self.home[block][1]) = (WRITTEN, *content);
            self.data |= 1 << block;
        }
        self.set_inode(number, inode);
        Ok(())
    }

    pub(super) fn truncate(&mut self, path: Path, blocks: u8) -> Result<(), Errno> {
        let (number, mut inode) = self.find(path)?;
        for place in usize::from(blocks)..usize::from(inode.len) {
            let data = std::mem::take(&mut inode.blocks[place]);
            self.free(data, false);
        }
        inode.len = inode.len.min(blocks);
        self.set_inode(number, inode);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: Path) -> Result<(), Errno> {
        let (number, inode) = self.find(path)?;
        self.unlink(path)?;
        inode.blocks().iter().for_each(|data| self.free(*data, inode.is_dir()));
        self.set_inode(number, Inode { kind: FREE, len: 0, blocks: [0; BLOCKS_OF_INODE] });
        Ok(())
    }

    pub(super) fn rename(&mut self, from: Path, to: Path) -> Result<(), Errno> {
        let (number, _) = self.find(from)?;
        if from.split().map(|(above, _)| above) == to.split().map(|(above, _)| above) {
            self.unlink(from)?;
            return self.link(to, number);
        }
        // DaemonSandbox first: an error must not have changed anything.
        self.link(to, number)?;
        self.unlink(from)
    }

    pub(super) fn tree(&self) -> Result<Tree, Errno> {
        let mut tree = Tree::default();
        self.read_directory(0, Path::ROOT, &mut tree)?;
        Ok(tree)
    }

    fn read_directory(&self, number: usize, path: Path, tree: &mut Tree) -> Result<(), Errno> {
        let directory = self.inode(number).filter(Inode::is_dir).ok_or(Errno::EUCLEAN)?;
        for (name, number) in self.entries(&directory) {
            if name == 0 {
                continue;
            }
            let path = path.join(name).ok_or(Errno::ELOOP)?;
            if usize::from(number) >= INODES {
                return Err(Errno::EUCLEAN);
            }
            let inode = self.inode(usize::from(number)).ok_or(Errno::EUCLEAN)?;
            let added = if inode.is_dir() {
                tree.add(path, None)
            } else {
                let contents = inode.blocks().iter().map(|data| {
                    let block = &self.home[FIRST_DATA + usize::from(*data) % DATA];
                    if block[0] == WRITTEN { block[1] } else { 0 }
                });
                tree.add(path, Some(&contents.collect::<Vec<u8>>()))
            };
            if !added {
                return Err(Errno::ELOOP);
            }
            if inode.is_dir() {
                self.read_directory(number.into(), path, tree)?;
            }
        }
        Ok(())
    }
}
