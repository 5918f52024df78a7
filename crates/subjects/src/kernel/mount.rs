//! Detached mounts: a mounted file system that is in no directory tree.
//!
//! `fsopen`, `fsconfig` and `fsmount` (fsmount(2), Linux 5.2) give a descriptor of a mount that was
//! never attached. Nobody else sees it, and it is gone when the last descriptor is closed, also
//! after a `SIGKILL`.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, fchmod, fchown,
    fgetxattr, flistxattr, fsetxattr, fstat, futimens, openat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, MoveMountFlags, UnmountFlags,
    fsconfig_create, fsconfig_reconfigure, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen,
    fspick, move_mount, unmount,
};

use super::flash;
use super::log::KernelLog;
use super::recipe::{Layer, Recipe, version};
use crate::error::SubjectError;
use crate::sys::in_guest;

/// The directories of an overlay, in the file system that it lies on.
const LOWER: &str = "lower";
const UPPER: &str = "upper";
const WORK: &str = "work";

/// Mounts `device` (none for a file system without one) as the recipe says, without its layer.
pub(super) fn mount(recipe: &Recipe, device: Option<&Path>) -> Result<OwnedFd, SubjectError> {
    let source = match (device, recipe.flash_erase_bytes) {
        (Some(device), Some(bytes)) => {
            let flash = flash::of_device(device, bytes)?;
            Some(if recipe.flash_volume { flash::volume_on(&flash)? } else { flash }.into())
        }
        (device, _) => device.map(|device| device.as_os_str().to_owned()),
    };
    let source = source.map(|source| ("source", source));
    attach(&recipe.fs_type, source.as_slice(), &recipe.options)
}

/// Mounts an overlay in `base`, whose directories are made if they are not there.
pub(super) fn mount_layer(layer: &Layer, base: &OwnedFd) -> Result<OwnedFd, SubjectError> {
    let stack = if layer.restacks { Stack::restacked(base)? } else { Stack::new() };
    for name in stack.lower.iter().chain([&stack.upper, &stack.work]) {
        match rustix::fs::mkdirat(base, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(SubjectError::io("make", name)(errno.into())),
        }
    }
    if let Some(before) = &stack.before {
        copy_root(base, before, &stack.upper)
            .map_err(|errno| SubjectError::io("copy the attributes of", before)(errno.into()))?;
    }
    take_place(layer, base)?;
    // The way to a directory of a mount that is nowhere; the kernel goes it at once.
    let dir = |name: &String| format!("/proc/self/fd/{}/{name}", base.as_raw_fd());
    // A value of fsconfig(2) is short: several layers are added one by one, which older kernels cannot.
    let key = if layer.restacks { "lowerdir+" } else { "lowerdir" };
    let mut dirs: Vec<(&str, String)> = stack.lower.iter().map(|name| (key, dir(name))).collect();
    dirs.extend([("upperdir", dir(&stack.upper)), ("workdir", dir(&stack.work))]);
    attach(&layer.fs_type, &dirs, &layer.options)
}

/// Most upper layers that a file system has in the end: every one of them is searched for every name.
const UPPERS_MAX: usize = 40;

/// The directories of an overlay.
struct Stack {
    /// The uppermost first.
    lower: Vec<String>,
    upper: String,
    work: String,
    /// The upper layer of the mount before, whose root is to be that of the new one.
    before: Option<String>,
}

impl Stack {
    fn new() -> Stack {
        Stack {
            lower: vec![LOWER.to_owned()],
            upper: UPPER.to_owned(),
            work: WORK.to_owned(),
            before: None,
        }
    }

    /// A new upper layer above those of all mounts before.
    fn restacked(base: &OwnedFd) -> Result<Stack, SubjectError> {
        let upper = |number: usize| format!("{UPPER}-{number}");
        let is_there = |name: &str| rustix::fs::statat(base, name, AtFlags::empty()).is_ok();
        let earlier = (1..UPPERS_MAX).take_while(|number| is_there(&upper(*number))).count();
        let mut lower: Vec<String> = (1..=earlier).rev().map(upper).collect();
        let before = lower.first().cloned();
        lower.push(LOWER.to_owned());
        let number = earlier + 1;
        Ok(Stack { lower, upper: upper(number), work: format!("{WORK}-{number}"), before })
    }
}

/// Gives the root of a layer the owner, mode, extended attributes and times of another one: it is what the root of
/// the overlay has.
fn copy_root(base: &OwnedFd, from: &str, to: &str) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let from = openat(base, from, flags, Mode::empty())?;
    let to = openat(base, to, flags, Mode::empty())?;
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
    let time = |sec: i64, nsec: i64| Timespec { tv_sec: sec, tv_nsec: nsec };
    let times = Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec as i64),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec as i64),
    };
    futimens(&to, &times)
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

/// mount(8): flags of the mount, not of the file system (mount_setattr(2)).
const ATTRIBUTES: [(&str, MountAttrFlags); 7] = [
    ("noatime", MountAttrFlags::MOUNT_ATTR_NOATIME),
    ("nodiratime", MountAttrFlags::MOUNT_ATTR_NODIRATIME),
    ("relatime", MountAttrFlags::MOUNT_ATTR_RELATIME),
    ("strictatime", MountAttrFlags::MOUNT_ATTR_STRICTATIME),
    ("nosuid", MountAttrFlags::MOUNT_ATTR_NOSUID),
    ("nodev", MountAttrFlags::MOUNT_ATTR_NODEV),
    ("noexec", MountAttrFlags::MOUNT_ATTR_NOEXEC),
];

/// The flag that an option means, if it is one of the mount.
fn attribute(option: &str) -> Option<MountAttrFlags> {
    ATTRIBUTES.iter().find(|(name, _)| *name == option).map(|(_, flag)| *flag)
}

thread_local! {
    /// For what the kernel says while something is mounted. It stays open: system calls are dear in a guest, and
    /// going back is mounting.
    static LOG: RefCell<Option<KernelLog>> = const { RefCell::new(None) };
}

/// What the kernel has logged so far is of no interest any more.
fn skip_log() {
    LOG.with_borrow_mut(|log| {
        if log.as_ref().is_none_or(|log| log.skip().is_err()) {
            // Only root can open it; without it a failure is told in fewer words.
            *log = KernelLog::open().ok();
        }
    });
}

/// Mounts a file system that is in no directory: `settings` are values of their own, `options` are as in
/// mount(8).
pub(crate) fn attach(
    fs_type: &str,
    settings: &[(&str, impl AsRef<OsStr>)],
    options: &[String],
) -> Result<OwnedFd, SubjectError> {
    skip_log();
    let context = fsopen(fs_type, FsOpenFlags::FSOPEN_CLOEXEC).map_err(|errno| {
        failed(fs_type, "is the file system in this kernel?", None)(errno.into())
    })?;
    let configured = || -> Result<(), (&str, Errno)> {
        for (key, value) in settings {
            fsconfig_set_string(&context, *key, value.as_ref()).map_err(|errno| (*key, errno))?;
        }
        for option in options.iter().filter(|option| attribute(option).is_none()) {
            match option.split_once('=') {
                Some((key, value)) => fsconfig_set_string(&context, key, value),
                None => fsconfig_set_flag(&context, option.as_str()),
            }
            .map_err(|errno| (option.as_str(), errno))?;
        }
        fsconfig_create(&context).map_err(|errno| ("superblock", errno))
    };
    configured().map_err(|(what, errno)| {
        let logged = logged_since_skipped(fs_type);
        match failed(fs_type, what, Some(&context))(errno.into()) {
            SubjectError::Mount { fs_type, what, source, log } => {
                SubjectError::Mount { fs_type, what, source, log: log + &logged }
            }
            other => other,
        }
    })?;
    let attributes = options.iter().filter_map(|option| attribute(option)).collect();
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
        .map_err(|errno| failed(fs_type, "fsmount", Some(&context))(errno.into()))
}

/// Writes a mounted file system back and gives it its options once more, as `sync; mount -o remount` do.
pub(super) fn reconfigure(mount: &OwnedFd, options: &[String]) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::syncfs(openat(mount, ".", flags, Mode::empty())?)?;
    let flags = FsPickFlags::FSPICK_CLOEXEC | FsPickFlags::FSPICK_EMPTY_PATH;
    let context = fspick(mount, "", flags)?;
    for option in options.iter().filter(|option| attribute(option).is_none()) {
        match option.split_once('=') {
            Some((key, value)) => fsconfig_set_string(&context, key, value),
            None => fsconfig_set_flag(&context, option.as_str()),
        }?;
    }
    Ok(fsconfig_reconfigure(&context)?)
}

fn failed(
    fs_type: &str,
    what: &str,
    context: Option<&OwnedFd>,
) -> impl FnOnce(io::Error) -> SubjectError {
    let (fs_type, what) = (fs_type.to_owned(), what.to_owned());
    let log = context.map(kernel_log).unwrap_or_default();
    move |source| SubjectError::Mount { fs_type, what, source, log }
}

/// What the kernel logged since [`skip_log`] about a file system of this type, or about a loop device: many
/// tell their reasons there and nowhere else.
fn logged_since_skipped(fs_type: &str) -> String {
    let lines_about = |log: &mut KernelLog| log.lines_about(&[fs_type, "loop"]).ok();
    let lines = LOG.with_borrow_mut(|log| log.as_mut().and_then(lines_about));
    lines.into_iter().flatten().map(|line| format!("; {line}")).collect()
}

/// Messages can be read from the context, one per read, each with a letter for its severity.
fn kernel_log(context: &OwnedFd) -> String {
    let mut log = String::new();
    let mut line = [0; 1024];
    while let Ok(count) = rustix::io::read(context, &mut line) {
        log.push_str("; ");
        log.push_str(String::from_utf8_lossy(&line[..count]).trim_end());
    }
    log
}
