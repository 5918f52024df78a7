//! [`Scratch`]: a fresh directory that goes away, whatever was done to the permissions in it.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use fathom_core::Capability;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::SubjectError;

/// Permission bits of the root of a subject: those that the reference starts with.
const ROOT_MODE: u32 = 0o755;

/// A device number for local use (the kernel's devices.txt): no driver listens to it.
const UNUSED_DEVICE: (u32, u32) = (60, 0);

/// A directory that is removed on drop.
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new directory inside `parent` with known owner, mode and no access control list.
    pub(super) fn create(parent: &Path) -> Result<Scratch, SubjectError> {
        let dir = tempfile::Builder::new()
            .prefix("fathom-")
            .tempdir_in(parent)
            .map_err(SubjectError::io("make a directory in", parent))?;
        let scratch = Scratch { path: dir.keep() };
        let path = &scratch.path;
        // A set-group-ID parent and default ACLs are inherited; the reference starts without.
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        chown(path, Some(uid.as_raw()), Some(gid.as_raw()))
            .map_err(SubjectError::io("set the owner of", path))?;
        for acl in ["system.posix_acl_default", "system.posix_acl_access"] {
            // Not supported, or none there: as good as removed.
            let _ = rustix::fs::removexattr(path, acl);
        }
        std::fs::set_permissions(path, PermissionsExt::from_mode(ROOT_MODE))
            .map_err(SubjectError::io("set the mode of", path))?;
        Ok(scratch)
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// As the root of an executor.
    pub(super) fn open(&self) -> Result<OwnedFd, SubjectError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(CWD, &self.path, flags, Mode::empty())
            .map_err(|errno| SubjectError::io("open", &self.path)(errno.into()))
    }

    /// Removes it with everything inside.
    pub(super) fn remove(&mut self) -> Result<(), SubjectError> {
        let failed = |errno: Errno| SubjectError::io("remove", &self.path)(errno.into());
        match remove_dir(CWD, &self.path) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(failed(errno)),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing more can be done about a failure here; the directory's name says whose it is.
        let _ = self.remove();
    }
}

/// What can be done in a directory, found out by trying: root in a container may lack the capability.
pub(crate) fn capabilities_of(dir: &OwnedFd) -> BTreeSet<Capability> {
    const NODE: &str = "device";
    let number = rustix::fs::makedev(UNUSED_DEVICE.0, UNUSED_DEVICE.1);
    let kind = FileType::CharacterDevice;
    if rustix::fs::mknodat(dir, NODE, kind, Mode::empty(), number).is_err() {
        return BTreeSet::new();
    }
    // If it stays, the first comparison of trees will tell.
    let _ = rustix::fs::unlinkat(dir, NODE, AtFlags::empty());
    BTreeSet::from([Capability::Devices])
}

fn remove_dir<P: rustix::path::Arg + Copy>(parent: BorrowedFd<'_>, name: P) -> Result<(), Errno> {
    empty_dir(&open_dir(parent, name)?)?;
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// Goes down by descriptors, so that no depth is too deep for a path.
pub(crate) fn empty_dir(dir: &OwnedFd) -> Result<(), Errno> {
    let mut entries = Dir::read_from(dir)?;
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
            // unlink(2): EISDIR in Linux, EPERM in POSIX.
            Err(Errno::ISDIR | Errno::PERM) => remove_dir(dir.as_fd(), name)?,
            done => done?,
        }
    }
    Ok(())
}

/// An owner may have lost the permissions of a directory that he must empty.
fn open_dir<P: rustix::path::Arg + Copy>(
    parent: BorrowedFd<'_>,
    name: P,
) -> Result<OwnedFd, Errno> {
    let path_flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Proves that it is a directory and not a link, before its mode is changed.
    rustix::fs::openat(parent, name, path_flags, Mode::empty())?;
    rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(parent, name, flags, Mode::empty())
}
