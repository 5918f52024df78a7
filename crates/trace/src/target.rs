//! The file systems that are watched.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::error::{Result, TraceError};

/// A file system, named by a directory in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The directory, absolute and without symbolic links.
    pub path: PathBuf,
    /// The device number of the superblock as `/proc/PID/mountinfo` shows it (of `stat` it can
    /// differ: subvolumes of btrfs have numbers of their own).
    pub device: String,
    /// The type of the file system.
    pub kind: String,
    /// Whether the directory is the root of a mount, so that a new mount there is followed.
    pub is_mount_point: bool,
}

/// One line of mountinfo, as far as it matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) id: u64,
    pub(crate) device: String,
    pub(crate) kind: String,
    pub(crate) point: Vec<u8>,
}

impl Target {
    /// The file system of a directory.
    pub fn new(path: &Path) -> Result<Target> {
        let wrong = |reason: String| TraceError::Target { path: path.to_owned(), reason };
        let absolute = path.canonicalize().map_err(|error| wrong(error.to_string()))?;
        if !absolute.is_dir() {
            return Err(wrong("it is not a directory".to_owned()));
        }
        let id = mount_id(&absolute).ok_or_else(|| wrong("statx shows no mount".to_owned()))?;
        let text = std::fs::read("/proc/self/mountinfo")
            .map_err(|error| wrong(format!("/proc/self/mountinfo: {error}")))?;
        let mount = mounts(&text).into_iter().find(|mount| mount.id == id);
        let mount = mount.ok_or_else(|| wrong(format!("mount {id} is not in mountinfo")))?;
        let is_mount_point = mount.point == absolute.as_os_str().as_bytes();
        Ok(Target { path: absolute, device: mount.device, kind: mount.kind, is_mount_point })
    }
}

/// The identifier of the mount where a path ends; symbolic links are followed.
pub(crate) fn mount_id(path: &Path) -> Option<u64> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    statx_mount(libc::AT_FDCWD, &path, 0)
}

/// The identifier of the mount of an open descriptor.
pub(crate) fn mount_id_of_fd(fd: i32) -> Option<u64> {
    statx_mount(fd, c"", libc::AT_EMPTY_PATH)
}

fn statx_mount(dir: i32, path: &std::ffi::CStr, flags: i32) -> Option<u64> {
    // SAFETY: the buffer is a plain structure for which all zeroes are valid; the path ends with NUL.
    unsafe {
        let mut stat: libc::statx = std::mem::zeroed();
        let flags = flags | libc::AT_NO_AUTOMOUNT | libc::AT_STATX_DONT_SYNC;
        let done = libc::statx(dir, path.as_ptr(), flags, libc::STATX_MNT_ID, &raw mut stat);
        (done == 0 && stat.stx_mask & libc::STATX_MNT_ID != 0).then_some(stat.stx_mnt_id)
    }
}

/// The lines of a mountinfo file (proc_pid_mountinfo(5)).
pub(crate) fn mounts(text: &[u8]) -> Vec<Mount> {
    text.split(|byte| *byte == b'\n').filter_map(mount).collect()
}

fn mount(line: &[u8]) -> Option<Mount> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split(' ');
    let id = words.next()?.parse().ok()?;
    let device = words.nth(1)?.to_owned();
    let point = unescaped(words.nth(1)?);
    let kind = words.skip_while(|word| *word != "-").nth(1)?.to_owned();
    Some(Mount { id, device, kind, point })
}

/// Undoes the octal escapes of mountinfo (spaces and the like).
fn unescaped(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = (*first == b'\\').then(|| tail.get(..3)).flatten();
        let octal = digits.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        (out, rest) = match octal {
            Some(byte) => ([out, vec![byte]].concat(), &tail[3..]),
            None => ([out, vec![*first]].concat(), tail),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_is_read_with_its_escapes() {
        let text = b"36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw\n\
                     37 36 0:44 / /x rw - btrfs none rw\nnonsense\n";
        let found = mounts(text);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].point, b"/mnt 2");
        assert_eq!((found[0].device.as_str(), found[0].kind.as_str()), ("98:0", "ext3"));
        assert_eq!((found[1].id, found[1].kind.as_str()), (37, "btrfs"));
    }

    #[test]
    fn a_file_and_a_missing_directory_are_refused() {
        let wrong = |path: &str| Target::new(Path::new(path)).unwrap_err().to_string();
        assert!(wrong("/proc/self/status").contains("not a directory"));
        assert!(wrong("/no/such/directory").contains("No such file"));
        assert_eq!(Target::new(Path::new("/proc")).unwrap().kind, "proc");
    }
}
