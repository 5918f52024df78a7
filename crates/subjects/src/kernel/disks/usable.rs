//! Using a recovered file system as its users would: every directory takes files and directories,
//! everything can be deleted, and then the space is there again.

use fathom_block::Image;
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

/// Most disks are filled so far: how long that takes hardly shows beside the rest of an examination.
const PART_BYTES: u64 = 4 << 20;

/// One disk in so many is filled to its end: what is wrong where a file system is nearly full shows only
/// there.
const WHOLE_ONE_IN: u128 = 16;

/// Not even these are filled beyond this: a disk that a user has made may be as large as his memory.
const WHOLE_BYTES_MAX: u64 = 256 << 20;

/// How far a disk is filled, and how much must fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filling {
    /// No more is written.
    pub(super) max_bytes: u64,
    /// As much fits on a new disk, of `max_bytes`.
    pub(super) fits_bytes: u64,
}

/// The room on a new disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Room {
    part: Filling,
    whole: Filling,
}

impl Room {
    /// Measures a new disk with a function that fills one, to a limit.
    pub(super) fn measure(
        capacity: impl Fn(u64) -> Result<u64, HarnessFault>,
    ) -> Result<Room, HarnessFault> {
        let filling = |max_bytes| -> Result<Filling, HarnessFault> {
            Ok(Filling { max_bytes, fits_bytes: capacity(max_bytes)? })
        };
        Ok(Room { part: filling(PART_BYTES)?, whole: filling(WHOLE_BYTES_MAX)? })
    }

    /// How far a disk is filled: always the same for the same disk.
    pub(super) fn of(&self, disk: &Image) -> Filling {
        if disk.digest().0.is_multiple_of(WHOLE_ONE_IN) { self.whole } else { self.part }
    }
}

/// The outer error is a fault of the harness, the inner one a failure of the file system.
type Tried<T> = Result<Result<T, Trouble>, HarnessFault>;

/// Creates, writes, renames and deletes in every directory, deletes everything, fills the disk. When
/// everything is deleted, half of what a new disk takes must fit.
pub(super) fn use_everything(
    executor: &mut Executor,
    tree: &Tree,
    filling: Option<Filling>,
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
    let Some(filling) = filling else { return Ok(Ok(())) };
    let again_bytes = filling.fits_bytes / 2;
    match fill(executor, filling.max_bytes)? {
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

/// Writes a file until the disk is full or it has `max_bytes`, and removes it; returns how much fitted.
pub(super) fn fill(executor: &mut Executor, max_bytes: u64) -> Tried<u64> {
    let path = FsPath::from(".").join(PROBE_NAMES[0]);
    let flags = OpenFlags::O_WRONLY | OpenFlags::O_CREAT | OpenFlags::O_EXCL;
    let open = Op::Open { slot: 0, path: path.clone(), flags, mode: FILE_MODE };
    if let Err(trouble) = attempt(executor, &[open])? {
        return Ok(Err(trouble));
    }
    let (mut at, mut len) = (0, CHUNK_BYTES);
    while at < max_bytes {
        let data = Pattern { seed: 1, len: len.min(max_bytes - at) };
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

#[cfg(test)]
mod tests {
    use fathom_block::Erased;

    use super::*;

    #[test]
    fn one_disk_in_sixteen_is_filled_to_its_end_and_always_the_same_one() {
        let capacity = |max_bytes: u64| Ok(max_bytes.min(14 << 20));
        let room = Room::measure(capacity).expect("measured");
        let disk = |number: u32| {
            let mut disk = Image::new(4096, Erased::Zeros);
            disk.write(0, &number.to_le_bytes());
            disk
        };
        let filled: Vec<Filling> = (0..1600).map(|number| room.of(&disk(number))).collect();
        let again: Vec<Filling> = (0..1600).map(|number| room.of(&disk(number))).collect();
        assert_eq!(filled, again);
        let whole = filled.iter().filter(|filling| filling.fits_bytes == 14 << 20).count();
        assert!((50..200).contains(&whole), "{whole} of 1600");
        let part = filled.iter().filter(|filling| filling.max_bytes == PART_BYTES);
        assert_eq!(part.count(), 1600 - whole);
    }
}
