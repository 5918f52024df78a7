//! One operation as one Python expression, for the helper that does what tools cannot.

use std::collections::BTreeSet;

use crate::bytes::FsBytes;
use crate::claim::{Claim, Field, Probe, Time};
use crate::flags::Whence;
use crate::op::{Op, Target, TimeArg};
use crate::pattern::Pattern;

/// The helper, in sections.
const HELPER: &str = include_str!("helper.py");

/// What starts a section.
const SECTION: &str = "\n# ====";

/// Data of one call beyond this is not asked for, as executors do: no file in a trace is longer.
const BUFFER_BYTES: u64 = 64 << 20;
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

/// The expression of an operation; its value is the answer.
pub(super) fn expression(op: &Op) -> String {
    match op {
        Op::Open { slot, path, flags, mode } => {
            let flags: Vec<String> = flags.names().iter().map(|name| flag(name)).collect();
            format!("open_slot({slot}, {}, {}, {:#o})", bytes(path), flags.join(" | "), mode.0)
        }
        Op::Close { slot } => format!("close_slot({slot})"),
        Op::Getdents { slot } => format!("entries({slot})"),
        Op::Fsync { slot } => format!("call(\"fsync\", fd({slot}))"),
        Op::Fdatasync { slot } => format!("call(\"fdatasync\", fd({slot}))"),
        Op::Syncfs { slot } => format!("call(\"syncfs\", fd({slot}))"),
        Op::Sync => nothing("os.sync()".to_owned()),
        Op::Umask { mask } => format!("os.umask({:#o})", mask.0 & 0o777),
        Op::Identity { uid, gid, groups } => format!("identity({uid}, {gid}, {groups:?})"),
        Op::Remount => "leave()".to_owned(),
        Op::Read { .. }
        | Op::Pread { .. }
        | Op::Write { .. }
        | Op::Pwrite { .. }
        | Op::Lseek { .. }
        | Op::Fallocate { .. }
        | Op::SyncFileRange { .. }
        | Op::MmapStore { .. }
        | Op::MmapLoad { .. }
        | Op::CopyFileRange { .. } => on_contents(op),
        Op::Setxattr { .. }
        | Op::Getxattr { .. }
        | Op::Listxattr { .. }
        | Op::Removexattr { .. } => on_xattrs(op),
        Op::Truncate { target, .. }
        | Op::Chmod { target, .. }
        | Op::Chown { target, .. }
        | Op::Utimens { target, .. }
        | Op::Stat { target }
        | Op::Statfs { target }
        | Op::Access { target, .. } => on_attributes(op, target),
        _ => on_names(op),
    }
}

fn on_contents(op: &Op) -> String {
    match op {
        Op::Read { slot, len } => format!("read({slot}, {})", (*len).min(BUFFER_BYTES)),
        Op::Pread { slot, offset, len } => {
            format!("pread({slot}, {}, {offset})", (*len).min(BUFFER_BYTES))
        }
        Op::Write { slot, data } => format!("write({slot}, {})", pattern(data)),
        Op::Pwrite { slot, offset, data } => {
            format!("pwrite({slot}, {}, {offset})", pattern(data))
        }
        Op::Lseek { slot, offset, whence } => {
            format!("os.lseek(fd({slot}), {offset}, {})", seek(*whence))
        }
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
            let place = |at: &Option<i64>| at.map_or("None".to_owned(), |at| at.to_string());
            let (from_offset, to_offset) = (place(from_offset), place(to_offset));
            format!("copy_file_range({from}, {from_offset}, {to}, {to_offset}, {len}, {flags})")
        }
        other => unreachable!("{} works on no contents", other.name()),
    }
}

fn on_names(op: &Op) -> String {
    match op {
        Op::Mkdir { path, mode } => nothing(format!("os.mkdir({}, {:#o})", bytes(path), mode.0)),
        Op::Rmdir { path } => nothing(format!("os.rmdir({})", bytes(path))),
        Op::Unlink { path } => nothing(format!("os.unlink({})", bytes(path))),
        Op::Rename { from, to, flags } if flags.is_empty() => {
            nothing(format!("os.rename({}, {})", bytes(from), bytes(to)))
        }
        Op::Rename { from, to, flags } => {
            let (from, to, flags) = (bytes(from), bytes(to), flags.bits());
            format!("call(\"renameat2\", -100, {from}, -100, {to}, {flags:#x})")
        }
        Op::Link { from, to, follow } => {
            let flags = if *follow { 0x400 } else { 0 };
            format!("call(\"linkat\", -100, {}, -100, {}, {flags:#x})", bytes(from), bytes(to))
        }
        Op::Symlink { target, path } => {
            nothing(format!("os.symlink({}, {})", bytes(target), bytes(path)))
        }
        Op::Readlink { path, len } => {
            format!("readlink({}, {})", bytes(path), (*len as i32).clamp(0, PATH_BYTES))
        }
        Op::Mknod { path, mode, dev: (major, minor) } => {
            let dev = format!("os.makedev({}, {})", major & 0xfff, minor & 0xf_ffff);
            nothing(format!("os.mknod({}, {:#o}, {dev})", bytes(path), mode.0))
        }
        other => unreachable!("{} is no operation on names", other.name()),
    }
}

fn on_attributes(op: &Op, target: &Target) -> String {
    let (dir, path, how) = location(target);
    let plain = place(target);
    match op {
        Op::Truncate { len, .. } => nothing(format!("os.{}({plain}, {len})", op.call())),
        Op::Chmod { mode, .. } if op.call() == "fchmodat2" => {
            format!("call(\"syscall\", 452, {dir}, {path}, {:#o}, {how})", mode.0)
        }
        Op::Chmod { mode, .. } => nothing(format!("os.{}({plain}, {:#o})", op.call(), mode.0)),
        Op::Chown { uid, gid, .. } => {
            let id = |id: &Option<u32>| id.map_or("-1".to_owned(), |id| id.to_string());
            nothing(format!("os.{}({plain}, {}, {})", op.call(), id(uid), id(gid)))
        }
        Op::Utimens { atime, mtime, .. } => {
            let (atime, mtime) = (time(atime), time(mtime));
            match target {
                Target::Slot(_) => format!("utimens(\"futimens\", ({dir},), {atime}, {mtime})"),
                _ => format!("utimens(\"utimensat\", ({dir}, {path}), {atime}, {mtime}, {how})"),
            }
        }
        Op::Stat { .. } => format!("attributes(os.{}({plain}))", op.call()),
        Op::Statfs { .. } => {
            // The counts are not compared.
            format!("os.{}({plain}) and 0", op.call().replace("statfs", "statvfs"))
        }
        Op::Access { mode, effective, .. } => {
            let how = how | if *effective { 0x200 } else { 0 };
            format!("call(\"syscall\", 439, {dir}, {path}, {:#x}, {how:#x})", mode.bits())
        }
        other => unreachable!("{} works on no attributes", other.name()),
    }
}

fn on_xattrs(op: &Op) -> String {
    match op {
        Op::Setxattr { target, name, value, flags } => {
            let (at, name, size) = (place(target), bytes(name), value.len);
            let (call, value, flags) = (op.call(), pattern(value), flags.bits());
            format!("call(\"{call}\", {at}, {name}, {value}, {size}, {flags:#x})")
        }
        Op::Getxattr { target, name, len } => {
            let (at, len) = (place(target), (*len).min(XATTR_BYTES));
            format!("getxattr(\"{}\", {at}, {}, {len})", op.call(), bytes(name))
        }
        Op::Listxattr { target, len } => {
            format!("listxattr(\"{}\", {}, {})", op.call(), place(target), (*len).min(XATTR_BYTES))
        }
        Op::Removexattr { target, name } => {
            format!("call(\"{}\", {}, {})", op.call(), place(target), bytes(name))
        }
        other => unreachable!("{} works on no xattrs", other.name()),
    }
}

/// The expression that shows what a claim is about; none for the last answer.
pub(super) fn probe(claim: &Claim) -> Option<String> {
    let letter = |time: &Time| match time {
        Time::Mtime => "\"m\"",
        Time::Ctime => "\"c\"",
    };
    Some(match &claim.probe {
        Probe::Answer => return None,
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
