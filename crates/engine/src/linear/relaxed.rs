//! What is not promised to be one step while calls overlap. The list with its sources is `relaxed.toml`;
//! what each means for an answer is here.

use std::collections::{BTreeMap, BTreeSet};

use fathom_core::flags::{OpenFlags, RenameFlags};
use fathom_core::{Errno, FsBytes, FsPath, Mode, Op, Outcome, Payload, Stat, Target};
use fathom_model::{Change, Model};
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
    /// The call that does more than one thing, one after the other.
    #[serde(default)]
    call: Option<Counting>,
    /// In which order.
    #[serde(default)]
    order: Vec<Change>,
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

/// Calls that change link counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Counting {
    Mkdir,
    Rmdir,
    Link,
    Rename,
}

/// What is relaxed for a subject, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relaxations(BTreeMap<String, Relaxation>);

/// What is not promised of one call, because of what it overlaps with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Relaxed {
    /// Data may be a mixture.
    Data,
    /// Each field may be of one of two moments, and the size at the end of a page of these writes.
    Fields(Written),
    /// These names may be listed or not.
    Names(BTreeSet<FsBytes>),
    /// Counts are not compared.
    Counts,
    /// It may end with this, without an effect.
    Refused(Errno),
}

/// How far writes that go on while somebody looks can come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    /// Bytes of those that start at the end of the file, or where the caller is.
    bytes: u64,
    /// Greatest end of the others.
    until: u64,
}

/// The kernel tries to open a stale file once more, so that it takes two calls to make it fail.
const TAKES_UNTIL_STALE: usize = 2;

/// The size of a file grows by as much at once, while it is written to.
const PAGE_BYTES: u64 = 4096;

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

    /// What is not promised of a call, because of what it overlaps with: `beside` has the calls that have to do
    /// with it, `overlaps` says whether there are any others.
    pub(super) fn of(&self, op: &Op, beside: &[&Op], overlaps: bool) -> Option<Relaxed> {
        let any = |test: fn(&Op) -> bool| beside.iter().any(|op| test(op));
        match op {
            Op::Read { .. } | Op::Pread { .. } | Op::MmapLoad { .. } => {
                (self.has("torn-read") && any(changes_data)).then_some(Relaxed::Data)
            }
            Op::Stat { .. } if self.has("torn-stat") && any(changes_fields) => {
                Some(Relaxed::Fields(written(beside)))
            }
            Op::Getdents { .. } if self.has("listing") => {
                let names: BTreeSet<FsBytes> = beside.iter().flat_map(|op| bound(op)).collect();
                (!names.is_empty()).then_some(Relaxed::Names(names))
            }
            Op::Statfs { .. } if self.has("space") && overlaps => Some(Relaxed::Counts),
            Op::Open { .. } if self.has("stale-open") => {
                let takes = beside.iter().filter(|op| takes_a_name(op)).count();
                (takes >= TAKES_UNTIL_STALE).then_some(Relaxed::Refused(Errno::ESTALE))
            }
            Op::Link { .. } if self.has("counted-twice") && any(takes_a_name) => {
                Some(Relaxed::Refused(Errno::ENOENT))
            }
            _ => None,
        }
    }

    /// Whether the name that a call removes may be found while it does: if somebody looks at what had it.
    pub(super) fn leaves(&self, op: &Op, beside: &[&Op]) -> bool {
        let (Op::Rmdir { path } | Op::Unlink { path }) = op else { return false };
        let same = |other: &&Op| {
            looked_up(other).is_some_and(|other| other.file_name() == path.file_name())
        };
        self.has("removal") && beside.iter().any(same)
    }

    /// What a call does one after the other, if somebody looks at link counts meanwhile.
    pub(super) fn order(&self, op: &Op, beside: &[&Op]) -> Vec<Change> {
        let call = match op {
            Op::Mkdir { .. } => Counting::Mkdir,
            Op::Rmdir { .. } => Counting::Rmdir,
            Op::Link { .. } => Counting::Link,
            Op::Rename { .. } => Counting::Rename,
            _ => return Vec::new(),
        };
        let looks = beside.iter().any(|op| matches!(op, Op::Stat { .. }));
        let of_call = self.0.values().find(|entry| looks && entry.call == Some(call));
        of_call.map(|entry| entry.order.clone()).unwrap_or_default()
    }

    /// The steps of the path of a call between which others may come: none if they change no names.
    pub(super) fn walks(&self, op: &Op, beside: &[&Op]) -> usize {
        let changed = beside.iter().any(|op| !bound(op).is_empty());
        if changed && self.has("walk") { Model::steps_before(op) } else { 0 }
    }
}

/// Whether a file can lose a name by an operation.
fn takes_a_name(op: &Op) -> bool {
    let keeps_both = RenameFlags::RENAME_EXCHANGE | RenameFlags::RENAME_NOREPLACE;
    match op {
        Op::Unlink { .. } => true,
        Op::Rename { flags, .. } => !flags.intersects(keeps_both),
        _ => false,
    }
}

fn written(beside: &[&Op]) -> Written {
    let mut all = Written::default();
    for op in beside {
        match op {
            Op::Write { data, .. } => all.bytes += data.len,
            Op::Pwrite { data, offset, .. } => {
                let end = u64::try_from(*offset).unwrap_or(0).saturating_add(data.len);
                all.until = all.until.max(end);
            }
            _ => {}
        }
    }
    all
}

/// The path of a call that looks it up without the lock of the directory that the last name is in.
fn looked_up(op: &Op) -> Option<&FsPath> {
    match op {
        Op::Stat { target: Target::Path(path) | Target::Link(path) } => Some(path),
        _ => None,
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
    ) || matches!(op, Op::Open { flags, .. } if flags.contains(OpenFlags::O_TRUNC))
}

fn changes_fields(op: &Op) -> bool {
    changes_data(op)
        || matches!(
            op,
            Op::Link { .. }
                | Op::LinkSlot { .. }
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
        Op::Open { path, flags, .. } if flags.contains(OpenFlags::O_CREAT) => vec![last(path)],
        Op::Mkdir { path, .. }
        | Op::Rmdir { path }
        | Op::Unlink { path }
        | Op::Symlink { path, .. }
        | Op::Mknod { path, .. } => vec![last(path)],
        Op::Rename { from, to, .. } => vec![last(from), last(to)],
        Op::Link { to, .. } | Op::LinkSlot { to, .. } => vec![last(to)],
        _ => Vec::new(),
    }
}

impl Relaxed {
    /// Whether an answer other than the expected one may be taken. The call saw `glimpse` in the step before;
    /// `fits` says whether the answer is one that is expected.
    pub(super) fn accepts(
        &self,
        glimpse: &Outcome,
        expected: &Outcome,
        found: &Outcome,
        fits: impl Fn(&Outcome) -> bool,
    ) -> bool {
        match self {
            Relaxed::Data => expected.result.is_ok() && found.result.is_ok(),
            Relaxed::Counts => expected.result.is_ok() && found.result.is_ok(),
            Relaxed::Fields(written) => {
                torn(glimpse, expected, found, *written).is_some_and(|it| fits(&it))
            }
            Relaxed::Names(names) => same_but_names(expected, found, names),
            // The search lets it end without an effect.
            Relaxed::Refused(_) => false,
        }
    }
}

/// The expected answer with every field that the found one has of the earlier moment, or of the middle of a write.
fn torn(
    glimpse: &Outcome,
    expected: &Outcome,
    found: &Outcome,
    written: Written,
) -> Option<Outcome> {
    let (Payload::Stat(early), Payload::Stat(late), Payload::Stat(have)) =
        (&glimpse.payload, &expected.payload, &found.payload)
    else {
        return None;
    };
    let least = early.size.min(late.size);
    let most = written.until.max(least + written.bytes);
    let in_a_write = have.size.is_multiple_of(PAGE_BYTES) && have.size > least && have.size < most;
    let of_either = |have: u32, early: u32, late: u32| if have == early { early } else { late };
    let stat = Stat {
        size: if have.size == early.size || in_a_write { have.size } else { late.size },
        nlink: of_either(have.nlink, early.nlink, late.nlink),
        mode: Mode(of_either(have.mode.0, early.mode.0, late.mode.0)),
        uid: of_either(have.uid, early.uid, late.uid),
        gid: of_either(have.gid, early.gid, late.gid),
        rdev: late.rdev,
    };
    Some(Outcome { result: expected.result, payload: Payload::Stat(Box::new(stat)) })
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
        let of_fuse = ["counted-twice", "listing", "space", "stale-open", "torn-read", "torn-stat"];
        assert_eq!(names("reffs"), [&of_fuse[..], &["walk"]].concat());
        let counts =
            ["link-counts", "listing", "mkdir-counts", "removal", "rename-counts", "rmdir-counts"];
        assert_eq!(
            names("tmpfs"),
            [&counts[..], &["space", "torn-read", "torn-stat", "walk"]].concat()
        );
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
        let want = list(&["a", "b", "moved"]);
        let accepts = |found: &[&str]| relaxed.accepts(&want, &want, &list(found), |_| false);
        assert!(accepts(&["a", "b"]));
        assert!(!accepts(&["a", "a", "b"]));
        assert!(!accepts(&["a", "moved"]));
    }

    #[test]
    fn nothing_is_relaxed_for_a_call_that_overlaps_nothing() {
        let op = Op::Statfs { target: Target::Path(".".into()) };
        assert_eq!(Relaxations::all().of(&op, &[], false), None);
        assert_eq!(Relaxations::all().of(&op, &[], true), Some(Relaxed::Counts));
        let stat = Op::Stat { target: Target::Path("d/f".into()) };
        assert_eq!(Relaxations::all().walks(&stat, &[&Op::Sync]), 0);
        let mkdir = Op::Mkdir { path: "d".into(), mode: Mode(0o755) };
        assert_eq!(Relaxations::all().walks(&stat, &[&mkdir]), 2);
    }

    /// Just outside of what a stat beside a write may show: any size that is neither of the two moments nor the
    /// end of a page of the write.
    #[test]
    fn a_size_is_of_one_of_two_moments_or_at_the_end_of_a_page() {
        let sized = |size, nlink| {
            let stat = Stat { mode: Mode(0o100644), nlink, uid: 0, gid: 0, size, rdev: (0, 0) };
            Outcome::with(Payload::Stat(Box::new(stat)))
        };
        let relaxed = Relaxed::Fields(Written { bytes: 6000, until: 0 });
        let accepts = |found: Outcome| {
            relaxed.accepts(&sized(100, 1), &sized(200, 2), &found, |one| *one == found)
        };
        assert!(accepts(sized(200, 1)) && accepts(sized(100, 2)));
        assert!(accepts(sized(4096, 1)), "in the middle of the write");
        assert!(!accepts(sized(150, 1)) && !accepts(sized(4097, 1)) && !accepts(sized(8192, 1)));
        assert!(!accepts(sized(200, 3)) && !accepts(sized(0, 1)));
    }

    /// Counts between two moments are steps of their own (`rmdir-counts`), not fields of a torn stat.
    #[test]
    fn a_link_count_is_of_one_of_two_moments() {
        let counted = |nlink| {
            let mode = Mode(0o040755);
            let stat = Stat { mode, nlink, uid: 0, gid: 0, size: 0, rdev: (0, 0) };
            Outcome::with(Payload::Stat(Box::new(stat)))
        };
        let accepts = |nlink| {
            let relaxed = Relaxed::Fields(Written::default());
            let found = counted(nlink);
            relaxed.accepts(&counted(2), &counted(0), &found, |one| *one == found)
        };
        assert!(accepts(2) && !accepts(1) && !accepts(3));
    }

    /// A profile has one order of each call, and every order has the name that it is about once.
    #[test]
    fn orders_of_counts_are_one_for_each_call_of_a_profile() {
        let all = Relaxations::all();
        for (name, entry) in all.iter() {
            assert_eq!(entry.call.is_some(), !entry.order.is_empty(), "{name}");
            let names = entry.order.iter().filter(|change| **change == Change::Name).count();
            assert_eq!(names, usize::from(entry.call.is_some()), "{name}");
        }
        for profile in [
            "tmpfs",
            "ext2",
            "ext4",
            "xfs",
            "btrfs",
            "f2fs",
            "minix",
            "overlay",
            "overlay-xfs",
            "generic",
            "jfs",
            "gfs2",
            "reiserfs",
            "nilfs2",
            "vfat",
            "exfat",
        ] {
            let of_profile = Relaxations::of_profile(profile);
            for call in [Counting::Mkdir, Counting::Rmdir, Counting::Link, Counting::Rename] {
                let entries = of_profile.iter().filter(|(_, entry)| entry.call == Some(call));
                assert!(entries.count() < 2, "{profile} {call:?}");
            }
        }
        let rmdir = Op::Rmdir { path: "d".into() };
        let stat = Op::Stat { target: Target::Path("d".into()) };
        let order =
            |profile, beside: &[&Op]| Relaxations::of_profile(profile).order(&rmdir, beside).len();
        assert_eq!((order("tmpfs", &[&stat]), order("tmpfs", &[&Op::Sync])), (4, 0));
        assert_eq!(
            (order("ext4", &[&stat]), order("model", &[&stat]), order("reffs", &[&stat])),
            (0, 0, 0)
        );
    }
}
