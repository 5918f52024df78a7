//! Using a recovered file system as its users would: every directory takes files and directories,
//! everything can be deleted, and then the space is there again.

use fathom_block::disks::Trouble;
use fathom_core::flags::{OpenFlags, RenameFlags};
use fathom_core::plain::{DIR_MODE, FILE_MODE};
use fathom_core::{Errno, FsPath, HarnessFault, Kind, Op, Pattern, Tree};

use crate::sys::Executor;

/// Names that no workload uses.
const PROBE_NAMES: [&[u8]; 2] = [b"fathom0", b"fathom1"];

/// The disk is filled in chunks of so many bytes, and in smaller ones when those do not fit any more.
const CHUNK_BYTES: u64 = 1 << 20;
const LAST_CHUNKS_BYTES: u64 = 128 << 10;

/// Disks larger than this are not filled completely.
const FILL_BYTES_MAX: u64 = 4 << 20;

/// The outer error is a fault of the harness, the inner one a failure of the file system.
type Tried<T> = Result<Result<T, Trouble>, HarnessFault>;

/// Creates, writes, renames and deletes in every directory, deletes everything, fills the disk. When
/// everything is deleted, half of `capacity_bytes` must fit.
pub(super) fn use_everything(
    executor: &mut Executor,
    tree: &Tree,
    capacity_bytes: Option<u64>,
) -> Tried<()> {
    for (dir, entry) in &tree.entries {
        if entry.kind == Kind::Dir
            && let Err(trouble) = use_directory(executor, dir)?
        {
            return Ok(Err(trouble));
        }
    }
    let found = executor.observe()?;
    if found.digest() != tree.digest() {
        let difference = tree.differences(&found).into_iter().next();
        let what = difference.map_or_else(String::new, |difference| difference.to_string());
        return Ok(Err(Trouble::LeavesTraces(what)));
    }
    if let Err(trouble) = delete_everything(executor, tree)? {
        return Ok(Err(trouble));
    }
    let again_bytes = capacity_bytes.map_or(0, |bytes| bytes / 2);
    match fill(executor)? {
        Ok(first_bytes) if first_bytes < again_bytes => {
            Ok(Err(Trouble::FreedSpaceGone { first_bytes, again_bytes }))
        }
        Ok(_) => Ok(Ok(())),
        Err(trouble) => Ok(Err(trouble)),
    }
}

/// Executes operations until one fails. No space is no fault: the rest is left out.
fn attempt(executor: &mut Executor, ops: &[Op]) -> Tried<()> {
    for op in ops {
        match executor.apply(op)?.result {
            Ok(_) => {}
            Err(Errno::ENOSPC) => break,
            Err(errno) => {
                return Ok(Err(Trouble::Unusable(format!("{op} fails with {errno}"))));
            }
        }
    }
    Ok(Ok(()))
}

fn use_directory(executor: &mut Executor, dir: &FsPath) -> Tried<()> {
    let [one, other] = PROBE_NAMES.map(|name| dir.join(name));
    let flags = OpenFlags::O_WRONLY | OpenFlags::O_CREAT | OpenFlags::O_EXCL;
    let data = Pattern { seed: 1, len: 10 };
    let ops = [
        Op::Open { slot: 0, path: one.clone(), flags, mode: FILE_MODE },
        Op::Pwrite { slot: 0, offset: 0, data },
        Op::Fsync { slot: 0 },
        Op::Close { slot: 0 },
        Op::Rename { from: one.clone(), to: other.clone(), flags: RenameFlags::empty() },
        Op::Unlink { path: other },
        Op::Mkdir { path: one.clone(), mode: DIR_MODE },
        Op::Rmdir { path: one },
    ];
    attempt(executor, &ops)
}

/// Deletes what the tree shows, the innermost first.
fn delete_everything(executor: &mut Executor, tree: &Tree) -> Tried<()> {
    let root = FsPath::from(".");
    // A directory comes before what is in it.
    let ops: Vec<Op> = tree
        .entries
        .iter()
        .rev()
        .filter(|(path, _)| **path != root)
        .map(|(path, entry)| match entry.kind {
            Kind::Dir => Op::Rmdir { path: path.clone() },
            _ => Op::Unlink { path: path.clone() },
        })
        .collect();
    if let Err(trouble) = attempt(executor, &ops)? {
        return Ok(Err(trouble));
    }
    let left = executor.observe()?.entries.len();
    Ok(match left {
        1 => Ok(()),
        left => {
            Err(Trouble::Unusable(format!("{} entries are left after all were deleted", left - 1)))
        }
    })
}

/// Writes a file until the disk is full, and removes it; returns how much fitted.
pub(super) fn fill(executor: &mut Executor) -> Tried<u64> {
    let path = FsPath::from(".").join(PROBE_NAMES[0]);
    let flags = OpenFlags::O_WRONLY | OpenFlags::O_CREAT | OpenFlags::O_EXCL;
    let open = Op::Open { slot: 0, path: path.clone(), flags, mode: FILE_MODE };
    if let Err(trouble) = attempt(executor, &[open])? {
        return Ok(Err(trouble));
    }
    let (mut at, mut len) = (0, CHUNK_BYTES);
    while at < FILL_BYTES_MAX {
        let data = Pattern { seed: 1, len: len.min(FILL_BYTES_MAX - at) };
        let write = Op::Pwrite { slot: 0, offset: at as i64, data };
        match executor.apply(&write)?.result {
            Err(Errno::ENOSPC) if len > LAST_CHUNKS_BYTES => len = LAST_CHUNKS_BYTES,
            Ok(0) | Err(Errno::ENOSPC) => break,
            Ok(count) => at += count,
            Err(errno) => {
                let what = format!("filling the disk: {write} fails with {errno}");
                return Ok(Err(Trouble::Unusable(what)));
            }
        }
    }
    let ends = [Op::Close { slot: 0 }, Op::Unlink { path }];
    Ok(attempt(executor, &ends)?.map(|()| at))
}
