//! What a guest's process may do on the host: read, and write in a few directories.
//!
//! A guest's root user acts on the host with the rights of whoever started the guest, through hostfs.
//! Three fences, all of which need no privilege:
//!
//! * **Landlock**: everything can be read, and only the given directories can be written to. No device
//!   nodes anywhere.
//! * **seccomp**: no sockets but local ones and no connections. Calls that change attributes (mode,
//!   owner, times), which Landlock does not know, are answered by the keeper, which does them itself
//!   inside of the given directories and refuses them elsewhere; so are calls for random bytes.
//! * `no_new_privs`: no set-user-id program.

#![allow(unsafe_code, reason = "talks to the kernel; every block says why it is sound")]

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::error::{GuestError, Result};

/// Set to anything, a guest runs where the host has no Landlock: its root user can then change whatever
/// the user can.
pub const UNCONFINED: &str = "FATHOM_GUEST_UNCONFINED";

/// Rights of landlock(7) that change something.
mod right {
    pub(super) const WRITE_FILE: u64 = 1 << 1;
    pub(super) const REMOVE_DIR: u64 = 1 << 4;
    pub(super) const REMOVE_FILE: u64 = 1 << 5;
    pub(super) const MAKE_CHAR: u64 = 1 << 6;
    pub(super) const MAKE_DIR: u64 = 1 << 7;
    pub(super) const MAKE_REG: u64 = 1 << 8;
    pub(super) const MAKE_SOCK: u64 = 1 << 9;
    pub(super) const MAKE_FIFO: u64 = 1 << 10;
    pub(super) const MAKE_BLOCK: u64 = 1 << 11;
    pub(super) const MAKE_SYM: u64 = 1 << 12;
    /// Since version 2.
    pub(super) const REFER: u64 = 1 << 13;
    /// Since version 3.
    pub(super) const TRUNCATE: u64 = 1 << 14;
}

/// Everything that can be forbidden, by version of Landlock.
fn handled(version: i64) -> u64 {
    use right::*;
    let first = WRITE_FILE
        | REMOVE_DIR
        | REMOVE_FILE
        | MAKE_CHAR
        | MAKE_DIR
        | MAKE_REG
        | MAKE_SOCK
        | MAKE_FIFO
        | MAKE_BLOCK
        | MAKE_SYM;
    let refer = if version >= 2 { REFER } else { 0 };
    let truncate = if version >= 3 { TRUNCATE } else { 0 };
    first | refer | truncate
}

/// The first part of `struct landlock_ruleset_attr`, which every version takes.
#[repr(C)]
struct Ruleset {
    handled_access_fs: u64,
}

/// `struct landlock_path_beneath_attr`, which is packed.
#[repr(C, packed)]
struct Beneath {
    allowed_access: u64,
    parent: i32,
}

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;

/// The version of Landlock that the host has; `None` if it has none or it is switched off.
pub fn landlock_version() -> Option<i64> {
    // SAFETY: asked for its version, the call takes no memory.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<Ruleset>(),
            0usize,
            CREATE_RULESET_VERSION,
        )
    };
    (version > 0).then_some(version)
}

/// Rules to which a process is then bound with [`restrict`]; `None` if the host has no Landlock and the
/// user wants a guest nevertheless.
pub(crate) fn landlock(writable: &[PathBuf]) -> Result<Option<OwnedFd>> {
    let Some(version) = landlock_version() else {
        return match std::env::var_os(UNCONFINED) {
            Some(_) => Ok(None),
            None => Err(GuestError::Unconfined),
        };
    };
    let rules = Ruleset { handled_access_fs: handled(version) };
    // SAFETY: the structure lives during the call and its size is given.
    let number = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const rules,
            size_of::<Ruleset>(),
            0u32,
        )
    };
    if number < 0 {
        return Err(GuestError::io("landlock_create_ruleset")(io::Error::last_os_error()));
    }
    // SAFETY: the descriptor is new and nobody else's.
    let ruleset = unsafe { OwnedFd::from_raw_fd(number as RawFd) };
    let inside = handled(version) & !(right::MAKE_CHAR | right::MAKE_BLOCK);
    for path in writable {
        allow(&ruleset, path, inside)?;
    }
    allow(&ruleset, Path::new("/dev/null"), right::WRITE_FILE)?;
    Ok(Some(ruleset))
}

fn allow(ruleset: &OwnedFd, path: &Path, access: u64) -> Result<()> {
    let what = || format!("landlock: {}", path.display());
    let place = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_CLOEXEC)
        .open(path)
        .map_err(GuestError::io(what()))?;
    // A file takes no rights of directories.
    let of_files = right::WRITE_FILE | right::TRUNCATE;
    let is_dir = place.metadata().map_err(GuestError::io(what()))?.is_dir();
    let access = if is_dir { access } else { access & of_files };
    let rule = Beneath { allowed_access: access, parent: place.as_raw_fd() };
    // SAFETY: the structure lives during the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const rule,
            0u32,
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(GuestError::io(what())(io::Error::last_os_error())),
    }
}

/// Binds the calling process and its children to the rules, for good. Between fork and exec: it only
/// makes system calls.
pub(crate) fn restrict(ruleset: RawFd) -> io::Result<()> {
    // SAFETY: takes numbers only.
    match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0u32) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Calls that change attributes, and that the keeper answers.
pub(crate) const ATTRIBUTES: [i64; 9] = [
    libc::SYS_chmod,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_chown,
    libc::SYS_fchown,
    libc::SYS_lchown,
    libc::SYS_fchownat,
    libc::SYS_utimensat,
    libc::SYS_utimes,
];

/// Calls that no guest needs and that could change something: refused.
const REFUSED: [i64; 10] = [
    libc::SYS_connect,
    libc::SYS_utime,
    libc::SYS_futimesat,
    libc::SYS_fchmodat2,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
];

/// The audit number of x86-64.
const ARCH: u32 = 0xc000_003e;
/// Offsets in `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCH_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16;

/// The filter program; with `answers_randomness`, the keeper answers calls for random bytes.
pub(crate) fn filter(answers_randomness: bool) -> Vec<libc::sock_filter> {
    let refuse = |errno: i32| libc::SECCOMP_RET_ERRNO | errno as u32;
    let mut program = vec![
        load(ARCH_AT),
        jump_if(ARCH, 1, 0),
        give(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER_AT),
    ];
    let mut answer = |number: i64, action: u32| {
        program.extend([jump_if(number as u32, 0, 1), give(action)]);
    };
    if answers_randomness {
        answer(libc::SYS_getrandom, libc::SECCOMP_RET_USER_NOTIF);
    }
    ATTRIBUTES.iter().for_each(|number| answer(*number, libc::SECCOMP_RET_USER_NOTIF));
    REFUSED.iter().for_each(|number| answer(*number, refuse(libc::EPERM)));
    program.extend([
        jump_if(libc::SYS_socket as u32, 0, 4),
        load(ARGUMENTS_AT),
        jump_if(libc::AF_UNIX as u32, 1, 0),
        give(refuse(libc::EACCES)),
        give(libc::SECCOMP_RET_ALLOW),
    ]);
    program.push(give(libc::SECCOMP_RET_ALLOW));
    program
}

fn statement(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

fn load(at: u32) -> libc::sock_filter {
    statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0)
}

/// Skips so many statements if the loaded word is `value`, and if not.
fn jump_if(value: u32, then: u8, otherwise: u8) -> libc::sock_filter {
    statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value, then, otherwise)
}

fn give(action: u32) -> libc::sock_filter {
    statement(libc::BPF_RET | libc::BPF_K, action, 0, 0)
}

/// Installs the filter in the calling process and returns the descriptor on which its questions
/// arrive. Between fork and exec: it only makes system calls.
pub(crate) fn install(program: &[libc::sock_filter]) -> io::Result<RawFd> {
    let list = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    let listener = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
    // A call that is being answered is not to be interrupted; hosts before 5.19 do not know that.
    let patient = listener | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // SAFETY: takes numbers only.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for flags in [patient, listener] {
        // SAFETY: the program lives during the call, and the kernel copies it.
        let number = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const list)
        };
        if number >= 0 {
            return Ok(number as RawFd);
        }
    }
    Err(io::Error::last_os_error())
}
