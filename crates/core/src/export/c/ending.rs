//! The end of a finding's program: one check per claim.

use std::fmt::Write as _;

use super::literal::{string, unsigned};
use super::runtime::{Helper, Runtime};
use crate::bytes::FsBytes;
use crate::claim::{Claim, Field, Probe, Time};
use crate::export::ascii;

/// The function that checks the claims; none for a claim about the last answer, which the last step
/// checks itself, or about the end of the program, which is watched.
pub(super) fn of(claims: &[Claim], run: &mut Runtime) -> String {
    let mut body = String::new();
    for claim in claims {
        let Some(probe) = probe(claim, run) else { continue };
        let found = ascii(&claim.found).replace('?', "\\x3f");
        let _ = writeln!(body, "    // The subject had: {found}.");
        let _ = writeln!(body, "    claim({});", string(claim.probe.to_string().as_bytes()));
        let _ = writeln!(body, "    {probe};");
        let _ = writeln!(body, "    must_be({});", string(claim.expected.as_bytes()));
    }
    if body.is_empty() {
        body
    } else {
        format!("\nstatic void check_the_end(void)\n{{\n{body}}}\n")
    }
}

/// The call that shows what a probe asks for.
fn probe(claim: &Claim, run: &mut Runtime) -> Option<String> {
    let name = |bytes: &FsBytes| string(bytes.as_bytes());
    let (helper, text) = match &claim.probe {
        Probe::Answer | Probe::Returns { .. } | Probe::Always { .. } => return None,
        Probe::Checker { .. } => (Helper::ProbeChecker, "show_checker()".to_owned()),
        Probe::KernelLog => (Helper::ProbeLog, "show_log()".to_owned()),
        Probe::Entry { path } => (Helper::ProbeEntry, format!("show_entry({})", name(path))),
        Probe::Attribute { path, field: Field::Target } => {
            (Helper::ProbeTarget, format!("show_target({})", name(path)))
        }
        Probe::Attribute { path, field } => {
            let text = format!("show_attribute({}, \"{}\")", name(path), field.name());
            (Helper::ProbeAttribute, text)
        }
        Probe::Names { path } => (Helper::ProbeNames, format!("show_names({})", name(path))),
        Probe::Content { path, offset, len } => {
            let text = format!("show_content({}, {}, {len})", name(path), unsigned(*offset));
            (Helper::ProbeContent, text)
        }
        Probe::Xattr { path, name: attr, offset, len } => {
            let text = format!("show_xattr({}, {}, {offset}, {len})", name(path), name(attr));
            (Helper::ProbeXattr, text)
        }
        Probe::SameFile { path, other } => {
            (Helper::ProbeSame, format!("show_same({}, {})", name(path), name(other)))
        }
        Probe::Time { path, time } => {
            (Helper::ProbeTime, format!("show_time({}, {})", name(path), letter(*time)))
        }
        Probe::Order { earlier, earlier_time, later, later_time } => {
            let (first, second) = (letter(*earlier_time), letter(*later_time));
            let text = format!("show_order({}, {first}, {}, {second})", name(earlier), name(later));
            (Helper::ProbeOrder, text)
        }
        Probe::Space { field, slack } => {
            let fall: i64 = claim.expected.parse().unwrap_or_default();
            let text = format!("show_space(\"{}\", {fall}, {slack})", field.name());
            (Helper::ProbeSpace, text)
        }
    };
    run.need(helper);
    Some(text)
}

fn letter(time: Time) -> &'static str {
    match time {
        Time::Mtime => "'m'",
        Time::Ctime => "'c'",
    }
}
