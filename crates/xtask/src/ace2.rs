//! `cargo xtask campaign ace2`: ACE's sequences of two operations on btrfs and ext4, in guests.
//!
//! The workloads are divided into pieces, `--jobs` of them at once. A piece that is done is kept
//! ([`Ledger`]); one that was interrupted, also by `kill -9`, goes on from its checkpoint the next time. The
//! campaign stops after its minutes, and says how much is done and how fast that was.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::guest_campaign::Plan;
use crate::ledger::{self, Ledger};
use crate::shell;

/// Without FATHOM_GUEST_KERNEL.
const DEFAULT_KERNEL: &str = "6.12";

/// Pieces of each file system, of some 430 workloads each: booting a guest costs as much as 37 of them.
const PIECES: usize = 512;

/// What pieces find and is explained: the file system, words of the cause, and where.
const KNOWN: [(&str, &str, &str); 3] = [
    (
        "btrfs",
        "lost name after rename",
        "a file that is replaced by rename is gone: docs/FOUND_BUGS.md",
    ),
    ("btrfs", "both names", "a renamed file has both names: docs/FOUND_BUGS.md"),
    (
        "ext4",
        "rename over a file without data",
        "a file that replaces another one by rename has zeros: docs/FOUND_BUGS.md",
    ),
];

/// The file systems, in turn.
const FILE_SYSTEMS: [&str; 2] = ["btrfs", "ext4"];

/// Runs pieces until the time is over.
pub(crate) fn run(program: &Path, plan: Plan<'_>) -> Result<()> {
    let Plan { minutes, only, jobs } = plan;
    let kernel = ledger::kernel(DEFAULT_KERNEL);
    let ledger = Ledger::open("ace2")?;
    let deadline = Instant::now() + Duration::from_secs(minutes * 60);
    let is_wanted = |fs: &str| only.is_empty() || only.iter().any(|name| name == fs);
    let all = (1..=PIECES).flat_map(|piece| FILE_SYSTEMS.map(|fs| (fs, piece)));
    let open: Vec<(&str, usize)> =
        all.filter(|(fs, piece)| is_wanted(fs) && !ledger.has(fs, *piece as u64)).collect();
    let (open, ledger) = (Mutex::new(open.into_iter()), Mutex::new(ledger));
    let work = || -> Result<()> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let next = open.lock().expect("nobody panics with it").next();
            let Some((fs, piece)) = next.filter(|_| !left.is_zero()) else { return Ok(()) };
            if let Some(result) = run_piece(program, &kernel, fs, piece, left)? {
                ledger.lock().expect("nobody panics with it").add(fs, piece as u64, &result)?;
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs.max(1)).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("it does not panic"))
    })?;
    let ledger = ledger.into_inner().expect("nobody panics with it");
    println!(
        "{:6} {:>11} {:>10} {:>12} {:>8} {:>8}",
        "", "pieces", "workloads", "crash states", "seconds", "findings"
    );
    let accused: u64 = FILE_SYSTEMS.iter().map(|fs| tell(&ledger, fs)).sum();
    if accused > 0 {
        bail!("{accused} findings (target/ace2): explain each in docs/CRASH.md");
    }
    Ok(())
}

/// Runs a piece, or goes on with it; what came out, if it came to its end.
fn run_piece(
    program: &Path,
    kernel: &str,
    fs: &str,
    piece: usize,
    left: Duration,
) -> Result<Option<Value>> {
    let began = Instant::now();
    let dir = shell::root().join("target/ace2").join(format!("{fs}-{piece}"));
    let mut command = Command::new(program);
    let (part, budget) = (format!("{piece}/{PIECES}"), format!("{}s", left.as_secs().max(1)));
    command.args(["crash", fs, "--guest", kernel, "--workload", "ace:2", "--part", &part]);
    command.args(["--points", "persistence", "--budget", &budget, "--checkpoint", "--json"]);
    command.arg("--out").arg(&dir).stderr(Stdio::null());
    if dir.join("crash.checkpoint").exists() {
        command.arg("--resume");
    }
    let output =
        command.output().with_context(|| format!("cannot start {}", shell::show(&command)))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(text.lines().last().unwrap_or_default())
        .with_context(|| format!("{} printed no JSON: {text}", shell::show(&command)))?;
    let seconds = began.elapsed().as_secs_f64();
    let workloads = &report["workloads"]["workloads"];
    println!("{fs} {part}: {workloads} workloads, {seconds:.1} s ({})", report["stop"]);
    let is_complete = report["stop"] == "every reachable state was visited";
    Ok(is_complete.then(|| {
        json!({
            "kernel": ledger::kernel_name(kernel),
            "workloads": workloads,
            "crash_states": report["crash_states"],
            "seconds": report["seconds"],
            "findings": ledger::causes(&report),
        })
    }))
}

/// Why a finding need not be explained again.
fn known(fs: &str, cause: &str) -> Option<&'static str> {
    let same = |(of, words, _): &&(&str, &str, &str)| *of == fs && cause.contains(words);
    KNOWN.iter().find(same).map(|(_, _, why)| *why)
}

/// Says what is done of a file system; how many findings there are that nobody has explained.
fn tell(ledger: &Ledger, fs: &str) -> u64 {
    let pieces = ledger.of(fs).count();
    let sum = |field: &str| ledger.of(fs).filter_map(|line| line[field].as_f64()).sum::<f64>();
    let causes = ledger.of(fs).filter_map(|line| line["findings"].as_array()).flatten();
    let causes: Vec<&str> = causes.filter_map(Value::as_str).collect();
    let findings = causes.len();
    println!(
        "{fs:6} {pieces:>4} of {PIECES:<4} {:>10} {:>12} {:>8.0} {findings:>8}",
        sum("workloads"),
        sum("crash_states"),
        sum("seconds"),
    );
    let mut explained: Vec<&str> = causes.iter().filter_map(|cause| known(fs, cause)).collect();
    let unexplained = causes.len() - explained.len();
    explained.sort_unstable();
    explained.dedup();
    explained.iter().for_each(|why| println!("       known: {why}"));
    unexplained as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_explained_does_not_fail_the_campaign() {
        let replaced = "lost entry in fsync: lost name after rename into another directory";
        assert!(known("btrfs", replaced).is_some());
        assert_eq!(known("ext4", replaced), None, "it is btrfs that does so");
        assert!(
            known("ext4", "wrong content in fsync: rename over a file without data after rename")
                .is_some()
        );
        assert_eq!(known("btrfs", "wrong content in fsync: order after link"), None);
    }
}
