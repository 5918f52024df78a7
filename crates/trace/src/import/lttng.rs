//! Text of babeltrace from LTTng's system-call events:
//!
//! ```text
//! [12:00:00.123] (+0.000) host syscall_entry_openat: { cpu_id = 0 }, { vtid = 7, vpid = 7 }, { dfd = -100, filename = "/mnt/a", flags = 0x42, mode = 420 }
//! [12:00:00.124] (+0.001) host syscall_exit_openat: { cpu_id = 0 }, { vtid = 7, vpid = 7 }, { ret = 3 }
//! ```
//!
//! Entry and exit meet by thread (by processor where the log has no thread, which is told). Descriptors
//! and directories are followed per process, as far as a log can: an inherited one is not known.

use std::path::PathBuf;
use std::sync::LazyLock;

use memchr::memchr;
use memchr::memmem::{Finder, FinderRev};

use super::paths::{Known, Mounts};
use super::values::{Word, code, number};
use super::{Found, Reader};
use crate::layout::{Call, SLOTS_MAX, Slot, SlotKind, Source, calls, index_of};
use crate::sample::{AT_FDCWD, FastMap, Sample, Samples, Touch, fd};

/// The beginning of the names of events of system calls: an entry or an exit.
static EVENT: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("syscall_e"));
/// The text between two groups of fields.
static FIELDS: LazyLock<FinderRev<'static>> = LazyLock::new(|| FinderRev::new("}, {"));

/// Names of LTTng for arguments that the manual pages call otherwise.
const ALIASES: &[(&str, &[&str])] = &[
    ("path", &["filename", "pathname", "path"]),
    ("dirfd", &["dfd", "dirfd"]),
    ("oldpath", &["oldname", "oldpath"]),
    ("newpath", &["newname", "newpath"]),
    ("olddirfd", &["olddfd"]),
    ("newdirfd", &["newdfd"]),
    ("linkpath", &["newname"]),
    ("target", &["oldname", "name"]),
    ("oldfd", &["oldfd", "fildes"]),
    ("offset", &["offset", "pos"]),
    ("iovcnt", &["vlen"]),
    ("iov", &["vec"]),
    ("mode", &["mode"]),
    ("count", &["count"]),
    ("owner", &["user"]),
    ("statbuf", &["statbuf", "buffer"]),
];

/// The result of a call on a descriptor that was not open: a log does not say which ones are.
const EBADF: i64 = -9;

#[derive(Debug)]
struct PendingCall {
    call: u16,
    touch: Touch,
    slots: [u32; SLOTS_MAX],
    fd: Option<i32>,
}

/// Reads text of babeltrace.
pub(super) struct Lttng {
    mounts: Mounts,
    known: Known,
    begun: FastMap<u64, PendingCall>,
    samples: Samples,
    without_thread: u64,
}

impl Lttng {
    pub(super) fn new(mounts: &[PathBuf]) -> Lttng {
        Lttng {
            mounts: Mounts::new(mounts),
            known: Known::default(),
            begun: FastMap::default(),
            samples: Samples::default(),
            without_thread: 0,
        }
    }

    fn entry(&mut self, name: &str, thread: u64, process: u64, fields: &[u8]) {
        let Some(index) = index_of(alias_of_call(name)) else { return };
        let call = &calls()[usize::from(index)];
        let words = Words::new(fields);
        let mut touch = Touch::Nothing;
        let mut first_fd = None;
        let mut dirfd = AT_FDCWD;
        let mut slots = [0; SLOTS_MAX];
        for (slot, (place, names)) in
            call.slots.iter().zip(slots.iter_mut().zip(&names_of_arguments()[usize::from(index)]))
        {
            let word = match slot.source {
                Source::Register(_) => words.find(names),
                Source::Field { .. } => Word::Unknown,
            };
            *place = code(slot.kind, word, false);
            match (slot.kind, word) {
                (SlotKind::Fd, Word::Number(number)) => {
                    first_fd = first_fd.or(Some(number as i32));
                    touch = either(touch, self.known.fd(process, number as i32));
                }
                (SlotKind::DirFd, Word::Number(fd)) => dirfd = fd as i32,
                (SlotKind::Path, Word::Text { bytes, .. }) => {
                    let place = match (bytes.first(), dirfd) {
                        (Some(b'/'), _) => self.mounts.touch(bytes),
                        (_, AT_FDCWD) => self.known.cwd(process),
                        (_, fd) => self.known.fd(process, fd),
                    };
                    touch = either(touch, place);
                    dirfd = AT_FDCWD;
                }
                _ => {}
            }
        }
        if call.here {
            touch = self.known.cwd(process);
        }
        if self.mounts.everything() || call.global {
            touch = Touch::Inside;
        }
        self.begun.insert(thread, PendingCall { call: index, touch, slots, fd: first_fd });
    }

    fn exit(&mut self, name: &str, thread: u64, process: u64, fields: &[u8]) {
        let Some(begun) = self.begun.remove(&thread) else { return };
        let call = &calls()[usize::from(begun.call)];
        if call.name != alias_of_call(name) {
            return;
        }
        let result = pairs(fields).find(|(key, _)| *key == b"ret").and_then(|(_, v)| number(v));
        let result = result.unwrap_or(0) as i64;
        let touch = begun.touch;
        if result >= 0 {
            match (call.base, begun.fd) {
                ("open" | "dup", _) => self.known.set_fd(process, result as i32, touch),
                ("close", Some(fd)) => self.known.close(process, fd),
                ("chdir", _) => self.known.set_cwd(process, touch),
                _ => {}
            }
        }
        if touch == Touch::Inside {
            let mut slots = begun.slots;
            if result == EBADF {
                let is_fd = |slot: &Slot| matches!(slot.kind, SlotKind::Fd | SlotKind::DirFd);
                let fds = call.slots.iter().zip(&mut slots).filter(|(slot, _)| is_fd(slot));
                fds.for_each(|(_, code)| *code = fd::BAD);
            }
            let sample = Sample::new(begun.call, touch, slots, result);
            self.samples.add(sample, 1);
        }
    }
}

impl Reader for Lttng {
    fn line(&mut self, line: &[u8]) -> bool {
        let Some(at) = EVENT.find(line) else {
            // Other events of the same trace.
            return line.starts_with(b"[") || line.is_empty();
        };
        let rest = &line[at + b"syscall_e".len()..];
        let (is_entry, rest) = match rest {
            [b'n', b't', b'r', b'y', b'_', rest @ ..] => (true, rest),
            [b'x', b'i', b't', b'_', rest @ ..] => (false, rest),
            _ => return false,
        };
        let Some(colon) = memchr(b':', rest) else { return false };
        let Ok(name) = std::str::from_utf8(&rest[..colon]) else { return false };
        let body = &rest[colon..];
        let Some(open) = body.iter().rposition(|byte| *byte == b'{').map(|last| {
            // A text can contain a brace: the fields start after the last "}, {".
            FIELDS.rfind(body).map_or(last, |at| at + 3)
        }) else {
            return false;
        };
        let (context, fields) = body.split_at(open);
        let (mut thread, mut process, mut processor) = (None, None, 0);
        for (key, value) in numbers(context) {
            match key {
                b"vtid" | b"tid" => thread = Some(value),
                b"vpid" | b"pid" => process = Some(value),
                b"cpu_id" => processor = value,
                _ => {}
            }
        }
        self.without_thread += u64::from(thread.is_none());
        let thread = thread.unwrap_or(processor);
        let process = process.unwrap_or(thread);
        if is_entry {
            self.entry(name, thread, process, &fields[1..]);
        } else {
            self.exit(name, thread, process, &fields[1..]);
        }
        true
    }

    fn finish(self: Box<Self>) -> Found {
        let mut limits = vec!["inherited descriptors are not known from a log".to_owned()];
        if self.without_thread > 0 {
            limits.push(format!(
                "{} events have no thread: entry and exit were paired by processor",
                self.without_thread
            ));
        }
        Found { samples: self.samples, has_outputs: true, limits }
    }
}

/// Replaces the name of a kernel function by that of its call: LTTng names a few calls so.
fn alias_of_call(name: &str) -> &str {
    match name {
        "newstat" => "stat",
        "newlstat" => "lstat",
        "newfstat" => "fstat",
        other => other,
    }
}

fn either(a: Touch, b: Touch) -> Touch {
    if a == Touch::Inside || b == Touch::Inside { Touch::Inside } else { b }
}

/// Lists, for every call and kept argument, the names that LTTng can have for it.
fn names_of_arguments() -> &'static [Vec<Vec<&'static [u8]>>] {
    static NAMES: LazyLock<Vec<Vec<Vec<&'static [u8]>>>> = LazyLock::new(|| {
        let names = |name: &'static str| {
            let aliases = ALIASES.iter().filter(|(ours, _)| *ours == name);
            let aliases = aliases.flat_map(|(_, theirs)| theirs.iter().copied());
            std::iter::once(name).chain(aliases).map(str::as_bytes).collect()
        };
        let of_call = |call: &Call| call.slots.iter().map(|slot| names(slot.name)).collect();
        calls().iter().map(of_call).collect()
    });
    &NAMES
}

/// The fields of one event. No call has more.
struct Words<'a> {
    words: [(&'a [u8], &'a [u8]); 8],
}

impl<'a> Words<'a> {
    fn new(fields: &'a [u8]) -> Words<'a> {
        let mut words: [(&[u8], &[u8]); 8] = [(b"", b""); 8];
        for (place, pair) in words.iter_mut().zip(pairs(fields)) {
            *place = pair;
        }
        Words { words }
    }

    fn find(&self, names: &[&[u8]]) -> Word<'a> {
        match self.words.iter().find(|(key, _)| names.contains(key)) {
            Some((_, [b'"', text @ ..])) => {
                let text = text.strip_suffix(b"\"").unwrap_or(text);
                Word::Text { bytes: text, length: text.len() }
            }
            Some((_, value)) => number(value).map_or(Word::Unknown, Word::Number),
            None => Word::Unknown,
        }
    }
}

/// Splits `a = 1, b = "x, y" }` into pairs.
fn pairs(fields: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut rest = fields.strip_suffix(b"}").unwrap_or(fields);
    std::iter::from_fn(move || {
        rest = rest.trim_ascii_start();
        let equals = memchr(b'=', rest)?;
        let key = rest[..equals].trim_ascii_end();
        let value = rest[equals + 1..].trim_ascii_start();
        let end = if value.first() == Some(&b'"') {
            value[1..].iter().position(|byte| *byte == b'"').map_or(value.len(), |at| at + 2)
        } else {
            value.iter().position(|byte| *byte == b',').unwrap_or(value.len())
        };
        let (value, tail) = value.split_at(end);
        rest = tail.trim_ascii_start().strip_prefix(b",").unwrap_or(tail);
        Some((key, value.trim_ascii_end()))
    })
}

/// Iterates over every `key = number` of the contexts before the fields.
fn numbers(context: &[u8]) -> impl Iterator<Item = (&[u8], u64)> {
    let mut rest = context;
    std::iter::from_fn(move || {
        loop {
            let equals = memchr(b'=', rest)?;
            let key = rest[..equals].trim_ascii_end();
            let start = key.iter().rposition(|byte| matches!(byte, b' ' | b'{' | b'[' | b','));
            let key = &key[start.map_or(0, |at| at + 1)..];
            rest = rest[equals + 1..].trim_ascii_start();
            if let Some(value) = number(rest) {
                return Some((key, value));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
[1] (+0) h syscall_entry_openat: { cpu_id = 0 }, { vtid = 7, vpid = 7 }, { dfd = -100, filename = \"/m/a, b\", flags = 0x42, mode = 420 }
[1] (+0) h syscall_entry_openat: { cpu_id = 1 }, { vtid = 8, vpid = 8 }, { dfd = -100, filename = \"/etc/x\", flags = 0, mode = 0 }
[1] (+0) h syscall_exit_openat: { cpu_id = 0 }, { vtid = 8, vpid = 8 }, { ret = 3 }
[1] (+0) h syscall_exit_openat: { cpu_id = 1 }, { vtid = 7, vpid = 7 }, { ret = 3 }
[1] (+0) h syscall_entry_write: { cpu_id = 0 }, { vtid = 7, vpid = 7 }, { fd = 3, buf = 0x7f00, count = 4096 }
[1] (+0) h syscall_exit_write: { cpu_id = 0 }, { vtid = 7, vpid = 7 }, { ret = 4096 }
[1] (+0) h syscall_entry_write: { cpu_id = 0 }, { vtid = 8, vpid = 8 }, { fd = 3, buf = 0x7f00, count = 1 }
[1] (+0) h syscall_exit_write: { cpu_id = 0 }, { vtid = 8, vpid = 8 }, { ret = 1 }
[1] (+0) h sched_switch: { cpu_id = 0 }, { prev = 1 }
";

    #[test]
    fn threads_keep_their_own_descriptors() {
        let mut reader = Lttng::new(&["/m".into()]);
        for line in LOG.lines() {
            assert!(reader.line(line.as_bytes()), "{line}");
        }
        let found = Box::new(reader).finish();
        let mut calls: Vec<_> = found
            .samples
            .iter()
            .map(|(sample, count)| (sample.call().name, sample.result(), count))
            .collect();
        calls.sort_by_key(|call| call.0);
        assert_eq!(calls, [("openat", Ok(0), 1), ("write", Ok(4096), 1)]);
    }

    #[test]
    fn garbage_is_not_understood() {
        let mut reader = Lttng::new(&[]);
        assert!(!reader.line(b"hello"));
        assert!(!reader.line(b"syscall_entry_openat without fields"));
    }
}
