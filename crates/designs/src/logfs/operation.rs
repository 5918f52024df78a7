//! Operations on files and directories.

use fathom_block::Recorder;
use fathom_core::Errno;

use super::Logfs;
use super::layout::{
    Block, DIRECT, Dentries, FOUR, INDEX, INDIRECT, Kind, NONE, PLACES, ROOT, content_of,
    data_block, dentries_of, dentry_block, main_block,
};
use super::memory::{Log, Memory};
use crate::volume::{FILE_BLOCKS_MAX, Path, Tree};

/// The address of the block at a place of a file or a directory.
pub(super) fn address(memory: &Memory, inode: u8, place: usize) -> u8 {
    memory.slot(inode, place).map_or(NONE, |(nid, entry)| memory.node(nid).entries[entry])
}

/// Reads the names in one block of a directory.
pub(super) fn entries(
    memory: &Memory,
    disk: &Recorder,
    directory: u8,
    place: usize,
) -> Result<Dentries, Errno> {
    match address(memory, directory, place) {
        NONE => Err(Errno::EUCLEAN),
        address => dentries_of(&memory.read(disk, main_block(address))).ok_or(Errno::EUCLEAN),
    }
}

/// Finds a name in a directory: block, entry, node.
fn lookup(
    memory: &Memory,
    disk: &Recorder,
    directory: u8,
    name: u8,
) -> Result<(usize, usize, u8), Errno> {
    if memory.node(directory).kind != Kind::Dir {
        return Err(Errno::ENOTDIR);
    }
    for place in 0..memory.node(directory).len.into() {
        let entries = entries(memory, disk, directory, place)?;
        if let Some(entry) = entries.iter().position(|(known, _)| *known == name) {
            return Ok((place, entry, entries[entry].1));
        }
    }
    Err(Errno::ENOENT)
}

/// Finds the node of a path.
pub(super) fn find(memory: &Memory, disk: &Recorder, path: Path) -> Result<u8, Errno> {
    path.names().iter().try_fold(ROOT, |nid, name| Ok(lookup(memory, disk, nid, *name)?.2))
}

impl Logfs {
    /// Writes a block of a file or a directory to the end of its log.
    pub(super) fn write_block(
        &self,
        memory: &mut Memory,
        disk: &mut Recorder,
        log: Log,
        (inode, place): (u8, usize),
        content: Block,
    ) -> Result<(), Errno> {
        let (nid, entry) = memory.slot_made(inode, place).ok_or(Errno::ENOSPC)?;
        let new = self.append(memory, disk, log, (nid, entry as u8), |_| content);
        let old = std::mem::replace(&mut memory.change(nid).entries[entry], new);
        self.invalidate(memory, old);
        if usize::from(memory.node(inode).len) <= place {
            memory.change(inode).len = place as u8 + 1;
        }
        Ok(())
    }

    pub(super) fn set_entry(
        &self,
        memory: &mut Memory,
        disk: &mut Recorder,
        directory: u8,
        (place, entry): (usize, usize),
        value: (u8, u8),
    ) -> Result<(), Errno> {
        let is_new = place == usize::from(memory.node(directory).len);
        let mut entries = match is_new {
            true => [(0, 0); FOUR],
            false => entries(memory, disk, directory, place)?,
        };
        entries[entry] = value;
        let content = dentry_block(&entries);
        self.write_block(memory, disk, Log::Dentries, (directory, place), content)
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
        let (place, entry) = match lookup(memory, disk, directory, 0) {
            Ok((place, entry, _)) => (place, entry),
            Err(Errno::ENOENT) if usize::from(memory.node(directory).len) < PLACES => {
                (memory.node(directory).len.into(), 0)
            }
            Err(Errno::ENOENT) => return Err(Errno::ENOSPC),
            Err(error) => return Err(error),
        };
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
        let nid = memory.allocate_node(kind, None).ok_or(Errno::ENOSPC)?;
        if !is_dir && self.menu.opens {
            memory.open |= 1 << nid;
        }
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
        for (place, content) in (usize::from(place)..).zip(contents) {
            self.write_block(memory, disk, Log::Data, (nid, place), data_block(*content))?;
        }
        Ok(())
    }

    /// Frees the blocks of a file or a directory from a place on, and the nodes that are left without
    /// any.
    pub(super) fn cut(&self, memory: &mut Memory, inode: u8, blocks: usize) {
        for place in blocks..memory.node(inode).len.into() {
            if let Some((nid, entry)) = memory.slot(inode, place) {
                let old = std::mem::replace(&mut memory.change(nid).entries[entry], NONE);
                self.invalidate(memory, old);
            }
        }
        if blocks <= DIRECT {
            self.free_child(memory, inode, INDEX);
        }
        let indirect = memory.node(inode).entries[INDIRECT];
        if indirect != NONE {
            let indexed = blocks.saturating_sub(DIRECT + FOUR).div_ceil(FOUR);
            (indexed..FOUR).for_each(|entry| self.free_child(memory, indirect, entry));
        }
        if blocks <= DIRECT + FOUR {
            self.free_child(memory, inode, INDIRECT);
        }
        let node = memory.change(inode);
        node.len = node.len.min(blocks as u8);
    }

    fn free_child(&self, memory: &mut Memory, nid: u8, entry: usize) {
        if memory.node(nid).entries[entry] != NONE {
            let child = std::mem::replace(&mut memory.change(nid).entries[entry], NONE);
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
        self.cut(memory, nid, 0);
        self.free_node(memory, nid);
        Ok(())
    }
}

/// Reads the whole tree.
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
    for place in 0..memory.node(directory).len.into() {
        for (name, nid) in entries(memory, disk, directory, place)? {
            if name == 0 {
                continue;
            }
            let path = path.join(name).ok_or(Errno::ELOOP)?;
            let node = *memory.nodes.get(usize::from(nid)).ok_or(Errno::EUCLEAN)?;
            let added = match node.kind {
                Kind::File => {
                    let mut contents = [0; FILE_BLOCKS_MAX];
                    let len = usize::from(node.len).min(contents.len());
                    for (place, content) in contents[..len].iter_mut().enumerate() {
                        let address = address(memory, nid, place);
                        if address == NONE {
                            return Err(Errno::EUCLEAN);
                        }
                        *content = content_of(&memory.read(disk, main_block(address)));
                    }
                    tree.add(path, Some(&contents[..len]))
                }
                Kind::Dir => {
                    tree.add(path, None)
                        && read_directory(memory, disk, nid, path, tree).map(|()| true)?
                }
                Kind::Free | Kind::Index | Kind::Indirect => return Err(Errno::EUCLEAN),
            };
            if !added {
                return Err(Errno::ELOOP);
            }
        }
    }
    Ok(())
}
