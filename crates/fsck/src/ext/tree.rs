//! What a disk holds: every path with all that a user of the file system would see.

use std::collections::{BTreeMap, HashMap};

use twox_hash::XxHash3_128;

use super::{BlockKind, Inode, ROOT, Volume, flag, xattr};
use crate::objects::{Object, Objects};

/// Directories that are followed at most: loops end here.
const OBJECTS_MAX: usize = 100_000;

/// Lists every object that can be reached from the root.
///
/// # Errors
/// If there is no superblock or no root directory.
pub(crate) fn objects(disk: &[u8]) -> Result<Objects, String> {
    let volume = Volume::open(disk)?;
    let root = volume.inode(ROOT).filter(Inode::is_dir).ok_or("there is no root directory")?;
    let mut objects = BTreeMap::new();
    let mut summed = HashMap::new();
    objects.insert("/".to_owned(), object(&volume, &root, &mut summed));
    let mut todo = vec![(String::new(), root, vec![ROOT])];
    while let Some((path, directory, above)) = todo.pop() {
        for entry in volume.names(&directory) {
            let path = format!("{path}/{}", entry.text());
            let Some(inode) = volume.inode(entry.inode) else {
                objects.insert(path, Object::broken("its inode does not exist"));
                continue;
            };
            objects.insert(path.clone(), object(&volume, &inode, &mut summed));
            if inode.is_dir() && !above.contains(&inode.number) && objects.len() < OBJECTS_MAX {
                let above = above.iter().copied().chain([inode.number]).collect();
                todo.push((path, inode, above));
            }
        }
    }
    Ok(Objects { objects })
}

fn object(volume: &Volume<'_>, inode: &Inode, summed: &mut HashMap<u64, u128>) -> Object {
    let kind = match inode.file_type() {
        0x8000 => "file",
        0x4000 => "directory",
        0xa000 => "symlink",
        0x1000 => "fifo",
        0x2000 => "character device",
        0x6000 => "block device",
        0xc000 => "socket",
        _ => "nothing that a mode can say",
    };
    // An inode with several names is read once.
    let content = match summed.get(&inode.number) {
        Some(sum) => *sum,
        None => {
            let sum = sum_of(volume, inode);
            summed.insert(inode.number, sum);
            sum
        }
    };
    let mut xattrs: Vec<(String, u128)> = Vec::new();
    for entry in xattr::all(volume, inode) {
        if (entry.index, entry.name.as_slice()) == (7, b"data".as_slice()) {
            continue;
        }
        let name = format!("{}.{}", entry.index, String::from_utf8_lossy(&entry.name));
        let value = match volume.inode(entry.value_inode) {
            Some(holder) if entry.value_inode != 0 => sum_of(volume, &holder),
            _ => XxHash3_128::oneshot(volume.bytes(entry.value_at, entry.value_bytes.min(65536))),
        };
        xattrs.push((name, value));
    }
    xattrs.sort();
    Object {
        kind: kind.to_owned(),
        inode: inode.number,
        permissions: inode.mode & 0o7777,
        owner: (owner(volume, inode, 2, 120), owner(volume, inode, 24, 122)),
        // That of a directory follows from the directories in it.
        links: if inode.is_dir() { 0 } else { u32::from(inode.links) },
        size: if inode.is_dir() { 0 } else { inode.size },
        content,
        xattrs,
    }
}

fn owner(volume: &Volume<'_>, inode: &Inode, low: u64, high: u64) -> u32 {
    u32::from(volume.u16(inode.at + low)) | u32::from(volume.u16(inode.at + high)) << 16
}

/// A sum of what a file holds: its bytes, its target, its device number.
fn sum_of(volume: &Volume<'_>, inode: &Inode) -> u128 {
    let mut bytes = Vec::new();
    let size = inode.size.min(1 << 40);
    if inode.has(flag::INLINE_DATA) && !inode.is_dir() {
        bytes.extend(volume.bytes(inode.at + 40, size.min(60)));
        if let Some((at, length)) = xattr::inline_data(volume, inode) {
            bytes.extend(volume.bytes(at, length));
        }
        return XxHash3_128::oneshot(&bytes);
    }
    match inode.file_type() {
        0xa000 if size < 60 => bytes.extend(volume.bytes(inode.at + 40, size)),
        0x2000 | 0x6000 => bytes.extend(volume.bytes(inode.at + 40, 8)),
        0x8000 | 0xa000 => {
            let mut blocks = volume.blocks_of(inode);
            blocks.retain(|block| block.kind == BlockKind::Data && !block.unwritten);
            blocks.sort_by_key(|block| block.logical);
            for block in blocks {
                let from = block.logical.saturating_mul(volume.block_bytes);
                let length = size.saturating_sub(from).min(volume.block_bytes) as usize;
                let data = volume.block(block.physical);
                let data = &data[..length.min(data.len())];
                // A hole and a block of zeros read the same.
                if data.iter().any(|byte| *byte != 0) {
                    bytes.extend(block.logical.to_le_bytes());
                    bytes.extend(data);
                }
            }
        }
        _ => {}
    }
    XxHash3_128::oneshot(&bytes)
}
