//! [`Sample`]: what is kept of one system call, and [`Samples`]: how often each was seen.
//!
//! All tracers and importers count samples; a sample has everything that partitions need, and nothing
//! that would make two alike calls differ. The tracer in the kernel uses the same 48 bytes as the
//! key of its map (`struct sample` of `bpf/encode.h`).

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use fathom_core::Errno;
use fathom_core::partition::value::XATTR_NAMESPACES as NAMESPACES;
use fathom_core::partition::{Returns, Value, amount};

use crate::layout::{Call, SLOTS_MAX, SlotKind, calls};

/// The relation of a call to the file systems that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Touch {
    /// The call concerns one of them.
    Inside = 1,
    /// The call concerns others only.
    Outside = 2,
    /// The call concerns no file system: a bad descriptor, a bad address.
    Nothing = 8,
    /// It could not be found out which file system the call concerns.
    Unresolved = 16,
}

/// One system call by the classes of its arguments and its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct Sample {
    /// The index of the call in [`calls`].
    pub call: u16,
    /// The error, or 0.
    pub errno: u16,
    /// The code of a returned amount.
    pub amount: u16,
    /// A [`Touch`] as a number.
    pub touch: u8,
    /// Always 0: keys are compared byte by byte.
    pub unused: u8,
    /// The codes of the kept arguments.
    pub slots: [u32; SLOTS_MAX],
}

/// Codes of descriptors.
pub mod fd {
    /// An open descriptor.
    pub const VALID: u32 = 0;
    /// A descriptor that is not open.
    pub const BAD: u32 = 1;
    /// The current directory, `AT_FDCWD`.
    pub const HERE: u32 = 2;
}

/// Codes of texts; the code of the length is in the upper half.
pub mod text {
    /// A null pointer.
    pub const NULL: u32 = 0;
    /// A text of no character.
    pub const EMPTY: u32 = 1;
    /// A path from the current or the given directory; any other text.
    pub const RELATIVE: u32 = 2;
    /// A path from the root.
    pub const ABSOLUTE: u32 = 3;
    /// An address that cannot be read.
    pub const UNREADABLE: u32 = 4;
    /// The name of an attribute in no known namespace.
    pub const NO_NAMESPACE: u32 = 5;
    /// The name of an attribute in one of the known namespaces: this plus the index of the
    /// namespace.
    pub const NAMESPACE: u32 = 8;
}

/// Codes of offsets behind pointers; the code of the amount is in the lower half.
pub mod offset {
    /// An offset that can be read.
    pub const PRESENT: u32 = 0x1_0000;
    /// An offset behind a bad pointer.
    pub const UNREADABLE: u32 = 0x2_0000;
}

/// Codes of user and group identifiers.
pub mod id {
    /// An identifier of −1: left as it is.
    pub const UNCHANGED: u32 = 0;
    /// The identifier 0.
    pub const ROOT: u32 = 1;
    /// Any other identifier.
    pub const OTHER: u32 = 2;
}

/// Bytes of a text that are looked at: one more than the longest path.
pub const TEXT_BYTES_MAX: usize = 4096;

/// An argument as it was read, before it is coded.
#[derive(Clone, Copy, Debug)]
pub enum Raw<'a> {
    /// The contents of a register or field.
    Number(u64),
    /// A text; `None` for a null pointer.
    Text(Option<&'a [u8]>),
    /// A text that cannot be read.
    Unreadable,
    /// A descriptor that is open or not.
    Fd(bool),
    /// An offset behind a pointer.
    Offset(i64),
    /// An argument that is not known: it counts for nothing.
    Unknown,
}

/// The code that says "not known", for any kind.
pub const UNKNOWN: u32 = u32::MAX - 1;

/// `AT_FDCWD` as an `int`.
pub const AT_FDCWD: i32 = -100;

/// The code of an argument of this kind.
pub fn encode(kind: SlotKind, raw: Raw<'_>) -> u32 {
    match (kind, raw) {
        (SlotKind::Skip, _) => 0,
        (_, Raw::Unknown) => UNKNOWN,
        (SlotKind::Bits, Raw::Number(value)) => value as u32,
        (SlotKind::WideBits, Raw::Number(value)) => wide_bits(value),
        (SlotKind::Amount, Raw::Number(value)) => amount::encode(value).into(),
        (SlotKind::SignedAmount, Raw::Number(value)) => amount::encode_signed(value as i64).into(),
        (SlotKind::Amount32, Raw::Number(value)) => amount::encode(value & 0xffff_ffff).into(),
        (SlotKind::SignedAmount32, Raw::Number(value)) => {
            amount::encode_signed((value as i32).into()).into()
        }
        (SlotKind::Fd | SlotKind::FdNumber | SlotKind::DirFd, Raw::Fd(valid)) => {
            if valid {
                fd::VALID
            } else {
                fd::BAD
            }
        }
        (SlotKind::DirFd, Raw::Number(_)) => fd::HERE,
        (SlotKind::Path | SlotKind::PathOrText | SlotKind::Text, Raw::Text(text)) => {
            encode_text(text)
        }
        (SlotKind::XattrName, Raw::Text(text)) => encode_name(text),
        (
            SlotKind::Path | SlotKind::PathOrText | SlotKind::Text | SlotKind::XattrName,
            Raw::Unreadable,
        ) => text::UNREADABLE,
        (SlotKind::Id, Raw::Number(value)) => match value as u32 {
            u32::MAX => id::UNCHANGED,
            0 => id::ROOT,
            _ => id::OTHER,
        },
        (SlotKind::Pointer | SlotKind::Mapping, Raw::Number(value)) => u32::from(value != 0),
        (SlotKind::Offset, Raw::Offset(value)) => {
            offset::PRESENT | u32::from(amount::encode_signed(value))
        }
        (SlotKind::Offset, Raw::Unreadable) => offset::UNREADABLE,
        (SlotKind::Offset, Raw::Number(0)) => 0,
        _ => UNKNOWN,
    }
}

/// A bit that has no name in any argument of 64 bits (a test says so): it stands for the upper half.
const WITHOUT_NAME: u32 = 0x2000_0000;

fn wide_bits(value: u64) -> u32 {
    if value >> 32 != 0 { value as u32 | WITHOUT_NAME } else { value as u32 }
}

fn encode_text(text: Option<&[u8]>) -> u32 {
    let Some(text) = text else {
        return text::NULL;
    };
    let class = match text.first() {
        None => return text::EMPTY,
        Some(b'/') => text::ABSOLUTE,
        Some(_) => text::RELATIVE,
    };
    class | u32::from(amount::encode(text.len() as u64)) << 16
}

fn encode_name(text: Option<&[u8]>) -> u32 {
    let Some(name) = text else {
        return text::NULL;
    };
    let index = NAMESPACES.iter().position(|space| name.starts_with(space.as_bytes()));
    let class = index.map_or(text::NO_NAMESPACE, |index| text::NAMESPACE + index as u32);
    class | u32::from(amount::encode(name.len() as u64)) << 16
}

/// A value with the partitions of all arguments that have this code; `None` if it is not known.
pub fn representative(kind: SlotKind, code: u32) -> Option<Value<'static>> {
    if code == UNKNOWN {
        return None;
    }
    let number = |code: u32| Value::Number(amount::representative(code as u16));
    Some(match kind {
        SlotKind::Skip => return None,
        SlotKind::Bits | SlotKind::WideBits => Value::Number(code.into()),
        SlotKind::Amount
        | SlotKind::SignedAmount
        | SlotKind::Amount32
        | SlotKind::SignedAmount32 => number(code),
        SlotKind::Fd | SlotKind::FdNumber => Value::Fd { valid: code == fd::VALID },
        SlotKind::DirFd if code == fd::HERE => Value::CurrentDir,
        SlotKind::DirFd => Value::Fd { valid: code == fd::VALID },
        SlotKind::Path | SlotKind::PathOrText | SlotKind::Text | SlotKind::XattrName => {
            representative_text(code)
        }
        SlotKind::Id => Value::Number(match code {
            id::UNCHANGED => u32::MAX.into(),
            id::ROOT => 0,
            _ => 1000,
        }),
        SlotKind::Pointer | SlotKind::Mapping if code == 0 => Value::Null,
        SlotKind::Pointer | SlotKind::Mapping => Value::Address,
        SlotKind::Offset if code == 0 => Value::Null,
        SlotKind::Offset if code == offset::UNREADABLE => return None,
        SlotKind::Offset => number(code & 0xffff),
    })
}

fn representative_text(code: u32) -> Value<'static> {
    static RELATIVE: [u8; 2 * TEXT_BYTES_MAX] = [b'x'; 2 * TEXT_BYTES_MAX];
    static ABSOLUTE: [u8; 2 * TEXT_BYTES_MAX] = [b'/'; 2 * TEXT_BYTES_MAX];
    static NAMES: [[u8; 2 * TEXT_BYTES_MAX]; NAMESPACES.len()] = names();
    let length = amount::representative((code >> 16) as u16) as usize;
    let take = |text: &'static [u8]| Value::Text(text.get(..length.min(text.len())));
    match code & 0xffff {
        text::NULL => Value::Text(None),
        text::EMPTY => Value::Text(Some(b"")),
        text::UNREADABLE => Value::Unreadable,
        text::ABSOLUTE => take(&ABSOLUTE),
        class if class >= text::NAMESPACE => {
            take(&NAMES[(class - text::NAMESPACE) as usize % NAMESPACES.len()])
        }
        _ => take(&RELATIVE),
    }
}

const fn names() -> [[u8; 2 * TEXT_BYTES_MAX]; NAMESPACES.len()] {
    let mut all = [[b'x'; 2 * TEXT_BYTES_MAX]; NAMESPACES.len()];
    let mut index = 0;
    while index < NAMESPACES.len() {
        let name = NAMESPACES[index].as_bytes();
        let mut at = 0;
        while at < name.len() {
            all[index][at] = name[at];
            at += 1;
        }
        index += 1;
    }
    all
}

/// Whether a result is an error number of the kernel that asks for a restart and never reaches a
/// program (`ERESTARTSYS` and its family, the kernel's `include/linux/errno.h`).
pub(crate) fn is_restart(result: i64) -> bool {
    matches!(-result, 512..=514 | 516)
}

impl Sample {
    /// Makes a sample of a call that has ended.
    pub fn new(call: u16, touch: Touch, slots: [u32; SLOTS_MAX], result: i64) -> Sample {
        let returns = calls()[usize::from(call)].family.returns;
        let (errno, amount) = encode_result(returns, result);
        Sample { call, errno, amount, touch: touch as u8, unused: 0, slots }
    }

    /// The call.
    pub fn call(&self) -> &'static Call {
        &calls()[usize::from(self.call)]
    }

    /// Its relation to the watched file systems.
    pub fn touch(&self) -> Touch {
        match self.touch {
            1 => Touch::Inside,
            2 => Touch::Outside,
            16 => Touch::Unresolved,
            _ => Touch::Nothing,
        }
    }

    /// Its result: a number with the partition of the real one.
    pub fn result(&self) -> Result<u64, Errno> {
        match self.errno {
            0 => Ok(amount::representative(self.amount)),
            errno => Err(Errno(errno)),
        }
    }
}

/// Codes a result: errors are the last 4095 numbers (the kernel's `include/linux/err.h`).
fn encode_result(returns: Returns, result: i64) -> (u16, u16) {
    match result {
        -4095..0 => (-result as u16, 0),
        _ if returns.is_amount() => (0, amount::encode(result as u64)),
        _ => (0, 0),
    }
}

/// A hasher for samples: they are short and their bits are spread badly, so multiply and fold.
#[derive(Default)]
pub struct SampleHasher(u64);

impl Hasher for SampleHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(word.into());
    }

    fn write_u16(&mut self, word: u16) {
        self.write_u64(word.into());
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(word.into());
    }
}

/// A map with short keys that nobody chooses to collide.
pub(crate) type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<SampleHasher>>;

/// Counted samples.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    counts: FastMap<Sample, u64>,
}

impl Samples {
    /// Counts a sample.
    pub fn add(&mut self, sample: Sample, times: u64) {
        *self.counts.entry(sample).or_default() += times;
    }

    /// All samples with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&Sample, u64)> {
        self.counts.iter().map(|(sample, count)| (sample, *count))
    }

    /// Number of counted calls.
    pub fn calls(&self) -> u64 {
        self.counts.values().sum()
    }

    /// Takes over the counts of others.
    pub fn merge(&mut self, other: &Samples) {
        for (sample, count) in other.iter() {
            self.add(*sample, count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_core::partition::{ArgKind, Granularity};

    #[test]
    fn a_sample_has_no_padding() {
        assert_eq!(size_of::<Sample>(), 8 + 4 * SLOTS_MAX);
    }

    #[test]
    fn wide_masks_have_their_names_in_the_lower_half() {
        for call in calls() {
            for slot in &call.slots {
                let ArgKind::Bitmask(mask) = &slot.arg.kind else { continue };
                let fields = mask.fields.iter().map(|field| field.mask);
                let known = mask.bits.values().copied().chain(fields).fold(0, |a, b| a | b);
                assert_eq!(known >> 32, 0, "{}.{}", call.name, slot.name);
                if mask.width == 64 {
                    assert_eq!(known & u64::from(WITHOUT_NAME), 0, "{}.{}", call.name, slot.name);
                }
            }
        }
    }

    #[test]
    fn representatives_have_the_partitions_of_the_texts() {
        let open = &calls()[usize::from(crate::layout::index_of("setxattr").unwrap())];
        let how = Granularity::Boundaries;
        for length in (0..300).chain([1000, 4094, 4095]) {
            for start in ["", "/", "user.", "trusted.", "security.", "system.", "useR."] {
                let text: Vec<u8> =
                    start.bytes().chain(std::iter::repeat(b'y')).take(length).collect();
                for slot in &open.slots[..2] {
                    let code = encode(slot.kind, Raw::Text(Some(&text)));
                    let back = representative(slot.kind, code).expect("it is known");
                    let was = slot.arg.partitions(Value::Text(Some(&text)), how);
                    assert_eq!(slot.arg.partitions(back, how), was, "{start} {length}");
                }
            }
        }
    }

    #[test]
    fn results_keep_errors_and_amounts() {
        let index = |name| crate::layout::index_of(name).unwrap();
        let result =
            |name, result| Sample::new(index(name), Touch::Inside, [0; SLOTS_MAX], result).result();
        assert_eq!(result("read", 4096), Ok(4096));
        assert_eq!(result("read", 5000), Ok(4098));
        assert_eq!(result("open", 77), Ok(0));
        assert_eq!(result("open", -2), Err(Errno::ENOENT));
        assert_eq!(result("mmap", -4096), Ok(0));
    }
}
