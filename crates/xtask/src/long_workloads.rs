//! `cargo xtask campaign layered` and `campaign callers`: layered workloads, and several callers at once, so many
//! minutes for each row; a row is kept as soon as it is there, so an interrupted campaign goes on where it was.
//!
//! In guests of the kernel that FATHOM_GUEST_KERNEL names; what may run on this machine runs on it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::shell;
use crate::structure_plot::{Series, draw};

/// Who runs `fathom` with these arguments.
type Fathom<'a> = &'a dyn Fn(&[&str]) -> Result<(Option<i32>, Value)>;

/// The kernel of the guests.
fn kernel() -> String {
    std::env::var("FATHOM_GUEST_KERNEL").unwrap_or_else(|_| "6.12".to_owned())
}

fn read_rows(file: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let rows = text.lines().map(|line| serde_json::from_str(line).context("a row is no JSON"));
    rows.collect()
}

fn append(file: &Path, row: &Value) -> Result<()> {
    fs::create_dir_all(file.parent().context("a file is in a directory")?)?;
    let mut rows = File::options().append(true).create(true).open(file)?;
    Ok(writeln!(rows, "{row}")?)
}

/// The file systems of the paper.
const LAYERED: [&str; 6] = ["ext4", "btrfs", "f2fs", "reiserfs", "gfs2", "jfs"];

/// Beside layered workloads: what the program does otherwise.
const WAYS: [(&str, &[&str]); 3] = [
    ("layered", &["--workload", "layered"]),
    ("tour", &["--strategy", "tour"]),
    ("walk", &["--strategy", "walk"]),
];

/// File systems that are raced in guests, and on this machine.
const RACED: [(&str, bool); 8] = [
    ("tmpfs", true),
    ("ext4", true),
    ("xfs", true),
    ("btrfs", true),
    ("f2fs", true),
    ("overlay", true),
    ("tmpfs", false),
    ("reffs", false),
];

/// One row: its name, and the arguments of the run.
struct Row {
    name: String,
    args: Vec<String>,
}

/// Layered workloads on the file systems of the paper, beside tours and walks.
pub(crate) fn layered(minutes: u64, fathom: Fathom<'_>) -> Result<()> {
    let kernel = kernel();
    let rows = LAYERED.iter().flat_map(|subject| {
        let kernel = &kernel;
        WAYS.iter().map(move |(way, args)| {
            let guest = ["--guest", kernel.as_str()];
            Row {
                name: format!("{subject} {way}"),
                args: [&["check", subject], *args, &guest[..]]
                    .concat()
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
            }
        })
    });
    let done = run("layered", &kernel, minutes, rows.collect(), fathom);
    plot(&read_rows(&rows_file("layered", &kernel, minutes))?)?;
    done
}

/// Draws the structures of every file system over time.
fn plot(rows: &[Value]) -> Result<()> {
    for subject in LAYERED {
        let of = |row: &&Value| {
            row["row"].as_str().is_some_and(|name| name.starts_with(&format!("{subject} ")))
        };
        let series: Vec<Series> = rows
            .iter()
            .filter(of)
            .map(|row| Series {
                name: row["row"].as_str().unwrap_or_default().to_owned(),
                samples: row["structure"].as_array().cloned().unwrap_or_default(),
            })
            .collect();
        if !series.is_empty() {
            let file = shell::root().join(format!("target/structure-{subject}.svg"));
            std::fs::write(&file, draw(subject, &series))?;
            println!("structures over time: {}", file.display());
        }
    }
    Ok(())
}

/// Four callers at once.
pub(crate) fn callers(minutes: u64, fathom: Fathom<'_>) -> Result<()> {
    let kernel = kernel();
    let rows = RACED.iter().map(|(subject, in_guest)| {
        let mut args = vec!["check", subject, "--callers", "4"];
        if *in_guest {
            args.extend(["--guest", &kernel]);
        }
        let place = if *in_guest { "guest" } else { "here" };
        let args = args.into_iter().map(str::to_owned).collect();
        Row { name: format!("{subject} {place}"), args }
    });
    run("callers", &kernel, minutes, rows.collect(), fathom)
}

fn run(
    campaign: &str,
    kernel: &str,
    minutes: u64,
    rows: Vec<Row>,
    fathom: Fathom<'_>,
) -> Result<()> {
    let file = rows_file(campaign, kernel, minutes);
    let done = read_rows(&file)?;
    for Row { name, args } in rows {
        if done.iter().any(|row| row["row"] == *name) {
            println!("{name}: done before");
            continue;
        }
        let budget = format!("{minutes}m");
        let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
        args.extend(["--budget", &budget, "--seed", "1"]);
        let (code, report) = fathom(&args)?;
        let row = row(&name, code, &report);
        append(&file, &row)?;
        println!("{}", line(&row));
    }
    let rows = read_rows(&file)?;
    println!("\n| run | calls | overlaps | findings |\n|---|---:|---:|---|");
    rows.iter().for_each(|row| println!("{}", line(row)));
    println!("rows: {} (remove it to begin again)", file.display());
    let failed = rows.iter().filter(|row| row["code"] == 2).count();
    if failed > 0 {
        bail!("{failed} runs failed: see the table");
    }
    Ok(())
}

fn row(name: &str, code: Option<i32>, report: &Value) -> Value {
    let findings = report["findings"].as_array().cloned().unwrap_or_default();
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| json!({"signature": finding["signature"], "ops": finding["ops"]}))
        .collect();
    json!({
        "row": name,
        "code": code,
        "ops": report["ops"],
        "overlaps": report["overlaps"],
        "seconds": report["seconds"],
        "structure": report["structure"],
        "findings": findings,
        "error": report["error"],
    })
}

fn rows_file(campaign: &str, kernel: &str, minutes: u64) -> PathBuf {
    let kernel = kernel.replace('/', "_");
    shell::root().join(format!("target/{campaign}-{kernel}-{minutes}m.jsonl"))
}

fn line(row: &Value) -> String {
    let findings = row["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    let texts: Vec<String> = findings
        .iter()
        .map(|finding| {
            let signature = finding["signature"].as_str().unwrap_or_default();
            match finding["ops"].as_u64() {
                Some(ops) => format!("{signature} ({ops} operations)"),
                None => signature.to_owned(),
            }
        })
        .collect();
    let found = match row["error"].as_str() {
        Some(error) => format!("failed: {error}"),
        None if texts.is_empty() => "none".to_owned(),
        None => texts.join("; "),
    };
    let overlaps = row["overlaps"].as_u64().map_or("-".to_owned(), |number| number.to_string());
    format!("| {} | {} | {overlaps} | {found} |", row["row"].as_str().unwrap_or("?"), row["ops"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_lines() {
        let report = json!({
            "ops": 10, "overlaps": 3, "findings": [{"signature": "no_order write ok/ok", "ops": 7}],
        });
        let row = row("ext4 guest", Some(1), &report);
        assert_eq!(line(&row), "| ext4 guest | 10 | 3 | no_order write ok/ok (7 operations) |");
    }
}
