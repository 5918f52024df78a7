//! Is what a crash left what was promised? And if not: what is the cause, so that a thousand images
//! of one bug are one finding.

use std::fmt;

use fathom_core::{Difference, FsPath, Op, Tree};
use serde::{Deserialize, Serialize};

use super::promise::Promise;

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
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
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
        })
    }
}

/// What makes two violations the same finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cause {
    /// What is wrong.
    pub class: Class,
    /// The operation that was interrupted.
    pub op: String,
    /// Where, seen from that operation; or what went wrong, without names.
    pub place: String,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", self.class, self.op)?;
        if self.place.is_empty() { Ok(()) } else { write!(f, ": {}", self.place) }
    }
}

/// Compares a tree that is not legal with the candidate that it resembles most.
pub fn classify(promise: &Promise, found: &Tree, op: &Op) -> (Cause, Vec<Difference>) {
    let found = promise.firm(found.clone());
    let candidates = promise.candidates().iter();
    let differences = candidates
        .map(|candidate| promise.firm(candidate.tree()).differences(&found))
        .min_by_key(Vec::len)
        .unwrap_or_default();
    let known = |path: &FsPath| {
        promise.candidates().iter().any(|candidate| candidate.tree().entries.contains_key(path))
    };
    let mut worst = (Class::WrongContent, String::new());
    for difference in &differences {
        let class = if !found.entries.contains_key(&difference.path) {
            Class::LostEntry
        } else if known(&difference.path) {
            // Link counts follow from entries.
            if difference.what == "nlink" { continue } else { Class::WrongContent }
        } else {
            Class::ResurrectedEntry
        };
        if class < worst.0 || worst.1.is_empty() {
            worst = (class, place(&difference.path, op));
        }
    }
    // An entry that is in one candidate and missing in the next is only lost if it is in all: where
    // both an old and a new name are there, or neither is, the nearest candidate decides.
    (Cause { class: worst.0, op: describe(op), place: worst.1 }, differences)
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

/// Where a path lies, seen from an operation.
fn place(path: &FsPath, op: &Op) -> String {
    let relation = |mine: &FsPath| {
        if path == mine {
            Some("what it works on")
        } else if path.parent() == mine.parent() {
            Some("another entry of the same directory")
        } else if mine.parent().as_ref() == Some(path) {
            Some("the directory itself")
        } else {
            None
        }
    };
    let place = match op {
        Op::Rename { from, to, .. } if path == from || path == to => Some("what is renamed"),
        Op::Rename { from, .. } if path.parent() == from.parent() => {
            Some("another entry of the old directory")
        }
        Op::Rename { to, .. } if path.parent() == to.parent() => {
            Some("another entry of the new directory")
        }
        Op::Open { path: mine, .. }
        | Op::Mkdir { path: mine, .. }
        | Op::Unlink { path: mine }
        | Op::Rmdir { path: mine } => relation(mine),
        _ => None,
    };
    place.unwrap_or("an entry elsewhere").to_owned()
}
