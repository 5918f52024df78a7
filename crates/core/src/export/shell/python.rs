//! One operation as one Python expression, for the helper that does what tools cannot.

use std::collections::BTreeSet;

use crate::bytes::FsBytes;
use crate::claim::{Claim, Field, Probe, Time};
use crate::flags::{AccessMode, Mode, OpenFlags, RenameFlags, Whence, XattrFlags};
use crate::op::{Op, Slot, Target, TimeArg};
use crate::pattern::Pattern;

/// The helper, in sections.
const HELPER: &str = include_str!("helper.py");

/// What starts a section.
const SECTION: &str = "\n# ====";

/// Data of one call beyond this is not asked for, as executors do: no file in a trace is longer.
const BUFFER_BYTES: u64 = 64 << 20;
/// More than this is not asked for in one piece of a listing, as executors do.
const PIECE_BYTES_MAX: u64 = 1 << 20;
/// No symbolic link is longer than a path.
const PATH_BYTES: i32 = 4096;
/// No value or list of extended attributes is longer.
const XATTR_BYTES: u64 = 65536;

/// The helper with the sections that `used` calls, directly or not.
pub(super) fn helper(used: &str) -> String {
    let mut sections: Vec<&str> = HELPER.split(SECTION).collect();
    let end = sections.pop().unwrap_or_default();
    let functions = |section: &str| -> Vec<String> {
        let lines = section.lines().filter_map(|line| line.strip_prefix("def "));
        lines.filter_map(|line| line.split('(').next()).map(|name| format!("{name}(")).collect()
    };
    let mut taken = BTreeSet::from([0]);
    loop {
        let text: String = taken.iter().map(|at: &usize| sections[*at]).collect::<String>() + used;
        let calls = |section: &&str| functions(section).iter().any(|name| is_called(name, &text));
        let all: BTreeSet<usize> =
            (0..sections.len()).filter(|at| taken.contains(at) || calls(&sections[*at])).collect();
        if all == taken {
            break;
        }
        taken = all;
    }
    let mut text = sections[0].to_owned();
    for at in taken.into_iter().skip(1) {
        let (title, code) = sections[at].split_once('\n').unwrap_or_default();
        if !title.trim().is_empty() {
            text.push_str(&format!("\n# {}", title.trim()));
        }
        text.push_str(&format!("\n{code}"));
    }
    text + end.trim_start_matches(" END")
}

/// Whether a function is called by its whole name, and not that of another module.
fn is_called(name: &str, text: &str) -> bool {
    let part_of_name = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    text.match_indices(name).any(|(at, _)| {
        let before = &text[..at];
        !before.ends_with(part_of_name) && !before.ends_with("def ")
    })
}

/// The expression of an operation; its value is the answer. What takes more than a line or two has its
/// function.
pub(super) fn expression(op: &Op) -> String {
    match op {
        Op::Open { slot, path, flags, mode } => open(*slot, path, *flags, *mode),
        Op::Close { slot } => format!("close_slot({slot})"),
        Op::Getdents { slot } => format!("entries({slot})"),
        Op::ListPiece { slot, back, len } => list_piece(*slot, *back, *len),
        Op::Fsync { slot } => format!("call(\"fsync\", fd({slot}))"),
        Op::Fdatasync { slot } => format!("call(\"fdatasync\", fd({slot}))"),
        Op::Syncfs { slot } => format!("call(\"syncfs\", fd({slot}))"),
        Op::Sync => nothing("os.sync()".to_owned()),
        Op::Wait { seconds } => nothing(format!("__import__(\"time\").sleep({seconds})")),
        Op::Server { .. } => nothing("None".to_owned()),
        Op::Umask { mask } => format!("os.umask({:#o})", mask.0 & 0o777),
        Op::Identity { uid, gid, groups } => format!("identity({uid}, {gid}, {groups:?})"),
        Op::Remount => "leave()".to_owned(),
        Op::Read { slot, len } => format!("read({slot}, {})", (*len).min(BUFFER_BYTES)),
        Op::Pread { slot, offset, len } => {
            format!("pread({slot}, {}, {offset})", (*len).min(BUFFER_BYTES))
        }
        Op::Write { slot, data } => format!("write({slot}, {})", pattern(data)),
        Op::Pwrite { slot, offset, data } => format!("pwrite({slot}, {}, {offset})", pattern(data)),
        Op::Lseek { slot, offset, whence } => lseek(*slot, *offset, *whence),
        Op::Fallocate { slot, mode, offset, len } => {
            format!("call(\"fallocate\", fd({slot}), {:#x}, {offset}, {len})", mode.bits())
        }
        Op::SyncFileRange { slot, offset, len, flags } => {
            format!("call(\"sync_file_range\", fd({slot}), {offset}, {len}, {:#x})", flags.bits())
        }
        Op::MmapStore { slot, offset, data, sync } => {
            format!("mmap_store({slot}, {}, {offset}, {:#x})", pattern(data), sync.bits())
        }
        Op::MmapLoad { slot, offset, len } => format!("mmap_load({slot}, {len}, {offset})"),
        Op::CopyFileRange { from, from_offset, to, to_offset, len, flags } => {
            let (from_offset, to_offset) = (optional(*from_offset), optional(*to_offset));
            format!("copy_file_range({from}, {from_offset}, {to}, {to_offset}, {len}, {flags})")
        }
        Op::Mkdir { path, mode } => nothing(format!("os.mkdir({}, {:#o})", bytes(path), mode.0)),
        Op::Rmdir { path } => nothing(format!("os.rmdir({})", bytes(path))),
        Op::Unlink { path } => nothing(format!("os.unlink({})", bytes(path))),
        Op::Rename { from, to, flags } => rename(from, to, *flags),
        Op::Link { from, to, follow } => link(from, to, *follow),
        Op::LinkSlot { slot, to, by_proc } => link_slot(*slot, to, *by_proc),
        Op::Symlink { target, path } => {
            nothing(format!("os.symlink({}, {})", bytes(target), bytes(path)))
        }
        Op::Readlink { path, len } => {
            format!("readlink({}, {})", bytes(path), (*len as i32).clamp(0, PATH_BYTES))
        }
        Op::Mknod { path, mode, dev } => mknod(path, *mode, *dev),
        Op::Truncate { target, len } => {
            nothing(format!("os.{}({}, {len})", op.call(), place(target)))
        }
        Op::Chmod { target, mode } => chmod(op.call(), target, *mode),
        Op::Chown { target, uid, gid } => chown(op.call(), target, *uid, *gid),
        Op::Utimens { target, atime, mtime } => utimens(target, atime, mtime),
        Op::Stat { target } => format!("attributes(os.{}({}))", op.call(), place(target)),
        Op::Statfs { target } => statfs(op.call(), target),
        Op::Access { target, mode, effective } => access(target, *mode, *effective),
        Op::Setxattr { target, name, value, flags } => {
            setxattr(op.call(), (target, name), value, *flags)
        }
        Op::Getxattr { target, name, len } => getxattr(op.call(), target, name, *len),
        Op::Listxattr { target, len } => {
            format!("listxattr(\"{}\", {}, {})", op.call(), place(target), (*len).min(XATTR_BYTES))
        }
        Op::Removexattr { target, name } => {
            format!("call(\"{}\", {}, {})", op.call(), place(target), bytes(name))
        }
    }
}

fn open(slot: Slot, path: &FsBytes, flags: OpenFlags, mode: Mode) -> String {
    let flags: Vec<String> = flags.names().iter().map(|name| flag(name)).collect();
    format!("open_slot({slot}, {}, {}, {:#o})", bytes(path), flags.join(" | "), mode.0)
}

fn list_piece(slot: Slot, back: u32, len: u64) -> String {
    format!("list_piece({slot}, {back}, {})", len.min(PIECE_BYTES_MAX))
}

fn lseek(slot: Slot, offset: i64, whence: Whence) -> String {
    format!("lseek({slot}, {offset}, {})", seek(whence))
}

/// An offset; without one the position counts.
fn optional(offset: Option<i64>) -> String {
    offset.map_or("None".to_owned(), |offset| offset.to_string())
}

fn rename(from: &FsBytes, to: &FsBytes, flags: RenameFlags) -> String {
    let (from, to) = (bytes(from), bytes(to));
    if flags.is_empty() {
        return nothing(format!("os.rename({from}, {to})"));
    }
    format!("call(\"renameat2\", -100, {from}, -100, {to}, {:#x})", flags.bits())
}

fn link(from: &FsBytes, to: &FsBytes, follow: bool) -> String {
    let flags = if follow { 0x400 } else { 0 };
    format!("call(\"linkat\", -100, {}, -100, {}, {flags:#x})", bytes(from), bytes(to))
}

fn link_slot(slot: Slot, to: &FsBytes, by_proc: bool) -> String {
    let to = bytes(to);
    if by_proc {
        let from = format!("b\"/proc/self/fd/%d\" % fd({slot})");
        return format!("call(\"linkat\", -100, {from}, -100, {to}, 0x400)");
    }
    format!("call(\"linkat\", fd({slot}), b\"\", -100, {to}, 0x1000)")
}

fn mknod(path: &FsBytes, mode: Mode, (major, minor): (u32, u32)) -> String {
    let dev = format!("os.makedev({}, {})", major & 0xfff, minor & 0xf_ffff);
    nothing(format!("os.mknod({}, {:#o}, {dev})", bytes(path), mode.0))
}

fn chmod(call: &str, target: &Target, mode: Mode) -> String {
    if call == "fchmodat2" {
        let (dir, path, how) = location(target);
        return format!("call(\"syscall\", 452, {dir}, {path}, {:#o}, {how})", mode.0);
    }
    nothing(format!("os.{call}({}, {:#o})", place(target), mode.0))
}

fn chown(call: &str, target: &Target, uid: Option<u32>, gid: Option<u32>) -> String {
    let id = |id: Option<u32>| id.map_or("-1".to_owned(), |id| id.to_string());
    nothing(format!("os.{call}({}, {}, {})", place(target), id(uid), id(gid)))
}

fn utimens(target: &Target, atime: &TimeArg, mtime: &TimeArg) -> String {
    let (dir, path, how) = location(target);
    let (atime, mtime) = (time(atime), time(mtime));
    match target {
        Target::Slot(_) => format!("utimens(\"futimens\", ({dir},), {atime}, {mtime})"),
        _ => format!("utimens(\"utimensat\", ({dir}, {path}), {atime}, {mtime}, {how})"),
    }
}

/// The counts are not compared.
fn statfs(call: &str, target: &Target) -> String {
    format!("os.{}({}) and 0", call.replace("statfs", "statvfs"), place(target))
}

fn access(target: &Target, mode: AccessMode, effective: bool) -> String {
    let (dir, path, how) = location(target);
    let how = how | if effective { 0x200 } else { 0 };
    format!("call(\"syscall\", 439, {dir}, {path}, {:#x}, {how:#x})", mode.bits())
}

fn setxattr(
    call: &str,
    (target, name): (&Target, &FsBytes),
    value: &Pattern,
    flags: XattrFlags,
) -> String {
    let (at, name, size) = (place(target), bytes(name), value.len);
    let (value, flags) = (pattern(value), flags.bits());
    format!("call(\"{call}\", {at}, {name}, {value}, {size}, {flags:#x})")
}

fn getxattr(call: &str, target: &Target, name: &FsBytes, len: u64) -> String {
    let (at, len) = (place(target), len.min(XATTR_BYTES));
    format!("getxattr(\"{call}\", {at}, {}, {len})", bytes(name))
}

/// The expression that shows what a claim is about; none for the last answer.
pub(super) fn probe(claim: &Claim) -> Option<String> {
    let letter = |time: &Time| match time {
        Time::Mtime => "\"m\"",
        Time::Ctime => "\"c\"",
    };
    Some(match &claim.probe {
        Probe::Answer | Probe::Returns { .. } | Probe::Always { .. } | Probe::Checker { .. } => {
            return None;
        }
        Probe::KernelLog => "kernel_log()".to_owned(),
        Probe::Entry { path } => format!("entry({})", bytes(path)),
        Probe::Attribute { path, field: Field::Target } => format!("target({})", bytes(path)),
        Probe::Attribute { .. } => return None,
        Probe::Names { path } => format!("names_in({})", bytes(path)),
        Probe::Content { path, offset, len } => {
            format!("content({}, {offset}, {len})", bytes(path))
        }
        Probe::Xattr { path, name, offset, len } => {
            format!("xattr({}, {}, {offset}, {len})", bytes(path), bytes(name))
        }
        Probe::SameFile { .. } => return None,
        Probe::Time { path, time } => format!("time_text({}, {})", bytes(path), letter(time)),
        Probe::Order { earlier, earlier_time, later, later_time } => {
            let (first, second) = (letter(earlier_time), letter(later_time));
            format!("in_order({}, {first}, {}, {second})", bytes(earlier), bytes(later))
        }
        Probe::Space { field, slack } => {
            let fall: i64 = claim.expected.parse().unwrap_or_default();
            format!("space(\"{}\", {fall}, {slack})", field.name())
        }
    })
}

/// A call that returns nothing answers 0.
fn nothing(call: String) -> String {
    format!("{call} or 0")
}

/// A bytes literal.
fn bytes(bytes: &FsBytes) -> String {
    let mut text = String::from("b\"");
    for &byte in bytes.as_bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', byte as char]),
            b' '..=b'~' => text.push(byte as char),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text + "\""
}

fn place(target: &Target) -> String {
    match target {
        Target::Path(path) | Target::Link(path) => bytes(path),
        Target::Slot(slot) => format!("fd({slot})"),
    }
}

/// A target as the `…at` calls take it: directory, path, flags.
fn location(target: &Target) -> (String, String, u32) {
    match target {
        Target::Path(path) => ("-100".to_owned(), bytes(path), 0),
        Target::Link(path) => ("-100".to_owned(), bytes(path), 0x100),
        Target::Slot(slot) => (format!("fd({slot})"), "b\"\"".to_owned(), 0x1000),
    }
}

fn pattern(data: &Pattern) -> String {
    format!("pattern({:#x}, {})", data.seed, data.len)
}

/// A flag of open(2) by its name.
fn flag(name: &str) -> String {
    match name {
        "O_SYNC_BIT" => "os.O_SYNC & ~os.O_DSYNC".to_owned(),
        "O_TMPFILE_BIT" => "os.O_TMPFILE & ~os.O_DIRECTORY".to_owned(),
        hexadecimal if hexadecimal.starts_with("0x") => hexadecimal.to_owned(),
        name => format!("os.{name}"),
    }
}

fn seek(whence: Whence) -> u8 {
    match whence {
        Whence::Set => 0,
        Whence::Cur => 1,
        Whence::End => 2,
        Whence::Data => 3,
        Whence::Hole => 4,
    }
}

fn time(time: &TimeArg) -> String {
    match time {
        TimeArg::Now => "(0, (1 << 30) - 1)".to_owned(),
        TimeArg::Omit => "(0, (1 << 30) - 2)".to_owned(),
        TimeArg::At { sec, nsec } => format!("({sec}, {nsec})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_has_what_is_called_and_nothing_else() {
        let text = helper("read(0, 5)");
        for name in ["def fd(", "def read(", "def data(", "def xxh64(", "def buffer(", "eval("] {
            assert!(text.contains(name), "{name}\n{text}");
        }
        for name in ["def pattern(", "def entries(", "====", " END"] {
            assert!(!text.contains(name), "{name}\n{text}");
        }
    }
}
