//! Executes operations on attributes: size, mode, owner, times, access, space.

use std::ffi::CStr;
use std::os::fd::AsRawFd;

use fathom_core::flags::AccessMode;
use fathom_core::{Errno, Kind, Mode, Outcome, Payload, Stat, Statfs, Target, TimeArg};

use rustix::fs::StatVfsMountFlags;

use super::{Applied, Executor, Place, call};

/// The id that chown(2) leaves as it is.
const NO_CHANGE: u32 = u32::MAX;

/// What fchmodat2(2) of Linux 6.6 does with `AT_SYMLINK_NOFOLLOW`, on kernels that do not have it: the
/// file is found without being opened, and changed through its entry in /proc. A symbolic link has no
/// mode to change, which a kernel before 6.6 does not say by itself: it would change one that nobody can
/// see.
fn chmod_link_before_6_6(path: &CStr, mode: u32) -> call::Answer {
    let found = call::open(path, libc::O_PATH | libc::O_NOFOLLOW, 0)?;
    let stat = call::statx(found.as_raw_fd(), c"", libc::AT_EMPTY_PATH)?;
    if u32::from(stat.stx_mode) & libc::S_IFMT == libc::S_IFLNK {
        let mount = rustix::fs::fstatvfs(&found);
        let is_read_only =
            mount.is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY));
        return Err(if is_read_only { Errno::EROFS } else { Errno::EOPNOTSUPP });
    }
    let entry = format!("/proc/thread-self/fd/{}\0", found.as_raw_fd());
    let entry = CStr::from_bytes_with_nul(entry.as_bytes()).map_err(|_| Errno::EINVAL)?;
    call::chmod(entry, mode)
}

impl Executor {
    pub(super) fn truncate(&mut self, target: &Target, len: i64) -> Applied {
        Ok(match self.place(&following(target))? {
            Place::Path(path) | Place::Link(path) => call::truncate(path.c(), len),
            Place::Slot(fd) => call::ftruncate(fd, len),
        }
        .into())
    }

    pub(super) fn chmod(&mut self, target: &Target, mode: Mode) -> Applied {
        Ok(match self.place(target)? {
            Place::Path(path) => call::chmod(path.c(), mode.0),
            Place::Link(path) => match call::chmod_link(path.c(), mode.0) {
                Err(Errno::ENOSYS) => chmod_link_before_6_6(path.c(), mode.0),
                answer => answer,
            },
            Place::Slot(fd) => call::fchmod(fd, mode.0),
        }
        .into())
    }

    pub(super) fn chown(&mut self, target: &Target, uid: Option<u32>, gid: Option<u32>) -> Applied {
        let (uid, gid) = (uid.unwrap_or(NO_CHANGE), gid.unwrap_or(NO_CHANGE));
        Ok(match self.place(target)? {
            Place::Path(path) => call::chown(path.c(), uid, gid, 0),
            Place::Link(path) => call::chown(path.c(), uid, gid, libc::AT_SYMLINK_NOFOLLOW),
            Place::Slot(fd) => call::fchown(fd, uid, gid),
        }
        .into())
    }

    pub(super) fn utimens(&mut self, target: &Target, atime: TimeArg, mtime: TimeArg) -> Applied {
        let times = [timespec(atime), timespec(mtime)];
        Ok(match self.place(target)? {
            Place::Path(path) => call::utimens(path.c(), &times, 0),
            Place::Link(path) => call::utimens(path.c(), &times, libc::AT_SYMLINK_NOFOLLOW),
            Place::Slot(fd) => call::futimens(fd, &times),
        }
        .into())
    }

    pub(super) fn stat(&mut self, target: &Target) -> Applied {
        let for_link = self.view.stat_flags();
        let flags = for_link & !libc::AT_SYMLINK_NOFOLLOW;
        let stat = match self.place(target)? {
            Place::Path(path) => call::statx(libc::AT_FDCWD, path.c(), flags),
            Place::Link(path) => call::statx(libc::AT_FDCWD, path.c(), for_link),
            Place::Slot(fd) => call::statx(fd, c"", flags | libc::AT_EMPTY_PATH),
        };
        Ok(match stat {
            Ok(stat) => Outcome::with(Payload::Stat(Box::new(visible_stat(&stat)))),
            Err(errno) => Outcome::err(errno),
        })
    }

    pub(super) fn statfs(&mut self, target: &Target) -> Applied {
        let stat = match self.place(&following(target))? {
            Place::Path(path) | Place::Link(path) => call::statfs(path.c()),
            Place::Slot(fd) => call::fstatfs(fd),
        };
        Ok(match stat {
            Ok(stat) => Outcome::with(Payload::Statfs(visible_statfs(&stat))),
            Err(errno) => Outcome::err(errno),
        })
    }

    pub(super) fn access(&mut self, target: &Target, mode: AccessMode, effective: bool) -> Applied {
        let flags = if effective { libc::AT_EACCESS } else { 0 };
        Ok(match self.place(target)? {
            Place::Path(path) => call::access(libc::AT_FDCWD, path.c(), mode.bits(), flags),
            Place::Link(path) => {
                let flags = flags | libc::AT_SYMLINK_NOFOLLOW;
                call::access(libc::AT_FDCWD, path.c(), mode.bits(), flags)
            }
            Place::Slot(fd) => call::access(fd, c"", mode.bits(), flags | libc::AT_EMPTY_PATH),
        }
        .into())
    }
}

/// Makes a target follow a last symbolic link, for a call that has no variant for links.
fn following(target: &Target) -> Target {
    match target {
        Target::Link(path) => Target::Path(path.clone()),
        other => other.clone(),
    }
}

fn timespec(time: TimeArg) -> libc::timespec {
    let (tv_sec, tv_nsec) = match time {
        TimeArg::Now => (0, libc::UTIME_NOW),
        TimeArg::Omit => (0, libc::UTIME_OMIT),
        TimeArg::At { sec, nsec } => (sec, nsec.into()),
    };
    libc::timespec { tv_sec, tv_nsec }
}

fn visible_stat(stat: &libc::statx) -> Stat {
    let is_dir = Kind::of_mode(stat.stx_mode.into()) == Some(Kind::Dir);
    Stat {
        mode: Mode(stat.stx_mode.into()),
        nlink: stat.stx_nlink,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        size: if is_dir { 0 } else { stat.stx_size },
        rdev: (stat.stx_rdev_major, stat.stx_rdev_minor),
    }
}

fn visible_statfs(stat: &libc::statfs) -> Statfs {
    Statfs {
        block_bytes: stat.f_bsize as u64,
        blocks: stat.f_blocks,
        blocks_free: stat.f_bfree,
        blocks_available: stat.f_bavail,
        files: stat.f_files,
        files_free: stat.f_ffree,
        name_bytes_max: stat.f_namelen as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    #[test]
    fn kernels_without_fchmodat2_are_asked_so_that_they_answer_alike() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| {
            CString::new(dir.path().join(name).as_os_str().as_bytes()).expect("no zero in it")
        };
        std::fs::write(dir.path().join("file"), "").unwrap();
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        symlink("file", dir.path().join("link")).unwrap();
        symlink("nowhere", dir.path().join("dangling")).unwrap();
        let mode = |name: &str| {
            let stat = call::statx(libc::AT_FDCWD, &path(name), libc::AT_SYMLINK_NOFOLLOW);
            stat.map(|stat| stat.stx_mode)
        };
        let names = ["file", "dir", "link", "dangling", "nothing", "file/below", "link/", ""];
        for name in names {
            let older = (chmod_link_before_6_6(&path(name), 0o604), mode(name));
            let newer = (call::chmod_link(&path(name), 0o604), mode(name));
            if newer.0 == Err(Errno::ENOSYS) {
                println!("SKIP kernels_without_fchmodat2: this kernel is one");
                return;
            }
            assert_eq!(older, newer, "{name:?}");
        }
    }
}
