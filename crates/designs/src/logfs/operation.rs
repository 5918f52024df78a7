//! Operations on files and directories.

use fathom_block::Recorder;
use fathom_core::Errno;

use super::Logfs;
use super::layout::{
    Dentries, FOUR, Kind, NODES, NONE, ROOT, content_of, data_block, dentries_of, dentry_block,
    main_block, read as read_block,
};
use super::memory::{Log, Memory};
use crate::volume::{Path, Tree};

/// The entries in one block of a directory.
pub(super) fn entries(
    memory: &Memory,
    disk: &Recorder,
    directory: u8,
    place: usize,
) -> Result<Dentries, Errno> {
    match memory.node(directory).blocks[place] {
        NONE => Ok([(0, 0); FOUR]),
        address => dentries_of(&read_block(disk, main_block(address))).ok_or(Errno::EUCLEAN),
    }
}

/// Where a name is in a directory: block, entry, node.
fn lookup(
    memory: &Memory,
    disk: &Recorder,
    directory: u8,
    name: u8,
) -> Result<(usize, usize, u8), Errno> {
    if memory.node(directory).kind != Kind::Dir {
        return Err(Errno::ENOTDIR);
    }
    for place in 0..FOUR {
        let entries = entries(memory, disk, directory, place)?;
        if let Some(entry) = entries.iter().position(|(known, _)| *known == name) {
            return Ok((place, entry, entries[entry].1));
        }
    }
    Err(Errno::ENOENT)
}

/// The node of a path.
pub(super) fn find(memory: &Memory, disk: &Recorder, path: Path) -> Result<u8, Errno> {
    path.names().iter().try_fold(ROOT, |nid, name| Ok(lookup(memory, disk, nid, *name)?.2))
}

/// The block of a file at a place: the node that names it, and where.
fn slot(memory: &Memory, nid: u8, place: usize) -> (u8, usize) {
    if place < FOUR { (nid, place) } else { (memory.node(nid).child, place - FOUR) }
}

impl Logfs {
    fn set_entry(
        &self,
        memory: &mut Memory,
        disk: &mut Recorder,
        directory: u8,
        (place, entry): (usize, usize),
        value: (u8, u8),
    ) -> Result<(), Errno> {
        let mut entries = entries(memory, disk, directory, place)?;
        entries[entry] = value;
        let owner = (directory, place as u8);
        let new = self.append(memory, disk, Log::Dentries, owner, |_| dentry_block(&entries));
        let old = std::mem::replace(&mut memory.change(directory).blocks[place], new);
        self.invalidate(memory, old);
        Ok(())
    }

    pub(super) fn link(
        &self,
        memory: &mut Memory,
        disk: &mut Recorder,
        path: Path,
        nid: u8,
    ) -> Result<(), Errno> {
        let (directory, name) = path.split().ok_or(Errno::EEXIST)?;
        let directory = find(memory, disk, directory)?;
        let (place, entry, _) =
            lookup(memory, disk, directory, 0).map_err(|error| match error {
                Errno::ENOENT => Errno::ENOSPC,
                other => other,
            })?;
        self.set_entry(memory, disk, directory, (place, entry), (name, nid))
    }

    pub(super) fn unlink(
        &self,
        memory: &mut Memory,
        disk: &mut Recorder,
        path: Path,
    ) -> Result<(), Errno> {
        let (directory, name) = path.split().ok_or(Errno::EBUSY)?;
        let directory = find(memory, disk, directory)?;
        let (place, entry, _) = lookup(memory, disk, directory, name)?;
        self.set_entry(memory, disk, directory, (place, entry), (0, 0))
    }

    pub(super) fn create_node(
        &self,
        memory: &mut Memory,
        disk: &mut Recorder,
        path: Path,
        is_dir: bool,
    ) -> Result<(), Errno> {
        let kind = if is_dir { Kind::Dir } else { Kind::File };
        let nid = memory.allocate_node(kind).ok_or(Errno::ENOSPC)?;
        self.link(memory, disk, path, nid)
    }

    pub(super) fn write_file(
        &self,
        memory: &mut Memory,
        disk: &mut Recorder,
        path: Path,
        place: u8,
        contents: &[u8],
    ) -> Result<(), Errno> {
        let nid = find(memory, disk, path)?;
        let end = usize::from(place) + contents.len();
        if end > FOUR && memory.node(nid).child == 0 {
            memory.change(nid).child = memory.allocate_node(Kind::Index).ok_or(Errno::ENOSPC)?;
        }
        for (place, content) in (usize::from(place)..).zip(contents) {
            let (node, slot) = slot(memory, nid, place);
            let owner = (node, slot as u8);
            let new = self.append(memory, disk, Log::Data, owner, |_| data_block(*content));
            let old = std::mem::replace(&mut memory.change(node).blocks[slot], new);
            self.invalidate(memory, old);
        }
        let node = memory.change(nid);
        node.len = node.len.max(end as u8);
        Ok(())
    }

    /// Frees all blocks of a node, and its index node.
    pub(super) fn empty(&self, memory: &mut Memory, nid: u8) {
        let child = std::mem::take(&mut memory.change(nid).child);
        memory.change(nid).len = 0;
        for nid in [nid, child] {
            if nid != 0 {
                let blocks = std::mem::replace(&mut memory.change(nid).blocks, [NONE; FOUR]);
                blocks.into_iter().for_each(|block| self.invalidate(memory, block));
            }
        }
        if child != 0 {
            self.free_node(memory, child);
        }
    }

    /// Frees the blocks of a file from a place on, and its index node if that has none left.
    pub(super) fn cut(&self, memory: &mut Memory, nid: u8, blocks: u8) {
        if blocks == 0 {
            return self.empty(memory, nid);
        }
        for place in usize::from(blocks)..usize::from(memory.node(nid).len) {
            let (node, slot) = slot(memory, nid, place);
            let old = std::mem::replace(&mut memory.change(node).blocks[slot], NONE);
            self.invalidate(memory, old);
        }
        let node = memory.change(nid);
        node.len = node.len.min(blocks);
        if usize::from(blocks) <= FOUR && node.child != 0 {
            let child = std::mem::take(&mut node.child);
            self.free_node(memory, child);
        }
    }

    pub(super) fn remove_node(
        &self,
        memory: &mut Memory,
        disk: &mut Recorder,
        path: Path,
    ) -> Result<(), Errno> {
        let nid = find(memory, disk, path)?;
        self.unlink(memory, disk, path)?;
        self.empty(memory, nid);
        self.free_node(memory, nid);
        Ok(())
    }
}

/// Reads everything.
pub(super) fn read(memory: &Memory, disk: &Recorder) -> Result<Tree, Errno> {
    let mut tree = Tree::default();
    read_directory(memory, disk, ROOT, Path::ROOT, &mut tree)?;
    Ok(tree)
}

fn read_directory(
    memory: &Memory,
    disk: &Recorder,
    directory: u8,
    path: Path,
    tree: &mut Tree,
) -> Result<(), Errno> {
    for place in 0..FOUR {
        for (name, nid) in entries(memory, disk, directory, place)? {
            if name == 0 {
                continue;
            }
            let path = path.join(name).ok_or(Errno::ELOOP)?;
            let node = *memory.nodes.get(usize::from(nid)).ok_or(Errno::EUCLEAN)?;
            let added = match node.kind {
                Kind::File => {
                    let mut contents = [0; 2 * FOUR];
                    let len = usize::from(node.len).min(contents.len());
                    for (place, content) in contents[..len].iter_mut().enumerate() {
                        let (nid, slot) = slot(memory, nid, place);
                        let address = memory.nodes[usize::from(nid) % NODES].blocks[slot];
                        *content = content_of(&read_block(disk, main_block(address)));
                    }
                    tree.add(path, Some(&contents[..len]))
                }
                Kind::Dir => {
                    tree.add(path, None)
                        && read_directory(memory, disk, nid, path, tree).map(|()| true)?
                }
                Kind::Free | Kind::Index => return Err(Errno::EUCLEAN),
            };
            if !added {
                return Err(Errno::ELOOP);
            }
        }
    }
    Ok(())
}
