//! *Sometimes* goals: what every operation should answer at least once in a long run.
//!
//! A campaign in which `rename` never met `ENOTEMPTY` has not tested `rename`. The table has, for
//! each operation, success and the errors that its manual page explains and that a file system on
//! Linux gives to the calls that are generated here. What is missing from it, and why: `ENOSPC`,
//! `EDQUOT`, `EIO` and `EROFS` need a disk that is full, limited, broken or read-only; `EFAULT`,
//! `EMFILE`, `ENOMEM` and `EINTR` are not about the file system; `EXDEV`, `ETXTBSY` and `EBUSY` need
//! a second mount or a running program; `EMLINK` needs more links than a small workload makes.
//! `EINVAL` of `read` and `write` comes from direct transfers that are not aligned, which are left
//! out ([`fathom_model::Model::unspecified`]); that of `mmap` from lengths and offsets that the
//! operations here cannot have.

use fathom_core::Errno;

/// Success, and these errors.
type Goals = (&'static str, &'static [Errno]);

use Errno as E;

/// Every operation with the errors that it should meet.
pub const GOALS: &[Goals] = &[
    (
        "open",
        &[
            E::ENOENT,
            E::EEXIST,
            E::ENOTDIR,
            E::EISDIR,
            E::ELOOP,
            E::EACCES,
            E::ENAMETOOLONG,
            E::EINVAL,
            E::EPERM,
            E::ENXIO,
        ],
    ),
    ("close", &[E::EBADF]),
    ("read", &[E::EBADF, E::EISDIR]),
    ("pread", &[E::EBADF, E::EISDIR, E::EINVAL]),
    ("write", &[E::EBADF]),
    ("pwrite", &[E::EBADF, E::EINVAL, E::EFBIG]),
    ("lseek", &[E::EBADF, E::EINVAL, E::ENXIO]),
    (
        "truncate",
        &[
            E::ENOENT,
            E::ENOTDIR,
            E::EISDIR,
            E::EINVAL,
            E::EFBIG,
            E::EACCES,
            E::ELOOP,
            E::ENAMETOOLONG,
            E::EBADF,
        ],
    ),
    ("fallocate", &[E::EBADF, E::EINVAL, E::EOPNOTSUPP, E::EFBIG]),
    ("mkdir", &[E::EEXIST, E::ENOENT, E::ENOTDIR, E::EACCES, E::ELOOP, E::ENAMETOOLONG]),
    (
        "rmdir",
        &[
            E::ENOENT,
            E::ENOTDIR,
            E::ENOTEMPTY,
            E::EINVAL,
            E::EACCES,
            E::EPERM,
            E::ELOOP,
            E::ENAMETOOLONG,
        ],
    ),
    ("unlink", &[E::ENOENT, E::ENOTDIR, E::EISDIR, E::EACCES, E::EPERM, E::ELOOP, E::ENAMETOOLONG]),
    (
        "rename",
        &[
            E::ENOENT,
            E::ENOTDIR,
            E::EISDIR,
            E::ENOTEMPTY,
            E::EEXIST,
            E::EINVAL,
            E::EACCES,
            E::EPERM,
            E::ELOOP,
            E::ENAMETOOLONG,
        ],
    ),
    ("link", &[E::EEXIST, E::ENOENT, E::ENOTDIR, E::EPERM, E::EACCES, E::ELOOP, E::ENAMETOOLONG]),
    ("symlink", &[E::EEXIST, E::ENOENT, E::ENOTDIR, E::EACCES, E::ELOOP, E::ENAMETOOLONG]),
    ("readlink", &[E::EINVAL, E::ENOENT, E::ENOTDIR, E::EACCES, E::ELOOP, E::ENAMETOOLONG]),
    ("mknod", &[E::EEXIST, E::ENOENT, E::ENOTDIR, E::EINVAL, E::EPERM, E::EACCES, E::ENAMETOOLONG]),
    ("chmod", &[E::ENOENT, E::ENOTDIR, E::EPERM, E::EACCES, E::ELOOP, E::EBADF, E::EOPNOTSUPP]),
    ("chown", &[E::ENOENT, E::ENOTDIR, E::EPERM, E::EACCES, E::ELOOP, E::EBADF]),
    ("utimens", &[E::ENOENT, E::ENOTDIR, E::EPERM, E::EACCES, E::EINVAL, E::ELOOP, E::EBADF]),
    (
        "setxattr",
        &[
            E::ENODATA,
            E::EEXIST,
            E::ENOENT,
            E::ENOTDIR,
            E::EPERM,
            E::EACCES,
            E::EINVAL,
            E::E2BIG,
            E::ELOOP,
            E::EBADF,
        ],
    ),
    ("getxattr", &[E::ENODATA, E::ERANGE, E::ENOENT, E::ENOTDIR, E::EACCES, E::ELOOP, E::EBADF]),
    ("listxattr", &[E::ERANGE, E::ENOENT, E::ENOTDIR, E::EACCES, E::ELOOP, E::EBADF]),
    ("removexattr", &[E::ENODATA, E::ENOENT, E::ENOTDIR, E::EPERM, E::EACCES, E::ELOOP, E::EBADF]),
    ("stat", &[E::ENOENT, E::ENOTDIR, E::EACCES, E::ELOOP, E::ENAMETOOLONG, E::EBADF]),
    ("getdents", &[E::EBADF, E::ENOTDIR]),
    ("statfs", &[E::ENOENT, E::ENOTDIR, E::ELOOP, E::EBADF]),
    ("access", &[E::ENOENT, E::ENOTDIR, E::EACCES, E::ELOOP, E::EBADF]),
    ("fsync", &[E::EBADF]),
    ("fdatasync", &[E::EBADF]),
    ("sync", &[]),
    ("syncfs", &[E::EBADF]),
    ("sync_file_range", &[E::EBADF, E::EINVAL]),
    ("mmap_store", &[E::EBADF, E::EACCES]),
    ("mmap_load", &[E::EBADF, E::EACCES]),
    ("copy_file_range", &[E::EBADF, E::EINVAL, E::EISDIR]),
    ("umask", &[]),
    ("identity", &[]),
    ("remount", &[]),
    ("wait", &[]),
    ("server", &[]),
    ("link_slot", &[E::EBADF, E::EEXIST, E::ENOENT, E::EPERM]),
    ("list_piece", &[E::EBADF, E::ENOTDIR, E::EINVAL]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_generate::Call;

    #[test]
    fn every_operation_has_goals() {
        let with_goals: Vec<&str> = GOALS.iter().map(|(op, _)| *op).collect();
        let all: Vec<&str> = Call::ALL.iter().map(|call| call.name()).collect();
        assert_eq!(with_goals, all);
    }
}
