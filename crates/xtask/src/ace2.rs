//! `cargo xtask campaign ace2`: ACE's sequences of two operations on btrfs and ext4, in guests.
//!
//! The workloads are divided into pieces, as many at once as there are cores. A piece that is done leaves
//! its report; one that was interrupted, also by `kill -9`, goes on from its checkpoint the next time. The
//! campaign stops after its minutes, and says how much is done and how fast that was.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;

/// The variable that names the kernel, as in the tests.
const KERNEL: &str = "FATHOM_GUEST_KERNEL";

/// Without it.
const DEFAULT_KERNEL: &str = "6.12";

/// Pieces of each file system.
const PIECES: usize = 256;

/// The file systems, in turn.
const FILE_SYSTEMS: [&str; 2] = ["btrfs", "ext4"];

/// The report of a piece that is done.
const REPORT: &str = "report.json";

/// Runs pieces until the time is over.
pub(crate) fn run(program: &Path, minutes: u64) -> Result<()> {
    let kernel = std::env::var(KERNEL).unwrap_or_else(|_| DEFAULT_KERNEL.to_owned());
    let dir = shell::root().join("target/ace2");
    let deadline = Instant::now() + Duration::from_secs(minutes * 60);
    let all = (1..=PIECES).flat_map(|piece| FILE_SYSTEMS.map(|fs| (fs, piece)));
    let open: Vec<(&str, usize)> =
        all.filter(|(fs, piece)| !piece_dir(&dir, fs, *piece).join(REPORT).exists()).collect();
    let open = Mutex::new(open.into_iter());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || -> Result<()> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let next = open.lock().expect("nobody panics with it").next();
            let Some((fs, piece)) = next.filter(|_| !left.is_zero()) else { return Ok(()) };
            run_piece(program, &kernel, fs, piece, &piece_dir(&dir, fs, piece), left)?;
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("it does not panic"))
    })?;
    println!(
        "{:6} {:>11} {:>10} {:>12} {:>8}",
        "", "pieces", "workloads", "crash states", "findings"
    );
    let mut accused = 0;
    for fs in FILE_SYSTEMS {
        accused += tell(&dir, fs);
    }
    println!("reports and findings: {} (remove it to begin again)", dir.display());
    if accused > 0 {
        bail!("{accused} findings: explain each in docs/CRASH.md");
    }
    Ok(())
}

fn piece_dir(dir: &Path, fs: &str, piece: usize) -> PathBuf {
    dir.join(format!("{fs}-{piece}"))
}

/// Runs a piece, or goes on with it; what it says is kept if it came to its end.
fn run_piece(
    program: &Path,
    kernel: &str,
    fs: &str,
    piece: usize,
    dir: &Path,
    left: Duration,
) -> Result<()> {
    let began = Instant::now();
    let mut command = Command::new(program);
    let (part, budget) = (format!("{piece}/{PIECES}"), format!("{}s", left.as_secs().max(1)));
    command.args(["crash", fs, "--guest", kernel, "--workload", "ace:2", "--part", &part]);
    command.args(["--points", "persistence", "--budget", &budget, "--checkpoint", "--json"]);
    command.arg("--out").arg(dir).stderr(Stdio::null());
    if dir.join("crash.checkpoint").exists() {
        command.arg("--resume");
    }
    let output =
        command.output().with_context(|| format!("cannot start {}", shell::show(&command)))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let report: Value = serde_json::from_str(text.lines().last().unwrap_or_default())
        .with_context(|| format!("{} printed no JSON: {text}", shell::show(&command)))?;
    let seconds = began.elapsed().as_secs_f64();
    let workloads = report["workloads"]["workloads"].as_u64().unwrap_or(0);
    println!("{fs} {part}: {workloads} workloads, {seconds:.1} s ({})", report["stop"]);
    if report["stop"] == "every reachable state was visited" {
        fs::write(dir.join(REPORT), text.lines().last().unwrap_or_default())
            .with_context(|| format!("cannot write into {}", dir.display()))?;
    }
    Ok(())
}

/// Says what is done of a file system; how many findings there are.
fn tell(dir: &Path, fs: &str) -> usize {
    let (mut pieces, mut workloads, mut states, mut findings) = (0, 0, 0, 0);
    for piece in 1..=PIECES {
        let path = piece_dir(dir, fs, piece).join(REPORT);
        let Ok(text) = fs::read_to_string(path) else { continue };
        let Ok(report) = serde_json::from_str::<Value>(&text) else { continue };
        pieces += 1;
        workloads += report["workloads"]["workloads"].as_u64().unwrap_or(0);
        states += report["crash_states"].as_u64().unwrap_or(0);
        findings += report["findings"].as_array().map_or(0, Vec::len);
    }
    println!("{fs:6} {pieces:>4} of {PIECES} {workloads:>10} {states:>12} {findings:>8}");
    findings
}
