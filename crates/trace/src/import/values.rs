//! Turns the words of a log into samples.

use crate::layout::{Call, SLOTS_MAX, SlotKind, Source, calls};
use crate::sample::{AT_FDCWD, Raw, Sample, Touch, encode};

/// An argument as a log has it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word<'a> {
    /// A number.
    Number(u64),
    /// A text in quotes, unescaped or not: only its start and length matter.
    Text {
        /// Its first bytes.
        bytes: &'a [u8],
        /// Its length.
        length: usize,
    },
    /// A number in memory, to which the argument points.
    Behind(u64),
    /// A word that says nothing.
    Unknown,
}

/// The code of an argument.
pub(super) fn code(kind: SlotKind, word: Word<'_>, failed_badly: bool) -> u32 {
    match (kind, word) {
        (SlotKind::DirFd, Word::Number(value)) if value as i32 == AT_FDCWD => {
            encode(kind, Raw::Number(value))
        }
        // A log does not say which descriptors are open; EBADF says that one was not.
        (SlotKind::Fd | SlotKind::DirFd | SlotKind::FdNumber, Word::Number(_)) => {
            encode(kind, Raw::Fd(!failed_badly))
        }
        (
            SlotKind::Path | SlotKind::PathOrText | SlotKind::Text | SlotKind::XattrName,
            Word::Text { bytes, length },
        ) => {
            if bytes.len() == length {
                return encode(kind, Raw::Text(Some(bytes)));
            }
            // With escapes: only the first bytes and the true length count.
            let mut text = [b'x'; 4200];
            let start = bytes.len().min(16);
            text[..start].copy_from_slice(&bytes[..start]);
            encode(kind, Raw::Text(Some(&text[..length.min(text.len())])))
        }
        (
            SlotKind::Path | SlotKind::PathOrText | SlotKind::Text | SlotKind::XattrName,
            Word::Number(0),
        ) => encode(kind, Raw::Text(None)),
        (SlotKind::Pointer | SlotKind::Mapping, Word::Text { .. }) => encode(kind, Raw::Number(1)),
        (SlotKind::Offset, Word::Behind(value)) => encode(kind, Raw::Offset(value as i64)),
        (_, Word::Behind(_)) => encode(kind, Raw::Number(1)),
        (SlotKind::Offset, Word::Number(value)) if value != 0 => encode(kind, Raw::Unknown),
        (_, Word::Number(value)) => encode(kind, Raw::Number(value)),
        _ => encode(kind, Raw::Unknown),
    }
}

/// A sample from the words of the registers in their order, and of fields by name.
pub(super) fn sample<'a>(
    call: u16,
    touch: Touch,
    result: i64,
    word: impl Fn(&Call, Source, &str) -> Word<'a>,
) -> Sample {
    const EBADF: i64 = -9;
    let details = &calls()[usize::from(call)];
    let mut slots = [0; SLOTS_MAX];
    for (slot, place) in details.slots.iter().zip(&mut slots) {
        *place = code(slot.kind, word(details, slot.source, slot.name), result == EBADF);
    }
    Sample::new(call, touch, slots, result)
}

/// A decimal, octal (leading 0) or hexadecimal number at the start of a text.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let (radix, digits) = match digits {
        [b'0', b'x', rest @ ..] => (16, rest),
        [b'0', rest @ ..] if rest.first().is_some_and(u8::is_ascii_digit) => (8, rest),
        _ => (10, digits),
    };
    let mut value = 0u64;
    let mut any = false;
    for byte in digits {
        let Some(digit) = char::from(*byte).to_digit(radix) else { break };
        value = value.wrapping_mul(radix.into()).wrapping_add(digit.into());
        any = true;
    }
    any.then_some(if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_every_base() {
        assert_eq!(number(b"42, "), Some(42));
        assert_eq!(number(b"-100</x>"), Some(-100i64 as u64));
        assert_eq!(number(b"0x1ff)"), Some(0x1ff));
        assert_eq!(number(b"0644"), Some(0o644));
        assert_eq!(number(b"0"), Some(0));
        assert_eq!(number(b"NULL"), None);
        assert_eq!(number(b"-"), None);
    }
}
