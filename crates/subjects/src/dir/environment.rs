//! What decides how a directory behaves, beyond the code of its file system.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use fathom_core::Mode;
use rustix::fs::{StatVfsMountFlags, statfs, statvfs};

use crate::error::SubjectError;
use crate::sys::Identity;
use crate::sys::thread_context::UMASK;

/// The facts that a reference must be configured with to behave like the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// Which set of known differences applies: see [`detect_profile`].
    pub profile: &'static str,
    /// Allocation unit as statfs(2) tells it.
    pub block_bytes: u64,
    /// Capacity in blocks.
    pub blocks: u64,
    /// Capacity in inodes; 0 if the file system has no limit of its own.
    pub inodes: u64,
    /// Longest name.
    pub name_bytes_max: u64,
    /// Who calls in the beginning, and owns the root.
    pub identity: Identity,
    /// Group of the root directory.
    pub root_gid: u32,
    /// Permission bits of the root directory.
    pub root_mode: Mode,
    /// File mode creation mask in the beginning.
    pub umask: Mode,
    /// proc(5): `/proc/sys/fs/protected_hardlinks`
    pub protected_hardlinks: u8,
    /// proc(5): `/proc/sys/fs/protected_symlinks`
    pub protected_symlinks: u8,
    /// proc(5): `/proc/sys/fs/protected_fifos`
    pub protected_fifos: u8,
    /// proc(5): `/proc/sys/fs/protected_regular`
    pub protected_regular: u8,
    /// mount(8) `nodev`: opening a device node gives `EACCES`.
    pub nodev: bool,
    /// mount(8) `noexec`: `access(2)` with `X_OK` on a file gives `EACCES`.
    pub noexec: bool,
}

impl Environment {
    pub(crate) fn of(root: &Path) -> Result<Environment, SubjectError> {
        let meta = root.metadata().map_err(SubjectError::io("look at", root))?;
        let space = statvfs(root)
            .map_err(|errno| SubjectError::io("ask for the space of", root)(errno.into()))?;
        Ok(Environment {
            profile: detect_profile(root)?,
            block_bytes: space.f_bsize,
            blocks: space.f_blocks,
            inodes: space.f_files,
            name_bytes_max: space.f_namemax,
            identity: Identity::of_process()?,
            root_gid: meta.gid(),
            root_mode: Mode(meta.mode() & 0o7777),
            umask: Mode(UMASK),
            protected_hardlinks: protected("hardlinks"),
            protected_symlinks: protected("symlinks"),
            protected_fifos: protected("fifos"),
            protected_regular: protected("regular"),
            nodev: space.f_flag.contains(StatVfsMountFlags::NODEV),
            noexec: space.f_flag.contains(StatVfsMountFlags::NOEXEC),
        })
    }
}

/// What proc(5) `/proc/sys/fs/protected_…` says; a kernel without the setting protects nothing.
pub(crate) fn protected(what: &str) -> u8 {
    let text = std::fs::read_to_string(format!("/proc/sys/fs/protected_{what}"));
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Magic numbers of statfs(2).
const PROFILES: [(libc::__fsword_t, &str); 4] = [
    (libc::TMPFS_MAGIC, "tmpfs"),
    (libc::XFS_SUPER_MAGIC, "xfs"),
    (libc::BTRFS_SUPER_MAGIC, "btrfs"),
    (libc::OVERLAYFS_SUPER_MAGIC, "overlay"),
];

/// The name of the profile (see [`fathom_model::Quirks::profile`]) for the file system of `path`;
/// `generic` for one that is not known.
///
/// # Errors
/// If the path cannot be looked at.
pub fn detect_profile(path: &Path) -> Result<&'static str, SubjectError> {
    let failed = |errno: rustix::io::Errno| SubjectError::io("look at", path)(errno.into());
    let stat = statfs(path).map_err(failed)?;
    // ext2, ext3 and ext4 share a number.
    if stat.f_type == libc::EXT4_SUPER_MAGIC {
        let device = rustix::fs::stat(path).map_err(failed)?.st_dev;
        let has_extents = mounted_type(device).is_none_or(|fs_type| fs_type == "ext4");
        return Ok(match (has_extents, stat.f_bsize) {
            (true, 1024) => "ext4-1k",
            (true, _) => "ext4",
            (false, 1024) => "ext2-1k",
            (false, _) => "ext2",
        });
    }
    if stat.f_type == libc::FUSE_SUPER_MAGIC {
        let device = rustix::fs::stat(path).map_err(failed)?.st_dev;
        let ours = mounted_type(device).is_some_and(|fs_type| fs_type == "fuse.reffs");
        return Ok(if ours { "reffs" } else { "fuse" });
    }
    let known = PROFILES.iter().find(|(magic, _)| *magic == stat.f_type);
    Ok(known.map_or("generic", |(_, name)| name))
}

/// The type with which a device is mounted, from proc(5) `/proc/self/mountinfo`: the third field is
/// the device, the first after the dash is the type.
fn mounted_type(device: u64) -> Option<String> {
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    let text = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = text.lines().find(|line| line.split(' ').nth(2) == Some(&device))?;
    let (_, after_dash) = line.split_once(" - ")?;
    after_dash.split(' ').next().map(str::to_owned)
}
