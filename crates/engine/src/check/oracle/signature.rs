//! What makes two violations the same one.

use std::collections::BTreeSet;
use std::fmt;

use fathom_core::{Op, Outcome, Payload, Violation};
use serde::{Deserialize, Serialize};

/// Class, operation and what differs, for example `tree rename nlink` or
/// `outcome rmdir ENOTEMPTY/EEXIST`. Shrinking keeps it; findings with the same one are the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Signature(String);

impl Signature {
    /// The signature of `violation`, noticed after `op`.
    pub fn of(op: &Op, violation: &Violation) -> Signature {
        let what = match violation {
            Violation::Outcome { expected, found } => outcome_fields(expected, found),
            Violation::Tree { differences } | Violation::Stale { differences } => {
                let fields: BTreeSet<&str> = differences.iter().map(|d| d.what.as_str()).collect();
                fields.into_iter().collect::<Vec<_>>().join(",")
            }
            Violation::NonDeterministic { .. } => "answer".to_owned(),
            // Which operation was the last one before the checker ran says nothing.
            Violation::Checker { code, .. } => {
                let code = code.map_or_else(|| "signal".to_owned(), |code| code.to_string());
                return Signature(format!("checker exit {code}"));
            }
            Violation::KernelLog { lines } => {
                let first = lines.first().map_or("", String::as_str);
                return Signature(format!("kernel_log {}", without_numbers(first)));
            }
            Violation::Locks { lines } => {
                let first = lines.first().map_or("", String::as_str);
                return Signature(format!("locks {}", without_numbers(first)));
            }
            Violation::Hang { .. } => "no answer".to_owned(),
            Violation::Died { how } => how.clone(),
            Violation::ServerDied { .. } => "server".to_owned(),
            Violation::Oops { .. } => "kernel".to_owned(),
            // The same fault of a kernel is reached by many operations.
            Violation::KernelReport { title, .. } => {
                return Signature(format!("{} {title}", violation.class()));
            }
            Violation::OutOfMemory { .. } => "memory".to_owned(),
        };
        Signature(format!("{} {} {what}", violation.class(), op.name()))
    }
}

impl Signature {
    /// Whether it is only seen by who waits.
    pub(crate) fn is_stale(&self) -> bool {
        self.0.starts_with("stale ")
    }

    /// Whether the file system's own checker found it.
    pub(crate) fn is_checker(&self) -> bool {
        self.0.starts_with("checker ")
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A line of the log without what differs from run to run: addresses, times, inode numbers.
fn without_numbers(line: &str) -> String {
    let words = line.split_whitespace().filter(|word| !word.contains(|c: char| c.is_ascii_digit()));
    words.take(8).collect::<Vec<_>>().join(" ")
}

/// Errors by name; values only by the fact that they differ, since shrinking changes them.
fn outcome_fields(expected: &Outcome, found: &Outcome) -> String {
    match (&expected.result, &found.result) {
        (Ok(_), Ok(_)) if expected.payload == found.payload => "value".to_owned(),
        (Ok(_), Ok(_)) => payload_fields(&expected.payload, &found.payload),
        _ => format!("{}/{}", result_name(expected), result_name(found)),
    }
}

fn result_name(outcome: &Outcome) -> String {
    outcome.result.map_or_else(|errno| errno.to_string(), |_| "success".to_owned())
}

fn payload_fields(expected: &Payload, found: &Payload) -> String {
    match (expected, found) {
        (Payload::Stat(want), Payload::Stat(have)) => [
            ("mode", want.mode != have.mode),
            ("nlink", want.nlink != have.nlink),
            ("uid", want.uid != have.uid),
            ("gid", want.gid != have.gid),
            ("size", want.size != have.size),
            ("rdev", want.rdev != have.rdev),
        ]
        .iter()
        .filter_map(|(name, differs)| differs.then_some(*name))
        .collect::<Vec<_>>()
        .join(","),
        (Payload::Entries(_), _) => "entries".to_owned(),
        (Payload::Names(_), _) => "names".to_owned(),
        (Payload::Statfs(_), _) => "statfs".to_owned(),
        _ => "data".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_core::{Difference, Errno};

    #[test]
    fn signatures_name_class_operation_and_fields() {
        let op = Op::Rmdir { path: "d0".into() };
        let outcome =
            Violation::Outcome { expected: Outcome::err(Errno::ENOTEMPTY), found: Outcome::ok(0) };
        assert_eq!(Signature::of(&op, &outcome).to_string(), "outcome rmdir ENOTEMPTY/success");
        let difference = |what: &str| Difference {
            path: "a".into(),
            what: what.to_owned(),
            expected: "1".to_owned(),
            found: "2".to_owned(),
        };
        let tree =
            Violation::Tree { differences: ["size", "nlink", "size"].map(difference).to_vec() };
        assert_eq!(Signature::of(&op, &tree).to_string(), "tree rmdir nlink,size");
    }
}
