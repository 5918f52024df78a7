//! Cases: one field, one value, with the checksums over it right or wrong.

use serde::{Deserialize, Serialize};

use crate::map::{Field, Map, MapError, parse_number};
use crate::values::{Values, values};

/// One corruption of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// The field by name.
    pub field: String,
    /// The value that it is given.
    pub value: u64,
    /// Whether the checksums over it are put right.
    pub sums_right: bool,
    /// The bytes that are written: place, bytes.
    pub writes: Vec<(u64, Vec<u8>)>,
}

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
        Case { field: field.to_string(), value, sums_right, writes }
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
        let sums = if self.sums_right { "" } else { " (checksum left wrong)" };
        format!("{}={:#x}{sums}", self.field, self.value)
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
        let longest = fields.iter().map(|(_, values, _)| values.len()).max().unwrap_or(0);
        Cases { fields, rank: 0, next: 0, longest, wrong: false }
    }

    /// How many fields are tried.
    pub(crate) fn fields(&self) -> usize {
        self.fields.len()
    }

    /// How many cases there are.
    pub(crate) fn total(&self) -> u64 {
        self.fields
            .iter()
            .map(|(_, values, guarded)| values.len() + u64::from(*guarded && values.len() > 0))
            .sum()
    }
}

impl Iterator for Cases {
    /// The index of the field, the value, and whether checksums are put right.
    type Item = (usize, u64, bool);

    fn next(&mut self) -> Option<(usize, u64, bool)> {
        while self.rank < self.longest {
            while self.next < self.fields.len() {
                let (field, values, guarded) = &self.fields[self.next];
                let Some(value) = values.get(self.rank) else {
                    self.next += 1;
                    continue;
                };
                if *guarded && self.rank == 0 && !self.wrong {
                    self.wrong = true;
                    return Some((*field, value, false));
                }
                self.wrong = false;
                self.next += 1;
                return Some((*field, value, true));
            }
            self.rank += 1;
            self.next = 0;
        }
        None
    }
}
