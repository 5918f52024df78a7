//! `cargo xtask campaign fsck`: every checker on its first disk, so many minutes each.
//!
//! A campaign of a checker is kept in `target/fsck` and goes on where it was (`fathom fsck --resume`), until it
//! has had its time. Findings stay there.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell;

/// The checkers.
const CHECKERS: &[&str] = &[
    "fsck.minix",
    "fsck.fat",
    "jfs_fsck",
    "xfs_repair",
    "btrfs",
    "fsck.f2fs",
    "reiserfsck",
    "fsck.exfat",
    "e2fsck",
];

/// Runs the campaigns and prints a table.
pub(crate) fn run(program: &Path, minutes: u64) -> Result<()> {
    println!("| checker | cases | with a violation | causes | classes |\n|---|---:|---:|---:|---|");
    for checker in CHECKERS {
        let out = shell::root().join("target/fsck").join(checker);
        let state = out.join("fsck.json");
        let done = read(&state);
        let seconds = done.as_ref().and_then(|state| state["seconds"].as_f64()).unwrap_or(0.0);
        let complete = done.as_ref().is_some_and(|state| state["complete"] == true);
        let left = (minutes as f64 * 60.0 - seconds).max(0.0) as u64;
        if !complete && left > 0 {
            let mut command = Command::new(program);
            command.arg("--out").arg(&out).args(["--json", "fsck", checker]);
            command.args(["--budget", &format!("{left}s")]);
            if done.is_some() {
                command.arg("--resume");
            }
            let output = command
                .output()
                .with_context(|| format!("cannot start {}", shell::show(&command)))?;
            if !state.exists() {
                let why = String::from_utf8_lossy(&output.stderr).into_owned();
                println!("| {checker} | {} | | | |", why.lines().last().unwrap_or_default());
                continue;
            }
        }
        if let Some(state) = read(&state) {
            println!("{}", row(checker, &state));
        }
    }
    Ok(())
}

fn read(path: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn row(checker: &str, state: &Value) -> String {
    let classes = state["by_class"].as_object().into_iter().flatten();
    let classes: Vec<String> = classes.map(|(class, cases)| format!("{class} {cases}")).collect();
    format!(
        "| {checker} | {} of {} | {} | {} | {} |",
        state["done"],
        state["total"],
        state["violations"],
        state["causes"].as_object().map_or(0, serde_json::Map::len),
        classes.join(", ")
    )
}
