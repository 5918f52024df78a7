//! The layers of an overlay: its directories, in the file system that it lies on.
//!
//! # Turning the layers
//!
//! A recipe that *restacks* has populated lower layers: at every second mount the upper layer becomes the uppermost
//! lower one, under a new one. At the mounts in between the layers stay, so that what overlayfs itself keeps for
//! the next mount (its index) is looked at too.
//!
//! An upper layer is whole only together with its index (Documentation/filesystems/overlayfs.rst, "Index
//! directory"): of a file with several names in the lower layer it has those names alone that were used for
//! changes; the index says that the others mean the same file, and is itself one more link of it. So before an
//! upper layer becomes a lower one, all names of such files are copied up, through the overlay, and the index is
//! removed. Without the first, names that were not used show what the file was before it was changed; without the
//! second, link counts are one too large.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags,
    chmodat, fchmod, fchown, fgetxattr, flistxattr, fsetxattr, fstat, fstatvfs, futimens, mkdirat,
    openat, statat, unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags, move_mount, unmount};
use rustix::path::Arg;

use super::mount::attach;
use super::recipe::{Layer, version};
use crate::error::SubjectError;
use crate::sys::in_guest;

const LOWER: &str = "lower";
const UPPER: &str = "upper";
const WORK: &str = "work";

/// Most upper layers that a file system has in the end: every one of them is searched for every name.
const UPPERS_MAX: usize = 40;

/// The layers are turned only if so many blocks are free: overlayfs makes directories at a mount, and is mounted
/// read-only if it cannot.
const FREE_BLOCKS_MIN: u64 = 64;

/// Mode of new directories; that of an upper layer is the mode of the overlay's root.
const DIR_MODE: u32 = 0o755;

/// Mode of a work directory that was mounted twice. It means nothing to root; unlike a file that says so it needs no
/// space.
const WORK_MODE_TWICE: u32 = 0o700;

/// Mounts an overlay in `base`, whose directories are made if they are not there.
pub(super) fn mount_layer(layer: &Layer, base: &OwnedFd) -> Result<OwnedFd, SubjectError> {
    take_place(layer, base)?;
    let stack = if layer.restacks { Stack::next(layer, base)? } else { Stack::only() };
    for name in stack.lower.iter().chain([&stack.upper, &stack.work]) {
        match mkdirat(base, name, Mode::from_raw_mode(DIR_MODE)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(SubjectError::io("make", name)(errno.into())),
        }
    }
    if let Some(before) = &stack.before {
        copy_root(base, before, &stack.upper)
            .map_err(|errno| SubjectError::io("copy the attributes of", before)(errno.into()))?;
    }
    stack.mount(layer, base)
}

/// The directories of an overlay.
struct Stack {
    /// The uppermost first.
    lower: Vec<String>,
    upper: String,
    work: String,
    /// The upper layer of the mount before, if it is a lower one now: its root is to be that of the new one.
    before: Option<String>,
}

impl Stack {
    /// That of a recipe that does not restack.
    fn only() -> Stack {
        Stack {
            lower: vec![LOWER.to_owned()],
            upper: UPPER.to_owned(),
            work: WORK.to_owned(),
            before: None,
        }
    }

    /// With so many upper layers, of which all but the last are lower ones now.
    fn of(uppers: usize) -> Stack {
        let upper = |number: usize| format!("{UPPER}-{number}");
        let mut lower: Vec<String> = (1..uppers).rev().map(upper).collect();
        lower.push(LOWER.to_owned());
        Stack { lower, upper: upper(uppers), work: format!("{WORK}-{uppers}"), before: None }
    }

    /// That of the next mount: the same as before, or with a new upper layer.
    fn next(layer: &Layer, base: &OwnedFd) -> Result<Stack, SubjectError> {
        let is_there = |uppers: &usize| stat_of(base, &Stack::of(*uppers).upper).is_ok();
        let uppers = (1..=UPPERS_MAX).take_while(is_there).count();
        if uppers == 0 {
            return Ok(Stack::of(1));
        }
        let same = Stack::of(uppers);
        let failed = |errno: Errno| SubjectError::io("look at", &same.work)(errno.into());
        same.forget_volatile(base).map_err(failed)?;
        let twice = Mode::from_raw_mode(WORK_MODE_TWICE);
        let mode = match stat_of(base, &same.work) {
            // Somebody removed it and could not make the next upper layer: a mount makes a new one.
            Err(Errno::NOENT) => return Ok(same),
            stat => stat.map_err(failed)?.st_mode & 0o777,
        };
        if mode != WORK_MODE_TWICE {
            chmodat(base, &same.work, twice, AtFlags::empty()).map_err(failed)?;
            return Ok(same);
        }
        let free = fstatvfs(base).map_err(failed)?.f_bfree;
        if uppers == UPPERS_MAX || free < FREE_BLOCKS_MIN || !same.complete(layer, base)? {
            return Ok(same);
        }
        let failed = |errno: Errno| SubjectError::io("remove", &same.work)(errno.into());
        remove(base, &CString::new(same.work.as_str()).expect("no zero byte")).map_err(failed)?;
        Ok(Stack { before: Some(same.upper), ..Stack::of(uppers + 1) })
    }

    /// Mounts it. Detached, as everything here.
    fn mount(&self, layer: &Layer, base: &OwnedFd) -> Result<OwnedFd, SubjectError> {
        // The way to a directory of a mount that is nowhere; the kernel goes it at once.
        let dir = |name: &String| format!("/proc/self/fd/{}/{name}", base.as_raw_fd());
        // A value of fsconfig(2) is short: several layers are added one by one, which older kernels cannot.
        let key = if layer.restacks { "lowerdir+" } else { "lowerdir" };
        let mut dirs: Vec<(&str, String)> =
            self.lower.iter().map(|name| (key, dir(name))).collect();
        dirs.extend([("upperdir", dir(&self.upper)), ("workdir", dir(&self.work))]);
        attach(&layer.fs_type, &dirs, &layer.options)
    }

    /// What the option `volatile` leaves behind so that nothing is mounted again that was not written back. Ours
    /// was: it was unmounted, or the file system under it was frozen.
    fn forget_volatile(&self, base: &OwnedFd) -> Result<(), Errno> {
        match open_dir(base, format!("{}/work/incompat", self.work)) {
            Err(Errno::NOENT) => Ok(()),
            dir => match remove(&dir?, c"volatile") {
                Err(Errno::NOENT) => Ok(()),
                removed => removed,
            },
        }
    }

    /// Copies up the names that the upper layer needs to mean the same without its index; false if there is no
    /// space for it.
    fn complete(&self, layer: &Layer, base: &OwnedFd) -> Result<bool, SubjectError> {
        let failed = |errno: Errno| SubjectError::io("complete", &self.upper)(errno.into());
        let indexed = indexed(base, &format!("{}/index", self.work)).map_err(failed)?;
        if indexed.is_empty() {
            return Ok(true);
        }
        // A file of which only one name is left, and that not in the upper layer: the index is its only link there.
        // Which name that is, is not known.
        let every_file = indexed.iter().any(|stat| stat.st_nlink == 1);
        let root = self.mount(layer, base)?;
        let copied = open_dir(&root, ".").and_then(|root| copy_up(&root, every_file));
        drop(root);
        self.forget_volatile(base).map_err(failed)?;
        match copied {
            Ok(()) => Ok(true),
            Err(Errno::NOSPC | Errno::DQUOT) => Ok(false),
            Err(errno) => Err(failed(errno)),
        }
    }
}

fn stat_of(dir: &OwnedFd, name: &str) -> Result<Stat, Errno> {
    statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Opens a directory to read it, without changing when it was read.
fn open_dir(dir: &OwnedFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOATIME | OFlags::CLOEXEC;
    openat(dir, name, flags | OFlags::NOFOLLOW, Mode::empty())
}

/// What is in a directory.
fn entries(dir: &OwnedFd) -> Result<Vec<(CString, Stat)>, Errno> {
    let mut entries = Vec::new();
    for entry in Dir::new(rustix::io::dup(dir)?)? {
        let name = entry?.file_name().to_owned();
        if name.as_bytes() != b"." && name.as_bytes() != b".." {
            let stat = statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW)?;
            entries.push((name, stat));
        }
    }
    Ok(entries)
}

fn is_dir(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Directory
}

/// The files that an index has, without the marks of what was removed (devices 0:0).
fn indexed(base: &OwnedFd, index: &str) -> Result<Vec<Stat>, Errno> {
    let dir = match open_dir(base, index) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        dir => dir?,
    };
    let is_whiteout = |stat: &Stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0
    };
    let stats = entries(&dir)?.into_iter().map(|(_, stat)| stat);
    Ok(stats.filter(|stat| !is_dir(stat) && !is_whiteout(stat)).collect())
}

/// Copies up every file with several names, or all files. Giving it the times that it has changes nothing else.
fn copy_up(dir: &OwnedFd, every_file: bool) -> Result<(), Errno> {
    for (name, stat) in entries(dir)? {
        if is_dir(&stat) {
            copy_up(&open_dir(dir, &name)?, every_file)?;
        } else if every_file || stat.st_nlink > 1 {
            utimensat(dir, &name, &times(&stat), AtFlags::SYMLINK_NOFOLLOW)?;
        }
    }
    Ok(())
}

/// Removes a directory with all that is in it.
fn remove(dir: &OwnedFd, name: &CStr) -> Result<(), Errno> {
    let inner = open_dir(dir, name)?;
    for (name, stat) in entries(&inner)? {
        if is_dir(&stat) {
            remove(&inner, &name)?;
        } else {
            unlinkat(&inner, &name, AtFlags::empty())?;
        }
    }
    unlinkat(dir, name, AtFlags::REMOVEDIR)
}

/// When a file was last read and written.
fn times(stat: &Stat) -> Timestamps {
    let time = |sec: i64, nsec: i64| Timespec { tv_sec: sec, tv_nsec: nsec };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec as i64),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec as i64),
    }
}

/// Gives the root of a layer the owner, mode, extended attributes and times of another one: it is what the root of
/// the overlay has.
fn copy_root(base: &OwnedFd, from: &str, to: &str) -> Result<(), Errno> {
    let (from, to) = (open_dir(base, from)?, open_dir(base, to)?);
    let stat = fstat(&from)?;
    let (uid, gid) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    fchown(&to, Some(uid), Some(gid))?;
    fchmod(&to, Mode::from_raw_mode(stat.st_mode))?;
    let mut names = vec![0; XATTR_BYTES_MAX];
    let count = flistxattr(&from, &mut names[..])?;
    for name in names[..count].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        if name.starts_with(OVERLAY_XATTRS) {
            continue;
        }
        let mut value = vec![0; XATTR_BYTES_MAX];
        let len = fgetxattr(&from, name, &mut value[..])?;
        fsetxattr(&to, name, &value[..len], XattrFlags::empty())?;
    }
    futimens(&to, &times(&stat))
}

/// Extended attributes that overlayfs itself sets on directories of its layers.
const OVERLAY_XATTRS: &[u8] = b"trusted.overlay.";

/// XATTR_LIST_MAX and XATTR_SIZE_MAX of limits.h.
const XATTR_BYTES_MAX: usize = 65536;

/// Where the file system under an overlay is, in a guest whose kernel wants it to be somewhere.
const PLACE: &str = "/dev/shm/fathom-layer";

/// Gives `base` a place, in a guest with a kernel that is too old to do without. It keeps it until
/// [`leave_place`]: a mount that had a place cannot get another one.
fn take_place(layer: &Layer, base: &OwnedFd) -> Result<(), SubjectError> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    if version(&release).is_none_or(|have| have >= layer.kernel_min) || !in_guest() {
        return Ok(());
    }
    let failed = |errno: Errno| SubjectError::io("mount", PLACE)(errno.into());
    match rustix::fs::mkdir(PLACE, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let device = |stat: rustix::fs::Stat| stat.st_dev;
    let there = rustix::fs::stat(PLACE).map(device).map_err(failed)?;
    if there == rustix::fs::fstat(base).map(device).map_err(failed)? {
        return Ok(());
    }
    move_mount(base, "", CWD, PLACE, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).map_err(failed)
}

/// Takes the file system under an overlay out of its place, if it has one.
pub(super) fn leave_place() {
    if in_guest() {
        // Without one there is nothing to leave.
        let _ = unmount(PLACE, UnmountFlags::DETACH);
    }
}
