//! Finds the file system that a path of a stopped thread leads to, from outside of the thread.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use super::tracee::{Mounts, Tracee, open_below, open_place, read_link};
use crate::sample::{AT_FDCWD, Touch};
use crate::target;

/// Symbolic links that are followed: as many as the kernel follows (MAXSYMLINKS of its
/// `include/linux/namei.h`).
const LINKS_MAX: usize = 40;

/// The treatment of the last component of a path by a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Last {
    /// Whether a symbolic link is followed.
    pub(super) follow: bool,
    /// Whether it is only a name in its directory.
    pub(super) parent: bool,
    /// Whether the call may not leave the base (openat2(2)): what it cannot reach belongs to the
    /// base.
    pub(super) confined: bool,
}

/// The file system of an open descriptor.
pub(super) fn touch_fd(tracee: Tracee, mounts: &mut Mounts, fd: i32) -> Touch {
    match target::mount_id(&tracee.proc(&format!("fd/{fd}"))) {
        Some(id) => touch_mount(tracee, mounts, Some(id)),
        None if tracee.has_fd(fd) => Touch::Outside,
        None => Touch::Nothing,
    }
}

/// The file system of the working directory.
pub(super) fn touch_cwd(tracee: Tracee, mounts: &mut Mounts) -> Touch {
    touch_mount(tracee, mounts, target::mount_id(&tracee.proc("cwd")))
}

/// The file system of a path relative to a directory descriptor.
pub(super) fn touch_path(
    tracee: Tracee,
    mounts: &mut Mounts,
    dirfd: i32,
    path: &[u8],
    last: Last,
) -> Touch {
    let base = match dirfd {
        AT_FDCWD => tracee.proc("cwd"),
        fd => tracee.proc(&format!("fd/{fd}")),
    };
    let base = if path.starts_with(b"/") { tracee.proc("root") } else { base };
    let Some(base_fd) = open_place(&base) else {
        return Touch::Nothing;
    };
    let base_mount = target::mount_id_of_fd(base_fd.as_raw_fd());
    if path.is_empty() || last.confined {
        return touch_mount(tracee, mounts, base_mount);
    }
    let (start, path, in_root) = seen_from_here(tracee, base_fd, &base, path);
    let found = walk(&start, path, last, in_root);
    touch_mount(tracee, mounts, found.or(base_mount))
}

fn touch_mount(tracee: Tracee, mounts: &mut Mounts, id: Option<u64>) -> Touch {
    match id {
        Some(id) if mounts.watched(tracee, id) => Touch::Inside,
        Some(_) => Touch::Outside,
        None => Touch::Unresolved,
    }
}

/// Chooses a start and a path so that we arrive where the thread would: its root may be another
/// one, and `/proc/self` is not the same for us.
fn seen_from_here(
    tracee: Tracee,
    base: OwnedFd,
    base_path: &std::path::Path,
    path: &[u8],
) -> (OwnedFd, Vec<u8>, bool) {
    let root = fs::read_link(tracee.proc("root")).unwrap_or_default();
    if root.as_os_str() == "/" {
        return (base, without_self(tracee, path), false);
    }
    let Some(root_fd) = open_place(&tracee.proc("root")) else {
        return (base, path.to_vec(), false);
    };
    if path.starts_with(b"/") {
        return (root_fd, path.to_vec(), true);
    }
    let here = fs::read_link(base_path).unwrap_or_default();
    match here.strip_prefix(&root) {
        Ok(inner) => (root_fd, [inner.as_os_str().as_bytes(), b"/", path].concat(), true),
        // A descriptor from outside of the root: the kernel does not confine it either.
        Err(_) => (base, path.to_vec(), false),
    }
}

/// Replaces `/proc/self` and what leads there by what the thread would see.
fn without_self(tracee: Tracee, path: &[u8]) -> Vec<u8> {
    let process = tracee.process();
    let replaced = [
        ("/proc/self/", format!("/proc/{process}/")),
        ("/proc/thread-self/", format!("/proc/{process}/task/{}/", tracee.tid)),
        ("/dev/fd/", format!("/proc/{process}/fd/")),
    ];
    for (from, to) in &replaced {
        if let Some(rest) = path.strip_prefix(from.as_bytes()) {
            return [to.as_bytes(), rest].concat();
        }
    }
    path.to_vec()
}

/// Finds the mount where a path ends or where the walk fails.
fn walk(start: &OwnedFd, mut path: Vec<u8>, last: Last, in_root: bool) -> Option<u64> {
    if last.parent {
        let (dir, _) = split(&path);
        path = dir.to_vec();
    }
    let follow = last.follow || last.parent;
    for _ in 0..LINKS_MAX {
        if let Some(fd) = open_below(start, &path, follow, in_root) {
            return target::mount_id_of_fd(fd.as_raw_fd());
        }
        // The last component is missing, or it is a link that leads nowhere.
        let (dir, name) = split(&path);
        let dir = dir.to_vec();
        let Some(dir_fd) = open_below(start, &dir, true, in_root) else {
            if dir == path {
                return None;
            }
            path = dir;
            continue;
        };
        match read_link(&dir_fd, name) {
            Some(target) if target.starts_with(b"/") => path = target,
            Some(target) => path = [dir.as_slice(), b"/", &target].concat(),
            None => return target::mount_id_of_fd(dir_fd.as_raw_fd()),
        }
    }
    None
}

/// Splits a path into directory and last component; the directory of a single name is ".".
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    let start = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
    let dir = match &path[..start] {
        b"" if path.starts_with(b"/") => b"/",
        b"" => b".",
        dir => dir,
    };
    (dir, &path[start..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_split_as_the_kernel_splits_them() {
        let parts = |path: &'static str| {
            let (dir, name) = split(path.as_bytes());
            (String::from_utf8_lossy(dir).into_owned(), String::from_utf8_lossy(name).into_owned())
        };
        let expect = |dir: &str, name: &str| (dir.to_owned(), name.to_owned());
        assert_eq!(parts("a"), expect(".", "a"));
        assert_eq!(parts("a/b"), expect("a/", "b"));
        assert_eq!(parts("/a"), expect("/", "a"));
        assert_eq!(parts("/a/b//"), expect("/a/", "b"));
        assert_eq!(parts("/"), expect("/", ""));
    }
}
