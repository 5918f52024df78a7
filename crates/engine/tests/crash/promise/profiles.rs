//! Profiles of file systems of Linux: that the format can say what they promise.

use fathom_block::Guarantee;
use fathom_block::backed::{Claim, Makes};

/// What POSIX promises: fsync(2), fdatasync(2), open(2) O_SYNC and O_DSYNC, msync(2). "Calling fsync()
/// does not necessarily ensure that the entry in the directory containing the file has also reached
/// disk" (fsync(2)). sync_file_range(2): "this system call does not write out file metadata … there are no
/// guarantees that the data will be available after a crash".
pub(crate) const POSIX: &str = r#"
    order = { is = "object", cite = "POSIX.1-2017, fsync: nothing is said about other files" }
    data = { is = "ordered", cite = "POSIX.1-2017, write: reads return what was written" }
    [durable]
    fsync = { is = "file", cite = "fsync(2)" }
    fdatasync = { is = "data", cite = "fdatasync(2)" }
    fsync_dir = { is = "entries", cite = "fsync(2): an explicit fsync() on a file descriptor for the directory" }
    o_sync = { is = "file", cite = "open(2), O_SYNC: as though each write(2) was followed by fsync(2)" }
    o_dsync = { is = "data", cite = "open(2), O_DSYNC: as though followed by fdatasync(2)" }
    msync = { is = "data", cite = "msync(2)" }
    sync_file_range = { is = "nothing", cite = "sync_file_range(2), Warning" }
"#;

/// ext4, data=ordered: Documentation/admin-guide/ext4.rst: "the associated data blocks are written first";
/// auto_da_alloc: "in the default data=ordered mode, the data blocks of the new file are forced to disk
/// before the rename() operation is committed". One journal: an fsync of a file waits for the transaction
/// of the last change of its inode (fs/ext4/fsync.c, ext4_fsync_journal: i_sync_tid), which may have been
/// committed long ago; one of a directory commits what is running (there: ext4_force_commit).
pub(crate) const EXT4: &str = r#"
    order = { is = "metadata_prefix", cite = "Documentation/filesystems/ext4/journal.rst" }
    data = { is = "ordered", cite = "Documentation/admin-guide/ext4.rst, Data Mode: ordered mode" }
    reference = { is = "ext4", cite = "crates/model/profiles/ext4.toml" }
    [durable]
    fsync = { is = "log", cite = "fs/ext4/fsync.c, ext4_fsync_journal: i_sync_tid" }
    fdatasync = { is = "data", cite = "fs/ext4/fsync.c, ext4_fsync_journal: i_datasync_tid" }
    fsync_dir = { is = "metadata", cite = "fs/ext4/fsync.c, ext4_fsync_journal: ext4_force_commit" }
    o_sync = { is = "log", cite = "open(2), O_SYNC: as though followed by fsync(2)" }
    o_dsync = { is = "data", cite = "open(2), O_DSYNC: as though followed by fdatasync(2)" }
    msync = { is = "data", cite = "mm/msync.c: vfs_fsync_range with datasync" }
    rename_over = { is = "data", cite = "Documentation/admin-guide/ext4.rst, auto_da_alloc" }
"#;

/// xfs: fs/xfs/xfs_file.c, xfs_fsync_flush_log: the log is forced up to the last change of the inode.
/// Sizes follow the data (xfs_setfilesize), new blocks are unwritten extents until then.
pub(crate) const XFS: &str = r#"
    order = { is = "metadata_prefix", cite = "Documentation/filesystems/xfs/xfs-delayed-logging-design.rst" }
    data = { is = "ordered", cite = "fs/xfs/xfs_aops.c, xfs_end_ioend: unwritten extents are converted after the data" }
    reference = { is = "xfs", cite = "crates/model/profiles/xfs.toml" }
    [durable]
    fsync = { is = "log", cite = "fs/xfs/xfs_file.c, xfs_fsync_flush_log" }
    fdatasync = { is = "data", cite = "fs/xfs/xfs_file.c, xfs_fsync_seq: not if only timestamps changed" }
    fsync_dir = { is = "log", cite = "fs/xfs/xfs_file.c, xfs_dir_fsync" }
"#;

/// btrfs: transactions and a log tree for what was fsynced since (fs/btrfs/tree-log.c). All names of an
/// fsynced file: fstests generic/520, 106, 321; fsync of a directory: 321 (a), 335, 348. A rename over a
/// file starts writing its data and does not wait: "a best effort filemap_flush" (Linux commit
/// 8d875f95da43, "disable strict file flushes for renames and truncates").
pub(crate) const BTRFS: &str = r#"
    order = { is = "transaction_log", cite = "fs/btrfs/tree-log.c: btrfs_sync_log, btrfs_recover_log_trees" }
    data = { is = "cow", cite = "Documentation/filesystems/btrfs.rst: copy on write" }
    reference = { is = "btrfs", cite = "crates/model/profiles/btrfs.toml" }
    [durable]
    fsync = { is = "names", cite = "fstests generic/106, generic/321, generic/520" }
    fdatasync = { is = "data", cite = "fs/btrfs/file.c, btrfs_sync_file with datasync" }
    fsync_dir = { is = "names", cite = "fstests generic/321, generic/348" }
    removed = { is = "log", cite = "fs/btrfs/tree-log.c, btrfs_del_dir_entries_in_log" }
"#;

/// f2fs with fsync_mode=posix: checkpoints, and roll-forward of fsynced files (fs/f2fs/recovery.c).
/// Updates in place are possible, so contents may be ahead (fs/f2fs/data.c, f2fs_should_update_inplace).
pub(crate) const F2FS: &str = r#"
    order = { is = "transaction_log", cite = "fs/f2fs/recovery.c: roll forward recovery scenarios" }
    data = { is = "ordered", cite = "fs/f2fs/data.c, f2fs_should_update_inplace" }
    [durable]
    fsync = { is = "names", cite = "fs/f2fs/recovery.c, recover_dentry; fsync_mode=strict for more" }
    fdatasync = { is = "data", cite = "fs/f2fs/file.c, f2fs_do_sync_file with datasync" }
    fsync_dir = { is = "metadata", cite = "fs/f2fs/file.c, need_do_checkpoint: CP_NON_REGULAR" }
    msync = { is = "data", cite = "mm/msync.c: vfs_fsync_range with datasync" }
    displaced = { is = "nothing", cite = "Documentation/filesystems/f2fs.rst, fsync_mode: generic/342" }
"#;

/// JFS journals metadata only: data=writeback of ext4 is "a similar level of journaling as that of XFS,
/// JFS, and ReiserFS in its default mode" (Documentation/admin-guide/ext4.rst).
pub(crate) const JFS: &str = r#"
    order = { is = "metadata_prefix", cite = "fs/jfs/jfs_logmgr.c: one log" }
    data = { is = "writeback", cite = "Documentation/admin-guide/ext4.rst, Data Mode: writeback mode" }
    [durable]
    fsync = { is = "log", cite = "fs/jfs/file.c, jfs_fsync: jfs_commit_inode" }
    fdatasync = { is = "data", cite = "fs/jfs/file.c, jfs_fsync with datasync" }
    fsync_dir = { is = "log", cite = "fs/jfs/file.c, jfs_fsync" }
"#;

/// nilfs2: Documentation/filesystems/nilfs2.rst, order=strict: "it is guaranteed that no overtaking of
/// events occurs in the recovered file system after a crash".
pub(crate) const NILFS2_STRICT: &str = r#"
    order = { is = "prefix", cite = "Documentation/filesystems/nilfs2.rst, order=strict" }
    data = { is = "cow", cite = "Documentation/filesystems/nilfs2.rst: log-structured" }
    [durable]
    fsync = { is = "file", cite = "fs/nilfs2/file.c, nilfs_sync_file" }
    fdatasync = { is = "data", cite = "fs/nilfs2/file.c, nilfs_construct_dsync_segment" }
"#;

/// nilfs2, order=relaxed: "equivalent to the ordered data mode of the ext3 filesystem except for the
/// updates on data blocks still conserve atomicity".
pub(crate) const NILFS2: &str = r#"
    order = { is = "metadata_prefix", cite = "Documentation/filesystems/nilfs2.rst, order=relaxed" }
    data = { is = "ordered", cite = "Documentation/filesystems/nilfs2.rst, order=relaxed" }
    [durable]
    fsync = { is = "log", cite = "fs/nilfs2/file.c, nilfs_sync_file: a segment of all, if the inode is dirty" }
    fdatasync = { is = "data", cite = "fs/nilfs2/file.c, nilfs_construct_dsync_segment" }
"#;

const REST: &str = r#"
    survives = { is = ["linear"], cite = "a test" }
    recovers = { is = true, cite = "a test" }
    capacity_slack_bytes = { is = 0, cite = "a test" }
"#;

pub(crate) fn profile(text: &str) -> Guarantee {
    let text = format!("{REST}{text}");
    Guarantee::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// ext4 with data=journal: "All new data is written to the journal first, and then to its final location"
/// (Documentation/admin-guide/ext4.rst, Data Mode).
pub(crate) fn ext4_journal() -> Guarantee {
    profile(&EXT4.replace("\"ordered\"", "\"journal\""))
}

/// ext4 with data=writeback: "A crash+recovery can cause incorrect data to appear in files which were
/// written shortly before the crash" (same place). auto_da_alloc is said of data=ordered only.
pub(crate) fn ext4_writeback() -> Guarantee {
    renaming_at_once(profile(&EXT4.replace("\"ordered\"", "\"writeback\"")))
}

/// ext4 with noauto_da_alloc: a rename waits for nothing (same place).
pub(crate) fn ext4_noauto_da_alloc() -> Guarantee {
    renaming_at_once(profile(EXT4))
}

fn renaming_at_once(mut guarantee: Guarantee) -> Guarantee {
    let cite = "Documentation/admin-guide/ext4.rst, auto_da_alloc".to_owned();
    guarantee.durable.rename_over = Some(Claim { is: Makes::Nothing, cite });
    guarantee
}
