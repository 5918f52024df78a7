//! `cargo xtask campaign crash-ops`: the power of file systems is cut while they do what `check` does.
//!
//! ext4, xfs and btrfs here (root), f2fs in a guest, in pieces of a minute: the number of a piece is also the
//! seed of its workloads. Every file system gets its first piece before one gets its second; a piece is kept as
//! soon as it is there ([`Ledger`]). Findings stay in `target/crash-ops`; each is to be explained.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::ledger::{self, Ledger};
use crate::shell;

/// Without FATHOM_GUEST_KERNEL.
const DEFAULT_KERNEL: &str = "6.12";

/// A piece of the campaign.
const PIECE_SECONDS: u64 = 60;

/// What is planned for each file system.
const PLANNED_MINUTES: u64 = 30;

/// The file systems, and whether they are in a guest.
const FILE_SYSTEMS: [(&str, bool); 4] =
    [("ext4", false), ("xfs", false), ("btrfs", false), ("f2fs", true)];

/// Runs the pieces that are missing, so many minutes of each file system.
pub(crate) fn run(program: &Path, minutes: u64, only: &[String]) -> Result<()> {
    let kernel = ledger::kernel(DEFAULT_KERNEL);
    let mut ledger = Ledger::open("crash-ops")?;
    let mut failed = Vec::new();
    for (fs, guest, seed) in pieces(minutes, only) {
        if ledger.has(fs, seed) {
            continue;
        }
        // For example because the machine was too busy for a single workload.
        let result = match run_piece(program, fs, guest.then_some(&*kernel), seed)? {
            Ok(result) => result,
            Err(why) => {
                println!("{fs}, seed {seed}: failed: {why}");
                failed.push(format!("{fs}, seed {seed}: {why}"));
                continue;
            }
        };
        println!(
            "{fs}, seed {seed}: {} workloads, {} crash states, {} findings",
            result["workloads"],
            result["crash_states"],
            found(&result)
        );
        ledger.add(fs, seed, &result)?;
    }
    println!(
        "{:6} {:>9} {:>10} {:>12} {:>10} {:>8}",
        "", "minutes", "workloads", "crash states", "disks", "findings"
    );
    for (fs, _) in FILE_SYSTEMS {
        let sum = |field: &str| ledger.of(fs).filter_map(|line| line[field].as_f64()).sum::<f64>();
        println!(
            "{fs:6} {:>9.1} {:>10} {:>12} {:>10} {:>8}",
            sum("seconds") / 60.0,
            sum("workloads"),
            sum("crash_states"),
            sum("disks"),
            ledger.of(fs).map(found).sum::<usize>(),
        );
    }
    ledger.tell_time(PLANNED_MINUTES * FILE_SYSTEMS.len() as u64);
    let accused: usize = FILE_SYSTEMS.iter().flat_map(|(fs, _)| ledger.of(fs)).map(found).sum();
    if accused > 0 {
        bail!("{accused} findings (target/crash-ops): each must be explained in docs/CRASH.md");
    }
    if !failed.is_empty() {
        bail!("pieces that failed, to be run again: {}", failed.join("; "));
    }
    Ok(())
}

/// The pieces in their order: a file system, whether it is in a guest, a seed.
fn pieces<'a>(
    minutes: u64,
    only: &'a [String],
) -> impl Iterator<Item = (&'static str, bool, u64)> + 'a {
    let is_wanted = |fs: &str| only.is_empty() || only.iter().any(|name| name == fs);
    let of_round = move |seed| {
        let wanted = FILE_SYSTEMS.into_iter().filter(move |(fs, _)| is_wanted(fs));
        wanted.map(move |(fs, guest)| (fs, guest, seed))
    };
    (1..=minutes * 60 / PIECE_SECONDS).flat_map(of_round)
}

/// What came out of a piece; or why the power was never cut in it.
fn run_piece(
    program: &Path,
    fs: &str,
    guest: Option<&str>,
    seed: u64,
) -> Result<Result<Value, String>> {
    let dir = shell::root().join("target/crash-ops").join(format!("{fs}-{seed}"));
    let mut command = Command::new(program);
    command.args(["crash", fs, "--workload", "ops", "--seed", &seed.to_string()]);
    command.args(["--budget", &format!("{PIECE_SECONDS}s"), "--json"]);
    if let Some(kernel) = guest {
        command.args(["--guest", kernel]);
    }
    command.arg("--out").arg(&dir).stderr(Stdio::null());
    let output =
        command.output().with_context(|| format!("cannot start {}", shell::show(&command)))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(text.lines().last().unwrap_or_default())
        .with_context(|| format!("{} printed no JSON: {text}", shell::show(&command)))?;
    if report["crash_states"].as_u64().is_none_or(|states| states == 0) {
        let why = report["error"].as_str().unwrap_or("no power failure in its time");
        return Ok(Err(why.to_owned()));
    }
    Ok(Ok(json!({
        "kernel": guest.map_or_else(|| "host".to_owned(), ledger::kernel_name),
        "workloads": report["workloads"]["workloads"],
        "crash_states": report["crash_states"],
        "disks": report["crash_images"],
        "seconds": report["seconds"],
        "findings": ledger::causes(&report),
    })))
}

/// The number of findings of a piece.
fn found(line: &Value) -> usize {
    line["findings"].as_array().map_or(0, Vec::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_system_gets_its_first_minute_before_one_gets_its_second() {
        let names: Vec<String> =
            pieces(2, &[]).map(|(fs, guest, seed)| format!("{fs} {guest} {seed}")).collect();
        assert_eq!(names.len(), 8);
        assert_eq!(names[..4], ["ext4 false 1", "xfs false 1", "btrfs false 1", "f2fs true 1"]);
        assert_eq!(names[4], "ext4 false 2");
        let only = ["f2fs".to_owned()];
        assert_eq!(pieces(3, &only).map(|(fs, _, _)| fs).collect::<Vec<_>>(), ["f2fs"; 3]);
    }
}
