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
    // lfs.h tells 2.9 only; CHANGELOG.md of littlefs2-sys: 'Update littlefs to v2.9.3'.
    const { assert!(littlefs2_sys::LFS_VERSION == 0x0002_0009, "the version below is out of date") };
    driver::Littlefs::boxed("littlefs-c", "littlefs2-sys 0.4.0 (littlefs 2.9.3)", geometry)
}
