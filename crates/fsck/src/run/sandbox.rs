//! What a checker is kept from: writing to any file but its disk, starting processes, signalling others,
//! flushing the host's disks, and the system calls of an administrator.
//!
//! * Landlock (`landlock(7)`) refuses every change of the file tree; no rule allows one.
//! * A seccomp filter answers `sync` and `syncfs` with success and does nothing, refuses `fork` and
//!   everything that could harm the host. Threads are allowed: xfs_repair needs them.
//!
//! Both are inherited over `execve` and cannot be taken off. Where the kernel has no Landlock, the filter
//! stands alone, and [`Sandbox::is_complete`] says so.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::{c_long, sock_filter, sock_fprog};

use super::spawn::off_fixed_numbers;

/// Every right of Landlock that changes something, of the versions 1 to 5.
const CHANGES_1: u64 = 0x1ffe & !(1 << 2) & !(1 << 3);
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const WRITE_FILE: u64 = 1 << 1;

/// The place of the process id in the filter, filled in by the child.
const PID_INDEX: usize = 4;

/// The restrictions of one thread's checkers.
pub(crate) struct Sandbox {
    ruleset: Option<OwnedFd>,
    filter: Vec<sock_filter>,
}

impl Sandbox {
    /// Prepares the restrictions.
    pub(crate) fn new() -> Sandbox {
        Sandbox { ruleset: ruleset(), filter: filter() }
    }

    /// Whether the file tree is protected too.
    pub(crate) fn is_complete(&self) -> bool {
        self.ruleset.is_some()
    }

    /// Restricts the calling process for ever. Only system calls: safe between `vfork` and `execve`.
    pub(super) fn enter(&self) -> Result<(), i32> {
        // SAFETY: plain system calls on descriptors and memory that outlive them; the filter is copied
        // to the stack because the parent shares its memory with us.
        unsafe {
            if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
                return Err(errno());
            }
            if let Some(ruleset) = &self.ruleset
                && libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) != 0
            {
                return Err(errno());
            }
            let mut filter = [sock_filter { code: 0, jt: 0, jf: 0, k: 0 }; 64];
            let length = self.filter.len().min(filter.len());
            filter[..length].copy_from_slice(&self.filter[..length]);
            filter[PID_INDEX].k = libc::getpid() as u32;
            let program = sock_fprog { len: length as u16, filter: filter.as_mut_ptr() };
            let (mode, flags) =
                (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW);
            if libc::syscall(libc::SYS_seccomp, mode, flags, &program) != 0 {
                return Err(errno());
            }
        }
        Ok(())
    }
}

fn errno() -> i32 {
    // SAFETY: the address of the calling thread's errno is always valid.
    unsafe { *libc::__errno_location() }
}

/// A Landlock ruleset that refuses every change, but writing to `/dev/null`.
fn ruleset() -> Option<OwnedFd> {
    #[repr(C)]
    struct PathBeneath {
        allowed: u64,
        parent: i32,
    }
    // SAFETY: system calls with valid pointers and sizes; the descriptors are owned by us.
    unsafe {
        let none = std::ptr::null::<u64>();
        let version = libc::syscall(libc::SYS_landlock_create_ruleset, none, 0, 1);
        let handled = match version {
            ..=0 => return None,
            1 => CHANGES_1,
            2 => CHANGES_1 | REFER,
            _ => CHANGES_1 | REFER | TRUNCATE,
        };
        let size = size_of::<u64>();
        let fd = libc::syscall(libc::SYS_landlock_create_ruleset, &handled, size, 0);
        if fd < 0 {
            return None;
        }
        let ruleset = off_fixed_numbers(OwnedFd::from_raw_fd(fd as i32)).ok()?;
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
        if null >= 0 {
            let null = OwnedFd::from_raw_fd(null);
            let rule = PathBeneath { allowed: WRITE_FILE, parent: null.as_raw_fd() };
            libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), 1, &rule, 0);
        }
        Some(ruleset)
    }
}

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Calls that send a signal to the process in their first argument.
const SIGNALS: &[c_long] = &[
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
];

/// Calls that no checker of a disk in a file needs, and that could harm the host.
const REFUSED: &[c_long] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_reboot,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_ptrace,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_open,
    libc::SYS_clock_settime,
    libc::SYS_settimeofday,
    libc::SYS_swapon,
    libc::SYS_setns,
    libc::SYS_unshare,
    libc::SYS_socket,
];

/// The program of the filter. Its jumps are short, so answers are repeated rather than shared.
fn filter() -> Vec<sock_filter> {
    const LOAD: u16 = 0x20;
    const JUMP_EQUAL: u16 = 0x15;
    const JUMP_SET: u16 = 0x45;
    const RETURN: u16 = 0x06;
    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;
    const KILL: u32 = 0x8000_0000;
    let put = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    // Offsets in `struct seccomp_data`: the number 0, the architecture 4, the first argument 16.
    let mut out = vec![
        put(LOAD, 0, 0, 4),
        put(JUMP_EQUAL, 1, 0, ARCHITECTURE),
        put(RETURN, 0, 0, KILL),
        put(LOAD, 0, 0, 16),
        // Is the first argument our own process? Then signals are allowed; the number is filled in.
        put(JUMP_EQUAL, SIGNALS.len() as u8 + 1 + SIGNALS.len() as u8, 0, 0),
        put(LOAD, 0, 0, 0),
    ];
    for number in SIGNALS {
        out.push(put(JUMP_EQUAL, 0, 1, *number as u32));
        out.push(put(RETURN, 0, 0, ERRNO | libc::EPERM as u32));
    }
    out.push(put(LOAD, 0, 0, 0));
    for number in [libc::SYS_sync, libc::SYS_syncfs] {
        out.push(put(JUMP_EQUAL, 0, 1, number as u32));
        out.push(put(RETURN, 0, 0, ERRNO));
    }
    out.push(put(JUMP_EQUAL, 0, 1, libc::SYS_clone3 as u32));
    out.push(put(RETURN, 0, 0, ERRNO | libc::ENOSYS as u32));
    #[cfg(target_arch = "x86_64")]
    for number in [libc::SYS_fork, libc::SYS_vfork] {
        out.push(put(JUMP_EQUAL, 0, 1, number as u32));
        out.push(put(RETURN, 0, 0, ERRNO | libc::EAGAIN as u32));
    }
    for number in REFUSED {
        out.push(put(JUMP_EQUAL, 0, 1, *number as u32));
        out.push(put(RETURN, 0, 0, ERRNO | libc::EPERM as u32));
    }
    out.push(put(JUMP_EQUAL, 0, 3, libc::SYS_clone as u32));
    out.push(put(LOAD, 0, 0, 16));
    out.push(put(JUMP_SET, 1, 0, libc::CLONE_THREAD as u32));
    out.push(put(RETURN, 0, 0, ERRNO | libc::EAGAIN as u32));
    out.push(put(RETURN, 0, 0, ALLOW));
    out
}
