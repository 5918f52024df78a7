//! The port to Rust: the default subject, built by cargo alone.

use fathom_block::{BlockBacked, Geometry};
use fathom_core::HarnessFault;

/// The names that the driver uses.
mod sys {
    pub(super) use littlefs_rust_core::{
        Lfs, LfsConfig, LfsDir, LfsFile, LfsFileConfig, LfsInfo, lfs_dir_close, lfs_dir_open,
        lfs_dir_read, lfs_file_close, lfs_file_opencfg, lfs_file_read, lfs_file_seek,
        lfs_file_size, lfs_file_sync, lfs_file_truncate, lfs_file_write, lfs_format,
        lfs_fs_mkconsistent, lfs_mkdir, lfs_mount, lfs_remove, lfs_rename, lfs_stat, lfs_unmount,
    };

    /// What buffers of device callbacks point to.
    pub(super) type Buffer = u8;
}

#[allow(clippy::duplicate_mod, reason = "one driver, compiled against two sets of functions")]
#[path = "driver.rs"]
mod driver;

/// The file system on a geometry.
///
/// # Errors
/// If littlefs cannot live there.
pub fn open(geometry: Option<Geometry>) -> Result<Box<dyn BlockBacked>, HarnessFault> {
    // The crate's functions follow lfs.c of littlefs 2.11 line by line, but not all of them: its
    // lfs_dir_commitcrc leaves out the forward checksums (LFS_TYPE_FCRC), so a block is never known to
    // be erased behind a commit, and every commit erases the other block and writes it whole.
    driver::Littlefs::boxed("littlefs", "littlefs-rust-core 0.1.0", geometry)
}
