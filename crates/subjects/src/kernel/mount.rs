//! Detached mounts: a mounted file system that is in no directory tree.
//!
//! `fsopen`, `fsconfig` and `fsmount` (fsmount(2), Linux 5.2) give a descriptor of a mount that was
//! never attached. Nobody else sees it, and it is gone when the last descriptor is closed, also
//! after a `SIGKILL`.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, FsPickFlags, MountAttrFlags, fsconfig_create, fsconfig_reconfigure,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, fspick,
};

use super::flash;
use super::log::KernelLog;
use super::recipe::Recipe;
use crate::error::SubjectError;

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
