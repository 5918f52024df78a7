//! Drives littlefs on a [`Recorder`] through its C interface (lfs.h).
//!
//! This file is compiled once for the port and once for the original; `super::sys` has the functions.

#![allow(unsafe_code, reason = "the interface is that of C")]
#![allow(unused_unsafe, reason = "the functions of the port are not marked unsafe, those of C are")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;

use fathom_block::{BlockBacked, Geometry, Guarantee, Image, MountFailure, Mounted, Recorder};
use fathom_core::flags::{Access, OpenFlags};
use fathom_core::{Errno, FsPath, HarnessFault, Op, Outcome, Slot, Tree};

use super::sys;
use crate::library::calls::{self, Calls, ENTRIES_MAX, Found};

/// `enum lfs_open_flags` of lfs.h.
mod flag {
    pub(super) const RDONLY: i32 = 1;
    pub(super) const WRONLY: i32 = 2;
    pub(super) const RDWR: i32 = 3;
    pub(super) const CREAT: i32 = 0x100;
    pub(super) const EXCL: i32 = 0x200;
    pub(super) const TRUNC: i32 = 0x400;
    pub(super) const APPEND: i32 = 0x800;
}

/// `LFS_TYPE_DIR` of lfs.h.
const TYPE_DIR: u8 = 2;

/// `LFS_SEEK_SET` of lfs.h.
const SEEK_SET: i32 = 0;

/// littlefs as a recipe.
pub(super) struct Littlefs {
    name: &'static str,
    version: String,
    geometry: Geometry,
    guarantee: Guarantee,
}

impl Littlefs {
    pub(super) fn boxed(
        name: &'static str,
        version: &str,
        geometry: Option<Geometry>,
    ) -> Result<Box<dyn BlockBacked>, HarnessFault> {
        let geometry = geometry.unwrap_or(super::super::DEFAULT_GEOMETRY);
        super::super::check(&geometry)?;
        let guarantee = super::super::guarantee();
        Ok(Box::new(Littlefs { name, version: version.to_owned(), geometry, guarantee }))
    }
}

impl BlockBacked for Littlefs {
    fn name(&self) -> &str {
        self.name
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn guarantee(&self) -> &Guarantee {
        &self.guarantee
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        let fault = |error: String| HarnessFault::new(format!("formatting {}", self.name), error);
        let device = Recorder::new(self.geometry.blank_image(), self.geometry)
            .map_err(|error| fault(error.to_string()))?;
        let mut core = Core::new(device);
        // SAFETY: `core` is initialised, boxed, and owns everything that the configuration points to.
        let code = unsafe { sys::lfs_format(&raw mut core.lfs, &raw const core.config) };
        match errno(code) {
            Ok(_) => Ok(core.device.into_parts().0),
            Err(errno) => Err(fault(format!(
                "{errno} on {} blocks of {} bytes: give more blocks",
                self.geometry.size_bytes / self.geometry.erase_bytes,
                self.geometry.erase_bytes
            ))),
        }
    }

    fn mount(&self, device: Recorder) -> Result<Box<dyn Mounted>, Box<MountFailure>> {
        let mut core = Core::new(device);
        // SAFETY: as in `format`.
        let code = unsafe { sys::lfs_mount(&raw mut core.lfs, &raw const core.config) };
        match errno(code) {
            Ok(_) => Ok(Box::new(Mount { core, open: BTreeMap::new() })),
            Err(errno) => Err(Box::new(MountFailure { errno, device: core.device })),
        }
    }
}

/// The structures of one mount. Boxed, because they point into each other.
struct Core {
    lfs: sys::Lfs,
    config: sys::LfsConfig,
    device: Recorder,
    read_buffer: Vec<u8>,
    prog_buffer: Vec<u8>,
    /// Must be aligned to 32 bits (lfs.h).
    lookahead: Vec<u32>,
}

impl Core {
    fn new(device: Recorder) -> Box<Core> {
        let geometry = *device.geometry();
        let cache_bytes = cache_bytes(&geometry);
        // SAFETY: plain C structures of numbers, pointers and optional functions, for which zero is a
        // value; littlefs initialises them from zero.
        let (lfs, config) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let mut core = Box::new(Core {
            lfs,
            config,
            device,
            read_buffer: vec![0; cache_bytes],
            prog_buffer: vec![0; cache_bytes],
            lookahead: vec![0; 2],
        });
        let device: *mut Recorder = &raw mut core.device;
        let config = &mut core.config;
        config.context = device.cast::<c_void>();
        config.read = Some(read);
        config.prog = Some(prog);
        config.erase = Some(erase);
        config.sync = Some(sync);
        config.read_size = geometry.read_bytes as u32;
        config.prog_size = geometry.write_bytes as u32;
        config.block_size = geometry.erase_bytes as u32;
        config.block_count = (geometry.size_bytes / geometry.erase_bytes) as u32;
        config.block_cycles = 500;
        config.cache_size = cache_bytes as u32;
        config.lookahead_size = (core.lookahead.len() * 4) as u32;
        config.read_buffer = core.read_buffer.as_mut_ptr().cast();
        config.prog_buffer = core.prog_buffer.as_mut_ptr().cast();
        config.lookahead_buffer = core.lookahead.as_mut_ptr().cast();
        core
    }
}

/// At least four program units, so that small files are stored inline and larger ones are not.
fn cache_bytes(geometry: &Geometry) -> usize {
    let unit = geometry.write_bytes.max(geometry.read_bytes);
    (4 * unit).min(geometry.erase_bytes)
}

/// The device of a configuration.
///
/// # Safety
/// `config` must be the one of a live [`Core`], and nobody else may use its device meanwhile.
unsafe fn device<'a>(config: *const sys::LfsConfig) -> &'a mut Recorder {
    // SAFETY: `Core::new` made `context` point to the recorder in the same box.
    unsafe { &mut *(*config).context.cast::<Recorder>() }
}

/// 0, or the error that littlefs passes on to its caller.
fn code<E>(result: Result<(), E>) -> i32 {
    if result.is_ok() { 0 } else { -i32::from(Errno::EIO.0) }
}

unsafe extern "C" fn read(
    config: *const sys::LfsConfig,
    block: u32,
    offset: u32,
    buffer: *mut sys::Buffer,
    len: u32,
) -> i32 {
    // SAFETY: littlefs calls with its configuration and a buffer of `len` bytes.
    let (device, buffer) = unsafe {
        (device(config), std::slice::from_raw_parts_mut(buffer.cast::<u8>(), len as usize))
    };
    let at = block as usize * device.geometry().erase_bytes + offset as usize;
    code(device.read(at, buffer))
}

unsafe extern "C" fn prog(
    config: *const sys::LfsConfig,
    block: u32,
    offset: u32,
    buffer: *const sys::Buffer,
    len: u32,
) -> i32 {
    // SAFETY: as in `read`.
    let (device, data) =
        unsafe { (device(config), std::slice::from_raw_parts(buffer.cast::<u8>(), len as usize)) };
    let at = block as usize * device.geometry().erase_bytes + offset as usize;
    code(device.write(at, data))
}

unsafe extern "C" fn erase(config: *const sys::LfsConfig, block: u32) -> i32 {
    // SAFETY: as in `read`.
    let device = unsafe { device(config) };
    let block_bytes = device.geometry().erase_bytes;
    code(device.erase(block as usize * block_bytes, block_bytes))
}

unsafe extern "C" fn sync(config: *const sys::LfsConfig) -> i32 {
    // SAFETY: as in `read`.
    unsafe { device(config) }.flush();
    0
}

/// littlefs returns negative errors with Linux's numbers (`enum lfs_error` of lfs.h).
fn errno(code: i32) -> Result<u64, Errno> {
    u64::try_from(code).map_err(|_| Errno(code.unsigned_abs() as u16))
}

/// A path as littlefs wants it: absolute, terminated.
struct CPath(Vec<u8>);

impl CPath {
    fn new(path: &FsPath) -> CPath {
        let relative: &[u8] = if path.as_bytes() == b"." { b"" } else { path.as_bytes() };
        CPath([b"/", relative, b"\0"].concat())
    }

    fn as_ptr<T>(&self) -> *const T {
        self.0.as_ptr().cast()
    }
}

/// An open file. Boxed: littlefs keeps its address.
struct Open {
    file: sys::LfsFile,
    config: sys::LfsFileConfig,
    _buffer: Vec<u8>,
}

/// One mount.
struct Mount {
    core: Box<Core>,
    open: BTreeMap<Slot, Box<Open>>,
}

impl Mount {
    fn lfs(&mut self) -> *mut sys::Lfs {
        &raw mut self.core.lfs
    }

    fn file(&mut self, slot: Slot) -> Result<(*mut sys::Lfs, *mut sys::LfsFile), Errno> {
        let lfs = self.lfs();
        let open = self.open.get_mut(&slot).ok_or(Errno::EBADF)?;
        Ok((lfs, &raw mut open.file))
    }

    fn open_file(&mut self, path: &FsPath, flags: i32) -> Result<Box<Open>, Errno> {
        let mut buffer = vec![0; self.core.config.cache_size as usize];
        // SAFETY: as in `Core::new`.
        let (file, mut config): (sys::LfsFile, sys::LfsFileConfig) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        config.buffer = buffer.as_mut_ptr().cast();
        let mut open = Box::new(Open { file, config, _buffer: buffer });
        let path = CPath::new(path);
        // SAFETY: everything is initialised and stays where it is until the file is closed.
        let code = unsafe {
            sys::lfs_file_opencfg(
                self.lfs(),
                &raw mut open.file,
                path.as_ptr(),
                flags,
                &raw const open.config,
            )
        };
        errno(code).map(|_| open)
    }

    fn close_file(&mut self, open: &mut Open) -> Result<u64, Errno> {
        // SAFETY: an open file of this mount.
        errno(unsafe { sys::lfs_file_close(self.lfs(), &raw mut open.file) })
    }

    fn remove(&mut self, path: &FsPath, dir: bool) -> Result<u64, Errno> {
        match (self.is_dir(path)?, dir) {
            (false, true) => return Err(Errno::ENOTDIR),
            (true, false) => return Err(Errno::EISDIR),
            _ => {}
        }
        let path = CPath::new(path);
        // SAFETY: a terminated path.
        errno(unsafe { sys::lfs_remove(self.lfs(), path.as_ptr()) })
    }
}

impl Calls for Mount {
    fn open(&mut self, slot: Slot, path: &FsPath, flags: OpenFlags) -> Result<u64, Errno> {
        if let Some(mut open) = self.open.remove(&slot) {
            self.close_file(&mut open)?;
        }
        let mut lfs_flags = match flags.access() {
            Access::Write => flag::WRONLY,
            Access::ReadWrite => flag::RDWR,
            Access::Read | Access::Neither => flag::RDONLY,
        };
        for (bit, lfs_bit) in [
            (OpenFlags::O_CREAT, flag::CREAT),
            (OpenFlags::O_EXCL, flag::EXCL),
            (OpenFlags::O_TRUNC, flag::TRUNC),
            (OpenFlags::O_APPEND, flag::APPEND),
        ] {
            if flags.contains(bit) {
                lfs_flags |= lfs_bit;
            }
        }
        let open = self.open_file(path, lfs_flags)?;
        self.open.insert(slot, open);
        Ok(0)
    }

    fn close(&mut self, slot: Slot) -> Result<u64, Errno> {
        let mut open = self.open.remove(&slot).ok_or(Errno::EBADF)?;
        self.close_file(&mut open)
    }

    fn pwrite(&mut self, slot: Slot, offset: i64, data: &[u8]) -> Result<u64, Errno> {
        let (lfs, file) = self.file(slot)?;
        let offset = i32::try_from(offset).map_err(|_| Errno::EFBIG)?;
        // SAFETY: an open file of this mount, and a buffer of the given length.
        unsafe {
            errno(sys::lfs_file_seek(lfs, file, offset, SEEK_SET))?;
            errno(sys::lfs_file_write(lfs, file, data.as_ptr().cast(), data.len() as u32))
        }
    }

    fn pread(&mut self, slot: Slot, offset: i64, len: u64) -> Result<Vec<u8>, Errno> {
        let (lfs, file) = self.file(slot)?;
        let offset = i32::try_from(offset).map_err(|_| Errno::EINVAL)?;
        // SAFETY: as in `pwrite`.
        unsafe {
            let size = errno(sys::lfs_file_size(lfs, file))?;
            let mut bytes = vec![0; len.min(size) as usize];
            errno(sys::lfs_file_seek(lfs, file, offset, SEEK_SET))?;
            let len = bytes.len() as u32;
            let count = errno(sys::lfs_file_read(lfs, file, bytes.as_mut_ptr().cast(), len))?;
            bytes.truncate(count as usize);
            Ok(bytes)
        }
    }

    fn truncate(&mut self, slot: Slot, len: i64) -> Result<u64, Errno> {
        let (lfs, file) = self.file(slot)?;
        let len = u32::try_from(len).map_err(|_| Errno::EINVAL)?;
        // SAFETY: as in `pwrite`.
        errno(unsafe { sys::lfs_file_truncate(lfs, file, len) })
    }

    fn fsync(&mut self, slot: Slot) -> Result<u64, Errno> {
        let (lfs, file) = self.file(slot)?;
        // SAFETY: as in `pwrite`.
        errno(unsafe { sys::lfs_file_sync(lfs, file) })
    }

    fn sync(&mut self) -> Result<u64, Errno> {
        let slots: Vec<Slot> = self.open.keys().copied().collect();
        slots.into_iter().try_for_each(|slot| self.fsync(slot).map(drop)).map(|()| 0)
    }

    fn is_dir(&mut self, path: &FsPath) -> Result<bool, Errno> {
        let path = CPath::new(path);
        // SAFETY: a terminated path, and room for the answer.
        unsafe {
            let mut info: sys::LfsInfo = std::mem::zeroed();
            errno(sys::lfs_stat(self.lfs(), path.as_ptr(), &raw mut info))?;
            Ok(info.type_ == TYPE_DIR)
        }
    }

    fn rmdir(&mut self, path: &FsPath) -> Result<u64, Errno> {
        self.remove(path, true)
    }

    fn unlink(&mut self, path: &FsPath) -> Result<u64, Errno> {
        self.remove(path, false)
    }

    fn mkdir(&mut self, path: &FsPath) -> Result<u64, Errno> {
        let path = CPath::new(path);
        // SAFETY: a terminated path.
        errno(unsafe { sys::lfs_mkdir(self.lfs(), path.as_ptr()) })
    }

    fn rename(&mut self, from: &FsPath, to: &FsPath) -> Result<u64, Errno> {
        let (from, to) = (CPath::new(from), CPath::new(to));
        // SAFETY: terminated paths.
        errno(unsafe { sys::lfs_rename(self.lfs(), from.as_ptr(), to.as_ptr()) })
    }

    fn list(&mut self, path: &FsPath) -> Result<Vec<Found>, Errno> {
        let path = CPath::new(path);
        let mut found = Vec::new();
        // SAFETY: the directory is initialised by opening it, stays where it is until it is closed,
        // and `info.name` is terminated within its array.
        unsafe {
            let (mut dir, mut info): (sys::LfsDir, sys::LfsInfo) =
                (std::mem::zeroed(), std::mem::zeroed());
            errno(sys::lfs_dir_open(self.lfs(), &raw mut dir, path.as_ptr()))?;
            let result = loop {
                match errno(sys::lfs_dir_read(self.lfs(), &raw mut dir, &raw mut info)) {
                    Ok(0) => break Ok(()),
                    Ok(_) if found.len() > ENTRIES_MAX => break Err(Errno::ELOOP),
                    Ok(_) => {}
                    Err(errno) => break Err(errno),
                }
                let name = ptr::from_ref(&info.name).cast::<u8>();
                let name = std::slice::from_raw_parts(name, size_of_val(&info.name));
                let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
                if name != b"." && name != b".." {
                    let is_dir = info.type_ == TYPE_DIR;
                    found.push(Found { name: name.to_vec(), is_dir });
                }
            };
            sys::lfs_dir_close(self.lfs(), &raw mut dir);
            result.map(|()| found)
        }
    }

    fn contents(&mut self, path: &FsPath) -> Result<Vec<u8>, (&'static str, Errno)> {
        let mut open = self.open_file(path, flag::RDONLY).map_err(|errno| ("open", errno))?;
        let (lfs, file) = (self.lfs(), &raw mut open.file);
        // SAFETY: as in `pwrite`.
        let bytes = unsafe {
            errno(sys::lfs_file_size(lfs, file)).and_then(|size| {
                let mut bytes = vec![0; size as usize];
                let to = bytes.as_mut_ptr().cast();
                let count = errno(sys::lfs_file_read(lfs, file, to, size as u32))?;
                if count == size { Ok(bytes) } else { Err(Errno::EIO) }
            })
        };
        let closed = self.close_file(&mut open).map_err(|errno| ("close", errno));
        let bytes = bytes.map_err(|errno| ("read", errno))?;
        closed.map(|_| bytes)
    }
}

impl Mounted for Mount {
    fn apply(&mut self, op: &Op) -> Outcome {
        calls::apply(self, op)
    }

    fn recover(&mut self) -> Result<(), Errno> {
        // SAFETY: mounted.
        errno(unsafe { sys::lfs_fs_mkconsistent(self.lfs()) }).map(drop)
    }

    fn observe(&mut self) -> Tree {
        calls::observe(self)
    }

    fn position(&self) -> usize {
        self.core.device.position()
    }

    fn look_at_device(&self, look: &mut dyn FnMut(&Recorder)) {
        look(&self.core.device);
    }

    fn unmount(mut self: Box<Self>) -> (Outcome, Recorder) {
        let mut result = Ok(0);
        for (_, mut open) in std::mem::take(&mut self.open) {
            result = result.and(self.close_file(&mut open));
        }
        // SAFETY: mounted, and not used after this.
        result = result.and(errno(unsafe { sys::lfs_unmount(self.lfs()) }));
        (result.map_or_else(Outcome::err, Outcome::ok), self.core.device)
    }

    fn power_off(self: Box<Self>) -> Recorder {
        // littlefs has no memory of its own here: all buffers are ours.
        self.core.device
    }
}
