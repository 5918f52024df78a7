//! The first corruption model: which values a field is given.
//!
//! All of a byte; of wider fields the boundaries, the neighbours, single bits, the values of sibling
//! fields, and for pointers one of each kind of thing that they could point to (type-aware pointer
//! corruption). `exhaustive` tries all values of 16 bits too.

use std::collections::BTreeSet;

use crate::map::{Field, Kind, Map};

/// Constants that programs like to compare with.
const CONSTANTS: &[u64] = &[0, 1, 2, 3, 7, 16, 255, 256, 1024, 4096, 65535, 0x5555_5555];

/// The values of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// Every value but the present one, up to this one; these come first.
    All { max: u64, present: u64, first: Vec<u64> },
    /// These.
    Some(Vec<u64>),
}

impl Values {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Values::All { max, .. } => *max,
            Values::Some(values) => values.len() as u64,
        }
    }

    /// The few values that say most, for fields that are tried together: nothing, everything, one more,
    /// half.
    pub(crate) fn telling(&self, index: u64) -> Option<u64> {
        match self {
            Values::All { max, present, .. } => {
                let mut few = vec![0, *max, present.wrapping_add(1) & max, max / 2, 1, 2, 3];
                few.retain(|value| value != present);
                few.dedup();
                few.get(index as usize).copied()
            }
            Values::Some(_) => self.get(index),
        }
    }

    /// The value with a number.
    pub(crate) fn get(&self, index: u64) -> Option<u64> {
        match self {
            Values::All { max, present, first } => {
                let place = index as usize;
                first.get(place).copied().or_else(|| {
                    let mut seen = [first.as_slice(), &[*present]].concat();
                    seen.sort_unstable();
                    let rest = (place - first.len()) as u64;
                    let value = seen.iter().fold(rest, |at, seen| at + u64::from(*seen <= at));
                    (value <= *max).then_some(value)
                })
            }
            Values::Some(values) => values.get(index as usize).copied(),
        }
    }
}

/// The values that a field of a disk is given.
pub(crate) fn values(map: &Map, disk: &[u8], field: &Field, exhaustive: bool) -> Values {
    let present = field.read(disk);
    let all = match field.kind {
        Kind::Bitmap | Kind::Name => exhaustive && field.width == 1,
        _ => field.width == 1 || exhaustive && field.width == 2,
    };
    let mut list = Vec::new();
    match field.kind {
        Kind::Bitmap => list.extend((0..8).map(|bit| present ^ 1 << bit).chain([0, 255])),
        Kind::Name => list.extend([
            0,
            1,
            b'.'.into(),
            b'/'.into(),
            0x7f,
            0x80,
            0xff,
            present ^ 1,
            present ^ 0x20,
        ]),
        _ => {
            pointers(map, field, &mut list);
            numbers(field, present, &mut list);
            siblings(map, disk, field, &mut list);
        }
    }
    let mut seen = BTreeSet::from([present]);
    list.retain(|value| *value <= field.max() && seen.insert(*value));
    match all {
        true => Values::All { max: field.max(), present, first: list },
        false => Values::Some(list),
    }
}

/// One of each kind of thing that a pointer may point to.
fn pointers(map: &Map, field: &Field, list: &mut Vec<u64>) {
    let targets = map.targets.iter().filter(|target| target.kind == field.kind);
    list.extend(targets.map(|target| target.number));
    if field.kind == Kind::Block && map.block_bytes > 0 {
        // To itself: the block that the pointer lies in.
        list.push(field.at / map.block_bytes);
    }
}

fn numbers(field: &Field, present: u64, list: &mut Vec<u64>) {
    let max = field.max();
    let half = max >> 1;
    let bits = 8 * u32::from(field.width);
    let flips = (0..bits).map(|bit| present ^ 1 << bit);
    // What says most comes first: a campaign that is stopped has tried that of every field.
    match field.kind {
        Kind::Mode => list.extend((0..16).map(|kind| present & 0xfff | kind << 12)),
        Kind::Flags => list.extend(flips.clone()),
        Kind::Size | Kind::Length | Kind::Count => list.extend([max, 0]),
        _ => {}
    }
    list.extend([present.wrapping_add(1) & max, present.wrapping_sub(1) & max]);
    list.extend([present.wrapping_mul(2) & max, present / 2, !present & max]);
    list.extend([max, max - 1, half, half + 1]);
    list.extend(CONSTANTS);
    list.extend(flips);
}

/// The values of the fields beside it in the same structure, as far as they are of the same kind.
fn siblings(map: &Map, disk: &[u8], field: &Field, list: &mut Vec<u64>) {
    const SIBLINGS_MAX: usize = 8;
    let index = map.fields.iter().position(|other| other.at == field.at).unwrap_or(0);
    let near = map.fields[index.saturating_sub(32)..].iter().take(64);
    let alike = near.filter(|other| {
        other.structure == field.structure && other.kind == field.kind && other.width == field.width
    });
    list.extend(alike.map(|other| other.read(disk)).filter(|value| *value != 0).take(SIBLINGS_MAX));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(width: u8, kind: Kind) -> Field {
        Field {
            structure: "s".into(),
            name: "f".into(),
            at: 0,
            width,
            order: crate::map::Order::Little,
            kind,
            guard: None,
            sampled: true,
        }
    }

    fn of(width: u8, kind: Kind, exhaustive: bool) -> Values {
        let field = field(width, kind);
        let map = Map { fields: vec![field.clone()], block_bytes: 1024, ..Map::default() };
        values(&map, &[5, 0, 0, 0, 0, 0, 0, 0], &field, exhaustive)
    }

    #[test]
    fn a_byte_is_given_every_other_value() {
        let all = of(1, Kind::Count, false);
        let mut list: Vec<u64> = (0..all.len()).filter_map(|index| all.get(index)).collect();
        // A campaign that is stopped early has tried the boundaries and every single bit.
        for early in [0, 4, 6, 255, 5 ^ 0x10, 5 ^ 0x80] {
            assert!(list[..40].contains(&early), "{early} comes late");
        }
        list.sort_unstable();
        let expected: Vec<u64> = (0..256).filter(|value| *value != 5).collect();
        assert_eq!(list, expected);
        assert_eq!(all.get(255), None);
        assert_eq!(of(2, Kind::Count, true).len(), 65535);
    }

    #[test]
    fn wider_fields_are_given_the_interesting_ones_once() {
        let Values::Some(list) = of(4, Kind::Block, false) else { panic!("a list") };
        let distinct: BTreeSet<u64> = list.iter().copied().collect();
        assert_eq!(list.len(), distinct.len());
        for value in [0, 4, 6, 10, u32::MAX.into(), 0x8000_0005, 7, 1024] {
            assert!(list.contains(&value), "{value}");
        }
        assert!(!list.contains(&5));
        assert_eq!(of(1, Kind::Bitmap, false).len(), 10);
    }
}
