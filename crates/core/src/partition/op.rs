//! The partitions that an executed operation exercises, as a tracer of system calls would see them.
//!
//! An operation counts for the call by which executors carry it out: `Stat` is `statx`, `Access` is
//! `faccessat2`, a mapped store is `mmap` and `msync`. [`Op::Identity`] and [`Op::Remount`] are no
//! calls on a file system and count for nothing. An operation does not say whether its slot is open:
//! a slot counts as bad where the call failed with `EBADF`.

use super::table::{Base, table};
use super::value::{Granularity, Value};
use super::{Hit, Place};
use crate::errno::Errno;
use crate::op::{Op, Target};
use crate::outcome::{Outcome, Payload};

/// `AT_…` flags that executors use.
mod at {
    pub(super) const SYMLINK_NOFOLLOW: u64 = 0x100;
    pub(super) const EACCESS: u64 = 0x200;
    pub(super) const SYMLINK_FOLLOW: u64 = 0x400;
    pub(super) const EMPTY_PATH: u64 = 0x1000;
}

/// `O_CREAT` and `__O_TMPFILE`: without them open(2) ignores the mode.
const OPEN_CREATES: u32 = 0o100 | 0o20_000_000;
const STATX_BASIC_STATS: u64 = 0x7ff;
const PROT_READ: u64 = 1;
const PROT_WRITE: u64 = 2;
const MAP_SHARED: u64 = 1;
/// Mappings start at a multiple of it.
const PAGE_BYTES: i64 = 4096;

/// The partitions of an operation and its outcome, amounts by powers of two.
pub fn partitions_of(op: &Op, outcome: &Outcome) -> Vec<Hit> {
    partitions_at(op, outcome, Granularity::Powers)
}

/// The partitions of an operation and its outcome.
pub fn partitions_at(op: &Op, outcome: &Outcome, how: Granularity) -> Vec<Hit> {
    let mut seen = Seen { outcome, how, hits: Vec::new() };
    match op {
        Op::Identity { .. } | Op::Remount => {}
        Op::Umask { mask } => seen.call("umask").number("mask", mask.0.into()).result(),
        Op::Sync => seen.call("sync").result(),
        Op::Syncfs { .. } => seen.call("sync").fd("fd").result(),
        Op::Fsync { .. } | Op::Fdatasync { .. } => seen.call("fsync").fd("fd").result(),
        Op::Close { .. } => seen.call("close").fd("fd").result(),
        Op::Getdents { .. } => getdents(&mut seen),
        Op::Read { .. }
        | Op::Pread { .. }
        | Op::Write { .. }
        | Op::Pwrite { .. }
        | Op::Lseek { .. }
        | Op::Fallocate { .. }
        | Op::SyncFileRange { .. }
        | Op::MmapStore { .. }
        | Op::MmapLoad { .. }
        | Op::CopyFileRange { .. } => on_contents(op, &mut seen),
        Op::Truncate { target, .. }
        | Op::Chmod { target, .. }
        | Op::Chown { target, .. }
        | Op::Utimens { target, .. }
        | Op::Setxattr { target, .. }
        | Op::Getxattr { target, .. }
        | Op::Listxattr { target, .. }
        | Op::Removexattr { target, .. }
        | Op::Stat { target }
        | Op::Statfs { target }
        | Op::Access { target, .. } => on_target(op, target, &mut seen),
        _ => on_names(op, &mut seen),
    }
    seen.hits
}

fn on_contents(op: &Op, seen: &mut Seen<'_>) {
    match op {
        Op::Read { len, .. } => {
            seen.call("read").fd("fd").address("buf").number("count", *len).result();
        }
        Op::Pread { offset, len, .. } => {
            let call = &mut seen.call("read");
            call.fd("fd").address("buf").number("count", *len).signed("offset", *offset).result();
        }
        Op::Write { data, .. } => {
            seen.call("write").fd("fd").address("buf").number("count", data.len).result();
        }
        Op::Pwrite { offset, data, .. } => {
            let call = &mut seen.call("write");
            call.fd("fd")
                .address("buf")
                .number("count", data.len)
                .signed("offset", *offset)
                .result();
        }
        Op::Lseek { offset, whence, .. } => {
            let call = &mut seen.call("lseek");
            call.fd("fd").signed("offset", *offset).number("whence", *whence as u64).result();
        }
        Op::Fallocate { mode, offset, len, .. } => {
            let call = &mut seen.call("fallocate");
            call.fd("fd").number("mode", mode.bits().into());
            call.signed("offset", *offset).signed("len", *len).result();
        }
        Op::SyncFileRange { offset, len, flags, .. } => {
            let call = &mut seen.call("sync_file_range");
            call.fd("fd").signed("offset", *offset).signed("nbytes", *len);
            call.number("flags", flags.bits().into()).result();
        }
        Op::MmapStore { offset, data, sync, .. } => {
            mmap(seen, *offset, data.len, PROT_READ | PROT_WRITE);
            // Whether a failure was that of mmap or of msync is not recorded.
            if seen.outcome.result.is_ok() {
                let call = &mut seen.call("msync");
                call.address("addr").number("length", data.len);
                call.number("flags", sync.bits().into()).result();
            }
        }
        Op::MmapLoad { offset, len, .. } => mmap(seen, *offset, *len, PROT_READ),
        Op::CopyFileRange { from_offset, to_offset, len, flags, .. } => {
            let call = &mut seen.call("copy_file_range");
            call.fd("fd_in").optional("off_in", *from_offset);
            call.fd("fd_out").optional("off_out", *to_offset);
            call.number("size", *len).number("flags", (*flags).into()).result();
        }
        other => unreachable!("{} works on no contents", other.name()),
    }
}

fn mmap(seen: &mut Seen<'_>, offset: i64, len: u64, protection: u64) {
    let (start, length) = mapped(offset, len);
    let call = &mut seen.call("mmap");
    call.arg("addr", Value::Null).number("length", length);
    call.number("prot", protection).number("flags", MAP_SHARED);
    call.fd("fd").signed("offset", start).result();
}

/// What `getdents` returned in all: an outcome has the entries of all its calls, the kernel counts
/// their records (getdents(2): header of 19 bytes, name with NUL, aligned to 8), and the last call
/// returns 0.
pub fn listed_bytes(outcome: &Outcome) -> u64 {
    let record_bytes = |name: &[u8]| (19 + name.len() as u64 + 1).next_multiple_of(8);
    match &outcome.payload {
        Payload::Entries(all) => all.iter().map(|(name, _)| record_bytes(name.as_bytes())).sum(),
        _ => 0,
    }
}

/// A mapping of these bytes: where it starts and how long it is.
pub fn mapped(offset: i64, len: u64) -> (i64, u64) {
    let lead = offset.rem_euclid(PAGE_BYTES);
    (offset - lead, len.saturating_add(lead as u64))
}

fn getdents(seen: &mut Seen<'_>) {
    let (listed, result) = (listed_bytes(seen.outcome), seen.outcome.result);
    let call = &mut seen.call("getdents");
    call.fd("fd").address("dirp").result_of(result.map(|_| listed));
    if result.is_ok() && listed > 0 {
        call.result_of(Ok(0));
    }
}

fn on_names(op: &Op, seen: &mut Seen<'_>) {
    match op {
        Op::Open { path, flags, mode, .. } => {
            let call = &mut seen.call("open");
            call.here("dirfd").text("path", path.as_bytes()).number("flags", flags.bits().into());
            if flags.bits() & OPEN_CREATES != 0 {
                call.number("mode", mode.0.into());
            }
            call.result();
        }
        Op::Mkdir { path, mode } => {
            let call = &mut seen.call("mkdir");
            call.here("dirfd").text("path", path.as_bytes()).number("mode", mode.0.into()).result();
        }
        Op::Rmdir { path } => seen.call("rmdir").text("path", path.as_bytes()).result(),
        Op::Unlink { path } => {
            seen.call("unlink")
                .here("dirfd")
                .text("path", path.as_bytes())
                .number("flags", 0)
                .result();
        }
        Op::Rename { from, to, flags } => {
            let call = &mut seen.call("rename");
            call.here("olddirfd").text("oldpath", from.as_bytes());
            call.here("newdirfd").text("newpath", to.as_bytes());
            call.number("flags", flags.bits().into()).result();
        }
        Op::Link { from, to, follow } => {
            let call = &mut seen.call("link");
            call.here("olddirfd").text("oldpath", from.as_bytes());
            call.here("newdirfd").text("newpath", to.as_bytes());
            call.number("flags", if *follow { at::SYMLINK_FOLLOW } else { 0 }).result();
        }
        Op::Symlink { target, path } => {
            let call = &mut seen.call("symlink");
            call.text("target", target.as_bytes()).here("newdirfd");
            call.text("linkpath", path.as_bytes()).result();
        }
        Op::Readlink { path, len } => {
            let call = &mut seen.call("readlink");
            call.here("dirfd")
                .text("path", path.as_bytes())
                .address("buf")
                .number("bufsiz", *len)
                .result();
        }
        Op::Mknod { path, mode, .. } => {
            let call = &mut seen.call("mknod");
            call.here("dirfd").text("path", path.as_bytes()).number("mode", mode.0.into()).result();
        }
        other => unreachable!("{} is no operation on names", other.name()),
    }
}

fn on_target(op: &Op, target: &Target, seen: &mut Seen<'_>) {
    let link = matches!(target, Target::Link(_));
    let no_follow = if link { at::SYMLINK_NOFOLLOW } else { 0 };
    match op {
        Op::Truncate { len, .. } => {
            seen.call("truncate").named(target).signed("length", *len).result()
        }
        Op::Statfs { .. } => seen.call("statfs").named(target).address("buf").result(),
        Op::Chmod { mode, .. } => {
            let call = &mut seen.call("chmod");
            call.named(target).number("mode", mode.0.into());
            if link {
                call.number("flags", no_follow);
            }
            call.result();
        }
        Op::Chown { uid, gid, .. } => {
            let id = |id: &Option<u32>| u64::from(id.unwrap_or(u32::MAX));
            let call = &mut seen.call("chown");
            call.named(target).number("owner", id(uid)).number("group", id(gid));
            if !matches!(target, Target::Slot(_)) {
                call.here("dirfd").number("flags", no_follow);
            }
            call.result();
        }
        Op::Utimens { .. } => {
            let call = &mut seen.call("utime");
            match target {
                Target::Slot(_) => call.fd("dirfd").arg("path", Value::Text(None)),
                _ => call.here("dirfd").named(target),
            };
            call.address("times").number("flags", no_follow).result();
        }
        Op::Stat { .. } => {
            let call = &mut seen.call("stat");
            call.at("dirfd", target, 0)
                .number("mask", STATX_BASIC_STATS)
                .address("statxbuf")
                .result();
        }
        Op::Access { mode, effective, .. } => {
            let extra = if *effective { at::EACCESS } else { 0 };
            let call = &mut seen.call("access");
            call.at("dirfd", target, extra).number("mode", mode.bits().into()).result();
        }
        _ => on_xattrs(op, target, seen),
    }
}

fn on_xattrs(op: &Op, target: &Target, seen: &mut Seen<'_>) {
    match op {
        Op::Setxattr { name, value, flags, .. } => {
            let call = &mut seen.call("setxattr");
            call.named(target).text("name", name.as_bytes()).address("value");
            call.number("size", value.len).number("flags", flags.bits().into()).result();
        }
        Op::Getxattr { name, len, .. } => {
            let call = &mut seen.call("getxattr");
            call.named(target)
                .text("name", name.as_bytes())
                .address("value")
                .number("size", *len)
                .result();
        }
        Op::Listxattr { len, .. } => {
            seen.call("listxattr").named(target).address("list").number("size", *len).result();
        }
        Op::Removexattr { name, .. } => {
            seen.call("removexattr").named(target).text("name", name.as_bytes()).result();
        }
        other => unreachable!("{} works on no xattrs", other.name()),
    }
}

/// The partitions found so far.
struct Seen<'a> {
    outcome: &'a Outcome,
    how: Granularity,
    hits: Vec<Hit>,
}

/// One call of an operation.
struct Call<'s, 'a> {
    name: &'static str,
    base: &'static Base,
    seen: &'s mut Seen<'a>,
}

impl<'a> Seen<'a> {
    fn call(&mut self, name: &str) -> Call<'_, 'a> {
        let (name, base) = table().base(name).expect("the names here are those of the table");
        Call { name, base, seen: self }
    }
}

impl Call<'_, '_> {
    fn arg(&mut self, arg: &str, value: Value<'_>) -> &mut Self {
        let (arg, details) =
            self.base.args.get_key_value(arg).expect("the names here are those of the table");
        for partition in details.partitions(value, self.seen.how) {
            self.seen.hits.push(Hit { base: self.name, place: Place::Arg(arg), partition });
        }
        self
    }

    fn number(&mut self, arg: &str, value: u64) -> &mut Self {
        self.arg(arg, Value::Number(value))
    }

    fn signed(&mut self, arg: &str, value: i64) -> &mut Self {
        self.arg(arg, Value::Number(value as u64))
    }

    fn optional(&mut self, arg: &str, offset: Option<i64>) -> &mut Self {
        self.arg(arg, offset.map_or(Value::Null, |offset| Value::Number(offset as u64)))
    }

    fn text(&mut self, arg: &str, text: &[u8]) -> &mut Self {
        self.arg(arg, Value::Text(Some(text)))
    }

    fn address(&mut self, arg: &str) -> &mut Self {
        self.arg(arg, Value::Address)
    }

    fn here(&mut self, arg: &str) -> &mut Self {
        self.arg(arg, Value::CurrentDir)
    }

    fn fd(&mut self, arg: &str) -> &mut Self {
        let valid = self.seen.outcome.result != Err(Errno::EBADF);
        self.arg(arg, Value::Fd { valid })
    }

    /// A target as the `path` or `fd` of a call.
    fn named(&mut self, target: &Target) -> &mut Self {
        match target {
            Target::Path(path) | Target::Link(path) => self.text("path", path.as_bytes()),
            Target::Slot(_) => self.fd("fd"),
        }
    }

    /// A target as directory, path and flags of an `…at` call.
    fn at(&mut self, dir: &str, target: &Target, extra: u64) -> &mut Self {
        match target {
            Target::Path(path) => {
                self.here(dir).text("path", path.as_bytes()).number("flags", extra)
            }
            Target::Link(path) => self
                .here(dir)
                .text("path", path.as_bytes())
                .number("flags", extra | at::SYMLINK_NOFOLLOW),
            Target::Slot(_) => {
                self.fd(dir).text("path", b"").number("flags", extra | at::EMPTY_PATH)
            }
        }
    }

    fn result(&mut self) {
        self.result_of(self.seen.outcome.result);
    }

    fn result_of(&mut self, result: Result<u64, Errno>) {
        let partition = self.base.returns.partition(result);
        self.seen.hits.push(Hit { base: self.name, place: Place::Output, partition });
    }
}
