//! Is what a crash left what was promised? And if not: what is the cause, so that a thousand images
//! of one bug are one finding.

use std::fmt;

use fathom_core::{Difference, FsPath, Op, Tree};
use serde::{Deserialize, Serialize};

use super::promise::{BrokenPromise, Promise, Rule};

/// The kinds of violations, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Without any crash the subject answers or shows something else than the reference.
    WrongAnswer,
    /// It does not mount any more.
    Unmountable,
    /// Something that is listed cannot be looked at or read.
    Unreadable,
    /// Something that was promised is not there.
    LostEntry,
    /// Something that was removed is there again, or never was.
    ResurrectedEntry,
    /// A file has other contents than any that are allowed.
    WrongContent,
    /// Mounting again, or recovering again, gives something else.
    NotIdempotent,
    /// The same image shows different things.
    NonDeterministic,
    /// It mounts, but cannot be worked with.
    NotUsable,
    /// Space is gone.
    Leak,
    /// An independent checker finds it damaged.
    Rejected,
    /// The kernel complains of it in its log.
    KernelComplains,
    /// The process that executed it died, hung or used up the memory.
    Died,
}

impl Class {
    /// The name for machines: `lost_entry`.
    pub(super) fn name(self) -> String {
        let name = serde_json::to_value(self).expect("a class is plain data");
        name.as_str().unwrap_or_default().to_owned()
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Died => "died",
            Class::WrongAnswer => "wrong answer",
            Class::Unmountable => "unmountable",
            Class::Unreadable => "unreadable",
            Class::LostEntry => "lost entry",
            Class::ResurrectedEntry => "resurrected entry",
            Class::WrongContent => "wrong content",
            Class::NotIdempotent => "recovery not idempotent",
            Class::NonDeterministic => "non-deterministic",
            Class::NotUsable => "not usable",
            Class::Leak => "leaked space",
            Class::Rejected => "rejected by the checker",
            Class::KernelComplains => "complaint of the kernel",
        })
    }
}

/// The properties by which two violations are the same finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// The class of the violation.
    pub class: Class,
    /// The operation that was interrupted.
    pub op: String,
    /// The place of the damage, seen from that operation; or what went wrong, without names.
    pub place: String,
    /// The place of the missing flush, if writes must be lost or reordered to show it: in or after the
    /// operation that wrote what is lost. Findings of earlier versions do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unflushed: Option<Unflushed>,
}

/// A place where a flush is missing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unflushed {
    /// The operation whose write is lost, without names.
    pub op: String,
    /// It had returned; otherwise its own writes are in the wrong order.
    pub returned: bool,
}

impl Cause {
    pub(super) fn new(class: Class, op: &Op, place: impl Into<String>) -> Cause {
        Cause { class, op: describe(op), place: place.into(), unflushed: None }
    }

    /// Whether a violation is the same: what an earlier version did not say is not compared.
    pub(super) fn is_same(&self, other: &Cause) -> bool {
        let unflushed_agrees = self.unflushed.is_none()
            || other.unflushed.is_none()
            || self.unflushed == other.unflushed;
        (self.class, &self.op, &self.place) == (other.class, &other.op, &other.place)
            && unflushed_agrees
    }
}

impl fmt::Display for Unflushed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unflushed { op, returned } = self;
        write!(f, "no flush {} {op}", if *returned { "after" } else { "in" })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.class, self.op)?;
        if !self.place.is_empty() {
            write!(f, ": {}", self.place)?;
        }
        self.unflushed.iter().try_for_each(|unflushed| write!(f, " ({unflushed})"))
    }
}

/// Compares a tree that is not legal with the candidate that it resembles most; also says in words
/// what differs.
pub(super) fn classify(promise: &Promise, found: &Tree, op: &Op) -> (Cause, Vec<String>) {
    let found = promise.firm(found.clone());
    let candidates = promise.candidates().iter().map(|candidate| promise.firm(candidate.tree()));
    let candidates: Vec<Tree> = candidates.collect();
    let (nearest, differences) = candidates
        .iter()
        .map(|candidate| (candidate, roots(candidate.differences(&found))))
        .min_by_key(|(_, differences)| differences.len())
        .expect("there is always a candidate");
    let class = |path: &FsPath| {
        if !found.entries.contains_key(path) {
            Class::LostEntry
        } else if nearest.entries.contains_key(path) {
            Class::WrongContent
        } else {
            Class::ResurrectedEntry
        }
    };
    // The worst class names the cause, and what lies farthest from the operation: a bug that hides
    // bystanders is told by these.
    let worst = differences.iter().map(|difference| {
        (class(&difference.path), std::cmp::Reverse(place(&difference.path, op)))
    });
    let (class_worst, place_worst) =
        worst.min().unwrap_or((Class::WrongContent, std::cmp::Reverse(Place::Itself)));
    let cause = Cause::new(class_worst, op, place_worst.0.text(op));
    let tell = |difference: &Difference| {
        let (path, found) = (&difference.path, &difference.found);
        match class(path) {
            Class::LostEntry => format!("{path} is missing"),
            Class::ResurrectedEntry => format!("{path} should not be there: {found}"),
            _ => {
                let Difference { what, expected, .. } = difference;
                format!("{path}: {what} should be {expected}, is {found}")
            }
        }
    };
    (cause, differences.iter().map(tell).collect())
}

/// The cause of a broken promise about single objects: the rule names it, and what was done to the
/// object last; when the power failed is chance.
pub(super) fn classify_rule(broken: &BrokenPromise, op: &Op) -> Cause {
    let class = match broken.rule {
        Rule::LostObject | Rule::RenameNone | Rule::LostName => Class::LostEntry,
        Rule::RenameBoth | Rule::ReturnedName | Rule::ForeignName => Class::ResurrectedEntry,
        Rule::LostData
        | Rule::ForeignData
        | Rule::Size
        | Rule::RenameOver
        | Rule::Attributes
        | Rule::Xattrs
        | Rule::SymlinkTarget
        | Rule::LinkCount
        | Rule::Allocation
        | Rule::ModificationTime
        | Rule::Order => Class::WrongContent,
    };
    let place = match &broken.changed_by {
        Some(call) => format!("{} after {call}", broken.rule),
        None => broken.rule.to_string(),
    };
    Cause::new(class, op, place)
}

/// Differences that do not follow from others: no link counts, nothing inside of what is missing.
fn roots(mut differences: Vec<Difference>) -> Vec<Difference> {
    let missing: Vec<FsPath> = differences
        .iter()
        .filter(|difference| difference.what == "entry")
        .map(|difference| difference.path.clone())
        .collect();
    let all: Vec<Difference> = differences.clone();
    differences.retain(|difference| {
        let above = difference.path.parent();
        difference.what != "nlink" && !above.is_some_and(|above| missing.contains(&above))
    });
    if differences.is_empty() { all } else { differences }
}

/// An operation without names and numbers.
pub fn describe(op: &Op) -> String {
    match op {
        Op::Rename { from, to, .. } if from.parent() != to.parent() => {
            "rename into another directory".to_owned()
        }
        other => other.name().to_owned(),
    }
}

/// The place of a path, seen from an operation: the nearest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Itself,
    Directory,
    NewSibling,
    Sibling,
    Elsewhere,
}

impl Place {
    fn text(self, op: &Op) -> &'static str {
        let renames = matches!(op, Op::Rename { .. });
        match self {
            Place::Itself if renames => "what is renamed",
            Place::Itself => "what it works on",
            Place::Directory => "the directory itself",
            Place::NewSibling => "another entry of the new directory",
            Place::Sibling if renames => "another entry of the old directory",
            Place::Sibling => "another entry of the same directory",
            Place::Elsewhere => "an entry elsewhere",
        }
    }
}

fn place(path: &FsPath, op: &Op) -> Place {
    let beside = |mine: &FsPath| {
        if path == mine {
            Place::Itself
        } else if path.parent() == mine.parent() {
            Place::Sibling
        } else if mine.parent().as_ref() == Some(path) {
            Place::Directory
        } else {
            Place::Elsewhere
        }
    };
    match op {
        Op::Rename { from, to, .. } => match (beside(from), beside(to)) {
            (Place::Itself, _) | (_, Place::Itself) => Place::Itself,
            (Place::Sibling, _) => Place::Sibling,
            (_, Place::Sibling) => Place::NewSibling,
            (Place::Directory, _) | (_, Place::Directory) => Place::Directory,
            _ => Place::Elsewhere,
        },
        Op::Open { path: mine, .. }
        | Op::Mkdir { path: mine, .. }
        | Op::Unlink { path: mine }
        | Op::Rmdir { path: mine } => beside(mine),
        // Operations on open files do not say which.
        _ => Place::Elsewhere,
    }
}

/// A complaint without names, numbers and digests: equal for all sightings of the same.
pub(super) fn anonymous(what: &str) -> String {
    let mut text = String::new();
    for (index, part) in what.lines().next().unwrap_or_default().split('"').enumerate() {
        if index > 0 {
            text.push('"');
        }
        // Every second part is quoted: a name.
        if index % 2 == 0 {
            push_without_numbers(part, &mut text);
        }
    }
    text
}

fn push_without_numbers(part: &str, text: &mut String) {
    for piece in part.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
        if piece.contains(|letter: char| letter.is_ascii_digit()) {
            if !text.ends_with('#') {
                text.push('#');
            }
            text.extend(piece.chars().last().filter(|last| !last.is_ascii_alphanumeric()));
        } else {
            text.push_str(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_lose_names_numbers_and_digests() {
        let complaint = |text: &str| anonymous(text);
        assert_eq!(
            complaint("open(#0, \"a1\", O_WRONLY, 0644) fails with EIO\nmore"),
            "open(#, \"\", O_WRONLY, #) fails with EIO"
        );
        assert_eq!(
            complaint("\"a\": entry: found -0644 size 300 content 1123bbf60971"),
            complaint("\"b/c\": entry: found -0644 size 1 content a00f6fb909ca"),
        );
        assert_ne!(complaint("mount fails with EIO"), complaint("mount fails with ENOENT"));
        assert_eq!(complaint(""), "");
    }
}
