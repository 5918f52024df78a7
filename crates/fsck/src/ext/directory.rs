//! Directories: the entries of blocks, with their places.

use super::{BlockKind, Inode, Volume, flag};

/// An entry of a directory.
#[derive(Clone, Debug)]
pub(crate) struct DirEntry {
    /// The first byte of the entry on the disk.
    pub(crate) at: u64,
    pub(crate) inode: u64,
    pub(crate) length: u64,
    pub(crate) name: Vec<u8>,
}

impl DirEntry {
    /// The name as people read it.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.name).into_owned()
    }
}

/// The entries of a block of a directory, those without an inode too.
pub(crate) fn entries_of_block(volume: &Volume<'_>, at: u64, bytes: u64) -> Vec<DirEntry> {
    let mut out = Vec::new();
    let mut offset = 0;
    while offset + 8 <= bytes {
        let entry = at + offset;
        let length = u64::from(volume.u16(entry + 4));
        if length < 8 || offset + length > bytes || length % 4 != 0 {
            break;
        }
        let name_length = u64::from(volume.u16(entry + 6) & 0xff).min(length - 8);
        let name = volume.bytes(entry + 8, name_length).to_vec();
        out.push(DirEntry { at: entry, inode: u64::from(volume.u32(entry)), length, name });
        offset += length;
    }
    out
}

impl Volume<'_> {
    /// The names of a directory, without `.` and `..` and the tails of checksums.
    pub(crate) fn names(&self, directory: &Inode) -> Vec<DirEntry> {
        let mut out = Vec::new();
        if directory.has(flag::INLINE_DATA) {
            // The first four bytes are the parent; what does not fit is in an extended attribute.
            out.extend(entries_of_block(self, directory.at + 44, 56));
            if let Some((at, bytes)) = super::xattr::inline_data(self, directory) {
                out.extend(entries_of_block(self, at, bytes));
            }
        }
        for block in self.blocks_of(directory) {
            if block.kind == BlockKind::Data && block.physical < self.blocks {
                let at = block.physical * self.block_bytes;
                out.extend(entries_of_block(self, at, self.block_bytes));
            }
        }
        out.retain(|entry| entry.inode != 0 && entry.name != b"." && entry.name != b"..");
        out.retain(|entry| !entry.name.is_empty());
        out
    }
}
