//! The original in C.

use fathom_block::{BlockBacked, Geometry};
use fathom_core::HarnessFault;

/// The names that the driver uses.
mod sys {
    pub(super) use littlefs2_sys::{
        lfs_config as LfsConfig, lfs_dir_close, lfs_dir_open, lfs_dir_read, lfs_dir_t as LfsDir,
        lfs_file_close, lfs_file_config as LfsFileConfig, lfs_file_opencfg, lfs_file_read,
        lfs_file_seek, lfs_file_size, lfs_file_sync, lfs_file_t as LfsFile, lfs_file_truncate,
        lfs_file_write, lfs_format, lfs_fs_mkconsistent, lfs_info as LfsInfo, lfs_mkdir, lfs_mount,
        lfs_remove, lfs_rename, lfs_stat, lfs_t as Lfs, lfs_unmount,
    };

    /// What buffers of device callbacks point to.
    pub(super) type Buffer = std::ffi::c_void;
}

#[allow(clippy::duplicate_mod, reason = "one driver, compiled against two sets of functions")]
#[path = "driver.rs"]
mod driver;

/// The file system on a geometry.
///
/// # Errors
/// If littlefs cannot live there.
pub fn open(geometry: Option<Geometry>) -> Result<Box<dyn BlockBacked>, HarnessFault> {
    // LFS_VERSION of lfs.h is 0xMMMMmmmm.
    let (major, minor) = (littlefs2_sys::LFS_VERSION >> 16, littlefs2_sys::LFS_VERSION & 0xffff);
    let version = format!("littlefs2-sys (littlefs {major}.{minor})");
    driver::Littlefs::boxed("littlefs-c", &version, geometry)
}
