//! [`LoopDevice`]: a block device in memory that cannot outlive the process.
//!
//! The image is a memfd, the device is configured with `LO_FLAGS_AUTOCLEAR` by `LOOP_CONFIGURE`
//! (loop(4), Linux 5.8): when the last user closes it (mount included), the kernel detaches it, also
//! after a `SIGKILL`.
#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags};

use crate::error::SubjectError;

/// From the kernel's `include/uapi/linux/loop.h`.
const LOOP_CTL_GET_FREE: libc::Ioctl = 0x4C82;
const LOOP_CONFIGURE: libc::Ioctl = 0x4C0A;
const LO_FLAGS_AUTOCLEAR: u32 = 4;
const LO_FLAGS_DIRECT_IO: u32 = 16;
/// From the kernel's `include/uapi/linux/fs.h`.
const BLKFLSBUF: libc::Ioctl = 0x1261;
/// cachestat(2), Linux 6.5; the number is the same on all architectures.
const SYS_CACHESTAT: libc::c_long = 451;

/// Somebody else may take the free device between the question and the answer's use.
const ATTEMPTS: usize = 64;

/// A started program takes milliseconds to close what it inherited.
const FREE_WITHIN: Duration = Duration::from_secs(10);

/// The kernel is told so often to forget what it has read of a device.
const FORGOTTEN_AFTER: usize = 5;

/// What is read of a device in memory arrives sooner.
const ARRIVES_WITHIN: Duration = Duration::from_micros(200);

/// Sectors as small as the device can have: what every recipe can live with.
const SECTOR_BYTES: u32 = 512;

/// `struct loop_info64`
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// An attached loop device; detached on drop, once nothing is mounted from it.
#[derive(Debug)]
pub(crate) struct LoopDevice {
    path: PathBuf,
    /// Keeps the device attached between two mounts. Read-only: a kernel that protects mounted
    /// devices (BLK_DEV_WRITE_MOUNTED=n) refuses to mount one that is open for writing.
    open: OwnedFd,
}

impl LoopDevice {
    /// Attaches a free device to `image`.
    ///
    /// # Errors
    /// If the kernel has no loop devices or gives none to us.
    pub(crate) fn attach(image: &OwnedFd) -> Result<LoopDevice, SubjectError> {
        LoopDevice::attach_with(image, LO_FLAGS_AUTOCLEAR)
    }

    /// Attaches a free device to `file` so that every request goes to it at once, several at a time,
    /// past the page cache.
    pub(super) fn attach_direct(file: &OwnedFd) -> Result<LoopDevice, SubjectError> {
        LoopDevice::attach_with(file, LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO)
    }

    fn attach_with(image: &OwnedFd, flags: u32) -> Result<LoopDevice, SubjectError> {
        let failed = |what| move |source: io::Error| SubjectError::Loop { what, source };
        let control =
            open("/dev/loop-control", OFlags::RDWR).map_err(failed("open /dev/loop-control"))?;
        for _ in 0..ATTEMPTS {
            // SAFETY: this request takes no argument.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE) };
            if number < 0 {
                return Err(failed("find a free one")(io::Error::last_os_error()));
            }
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let writable = open(&path, OFlags::RDWR).map_err(failed("open it"))?;
            match configure(&writable, image, flags) {
                Ok(()) => {
                    let open = open(&path, OFlags::RDONLY).map_err(failed("open it again"))?;
                    return Ok(LoopDevice { path, open });
                }
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
                Err(error) => return Err(failed("configure it")(error)),
            }
        }
        Err(failed("find a free one")(io::Error::from_raw_os_error(libc::EBUSY)))
    }

    /// The device node.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until nothing is mounted from the device. The last close of a mount unmounts at once;
    /// but another thread that is about to start a program has copies of all descriptors for a
    /// moment, and what is mounted again before that is the old file system with all it remembers.
    pub(super) fn wait_until_free(&self) -> Result<(), SubjectError> {
        let deadline = Instant::now() + FREE_WITHIN;
        loop {
            // A mounted device is claimed, and this claims it too (open(2), O_EXCL).
            match open(&self.path, OFlags::RDONLY | OFlags::EXCL) {
                Ok(_) => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                    if Instant::now() > deadline {
                        return Err(SubjectError::Loop { what: "unmount from it", source: error });
                    }
                    std::thread::sleep(Duration::from_micros(200));
                }
                Err(source) => return Err(SubjectError::Loop { what: "claim it", source }),
            }
        }
    }

    /// Writes what is in the device's cache to the image.
    pub(super) fn write_back(&self) -> Result<(), SubjectError> {
        let done = rustix::fs::fsync(&self.open);
        done.map_err(|errno| SubjectError::Loop { what: "write back to it", source: errno.into() })
    }

    /// Makes the kernel forget what it has read of the image, which was changed under it; nothing
    /// may be mounted. `false` if it cannot be told whether it did (a kernel before 6.5) or if
    /// somebody (udev, say) keeps it from doing so: then only a new device will do.
    pub(super) fn forget_cache(&self) -> bool {
        for _ in 0..FORGOTTEN_AFTER {
            // SAFETY: this request takes no argument.
            let flushed = unsafe { libc::ioctl(self.open.as_raw_fd(), BLKFLSBUF, 0) };
            match cached_pages(&self.open) {
                Some(0) if flushed == 0 => return true,
                // Blocks that were read ahead and have not arrived yet are kept.
                Some(_) if flushed == 0 => std::thread::sleep(ARRIVES_WITHIN),
                _ => return false,
            }
        }
        false
    }
}

/// How many pages of a file or device are in the page cache.
fn cached_pages(file: &OwnedFd) -> Option<u64> {
    // `struct cachestat_range`: from 0 to the end; `struct cachestat`: the first of five is ours.
    let (range, mut stat) = ([0u64; 2], [0u64; 5]);
    // SAFETY: the kernel reads a structure of two and fills in one of five 64-bit integers.
    let done = unsafe {
        let (range, stat) = (range.as_ptr(), stat.as_mut_ptr());
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range, stat, 0)
    };
    (done == 0).then_some(stat[0])
}

fn open(path: impl AsRef<Path>, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path.as_ref(), flags | OFlags::CLOEXEC, Mode::empty())?)
}

fn configure(device: &OwnedFd, image: &OwnedFd, flags: u32) -> io::Result<()> {
    // SAFETY: plain structures of integers; all zeros means "default" for each field.
    let mut config: LoopConfig = unsafe { std::mem::zeroed() };
    config.fd = image.as_raw_fd() as u32;
    config.block_size = SECTOR_BYTES;
    config.info.flags = flags;
    config.info.file_name[..6].copy_from_slice(b"fathom");
    // SAFETY: the kernel reads one `struct loop_config` and keeps no pointer to it.
    let done = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE, &raw const config) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
