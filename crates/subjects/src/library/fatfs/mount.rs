//! One mount of fatfs.

#![allow(unsafe_code, reason = "an open file borrows its file system: see `OpenFile`")]

use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::rc::Rc;

use ::fatfs::{Dir, DirEntry, File, FileSystem};
use fathom_core::flags::OpenFlags;
use fathom_core::{Errno, FsPath, Slot};

use super::device::Stream;
use crate::library::calls::{self, Calls, ENTRIES_MAX, Found, Renaming};
use crate::library::device::SharedDevice;
use crate::library::frame;

type Fs = FileSystem<Stream>;

/// An open file together with the file system that it borrows. The fields are dropped in this order.
struct OpenFile {
    file: File<'static, Stream>,
    path: FsPath,
    append: bool,
    _fs: Rc<Fs>,
}

/// One mount.
pub(super) struct Mount {
    open: BTreeMap<Slot, OpenFile>,
    fs: Rc<Fs>,
    stream: Stream,
    device: SharedDevice,
}

/// A path as fatfs wants it.
fn text(path: &FsPath) -> Result<&str, Errno> {
    std::str::from_utf8(path.as_bytes()).map_err(|_| Errno::EINVAL)
}

fn errno<T>(result: io::Result<T>) -> Result<T, Errno> {
    result.map_err(|error| super::errno(&error))
}

/// Whether FAT takes both for the same name or the first lies below the second.
fn is_within(path: &FsPath, above: &FsPath) -> bool {
    let (path, above) = (path.as_bytes(), above.as_bytes());
    let Some((head, rest)) = path.split_at_checked(above.len()) else { return false };
    head.eq_ignore_ascii_case(above) && (rest.is_empty() || rest.starts_with(b"/"))
}

impl Mount {
    pub(super) fn new(fs: Fs, stream: Stream, device: SharedDevice) -> Mount {
        Mount { open: BTreeMap::new(), fs: Rc::new(fs), stream, device }
    }

    /// fatfs must not touch what is open.
    fn not_open(&self, path: &FsPath) -> Result<(), Errno> {
        match self.open.values().any(|open| is_within(&open.path, path)) {
            true => Err(Errno::EBUSY),
            false => Ok(()),
        }
    }

    fn file(&mut self, slot: Slot) -> Result<&mut OpenFile, Errno> {
        self.open.get_mut(&slot).ok_or(Errno::EBADF)
    }

    /// Opens or creates a file and ties it to its file system.
    fn open_file(&self, path: &FsPath, create: bool) -> Result<OpenFile, Errno> {
        let fs = Rc::clone(&self.fs);
        // SAFETY: the file system is in a reference-counted box, so it stays where it is, and the
        // `OpenFile` that holds the borrowing file also holds a count, which it drops last.
        let borrowed: &'static Fs = unsafe { &*Rc::as_ptr(&fs) };
        let root = borrowed.root_dir();
        let path_text = text(path)?;
        let file =
            errno(if create { root.create_file(path_text) } else { root.open_file(path_text) })?;
        Ok(OpenFile { file, path: path.clone(), append: false, _fs: fs })
    }

    /// The entry of a path other than the root.
    fn find(&self, path: &FsPath) -> Result<DirEntry<'_, Stream>, Errno> {
        let parent = path.parent().ok_or(Errno::EINVAL)?;
        let name = std::str::from_utf8(path.file_name()).map_err(|_| Errno::EINVAL)?;
        for entry in self.dir(&parent)?.iter().take(ENTRIES_MAX) {
            let entry = errno(entry)?;
            // As FAT compares: without regard to case (src/dir_entry.rs, `DirEntry::eq_name`).
            if entry.file_name().eq_ignore_ascii_case(name) {
                return Ok(entry);
            }
        }
        Err(Errno::ENOENT)
    }

    fn dir(&self, path: &FsPath) -> Result<Dir<'_, Stream>, Errno> {
        let root = self.fs.root_dir();
        match text(path)? {
            "." => Ok(root),
            path => errno(root.open_dir(path)),
        }
    }

    fn remove(&mut self, path: &FsPath, dir: bool) -> Result<u64, Errno> {
        match (self.is_dir(path)?, dir) {
            (false, true) => return Err(Errno::ENOTDIR),
            (true, false) => return Err(Errno::EISDIR),
            (true, true) if !self.list(path)?.is_empty() => return Err(Errno::ENOTEMPTY),
            _ => self.not_open(path)?,
        }
        errno(self.fs.root_dir().remove(text(path)?)).map(|()| 0)
    }

    /// Closing reports what the drop of a `File` would swallow.
    fn close_file(mut open: OpenFile) -> Result<u64, Errno> {
        errno(open.file.flush()).map(|()| 0)
    }
}

impl OpenFile {
    fn size(&mut self) -> Result<u64, Errno> {
        errno(self.file.seek(SeekFrom::End(0)))
    }

    /// Goes to `offset`, over zeros if that is beyond the end.
    fn reach(&mut self, offset: u64) -> Result<(), Errno> {
        let mut size = self.size()?;
        while size < offset {
            let zeros = [0; 512];
            let len = zeros.len().min((offset - size) as usize);
            errno(self.file.write_all(&zeros[..len]))?;
            size += len as u64;
        }
        errno(self.file.seek(SeekFrom::Start(offset))).map(drop)
    }
}

impl Calls for Mount {
    fn open(&mut self, slot: Slot, path: &FsPath, flags: OpenFlags) -> Result<u64, Errno> {
        if let Some(open) = self.open.remove(&slot) {
            Mount::close_file(open)?;
        }
        let exists = match self.is_dir(path) {
            Ok(true) => return Err(Errno::EISDIR),
            Ok(false) if flags.contains(OpenFlags::O_CREAT | OpenFlags::O_EXCL) => {
                return Err(Errno::EEXIST);
            }
            Ok(false) => true,
            Err(Errno::ENOENT) if flags.contains(OpenFlags::O_CREAT) => false,
            Err(errno) => return Err(errno),
        };
        self.not_open(path)?;
        let mut open = self.open_file(path, !exists)?;
        if flags.contains(OpenFlags::O_TRUNC) && exists {
            errno(open.file.truncate())?;
        }
        open.append = flags.contains(OpenFlags::O_APPEND);
        self.open.insert(slot, open);
        Ok(0)
    }

    fn close(&mut self, slot: Slot) -> Result<u64, Errno> {
        self.open.remove(&slot).ok_or(Errno::EBADF).and_then(Mount::close_file)
    }

    fn pread(&mut self, slot: Slot, offset: i64, len: u64) -> Result<Vec<u8>, Errno> {
        let open = self.file(slot)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let left = open.size()?.saturating_sub(offset);
        let mut bytes = vec![0; len.min(left) as usize];
        errno(open.file.seek(SeekFrom::Start(offset)))?;
        errno(open.file.read_exact(&mut bytes))?;
        Ok(bytes)
    }

    fn pwrite(&mut self, slot: Slot, offset: i64, data: &[u8]) -> Result<u64, Errno> {
        let open = self.file(slot)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
        let offset = if open.append { open.size()? } else { offset };
        if data.is_empty() {
            return Ok(0); // As the kernel does, without a word to the file system.
        }
        open.reach(offset)?;
        errno(open.file.write_all(data))?;
        Ok(data.len() as u64)
    }

    fn truncate(&mut self, slot: Slot, len: i64) -> Result<u64, Errno> {
        let open = self.file(slot)?;
        open.reach(u64::try_from(len).map_err(|_| Errno::EINVAL)?)?;
        errno(open.file.truncate()).map(|()| 0)
    }

    fn mkdir(&mut self, path: &FsPath) -> Result<u64, Errno> {
        // `create_dir` opens a directory that is there already.
        match self.is_dir(path) {
            Ok(_) => return Err(Errno::EEXIST),
            Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
        errno(self.fs.root_dir().create_dir(text(path)?)).map(|_| 0)
    }

    fn rmdir(&mut self, path: &FsPath) -> Result<u64, Errno> {
        self.remove(path, true)
    }

    fn unlink(&mut self, path: &FsPath) -> Result<u64, Errno> {
        self.remove(path, false)
    }

    fn rename(&mut self, from: &FsPath, to: &FsPath) -> Result<u64, Errno> {
        match calls::check_rename(self, from, to)? {
            Renaming::Nothing => return Ok(0),
            Renaming::Replace => return Err(Errno::EOPNOTSUPP),
            Renaming::Move => self.not_open(from)?,
        }
        let root = self.fs.root_dir();
        errno(root.rename(text(from)?, &root, text(to)?)).map(|()| 0)
    }

    fn fsync(&mut self, slot: Slot) -> Result<u64, Errno> {
        errno(self.file(slot)?.file.flush()).map(|()| 0)
    }

    fn sync(&mut self) -> Result<u64, Errno> {
        for open in self.open.values_mut() {
            errno(open.file.flush())?;
        }
        // Without an open file fatfs has nothing to write, but the disk may have.
        errno(self.stream.flush()).map(|()| 0)
    }

    fn is_dir(&mut self, path: &FsPath) -> Result<bool, Errno> {
        if path.as_bytes() == b"." {
            return Ok(true);
        }
        self.find(path).map(|entry| entry.is_dir())
    }

    fn list(&mut self, dir: &FsPath) -> Result<Vec<Found>, Errno> {
        let mut found = Vec::new();
        for entry in self.dir(dir)?.iter() {
            let entry = errno(entry)?;
            let name = entry.file_name();
            if found.len() == ENTRIES_MAX {
                return Err(Errno::ELOOP);
            }
            if name != "." && name != ".." {
                found.push(Found { name: name.into_bytes(), is_dir: entry.is_dir() });
            }
        }
        Ok(found)
    }

    fn contents(&mut self, path: &FsPath) -> Result<Vec<u8>, (&'static str, Errno)> {
        let size = self.find(path).map_err(|errno| ("stat", errno))?.len();
        let mut open = self.open_file(path, false).map_err(|errno| ("open", errno))?;
        // No more than the device can hold, whatever the entry says.
        let most = size.min(self.device.size_bytes() as u64);
        let mut bytes = Vec::new();
        errno(Read::by_ref(&mut open.file).take(most).read_to_end(&mut bytes))
            .map_err(|errno| ("read", errno))?;
        // fatfs ends early and silently where the chain of clusters is shorter than the size.
        if bytes.len() as u64 == size { Ok(bytes) } else { Err(("read", Errno::EIO)) }
    }
}

impl frame::Mount for Mount {
    fn device(&self) -> &SharedDevice {
        &self.device
    }

    fn observing(&mut self, begins: bool) {
        self.stream.observing(begins);
    }

    fn unmount(self) -> Result<u64, Errno> {
        let Mount { open, fs, mut stream, .. } = self;
        let mut result = Ok(0);
        for (_, open) in open {
            result = result.and(Mount::close_file(open));
        }
        if let Ok(fs) = Rc::try_unwrap(fs) {
            result = result.and(errno(fs.unmount().and_then(|()| stream.flush())).map(|()| 0));
        }
        result
    }
}
