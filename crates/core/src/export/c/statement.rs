//! One operation as one C expression: the system call of its manual page, in a helper where more
//! than the return value matters.

use super::literal::{flags, octal, open_flags, signed, string, unsigned};
use super::runtime::{Helper, Runtime};
use crate::bytes::FsBytes;
use crate::call::seek;
use crate::op::{Op, Target, TimeArg};
use crate::pattern::Pattern;

/// Data of one call beyond this is not asked for, as executors do: no file in a trace is longer.
const BUFFER_BYTES: u64 = 64 << 20;

/// No symbolic link is longer than a path.
const PATH_BYTES: i32 = 4096;

/// No value or list of extended attributes is longer.
const XATTR_BYTES: u64 = 65536;

/// The expression of an operation, and what it needs.
pub(super) fn of(op: &Op, run: &mut Runtime) -> String {
    run.count_step();
    match op {
        Op::Open { slot, path, flags, mode } => {
            run.need(Helper::Open);
            let (slot, flags) = (run.slot_number(*slot), open_flags(*flags));
            format!("open_slot({slot}, {}, {flags}, {})", name(path), octal(mode.0))
        }
        Op::Close { slot } => {
            run.need(Helper::Close);
            format!("close_slot({})", run.slot_number(*slot))
        }
        Op::Getdents { slot } => {
            run.need(Helper::Entries);
            format!("entries({})", run.slot(*slot))
        }
        Op::Fsync { slot } => format!("fsync({})", run.slot(*slot)),
        Op::Fdatasync { slot } => format!("fdatasync({})", run.slot(*slot)),
        Op::Syncfs { slot } => format!("syncfs({})", run.slot(*slot)),
        Op::Sync => "(sync(), 0)".to_owned(),
        Op::Umask { mask } => format!("umask({})", octal(mask.0)),
        Op::Identity { uid, gid, groups } => identity(*uid, *gid, groups, run),
        Op::Remount => {
            run.need(Helper::Remount);
            "remount()".to_owned()
        }
        Op::Read { .. }
        | Op::Pread { .. }
        | Op::Write { .. }
        | Op::Pwrite { .. }
        | Op::Lseek { .. }
        | Op::Fallocate { .. }
        | Op::SyncFileRange { .. }
        | Op::MmapStore { .. }
        | Op::MmapLoad { .. }
        | Op::CopyFileRange { .. } => on_contents(op, run),
        Op::Setxattr { .. }
        | Op::Getxattr { .. }
        | Op::Listxattr { .. }
        | Op::Removexattr { .. } => on_xattrs(op, run),
        Op::Truncate { target, .. }
        | Op::Chmod { target, .. }
        | Op::Chown { target, .. }
        | Op::Utimens { target, .. }
        | Op::Stat { target }
        | Op::Statfs { target }
        | Op::Access { target, .. } => on_attributes(op, target, run),
        Op::Mkdir { .. }
        | Op::Rmdir { .. }
        | Op::Unlink { .. }
        | Op::Rename { .. }
        | Op::Link { .. }
        | Op::Symlink { .. }
        | Op::Readlink { .. }
        | Op::Mknod { .. } => on_names(op, run),
    }
}

fn on_contents(op: &Op, run: &mut Runtime) -> String {
    match op {
        Op::Read { slot, len } => {
            let (to, len) = buffer(*len, run);
            format!("data(read({}, {to}, {len}))", run.slot(*slot))
        }
        Op::Pread { slot, offset, len } => {
            let (to, len) = buffer(*len, run);
            format!("data(pread({}, {to}, {len}, {}))", run.slot(*slot), signed(*offset))
        }
        Op::Write { slot, data } => {
            let (from, len) = pattern(data, run);
            format!("write({}, {from}, {len})", run.slot(*slot))
        }
        Op::Pwrite { slot, offset, data } => {
            let (from, len) = pattern(data, run);
            format!("pwrite({}, {from}, {len}, {})", run.slot(*slot), signed(*offset))
        }
        Op::Lseek { slot, offset, whence } => {
            format!("lseek({}, {}, {})", run.slot(*slot), signed(*offset), seek(*whence))
        }
        Op::Fallocate { slot, mode, offset, len } => {
            let (slot, mode) = (run.slot(*slot), flags(*mode));
            format!("fallocate({slot}, {mode}, {}, {})", signed(*offset), signed(*len))
        }
        Op::SyncFileRange { slot, offset, len, flags: how } => {
            let (slot, how) = (run.slot(*slot), flags(*how));
            format!("sync_file_range({slot}, {}, {}, {how})", signed(*offset), signed(*len))
        }
        Op::MmapStore { slot, offset, data, sync } => {
            run.need(Helper::MmapStore);
            let ((from, len), sync) = (pattern(data, run), flags(*sync));
            format!("mmap_store({}, {from}, {len}, {}, {sync})", run.slot(*slot), signed(*offset))
        }
        Op::MmapLoad { slot, offset, len } => {
            run.need(Helper::MmapLoad);
            let len = unsigned(*len);
            format!("data(mmap_load({}, {len}, {}))", run.slot(*slot), signed(*offset))
        }
        Op::CopyFileRange { from, from_offset, to, to_offset, len, flags } => {
            let (from, to) = (run.slot(*from), run.slot(*to));
            let (from_offset, to_offset) = (offset(*from_offset), offset(*to_offset));
            let len = length(*len, run);
            format!("copy_file_range({from}, {from_offset}, {to}, {to_offset}, {len}, {flags}u)")
        }
        other => unreachable!("{} works on no contents", other.name()),
    }
}

fn on_names(op: &Op, run: &mut Runtime) -> String {
    match op {
        Op::Mkdir { path, mode } => format!("mkdir({}, {})", name(path), octal(mode.0)),
        Op::Rmdir { path } => format!("rmdir({})", name(path)),
        Op::Unlink { path } => format!("unlink({})", name(path)),
        Op::Rename { from, to, flags: how } if how.is_empty() => {
            format!("rename({}, {})", name(from), name(to))
        }
        Op::Rename { from, to, flags: how } => {
            let how = flags(*how);
            format!("renameat2(AT_FDCWD, {}, AT_FDCWD, {}, {how})", name(from), name(to))
        }
        Op::Link { from, to, follow } => {
            let how = if *follow { "AT_SYMLINK_FOLLOW" } else { "0" };
            format!("linkat(AT_FDCWD, {}, AT_FDCWD, {}, {how})", name(from), name(to))
        }
        Op::Symlink { target, path } => format!("symlink({}, {})", name(target), name(path)),
        Op::Readlink { path, len } => {
            // The kernel's type of the length is int: what is negative there stays wrong.
            let (to, len) = buffer((*len as i32).clamp(0, PATH_BYTES) as u64, run);
            format!("data(readlink({}, {to}, {len}))", name(path))
        }
        Op::Mknod { path, mode, dev: (major, minor) } => {
            // mknod(2) takes 12 bits of major and 20 of minor number.
            let dev = format!("makedev({}, {})", major & 0xfff, minor & 0xf_ffff);
            format!("mknod({}, {}, {dev})", name(path), octal(mode.0))
        }
        other => unreachable!("{} is no operation on names", other.name()),
    }
}

fn on_attributes(op: &Op, target: &Target, run: &mut Runtime) -> String {
    let (dir, path, how) = location(target, run);
    let plain = place(target, run);
    match op {
        Op::Truncate { len, .. } => format!("{}({plain}, {})", op.call(), signed(*len)),
        Op::Chmod { mode, .. } if op.call() == "fchmodat2" => {
            format!("syscall(SYS_fchmodat2, {dir}, {path}, {}, {how})", octal(mode.0))
        }
        Op::Chmod { mode, .. } => format!("{}({plain}, {})", op.call(), octal(mode.0)),
        Op::Chown { uid, gid, .. } => {
            let id = |id: Option<u32>| id.map_or("-1".to_owned(), |id| format!("{id}u"));
            format!("{}({plain}, {}, {})", op.call(), id(*uid), id(*gid))
        }
        Op::Utimens { atime, mtime, .. } => {
            let times = format!("(const struct timespec[2]){{ {}, {} }}", time(atime), time(mtime));
            match target {
                Target::Slot(_) => format!("futimens({dir}, {times})"),
                _ => format!("utimensat({dir}, {path}, {times}, {how})"),
            }
        }
        Op::Stat { .. } => {
            run.need(Helper::Attributes);
            format!("attributes({dir}, {path}, {how})")
        }
        Op::Statfs { .. } => {
            run.need(Helper::Space);
            format!("space({}({plain}, &counts))", op.call())
        }
        Op::Access { mode, effective, .. } => {
            let how = match (how, *effective) {
                (how, false) => how.to_owned(),
                ("0", true) => "AT_EACCESS".to_owned(),
                (how, true) => format!("{how} | AT_EACCESS"),
            };
            let mode = if mode.is_empty() { "F_OK".to_owned() } else { flags(*mode) };
            format!("syscall(SYS_faccessat2, {dir}, {path}, {mode}, {how})")
        }
        other => unreachable!("{} works on no attributes", other.name()),
    }
}

fn on_xattrs(op: &Op, run: &mut Runtime) -> String {
    match op {
        Op::Setxattr { target, name: key, value, flags: how } => {
            let at = place(target, run);
            let (from, len) = pattern(value, run);
            format!("{}({at}, {}, {from}, {len}, {})", op.call(), name(key), flags(*how))
        }
        Op::Getxattr { target, name: key, len: 0 } => {
            format!("{}({}, {}, NULL, 0)", op.call(), place(target, run), name(key))
        }
        Op::Getxattr { target, name: key, len } => {
            let at = place(target, run);
            let (to, len) = buffer((*len).min(XATTR_BYTES), run);
            format!("data({}({at}, {}, {to}, {len}))", op.call(), name(key))
        }
        Op::Listxattr { target, len } => {
            let at = match target {
                Target::Path(path) => format!("{}, -1, 1", name(path)),
                Target::Link(path) => format!("{}, -1, 0", name(path)),
                Target::Slot(slot) => format!("NULL, {}, 0", run.slot(*slot)),
            };
            run.need(Helper::Names);
            format!("names({at}, {})", (*len).min(XATTR_BYTES))
        }
        Op::Removexattr { target, name: key } => {
            format!("{}({}, {})", op.call(), place(target, run), name(key))
        }
        other => unreachable!("{} works on no xattrs", other.name()),
    }
}

fn identity(uid: u32, gid: u32, groups: &[u32], run: &mut Runtime) -> String {
    run.need(Helper::Become);
    let list: Vec<String> = groups.iter().map(|group| format!("{group}u")).collect();
    let list = match list.as_slice() {
        [] => "NULL".to_owned(),
        list => format!("(const gid_t[]){{ {} }}", list.join(", ")),
    };
    format!("become({uid}u, {gid}u, {}, {list})", groups.len())
}

/// A target as one argument: a path or a descriptor.
fn place(target: &Target, run: &mut Runtime) -> String {
    match target {
        Target::Path(path) | Target::Link(path) => name(path),
        Target::Slot(slot) => run.slot(*slot),
    }
}

/// A target as the `…at` calls take it: directory, path, flags.
fn location(target: &Target, run: &mut Runtime) -> (String, String, &'static str) {
    match target {
        Target::Path(path) => ("AT_FDCWD".to_owned(), name(path), "0"),
        Target::Link(path) => ("AT_FDCWD".to_owned(), name(path), "AT_SYMLINK_NOFOLLOW"),
        Target::Slot(slot) => (run.slot(*slot), "\"\"".to_owned(), "AT_EMPTY_PATH"),
    }
}

fn name(bytes: &FsBytes) -> String {
    string(bytes.as_bytes())
}

/// A buffer and its length for a call whose bytes are compared.
fn buffer(len: u64, run: &mut Runtime) -> (String, String) {
    run.need(Helper::Data);
    let len = unsigned(len.min(BUFFER_BYTES));
    (format!("buffer({len})"), len)
}

fn pattern(data: &Pattern, run: &mut Runtime) -> (String, String) {
    run.need(Helper::Pattern);
    let len = length(data.len, run);
    (format!("pattern({}, {len})", unsigned(data.seed)), len)
}

/// A length; compilers warn about one that is longer than any object.
fn length(len: u64, run: &mut Runtime) -> String {
    if i64::try_from(len).is_ok() {
        return unsigned(len);
    }
    run.need(Helper::Opaque);
    format!("opaque({})", unsigned(len))
}

/// An offset that the call may change.
fn offset(offset: Option<i64>) -> String {
    offset.map_or("NULL".to_owned(), |offset| format!("&(off_t){{ {} }}", signed(offset)))
}

fn time(time: &TimeArg) -> String {
    match time {
        TimeArg::Now => "{ 0, UTIME_NOW }".to_owned(),
        TimeArg::Omit => "{ 0, UTIME_OMIT }".to_owned(),
        TimeArg::At { sec, nsec } => format!("{{ {}, {nsec} }}", signed(*sec)),
    }
}
