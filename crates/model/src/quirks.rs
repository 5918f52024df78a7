//! Where Linux file systems legitimately differ, as data.
//!
//! A difference has a name here, a value in a profile (`profiles/*.toml`, one comment line with the
//! reason per value) and one place in the code that asks for it. Nothing asks for the name of a file
//! system. All values but the largest link counts were measured on Linux 6.18, with small loop-mounted
//! file systems.

use fathom_core::FsPath;
use fathom_core::flags::{FallocateMode, RenameFlags};
use serde::{Deserialize, Serialize};

use crate::feature::Feature;

/// Named differences. The default is what most Linux file systems do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quirks {
    // Limits of the format.
    /// Directories always have link count 1 (btrfs). Elsewhere: 2 and one for each subdirectory.
    pub dir_nlink_one: bool,
    /// The root directory always has link count 1: it is merged from its layers (overlayfs:
    /// `ovl_getattr` does not count subdirectories over layers).
    pub root_nlink_one: bool,
    /// Most names one inode can have, then `EMLINK` (ext4 65000, btrfs 65535).
    pub link_max: u32,
    /// Longest symbolic link, then `ENAMETOOLONG` (xfs 1023, ext4 one block less one).
    pub symlink_bytes_max: u32,
    /// Largest file, then `EFBIG` (ext4: 2³²-1 blocks).
    pub file_bytes_max: u64,
    /// What the kernel takes for that before it asks the file system (`s_maxbytes`). Larger on ext2,
    /// where the driver also serves the larger files of ext4.
    pub vfs_file_bytes_max: u64,
    /// Most bytes of one attribute's full name and value together, then `ENOSPC` (btrfs: a leaf).
    pub xattr_bytes_max: u32,
    /// Longest value of an attribute, then `ERANGE` (UBIFS: what fits into an inode).
    pub xattr_value_bytes_max: u32,
    /// All attributes of an inode fit for sure while the sum of their costs (`Quirks::xattr_cost`) is not more
    /// than this (ext4: one block).
    pub xattr_total_bytes_sure: u32,
    /// They do not fit for sure, and setting one fails with `ENOSPC`, if the sum is more than this
    /// (ext4: one block and the space left in the inode). In between it depends on the order in
    /// which they were set: [`crate::Model::unspecified`].
    pub xattr_total_bytes_max: u32,
    /// Earliest and latest time in seconds; others are clamped (`timestamp_truncate`).
    pub time_sec_min: i64,
    /// See `time_sec_min`.
    pub time_sec_max: i64,

    /// Set times are cut to multiples of this many nanoseconds (FAT 2 s, ext2 and many servers 1 s).
    pub time_grain_nsec: u64,
    /// Earlier and later times are not set, where the range is found out by trying.
    pub time_used_min: i64,
    /// See `time_used_min`.
    pub time_used_max: i64,
    /// Times that are set on the root directory are kept (FAT: it has no entry that could hold them,
    /// fs/fat/misc.c `fat_truncate_time`; exFAT forgets them at the unmount).
    pub root_times_kept: bool,
    /// Who may write a file may set one of its times to the present one; elsewhere only both at once, one alone being
    /// the owner's business (NFS: SETATTR cannot tell the two apart).
    pub writers_touch_one_time: bool,
    /// Times that are set on symbolic links are kept (NFS-Ganesha: it says so, and does nothing).
    pub link_times_kept: bool,
    /// What is beyond this offset is left alone, where the largest file is found out by trying.
    pub offset_bytes_max: u64,

    // What is supported.
    /// What it lacks altogether: not used, and what depends on it is not compared.
    pub lacks: Vec<Feature>,
    /// `fallocate` without a mode (and with `KEEP_SIZE` alone) works: not with ext2's block map.
    pub fallocate_allocate: bool,
    /// `fallocate` with `KEEP_SIZE` alone works, where it does without a mode (NFS 4.2: its ALLOCATE has no
    /// such argument). Else `EOPNOTSUPP`.
    pub fallocate_keep_size: bool,
    /// The other modes that work; the rest is `EOPNOTSUPP`.
    pub fallocate_modes: FallocateMode,
    /// The flags of `renameat2` that work; with another one it is `EINVAL` (ext2 and most small file
    /// systems: only `RENAME_NOREPLACE`; ocfs2: none).
    pub rename_flags: RenameFlags,
    /// `link` works, else `EPERM` (FAT: an entry is the file).
    pub hard_links: bool,
    /// `symlink` works, else `EPERM` (FAT).
    pub symlinks: bool,
    /// `mknod` makes FIFOs, sockets and devices, else `EPERM` (FAT).
    pub special_files: bool,
    /// Numbers of devices have 8 bits each, then `EINVAL` (minix, udf: `old_valid_dev`).
    pub device_numbers_small: bool,
    /// Attributes `user.*` can be kept, else `EOPNOTSUPP` (not on nilfs2, minix, udf, FAT).
    pub user_xattrs: bool,
    /// The same of `trusted.*`.
    pub trusted_xattrs: bool,
    /// `copy_file_range` works, else `EINVAL` (minix: it cannot splice).
    pub copy_range: bool,
    /// `FALLOC_FL_COLLAPSE_RANGE` and `FALLOC_FL_INSERT_RANGE` need offsets and lengths that are
    /// multiples of this; 0: of the block size (ext4 with bigalloc: of its clusters,
    /// fs/ext4/extents.c `ext4_collapse_range`).
    pub move_align_bytes: u32,
    /// Whiteouts can be made, by `RENAME_WHITEOUT` (else `EINVAL`) and by `mknod` (else `EPERM`): not
    /// on overlayfs, which makes them itself.
    pub whiteouts: bool,
    /// `O_TMPFILE` works, else `EOPNOTSUPP`.
    pub tmpfile: bool,
    /// `O_DIRECT` works, else `EINVAL`.
    pub direct: bool,
    /// `O_DIRECT` works for directories too (f2fs before Linux 6.5 and ocfs2: every mapping has the
    /// operation). Elsewhere `EINVAL`.
    pub direct_directories: bool,
    /// Offsets and lengths of direct transfers must be multiples of this (a disk sector); 1 where the
    /// page cache takes over (tmpfs, btrfs, FUSE).
    pub direct_align_bytes: u32,

    // Behaviour.
    /// `SEEK_HOLE` takes a negative offset as 0, and `SEEK_DATA` while the data is not written back (btrfs:
    /// `find_desired_extent`). Elsewhere `ENXIO`. See [`crate::Model::unspecified`] and docs/FOUND_BUGS.md.
    pub seek_negative_is_zero: bool,
    /// A position in a directory has the limit of a file's, then `EINVAL` (those whose directories use
    /// `generic_file_llseek`: f2fs, minix, FAT, udf and others). Elsewhere it is any number, a cookie.
    pub directory_seek_limited: bool,
    /// `read` of a directory is `EINVAL` (gfs2: its directories have no such operation). Elsewhere
    /// `EISDIR`, as read(2) says.
    pub directory_read_invalid: bool,
    /// What the entries of a listing say of their types (`d_type`).
    pub entry_types: EntryTypes,
    /// A listing may leave a type out (`DT_UNKNOWN`), which getdents(2) allows (NFS: what the server's answer had
    /// no attributes of, such as the parent of the export).
    pub entry_types_may_be_unknown: bool,
    /// A listing in pieces may begin again, or end too early, if an entry is removed before it is listed (tmpfs: fs/libfs.c
    /// `offset_dir_lookup` finds nothing at the place, which means the first entry). See docs/FOUND_BUGS.md.
    pub listing_may_restart: bool,
    /// A `chown` to neither a user nor a group does nothing (FUSE: it has nothing to tell the server).
    /// Elsewhere setuid and setgid go.
    pub chown_nothing_ignored: bool,
    /// Whether `fallocate` drops setuid and setgid cannot be told: it does not where there already is
    /// a hole to be punched (btrfs), and it does although the mode is not supported (ext2). See
    /// [`crate::Model::unspecified`].
    pub fallocate_privileges_vary: bool,
    /// A rename onto a directory with entries fails with `EEXIST` (xfs). Elsewhere `ENOTEMPTY`; rename(2)
    /// allows both.
    pub rename_not_empty_exists: bool,
    /// The whiteout that `RENAME_WHITEOUT` leaves behind takes its group from the setgid directory that
    /// the file moves to (xfs: `xfs_rename_alloc_whiteout` is given the target directory). Elsewhere
    /// from the directory it is in. See docs/FOUND_BUGS.md.
    pub whiteout_group_of_target: bool,
    /// With both `XATTR_CREATE` and `XATTR_REPLACE`, only the first counts (xfs). Elsewhere no attribute
    /// can fulfil both.
    pub xattr_create_wins: bool,
    /// With both `XATTR_CREATE` and `XATTR_REPLACE`, the answer is `EINVAL` (NFS 4.2: SETXATTR has one option of
    /// three).
    pub xattr_both_flags_invalid: bool,
    /// Any name can be that of an attribute: in a namespace that nobody knows, and with nothing behind the
    /// prefix (ntfs3: its handler has the empty prefix, so that it is asked for every name).
    pub xattr_any_name: bool,
    /// `listxattr` shows `trusted.*` also to callers who may not read them (btrfs, FUSE).
    pub trusted_listed_to_all: bool,

    /// `listxattr` counts names that it does not show: the size it tells may be too large, and a buffer
    /// for what it shows too small (overlayfs: `ovl_listxattr` removes its own names from the full list
    /// afterwards). See docs/FOUND_BUGS.md.
    pub listxattr_counts_hidden: bool,

    /// `listxattr` of who may not read the file is refused or shows nothing (NFS 4.2: the server wants to be asked
    /// by somebody who may read; a client that remembers that he may not does not ask). Elsewhere it needs no
    /// permission.
    pub listxattr_of_strangers_varies: bool,

    /// `SEEK_DATA`, and so a walk, does not find data in the last page below 2⁶³ (tmpfs). Nothing is
    /// written there. See docs/FOUND_BUGS.md.
    pub last_page_not_found: bool,

    /// What is stored through a mapping behind the end of a file, within its last page, shows when the file
    /// grows (tmpfs: `shmem_setattr` changes the size and leaves the page alone; jfs, minix, FAT and ext2 by its own
    /// driver until the page is written back; the client of NFS). Nothing is stored there. See docs/FOUND_BUGS.md.
    pub mapped_tail_shows: bool,

    /// A store through a mapping behind the end of a file, within its last page, gives the bytes in front of the
    /// end a block if they were a hole (FUSE: the page is dirty, and is written back up to the end). The space that
    /// `statfs` tells is another one then. Nothing is stored there.
    pub mapped_tail_allocates: bool,

    /// What is mapped through a file that was opened for reading may be as it was then (overlayfs with something
    /// in its lower layers: the file may have been copied up since).
    pub mapped_reads_may_be_old: bool,

    /// `copy_file_range` may stop early, which its manual page allows (everything that copies through
    /// the page cache, in pieces of a pipe: fs/splice.c `splice_direct_to_actor`).
    pub copy_may_be_short: bool,

    /// Attributes and names may be shown as they were up to so many seconds ago, because an answer is
    /// kept for that time (FUSE: `attr_timeout` and `entry_timeout`, 1 s with libfuse's defaults; sshfs
    /// 20 s). What differs is looked at again, past the kernel's memory and after this time, before it
    /// counts as wrong. 0: nothing is ever old.
    pub cache_seconds: u32,
    /// What is only old is no finding.
    pub stale_allowed: bool,
    /// What was closed is seen by whoever opens it, so that size and contents of a file that was opened are
    /// never only old (NFS: nfs(5), "close-to-open cache consistency").
    pub close_to_open: bool,
    /// Which of several reasons a call is refused for, if one of them is that the caller may not, depends on who
    /// looks first (NFS: permissions are the server's business, most other checks are made by both sides).
    pub refusals_vary: bool,
    /// `open` for reading with `O_TRUNC`, whose effect open(2) leaves open, may be refused (NFS 4: the size is
    /// set with an open that may not write, which is `NFS4ERR_OPENMODE`).
    pub truncation_of_readers_varies: bool,
    /// `open` with `O_APPEND` and `O_DIRECT` is refused, after the file was made or before (NFS: the client does
    /// not know the end of a file that others append to).
    pub direct_append_varies: bool,
    /// `access(X_OK)` of FIFOs, sockets and devices is refused, whatever their mode is (NFS: the client asks, and
    /// does not take the answer over).
    pub special_files_never_executable: bool,
    /// `fallocate`, `copy_file_range` and `lseek` for data or holes need the permissions of who calls, beside those
    /// of who opened the file (NFS 4.2: calls of their own, with the credentials of the caller).
    pub ranges_as_caller: bool,
    /// Data is written as who opened the file, so that whether a write drops setuid and setgid depends on him
    /// (NFS: the credentials of the open file go with every WRITE).
    pub writes_as_opener: bool,
    /// Flags of `renameat2` that the file system does not have are refused before or after it is seen that the target
    /// exists (NFS: the client does not look for a target that it does not know).
    pub rename_target_unseen: bool,
    /// Truncation leaves setuid and setgid, which truncate(2) allows (NFS: the client leaves clearing them to the
    /// server, and the kernel's server does not know that it should).
    pub truncation_keeps_privileges: bool,
    /// Whether a truncation to the size that a file has drops setuid and setgid depends on who looks at the size
    /// first (NFS: the client need not tell the server of it).
    pub idle_truncation_varies: bool,
    /// Who serves the file system knows the caller's user and group, and no other groups (FUSE: `struct
    /// fuse_in_header`). Whether a change of contents takes setgid from a file that its group may not execute is not
    /// specified where those would decide it.
    pub other_groups_unknown: bool,
    /// `access(W_OK)` of a directory that the caller may write to but not search is not specified (NFS: the kernel's
    /// server grants neither changing nor adding entries then).
    pub writing_directories_needs_search: bool,

    /// A directory that is sticky and that nobody may search is taken for a referral to another server (Ganesha).
    /// Nobody makes one.
    pub sticky_directories_refer: bool,

    /// A directory that was moved to another one may not be movable again (NFS with two clients: one may know it by
    /// the name from which the other moved it). Nobody tries.
    pub moved_directories_may_be_stale: bool,

    /// A file that loses a name while it is open there gets another, hidden one until it is closed (NFS: the
    /// server may not know what is open; fs/nfs/unlink.c `nfs_sillyrename`). Until then its link count is one
    /// too large, and the directory is not empty.
    pub silly_renames: bool,

    // What can be compared.
    /// `statfs` counts can be compared with the model's (only where the model itself is served).
    pub statfs_comparable: bool,
    /// Otherwise, how far the free bytes that `statfs` tells may be from what is stored (metadata,
    /// preallocation, delayed allocation); 0: they are not compared.
    pub statfs_slack_bytes: u64,
    /// And by a block more for each file and directory that was made: they take none (tmpfs).
    pub statfs_slack_by_entry: bool,
    /// The free inodes that `statfs` tells are exactly those that are not in use, while no file is open.
    pub statfs_counts_files: bool,
    /// The longest name that `statfs` tells (minix 60; FAT 1530, in bytes of any encoding).
    pub statfs_name_bytes: u32,
    /// Device nodes have a size, that of the number that is stored (UBIFS: 4). Elsewhere 0; POSIX leaves it
    /// open, so that it is not compared.
    pub device_sizes: bool,
    /// The numbers of device nodes are lost when they leave the kernel's memory (gfs2, ntfs3). They are not
    /// compared, so that other things can be found. See docs/FOUND_BUGS.md.
    pub device_numbers_lost: bool,
    /// What is never compared, because it already differed when the file system was empty: a path and
    /// what of it (`nlink`, `mode`, …). A campaign fills this in when it starts.
    pub not_compared: Vec<(FsPath, String)>,
    /// What `SEEK_DATA` and `SEEK_HOLE` find inside a file can be compared with the model's (only where
    /// the model itself is served). Elsewhere a hole becomes data when a page of it is mapped or read
    /// or its edge is zeroed, and lseek(2) allows to report no holes at all.
    pub segments_comparable: bool,

    // File systems that are libraries: no kernel lies above them, and each of these makes something
    // unspecified (see [`crate::Model::unspecified`]) that a library leaves to whoever uses it.
    /// Modes and owners are not kept: everything is shown with the usual modes
    /// ([`fathom_core::plain`]).
    pub modes_not_kept: bool,
    /// What the kernel's VFS decides before it asks a file system is not specified: paths that are no
    /// plain names, opening directories, flags beyond creating, truncating and appending, slots that
    /// are closed or open for something else.
    pub without_vfs: bool,
    /// What one slot wrote is seen by others after `fsync` or `close` only, and a file that is open
    /// must not be opened again, renamed, replaced or removed.
    pub open_files_alone: bool,
    /// A rename over an existing name is not supported.
    pub rename_never_replaces: bool,
    /// A hole is stored as zeros, and offsets have fewer bits: what is farther behind the end of a file
    /// than this is left alone.
    pub hole_bytes_max: u64,
    /// A server does not read the end of longer files: nobody makes one.
    pub readable_bytes_max: u64,
    /// Longest name that is used; what longer ones give is not specified.
    pub name_bytes_max: u32,
    /// Only lower-case letters, digits, `-`, `_` and a dot inside are used in names: others are refused
    /// or fold into each other (FAT: fs/fat/namei_vfat.c `vfat_is_used_badchars`).
    pub names_portable: bool,
    /// With `O_APPEND`, a write behind the end of the file stays there. See docs/FOUND_BUGS.md.
    pub append_behind_end_stays: bool,
    /// A write of no bytes behind the end of a file makes the file longer. See docs/FOUND_BUGS.md.
    pub empty_write_extends: bool,

    // The machine, not the file system: the harness fills in what `/proc/sys/fs` and the mount say.
    // The defaults are the kernel's (Documentation/admin-guide/sysctl/fs.rst).
    /// `fs.protected_hardlinks`
    pub protected_hardlinks: bool,
    /// `fs.protected_symlinks`
    pub protected_symlinks: bool,
    /// `fs.protected_fifos`
    pub protected_fifos: u8,
    /// `fs.protected_regular`
    pub protected_regular: u8,
    /// What the calls on extended attributes look at first (fs/xattr.c).
    pub xattr_order: XattrOrder,
    /// `fallocate` with `COLLAPSE_RANGE`, `INSERT_RANGE` or `UNSHARE_RANGE` and another mode is `EINVAL`
    /// (fs/open.c `vfs_fallocate` before Linux 6.12). Since then `EOPNOTSUPP`, as other combinations.
    pub fallocate_conflict_invalid: bool,
    /// `FALLOC_FL_WRITE_ZEROES` is a mode (fs/open.c `vfs_fallocate` since Linux 6.17). Before, it is refused before
    /// anything else is looked at.
    pub fallocate_write_zeroes_known: bool,
    /// mount(8) `nodev`: opening a device is `EACCES`.
    pub nodev: bool,
    /// mount(8) `noexec`: `access` with `X_OK` to a regular file is `EACCES`.
    pub noexec: bool,
}

/// What a listing says of the types of its entries; getdents(2): "not all filesystems" do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EntryTypes {
    /// Every type.
    All,
    /// Those of `.` and `..` alone, which the kernel adds (`dir_emit_dots`: jfs, udf).
    Dots,
    /// None (minix, reiserfs).
    None,
}

/// The modes of fallocate(2) beyond allocating that some file system has.
const FALLOCATE_MODES: FallocateMode = FallocateMode::FALLOC_FL_PUNCH_HOLE
    .union(FallocateMode::FALLOC_FL_ZERO_RANGE)
    .union(FallocateMode::FALLOC_FL_COLLAPSE_RANGE)
    .union(FallocateMode::FALLOC_FL_INSERT_RANGE)
    .union(FallocateMode::FALLOC_FL_UNSHARE_RANGE);

/// The flags of renameat2(2).
const RENAME_FLAGS: RenameFlags = RenameFlags::RENAME_NOREPLACE
    .union(RenameFlags::RENAME_EXCHANGE)
    .union(RenameFlags::RENAME_WHITEOUT);

/// What the calls on extended attributes look at first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum XattrOrder {
    /// Flags, name and size: Linux 6.13 and newer.
    #[default]
    ArgumentsFirst,
    /// The file, but where an attribute is set or removed by path: Linux 6.12 (`path_setxattr` and
    /// `path_removexattr` copy the arguments before `user_path_at`).
    PathLast,
    /// The file. 6.12 is the oldest kernel that was looked at; older ones are taken to be so.
    FileFirst,
}

impl Default for Quirks {
    fn default() -> Self {
        DEFAULT
    }
}

/// What most Linux file systems do.
const DEFAULT: Quirks = Quirks {
    dir_nlink_one: false,
    root_nlink_one: false,
    link_max: u32::MAX,
    symlink_bytes_max: 4095,
    file_bytes_max: i64::MAX as u64,
    vfs_file_bytes_max: i64::MAX as u64,
    xattr_bytes_max: u32::MAX,
    xattr_value_bytes_max: u32::MAX,
    xattr_total_bytes_sure: u32::MAX,
    xattr_total_bytes_max: u32::MAX,
    time_sec_min: i64::MIN,
    time_sec_max: i64::MAX,
    time_grain_nsec: 1,
    time_used_min: i64::MIN,
    time_used_max: i64::MAX,
    root_times_kept: true,
    writers_touch_one_time: false,
    link_times_kept: true,
    offset_bytes_max: i64::MAX as u64,
    lacks: Vec::new(),
    fallocate_allocate: true,
    fallocate_keep_size: true,
    fallocate_modes: FALLOCATE_MODES,
    rename_flags: RENAME_FLAGS,
    hard_links: true,
    symlinks: true,
    special_files: true,
    device_numbers_small: false,
    user_xattrs: true,
    trusted_xattrs: true,
    copy_range: true,
    move_align_bytes: 0,
    whiteouts: true,
    tmpfile: true,
    direct: true,
    direct_directories: false,
    direct_align_bytes: 512,
    seek_negative_is_zero: false,
    directory_seek_limited: false,
    directory_read_invalid: false,
    entry_types: EntryTypes::All,
    entry_types_may_be_unknown: false,
    listing_may_restart: false,
    chown_nothing_ignored: false,
    fallocate_privileges_vary: false,
    rename_not_empty_exists: false,
    whiteout_group_of_target: false,
    xattr_create_wins: false,
    xattr_both_flags_invalid: false,
    xattr_any_name: false,
    trusted_listed_to_all: false,
    listxattr_counts_hidden: false,
    listxattr_of_strangers_varies: false,
    last_page_not_found: false,
    mapped_tail_shows: false,
    mapped_tail_allocates: false,
    mapped_reads_may_be_old: false,
    copy_may_be_short: true,
    cache_seconds: 0,
    stale_allowed: false,
    close_to_open: false,
    refusals_vary: false,
    truncation_of_readers_varies: false,
    direct_append_varies: false,
    special_files_never_executable: false,
    ranges_as_caller: false,
    writes_as_opener: false,
    rename_target_unseen: false,
    truncation_keeps_privileges: false,
    idle_truncation_varies: false,
    silly_renames: false,
    other_groups_unknown: false,
    moved_directories_may_be_stale: false,
    sticky_directories_refer: false,
    writing_directories_needs_search: false,
    statfs_comparable: false,
    statfs_slack_bytes: 0,
    statfs_slack_by_entry: false,
    statfs_counts_files: false,
    statfs_name_bytes: 255,
    device_sizes: false,
    device_numbers_lost: false,
    not_compared: Vec::new(),
    segments_comparable: false,
    modes_not_kept: false,
    without_vfs: false,
    open_files_alone: false,
    rename_never_replaces: false,
    hole_bytes_max: i64::MAX as u64,
    readable_bytes_max: i64::MAX as u64,
    name_bytes_max: 255,
    names_portable: false,
    append_behind_end_stays: false,
    empty_write_extends: false,
    protected_hardlinks: false,
    protected_symlinks: false,
    protected_fifos: 0,
    protected_regular: 0,
    xattr_order: XattrOrder::ArgumentsFirst,
    fallocate_conflict_invalid: false,
    fallocate_write_zeroes_known: true,
    nodev: false,
    noexec: false,
};

impl Quirks {
    /// Whether it has this.
    pub fn has(&self, feature: Feature) -> bool {
        !self.lacks.contains(&feature)
    }

    /// What one attribute takes of [`Quirks::xattr_total_bytes_sure`]: an entry of 16 bytes, then the
    /// name without its namespace and the value, both padded to 4 (fs/ext4/xattr.h
    /// `EXT4_XATTR_LEN`, `EXT4_XATTR_SIZE`).
    pub(crate) fn xattr_cost(name: &[u8], value_bytes: usize) -> usize {
        let suffix_bytes = match name.iter().position(|&byte| byte == b'.') {
            Some(dot) => name.len() - dot - 1,
            None => name.len(),
        };
        16 + suffix_bytes.next_multiple_of(4) + value_bytes.next_multiple_of(4)
    }
}
