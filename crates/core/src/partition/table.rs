//! The system calls of file systems with the kinds of their arguments, as data.
//!
//! The file says where each fact comes from: parameters from the kernel's tracing tables, errors
//! from the manual pages, constants from the kernel's headers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::Deserialize;

use crate::errno::Errno;

/// All calls.
#[derive(Debug)]
pub struct Table {
    /// Families of calls by name.
    pub bases: BTreeMap<String, Base>,
}

/// A family of calls that differ only in how their arguments are passed.
#[derive(Debug, Deserialize)]
pub struct Base {
    /// Its distance from everyday use: `core`, `extended`, `mount`, `notify`, `async`.
    pub scope: String,
    /// The names of the system calls.
    pub variants: Vec<String>,
    /// Numbers and parameters of the variants.
    pub syscalls: BTreeMap<String, Syscall>,
    /// Every argument of every variant.
    pub args: BTreeMap<String, Arg>,
    /// The meaning of the number that success returns.
    #[serde(rename = "ret")]
    pub returns: Returns,
    /// The documented errors.
    pub errnos: BTreeSet<Errno>,
}

/// One system call of a family.
#[derive(Debug, Deserialize)]
pub struct Syscall {
    /// Its number on x86-64.
    pub nr: u32,
    /// The names of its arguments in the order of the kernel.
    pub params: Vec<String>,
    /// Arguments that it does not have, each with the value that it counts as (`creat` implies
    /// flags).
    #[serde(default)]
    pub implied: BTreeMap<String, u64>,
}

/// The meaning of the number that a successful call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the data file documents each in ret_kinds")]
pub enum Returns {
    Fd,
    Zero,
    Bytes,
    Offset,
    Count,
    Value,
    Address,
    None,
}

impl Returns {
    /// Whether the returned number is partitioned, or only that there was one.
    pub fn is_amount(self) -> bool {
        matches!(self, Returns::Bytes | Returns::Offset | Returns::Count)
    }
}

/// One argument.
#[derive(Debug, Deserialize)]
pub struct Arg {
    /// The kind of its values.
    #[serde(flatten)]
    pub kind: ArgKind,
    /// The variants that have it; all of them if empty.
    #[serde(default)]
    pub only: Vec<String>,
    /// The argument that points to the structure of which it is a field.
    pub inside: Option<String>,
    /// The condition under which it has a meaning.
    pub relevant_if: Option<String>,
    /// Whether it has no meaning at all.
    #[serde(default)]
    pub ignored: bool,
}

/// The kinds of arguments.
#[derive(Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ArgKind {
    /// Independent bits, possibly with fields of several bits.
    Bitmask(Bitmask),
    /// An amount.
    Numeric(Numeric),
    /// One of a list of values.
    Categorical(Categorical),
    /// A name, a descriptor, a user: what matters is what it refers to.
    Identifier(Identifier),
    /// An address; what matters is whether there is one.
    Pointer(Pointer),
}

/// A mask of independent bits.
#[derive(Debug, Deserialize)]
pub struct Bitmask {
    /// Width of the argument in bits.
    pub width: u32,
    /// Single bits.
    pub bits: BTreeMap<String, u64>,
    /// Fields of several bits.
    #[serde(default)]
    pub fields: Vec<Field>,
    /// The name of the mask without any bit.
    pub zero_name: Option<String>,
}

/// Several bits of a mask that are one value.
#[derive(Debug, Deserialize)]
pub struct Field {
    /// The name of the value.
    pub name: String,
    /// Its bits.
    pub mask: u64,
    /// Its values.
    pub values: BTreeMap<String, u64>,
}

/// An amount.
#[derive(Debug, Deserialize)]
pub struct Numeric {
    /// Width of the argument in bits.
    pub width: u32,
    /// Whether it can be negative.
    pub signed: bool,
    /// The largest value that can have an effect of its own.
    pub max: Option<u64>,
}

/// One of a list of values.
#[derive(Debug, Deserialize)]
pub struct Categorical {
    /// The values.
    pub values: BTreeMap<String, u64>,
    /// The encoding of the value in the argument, where it is not the argument itself.
    pub encoding: Option<String>,
}

/// A name, a descriptor or an id.
#[derive(Debug, Deserialize)]
pub struct Identifier {
    /// The kind of thing that it refers to: `fd`, `dirfd`, `path`, `uid`, `gid`, `xattr_name`, …
    #[serde(rename = "type")]
    pub refers_to: String,
}

/// An address.
#[derive(Debug, Deserialize)]
pub struct Pointer {
    /// The kind of the value behind it, if that is partitioned.
    pub deref: Option<String>,
}

/// Returns the table, which is parsed once.
pub fn table() -> &'static Table {
    static TABLE: LazyLock<Table> = LazyLock::new(|| {
        parse(include_str!("../../data/syscalls.json")).expect("a test parses this very file")
    });
    &TABLE
}

/// Parses the table. Leaves out what is no system call: the description of the file, and the
/// operations of io_uring, which count as the calls that they stand for.
fn parse(text: &str) -> Result<Table, serde_json::Error> {
    let all: BTreeMap<String, serde_json::Value> = serde_json::from_str(text)?;
    let is_call =
        |name: &str, value: &serde_json::Value| name != "_meta" && value.get("pseudo").is_none();
    let calls = all.into_iter().filter(|(name, value)| is_call(name, value));
    let bases = calls.map(|(name, value)| Ok((name, serde_json::from_value(value)?)));
    Ok(Table { bases: bases.collect::<Result<_, serde_json::Error>>()? })
}

impl Table {
    /// Finds a family by name; returns the name as the table has it.
    pub fn base(&'static self, name: &str) -> Option<(&'static str, &'static Base)> {
        self.bases.get_key_value(name).map(|(name, base)| (name.as_str(), base))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_81_families_with_144_calls() {
        let bases = &table().bases;
        assert_eq!(bases.len(), 81);
        assert_eq!(bases.values().map(|base| base.variants.len()).sum::<usize>(), 144);
        for (name, base) in bases {
            let described: BTreeSet<&String> = base.syscalls.keys().collect();
            assert_eq!(described, base.variants.iter().collect(), "{name}");
            for syscall in base.syscalls.values() {
                for param in syscall.params.iter().chain(syscall.implied.keys()) {
                    assert!(base.args.contains_key(param), "{name} has no argument {param}");
                }
            }
        }
    }

    #[test]
    fn arguments_keep_what_the_data_says() {
        let open = &table().bases["open"];
        assert_eq!(open.returns, Returns::Fd);
        assert_eq!(open.syscalls["creat"].implied["flags"], 0o1101);
        assert_eq!(open.args["resolve"].only, ["openat2"]);
        assert_eq!(open.args["resolve"].inside.as_deref(), Some("how"));
        assert!(open.args["mode"].relevant_if.is_some());
        assert!(open.errnos.contains(&Errno::ELOOP));
        assert!(table().bases["read"].args["pos_h"].ignored);
        let kinds = table().bases.values().flat_map(|base| base.args.values());
        let count = |is: fn(&ArgKind) -> bool| kinds.clone().filter(|arg| is(&arg.kind)).count();
        assert_eq!(count(|kind| matches!(kind, ArgKind::Bitmask(_))), 65);
        assert_eq!(count(|kind| matches!(kind, ArgKind::Numeric(_))), 52);
        assert_eq!(count(|kind| matches!(kind, ArgKind::Categorical(_))), 9);
        assert_eq!(count(|kind| matches!(kind, ArgKind::Identifier(_))), 135);
        assert_eq!(count(|kind| matches!(kind, ArgKind::Pointer(_))), 56);
    }
}
