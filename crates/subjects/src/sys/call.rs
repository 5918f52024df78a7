//! The system calls, one line each.
//!
//! They go to the kernel directly: a C library would emulate flags, cache credentials or refuse
//! arguments on its own, and its answer is not the one under test. A descriptor is a bare number,
//! because −1 is a legitimate argument here (the kernel itself shall say `EBADF`).
//!
//! The one `unsafe` block of the table is sound because a pointer argument always comes from a
//! reference or slice that outlives the call, its length from the same slice, and because no call
//! in the table keeps a pointer or touches memory that it was not given.
#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::ffi::CStr;
use std::mem::{size_of, zeroed};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::ptr;

use fathom_core::Errno;
use libc::c_long;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("file offsets are passed as single arguments: a 64-bit Linux is needed");

/// The result of a call.
pub(super) type Answer = Result<u64, Errno>;

/// The descriptor that means "relative to the current directory".
const HERE: RawFd = libc::AT_FDCWD;

/// An argument as the kernel takes it: one machine word.
trait Word {
    fn word(self) -> c_long;
}

macro_rules! words {
    ($($type:ty),*) => {$(impl Word for $type { fn word(self) -> c_long { self as c_long } })*};
}
words!(i32, u32, i64, u64, usize);

impl<T> Word for *const T {
    fn word(self) -> c_long {
        self as c_long
    }
}

impl<T> Word for *mut T {
    fn word(self) -> c_long {
        self as c_long
    }
}

impl Word for &CStr {
    fn word(self) -> c_long {
        self.as_ptr() as c_long
    }
}

/// Passes an optional in-and-out argument: a null pointer if there is none.
impl<T> Word for &mut Option<T> {
    fn word(self) -> c_long {
        self.as_mut().map_or(ptr::null_mut(), |value| value as *mut T) as c_long
    }
}

macro_rules! calls {
    ($($name:ident($($arg:ident: $type:ty),*) = $number:ident($($value:expr),*);)*) => {$(
        pub(super) fn $name($($arg: $type),*) -> Answer {
            // SAFETY: see the module documentation.
            answer(unsafe { libc::syscall(libc::$number $(, ($value).word())*) })
        }
    )*};
}

calls! {
    // Open files.
    read(fd: RawFd, to: &mut [u8]) = SYS_read(fd, to.as_mut_ptr(), to.len());
    pread(fd: RawFd, to: &mut [u8], offset: i64)
        = SYS_pread64(fd, to.as_mut_ptr(), to.len(), offset);
    write(fd: RawFd, from: &[u8]) = SYS_write(fd, from.as_ptr(), from.len());
    pwrite(fd: RawFd, from: &[u8], offset: i64)
        = SYS_pwrite64(fd, from.as_ptr(), from.len(), offset);
    lseek(fd: RawFd, offset: i64, whence: i32) = SYS_lseek(fd, offset, whence);
    fallocate(fd: RawFd, mode: u32, offset: i64, len: i64) = SYS_fallocate(fd, mode, offset, len);
    copy_file_range(from: RawFd, from_offset: &mut Option<i64>,
        to: RawFd, to_offset: &mut Option<i64>, len: u64, flags: u32)
        = SYS_copy_file_range(from, from_offset, to, to_offset, len, flags);
    getdents64(fd: RawFd, to: &mut [u8]) = SYS_getdents64(fd, to.as_mut_ptr(), to.len());
    fsync(fd: RawFd) = SYS_fsync(fd);
    fdatasync(fd: RawFd) = SYS_fdatasync(fd);
    syncfs(fd: RawFd) = SYS_syncfs(fd);
    sync() = SYS_sync();
    sync_file_range(fd: RawFd, offset: i64, len: i64, flags: u32)
        = SYS_sync_file_range(fd, offset, len, flags);

    // Names.
    mkdir(path: &CStr, mode: u32) = SYS_mkdirat(HERE, path, mode);
    mknod(path: &CStr, mode: u32, dev: u32) = SYS_mknodat(HERE, path, mode, dev);
    unlink(path: &CStr, flags: i32) = SYS_unlinkat(HERE, path, flags);
    rename(from: &CStr, to: &CStr, flags: u32) = SYS_renameat2(HERE, from, HERE, to, flags);
    link(from: &CStr, to: &CStr, flags: i32) = SYS_linkat(HERE, from, HERE, to, flags);
    link_fd(fd: RawFd, to: &CStr) = SYS_linkat(fd, c"".as_ptr(), HERE, to, libc::AT_EMPTY_PATH);
    symlink(target: &CStr, path: &CStr) = SYS_symlinkat(target, HERE, path);
    readlink(dir: RawFd, path: &CStr, to: &mut [u8])
        = SYS_readlinkat(dir, path, to.as_mut_ptr(), to.len());

    // Attributes.
    truncate(path: &CStr, len: i64) = SYS_truncate(path, len);
    ftruncate(fd: RawFd, len: i64) = SYS_ftruncate(fd, len);
    chmod(path: &CStr, mode: u32) = SYS_fchmodat(HERE, path, mode);
    chmod_link(path: &CStr, mode: u32) = SYS_fchmodat2(HERE, path, mode, libc::AT_SYMLINK_NOFOLLOW);
    fchmod(fd: RawFd, mode: u32) = SYS_fchmod(fd, mode);
    chown(path: &CStr, uid: u32, gid: u32, flags: i32) = SYS_fchownat(HERE, path, uid, gid, flags);
    fchown(fd: RawFd, uid: u32, gid: u32) = SYS_fchown(fd, uid, gid);
    utimens(path: &CStr, times: &[libc::timespec; 2], flags: i32)
        = SYS_utimensat(HERE, path, times.as_ptr(), flags);
    futimens(fd: RawFd, times: &[libc::timespec; 2])
        = SYS_utimensat(fd, ptr::null::<u8>(), times.as_ptr(), 0);
    access(dir: RawFd, path: &CStr, mode: u32, flags: i32) = SYS_faccessat2(dir, path, mode, flags);

    // Extended attributes: by path, of a symbolic link itself, of an open file.
    setxattr(path: &CStr, name: &CStr, value: &[u8], flags: u32)
        = SYS_setxattr(path, name, value.as_ptr(), value.len(), flags);
    lsetxattr(path: &CStr, name: &CStr, value: &[u8], flags: u32)
        = SYS_lsetxattr(path, name, value.as_ptr(), value.len(), flags);
    fsetxattr(fd: RawFd, name: &CStr, value: &[u8], flags: u32)
        = SYS_fsetxattr(fd, name, value.as_ptr(), value.len(), flags);
    getxattr(path: &CStr, name: &CStr, to: &mut [u8])
        = SYS_getxattr(path, name, to.as_mut_ptr(), to.len());
    lgetxattr(path: &CStr, name: &CStr, to: &mut [u8])
        = SYS_lgetxattr(path, name, to.as_mut_ptr(), to.len());
    fgetxattr(fd: RawFd, name: &CStr, to: &mut [u8])
        = SYS_fgetxattr(fd, name, to.as_mut_ptr(), to.len());
    listxattr(path: &CStr, to: &mut [u8]) = SYS_listxattr(path, to.as_mut_ptr(), to.len());
    llistxattr(path: &CStr, to: &mut [u8]) = SYS_llistxattr(path, to.as_mut_ptr(), to.len());
    flistxattr(fd: RawFd, to: &mut [u8]) = SYS_flistxattr(fd, to.as_mut_ptr(), to.len());
    removexattr(path: &CStr, name: &CStr) = SYS_removexattr(path, name);
    lremovexattr(path: &CStr, name: &CStr) = SYS_lremovexattr(path, name);
    fremovexattr(fd: RawFd, name: &CStr) = SYS_fremovexattr(fd, name);

    // The calling thread. Through the C library these would change every thread of the process.
    umask(mask: u32) = SYS_umask(mask);
    fchdir(fd: RawFd) = SYS_fchdir(fd);
    setgroups(groups: &[u32]) = SYS_setgroups(groups.len(), groups.as_ptr());
    setresgid(real: u32, effective: u32, saved: u32) = SYS_setresgid(real, effective, saved);
    setresuid(real: u32, effective: u32, saved: u32) = SYS_setresuid(real, effective, saved);
}

fn answer(returned: c_long) -> Answer {
    if returned != -1 {
        return Ok(returned as u64);
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io(&error).expect("a failed system call sets errno"))
}

/// Calls `openat(2)` relative to the current directory.
pub(super) fn open(path: &CStr, flags: i32, mode: u32) -> Result<OwnedFd, Errno> {
    open_at(HERE, path, flags, mode)
}

/// Calls `openat(2)`; close-on-exec is added (no result shows it).
pub(super) fn open_at(dir: RawFd, path: &CStr, flags: i32, mode: u32) -> Result<OwnedFd, Errno> {
    let flags = flags | libc::O_CLOEXEC;
    // SAFETY: the path is NUL-terminated and outlives the call.
    let fd = answer(unsafe { libc::syscall(libc::SYS_openat, dir, path.as_ptr(), flags, mode) })?;
    // SAFETY: the kernel has just given this descriptor to us and to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}

/// Calls `openat2(2)` with `O_PATH` and `RESOLVE_BENEATH`: resolves a path without touching what it
/// names.
pub(super) fn probe_beneath(path: &CStr, flags: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: open_how is a plain structure of integers; all zeros is its documented default.
    let mut how: libc::open_how = unsafe { zeroed() };
    how.flags = (flags | libc::O_PATH | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_BENEATH;
    let size = size_of::<libc::open_how>();
    // SAFETY: both pointers outlive the call, and the size is that of the structure.
    let fd = unsafe { libc::syscall(libc::SYS_openat2, HERE, path.as_ptr(), &raw const how, size) };
    // SAFETY: the kernel has just given this descriptor to us and to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(answer(fd)? as RawFd) })
}

/// Calls `close(2)`; no file is descriptor −1.
pub(super) fn close(file: Option<OwnedFd>) -> Answer {
    let fd = file.map_or(-1, IntoRawFd::into_raw_fd);
    // SAFETY: the descriptor was owned by us and is given up here (or is −1).
    answer(unsafe { libc::syscall(libc::SYS_close, fd) })
}

/// Calls `statx(2)` for the fields that `stat(2)` returns.
pub(super) fn statx(dir: RawFd, path: &CStr, flags: i32) -> Result<libc::statx, Errno> {
    // SAFETY: a plain structure of integers.
    let mut stat: libc::statx = unsafe { zeroed() };
    let to = &raw mut stat;
    // SAFETY: the path is NUL-terminated, `stat` has the size that the kernel writes.
    answer(unsafe {
        libc::syscall(libc::SYS_statx, dir, path.as_ptr(), flags, libc::STATX_BASIC_STATS, to)
    })?;
    Ok(stat)
}

/// Calls `statfs(2)`.
pub(super) fn statfs(path: &CStr) -> Result<libc::statfs, Errno> {
    // SAFETY: a plain structure of integers.
    let mut stat: libc::statfs = unsafe { zeroed() };
    // SAFETY: the path is NUL-terminated, `stat` has the size that the kernel writes.
    answer(unsafe { libc::syscall(libc::SYS_statfs, path.as_ptr(), &raw mut stat) })?;
    Ok(stat)
}

/// Calls `fstatfs(2)`.
pub(super) fn fstatfs(fd: RawFd) -> Result<libc::statfs, Errno> {
    // SAFETY: a plain structure of integers.
    let mut stat: libc::statfs = unsafe { zeroed() };
    // SAFETY: `stat` has the size that the kernel writes.
    answer(unsafe { libc::syscall(libc::SYS_fstatfs, fd, &raw mut stat) })?;
    Ok(stat)
}
