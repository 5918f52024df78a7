//! The tables of the campaigns with long workloads: crashes and warnings by file system, and which way of making
//! workloads found what first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::Value;

use crate::ledger::Ledger;

/// Classes of findings after which the kernel does not go on.
const CRASHES: [&str; 10] = [
    "kernel_panic",
    "kernel_oops",
    "kernel_bug",
    "kasan",
    "hung_task",
    "hang",
    "died",
    "oops",
    "server_died",
    "out_of_memory",
];

/// Classes of findings that the kernel only tells.
const WARNINGS: [&str; 5] = ["kernel_warning", "ubsan", "lockdep", "kernel_log", "locks"];

/// A cause in a row: how often, as short as it became, and when it was seen first.
#[derive(Debug, Default, PartialEq)]
struct Cause {
    class: String,
    pieces: u64,
    length: Option<u64>,
    /// Seconds of the row's pieces until then, in their order.
    at_seconds: Option<f64>,
    /// Calls of the row's pieces until then.
    at_calls: Option<u64>,
}

/// The causes of a row by their signatures.
fn causes(pieces: &[&Value]) -> BTreeMap<String, Cause> {
    let mut causes: BTreeMap<String, Cause> = BTreeMap::new();
    let (mut seconds, mut calls) = (0.0, 0);
    for piece in pieces {
        for (signature, found) in findings(piece) {
            let cause = causes.entry(signature).or_default();
            cause.pieces += 1;
            cause.class = found["class"].as_str().unwrap_or_default().to_owned();
            cause.length = [cause.length, found["length"].as_u64()].into_iter().flatten().min();
            let at = found["at_seconds"].as_f64().map(|at| seconds + at);
            cause.at_seconds = cause.at_seconds.or(at);
            cause.at_calls = cause.at_calls.or(found["at_calls"].as_u64().map(|at| calls + at));
        }
        seconds += piece["seconds"].as_f64().unwrap_or(0.0);
        calls += piece["ops"].as_u64().unwrap_or(0);
    }
    causes
}

/// The findings of a piece; of one that was kept before they had lengths, the signatures.
fn findings(piece: &Value) -> Vec<(String, Value)> {
    if let Some(found) = piece["found"].as_array() {
        let signature = |one: &Value| one["signature"].as_str().unwrap_or_default().to_owned();
        return found.iter().map(|one| (signature(one), one.clone())).collect();
    }
    let told = piece["findings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    told.map(|signature| {
        let class = signature.split(' ').next().unwrap_or_default();
        (signature.to_owned(), serde_json::json!({ "class": class }))
    })
    .collect()
}

/// A line for every row: time, calls, how many causes of each kind, how short they became.
pub(crate) fn by_file_system(ledger: &Ledger) -> String {
    let mut text = "| row | minutes | calls | overlaps | crashes | warnings | other causes | shrunk to | what |\n\
                    |---|---:|---:|---:|---:|---:|---:|---|---|\n"
        .to_owned();
    for row in ledger.rows() {
        let pieces: Vec<&Value> = ledger.of(row).collect();
        text.push_str(&line(row, &pieces));
    }
    text
}

/// The sum of a field. That of nothing is not `f64::sum`'s, which is -0.
fn sum(pieces: &[&Value], field: &str) -> f64 {
    pieces.iter().filter_map(|piece| piece[field].as_f64()).fold(0.0, |sum, value| sum + value)
}

fn line(row: &str, pieces: &[&Value]) -> String {
    let causes = causes(pieces);
    let of = |classes: &[&str]| {
        causes.values().filter(|cause| classes.contains(&cause.class.as_str())).count()
    };
    let (crashes, warnings) = (of(&CRASHES), of(&WARNINGS));
    let length = |cause: &Cause| cause.length.map_or("?".to_owned(), |length| length.to_string());
    let lengths: Vec<String> = causes.values().map(length).collect();
    let names: Vec<&str> = causes.keys().map(String::as_str).collect();
    let none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
    format!(
        "| {row} | {:.0} | {} | {} | {crashes} | {warnings} | {} | {} | {} |\n",
        sum(pieces, "seconds") / 60.0,
        sum(pieces, "ops"),
        sum(pieces, "overlaps"),
        causes.len() - crashes - warnings,
        none(lengths.join(", ")),
        none(names.join("; ")),
    )
}

/// A line for every cause that one of the ways has found on a file system: after how many minutes each of them, and
/// which was the first. A way that was given less time than the winner took has not lost: it is told.
pub(crate) fn which_found_what_first(
    ledger: &Ledger,
    subjects: &[&str],
    ways: &[&str],
    flavour: &str,
) -> String {
    let mut text = format!("| file system | cause | {} | first |\n|---|---|", ways.join(" | "));
    text.push_str(&format!("{}---|\n", "---|".repeat(ways.len())));
    let mut lines = String::new();
    for subject in subjects {
        let of_way = |way: &&str| {
            let row = format!("{subject} {way} {flavour}");
            let pieces: Vec<&Value> = ledger.of(row.trim_end()).collect();
            (causes(&pieces), sum(&pieces, "seconds"))
        };
        let by_way: Vec<_> = ways.iter().map(of_way).collect();
        let all: BTreeSet<&String> = by_way.iter().flat_map(|(causes, _)| causes.keys()).collect();
        for signature in all {
            let cells = by_way.iter().map(|(causes, given)| match causes.get(signature) {
                Some(Cause { at_seconds: Some(at), .. }) => format!("{:.1} min", at / 60.0),
                Some(_) => "yes".to_owned(),
                None => format!("not in {:.0} min", given / 60.0),
            });
            let cells: Vec<String> = cells.collect();
            let times = by_way
                .iter()
                .zip(ways)
                .filter_map(|((causes, _), way)| Some((causes.get(signature)?.at_seconds?, *way)));
            let first = times.min_by(|one, other| one.0.total_cmp(&other.0));
            let first = first.map_or("?", |(_, way)| way);
            let _ =
                writeln!(lines, "| {subject} | {signature} | {} | {first} |", cells.join(" | "));
        }
    }
    if lines.is_empty() { "nothing was found by any way".to_owned() } else { text + &lines }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(signature: &str, class: &str, length: u64, at_seconds: f64) -> Value {
        json!({ "signature": signature, "class": class, "length": length, "at_seconds": at_seconds, "at_calls": 9 })
    }

    #[test]
    fn causes_are_counted_once_and_as_short_as_they_became() {
        let first = json!({ "seconds": 300.0, "ops": 100, "found": [
            found("kernel_bug a", "kernel_bug", 40, 20.0),
            found("outcome stat x/y", "outcome", 3, 250.0),
        ]});
        let second = json!({ "seconds": 300.0, "ops": 50, "found": [
            found("kernel_bug a", "kernel_bug", 12, 5.0),
            found("kernel_warning w", "kernel_warning", 7, 60.0),
        ]});
        let causes = causes(&[&first, &second]);
        let bug = &causes["kernel_bug a"];
        assert_eq!(
            (bug.pieces, bug.length, bug.at_seconds, bug.at_calls),
            (2, Some(12), Some(20.0), Some(9))
        );
        let warning = &causes["kernel_warning w"];
        assert_eq!((warning.at_seconds, warning.at_calls), (Some(360.0), Some(109)));
        assert_eq!(
            line("jfs layered", &[&first, &second]),
            "| jfs layered | 10 | 150 | 0 | 1 | 1 | 1 | 12, 7, 3 | kernel_bug a; kernel_warning w; outcome stat x/y |\n"
        );
    }

    #[test]
    fn a_piece_without_lengths_is_counted() {
        let old = json!({ "seconds": 60.0, "ops": 4, "overlaps": 2, "findings": ["no_order open ok/ESTALE"] });
        assert_eq!(
            line("reffs here", &[&old]),
            "| reffs here | 1 | 4 | 2 | 0 | 0 | 1 | ? | no_order open ok/ESTALE |\n"
        );
        let nothing = json!({ "seconds": 60.0, "ops": 4, "findings": [] });
        assert!(line("x", &[&nothing]).ends_with("| none | none |\n"));
    }

    #[test]
    fn who_was_first_is_told_with_the_time_of_the_others() {
        let dir = std::env::temp_dir().join(format!("fathom-tables-{}", std::process::id()));
        let mut ledger = Ledger::at(dir.join("layered.jsonl")).unwrap();
        let piece = |found: Value| json!({ "seconds": 300.0, "ops": 10, "found": found });
        ledger.add("jfs layered", 1, &piece(json!([found("a", "kernel_bug", 9, 60.0)]))).unwrap();
        ledger.add("jfs tour", 1, &piece(json!([found("a", "kernel_bug", 3, 30.0)]))).unwrap();
        ledger.add("jfs layered debug", 1, &piece(json!([found("b", "kasan", 3, 30.0)]))).unwrap();
        let ways = ["layered", "tour", "walk"];
        let plain = which_found_what_first(&ledger, &["ext4", "jfs"], &ways, "");
        let debug = which_found_what_first(&ledger, &["jfs"], &ways, "debug");
        let none = which_found_what_first(&ledger, &["ext4"], &ways, "");
        std::fs::remove_dir_all(dir).unwrap();
        assert!(
            plain.ends_with("| jfs | a | 1.0 min | 0.5 min | not in 0 min | tour |\n"),
            "{plain}"
        );
        assert!(debug.contains("| jfs | b | 0.5 min |") && !debug.contains("| a |"), "{debug}");
        assert_eq!(none, "nothing was found by any way");
    }
}
