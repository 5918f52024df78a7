//! What campaigns have done so far: `docs/campaigns/NAME.jsonl`, one line for each piece that came to its end.
//!
//! The files are part of the repository, so pieces that were run on different days and machines add up. A
//! piece whose line is there is not run again; whoever wants it again, because the program has changed since,
//! removes the line. Findings themselves stay below `target`.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::shell;

/// The variable that names the kernel of the guests, as in the tests.
const KERNEL: &str = "FATHOM_GUEST_KERNEL";

/// The pieces of one campaign.
pub(crate) struct Ledger {
    file: PathBuf,
    version: String,
    lines: Vec<Value>,
}

impl Ledger {
    /// Reads what is done of a campaign.
    pub(crate) fn open(campaign: &str) -> Result<Ledger> {
        Ledger::at(shell::root().join("docs/campaigns").join(format!("{campaign}.jsonl")))
    }

    /// The ledger in a file.
    pub(crate) fn at(file: PathBuf) -> Result<Ledger> {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let lines = text.lines().map(|line| {
            serde_json::from_str(line).with_context(|| format!("{}: {line}", file.display()))
        });
        Ok(Ledger { lines: lines.collect::<Result<_>>()?, version: version(), file })
    }

    /// Whether a piece of a row is done.
    pub(crate) fn has(&self, row: &str, piece: u64) -> bool {
        self.lines.iter().any(|line| line["row"] == row && line["piece"] == piece)
    }

    /// Keeps what came out of a piece, at once.
    pub(crate) fn add(&mut self, row: &str, piece: u64, result: &Value) -> Result<()> {
        let mut line = json!({ "row": row, "piece": piece, "version": self.version });
        for (name, value) in result.as_object().into_iter().flatten() {
            line[name] = value.clone();
        }
        let dir = self.file.parent().context("a file is in a directory")?;
        fs::create_dir_all(dir)?;
        let mut file = File::options().append(true).create(true).open(&self.file)?;
        // At once: another campaign may be adding its pieces.
        file.write_all(format!("{line}\n").as_bytes())?;
        self.lines.push(line);
        Ok(())
    }

    /// The pieces of a row, in the order in which they were run.
    pub(crate) fn of<'a>(&'a self, row: &'a str) -> impl Iterator<Item = &'a Value> {
        self.lines.iter().filter(move |line| line["row"] == row)
    }

    /// The rows, in the order in which they were begun.
    pub(crate) fn rows(&self) -> Vec<&str> {
        let mut rows: Vec<&str> = Vec::new();
        for row in self.lines.iter().filter_map(|line| line["row"].as_str()) {
            if !rows.contains(&row) {
                rows.push(row);
            }
        }
        rows
    }

    /// Says how much time is done of what is planned, and where that is written.
    pub(crate) fn tell_time(&self, planned_minutes: u64) {
        let seconds: f64 = self.lines.iter().filter_map(|line| line["seconds"].as_f64()).sum();
        let file = self.file.strip_prefix(shell::root()).unwrap_or(&self.file).display();
        println!("{:.0} of {planned_minutes} minutes are done ({file})", seconds / 60.0);
    }
}

/// The kernel of the guests: the one that the variable names, or this one.
pub(crate) fn kernel(default: &str) -> String {
    std::env::var(KERNEL).unwrap_or_else(|_| default.to_owned())
}

/// A kernel without the place where it lies, which is nobody's business: its file and its parameters.
pub(crate) fn kernel_name(kernel: &str) -> String {
    let (file, parameters) = kernel.split_once(' ').unwrap_or((kernel, ""));
    let file = Path::new(file).file_name().map_or(file.into(), |name| name.to_string_lossy());
    format!("{file} {parameters}").trim_end().to_owned()
}

/// The signatures of the findings of a report.
pub(crate) fn signatures(report: &Value) -> Vec<Value> {
    let findings = report["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    findings.iter().map(|finding| finding["signature"].clone()).collect()
}

/// The causes of the findings of a report of `fathom crash`, which have no signatures.
pub(crate) fn causes(report: &Value) -> Vec<Value> {
    let findings = report["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
    findings.iter().map(|finding| finding["cause"].clone()).collect()
}

/// The commit that the working tree is at; empty outside of a checkout.
fn version() -> String {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--short", "HEAD"]).current_dir(shell::root());
    let output = git.output().ok().filter(|output| output.status.success());
    output.map_or_else(String::new, |output| {
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_kept_and_found_again() {
        let dir = std::env::temp_dir().join(format!("fathom-ledger-{}", std::process::id()));
        let file = dir.join("some.jsonl");
        let mut ledger = Ledger::at(file.clone()).unwrap();
        assert!(!ledger.has("jfs", 1));
        ledger.add("jfs", 1, &json!({ "ops": 10 })).unwrap();
        ledger.add("udf", 1, &json!({ "ops": 5 })).unwrap();
        ledger.add("jfs", 2, &json!({ "ops": 20 })).unwrap();
        let again = Ledger::at(file).unwrap();
        fs::remove_dir_all(dir).unwrap();
        assert!(again.has("jfs", 1) && again.has("jfs", 2) && !again.has("udf", 2));
        assert_eq!(again.rows(), ["jfs", "udf"]);
        let ops: Vec<u64> = again.of("jfs").filter_map(|line| line["ops"].as_u64()).collect();
        assert_eq!(ops, [10, 20]);
    }

    #[test]
    fn a_kernel_is_named_without_its_place() {
        assert_eq!(kernel_name("/somewhere/linux-6.12 a=b"), "linux-6.12 a=b");
        assert_eq!(kernel_name("6.12-debug"), "6.12-debug");
    }
}
