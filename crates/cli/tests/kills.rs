//! Runs that are killed at random moments leave nothing: no mount, no device, no file, no process.
//! Needs root. `cargo xtask campaign kills` does it 200 times.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use common::running::{Mark, is_root, wait_for_nothing};

/// How many runs: the subjects take turns.
const RUNS: &str = "FATHOM_KILLS";
const RUNS_DEFAULT: u64 = 20;

fn subjects() -> Vec<String> {
    let fathom = env!("CARGO_BIN_EXE_fathom");
    let mut subjects: Vec<String> =
        ["ext4", "reffs", "overlay:ext4", "btrfs", "overlay"].map(str::to_owned).to_vec();
    subjects.push(format!("fuse:{fathom} mount --state {{state}}/kept {{mnt}}"));
    if Path::new("/usr/bin/bindfs").exists() {
        subjects.push("fuse:bindfs {state} {mnt}".to_owned());
    }
    subjects
}

#[test]
fn killed_runs_leave_nothing() {
    if !is_root() {
        return println!("SKIP killed_runs_leave_nothing: needs root");
    }
    let runs = std::env::var(RUNS).map_or(RUNS_DEFAULT, |text| text.parse().expect("a number"));
    let subjects = subjects();
    let mounts = || std::fs::read_to_string("/proc/self/mounts").expect("proc(5)");
    let before = mounts();
    let mut ended_early = 0;
    for run in 0..runs {
        let subject = &subjects[run as usize % subjects.len()];
        let temporary = tempfile::tempdir().expect("a directory");
        let out = tempfile::tempdir().expect("a directory");
        let mark = Mark::new();
        // Ways back are used too, so that frozen file systems are met.
        let strategy = if run % 2 == 0 { "tour" } else { "dfs" };
        let args = ["check", subject, "--budget", "60s", "--strategy", strategy, "--seed"];
        let mut command = common::command(&args, Path::new("."));
        mark.put(&mut command);
        let mut child = command
            .args([&run.to_string(), "--json", "--out"])
            .arg(out.path())
            .env("TMPDIR", temporary.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("fathom starts");
        // From the first instruction to well into the run, different each time.
        std::thread::sleep(Duration::from_millis(run * 7919 % 1500));
        ended_early += u64::from(child.try_wait().expect("a child").is_some());
        // The supervisor, its worker, and whatever that has started.
        let processes = mark.processes();
        kill(&mut child);
        let left = wait_for_nothing(|| leftovers(&processes, &mark, temporary.path()));
        assert_eq!(left, Vec::<String>::new(), "run {run}: {subject} by {strategy}");
    }
    assert_eq!(mounts(), before);
    // A run that finds something ends by itself; then there was nothing to kill.
    assert!(ended_early * 4 <= runs, "{ended_early} of {runs} runs ended before they were killed");
}

fn kill(child: &mut Child) {
    child.kill().expect("our child");
    child.wait().expect("our child");
}

fn entries(dir: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// Everything that belongs to the killed processes and is still there.
fn leftovers(processes: &[u32], mark: &Mark, temporary: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for device in entries("/sys/block") {
        let backing = std::fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
        let is_ours = |process: &u32| backing.contains(&format!("fathom-image-{process} "));
        if processes.iter().any(is_ours) {
            left.push(device.display().to_string());
        }
    }
    for process in mark.processes() {
        let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        left.push(format!("process {process} ({})", name.trim()));
    }
    left.extend(
        entries(&temporary.display().to_string())
            .iter()
            .map(|file| format!("file {}", file.display())),
    );
    left
}
