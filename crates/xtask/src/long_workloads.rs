//! `cargo xtask campaign layered` and `campaign callers`: layered workloads, and several callers at once, so many
//! minutes for each row, in pieces of some minutes with a seed each; a piece is kept as soon as it is there
//! ([`Ledger`]), so an interrupted campaign goes on where it was. `--jobs` runs several pieces at once, `--only`
//! some rows.
//!
//! In guests of the kernel that FATHOM_GUEST_KERNEL names, which is part of the name of a row: what a kernel that
//! watches itself shows is not added to what an ordinary one does. What may run on this machine runs on it.
//! Findings stay in `target/campaign`.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::guest_campaign::{Plan, at_once, fathom};
use crate::ledger::{self, Ledger};
use crate::shell;
use crate::structure_plot::{Series, draw};
use crate::workload_tables;

/// Without FATHOM_GUEST_KERNEL.
const DEFAULT_KERNEL: &str = "6.12";

/// Minutes of a piece.
const PIECE_MINUTES: u64 = 5;

/// Samples of the structures that a piece keeps.
const SAMPLES: usize = 60;

/// The file systems of the paper.
const LAYERED: [&str; 6] = ["ext4", "btrfs", "f2fs", "reiserfs", "gfs2", "jfs"];

/// Beside layered workloads: what the program does otherwise.
const WAYS: [(&str, &[&str]); 3] = [
    ("layered", &["--workload", "layered"]),
    ("tour", &["--strategy", "tour"]),
    ("walk", &["--strategy", "walk"]),
];

/// File systems that are raced in guests, and on this machine.
const RACED: [(&str, bool); 11] = [
    ("tmpfs", true),
    ("ext4", true),
    ("xfs", true),
    ("btrfs", true),
    ("f2fs", true),
    ("overlay", true),
    ("reiserfs", true),
    ("gfs2", true),
    ("jfs", true),
    ("tmpfs", false),
    ("reffs", false),
];

/// One row: its name, and the arguments of the run.
struct Row {
    name: String,
    args: Vec<String>,
    /// More arguments for every second piece.
    even: &'static [&'static str],
}

/// Dogfood's bugs needed unusual options.
const UNUSUAL: &[&str] = &["--options", "random"];

/// What a run has learned of options that do not go together; the next piece of the row begins with it.
const LEARNED: &str = "refused-options.json";

/// A disk that takes its time.
const LATE: &[&str] = &["--disk-delay", "50"];

/// Its checkpoint asks again and again until a request is complete (`f2fs_sync_dirty_inodes()`), while the clock of
/// a guest stands still and nothing that is late ever comes.
const NEVER_LATE: &str = "f2fs";

/// What distinguishes the rows of a kernel from those of the usual one: nothing for `linux-6.12`, `debug` for
/// `6.12-debug`.
fn flavour(kernel: &str) -> String {
    let name = ledger::kernel_name(kernel);
    let file = name.split(' ').next().unwrap_or_default();
    let file = file.strip_prefix("linux-").unwrap_or(file);
    let (version, rest) = file.split_once('-').unwrap_or((file, ""));
    let version = if version == DEFAULT_KERNEL { "" } else { version };
    [version, rest].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

fn named(row: &str, flavour: &str) -> String {
    format!("{row} {flavour}").trim_end().to_owned()
}

fn words(parts: &[&[&str]]) -> Vec<String> {
    parts.concat().into_iter().map(str::to_owned).collect()
}

fn layered_rows(kernel: &str) -> Vec<Row> {
    let rows = LAYERED.iter().flat_map(|subject| {
        WAYS.iter().map(move |(way, args)| Row {
            even: if *way == "layered" { UNUSUAL } else { &[] },
            name: named(&format!("{subject} {way}"), &flavour(kernel)),
            args: words(&[&["check", subject], args, &["--guest", kernel]]),
        })
    });
    rows.collect()
}

fn callers_rows(kernel: &str) -> Vec<Row> {
    let rows = RACED.iter().map(|(subject, in_guest)| {
        let start = ["check", subject, "--callers", "4"];
        let even = if *in_guest && *subject != NEVER_LATE { LATE } else { &[] };
        match in_guest {
            true => Row {
                name: named(&format!("{subject} guest"), &flavour(kernel)),
                args: words(&[&start, &["--guest", kernel]]),
                even,
            },
            false => Row { name: format!("{subject} here"), args: words(&[&start]), even },
        }
    });
    rows.collect()
}

/// Layered workloads on the file systems of the paper, beside tours and walks.
pub(crate) fn layered(program: &Path, plan: Plan<'_>) -> Result<()> {
    let kernel = ledger::kernel(DEFAULT_KERNEL);
    let done = run("layered", &kernel, plan, layered_rows(&kernel), program);
    let ledger = Ledger::open("layered")?;
    plot(&ledger, &flavour(&kernel))?;
    let ways = WAYS.map(|(way, _)| way);
    println!("\n{}", workload_tables::by_file_system(&ledger));
    println!(
        "{}",
        workload_tables::which_found_what_first(&ledger, &LAYERED, &ways, &flavour(&kernel))
    );
    done
}

/// Four callers at once.
pub(crate) fn callers(program: &Path, plan: Plan<'_>) -> Result<()> {
    let kernel = ledger::kernel(DEFAULT_KERNEL);
    let done = run("callers", &kernel, plan, callers_rows(&kernel), program);
    println!("\n{}", workload_tables::by_file_system(&Ledger::open("callers")?));
    done
}

/// Draws the structures of every file system over the time of the first piece.
fn plot(ledger: &Ledger, flavour: &str) -> Result<()> {
    for subject in LAYERED {
        let series: Vec<Series> = WAYS
            .iter()
            .filter_map(|(way, _)| {
                let name = named(&format!("{subject} {way}"), flavour);
                let first = ledger.of(&name).find(|line| line["piece"] == 1)?;
                let samples = first["structure"].as_array().cloned().unwrap_or_default();
                Some(Series { samples, name })
            })
            .collect();
        if !series.is_empty() {
            let file = shell::root().join(format!("target/structure-{subject}.svg"));
            fs::write(&file, draw(subject, &series))?;
            println!("structures over time: {}", file.display());
        }
    }
    Ok(())
}

/// Runs the pieces that are missing of the rows that were asked for, some of them at once.
fn run(campaign: &str, kernel: &str, plan: Plan<'_>, rows: Vec<Row>, program: &Path) -> Result<()> {
    let pieces = plan.minutes.div_ceil(PIECE_MINUTES);
    let is_asked = |row: &&Row| plan.only.is_empty() || plan.only.contains(&row.name);
    let asked: Vec<&Row> = rows.iter().filter(is_asked).collect();
    if asked.is_empty() {
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        bail!("no row has one of these names: give one of {}", names.join(", "));
    }
    let ledger = Ledger::open(campaign)?;
    // Every row gets its first piece before one gets its second.
    let all = (1..=pieces).flat_map(|piece| asked.iter().map(move |row| (piece, *row)));
    let missing = all.filter(|(piece, row)| !ledger.has(&row.name, *piece)).collect();
    let ledger = Mutex::new(ledger);
    let failed = at_once(plan.jobs, missing, |(piece, row)| {
        let dir = PieceDir::new(campaign, row, piece)?;
        let (code, report, lasted) = dir.run(row, program)?;
        println!("{}, piece {piece}: {} calls", row.name, report["ops"]);
        if let Some(error) = report["error"].as_str().filter(|_| code == Some(2)) {
            return Ok(Some(format!("{}, piece {piece}: {error}", row.name)));
        }
        let mut result = result(kernel, (piece, row.extra(piece)), code, &report);
        result["seconds"] = report["seconds"].as_f64().unwrap_or(lasted).into();
        result["found"] = dir.found(&report);
        let mut ledger = ledger.lock().unwrap_or_else(PoisonError::into_inner);
        ledger.add(&row.name, piece, &result).map(|()| None)
    })?;
    let ledger = ledger.into_inner().unwrap_or_else(PoisonError::into_inner);
    ledger.tell_time(pieces * PIECE_MINUTES * rows.len() as u64);
    let failed: Vec<String> = failed.into_iter().flatten().collect();
    if !failed.is_empty() {
        bail!("pieces that failed, to be run again:\n  {}", failed.join("\n  "));
    }
    Ok(())
}

impl Row {
    /// What a piece has more than others.
    fn extra(&self, piece: u64) -> &'static [&'static str] {
        if piece.is_multiple_of(2) { self.even } else { &[] }
    }
}

/// Where a piece leaves its findings.
struct PieceDir {
    subject: String,
    row: PathBuf,
    out: PathBuf,
    piece: u64,
    began: SystemTime,
}

impl PieceDir {
    /// An empty directory: a piece that was not kept is run again.
    fn new(campaign: &str, row: &Row, piece: u64) -> Result<PieceDir> {
        let dir = shell::root().join("target/campaign").join(campaign);
        let subject = row.args[1].clone();
        let row = dir.join(row.name.replace([':', '/', ' '], "_"));
        let out = row.join(piece.to_string());
        if out.exists() {
            fs::remove_dir_all(&out)?;
        }
        fs::create_dir_all(&out)?;
        Ok(PieceDir { subject, row, out, piece, began: SystemTime::now() })
    }

    /// Runs the piece, beginning with what is known of options that do not go together. Returns its exit code, its
    /// report and the seconds that it took.
    fn run(&self, row: &Row, program: &Path) -> Result<(Option<i32>, Value, f64)> {
        let learned = self.row.join(LEARNED);
        if learned.exists() {
            fs::copy(&learned, self.out.join(LEARNED))?;
        }
        let (budget, seed) = (format!("{PIECE_MINUTES}m"), self.piece.to_string());
        let out = self.out.display().to_string();
        let mut args: Vec<&str> = row.args.iter().map(String::as_str).collect();
        args.extend(["--budget", &budget, "--seed", &seed, "--out", &out]);
        args.extend(row.extra(self.piece));
        let (code, report) = fathom(program, &args)?;
        if self.out.join(LEARNED).exists() {
            fs::copy(self.out.join(LEARNED), learned)?;
        }
        let lasted = self.began.elapsed().unwrap_or_default().as_secs_f64();
        Ok((code, report, lasted))
    }

    /// What is kept of each finding. A guest that has died cannot tell lengths and times: they are in what it has
    /// recorded until then.
    fn found(&self, report: &Value) -> Value {
        let recorded = fs::read_to_string(self.out.join("run.json")).unwrap_or_default();
        let recorded: Value = serde_json::from_str(&recorded).unwrap_or_default();
        let pages = recorded["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
        let told = report["findings"].as_array().into_iter().flatten();
        told.map(|finding| {
            let id = finding["id"].as_str().unwrap_or_default();
            let page = pages.iter().find(|page| page["id"] == id);
            let length = page.and_then(|page| page["ops"].as_array()).map(Vec::len);
            let written = self.seconds_until_written(id);
            let one = kept(finding, &self.subject);
            json!({
                "signature": one["signature"],
                "class": one["class"],
                "length": one["length"].as_u64().or(length.map(|length| length as u64)),
                "length_before": one["length_before"],
                "at_calls": one["at_calls"],
                "at_seconds": one["at_seconds"].as_f64().or(written),
            })
        })
        .collect()
    }

    /// How long after the start the directory of a finding was last written.
    fn seconds_until_written(&self, id: &str) -> Option<f64> {
        let written = fs::metadata(self.out.join(id).join("finding.toml")).ok()?.modified().ok()?;
        let since = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Some(since(written).saturating_sub(since(self.began)).as_secs_f64())
    }
}

/// What is kept of a finding as a report tells it: its length after shrinking, and when it was seen first.
fn kept(finding: &Value, subject: &str) -> Value {
    let either = |one: &str, other: &str| match &finding[one] {
        Value::Null => finding[other].clone(),
        value => value.clone(),
    };
    // The title of a recorded finding ends with the subject.
    let signature = finding["signature"].as_str().unwrap_or_default();
    let parts = signature.rsplit_once(" on ").filter(|(_, of)| of.starts_with(subject));
    let signature = parts.map_or(signature, |(signature, _)| signature);
    // Of callers, `calls` are those of the round.
    json!({
        "signature": signature,
        "class": finding["class"],
        "length": either("calls", "ops"),
        "length_before": either("calls_before_shrinking", "ops_before_shrinking"),
        "at_calls": finding["at_ops"],
        "at_seconds": finding["at_seconds"],
    })
}

fn result(kernel: &str, (piece, more): (u64, &[&str]), code: Option<i32>, report: &Value) -> Value {
    let structure = report["structure"].as_array().filter(|_| piece == 1);
    let structure = structure.map(|samples| {
        let step = samples.len().div_ceil(SAMPLES).max(1);
        samples.iter().step_by(step).cloned().collect::<Vec<_>>()
    });
    json!({
        "kernel": ledger::kernel_name(kernel),
        "code": code,
        "more": more.join(" "),
        "subject": report["subject"],
        "ops": report["ops"],
        "overlaps": report["overlaps"],
        "structure": structure,
        "findings": ledger::signatures(report),
        "guests_died": report["guests_died"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_another_kernel_has_another_name() {
        let names = |kernel| layered_rows(kernel).into_iter().map(|row| row.name);
        assert!(names("/somewhere/linux-6.12").any(|name| name == "ext4 layered"));
        assert!(names("6.12-debug slub_debug=-").any(|name| name == "ext4 layered debug"));
        assert!(names("linux-6.1").any(|name| name == "jfs walk 6.1"));
        let callers: Vec<String> =
            callers_rows("6.12-debug").into_iter().map(|row| row.name).collect();
        assert!(callers.contains(&"gfs2 guest debug".to_owned()), "{callers:?}");
        assert!(callers.contains(&"tmpfs here".to_owned()), "this machine has its own kernel");
    }

    #[test]
    fn every_second_piece_has_more() {
        let rows = callers_rows("6.12");
        let extra = |name: &str, piece| {
            rows.iter().find(|row| row.name == name).map(|row| row.extra(piece)).unwrap()
        };
        assert_eq!((extra("ext4 guest", 1), extra("ext4 guest", 2)), (&[][..], LATE));
        assert!(extra("f2fs guest", 2).is_empty() && extra("tmpfs here", 2).is_empty());
    }

    #[test]
    fn lengths_classes_and_times_of_findings_are_kept() {
        let told = json!({
            "id": "1", "class": "outcome", "signature": "outcome stat a/b", "ops": 3,
            "ops_before_shrinking": 900, "at_ops": 1200, "at_seconds": 7.5,
        });
        let expected = json!({
            "signature": "outcome stat a/b", "class": "outcome", "length": 3, "length_before": 900,
            "at_calls": 1200, "at_seconds": 7.5,
        });
        assert_eq!(kept(&told, "ext4"), expected);
        let callers =
            json!({ "calls": 2, "calls_before_shrinking": 48, "signature": "no_order x" });
        let callers = kept(&callers, "tmpfs");
        assert_eq!((&callers["length"], &callers["length_before"]), (&json!(2), &json!(48)));
        let died = json!({ "class": "kernel_bug", "signature": "kernel_bug f on jfs" });
        assert_eq!(kept(&died, "jfs")["signature"], "kernel_bug f");
        assert_eq!(kept(&died, "ext4")["signature"], "kernel_bug f on jfs");
    }

    #[test]
    fn what_a_guest_could_not_tell_is_taken_from_what_it_recorded() {
        let root = std::env::temp_dir().join(format!("fathom-piece-{}", std::process::id()));
        let out = root.join("1");
        fs::create_dir_all(out.join("ab")).unwrap();
        fs::write(out.join("ab/finding.toml"), "").unwrap();
        let page = json!({ "findings": [{ "id": "ab", "ops": ["sync", "sync"] }] });
        fs::write(out.join("run.json"), page.to_string()).unwrap();
        let began = UNIX_EPOCH;
        let dir = PieceDir { subject: "jfs".to_owned(), row: root.clone(), out, piece: 1, began };
        let report =
            json!({ "findings": [{ "id": "ab", "class": "kernel_bug", "signature": "s" }] });
        let found = dir.found(&report);
        fs::remove_dir_all(root).unwrap();
        assert_eq!(found[0]["length"], 2);
        assert!(found[0]["at_seconds"].as_f64() > Some(1.0), "{found}");
    }
}
