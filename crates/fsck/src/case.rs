//! Cases: one field, one value, with the checksums over it right or wrong; or two fields.

use serde::{Deserialize, Serialize};

use crate::map::{Field, Map, MapError, parse_number};
use crate::values::{Values, values};

/// One corruption of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// The field by name.
    pub field: String,
    /// The value that it is given.
    #[serde(with = "wide")]
    pub value: u64,
    /// Whether the checksums over it are put right.
    pub sums_right: bool,
    /// The bytes that are written: place, bytes.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// A second field with its value.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "wide_second")]
    pub second: Option<(String, u64)>,
    /// Whether a power failure left the disk so: then there may be a journal to replay, which is no repair.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub crashed: bool,
}

/// Values in files: TOML has no numbers beyond 63 bits, so larger ones are text.
mod wide {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::map::parse_number;

    #[derive(Deserialize)]
    #[serde(untagged)]
    pub(super) enum Written {
        Number(u64),
        Text(String),
    }

    impl Written {
        pub(super) fn value<E: serde::de::Error>(self) -> Result<u64, E> {
            match self {
                Written::Number(value) => Ok(value),
                Written::Text(text) => parse_number(&text, 8)
                    .ok_or_else(|| E::custom(format!("{text:?} is no number"))),
            }
        }
    }

    pub(super) fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
        match i64::try_from(*value) {
            Ok(number) => to.serialize_i64(number),
            Err(_) => to.serialize_str(&format!("{value:#x}")),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        Written::deserialize(from)?.value()
    }
}

/// A second field: its value as in [`wide`], if there is one.
mod wide_second {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::wide;

    #[derive(Serialize)]
    struct Value(#[serde(with = "wide")] u64);

    pub(super) fn serialize<S: Serializer>(
        second: &Option<(String, u64)>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        second.as_ref().map(|(field, value)| (field, Value(*value))).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<(String, u64)>, D::Error> {
        let second = Option::<(String, wide::Written)>::deserialize(from)?;
        second.map(|(field, value)| Ok((field, value.value()?))).transpose()
    }
}

/// A corruption before it is made: fields by their index in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Corruption {
    pub(crate) field: usize,
    pub(crate) value: u64,
    /// Whether checksums are put right.
    pub(crate) sums_right: bool,
    pub(crate) second: Option<(usize, u64)>,
}

/// Fields of a structure that are tried together lie at most so far apart.
const PAIR_DISTANCE: usize = 4;
/// Values of each field of a pair.
const PAIR_VALUES: usize = 4;

impl Case {
    /// Makes a case; `scratch` is a copy of the disk, and is so again afterwards.
    pub(crate) fn new(
        map: &Map,
        scratch: &mut [u8],
        field: &Field,
        value: u64,
        sums_right: bool,
    ) -> Case {
        let before = map.writes(scratch, field, field.read(scratch), sums_right);
        let writes = map.writes(scratch, field, value, sums_right);
        for (at, bytes) in &before {
            let at = *at as usize;
            scratch[at..at + bytes.len()].copy_from_slice(bytes);
        }
        Case { field: field.to_string(), value, sums_right, writes, second: None, crashed: false }
    }

    /// A disk that a power failure left: its name, and what differs from the disk before.
    pub fn crashed(name: String, writes: Vec<(u64, Vec<u8>)>) -> Case {
        Case { field: name, value: 0, sums_right: true, writes, second: None, crashed: true }
    }

    /// Makes a case of a corruption of one field or two.
    pub(crate) fn of(map: &Map, scratch: &mut [u8], what: &Corruption) -> Case {
        let field = &map.fields[what.field];
        let mut case = Case::new(map, scratch, field, what.value, what.sums_right);
        let Some((second, value)) = what.second else { return case };
        let second = &map.fields[second];
        let healthy: Vec<(u64, Vec<u8>)> = case
            .writes
            .iter()
            .map(|(at, bytes)| (*at, scratch[*at as usize..*at as usize + bytes.len()].to_vec()))
            .collect();
        // The second is written over the first, so that sums over both are right.
        case.apply(scratch);
        let other = Case::new(map, scratch, second, value, what.sums_right);
        case.writes.extend(other.writes);
        case.second = Some((other.field, value));
        for (at, bytes) in healthy {
            scratch[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
        }
        case
    }

    /// The fields that are corrupted.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.field.as_str())
            .chain(self.second.iter().map(|(name, _)| name.as_str()))
    }

    /// Reads a case as people type it: `inode[12].i_size_lo=0`.
    ///
    /// # Errors
    /// If there is no such field, or the value does not fit.
    pub fn parse(text: &str, map: &Map, disk: &[u8], sums_right: bool) -> Result<Case, MapError> {
        let (name, value) = text.rsplit_once('=').unwrap_or((text, ""));
        let field = map.find(name.trim())?;
        let value = parse_number(value.trim(), field.width).ok_or_else(|| MapError::Value {
            field: field.to_string(),
            width: field.width,
            value: value.to_owned(),
        })?;
        let mut scratch = disk.to_vec();
        Ok(Case::new(map, &mut scratch, field, value, sums_right))
    }

    /// Writes the case onto a disk.
    pub fn apply(&self, disk: &mut [u8]) {
        for (at, bytes) in &self.writes {
            let at = *at as usize;
            if let Some(place) = disk.get_mut(at..at + bytes.len()) {
                place.copy_from_slice(bytes);
            }
        }
    }

    /// What the user would type.
    pub fn text(&self) -> String {
        if self.crashed {
            return self.field.clone();
        }
        let sums = if self.sums_right { "" } else { " (checksum left wrong)" };
        let second = match &self.second {
            Some((field, value)) => format!(", {field}={value:#x}"),
            None => String::new(),
        };
        format!("{}={:#x}{second}{sums}", self.field, self.value)
    }
}

/// Which cases a campaign tries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// All values of 16 bits.
    pub exhaustive: bool,
    /// Every structure, not one of each sort.
    pub everything: bool,
    /// Only fields whose name contains one of these; all if there are none.
    pub fields: Vec<String>,
    /// Two fields of a structure at once, a few values of each, instead of one.
    pub pairs: bool,
}

/// All cases of a disk, one after the other: the first value of every field, then the second, …, so that
/// a campaign that is stopped has seen every field.
pub(crate) struct Cases {
    /// Index of the field, its values, whether a checksum covers it.
    fields: Vec<(usize, Values, bool)>,
    rank: u64,
    next: usize,
    /// The most values that a field has.
    longest: u64,
    /// Whether the case of the field with the wrong checksum was given.
    wrong: bool,
    /// Pairs of `fields` by their place there; empty if single fields are tried.
    pairs: Vec<(usize, usize)>,
    is_pairs: bool,
}

impl Cases {
    pub(crate) fn new(map: &Map, disk: &[u8], choice: &Choice) -> Cases {
        let chosen = |field: &Field| {
            let name = field.to_string();
            (choice.everything || field.sampled || !choice.fields.is_empty())
                && (choice.fields.is_empty()
                    || choice.fields.iter().any(|part| name.contains(part)))
        };
        let fields = map.fields.iter().enumerate().filter(|(_, field)| chosen(field));
        let fields: Vec<_> = fields
            .map(|(index, field)| {
                (index, values(map, disk, field, choice.exhaustive), map.is_guarded(field))
            })
            .collect();
        let longest = match choice.pairs {
            true => (PAIR_VALUES * PAIR_VALUES) as u64,
            false => fields.iter().map(|(_, values, _)| values.len()).max().unwrap_or(0),
        };
        let pairs = if choice.pairs { pairs(map, &fields) } else { Vec::new() };
        Cases { fields, rank: 0, next: 0, longest, wrong: false, pairs, is_pairs: choice.pairs }
    }

    /// The next pair: the first combination of values of every pair, then the second.
    fn next_pair(&mut self) -> Option<Corruption> {
        while self.rank < self.longest {
            while let Some((one, other)) = self.pairs.get(self.next).copied() {
                self.next += 1;
                let value = |place: usize, nth: u64| self.fields[place].1.telling(nth);
                let (first, second) =
                    (self.rank % PAIR_VALUES as u64, self.rank / PAIR_VALUES as u64);
                if let (Some(value), Some(second)) = (value(one, first), value(other, second)) {
                    return Some(Corruption {
                        field: self.fields[one].0,
                        value,
                        sums_right: true,
                        second: Some((self.fields[other].0, second)),
                    });
                }
            }
            self.rank += 1;
            self.next = 0;
        }
        None
    }

    /// How many fields are tried.
    pub(crate) fn fields(&self) -> usize {
        self.fields.len()
    }

    /// How many cases there are.
    pub(crate) fn total(&self) -> u64 {
        if self.is_pairs {
            let values = |place: usize| self.fields[place].1.len().min(PAIR_VALUES as u64);
            return self.pairs.iter().map(|(one, other)| values(*one) * values(*other)).sum();
        }
        self.fields
            .iter()
            .map(|(_, values, guarded)| values.len() + u64::from(*guarded && values.len() > 0))
            .sum()
    }
}

impl Iterator for Cases {
    type Item = Corruption;

    fn next(&mut self) -> Option<Corruption> {
        if self.is_pairs {
            return self.next_pair();
        }
        let one = |field, value, sums_right| Corruption { field, value, sums_right, second: None };
        while self.rank < self.longest {
            while self.next < self.fields.len() {
                let (field, values, guarded) = &self.fields[self.next];
                let Some(value) = values.get(self.rank) else {
                    self.next += 1;
                    continue;
                };
                if *guarded && self.rank == 0 && !self.wrong {
                    self.wrong = true;
                    return Some(one(*field, value, false));
                }
                self.wrong = false;
                self.next += 1;
                return Some(one(*field, value, true));
            }
            self.rank += 1;
            self.next = 0;
        }
        None
    }
}

/// Pairs of fields of one structure that lie near each other.
fn pairs(map: &Map, fields: &[(usize, Values, bool)]) -> Vec<(usize, usize)> {
    let structure = |place: usize| &map.fields[fields[place].0].structure;
    let mut out = Vec::new();
    for one in 0..fields.len() {
        let near = one + 1..(one + 1 + PAIR_DISTANCE).min(fields.len());
        out.extend(
            near.filter(|other| structure(one) == structure(*other)).map(|other| (one, other)),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::Kind;

    fn map() -> Map {
        let field = |structure: &str, at| Field {
            structure: structure.into(),
            name: format!("f{at}").into(),
            at,
            width: 1,
            order: crate::map::Order::Little,
            kind: Kind::Number,
            guard: None,
            sampled: true,
        };
        Map { fields: vec![field("a", 0), field("a", 1), field("b", 2)], ..Map::default() }
    }

    #[test]
    fn values_of_64_bits_are_written_to_every_sort_of_file_and_read_again() {
        for value in [0, 7, i64::MAX as u64, u64::MAX] {
            let case = Case {
                field: "superblock.s_size".to_owned(),
                value,
                sums_right: true,
                writes: vec![(8, vec![1, 2])],
                second: Some(("superblock.s_bsize".to_owned(), value)),
                crashed: false,
            };
            let text = toml::to_string(&case).expect("TOML");
            assert_eq!(toml::from_str::<Case>(&text).expect("TOML"), case, "{text}");
            let text = serde_json::to_string(&case).expect("JSON");
            assert_eq!(serde_json::from_str::<Case>(&text).expect("JSON"), case, "{text}");
        }
    }

    #[test]
    fn pairs_are_of_one_structure_and_bounded() {
        let disk = [5, 6, 7];
        let choice = Choice { pairs: true, ..Choice::default() };
        let cases = Cases::new(&map(), &disk, &choice);
        let total = cases.total();
        let all: Vec<Corruption> = cases.collect();
        assert_eq!((all.len() as u64, total), (16, 16));
        assert!(
            all.iter().all(|case| case.field == 0 && case.second.is_some_and(|(at, _)| at == 1))
        );
        let mut scratch = disk.to_vec();
        let case = Case::of(&map(), &mut scratch, &all[0]);
        assert_eq!(scratch, disk);
        case.apply(&mut scratch);
        assert!(scratch[0] != 5 && scratch[1] != 6 && scratch[2] == 7);
        assert!(case.text().contains(", a.f1="), "{}", case.text());
        assert_eq!(case.fields().collect::<Vec<_>>(), ["a.f0", "a.f1"]);
    }

    #[test]
    fn single_fields_come_value_by_value() {
        let disk = [5, 6, 7];
        let cases = Cases::new(&map(), &disk, &Choice::default());
        assert_eq!(cases.total(), 3 * 255);
        let first: Vec<usize> = cases.take(4).map(|case| case.field).collect();
        assert_eq!(first, [0, 1, 2, 0]);
    }
}
