//! Extended attributes: in the inode, in a block.

use super::{Inode, Volume};

/// The magic number before attributes.
pub(crate) const MAGIC: u32 = 0xea02_0000;
/// Attributes in one place at most: damaged lists end.
const ENTRIES_MAX: usize = 256;

/// An attribute.
#[derive(Clone, Debug)]
pub(crate) struct XattrEntry {
    /// The first byte of the entry.
    pub(crate) at: u64,
    pub(crate) index: u8,
    pub(crate) name: Vec<u8>,
    /// The inode that holds the value, or 0.
    pub(crate) value_inode: u64,
    pub(crate) value_at: u64,
    pub(crate) value_bytes: u64,
}

/// The place of the attributes in an inode: the magic number, and the end.
pub(crate) fn in_inode(volume: &Volume<'_>, inode: &Inode) -> Option<(u64, u64)> {
    if volume.inode_bytes <= 128 {
        return None;
    }
    let at = inode.at + 128 + u64::from(volume.u16(inode.at + 128));
    let end = inode.at + volume.inode_bytes;
    (at + 4 < end && volume.u32(at) == MAGIC).then_some((at, end))
}

/// The block with attributes of an inode.
pub(crate) fn block_of(volume: &Volume<'_>, inode: &Inode) -> Option<u64> {
    let block = u64::from(volume.u32(inode.at + 104)) | u64::from(volume.u16(inode.at + 118)) << 32;
    let valid = block != 0 && block < volume.blocks;
    (valid && volume.u32(block * volume.block_bytes) == MAGIC).then_some(block)
}

/// The entries from a place to an end; offsets of values count from `values`.
pub(crate) fn entries(volume: &Volume<'_>, mut at: u64, end: u64, values: u64) -> Vec<XattrEntry> {
    let mut out = Vec::new();
    while at + 16 <= end && volume.u32(at) != 0 && out.len() < ENTRIES_MAX {
        let head = volume.u16(at);
        let name_length = u64::from(head & 0xff);
        out.push(XattrEntry {
            at,
            index: (head >> 8) as u8,
            name: volume.bytes(at + 16, name_length).to_vec(),
            value_inode: u64::from(volume.u32(at + 4)),
            value_at: values + u64::from(volume.u16(at + 2)),
            value_bytes: u64::from(volume.u32(at + 8)),
        });
        at += (16 + name_length).next_multiple_of(4);
    }
    out
}

/// All attributes of an inode.
pub(crate) fn all(volume: &Volume<'_>, inode: &Inode) -> Vec<XattrEntry> {
    let mut out = Vec::new();
    if let Some((at, end)) = in_inode(volume, inode) {
        out.extend(entries(volume, at + 4, end, at + 4));
    }
    if let Some(block) = block_of(volume, inode) {
        let at = block * volume.block_bytes;
        out.extend(entries(volume, at + 32, at + volume.block_bytes, at));
    }
    out
}

/// Where the data of a small file lies that does not fit into its 60 bytes: `system.data`.
pub(crate) fn inline_data(volume: &Volume<'_>, inode: &Inode) -> Option<(u64, u64)> {
    let (at, end) = in_inode(volume, inode)?;
    let entries = entries(volume, at + 4, end, at + 4);
    let data = entries.into_iter().find(|entry| entry.index == 7 && entry.name == b"data")?;
    (data.value_bytes > 0 && data.value_at + data.value_bytes <= end)
        .then_some((data.value_at, data.value_bytes))
}
