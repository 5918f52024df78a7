//! What every library file system is asked, in one place: the driver of a library translates these
//! calls, dispatching operations and walking the tree are the same for all.

use fathom_core::flags::OpenFlags;
use fathom_core::{Errno, FsPath, Op, Outcome, PlainTree, Slot, Target, Tree};

/// Entries of one directory, and levels of directories, beyond which a walk goes round in circles.
pub(super) const ENTRIES_MAX: usize = 4096;
const LEVELS_MAX: usize = 64;

/// An entry of a directory, without `.` and `..`.
pub(super) struct Found {
    pub(super) name: Vec<u8>,
    pub(super) is_dir: bool,
}

/// The calls. What a library lacks answers `EOPNOTSUPP`.
pub(super) trait Calls {
    fn open(&mut self, slot: Slot, path: &FsPath, flags: OpenFlags) -> Result<u64, Errno>;
    fn close(&mut self, slot: Slot) -> Result<u64, Errno>;
    fn pread(&mut self, slot: Slot, offset: i64, len: u64) -> Result<Vec<u8>, Errno>;
    fn pwrite(&mut self, slot: Slot, offset: i64, data: &[u8]) -> Result<u64, Errno>;
    fn truncate(&mut self, slot: Slot, len: i64) -> Result<u64, Errno>;
    fn mkdir(&mut self, path: &FsPath) -> Result<u64, Errno>;
    fn rmdir(&mut self, path: &FsPath) -> Result<u64, Errno>;
    fn unlink(&mut self, path: &FsPath) -> Result<u64, Errno>;
    fn rename(&mut self, from: &FsPath, to: &FsPath) -> Result<u64, Errno>;
    fn fsync(&mut self, slot: Slot) -> Result<u64, Errno>;
    fn sync(&mut self) -> Result<u64, Errno>;

    /// Whether something is a directory (`stat`).
    fn is_dir(&mut self, path: &FsPath) -> Result<bool, Errno>;

    /// The entries of a directory, at most [`ENTRIES_MAX`].
    fn list(&mut self, dir: &FsPath) -> Result<Vec<Found>, Errno>;

    /// The contents of a file; the error comes with the call that gave it.
    fn contents(&mut self, path: &FsPath) -> Result<Vec<u8>, (&'static str, Errno)>;
}

/// What a rename amounts to.
#[cfg(any(feature = "fatfs", feature = "redoxfs", feature = "rsext4"))]
pub(super) enum Renaming {
    /// Both names are the same.
    Nothing,
    /// The new name is free.
    Move,
    /// The new name is taken by something that may be replaced.
    Replace,
}

/// What the kernel's VFS checks before it asks a file system to rename (rename(2)), for libraries that
/// leave that to their caller.
#[cfg(any(feature = "fatfs", feature = "redoxfs", feature = "rsext4"))]
pub(super) fn check_rename(
    calls: &mut impl Calls,
    from: &FsPath,
    to: &FsPath,
) -> Result<Renaming, Errno> {
    let is_dir = calls.is_dir(from)?;
    if from == to {
        return Ok(Renaming::Nothing);
    }
    let there = calls.is_dir(to);
    // What is on the way to the new name is looked at before its relation to the old one.
    let parent_is_dir = to.parent().map_or(Ok(true), |parent| calls.is_dir(&parent));
    if !parent_is_dir? {
        return Err(Errno::ENOTDIR);
    }
    let below = to.as_bytes().strip_prefix(from.as_bytes());
    if is_dir && below.is_some_and(|rest| rest.starts_with(b"/")) {
        return Err(Errno::EINVAL);
    }
    match (is_dir, there) {
        (_, Err(Errno::ENOENT)) => Ok(Renaming::Move),
        (_, Err(errno)) => Err(errno),
        (true, Ok(false)) => Err(Errno::ENOTDIR),
        (false, Ok(true)) => Err(Errno::EISDIR),
        (true, Ok(true)) if !calls.list(to)?.is_empty() => Err(Errno::ENOTEMPTY),
        _ => Ok(Renaming::Replace),
    }
}

/// Executes one operation.
pub(super) fn apply(calls: &mut impl Calls, op: &Op) -> Outcome {
    let result = match op {
        Op::Open { slot, path, flags, .. } => calls.open(*slot, path, *flags),
        Op::Close { slot } => calls.close(*slot),
        Op::Pread { slot, offset, len } => {
            return match calls.pread(*slot, *offset, *len) {
                Ok(bytes) => Outcome::data(&bytes),
                Err(errno) => Outcome::err(errno),
            };
        }
        Op::Pwrite { slot, offset, data } => calls.pwrite(*slot, *offset, &data.to_vec()),
        Op::Truncate { target: Target::Slot(slot), len } => calls.truncate(*slot, *len),
        Op::Mkdir { path, .. } => calls.mkdir(path),
        Op::Rmdir { path } => calls.rmdir(path),
        Op::Unlink { path } => calls.unlink(path),
        Op::Rename { from, to, flags } if flags.is_empty() => calls.rename(from, to),
        Op::Fsync { slot } | Op::Fdatasync { slot } => calls.fsync(*slot),
        Op::Sync => calls.sync(),
        // A library has no threads that could use the time.
        Op::Wait { .. } | Op::Server { .. } => Ok(0),
        _ => Err(Errno::EOPNOTSUPP),
    };
    result.map_or_else(Outcome::err, Outcome::ok)
}

/// Walks everything that is visible and reads every file.
pub(super) fn observe(calls: &mut impl Calls) -> Tree {
    let mut tree = PlainTree::new();
    walk(calls, &FsPath::from("."), 0, &mut tree);
    tree.finish()
}

fn walk(calls: &mut impl Calls, dir: &FsPath, level: usize, tree: &mut PlainTree) {
    let entries = calls.list(dir);
    walk_entries(calls, dir, level, entries, tree);
}

fn walk_entries<C: Calls>(
    calls: &mut C,
    dir: &FsPath,
    level: usize,
    entries: Result<Vec<Found>, Errno>,
    tree: &mut PlainTree,
) {
    let entries = match entries {
        Ok(_) if level > LEVELS_MAX => return tree.broken(dir.clone(), "getdents", Errno::ELOOP),
        Ok(entries) => entries,
        Err(errno) => return tree.broken(dir.clone(), "getdents", errno),
    };
    for Found { name, is_dir } in entries {
        let path = dir.join(&name);
        if let Err(errno) = calls.is_dir(&path) {
            tree.broken(path, "stat", errno);
        } else if is_dir {
            let inside = calls.list(&path);
            tree.dir(path.clone());
            walk_entries(calls, &path, level + 1, inside, tree);
        } else {
            match calls.contents(&path) {
                Ok(bytes) => tree.file(path, &bytes),
                Err((call, errno)) => tree.broken(path, call, errno),
            }
        }
    }
}
