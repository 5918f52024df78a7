//! Computes the partitions of a value, and all partitions that an argument has.

use std::fmt;

use super::table::{Arg, ArgKind, Bitmask, Categorical, Numeric, Returns};
use crate::errno::Errno;

/// A class of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Partition {
    /// Numbers below zero.
    Negative,
    /// Zero, no flag, no byte.
    Zero,
    /// Numbers in [2ᵏ, 2ᵏ⁺¹).
    Power(u8),
    /// The number 2ᵏ − 1, 2ᵏ or 2ᵏ + 1: where off-by-one errors live. Only with
    /// [`Granularity::Boundaries`].
    Boundary {
        /// The power k, 2 or more: below, neighbours of powers are powers.
        power: u8,
        /// The distance from the power: −1, 0 or 1.
        delta: i8,
    },
    /// Numbers above the largest value that has an effect of its own.
    AboveMax,
    /// A flag, a value of a field or of a list, a class of references: by name.
    Named(&'static str),
    /// A value that a list does not have; of the named field, where the list belongs to one.
    Other(&'static str),
    /// Bits without a name are set.
    UnknownBits,
    /// A null pointer.
    Null,
    /// A pointer to something.
    NonNull,
    /// The call succeeded and returned nothing to be partitioned.
    Success,
    /// The call failed.
    Error(Errno),
}

/// The granularity of the partitions of amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Granularity {
    /// Partitions by powers of two.
    #[default]
    Powers,
    /// Partitions by powers of two and by the exact values around them.
    Boundaries,
}

/// A value in the form in which a call gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number as the register has it: sign-extended or not, the argument's width decides.
    Number(u64),
    /// A path, a name, the contents of a symbolic link; `None` is a null pointer.
    Text(Option<&'a [u8]>),
    /// A descriptor.
    Fd {
        /// Whether it is open.
        valid: bool,
    },
    /// `AT_FDCWD` where a directory descriptor is expected.
    CurrentDir,
    /// A pointer that is not null.
    Address,
    /// A null pointer.
    Null,
    /// A pointer to a text that cannot be read.
    Unreadable,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Partition::Negative => f.write_str("<0"),
            Partition::Zero => f.write_str("0"),
            Partition::Power(power) => write!(f, "[2^{power},2^{})", power + 1),
            Partition::Boundary { power, delta: 0 } => write!(f, "2^{power}"),
            Partition::Boundary { power, delta } => write!(f, "2^{power}{delta:+}"),
            Partition::AboveMax => f.write_str("above the maximum"),
            Partition::Named(name) => f.write_str(name),
            Partition::Other("") => f.write_str("other"),
            Partition::Other(field) => write!(f, "other {field}"),
            Partition::UnknownBits => f.write_str("unknown bits"),
            Partition::Null => f.write_str("NULL"),
            Partition::NonNull => f.write_str("not NULL"),
            Partition::Success => f.write_str("success"),
            Partition::Error(errno) => write!(f, "{errno}"),
        }
    }
}

/// Longest path that the kernel takes, without its NUL (PATH_MAX of the kernel's `limits.h`).
const PATH_BYTES_MAX: u64 = 4095;

/// Longest name of an extended attribute (XATTR_NAME_MAX).
const XATTR_NAME_BYTES_MAX: u64 = 255;

/// Namespaces of extended attributes (xattr(7)).
pub const XATTR_NAMESPACES: [&str; 4] = ["user.", "trusted.", "security.", "system."];

/// The id that chown(2) leaves as it is.
const ID_UNCHANGED: u32 = u32::MAX;

impl Arg {
    /// Computes the partitions of a value. None for an argument that is not partitioned, or for a
    /// value of a kind that the argument cannot have.
    pub fn partitions(&'static self, value: Value<'_>, how: Granularity) -> Vec<Partition> {
        match (&self.kind, value) {
            _ if self.ignored => Vec::new(),
            (ArgKind::Bitmask(mask), Value::Number(number)) => mask.partitions(number),
            (ArgKind::Numeric(numeric), Value::Number(number)) => numeric.partitions(number, how),
            (ArgKind::Categorical(list), Value::Number(number)) => vec![list.partition(number)],
            (ArgKind::Pointer(_), Value::Null) => vec![Partition::Null],
            (ArgKind::Pointer(pointer), Value::Number(number)) if pointer.deref.is_some() => {
                OFFSET.partitions(number, how)
            }
            (ArgKind::Pointer(_), _) => vec![Partition::NonNull],
            (ArgKind::Identifier(identifier), value) => {
                reference_partitions(&identifier.refers_to, value, how)
            }
            _ => Vec::new(),
        }
    }

    /// Lists every partition that a value of the argument can fall into.
    pub(crate) fn all_partitions(&'static self, how: Granularity) -> Vec<Partition> {
        match &self.kind {
            _ if self.ignored => Vec::new(),
            ArgKind::Bitmask(mask) => mask.all_partitions(),
            ArgKind::Numeric(numeric) => numeric.all_partitions(how),
            ArgKind::Categorical(list) => {
                let values = list.values.keys().map(|name| Partition::Named(name));
                values.chain([Partition::Other("")]).collect()
            }
            ArgKind::Pointer(pointer) if pointer.deref.is_some() => {
                [vec![Partition::Null], OFFSET.all_partitions(how)].concat()
            }
            ArgKind::Pointer(_) => vec![Partition::Null, Partition::NonNull],
            ArgKind::Identifier(identifier) => all_references(&identifier.refers_to, how),
        }
    }
}

impl Bitmask {
    fn partitions(&'static self, value: u64) -> Vec<Partition> {
        let value = low_bits(value, self.width);
        let mut known = 0;
        let mut out = Vec::new();
        for field in &self.fields {
            known |= field.mask;
            let found = field.values.iter().find(|(_, bits)| **bits == value & field.mask);
            out.push(match found {
                Some((name, _)) => Partition::Named(name),
                None if value & field.mask == 0 => Partition::Zero,
                None => Partition::Other(&field.name),
            });
        }
        for (name, bit) in &self.bits {
            known |= bit;
            if value & bit != 0 {
                out.push(Partition::Named(name));
            }
        }
        if value == 0 && self.fields.is_empty() {
            out.push(self.zero());
        }
        if value & !known != 0 {
            out.push(Partition::UnknownBits);
        }
        out
    }

    fn all_partitions(&'static self) -> Vec<Partition> {
        let mut out = Vec::new();
        for field in &self.fields {
            out.extend(field.values.keys().map(|name| Partition::Named(name)));
            let without_name = !field.values.values().any(|bits| *bits == 0);
            if without_name {
                out.push(Partition::Zero);
            }
            if field.values.len() + usize::from(without_name) < 1 << field.mask.count_ones() {
                out.push(Partition::Other(&field.name));
            }
        }
        if self.fields.is_empty() {
            out.push(self.zero());
        }
        out.extend(self.bits.keys().map(|name| Partition::Named(name)));
        out.push(Partition::UnknownBits);
        out
    }

    fn zero(&'static self) -> Partition {
        self.zero_name.as_deref().map_or(Partition::Zero, Partition::Named)
    }
}

/// The kind of a 64-bit file offset behind a pointer.
const OFFSET: Numeric = Numeric { width: 64, signed: true, max: None };

impl Numeric {
    /// Computes the partitions of a register's contents.
    pub fn partitions(&self, value: u64, how: Granularity) -> Vec<Partition> {
        let value = low_bits(value, self.width);
        if self.signed && value >> (self.width - 1) != 0 {
            return vec![Partition::Negative];
        }
        let mut out = vec![match value {
            0 => Partition::Zero,
            value if self.max.is_some_and(|max| value > max) => Partition::AboveMax,
            value => Partition::Power(value.ilog2() as u8),
        }];
        if how == Granularity::Boundaries {
            out.extend(boundary(value));
        }
        out
    }

    fn all_partitions(&self, how: Granularity) -> Vec<Partition> {
        let largest = u64::MAX >> (64 - self.width + u32::from(self.signed));
        let max = self.max.unwrap_or(largest);
        let mut out = vec![Partition::Zero];
        if self.signed {
            out.push(Partition::Negative);
        }
        out.extend((0..=max.ilog2() as u8).map(Partition::Power));
        if max < largest {
            out.push(Partition::AboveMax);
        }
        if how == Granularity::Boundaries {
            let near_max = max.saturating_add(1).min(largest);
            out.extend(boundaries().filter(|(value, _)| *value <= near_max).map(|(_, p)| p));
        }
        out
    }
}

impl Categorical {
    fn partition(&'static self, value: u64) -> Partition {
        // quotactl(2) has a quota type in the low byte; the data says so in words.
        let value = if self.encoding.is_some() { low_bits(value, 32) >> 8 } else { value };
        let name = self.values.iter().find(|(_, known)| **known == value);
        name.map_or(Partition::Other(""), |(name, _)| Partition::Named(name))
    }
}

/// The boundary partition of a value, if it is next to a power of two from 2² on.
fn boundary(value: u64) -> Option<Partition> {
    let near = |delta: i8| {
        let power_of_two = u128::from(value).wrapping_add_signed(-i128::from(delta));
        let found = power_of_two.is_power_of_two() && power_of_two >= 4;
        found.then(|| Partition::Boundary { power: power_of_two.ilog2() as u8, delta })
    };
    [-1, 0, 1].into_iter().find_map(near)
}

/// Lists every boundary with its value, ascending.
fn boundaries() -> impl Iterator<Item = (u64, Partition)> {
    let near = |power: u8| {
        [-1, 0, 1].into_iter().filter_map(move |delta: i8| {
            let value = (1u128 << power).wrapping_add_signed(delta.into());
            u64::try_from(value).ok().map(|value| (value, Partition::Boundary { power, delta }))
        })
    };
    (2..=64).flat_map(near)
}

fn low_bits(value: u64, width: u32) -> u64 {
    value & (u64::MAX >> (64 - width))
}

fn reference_partitions(refers_to: &str, value: Value<'_>, how: Granularity) -> Vec<Partition> {
    match (refers_to, value) {
        ("fd" | "dirfd", Value::Fd { valid }) => {
            vec![Partition::Named(if valid { "valid" } else { "bad" })]
        }
        ("dirfd", Value::CurrentDir) => vec![Partition::Named("AT_FDCWD")],
        ("path" | "string" | "string_or_path" | "xattr_name", Value::Text(None)) => {
            vec![Partition::Null]
        }
        ("path" | "string" | "string_or_path" | "xattr_name", Value::Unreadable) => {
            vec![Partition::Named("bad")]
        }
        ("path" | "string" | "string_or_path", Value::Text(Some(path))) => {
            let class = match path.first() {
                None => return vec![Partition::Named("empty")],
                Some(b'/') => "absolute",
                Some(_) => "relative",
            };
            let mut out = vec![Partition::Named(class)];
            out.extend(length(PATH_BYTES_MAX).partitions(path.len() as u64, how));
            out
        }
        ("xattr_name", Value::Text(Some(name))) => {
            let is_in = |namespace: &&&str| name.starts_with(namespace.as_bytes());
            let namespace = XATTR_NAMESPACES.iter().find(is_in);
            let mut out = vec![namespace.map_or(Partition::Other(""), |n| Partition::Named(n))];
            out.extend(length(XATTR_NAME_BYTES_MAX).partitions(name.len() as u64, how));
            out
        }
        ("uid" | "gid", Value::Number(id)) => vec![Partition::Named(match id as u32 {
            ID_UNCHANGED => "unchanged",
            0 => "root",
            _ => "other",
        })],
        _ => Vec::new(),
    }
}

fn all_references(refers_to: &str, how: Granularity) -> Vec<Partition> {
    let named = |names: &[&'static str]| names.iter().map(|name| Partition::Named(name)).collect();
    // An empty text has no power of two.
    let lengths = |max| length(max).all_partitions(how).split_off(1);
    match refers_to {
        "fd" => named(&["valid", "bad"]),
        "dirfd" => named(&["AT_FDCWD", "valid", "bad"]),
        "path" | "string" | "string_or_path" => {
            let classes: Vec<_> = named(&["empty", "relative", "absolute", "bad"]);
            [vec![Partition::Null], classes, lengths(PATH_BYTES_MAX)].concat()
        }
        "xattr_name" => {
            let classes: Vec<_> = named(&XATTR_NAMESPACES);
            let bad = Partition::Named("bad");
            let others = vec![Partition::Null, bad, Partition::Other(""), Partition::Zero];
            [others, classes, lengths(XATTR_NAME_BYTES_MAX)].concat()
        }
        "uid" | "gid" => named(&["unchanged", "root", "other"]),
        _ => Vec::new(),
    }
}

/// The kind of the length of a text, as an amount.
fn length(max: u64) -> Numeric {
    Numeric { width: 64, signed: false, max: Some(max) }
}

impl Returns {
    /// Computes the partition of a result. An amount is partitioned like any other.
    pub fn partition(self, result: Result<u64, Errno>) -> Partition {
        match result {
            Err(errno) => Partition::Error(errno),
            Ok(0) if self.is_amount() => Partition::Zero,
            Ok(amount) if self.is_amount() => Partition::Power(amount.ilog2() as u8),
            Ok(_) => Partition::Success,
        }
    }

    /// Lists every partition of success.
    pub(crate) fn all_successes(self) -> Vec<Partition> {
        match self {
            Returns::None => Vec::new(),
            // No call moves more than MAX_RW_COUNT (read(2): 0x7ffff000 bytes).
            Returns::Bytes | Returns::Count => {
                std::iter::once(Partition::Zero).chain((0..=30).map(Partition::Power)).collect()
            }
            Returns::Offset => {
                std::iter::once(Partition::Zero).chain((0..=62).map(Partition::Power)).collect()
            }
            _ => vec![Partition::Success],
        }
    }
}
