//! One mount of redoxfs.

use std::collections::BTreeMap;

use ::redoxfs::{FileSystem, Node, Transaction, TreeData, TreePtr};
use fathom_core::flags::OpenFlags;
use fathom_core::plain::{DIR_MODE, FILE_MODE};
use fathom_core::{Errno, FsPath, Slot};
use syscall::error::Result as DiskResult;

use super::{BlockDisk, NOW};
use crate::library::calls::{self, Calls, ENTRIES_MAX, Found, Renaming};
use crate::library::device::SharedDevice;
use crate::library::frame;

struct OpenFile {
    node: TreePtr<Node>,
    append: bool,
}

/// One mount.
pub(super) struct Mount {
    fs: FileSystem<BlockDisk>,
    device: SharedDevice,
    open: BTreeMap<Slot, OpenFile>,
}

fn name(path: &FsPath) -> Result<&str, Errno> {
    std::str::from_utf8(path.file_name()).map_err(|_| Errno::EINVAL)
}

impl Mount {
    pub(super) fn new(fs: FileSystem<BlockDisk>, device: SharedDevice) -> Mount {
        Mount { fs, device, open: BTreeMap::new() }
    }

    /// One transaction.
    fn tx<T>(
        &mut self,
        act: impl FnOnce(&mut Transaction<'_, BlockDisk>) -> DiskResult<T>,
    ) -> Result<T, Errno> {
        self.fs.tx(act).map_err(super::errno)
    }

    fn file(&self, slot: Slot) -> Result<&OpenFile, Errno> {
        self.open.get(&slot).ok_or(Errno::EBADF)
    }

    /// Follows a path from the root.
    fn look_up(&mut self, path: &FsPath) -> Result<TreeData<Node>, Errno> {
        let mut node = self.tx(|tx| tx.read_tree(TreePtr::root()))?;
        if path.as_bytes() == b"." {
            return Ok(node);
        }
        for part in path.as_bytes().split(|byte| *byte == b'/') {
            if !node.data().is_dir() {
                return Err(Errno::ENOTDIR);
            }
            let part = std::str::from_utf8(part).map_err(|_| Errno::EINVAL)?;
            node = self.tx(|tx| tx.find_node(node.ptr(), part))?;
        }
        Ok(node)
    }

    /// The directory that a path's last name is in.
    fn parent(&mut self, path: &FsPath) -> Result<TreePtr<Node>, Errno> {
        let parent = self.look_up(&path.parent().ok_or(Errno::EINVAL)?)?;
        if parent.data().is_dir() { Ok(parent.ptr()) } else { Err(Errno::ENOTDIR) }
    }

    fn create(&mut self, path: &FsPath, mode: u16) -> Result<TreePtr<Node>, Errno> {
        let parent = self.parent(path)?;
        let name = name(path)?;
        self.tx(|tx| tx.create_node(parent, name, mode, NOW, 0)).map(|node| node.ptr())
    }

    fn remove(&mut self, path: &FsPath, kind: u16) -> Result<u64, Errno> {
        let parent = self.parent(path)?;
        let name = name(path)?;
        self.tx(|tx| tx.remove_node(parent, name, kind)).map(|_| 0)
    }

    fn close_file(&mut self, open: &OpenFile) -> Result<u64, Errno> {
        self.tx(|tx| tx.on_close_node(open.node)).map(|()| 0)
    }

    /// Reads without a mark in the access time.
    fn read(&mut self, node: &TreeData<Node>, offset: u64, len: u64) -> Result<Vec<u8>, Errno> {
        let left = node.data().size().saturating_sub(offset);
        let mut bytes = vec![0; len.min(left).min(self.device.size_bytes() as u64) as usize];
        let count = self.tx(|tx| tx.read_node_inner(node, offset, &mut bytes))?;
        bytes.truncate(count);
        Ok(bytes)
    }
}

impl Calls for Mount {
    fn open(&mut self, slot: Slot, path: &FsPath, flags: OpenFlags) -> Result<u64, Errno> {
        if let Some(open) = self.open.remove(&slot) {
            self.close_file(&open)?;
        }
        let node = match self.look_up(path) {
            Ok(_) if flags.contains(OpenFlags::O_CREAT | OpenFlags::O_EXCL) => {
                return Err(Errno::EEXIST);
            }
            Ok(node) if node.data().is_dir() => return Err(Errno::EISDIR),
            Ok(node) => {
                if flags.contains(OpenFlags::O_TRUNC) {
                    self.tx(|tx| tx.truncate_node(node.ptr(), 0, NOW, 0))?;
                }
                node.ptr()
            }
            Err(Errno::ENOENT) if flags.contains(OpenFlags::O_CREAT) => {
                self.create(path, Node::MODE_FILE | FILE_MODE.0 as u16)?
            }
            Err(errno) => return Err(errno),
        };
        self.tx(|tx| tx.on_open_node(node))?;
        self.open.insert(slot, OpenFile { node, append: flags.contains(OpenFlags::O_APPEND) });
        Ok(0)
    }

    fn close(&mut self, slot: Slot) -> Result<u64, Errno> {
        let open = self.open.remove(&slot).ok_or(Errno::EBADF)?;
        self.close_file(&open)
    }

    fn pread(&mut self, slot: Slot, offset: i64, len: u64) -> Result<Vec<u8>, Errno> {
        let node = self.file(slot)?.node;
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let node = self.tx(|tx| tx.read_tree(node))?;
        self.read(&node, offset, len)
    }

    fn pwrite(&mut self, slot: Slot, offset: i64, data: &[u8]) -> Result<u64, Errno> {
        let &OpenFile { node, append } = self.file(slot)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        if data.is_empty() {
            return Ok(0); // As the kernel does, without a word to the file system.
        }
        let count = self.tx(|tx| {
            let offset = if append { tx.read_tree(node)?.data().size() } else { offset };
            tx.write_node(node, offset, data, NOW, 0)
        })?;
        Ok(count as u64)
    }

    fn truncate(&mut self, slot: Slot, len: i64) -> Result<u64, Errno> {
        let node = self.file(slot)?.node;
        let len = u64::try_from(len).map_err(|_| Errno::EINVAL)?;
        self.tx(|tx| tx.truncate_node(node, len, NOW, 0)).map(|()| 0)
    }

    fn mkdir(&mut self, path: &FsPath) -> Result<u64, Errno> {
        self.create(path, Node::MODE_DIR | DIR_MODE.0 as u16).map(|_| 0)
    }

    fn rmdir(&mut self, path: &FsPath) -> Result<u64, Errno> {
        self.remove(path, Node::MODE_DIR)
    }

    fn unlink(&mut self, path: &FsPath) -> Result<u64, Errno> {
        self.remove(path, Node::MODE_FILE)
    }

    fn rename(&mut self, from: &FsPath, to: &FsPath) -> Result<u64, Errno> {
        if let Renaming::Nothing = calls::check_rename(self, from, to)? {
            return Ok(0);
        }
        let (old, new) = (self.parent(from)?, self.parent(to)?);
        let (old_name, new_name) = (name(from)?, name(to)?);
        self.tx(|tx| tx.rename_node(old, old_name, new, new_name)).map(|()| 0)
    }

    fn fsync(&mut self, slot: Slot) -> Result<u64, Errno> {
        self.file(slot).map(|_| 0)
    }

    fn sync(&mut self) -> Result<u64, Errno> {
        Ok(0)
    }

    fn is_dir(&mut self, path: &FsPath) -> Result<bool, Errno> {
        self.look_up(path).map(|node| node.data().is_dir())
    }

    fn list(&mut self, dir: &FsPath) -> Result<Vec<Found>, Errno> {
        let node = self.look_up(dir)?.ptr();
        let mut children = Vec::new();
        self.tx(|tx| tx.child_nodes(node, &mut children))?;
        if children.len() > ENTRIES_MAX {
            return Err(Errno::ELOOP);
        }
        let found = children.iter().map(|entry| {
            let node = self.tx(|tx| tx.read_tree(entry.node_ptr()))?;
            let name = entry.name().ok_or(Errno::EUCLEAN)?.as_bytes().to_vec();
            Ok(Found { name, is_dir: node.data().is_dir() })
        });
        found.collect()
    }

    fn contents(&mut self, path: &FsPath) -> Result<Vec<u8>, (&'static str, Errno)> {
        let node = self.look_up(path).map_err(|errno| ("open", errno))?;
        let size = node.data().size();
        let bytes = self.read(&node, 0, size).map_err(|errno| ("read", errno))?;
        if bytes.len() as u64 == size { Ok(bytes) } else { Err(("read", Errno::EIO)) }
    }
}

impl frame::Mount for Mount {
    fn device(&self) -> &SharedDevice {
        &self.device
    }

    fn unmount(mut self) -> Result<u64, Errno> {
        let mut result = Ok(0);
        while let Some((_, open)) = self.open.pop_first() {
            result = result.and(self.close_file(&open));
        }
        result.and(self.fs.cleanup().map(|()| 0).map_err(super::errno))
    }
}
