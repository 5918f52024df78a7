//! One mount of rsext4: the VFS that the crate expects above it.

use std::collections::BTreeMap;

use ::rsext4::{
    DirectoryCursor, DirectoryEntryType, Ext4, Ext4Error, Ext4ErrorKind, Ext4Result, FileName,
    FilePermissions, InodeInfo, InodeNumber, MountedServices, MutationContext, NoopObserver,
    RenameOptions, UnlinkOutcome,
};
use fathom_core::flags::OpenFlags;
use fathom_core::plain::{DIR_MODE, FILE_MODE};
use fathom_core::{Errno, FsPath, Slot};

use super::device::Disk;
use crate::library::calls::{self, Calls, ENTRIES_MAX, Found, Renaming};
use crate::library::device::SharedDevice;
use crate::library::frame;

type Fs = Ext4<Disk, MountedServices<(), NoopObserver>>;

/// mkfs.ext4 makes it, nobody asked for it.
const LOST_AND_FOUND: &[u8] = b"lost+found";

/// Everything is made by root.
const ROOT: MutationContext = MutationContext::new(0, 0, 0, 0);

struct OpenFile {
    inode: InodeNumber,
    append: bool,
}

/// One mount.
pub(super) struct Mount {
    fs: Fs,
    device: SharedDevice,
    open: BTreeMap<Slot, OpenFile>,
    /// Unlinked while open: reaped at the last close.
    unlinked: Vec<InodeNumber>,
}

pub(super) fn errno(error: Ext4Error) -> Errno {
    use Ext4ErrorKind as Kind;
    match error.kind() {
        Kind::NotFound => Errno::ENOENT,
        Kind::AlreadyExists => Errno::EEXIST,
        Kind::NotDirectory => Errno::ENOTDIR,
        Kind::IsDirectory => Errno::EISDIR,
        Kind::NotEmpty => Errno::ENOTEMPTY,
        Kind::NoSpace => Errno::ENOSPC,
        Kind::TooManyLinks => Errno::EMLINK,
        Kind::FileTooLarge => Errno::EFBIG,
        Kind::InvalidInput | Kind::BadSuperblock | Kind::InvalidMagic => Errno::EINVAL,
        Kind::Busy => Errno::EBUSY,
        Kind::ReadOnly | Kind::JournalAborted => Errno::EROFS,
        Kind::Unsupported | Kind::UnsupportedFeature | Kind::UnsupportedCapability => {
            Errno::EOPNOTSUPP
        }
        Kind::Corrupted | Kind::ChecksumMismatch => Errno::EUCLEAN,
        _ => Errno::EIO,
    }
}

fn asked<T>(result: Ext4Result<T>) -> Result<T, Errno> {
    result.map_err(errno)
}

fn name(path: &FsPath) -> Result<FileName<'_>, Errno> {
    asked(FileName::new(path.file_name()))
}

impl Mount {
    pub(super) fn new(fs: Fs, device: SharedDevice) -> Mount {
        Mount { fs, device, open: BTreeMap::new(), unlinked: Vec::new() }
    }

    fn file(&self, slot: Slot) -> Result<&OpenFile, Errno> {
        self.open.get(&slot).ok_or(Errno::EBADF)
    }

    /// Follows a path from the root.
    fn look_up(&mut self, path: &FsPath) -> Result<InodeInfo, Errno> {
        let mut inode = asked(self.fs.inode(self.fs.root_inode()))?;
        if path.as_bytes() == b"." {
            return Ok(inode);
        }
        for part in path.as_bytes().split(|byte| *byte == b'/') {
            if !inode.is_directory() {
                return Err(Errno::ENOTDIR);
            }
            let child = asked(self.fs.lookup_child(inode.number, asked(FileName::new(part))?))?;
            inode = child.ok_or(Errno::ENOENT)?;
        }
        Ok(inode)
    }

    /// The directory that a path's last name is in.
    fn parent(&mut self, path: &FsPath) -> Result<InodeNumber, Errno> {
        let parent = self.look_up(&path.parent().ok_or(Errno::EINVAL)?)?;
        if parent.is_directory() { Ok(parent.number) } else { Err(Errno::ENOTDIR) }
    }

    fn is_open(&self, inode: InodeNumber) -> bool {
        self.open.values().any(|open| open.inode == inode)
    }

    /// A name is gone: with the last one goes the inode, unless it is open.
    fn unlinked(&mut self, outcome: UnlinkOutcome) -> Result<u64, Errno> {
        if outcome.requires_reap() {
            if self.is_open(outcome.inode) {
                self.unlinked.push(outcome.inode);
            } else {
                asked(self.fs.reap_unlinked_inode(outcome.inode))?;
            }
        }
        Ok(0)
    }

    fn close_file(&mut self, open: OpenFile) -> Result<u64, Errno> {
        let last = !self.is_open(open.inode);
        match self.unlinked.iter().position(|inode| *inode == open.inode) {
            Some(at) if last => {
                self.unlinked.swap_remove(at);
                asked(self.fs.reap_unlinked_inode(open.inode)).map(|()| 0)
            }
            _ => Ok(0),
        }
    }

    fn read(&mut self, inode: InodeNumber, offset: u64, len: u64) -> Result<Vec<u8>, Errno> {
        let size = asked(self.fs.inode(inode))?.size;
        let most = self.device.size_bytes() as u64;
        let mut bytes = vec![0; len.min(size.saturating_sub(offset)).min(most) as usize];
        let count = asked(self.fs.read_inode(inode, offset, &mut bytes))?;
        bytes.truncate(count);
        Ok(bytes)
    }
}

impl Calls for Mount {
    fn open(&mut self, slot: Slot, path: &FsPath, flags: OpenFlags) -> Result<u64, Errno> {
        if let Some(open) = self.open.remove(&slot) {
            self.close_file(open)?;
        }
        let inode = match self.look_up(path) {
            Ok(_) if flags.contains(OpenFlags::O_CREAT | OpenFlags::O_EXCL) => {
                return Err(Errno::EEXIST);
            }
            Ok(inode) if inode.is_directory() => return Err(Errno::EISDIR),
            Ok(inode) => {
                if flags.contains(OpenFlags::O_TRUNC) {
                    asked(self.fs.truncate_inode(inode.number, 0))?;
                }
                inode
            }
            Err(Errno::ENOENT) if flags.contains(OpenFlags::O_CREAT) => {
                let parent = self.parent(path)?;
                let mode = asked(FilePermissions::new(FILE_MODE.0 as u16))?;
                asked(self.fs.create_regular_file(ROOT, parent, name(path)?, mode))?
            }
            Err(errno) => return Err(errno),
        };
        let append = flags.contains(OpenFlags::O_APPEND);
        self.open.insert(slot, OpenFile { inode: inode.number, append });
        Ok(0)
    }

    fn close(&mut self, slot: Slot) -> Result<u64, Errno> {
        let open = self.open.remove(&slot).ok_or(Errno::EBADF)?;
        self.close_file(open)
    }

    fn pread(&mut self, slot: Slot, offset: i64, len: u64) -> Result<Vec<u8>, Errno> {
        let inode = self.file(slot)?.inode;
        self.read(inode, u64::try_from(offset).map_err(|_| Errno::EINVAL)?, len)
    }

    fn pwrite(&mut self, slot: Slot, offset: i64, data: &[u8]) -> Result<u64, Errno> {
        let &OpenFile { inode, append } = self.file(slot)?;
        let mut offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        if append {
            offset = asked(self.fs.inode(inode))?.size;
        }
        asked(self.fs.write_inode(inode, offset, data))?;
        Ok(data.len() as u64)
    }

    fn truncate(&mut self, slot: Slot, len: i64) -> Result<u64, Errno> {
        let inode = self.file(slot)?.inode;
        let len = u64::try_from(len).map_err(|_| Errno::EINVAL)?;
        asked(self.fs.truncate_inode(inode, len)).map(|()| 0)
    }

    fn mkdir(&mut self, path: &FsPath) -> Result<u64, Errno> {
        let parent = self.parent(path)?;
        let mode = asked(FilePermissions::new(DIR_MODE.0 as u16))?;
        asked(self.fs.create_directory(ROOT, parent, name(path)?, mode)).map(|_| 0)
    }

    fn rmdir(&mut self, path: &FsPath) -> Result<u64, Errno> {
        if !self.is_dir(path)? {
            return Err(Errno::ENOTDIR);
        }
        let parent = self.parent(path)?;
        let outcome = asked(self.fs.remove_empty_directory(parent, name(path)?))?;
        self.unlinked(outcome)
    }

    fn unlink(&mut self, path: &FsPath) -> Result<u64, Errno> {
        if self.is_dir(path)? {
            return Err(Errno::EISDIR);
        }
        let parent = self.parent(path)?;
        let outcome = asked(self.fs.unlink(parent, name(path)?))?;
        self.unlinked(outcome)
    }

    fn rename(&mut self, from: &FsPath, to: &FsPath) -> Result<u64, Errno> {
        if let Renaming::Nothing = calls::check_rename(self, from, to)? {
            return Ok(0);
        }
        let (old, new) = (self.parent(from)?, self.parent(to)?);
        let (old_name, new_name) = (name(from)?, name(to)?);
        let outcome = asked(self.fs.rename(old, old_name, new, new_name, RenameOptions::REPLACE))?;
        outcome.replaced.map_or(Ok(0), |replaced| self.unlinked(replaced))
    }

    fn fsync(&mut self, slot: Slot) -> Result<u64, Errno> {
        // The crate has no fsync of one file.
        self.file(slot)?;
        self.sync()
    }

    fn sync(&mut self) -> Result<u64, Errno> {
        asked(self.fs.sync()).map(|()| 0)
    }

    fn is_dir(&mut self, path: &FsPath) -> Result<bool, Errno> {
        self.look_up(path).map(|inode| inode.is_directory())
    }

    fn list(&mut self, dir: &FsPath) -> Result<Vec<Found>, Errno> {
        let inode = self.look_up(dir)?.number;
        let entries = asked(self.fs.read_directory(inode, DirectoryCursor::Start, ENTRIES_MAX))?;
        let is_root = dir.as_bytes() == b".";
        let hidden =
            |name: &[u8]| name == b"." || name == b".." || (is_root && name == LOST_AND_FOUND);
        let shown = entries.into_iter().filter(|entry| !hidden(&entry.name));
        let found = shown.map(|entry| Found {
            is_dir: entry.file_type == DirectoryEntryType::Directory,
            name: entry.name,
        });
        Ok(found.collect())
    }

    fn contents(&mut self, path: &FsPath) -> Result<Vec<u8>, (&'static str, Errno)> {
        let inode = self.look_up(path).map_err(|errno| ("open", errno))?;
        let bytes = self.read(inode.number, 0, inode.size).map_err(|errno| ("read", errno))?;
        if bytes.len() as u64 == inode.size { Ok(bytes) } else { Err(("read", Errno::EIO)) }
    }
}

impl frame::Mount for Mount {
    fn device(&self) -> &SharedDevice {
        &self.device
    }

    fn unmount(mut self) -> Result<u64, Errno> {
        let mut result = Ok(0);
        while let Some((_, open)) = self.open.pop_first() {
            result = result.and(self.close_file(open));
        }
        result.and(asked(self.fs.unmount()).map(|()| 0))
    }
}
