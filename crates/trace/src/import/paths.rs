//! Decides which calls of a log are on the watched mounts: by the names in it, as far as names can
//! tell.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::sample::{FastMap, Touch};

/// Mounts by name; everything counts if there are none.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    prefixes: Vec<Vec<u8>>,
}

impl Mounts {
    pub(super) fn new(mounts: &[PathBuf]) -> Mounts {
        let text = |path: &PathBuf| {
            let bytes = path.as_os_str().as_bytes();
            bytes.strip_suffix(b"/").unwrap_or(bytes).to_vec()
        };
        Mounts { prefixes: mounts.iter().map(text).collect() }
    }

    /// Whether every call counts.
    pub(super) fn everything(&self) -> bool {
        self.prefixes.is_empty()
    }

    /// Whether an absolute path is below a mount, not only beginning like it. `..` is taken by its
    /// letters.
    pub(super) fn touch(&self, path: &[u8]) -> Touch {
        let below = |prefix: &Vec<u8>| {
            path.strip_prefix(prefix.as_slice())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
        };
        if self.everything() || self.prefixes.iter().any(below) {
            Touch::Inside
        } else {
            Touch::Outside
        }
    }
}

/// The touch of the descriptors and of the current directory of each process, followed through a
/// log that does not name them.
#[derive(Debug, Default)]
pub(super) struct Known {
    fds: FastMap<(u64, u64), Touch>,
    cwd: FastMap<u64, Touch>,
}

impl Known {
    pub(super) fn fd(&self, process: u64, fd: i32) -> Touch {
        self.fds.get(&(process, fd as u64)).copied().unwrap_or(Touch::Outside)
    }

    pub(super) fn set_fd(&mut self, process: u64, fd: i32, touch: Touch) {
        self.fds.insert((process, fd as u64), touch);
    }

    pub(super) fn close(&mut self, process: u64, fd: i32) {
        self.fds.remove(&(process, fd as u64));
    }

    pub(super) fn cwd(&self, process: u64) -> Touch {
        self.cwd.get(&process).copied().unwrap_or(Touch::Outside)
    }

    /// Lets a new process start in the directory of its parent, unless it has already said where it
    /// is.
    pub(super) fn inherit_cwd(&mut self, parent: u64, child: u64) {
        let here = self.cwd(parent);
        self.cwd.entry(child).or_insert(here);
    }

    pub(super) fn set_cwd(&mut self, process: u64, touch: Touch) {
        self.cwd.insert(process, touch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sibling_with_the_same_beginning_is_outside() {
        let mounts = Mounts::new(&["/mnt/test/".into()]);
        assert_eq!(mounts.touch(b"/mnt/test"), Touch::Inside);
        assert_eq!(mounts.touch(b"/mnt/test/a"), Touch::Inside);
        assert_eq!(mounts.touch(b"/mnt/test2"), Touch::Outside);
        assert_eq!(Mounts::default().touch(b"/x"), Touch::Inside);
    }
}
