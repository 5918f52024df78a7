//! Reads `/proc` and the memory of a stopped thread.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::sample::TEXT_BYTES_MAX;
use crate::target::{self, Target};

/// A stopped thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracee {
    pub(super) tid: i32,
}

impl Tracee {
    pub(super) fn proc(self, what: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{what}", self.tid))
    }

    /// Reads bytes at an address: as many as can be read.
    pub(super) fn read(self, address: u64, buffer: &mut [u8]) -> usize {
        let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
        let remote = libc::iovec { iov_base: address as *mut _, iov_len: buffer.len() };
        // SAFETY: the local vector is the buffer; the remote one is only an address to the kernel.
        let read = unsafe {
            libc::process_vm_readv(self.tid, &raw const local, 1, &raw const remote, 1, 0)
        };
        usize::try_from(read).unwrap_or(0)
    }

    /// Reads a text that ends with NUL or is too long for a path; `None` if it cannot be read.
    pub(super) fn text(self, address: u64) -> Option<Vec<u8>> {
        let mut text = vec![0; TEXT_BYTES_MAX + 1];
        let mut have = 0;
        while have < text.len() {
            // Not across a page that may not be there.
            let at = address.wrapping_add(have as u64);
            let page_rest = 4096 - (at & 4095) as usize;
            let end = text.len().min(have + page_rest);
            let read = self.read(at, &mut text[have..end]);
            if read == 0 {
                return None;
            }
            if let Some(length) = text[have..have + read].iter().position(|byte| *byte == 0) {
                text.truncate(have + length);
                return Some(text);
            }
            have += read;
        }
        Some(text)
    }

    /// Whether a descriptor is open.
    pub(super) fn has_fd(self, fd: i32) -> bool {
        fs::symlink_metadata(self.proc(&format!("fd/{fd}"))).is_ok()
    }

    /// The open descriptors from one number to another.
    pub(super) fn fds(self, first: u32, last: u32) -> Vec<u32> {
        let names = fs::read_dir(self.proc("fd")).into_iter().flatten().flatten();
        let numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter(|fd| (first..=last).contains(fd)).collect()
    }

    /// The process of the thread.
    pub(super) fn process(self) -> i32 {
        let status = fs::read_to_string(self.proc("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
        line.and_then(|number| number.trim().parse().ok()).unwrap_or(self.tid)
    }

    /// The device of the file that is mapped at an address, as mountinfo writes it.
    pub(super) fn mapped_device(self, address: u64) -> Option<String> {
        let maps = fs::read_to_string(self.proc("maps")).ok()?;
        maps.lines().find_map(|line| {
            let mut words = line.split(' ');
            let (start, end) = words.next()?.split_once('-')?;
            let hex = |text: &str| u64::from_str_radix(text, 16).ok();
            if !(hex(start)?..hex(end)?).contains(&address) {
                return None;
            }
            let (major, minor) = words.nth(2)?.split_once(':')?;
            Some(format!("{}:{}", hex(major)?, hex(minor)?))
        })
    }
}

/// The mounts that belong to the watched file systems.
#[derive(Debug)]
pub(super) struct Mounts {
    targets: Vec<Target>,
    /// Whether each mount identifier is one of the watched.
    known: HashMap<u64, bool>,
}

impl Mounts {
    pub(super) fn new(targets: &[Target]) -> Mounts {
        Mounts { targets: targets.to_vec(), known: HashMap::new() }
    }

    /// Forgets what is known, since a mount was made or went: a watched mount point may have
    /// another file system now.
    pub(super) fn changed(&mut self) {
        self.known.clear();
        for target in self.targets.iter_mut().filter(|target| target.is_mount_point) {
            match Target::new(&target.path) {
                Ok(new) if new.is_mount_point => target.device = new.device,
                // Between two mounts there is nothing to watch.
                _ => target.device.clear(),
            }
        }
    }

    /// Whether a mount of the thread's namespace is watched.
    pub(super) fn watched(&mut self, tracee: Tracee, id: u64) -> bool {
        if let Some(watched) = self.known.get(&id) {
            return *watched;
        }
        let text = fs::read(tracee.proc("mountinfo")).unwrap_or_default();
        for mount in target::mounts(&text) {
            self.known.insert(mount.id, self.watches(&mount.device));
        }
        // Pipes and sockets are in no namespace.
        *self.known.entry(id).or_insert(false)
    }

    pub(super) fn watches(&self, device: &str) -> bool {
        self.targets.iter().any(|target| target.device == device)
    }
}

/// Opens a place without any right to its contents.
pub(super) fn open_place(path: &Path) -> Option<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: the path ends with NUL; the new descriptor is owned by nobody else.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd))
    }
}

/// Opens a place below another; within it as a root if asked (openat2(2)).
pub(super) fn open_below(
    base: &OwnedFd,
    path: &[u8],
    follow: bool,
    in_root: bool,
) -> Option<OwnedFd> {
    let path = CString::new(path).ok()?;
    let no_follow = if follow { 0 } else { libc::O_NOFOLLOW };
    // SAFETY: `open_how` is a plain structure for which all zeroes are valid; the path ends with
    // NUL; the new descriptor is owned by nobody else.
    unsafe {
        let mut how: libc::open_how = std::mem::zeroed();
        how.flags = (libc::O_PATH | libc::O_CLOEXEC | no_follow) as u64;
        how.resolve = if in_root { libc::RESOLVE_IN_ROOT } else { 0 };
        let size = size_of::<libc::open_how>();
        let fd =
            libc::syscall(libc::SYS_openat2, base.as_raw_fd(), path.as_ptr(), &raw const how, size);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Reads the text of a symbolic link.
pub(super) fn read_link(base: &OwnedFd, name: &[u8]) -> Option<Vec<u8>> {
    let name = CString::new(name).ok()?;
    let mut target = vec![0; TEXT_BYTES_MAX];
    // SAFETY: the name ends with NUL; the buffer is as long as said.
    let length = unsafe {
        libc::readlinkat(base.as_raw_fd(), name.as_ptr(), target.as_mut_ptr().cast(), target.len())
    };
    target.truncate(usize::try_from(length).ok()?);
    Some(target)
}
