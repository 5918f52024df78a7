//! [`Guard`]: an operation never leaves the directory of its subject, never reaches a driver, never
//! hangs.
//!
//! A directory of the host is not a sandbox: an absolute path, a `..` too many or a symbolic link
//! could lead anywhere. So every path is checked before the call. Most need no system call: a
//! relative path without `..` stays below the root as long as every symbolic link in the subject is
//! such a path too, and all links were made by us. Otherwise `openat2(2)` with `RESOLVE_BENEATH`
//! resolves the path first, and `EXDEV` is its word for "leaves".

use std::ffi::CStr;
use std::os::fd::RawFd;

use fathom_core::flags::{Access, OpenFlags, RenameFlags};
use fathom_core::{Errno, FsBytes, FsPath, Kind, Mode};

use super::call;
use super::path::CPath;

/// The reason why an operation is not executed. Becomes a [`fathom_core::HarnessFault`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The path would resolve to something outside.
    #[error("the path {0:?} leaves the directory of the subject")]
    Escape(FsPath),
    /// It cannot be told whether the path stays inside.
    #[error("whether {0:?} stays inside the subject cannot be told: openat2(2) gave {1}")]
    NoProbe(FsPath, Errno),
    /// The operation would reach a device driver of the host.
    #[error(
        "{path:?} is the device {major}:{minor}, and opening it could reach a driver of the host"
    )]
    Device {
        /// The path of the device node.
        path: FsPath,
        /// The number of its driver.
        major: u32,
        /// The number of the device among the driver's.
        minor: u32,
    },
    /// The operation would wait for another process.
    #[error("the call could wait for ever on a FIFO: use O_NONBLOCK")]
    Blocks,
    /// The string has a NUL inside, which no C string can hold.
    #[error("{0:?} contains a NUL byte")]
    Nul(FsBytes),
    /// The operation would move more data than one operation can.
    #[error("{len} bytes in one operation are too many: at most {max} are possible")]
    TooLong {
        /// The length that was asked for.
        len: u64,
        /// The greatest length.
        max: usize,
    },
    /// The subject has not the capability that the operation needs.
    #[error("the subject cannot do that here (capability {0:?})")]
    Incapable(fathom_core::Capability),
    /// Switching identities failed.
    #[error("{0}")]
    Identity(String),
}

/// The treatment of a symbolic link at the end of a path by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Last {
    /// The call goes on to the target of the link.
    Follow,
    /// The call works on the link, or on the name.
    Keep,
}

/// The contents of a subject that make a check necessary before a path is used.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guard {
    /// Whether a symbolic link is absolute or has `..` in it.
    climbing_link: bool,
    /// Whether there is a FIFO or a device.
    special_file: bool,
}

impl Guard {
    /// Makes a guard for a directory of which nothing is known: it checks everything.
    pub(crate) fn wary() -> Guard {
        Guard { climbing_link: true, special_file: true }
    }

    /// Checks that a path stays inside; returns it for the kernel.
    pub(super) fn within(&self, path: &FsPath, last: Last) -> Result<CPath, Refusal> {
        let c_path = CPath::new(path)?;
        if !self.climbing_link && !climbs(path) {
            return Ok(c_path);
        }
        let flags = if last == Last::Follow { 0 } else { libc::O_NOFOLLOW };
        loop {
            match call::probe_beneath(c_path.c(), flags) {
                Err(Errno::EXDEV) => return Err(Refusal::Escape(path.clone())),
                // openat2(2): a rename elsewhere on the host raced with `..`; try again.
                Err(Errno::EAGAIN) => {}
                // An old kernel, or a sandbox that filters the call.
                Err(errno @ (Errno::ENOSYS | Errno::EPERM)) => {
                    return Err(Refusal::NoProbe(path.clone(), errno));
                }
                // Whatever else is wrong with the path, the call itself shall say.
                Ok(_) | Err(_) => return Ok(c_path),
            }
        }
    }

    /// Notes a symbolic link that is about to be made.
    pub(super) fn note_symlink(&mut self, target: &FsBytes) {
        self.climbing_link |= climbs(target);
    }

    /// Notes a node that is about to be made.
    pub(super) fn note_node(&mut self, mode: Mode) {
        let kind = Kind::of_mode(mode.0);
        self.special_file |= matches!(kind, Some(Kind::Fifo | Kind::Char | Kind::Block));
    }

    /// Notes a rename: a whiteout is a character device.
    pub(super) fn note_rename(&mut self, flags: RenameFlags) {
        self.special_file |= flags.contains(RenameFlags::RENAME_WHITEOUT);
    }

    /// Checks that opening a path cannot do harm.
    pub(super) fn check_open(
        &self,
        path: &FsPath,
        c: &CStr,
        flags: OpenFlags,
    ) -> Result<(), Refusal> {
        if !self.special_file || flags.contains(OpenFlags::O_PATH) {
            return Ok(());
        }
        let follow =
            if last_of_open(flags) == Last::Follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
        let Ok(stat) = call::statx(libc::AT_FDCWD, c, follow) else {
            return Ok(());
        };
        let (major, minor) = (stat.stx_rdev_major, stat.stx_rdev_minor);
        match Kind::of_mode(stat.stx_mode.into()) {
            // fifo(7): opening for both reading and writing never waits in Linux.
            Some(Kind::Fifo)
                if !flags.contains(OpenFlags::O_NONBLOCK)
                    && flags.access() != Access::ReadWrite =>
            {
                Err(Refusal::Blocks)
            }
            Some(kind @ (Kind::Char | Kind::Block)) if !is_driverless(kind, major) => {
                Err(Refusal::Device { path: path.clone(), major, minor })
            }
            _ => Ok(()),
        }
    }

    /// Whether an open file is a FIFO (asks the kernel only if there are any).
    pub(super) fn is_fifo(&self, fd: RawFd) -> bool {
        self.special_file
            && call::statx(fd, c"", libc::AT_EMPTY_PATH)
                .is_ok_and(|stat| Kind::of_mode(stat.stx_mode.into()) == Some(Kind::Fifo))
    }
}

/// The treatment of the last link by `open(2)`: `O_NOFOLLOW`, or `O_EXCL` with `O_CREAT`, does not
/// follow.
pub(super) fn last_of_open(flags: OpenFlags) -> Last {
    let exclusive = OpenFlags::O_CREAT | OpenFlags::O_EXCL;
    if flags.contains(OpenFlags::O_NOFOLLOW) || flags.contains(exclusive) {
        return Last::Keep;
    }
    Last::Follow
}

/// Whether a path, by its look alone, could lead out of the directory where it starts.
fn climbs(path: &FsBytes) -> bool {
    let path = path.as_bytes();
    path.first() == Some(&b'/') || path.split(|&byte| byte == b'/').any(|part| part == b"..")
}

/// Whether a device number belongs to nobody: 0 (a whiteout) and those that the kernel's list of
/// devices (Documentation/admin-guide/devices.txt) leaves for local and experimental use, unless
/// somebody on this host does use them. Opening such a node gives `ENXIO` and cannot load a module.
fn is_driverless(kind: Kind, major: u32) -> bool {
    match major {
        0 => true,
        60..=63 | 120..=127 => !is_registered(kind, major),
        _ => false,
    }
}

/// Whether proc(5) `/proc/devices` lists the number. If it cannot be read: yes.
fn is_registered(kind: Kind, major: u32) -> bool {
    let Ok(text) = std::fs::read_to_string("/proc/devices") else {
        return true;
    };
    let (chars, blocks) = text.split_once("Block devices:").unwrap_or((&text, ""));
    let section = if kind == Kind::Block { blocks } else { chars };
    let major = major.to_string();
    section.lines().any(|line| line.split_whitespace().next() == Some(&major))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn climbing_paths_are_told_by_their_look() {
        for path in ["/", "/a", "..", "../a", "a/..", "a/../b", "a//../b"] {
            assert!(climbs(&path.into()), "{path}");
        }
        for path in ["", ".", "a", "a/b", "..a", "a..", "a/...", "./a"] {
            assert!(!climbs(&path.into()), "{path}");
        }
    }

    #[test]
    fn devices_in_use_are_not_driverless() {
        assert!(is_driverless(Kind::Char, 0));
        assert!(!is_driverless(Kind::Char, 1), "1:3 is /dev/null");
        assert!(!is_driverless(Kind::Char, 10));
        assert!(is_registered(Kind::Char, 1));
    }
}
