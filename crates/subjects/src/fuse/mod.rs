//! RefFS: the reference file system served through FUSE.
//!
//! [`Mount`] mounts it and serves it from this process, [`serve()`] does so until a signal comes,
//! [`Snapshots`] saves and restores the state of a mounted one, [`ReffsSubject`] executes operations on
//! one of its own.
//!
//! # What the kernel may remember
//!
//! RefFS exists to show what the model says, so as little as possible stands in between:
//!
//! * *Names and attributes: nothing.* Both timeouts are zero; every path walk and every `stat` asks.
//!   An operation on one name that changes what another name shows (hard links, link counts and
//!   times of directories), a mutant that changes a file nobody touched, and a restored state are
//!   all seen by the next call. It also makes RESTORE independent of the number of files: there are
//!   no entries and attributes to invalidate. READDIRPLUS would gain nothing and is not offered.
//!   The option `remembered=SECONDS` is for a server of NFS, which asks three times as often as it
//!   has to: then RESTORE invalidates everything that the kernel knows, and files that are removed
//!   while they are open are gone.
//! * *Pages: while a file is open.* Reading and writing go through the page cache, so that `mmap`
//!   works and agrees with `read` and `write`; opening a file drops its pages (no
//!   `FOPEN_KEEP_CACHE`); RESTORE drops those of open files.
//! * *Delayed writes: no* (no `FUSE_WRITEBACK_CACHE`). The kernel would report `ENOSPC` long after
//!   the write and make up sizes and times itself. Only stores to mapped pages are delayed, as on
//!   every file system, until `msync`, `munmap` or `close`.
//! * *Permissions: the kernel's* (`default_permissions`), from the attributes that it has just asked
//!   for. `access(2)` is answered by it too. Setuid and setgid bits are cleared by us
//!   (`FUSE_HANDLE_KILLPRIV_V2`).
//!
//! # What FUSE cannot carry
//!
//! * `O_TMPFILE`: the protocol can, fuser 0.18 cannot; programs see `EOPNOTSUPP`.
//! * `fallocate` modes other than plain, `KEEP_SIZE`, `PUNCH_HOLE` and `ZERO_RANGE`: the kernel
//!   answers `EOPNOTSUPP` (fuse_file_fallocate, fs/fuse/file.c).
//! * `chown` to neither user nor group, which elsewhere clears setuid: the server sees a request
//!   without a change, from anybody, and ignores it.
//! * Access control lists only with `-o acl`: the kernel then asks for two attributes at every check
//!   of permissions, because it may remember nothing.
//! * `syncfs` and `sync`: the kernel writes back its pages and passes neither on (fuse_sync_fs,
//!   fs/fuse/inode.c, does so for virtiofs only). Nothing here needs them: what was answered is kept.
//! * The flags of `chattr` are kept and obeyed (`node_flags`), but `statx` cannot show them.
//! * `O_PATH` descriptors, working directories, open FIFOs and devices: the server does not hear of
//!   them. They do not keep what is removed; its attributes can still be read and set, anything else
//!   is `ESTALE`.
//! * Access times: a read that is answered from the page cache is not seen. Those that are follow
//!   [`AccessTimes`], `O_NOATIME`, `chattr +A` and read-only mounts.
//! * A mount that another one makes of ours (`mount --bind -o ro`, `mount -o remount,noatime`): its
//!   flags are the kernel's alone.
//!
//! # Going back with files open
//!
//! After RESTORE an open file, directory or working directory goes on with the same inode if the
//! restored state has it, whatever its name is there; positions stay. If not, calls on it fail with
//! `ESTALE`. (A state has a file without a name only as long as it stays open.) States that were
//! LOADed share no inode with others except the root directory.
//!
//! Stores to mapped pages that the server has not seen go to the state that is being left. The
//! kernel learns the new size of an open file with the next `stat` of it or `read` at its end: until
//! then `O_APPEND` appends at the old one, and a mapping ends there.

mod acl;
mod attach;
mod caller;
mod change;
mod clock;
mod control;
mod convert;
mod error;
mod listing;
mod mount;
mod node_flags;
mod options;
mod pickle;
mod serve;
mod server;
mod snapshot;
mod state;
mod subject;
mod watchdog;

pub use attach::remount;
pub use error::MountError;
pub use mount::Mount;
pub use options::{AccessTimes, Options};
pub use serve::{Ended, serve};
pub use snapshot::{SnapshotError, Snapshots};
pub(crate) use subject::stay_on_one_processor;
pub use subject::{ReffsBackend, ReffsSubject};
