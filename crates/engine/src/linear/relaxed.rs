//! What is not promised to be one step while calls overlap. The list with its sources is `relaxed.toml`;
//! what each means for an answer is here.

use std::collections::{BTreeMap, BTreeSet};

use fathom_core::flags::RenameFlags;
use fathom_core::{Errno, FsBytes, FsPath, Op, Outcome, Payload, Target};
use serde::Deserialize;

/// The list.
const LIST: &str = include_str!("relaxed.toml");

/// The profiles of the reference itself: nothing but what names them is relaxed for them.
const REFERENCES: [&str; 3] = ["model", "reffs", "fuse"];

/// One entry of the list.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Relaxation {
    /// What may be seen.
    pub about: String,
    /// Who says so.
    pub source: String,
    /// For which profiles it holds.
    pub profiles: Vec<String>,
}

impl Relaxation {
    fn holds_for(&self, profile: &str) -> bool {
        self.profiles.iter().any(|name| match name.strip_suffix('*') {
            Some("") => !REFERENCES.contains(&profile),
            Some(start) => profile.starts_with(start),
            None => name == profile,
        })
    }
}

/// What is relaxed for a subject, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relaxations(BTreeMap<String, Relaxation>);

/// How an answer that no order gives may be taken all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepted {
    No,
    /// The call did what the reference did.
    AsExecuted,
    /// The call did nothing.
    WithoutEffect,
}

/// What is not promised of one call, because of what it overlaps with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Relaxed {
    /// Data may be a mixture.
    Data,
    /// Size and link count may be of other moments.
    Fields,
    /// These names may be listed or not.
    Names(BTreeSet<FsBytes>),
    /// The path may have been missed.
    Missed,
    /// Counts are not compared.
    Counts,
}

impl Relaxations {
    /// Nothing: every call is one step.
    pub fn none() -> Relaxations {
        Relaxations::default()
    }

    /// What is relaxed for the subjects of a profile.
    pub fn of_profile(profile: &str) -> Relaxations {
        let mut list = Relaxations::all();
        list.0.retain(|_, relaxation| relaxation.holds_for(profile));
        list
    }

    /// The whole list.
    pub fn all() -> Relaxations {
        Relaxations(toml::from_str(LIST).expect("relaxed.toml is right: a test reads it"))
    }

    /// The entries with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Relaxation)> {
        self.0.iter().map(|(name, relaxation)| (name.as_str(), relaxation))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// What is not promised of a call that overlaps with others.
    pub(super) fn of(&self, op: &Op, outcome: &Outcome, beside: &[&Op]) -> Option<Relaxed> {
        if beside.is_empty() {
            return None;
        }
        let any = |test: fn(&Op) -> bool| beside.iter().any(|op| test(op));
        let reads = matches!(op, Op::Read { .. } | Op::Pread { .. } | Op::MmapLoad { .. });
        if reads && self.has("torn-read") && any(changes_data) {
            return Some(Relaxed::Data);
        }
        if missed(outcome) && self.has("walk") && walks_through(op, beside) {
            return Some(Relaxed::Missed);
        }
        match op {
            Op::Stat { .. } if self.has("torn-stat") && any(changes_fields) => {
                Some(Relaxed::Fields)
            }
            Op::Getdents { .. } if self.has("listing") => {
                let names: BTreeSet<FsBytes> = beside.iter().flat_map(|op| bound(op)).collect();
                (!names.is_empty()).then_some(Relaxed::Names(names))
            }
            Op::Statfs { .. } if self.has("space") => Some(Relaxed::Counts),
            _ => None,
        }
    }
}

fn changes_data(op: &Op) -> bool {
    matches!(
        op,
        Op::Write { .. }
            | Op::Pwrite { .. }
            | Op::Truncate { .. }
            | Op::Fallocate { .. }
            | Op::CopyFileRange { .. }
            | Op::MmapStore { .. }
            | Op::Open { .. }
    )
}

fn changes_fields(op: &Op) -> bool {
    changes_data(op)
        || matches!(
            op,
            Op::Link { .. }
                | Op::Unlink { .. }
                | Op::Rename { .. }
                | Op::Mkdir { .. }
                | Op::Rmdir { .. }
                | Op::Chmod { .. }
                | Op::Chown { .. }
        )
}

/// The names that an operation can add or remove.
fn bound(op: &Op) -> Vec<FsBytes> {
    let last = |path: &FsPath| FsBytes::from(path.file_name());
    match op {
        Op::Open { path, .. }
        | Op::Mkdir { path, .. }
        | Op::Rmdir { path }
        | Op::Unlink { path }
        | Op::Symlink { path, .. }
        | Op::Mknod { path, .. } => vec![last(path)],
        Op::Rename { from, to, .. } => vec![last(from), last(to)],
        Op::Link { to, .. } => vec![last(to)],
        _ => Vec::new(),
    }
}

fn missed(outcome: &Outcome) -> bool {
    matches!(outcome.result, Err(Errno::ENOENT | Errno::ENOTDIR))
}

/// Whether a path of the operation goes through a name that somebody renames meanwhile.
fn walks_through(op: &Op, beside: &[&Op]) -> bool {
    let mut above: Vec<&[u8]> = Vec::new();
    op.operands(|operand| {
        let path = match operand {
            fathom_core::Operand::Path(path, ..) => path,
            fathom_core::Operand::Target(Target::Path(path) | Target::Link(path), ..) => path,
            _ => return,
        };
        let names: Vec<&[u8]> = path.as_bytes().split(|byte| *byte == b'/').collect();
        above.extend(&names[..names.len() - 1]);
    });
    beside.iter().any(|op| match op {
        Op::Rename { from, to, flags } => {
            let exchanges = flags.contains(RenameFlags::RENAME_EXCHANGE);
            above.contains(&from.file_name()) || exchanges && above.contains(&to.file_name())
        }
        _ => false,
    })
}

impl Relaxed {
    /// Whether an answer other than the expected one may be taken.
    pub(super) fn accepts(&self, expected: &Outcome, found: &Outcome) -> Accepted {
        let fine = match self {
            Relaxed::Missed => return Accepted::WithoutEffect,
            Relaxed::Data => expected.result.is_ok() && found.result.is_ok(),
            Relaxed::Counts => expected.result.is_ok() && found.result.is_ok(),
            Relaxed::Fields => same_but_torn(expected, found),
            Relaxed::Names(names) => same_but_names(expected, found, names),
        };
        if fine { Accepted::AsExecuted } else { Accepted::No }
    }
}

fn same_but_torn(expected: &Outcome, found: &Outcome) -> bool {
    let (Payload::Stat(want), Payload::Stat(have)) = (&expected.payload, &found.payload) else {
        return false;
    };
    let mut masked = have.clone();
    (masked.size, masked.nlink) = (want.size, want.nlink);
    expected.result == found.result && masked == *want
}

fn same_but_names(expected: &Outcome, found: &Outcome, names: &BTreeSet<FsBytes>) -> bool {
    let (Payload::Entries(want), Payload::Entries(have)) = (&expected.payload, &found.payload)
    else {
        return false;
    };
    let others = |entries: &[(FsBytes, char)]| -> Vec<(FsBytes, char)> {
        entries.iter().filter(|(name, _)| !names.contains(name)).cloned().collect()
    };
    expected.result.is_ok() == found.result.is_ok() && others(want) == others(have)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_has_a_source_and_says_for_whom() {
        for (name, relaxation) in Relaxations::all().iter() {
            assert!(!relaxation.about.is_empty() && relaxation.source.len() > 20, "{name}");
            assert!(!relaxation.profiles.is_empty(), "{name}");
        }
    }

    #[test]
    fn the_reference_is_relaxed_only_by_name() {
        let names = |profile| -> Vec<String> {
            Relaxations::of_profile(profile).iter().map(|(name, _)| name.to_owned()).collect()
        };
        assert_eq!(names("model"), ["space"]);
        assert!(names("ext4").contains(&"torn-read".to_owned()));
        assert!(!names("xfs").contains(&"torn-read".to_owned()));
        assert!(names("overlay-ext4").contains(&"torn-read".to_owned()));
    }

    #[test]
    fn names_that_nobody_touches_are_listed_exactly_once() {
        let list = |names: &[&str]| {
            let entries = names.iter().map(|name| (FsBytes::from(*name), '-')).collect();
            Outcome::with(Payload::Entries(entries))
        };
        let relaxed = Relaxed::Names([FsBytes::from("moved")].into());
        let accepts = |found: &[&str]| relaxed.accepts(&list(&["a", "b", "moved"]), &list(found));
        assert_eq!(accepts(&["a", "b"]), Accepted::AsExecuted);
        assert_eq!(accepts(&["a", "a", "b"]), Accepted::No);
        assert_eq!(accepts(&["a", "moved"]), Accepted::No);
    }

    #[test]
    fn nothing_is_relaxed_for_a_call_that_overlaps_nothing() {
        let op = Op::Statfs { target: Target::Path(".".into()) };
        assert_eq!(Relaxations::all().of(&op, &Outcome::ok(0), &[]), None);
        assert_eq!(
            Relaxations::all().of(&op, &Outcome::ok(0), &[&Op::Sync]),
            Some(Relaxed::Counts)
        );
    }

    #[test]
    fn a_path_is_missed_only_behind_a_directory_that_is_renamed() {
        let stat = Op::Stat { target: Target::Path("d/f".into()) };
        let rename = |from: &str| Op::Rename {
            from: from.into(),
            to: "x".into(),
            flags: RenameFlags::empty(),
        };
        let missing = Outcome::err(Errno::ENOENT);
        let relaxed = |beside: &Op| Relaxations::all().of(&stat, &missing, &[beside]);
        assert_eq!(relaxed(&rename("d")), Some(Relaxed::Missed));
        assert_ne!(relaxed(&rename("d/f")), Some(Relaxed::Missed));
    }
}
