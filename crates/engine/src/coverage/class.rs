//! [`Class`]: an executed operation up to what its partitions need.
//!
//! Operations of one class have the same partitions (tests compare both), so only the first of a
//! class has to be taken apart argument by argument; the class itself is a few shifts.

use std::mem::{Discriminant, discriminant};

use fathom_core::operand::{Operand, Traced};
use fathom_core::partition::amount::{encode, encode_signed};
use fathom_core::partition::op::{Mapped, listed_bytes};
use fathom_core::partition::value::XATTR_NAMESPACES;
use fathom_core::{Op, Outcome, Target};

/// The most codes that an operation has beside its result (`Setxattr`, `CopyFileRange`).
const CODES_MAX: usize = 4;

/// Which operation, how it ended, and the codes of its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Class {
    kind: Discriminant<Op>,
    result: u32,
    codes: [u32; CODES_MAX],
}

impl Class {
    /// The class of an operation; `None` for what is no call on a file system.
    pub(super) fn of(op: &Op, outcome: &Outcome) -> Option<Class> {
        let codes = match op.traced() {
            Traced::Nothing => return None,
            Traced::Listing => [amount(listed_bytes(outcome)), 0, 0, 0],
            Traced::Piece => {
                let [back, len, ..] = codes(op);
                [amount(listed_bytes(outcome)), back, len, 0]
            }
            Traced::Mapping { .. } => {
                let Mapped { start, length, wanted, sync } = Mapped::of(op);
                [amount(length), signed(start), amount(wanted), sync.unwrap_or_default()]
            }
            Traced::Call(_) => codes(op),
        };
        let result = match outcome.result {
            Ok(value) => amount(value),
            Err(errno) => 1 << 31 | u32::from(errno.0),
        };
        Some(Class { kind: discriminant(op), result, codes })
    }
}

fn codes(op: &Op) -> [u32; CODES_MAX] {
    let mut codes = [0; CODES_MAX];
    let mut count = 0;
    op.operands(|operand| {
        if let Some(code) = code(operand) {
            codes[count] = code;
            count += 1;
        }
    });
    codes
}

/// The code of an operand, unless the operation and its result say everything about it.
#[inline]
fn code(operand: Operand<'_>) -> Option<u32> {
    Some(match operand {
        Operand::Path(path, ..) => text(path.as_bytes()),
        Operand::Target(target, ..) => of_target(target),
        Operand::Text(content, _) => text(content.as_bytes()),
        Operand::XattrName(name, _) => xattr_name(name.as_bytes()),
        Operand::Offset(value, _)
        | Operand::Distance(value, _)
        | Operand::SignedLength(value, _) => signed(*value),
        Operand::Position(value, _) => optional(*value),
        Operand::Length(value, _) => amount(*value),
        // An int: what is above it in the register does not count.
        Operand::IntLength(value, _) => signed(i64::from(*value as i32)),
        Operand::Data(data, ..) => amount(data.len),
        Operand::Flags(flags, _) => flags.get(),
        Operand::Number(value, _) | Operand::Back(value) => *value,
        Operand::Whence(whence, _) => *whence as u32,
        Operand::Mode(mode, _) | Operand::Mask(mode, _) => mode.0,
        Operand::Owner(owner, _) => id(*owner),
        Operand::At(flags) => flags.bits as u32,
        Operand::Slot(..)
        | Operand::Device(_)
        | Operand::Id(..)
        | Operand::Groups(_)
        | Operand::Time(_)
        | Operand::Buffer(_)
        | Operand::Fixed(..) => return None,
    })
}

/// Codes of amounts have sixteen bits; what else belongs to an argument is above them.
fn amount(value: u64) -> u32 {
    encode(value).into()
}

fn signed(value: i64) -> u32 {
    encode_signed(value).into()
}

fn optional(value: Option<i64>) -> u32 {
    value.map_or(1 << 16, signed)
}

fn text(text: &[u8]) -> u32 {
    let absolute = u32::from(text.first() == Some(&b'/'));
    absolute << 16 | amount(text.len() as u64)
}

fn xattr_name(name: &[u8]) -> u32 {
    let space = XATTR_NAMESPACES.iter().position(|space| name.starts_with(space.as_bytes()));
    space.map_or(0, |index| index as u32 + 1) << 16 | amount(name.len() as u64)
}

fn of_target(target: &Target) -> u32 {
    match target {
        Target::Path(path) => text(path.as_bytes()),
        Target::Link(path) => 1 << 20 | text(path.as_bytes()),
        Target::Slot(_) => 2 << 20,
    }
}

/// −1 means "leave it" even where it is written out.
fn id(id: Option<u32>) -> u32 {
    match id {
        None | Some(u32::MAX) => 0,
        Some(0) => 1,
        Some(_) => 2,
    }
}
