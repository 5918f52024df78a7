//! Pairs of flags: two bits of one argument that were set in the same call.
//!
//! Single bits say that `O_APPEND` and `O_DIRECT` were each used; only the pair says that they ever met.
//! Values of a field of several bits (`O_RDWR`) pair with the bits beside it, never with each other.

use std::collections::BTreeMap;

use super::table::{ArgKind, Bitmask, table};
use super::{Hit, Partition, Place};

/// Two names of one argument of one call, the smaller name first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pair {
    /// The call, by the name of its family.
    pub base: &'static str,
    /// The argument.
    pub arg: &'static str,
    /// The smaller name.
    pub first: &'static str,
    /// The larger name.
    pub second: &'static str,
}

/// Lists the pairs in the partitions of one call.
pub(crate) fn pairs_in(hits: &[Hit]) -> Vec<Pair> {
    let mut names: BTreeMap<(&'static str, &'static str), Vec<&'static str>> = BTreeMap::new();
    for hit in hits {
        if let (Place::Arg(arg), Partition::Named(name)) = (hit.place, hit.partition) {
            names.entry((hit.base, arg)).or_default().push(name);
        }
    }
    names.retain(|(base, arg), names| names.len() > 1 && mask_of(base, arg).is_some());
    let pairs = names.into_iter().flat_map(|((base, arg), names)| pairs_of(base, arg, &names));
    pairs.collect()
}

/// Lists every pair that an argument can have; none if it is no mask.
pub fn all_pairs(base: &str, arg: &str) -> Vec<Pair> {
    let known = table().base(base).and_then(|(base, details)| {
        let (arg, _) = details.args.get_key_value(arg)?;
        Some((base, arg.as_str()))
    });
    let (Some((base, arg)), Some(mask)) = (known, mask_of(base, arg)) else {
        return Vec::new();
    };
    let bits: Vec<&'static str> = mask.bits.keys().map(String::as_str).collect();
    let fields: Vec<Vec<&'static str>> =
        mask.fields.iter().map(|field| field.values.keys().map(String::as_str).collect()).collect();
    let mut all = pairs_of(base, arg, &bits);
    for (index, values) in fields.iter().enumerate() {
        let others = fields[index + 1..].iter().flatten().chain(&bits);
        for other in others {
            all.extend(values.iter().map(|value| pair(base, arg, value, other)));
        }
    }
    all.sort();
    all
}

fn pairs_of(base: &'static str, arg: &'static str, names: &[&'static str]) -> Vec<Pair> {
    let mut out = Vec::new();
    for (index, name) in names.iter().enumerate() {
        out.extend(names[index + 1..].iter().map(|other| pair(base, arg, name, other)));
    }
    out
}

fn pair(base: &'static str, arg: &'static str, a: &'static str, b: &'static str) -> Pair {
    Pair { base, arg, first: a.min(b), second: a.max(b) }
}

fn mask_of(base: &str, arg: &str) -> Option<&'static Bitmask> {
    match &table().base(base)?.1.args.get(arg)?.kind {
        ArgKind::Bitmask(mask) => Some(mask),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::{Granularity, Value};

    fn flags(value: u64) -> Vec<Hit> {
        let (base, open) = table().base("open").expect("it is in the table");
        let (arg, details) = open.args.get_key_value("flags").expect("it is in the table");
        let partitions = details.partitions(Value::Number(value), Granularity::Powers);
        let hit = |partition| Hit { base, place: Place::Arg(arg), partition };
        partitions.into_iter().map(hit).collect()
    }

    #[test]
    fn a_pair_needs_two_flags_of_one_call() {
        assert_eq!(pairs_in(&flags(0)), []);
        let pairs = pairs_in(&flags(0o2 | 0o100 | 0o2000));
        let names: Vec<_> = pairs.iter().map(|pair| (pair.first, pair.second)).collect();
        assert_eq!(names, [("O_APPEND", "O_RDWR"), ("O_CREAT", "O_RDWR"), ("O_APPEND", "O_CREAT")]);
    }

    #[test]
    fn values_of_one_field_do_not_pair() {
        // 17 bits with each other, and each with the three access modes.
        let all = all_pairs("open", "flags");
        assert_eq!(all.len(), 17 * 16 / 2 + 17 * 3);
        assert!(!all.iter().any(|pair| (pair.first, pair.second) == ("O_RDONLY", "O_RDWR")));
        assert!(pairs_in(&flags(u64::MAX >> 32)).iter().all(|pair| all.contains(pair)));
        assert_eq!(all_pairs("write", "count"), []);
        assert_eq!(all_pairs("nothing", "flags"), []);
    }
}
