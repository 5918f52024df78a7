//! The end of a finding's script: one check per claim, with a tool where one shows it.

use std::fmt::Write as _;

use super::command::quote;
use super::python;
use crate::claim::{Claim, Field, Probe, Time};
use crate::export::ascii;

/// The checks; none if the last answer is all there is to check.
pub(super) fn of(claims: &[Claim]) -> Option<String> {
    let mut text = String::new();
    let at_the_end = |claim: &&Claim| {
        !matches!(claim.probe, Probe::Answer | Probe::Returns { .. } | Probe::Always { .. })
    };
    for claim in claims.iter().filter(at_the_end) {
        let (what, expected) = (claim.probe.to_string(), quote(claim.expected.as_bytes()));
        let command = by_tool(&claim.probe).unwrap_or_else(|| {
            format!("told {}", quote(python::probe(claim).unwrap_or_default().as_bytes()))
        });
        let _ = writeln!(text, "# The subject had: {}.", ascii(&claim.found));
        if let Probe::Checker { .. } = claim.probe {
            text.push_str("check_disk\n");
        }
        let _ = writeln!(text, "must_be {} {expected} {command}", quote(what.as_bytes()));
    }
    (!text.is_empty()).then_some(text)
}

/// The command that shows what a probe asks for.
fn by_tool(probe: &Probe) -> Option<String> {
    let stat = |format: &str, path: &crate::FsBytes| {
        Some(format!("stat -c {format} -- {}", quote(path.as_bytes())))
    };
    match probe {
        Probe::Attribute { path, field } => {
            let path_word = quote(path.as_bytes());
            match field {
                Field::Uid => stat("%u", path),
                Field::Gid => stat("%g", path),
                Field::Nlink => stat("%h", path),
                Field::Size => stat("%s", path),
                Field::Kind => Some(format!("kind_of {path_word}")),
                Field::Mode => Some(format!("mode_of {path_word}")),
                Field::Rdev => Some(format!("device_of {path_word}")),
                Field::Target => None,
            }
        }
        Probe::SameFile { path, other } => {
            Some(format!("same_file {} {}", quote(path.as_bytes()), quote(other.as_bytes())))
        }
        Probe::Content { path, offset, len } => {
            Some(format!("bytes_of {} {offset} {len}", quote(path.as_bytes())))
        }
        Probe::Checker { .. } => Some("echo \"$checked\"".to_owned()),
        Probe::Time { path, time: Time::Mtime } => stat("%.9Y", path),
        Probe::Time { path, time: Time::Ctime } => stat("%.9Z", path),
        _ => None,
    }
}
