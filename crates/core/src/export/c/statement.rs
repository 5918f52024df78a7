//! One operation as one C expression: the system call of its manual page, in a helper where more
//! than the return value matters.

use super::literal::{flags, octal, open_flags, signed, string, unsigned};
use super::runtime::{Helper, Runtime};
use crate::bytes::FsBytes;
use crate::call::seek;
use crate::flags::{AccessMode, Mode, MsyncFlags, OpenFlags, RenameFlags};
use crate::op::{Op, Slot, Target, TimeArg};
use crate::pattern::Pattern;

/// Data of one call beyond this is not asked for, as executors do: no file in a trace is longer.
const BUFFER_BYTES: u64 = 64 << 20;

/// More than this is not asked for in one piece of a listing, as executors do.
const PIECE_BYTES_MAX: u64 = 1 << 20;

/// No symbolic link is longer than a path.
const PATH_BYTES: i32 = 4096;

/// No value or list of extended attributes is longer.
const XATTR_BYTES: u64 = 65536;

/// The expression of an operation, and what it needs. What takes more than a line has its function.
pub(super) fn of(op: &Op, run: &mut Runtime) -> String {
    run.count_step();
    end_listing(op, run);
    match op {
        Op::Open { slot, path, flags, mode } => open(*slot, path, *flags, *mode, run),
        Op::Close { slot } => close(*slot, run),
        Op::Getdents { slot } => getdents(*slot, run),
        Op::ListPiece { slot, back, len } => list_piece(*slot, *back, *len, run),
        Op::Fsync { slot } => format!("fsync({})", run.slot(*slot)),
        Op::Fdatasync { slot } => format!("fdatasync({})", run.slot(*slot)),
        Op::Syncfs { slot } => format!("syncfs({})", run.slot(*slot)),
        Op::Sync => "(sync(), 0)".to_owned(),
        Op::Wait { seconds } => format!("sleep({seconds})"),
        // What happens to a server happens outside of the program.
        Op::Server { events } => format!("/* {events} */ 0"),
        Op::Umask { mask } => format!("umask({})", octal(mask.0)),
        Op::Identity { uid, gid, groups } => identity(*uid, *gid, groups, run),
        Op::Remount => remount(run),
        Op::Read { slot, len } => read(*slot, *len, run),
        Op::Pread { slot, offset, len } => pread(*slot, *offset, *len, run),
        Op::Write { slot, data } => write(*slot, data, run),
        Op::Pwrite { slot, offset, data } => pwrite(*slot, *offset, data, run),
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
        Op::MmapStore { slot, offset, data, sync } => mmap_store(*slot, *offset, data, *sync, run),
        Op::MmapLoad { slot, offset, len } => mmap_load(*slot, *offset, *len, run),
        Op::CopyFileRange { from, from_offset, to, to_offset, len, flags } => {
            let from = (*from, *from_offset);
            copy_file_range(from, (*to, *to_offset), *len, *flags, run)
        }
        Op::Mkdir { path, mode } => format!("mkdir({}, {})", name(path), octal(mode.0)),
        Op::Rmdir { path } => format!("rmdir({})", name(path)),
        Op::Unlink { path } => format!("unlink({})", name(path)),
        Op::Rename { from, to, flags } => rename(from, to, *flags),
        Op::Link { from, to, follow } => link(from, to, *follow),
        Op::LinkSlot { slot, to, by_proc } => link_slot(*slot, to, *by_proc, run),
        Op::Symlink { target, path } => format!("symlink({}, {})", name(target), name(path)),
        Op::Readlink { path, len } => readlink(path, *len, run),
        Op::Mknod { path, mode, dev } => mknod(path, *mode, *dev),
        Op::Truncate { target, len } => {
            format!("{}({}, {})", op.call(), place(target, run), signed(*len))
        }
        Op::Chmod { target, mode } => chmod(op.call(), target, *mode, run),
        Op::Chown { target, uid, gid } => chown(op.call(), target, *uid, *gid, run),
        Op::Utimens { target, atime, mtime } => utimens(target, atime, mtime, run),
        Op::Stat { target } => stat(target, run),
        Op::Statfs { target } => statfs(op.call(), target, run),
        Op::Access { target, mode, effective } => access(target, *mode, *effective, run),
        Op::Setxattr { target, name: key, value, flags: how } => {
            let (at, (from, len)) = (place(target, run), pattern(value, run));
            format!("{}({at}, {}, {from}, {len}, {})", op.call(), name(key), flags(*how))
        }
        Op::Getxattr { target, name, len } => getxattr(op.call(), target, name, *len, run),
        Op::Listxattr { target, len } => listxattr(target, *len, run),
        Op::Removexattr { target, name: key } => {
            format!("{}({}, {})", op.call(), place(target, run), name(key))
        }
    }
}

/// After these, a piece of the directory in a slot is a first one.
fn end_listing(op: &Op, run: &mut Runtime) {
    if let Op::Open { slot, .. } | Op::Lseek { slot, .. } | Op::Getdents { slot } = op {
        run.end_listing(*slot);
    }
}

fn open(slot: Slot, path: &FsBytes, flags: OpenFlags, mode: Mode, run: &mut Runtime) -> String {
    run.need(Helper::Open);
    let (slot, flags) = (run.slot_number(slot), open_flags(flags));
    format!("open_slot({slot}, {}, {flags}, {})", name(path), octal(mode.0))
}

fn close(slot: Slot, run: &mut Runtime) -> String {
    run.need(Helper::Close);
    format!("close_slot({})", run.slot_number(slot))
}

fn getdents(slot: Slot, run: &mut Runtime) -> String {
    run.need(Helper::Entries);
    format!("entries({})", run.slot(slot))
}

fn list_piece(slot: Slot, back: u32, len: u64, run: &mut Runtime) -> String {
    run.need(Helper::ListPiece);
    let len = len.min(PIECE_BYTES_MAX);
    // A slot may have had another directory before.
    let back = if run.begin_listing(slot) { "SIZE_MAX".to_owned() } else { back.to_string() };
    format!("list_piece({}, {back}, {len})", run.slot_number(slot))
}

fn remount(run: &mut Runtime) -> String {
    run.need(Helper::Remount);
    "remount()".to_owned()
}

fn read(slot: Slot, len: u64, run: &mut Runtime) -> String {
    let (to, len) = buffer(len, run);
    format!("data(read({}, {to}, {len}))", run.slot(slot))
}

fn pread(slot: Slot, offset: i64, len: u64, run: &mut Runtime) -> String {
    let (to, len) = buffer(len, run);
    format!("data(pread({}, {to}, {len}, {}))", run.slot(slot), signed(offset))
}

fn write(slot: Slot, data: &Pattern, run: &mut Runtime) -> String {
    let (from, len) = pattern(data, run);
    format!("write({}, {from}, {len})", run.slot(slot))
}

fn pwrite(slot: Slot, offset: i64, data: &Pattern, run: &mut Runtime) -> String {
    let (from, len) = pattern(data, run);
    format!("pwrite({}, {from}, {len}, {})", run.slot(slot), signed(offset))
}

fn mmap_store(
    slot: Slot,
    offset: i64,
    data: &Pattern,
    sync: MsyncFlags,
    run: &mut Runtime,
) -> String {
    run.need(Helper::MmapStore);
    let ((from, len), sync) = (pattern(data, run), flags(sync));
    format!("mmap_store({}, {from}, {len}, {}, {sync})", run.slot(slot), signed(offset))
}

fn mmap_load(slot: Slot, offset: i64, len: u64, run: &mut Runtime) -> String {
    run.need(Helper::MmapLoad);
    let len = unsigned(len);
    format!("data(mmap_load({}, {len}, {}))", run.slot(slot), signed(offset))
}

/// Each side is a slot and, unless its position counts, an offset.
fn copy_file_range(
    from: (Slot, Option<i64>),
    to: (Slot, Option<i64>),
    len: u64,
    flags: u32,
    run: &mut Runtime,
) -> String {
    let (from_offset, to_offset) = (offset(from.1), offset(to.1));
    let (from, to) = (run.slot(from.0), run.slot(to.0));
    let len = length(len, run);
    format!("copy_file_range({from}, {from_offset}, {to}, {to_offset}, {len}, {flags}u)")
}

fn rename(from: &FsBytes, to: &FsBytes, how: RenameFlags) -> String {
    let (from, to) = (name(from), name(to));
    if how.is_empty() {
        return format!("rename({from}, {to})");
    }
    format!("renameat2(AT_FDCWD, {from}, AT_FDCWD, {to}, {})", flags(how))
}

fn link(from: &FsBytes, to: &FsBytes, follow: bool) -> String {
    let how = if follow { "AT_SYMLINK_FOLLOW" } else { "0" };
    format!("linkat(AT_FDCWD, {}, AT_FDCWD, {}, {how})", name(from), name(to))
}

fn link_slot(slot: Slot, to: &FsBytes, by_proc: bool, run: &mut Runtime) -> String {
    let (slot, to) = (run.slot(slot), name(to));
    if by_proc {
        run.need(Helper::FdPath);
        return format!("linkat(AT_FDCWD, fd_path({slot}), AT_FDCWD, {to}, AT_SYMLINK_FOLLOW)");
    }
    format!("linkat({slot}, \"\", AT_FDCWD, {to}, AT_EMPTY_PATH)")
}

fn readlink(path: &FsBytes, len: u64, run: &mut Runtime) -> String {
    // The kernel's type of the length is int: what is negative there stays wrong.
    let (to, len) = buffer((len as i32).clamp(0, PATH_BYTES) as u64, run);
    format!("data(readlink({}, {to}, {len}))", name(path))
}

fn mknod(path: &FsBytes, mode: Mode, (major, minor): (u32, u32)) -> String {
    // mknod(2) takes 12 bits of major and 20 of minor number.
    let dev = format!("makedev({}, {})", major & 0xfff, minor & 0xf_ffff);
    format!("mknod({}, {}, {dev})", name(path), octal(mode.0))
}

fn chmod(call: &str, target: &Target, mode: Mode, run: &mut Runtime) -> String {
    if call == "fchmodat2" {
        let (dir, path, how) = location(target, run);
        return format!("syscall(SYS_fchmodat2, {dir}, {path}, {}, {how})", octal(mode.0));
    }
    format!("{call}({}, {})", place(target, run), octal(mode.0))
}

fn chown(
    call: &str,
    target: &Target,
    uid: Option<u32>,
    gid: Option<u32>,
    run: &mut Runtime,
) -> String {
    let id = |id: Option<u32>| id.map_or("-1".to_owned(), |id| format!("{id}u"));
    format!("{call}({}, {}, {})", place(target, run), id(uid), id(gid))
}

fn utimens(target: &Target, atime: &TimeArg, mtime: &TimeArg, run: &mut Runtime) -> String {
    let (dir, path, how) = location(target, run);
    let times = format!("(const struct timespec[2]){{ {}, {} }}", time(atime), time(mtime));
    match target {
        Target::Slot(_) => format!("futimens({dir}, {times})"),
        _ => format!("utimensat({dir}, {path}, {times}, {how})"),
    }
}

fn stat(target: &Target, run: &mut Runtime) -> String {
    let (dir, path, how) = location(target, run);
    run.need(Helper::Attributes);
    format!("attributes({dir}, {path}, {how})")
}

fn statfs(call: &str, target: &Target, run: &mut Runtime) -> String {
    run.need(Helper::Space);
    format!("space({call}({}, &counts))", place(target, run))
}

fn access(target: &Target, mode: AccessMode, effective: bool, run: &mut Runtime) -> String {
    let (dir, path, how) = location(target, run);
    let how = match (how, effective) {
        (how, false) => how.to_owned(),
        ("0", true) => "AT_EACCESS".to_owned(),
        (how, true) => format!("{how} | AT_EACCESS"),
    };
    let mode = if mode.is_empty() { "F_OK".to_owned() } else { flags(mode) };
    format!("syscall(SYS_faccessat2, {dir}, {path}, {mode}, {how})")
}

fn getxattr(call: &str, target: &Target, key: &FsBytes, len: u64, run: &mut Runtime) -> String {
    let at = place(target, run);
    if len == 0 {
        return format!("{call}({at}, {}, NULL, 0)", name(key));
    }
    let (to, len) = buffer(len.min(XATTR_BYTES), run);
    format!("data({call}({at}, {}, {to}, {len}))", name(key))
}

fn listxattr(target: &Target, len: u64, run: &mut Runtime) -> String {
    let at = match target {
        Target::Path(path) => format!("{}, -1, 1", name(path)),
        Target::Link(path) => format!("{}, -1, 0", name(path)),
        Target::Slot(slot) => format!("NULL, {}, 0", run.slot(*slot)),
    };
    run.need(Helper::Names);
    format!("names({at}, {})", len.min(XATTR_BYTES))
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
