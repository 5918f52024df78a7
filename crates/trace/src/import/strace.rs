//! `strace -f -y -X raw`:
//!
//! ```text
//! 1234  openat(0xffffff9c</home>, "a", 0x42, 0600) = 3</mnt/a>
//! 1234  write(3</mnt/a>, "x"..., 5) = -1 ENOSPC (No space left on device)
//! 1234  read(3</mnt/a>, <unfinished ...>
//! 1234  <... read resumed>"", 5) = 0
//! ```
//!
//! `-y` names descriptors and the current directory, so calls are attributed by name. Plain calls with
//! a relative path need the directory that the process has changed to.

use std::collections::HashMap;
use std::path::PathBuf;

use fathom_core::Errno;

use super::paths::{Known, Mounts};
use super::values::{Word, number, sample};
use super::{Found, Reader};
use crate::layout::{Call, SlotKind, Source, calls, index_of};
use crate::sample::{AT_FDCWD, Samples, Touch};

/// Reads logs of strace.
pub(super) struct Strace {
    mounts: Mounts,
    known: Known,
    unfinished: HashMap<u64, Vec<u8>>,
    samples: Samples,
}

impl Strace {
    pub(super) fn new(mounts: &[PathBuf]) -> Strace {
        Strace {
            mounts: Mounts::new(mounts),
            known: Known::default(),
            unfinished: HashMap::new(),
            samples: Samples::default(),
        }
    }

    /// Counts a whole call: `name(arguments) = result`.
    fn call(&mut self, process: u64, text: &[u8]) -> bool {
        let Some(open) = text.iter().position(|byte| *byte == b'(') else { return false };
        let Ok(name) = std::str::from_utf8(&text[..open]) else { return false };
        let Some((mut args, rest)) = arguments(&text[open + 1..]) else { return false };
        if matches!(name, "preadv" | "pwritev" | "preadv2" | "pwritev2") && args.len() > 3 {
            // One offset is shown, two registers hold it: flags come after the second.
            args.insert(4, b"0");
        }
        let Some(result) = result(rest) else { return false };
        if matches!(name, "fork" | "vfork" | "clone" | "clone3") && result > 0 {
            self.known.inherit_cwd(process, result as u64);
        }
        let Some(index) = index_of(name) else { return true };
        let call = &calls()[usize::from(index)];
        self.see_cwd(process, call, &args);
        let mut touch = self.touch(process, call, &args);
        if call.opens && result >= 0 {
            touch = named(rest).map_or(touch, |path| self.mounts.touch(path));
        }
        if call.base == "chdir" && result >= 0 {
            self.known.set_cwd(process, touch);
        }
        if touch == Touch::Inside || touch == Touch::Nothing {
            let word = |_: &Call, source, name: &str| match source {
                Source::Register(register) => word(args.get(usize::from(register)).copied()),
                Source::Field { register, .. } => {
                    field(args.get(usize::from(register)).copied(), name)
                }
            };
            self.samples.add(sample(index, touch, result, word), 1);
        }
        true
    }

    /// Learns the current directory: `-y` names it wherever a call could start there.
    fn see_cwd(&mut self, process: u64, call: &Call, args: &[&[u8]]) {
        for slot in call.slots.iter().filter(|slot| slot.kind == SlotKind::DirFd) {
            let Source::Register(register) = slot.source else { continue };
            let text = args.get(usize::from(register)).copied();
            let here = matches!(word(text), Word::Number(fd) if fd as i32 == AT_FDCWD);
            if let (true, Some(path)) = (here, text.and_then(named)) {
                self.known.set_cwd(process, self.mounts.touch(path));
            }
        }
    }

    fn touch(&self, process: u64, call: &Call, args: &[&[u8]]) -> Touch {
        if self.mounts.everything() || call.global {
            return Touch::Inside;
        }
        let mut touch = Touch::Nothing;
        let mut base = self.known.cwd(process);
        if call.here {
            // getcwd shows the directory; one that failed is where the process was seen last.
            let shown = args.first().filter(|text| text.starts_with(b"\"/"));
            return shown.map_or(base, |text| self.mounts.touch(unquoted(text)));
        }
        for slot in &call.slots {
            let Source::Register(register) = slot.source else { continue };
            let Some(text) = args.get(usize::from(register)) else { continue };
            let place = match (slot.kind, word(Some(text))) {
                (SlotKind::Fd, _) => named(text).map(|path| self.mounts.touch(path)),
                (SlotKind::DirFd, _) => {
                    base = named(text).map_or(base, |path| self.mounts.touch(path));
                    None
                }
                (SlotKind::Path, Word::Text { bytes: [b'/', ..], .. }) => {
                    Some(self.mounts.touch(unquoted(text)))
                }
                (SlotKind::Path, Word::Text { .. }) => Some(base),
                _ => None,
            };
            if let Some(place) = place {
                touch = if touch == Touch::Inside { touch } else { place };
            }
        }
        touch
    }
}

impl Reader for Strace {
    fn line(&mut self, line: &[u8]) -> bool {
        let line = line.trim_ascii();
        let (process, text) = process_of(line);
        if text.is_empty() || text.starts_with(b"+++") || text.starts_with(b"---") {
            return true;
        }
        if let Some(start) = text.strip_suffix(b"<unfinished ...>") {
            self.unfinished.insert(process, start.to_vec());
            return true;
        }
        if text.starts_with(b"<... ") {
            let marker = b"resumed>";
            let at = text.windows(marker.len()).position(|window| window == marker);
            let (Some(at), Some(mut whole)) = (at, self.unfinished.remove(&process)) else {
                return false;
            };
            whole.extend_from_slice(&text[at + marker.len()..]);
            return self.call(process, &whole);
        }
        self.call(process, text)
    }

    fn finish(self: Box<Self>) -> Found {
        let limits =
            vec!["attributed by names: symbolic links and `..` are taken by their letters".into()];
        Found { samples: self.samples, has_outputs: true, limits }
    }
}

/// Splits off the process: `[pid 12] `, `12 `, with or without a time after it.
fn process_of(line: &[u8]) -> (u64, &[u8]) {
    let rest = line.strip_prefix(b"[pid ").unwrap_or(line).trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let process = number(&rest[..digits]).unwrap_or(0);
    let rest = rest[digits..].trim_ascii_start();
    let rest = rest.strip_prefix(b"]").unwrap_or(rest).trim_ascii_start();
    if digits == 0 {
        return (0, line);
    }
    let is_time = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b':');
    let time = rest.iter().take_while(|byte| is_time(byte)).count();
    (process, rest[time..].trim_ascii_start())
}

/// Splits the arguments up to the closing parenthesis from what follows it.
fn arguments(text: &[u8]) -> Option<(Vec<&[u8]>, &[u8])> {
    let mut args = Vec::new();
    let (mut start, mut depth, mut quoted, mut named) = (0, 0u32, false, false);
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'\\' if quoted => at += 1,
            b'"' if !named => quoted = !quoted,
            _ if quoted => {}
            b'<' => named = true,
            b'>' if named => named = false,
            _ if named => {}
            b'(' | b'{' | b'[' => depth += 1,
            b')' if depth == 0 => {
                let last = text[start..at].trim_ascii();
                if !last.is_empty() {
                    args.push(last);
                }
                return Some((args, &text[at + 1..]));
            }
            b')' | b'}' | b']' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                args.push(text[start..at].trim_ascii());
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Reads a result: ` = -1 ENOENT (No such file or directory)` or ` = 3</mnt/a>`.
fn result(rest: &[u8]) -> Option<i64> {
    let text = rest.trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    if text.starts_with(b"?") {
        return Some(0);
    }
    let value = number(text)? as i64;
    if value != -1 {
        return Some(value);
    }
    let name = text.get(2..)?.trim_ascii_start();
    let end = name.iter().position(|byte| *byte == b' ').unwrap_or(name.len());
    let errno: Errno = std::str::from_utf8(&name[..end]).ok()?.parse().ok()?;
    Some(-i64::from(errno.0))
}

/// Reads the name in `3</mnt/a>`.
fn named(text: &[u8]) -> Option<&[u8]> {
    let start = text.iter().position(|byte| *byte == b'<')? + 1;
    let end = text.iter().rposition(|byte| *byte == b'>')?;
    text.get(start..end)
}

fn unquoted(text: &[u8]) -> &[u8] {
    let text = text.strip_prefix(b"\"").unwrap_or(text);
    text.iter().rposition(|byte| *byte == b'"').map_or(text, |end| &text[..end])
}

fn word(text: Option<&[u8]>) -> Word<'_> {
    match text {
        None => Word::Unknown,
        Some([b'"', ..]) => {
            let inner = unquoted(text.unwrap_or_default());
            Word::Text { bytes: inner, length: unescaped_length(inner) }
        }
        Some([b'A', b'T', b'_', b'F', b'D', ..]) => Word::Number(AT_FDCWD as u64),
        Some(text) if text.starts_with(b"NULL") => Word::Number(0),
        // An offset behind a pointer, before the call: `[4096]`, `[0] => [512]`, `[0 => 512]`.
        Some([b'[', rest @ ..]) if number(rest).is_some() => {
            Word::Behind(number(rest).unwrap_or(0))
        }
        // A structure or a list: there was an address.
        Some([b'{' | b'[', ..]) => Word::Number(1),
        Some(text) => number(text).map_or(Word::Unknown, Word::Number),
    }
}

/// Reads a field of `{flags=0x42, mode=0644}`.
fn field<'a>(text: Option<&'a [u8]>, name: &str) -> Word<'a> {
    let key = format!("{name}=");
    let text = text.unwrap_or_default();
    let at = text.windows(key.len()).position(|window| window == key.as_bytes());
    at.map_or(Word::Unknown, |at| word(Some(&text[at + key.len()..])))
}

/// Counts the bytes of a text in which `
/// `, `\0`, `\33` and `\x1b` are one byte each.
fn unescaped_length(text: &[u8]) -> usize {
    let (mut length, mut at) = (0, 0);
    while at < text.len() {
        length += 1;
        if text[at] != b'\\' {
            at += 1;
            continue;
        }
        at += match text.get(at + 1) {
            Some(b'x') => 4,
            Some(byte) if byte.is_ascii_digit() => {
                let digits = text[at + 1..].iter().take(3).take_while(|b| b.is_ascii_digit());
                1 + digits.count()
            }
            _ => 2,
        };
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Raw, encode};

    const LOG: &str = r#"
12  openat(0xffffff9c</m>, "a, b\"(", 0x42, 0600) = 3</m/a>
12  write(3</m/a>, "x\n"..., 4096) = -1 ENOSPC (No space left on device)
13  read(4</etc/passwd>,  <unfinished ...>
12  read(3</m/a>,  <unfinished ...>
13  <... read resumed>"", 5) = 0
12  <... read resumed>"abc", 5) = 3
12  openat(AT_FDCWD</home>, "/m2/x", O_RDONLY) = -1 ENOENT (No such file or directory)
12  openat2(3</m>, "x", {flags=0x8042, mode=0644, resolve=0x8}, 24) = 5</m/x>
12  pwritev2(3</m/a>, [{iov_base="x", iov_len=1}], 1, 4096, 0x10) = 1
12  copy_file_range(3</m/a>, [8192], 5</m/x>, NULL, 10, 0) = 0
12  getcwd("/m/d", 4096) = 5
13  getcwd("/home", 4096) = 6
12  --- SIGCHLD {si_signo=SIGCHLD} ---
12  +++ exited with 0 +++
"#;

    #[test]
    fn calls_on_the_mount_are_counted_with_their_results() {
        let mut reader = Strace::new(&["/m".into()]);
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
        assert_eq!(
            calls,
            [
                ("copy_file_range", Ok(0), 1),
                ("getcwd", Ok(5), 1),
                ("openat", Ok(0), 1),
                ("openat2", Ok(0), 1),
                ("pwritev2", Ok(1), 1),
                ("read", Ok(3), 1),
                ("write", Err(Errno::ENOSPC), 1)
            ]
        );
        let openat2 = found.samples.iter().find(|(s, _)| s.call().name == "openat2").unwrap().0;
        assert_eq!(openat2.slots[4..7], [0x8042, 0o644, 8]);
        let hits = |name: &str| {
            let (sample, _) = found.samples.iter().find(|(s, _)| s.call().name == name).unwrap();
            let call = sample.call();
            let names = call.slots.iter().map(|slot| slot.name);
            names.zip(sample.slots).collect::<HashMap<_, _>>()
        };
        let written = hits("pwritev2");
        assert_eq!(written["flags"], 0x10, "RWF_APPEND");
        assert_eq!(written["offset"], encode(SlotKind::SignedAmount, Raw::Number(4096)));
        let copied = hits("copy_file_range");
        assert_eq!(copied["off_in"], encode(SlotKind::Offset, Raw::Offset(8192)));
        assert_eq!(copied["off_out"], encode(SlotKind::Offset, Raw::Number(0)));
        assert!(!Strace::new(&[]).line(b"12 hello world"));
    }

    #[test]
    fn plain_calls_start_where_their_process_is() {
        let mut reader = Strace::new(&["/m".into()]);
        let log = "1 chdir(\"/m/d\") = 0\n\
                   2 mkdir(\"too early to know\", 0777) = 0\n\
                   1 vfork() = 2\n\
                   2 mkdir(\"a\", 0777) = 0\n\
                   3 newfstatat(-100</m>, \"/etc/x\", 0x7ffd, 0) = -1 ENOENT (No such file)\n\
                   3 rmdir(\"b\") = 0\n\
                   3 chdir(\"/\") = 0\n\
                   3 rmdir(\"c\") = 0\n";
        assert!(log.lines().all(|line| reader.line(line.as_bytes())));
        let found = Box::new(reader).finish();
        let count = |name| {
            found.samples.iter().filter(|(s, _)| s.call().name == name).map(|(_, n)| n).sum::<u64>()
        };
        assert_eq!((count("mkdir"), count("rmdir"), count("chdir")), (1, 1, 1));
    }

    #[test]
    fn escapes_are_one_byte() {
        assert_eq!(unescaped_length(br"a\n\0\33\x1bz"), 6);
    }
}
