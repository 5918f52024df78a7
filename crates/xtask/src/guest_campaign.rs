//! `cargo xtask campaign guest-filesystems`: every file system of a guest's kernel, so many minutes each.
//!
//! A row is kept as soon as it is there: an interrupted campaign goes on with the file systems that are
//! missing. The table is printed from the rows.

use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::shell;

/// The variable that names the kernel, as in the tests.
const KERNEL: &str = "FATHOM_GUEST_KERNEL";

/// Without it.
const DEFAULT_KERNEL: &str = "6.12";

/// Who runs `fathom` with these arguments.
pub(crate) type Fathom<'a> = &'a dyn Fn(&[&str]) -> Result<(Option<i32>, Value)>;

/// Checks every file system that is in the kernel and whose programs are here, and prints the table.
pub(crate) fn run(minutes: u64, fathom: Fathom<'_>) -> Result<()> {
    let kernel = std::env::var(KERNEL).unwrap_or_else(|_| DEFAULT_KERNEL.to_owned());
    let file = rows_file(&kernel, minutes);
    let done = read_rows(&file)?;
    let (_, subjects) = fathom(&["list", "subjects", "--guest", &kernel])?;
    let subjects = subjects.as_array().context("`fathom list` printed no list")?;
    for subject in subjects.iter().filter(|subject| is_kernel_file_system(subject)) {
        let name = subject["name"].as_str().unwrap_or_default();
        if done.iter().any(|row| row["subject"] == *name) {
            println!("{name}: done before");
            continue;
        }
        let row = match subject["missing"].as_array().map(Vec::as_slice).unwrap_or_default() {
            [] => check(name, &kernel, minutes, fathom)?,
            missing => json!({"subject": name, "missing": missing}),
        };
        append(&file, &row)?;
        println!("{}", line(&row));
    }
    let rows = read_rows(&file)?;
    println!("\n{}", table(&rows));
    println!("rows: {} (remove it to begin again)", file.display());
    let accused = rows.iter().filter(|row| row["code"] == 2).count();
    if accused > 0 {
        bail!("{accused} runs failed: see the table");
    }
    Ok(())
}

/// Those that a kernel serves by itself.
fn is_kernel_file_system(subject: &Value) -> bool {
    let needs = subject["needs"].as_array().map(Vec::as_slice).unwrap_or_default();
    needs.iter().any(|need| need.as_str().is_some_and(|need| need.ends_with("in the kernel")))
}

fn check(name: &str, kernel: &str, minutes: u64, fathom: Fathom<'_>) -> Result<Value> {
    let budget = format!("{minutes}m");
    let (code, report) =
        fathom(&["check", name, "--guest", kernel, "--budget", &budget, "--seed", "1"])?;
    let findings = report["findings"].as_array().cloned().unwrap_or_default();
    let signatures: Vec<Value> =
        findings.iter().map(|finding| finding["signature"].clone()).collect();
    Ok(json!({
        "subject": name,
        "code": code,
        "ops": report["ops"],
        "states": report["states"],
        "seconds": report["seconds"],
        "findings": signatures,
        "error": report["error"],
    }))
}

fn rows_file(kernel: &str, minutes: u64) -> PathBuf {
    let kernel = kernel.replace('/', "_");
    shell::root().join(format!("target/guest-filesystems-{kernel}-{minutes}m.jsonl"))
}

fn read_rows(file: &PathBuf) -> Result<Vec<Value>> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let rows = text.lines().map(|line| serde_json::from_str(line).context("a row is no JSON"));
    rows.collect()
}

fn append(file: &PathBuf, row: &Value) -> Result<()> {
    fs::create_dir_all(file.parent().context("a file is in a directory")?)?;
    let mut rows = File::options().append(true).create(true).open(file)?;
    Ok(writeln!(rows, "{row}")?)
}

/// The table as Markdown, as it goes into docs/GUESTS.md.
fn table(rows: &[Value]) -> String {
    let mut text =
        "| file system | operations | states | findings |\n|---|---:|---:|---|\n".to_owned();
    for row in rows {
        text.push_str(&line(row));
        text.push('\n');
    }
    text
}

fn line(row: &Value) -> String {
    let name = row["subject"].as_str().unwrap_or_default();
    let texts = |field: &str| -> Vec<String> {
        let values = row[field].as_array().map(Vec::as_slice).unwrap_or_default();
        values.iter().map(|value| value.as_str().unwrap_or_default().to_owned()).collect()
    };
    if !row["missing"].is_null() {
        return format!("| {name} | - | - | not there: {} |", texts("missing").join(", "));
    }
    let findings = match (row["error"].as_str(), texts("findings")) {
        (Some(error), _) => format!("failed: {error}"),
        (None, findings) if findings.is_empty() => "none".to_owned(),
        (None, findings) => findings.join("; "),
    };
    format!("| {name} | {} | {} | {findings} |", row["ops"], row["states"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_lines() {
        let row =
            json!({"subject": "jfs", "code": 1, "ops": 10, "states": 2, "findings": ["a", "b"]});
        assert_eq!(line(&row), "| jfs | 10 | 2 | a; b |");
        let row = json!({"subject": "hfsplus", "missing": ["no mkfs.hfsplus (package hfsprogs)"]});
        assert_eq!(
            line(&row),
            "| hfsplus | - | - | not there: no mkfs.hfsplus (package hfsprogs) |"
        );
        let kernel = json!({"needs": ["root", "jfs in the kernel"]});
        assert!(is_kernel_file_system(&kernel) && !is_kernel_file_system(&json!({"needs": []})));
    }
}
