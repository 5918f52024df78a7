//! Using a file system as its users would: every directory takes files and directories, the disk can
//! be filled, and what is freed can be used again.

use fathom_core::flags::{OpenFlags, RenameFlags};
use fathom_core::plain::{DIR_MODE, FILE_MODE};
use fathom_core::{Digest, Errno, FsPath, Kind, Op, Pattern, Tree};

use crate::backed::{BlockBacked, Mounted};
use crate::disks::Trouble;

/// Creates, writes, renames and deletes in every directory, fills the disk, frees it, fills it again.
/// Returns how many bytes fitted.
///
/// # Errors
/// What went wrong first.
pub(super) fn use_everything(
    subject: &dyn BlockBacked,
    mounted: &mut dyn Mounted,
    tree: &Tree,
    digest: Digest,
    look_first: bool,
) -> Result<u64, Trouble> {
    if look_first && mounted.observe().digest() != digest {
        return Err(Trouble::RemountChanges);
    }
    for (dir, entry) in &tree.entries {
        if entry.kind == Kind::Dir {
            use_directory(mounted, dir)?;
        }
    }
    let chunk_bytes = subject.geometry().erase_bytes.max(MIN_CHUNK_BYTES) as u64;
    let first = fill(mounted, chunk_bytes, FILL_BYTES_MAX)?;
    // Freed space must be there again: nearly as much must fit at once.
    let slack_bytes = subject.guarantee().capacity_slack_bytes.is;
    let again = first.saturating_sub(slack_bytes);
    if again > 0 && fill(mounted, again, again)? < again {
        return Err(Trouble::FreedSpaceGone { first_bytes: first, again_bytes: again });
    }
    let found = mounted.observe();
    if found.digest() != digest {
        let difference = tree.differences(&found).into_iter().next();
        let what = difference.map_or_else(String::new, |difference| difference.to_string());
        return Err(Trouble::LeavesTraces(what));
    }
    Ok(first)
}

/// Names that no workload uses.
const PROBE_NAMES: [&[u8]; 2] = [b"fathom0", b"fathom1"];

/// Runs operations until one fails. No space is no fault: the rest is left out.
fn attempt(mounted: &mut dyn Mounted, ops: &[Op]) -> Result<(), Trouble> {
    for op in ops {
        match mounted.apply(op).result {
            Ok(_) => {}
            Err(Errno::ENOSPC) => return Ok(()),
            Err(errno) => {
                return Err(Trouble::Unusable(format!("{op} fails with {errno}")));
            }
        }
    }
    Ok(())
}

fn use_directory(mounted: &mut dyn Mounted, dir: &FsPath) -> Result<(), Trouble> {
    let [one, other] = PROBE_NAMES.map(|name| dir.join(name));
    let flags = OpenFlags::O_WRONLY | OpenFlags::O_CREAT | OpenFlags::O_EXCL;
    let made = mounted.apply(&Op::Open { slot: 0, path: one.clone(), flags, mode: FILE_MODE });
    match made.result {
        Ok(_) => {}
        Err(Errno::ENOSPC) => return Ok(()),
        Err(errno) => {
            let what = format!("a file in {dir:?} cannot be made: {errno}");
            return Err(Trouble::Unusable(what));
        }
    }
    let data = Pattern { seed: 1, len: 10 };
    attempt(mounted, &[Op::Pwrite { slot: 0, offset: 0, data }, Op::Fsync { slot: 0 }])?;
    attempt(mounted, &[Op::Close { slot: 0 }])?;
    let flags = RenameFlags::empty();
    let rename = Op::Rename { from: one.clone(), to: other.clone(), flags };
    match mounted.apply(&rename).result {
        Ok(_) => attempt(mounted, &[Op::Unlink { path: other }])?,
        Err(Errno::ENOSPC) => attempt(mounted, &[Op::Unlink { path: one.clone() }])?,
        Err(errno) => {
            return Err(Trouble::Unusable(format!("{rename} fails with {errno}")));
        }
    }
    let mkdir = Op::Mkdir { path: one.clone(), mode: DIR_MODE };
    attempt(mounted, &[mkdir, Op::Rmdir { path: one }])
}

/// Disks larger than this are not filled completely.
const FILL_BYTES_MAX: u64 = 1 << 20;

/// The disk is filled in blocks, but not in tiny ones.
const MIN_CHUNK_BYTES: usize = 256;

/// Writes a file in chunks until the disk is full or it has `bytes_max`, and removes it; returns how
/// much fitted.
fn fill(mounted: &mut dyn Mounted, chunk_bytes: u64, bytes_max: u64) -> Result<u64, Trouble> {
    let path = FsPath::from(".").join(PROBE_NAMES[0]);
    let flags = OpenFlags::O_WRONLY | OpenFlags::O_CREAT | OpenFlags::O_EXCL;
    let open = Op::Open { slot: 0, path: path.clone(), flags, mode: FILE_MODE };
    let fails = |op: &Op, errno| {
        Err(Trouble::Unusable(format!("filling the disk: {op} fails with {errno}")))
    };
    match mounted.apply(&open).result {
        Ok(_) => {}
        Err(Errno::ENOSPC) => return Ok(0),
        Err(errno) => return fails(&open, errno),
    }
    let mut at = 0;
    while at < bytes_max {
        let data = Pattern { seed: at, len: chunk_bytes };
        let write = Op::Pwrite { slot: 0, offset: at as i64, data };
        match mounted.apply(&write).result {
            Ok(0) | Err(Errno::ENOSPC) => break,
            Ok(count) => at += count,
            Err(errno) => return fails(&write, errno),
        }
    }
    let close = Op::Close { slot: 0 };
    match mounted.apply(&close).result {
        Ok(_) | Err(Errno::ENOSPC) => {}
        Err(errno) => return fails(&close, errno),
    }
    let unlink = Op::Unlink { path };
    match mounted.apply(&unlink).result {
        Ok(_) => Ok(at),
        Err(errno) => fails(&unlink, errno),
    }
}
