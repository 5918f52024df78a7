//! Reads programs of syzkaller, which have inputs only.
//!
//! ```text
//! r0 = openat$dir(0xffffffffffffff9c, &(0x7f0000000000)='./file0\x00', 0x42, 0x1ff) (async)
//! ```
//!
//! A variant after `$` is another description of the same call. Everything counts: a program does not
//! say where it runs.

use super::values::{Word, number, sample};
use super::{Found, Reader};
use crate::layout::{Source, index_of};
use crate::sample::{Samples, Touch};

/// Reads programs of syzkaller.
#[derive(Default)]
pub(super) struct Syzkaller {
    samples: Samples,
}

/// Whether a line is one of a program of syzkaller.
pub(super) fn looks_like(line: &str) -> bool {
    let call = without_result(line.as_bytes());
    let Some(open) = call.iter().position(|byte| *byte == b'(') else { return false };
    let name_fits =
        call[..open].iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'$'));
    name_fits && (line.contains("&(0x7f") || line.contains("(0x")) && !line.contains(") = ")
}

impl Reader for Syzkaller {
    fn line(&mut self, line: &[u8]) -> bool {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            return true;
        }
        let call = without_result(line);
        let Some(open) = call.iter().position(|byte| *byte == b'(') else { return false };
        let name = call[..open].split(|byte| *byte == b'$').next().unwrap_or_default();
        let Ok(name) = std::str::from_utf8(name) else { return false };
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return false;
        }
        let Some(index) = index_of(name) else { return true };
        let args = arguments(&call[open + 1..]);
        let found = sample(index, Touch::Inside, 0, |_, source, _| match source {
            Source::Register(register) => word(args.get(usize::from(register)).copied()),
            Source::Field { register, offset, bytes } => {
                field(args.get(usize::from(register)).copied(), offset / bytes.max(1))
            }
        });
        self.samples.add(found, 1);
        true
    }

    fn finish(self: Box<Self>) -> Found {
        let limits = vec!["programs have no results: inputs only".to_owned()];
        Found { samples: self.samples, has_outputs: false, limits }
    }
}

/// Cuts off a leading `r0 = `.
fn without_result(line: &[u8]) -> &[u8] {
    let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    match line.iter().position(|byte| *byte == b'=') {
        Some(at) if line[0] == b'r' && digits(line[1..at].trim_ascii()) => {
            line[at + 1..].trim_ascii_start()
        }
        _ => line,
    }
}

/// The arguments up to the closing parenthesis of the call.
fn arguments(text: &[u8]) -> Vec<&[u8]> {
    let mut args = Vec::new();
    let (mut start, mut depth, mut quote) = (0, 0u32, 0);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if quote != 0 => quote = if *byte == quote { 0 } else { quote },
            b'\'' | b'"' => quote = *byte,
            b'(' | b'{' | b'[' | b'<' => depth += 1,
            b')' if depth == 0 => {
                args.push(text[start..at].trim_ascii());
                break;
            }
            b')' | b'}' | b']' | b'>' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                args.push(text[start..at].trim_ascii());
                start = at + 1;
            }
            _ => {}
        }
    }
    args.retain(|arg| !arg.is_empty());
    args
}

fn word(text: Option<&[u8]>) -> Word<'_> {
    let Some(text) = text else { return Word::Unknown };
    if text.starts_with(b"r") {
        return Word::Number(3);
    }
    if !text.starts_with(b"&") {
        return number(text).map_or(Word::Unknown, Word::Number);
    }
    // A pointer: &(0x7f0000000000)='text\x00'
    let Some(equals) = text.iter().position(|byte| *byte == b'=') else {
        return Word::Number(1);
    };
    match &text[equals + 1..] {
        [b'\'', inner @ ..] => {
            let end = inner.iter().position(|byte| *byte == b'\'').unwrap_or(inner.len());
            let inner = inner[..end].strip_suffix(br"\x00").unwrap_or(&inner[..end]);
            Word::Text { bytes: inner, length: inner.len() }
        }
        _ => Word::Number(1),
    }
}

/// Reads the n-th word of `&(0x7f…)={0x42, 0x1ff, 0x8}`.
fn field(text: Option<&[u8]>, index: u8) -> Word<'_> {
    let text = text.unwrap_or_default();
    let Some(open) = text.iter().position(|byte| *byte == b'{') else { return Word::Unknown };
    let inner = &text[open + 1..];
    let inner = inner.strip_suffix(b"}").unwrap_or(inner);
    let part = inner.split(|byte| *byte == b',').nth(index.into());
    part.and_then(|part| number(part.trim_ascii())).map_or(Word::Unknown, Word::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyse;
    use fathom_core::partition::Granularity;

    #[test]
    fn variants_and_pointers_are_read() {
        let program = r"
# a comment
r0 = openat$dir(0xffffffffffffff9c, &(0x7f0000000000)='./file0\x00', 0x42, 0x1ff) (async)
pwrite64(r0, &(0x7f0000000140)='hello', 0x1000, 0x8001)
openat2(r0, &(0x7f0000000000)='/a\x00', &(0x7f0000000040)={0x42, 0x1ff, 0x8}, 0x18)
socket(0x2, 0x1, 0x0)
";
        let mut reader = Syzkaller::default();
        for line in program.lines() {
            assert!(reader.line(line.as_bytes()), "{line}");
        }
        let found = Box::new(reader).finish();
        assert!(!found.has_outputs);
        let hits: Vec<String> = found
            .samples
            .iter()
            .flat_map(|(sample, _)| analyse::hits(sample, Granularity::Boundaries))
            .map(|hit| hit.to_string())
            .collect();
        for expected in [
            "open.flags O_CREAT",
            "open.path relative",
            "open.path absolute",
            "open.dirfd AT_FDCWD",
            "open.resolve RESOLVE_BENEATH",
            "write.count 2^12",
            "write.offset 2^15+1",
        ] {
            assert!(hits.iter().any(|hit| hit == expected), "{expected} is not in {hits:?}");
        }
        assert!(looks_like("r0 = open(&(0x7f0000000000)='./file0', 0x0, 0x0)"));
        assert!(!looks_like("12 openat(AT_FDCWD, \"x\", 0x0) = 3"));
    }
}
