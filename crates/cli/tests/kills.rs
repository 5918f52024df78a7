//! Runs that are killed at random moments leave nothing: no mount, no device, no file, no process.
//! Needs root. `cargo xtask campaign kills` does it 200 times.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How many runs: the subjects take turns.
const RUNS: &str = "FATHOM_KILLS";
const RUNS_DEFAULT: u64 = 20;

/// Every process that a run starts, however far away, inherits this.
const MARK: &str = "FATHOM_KILLED_RUN";

/// What is left a moment longer is not left behind.
const PATIENCE: Duration = Duration::from_secs(20);

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
        let mark = format!("{}-{run}", std::process::id());
        // Ways back are used too, so that frozen file systems are met.
        let strategy = if run % 2 == 0 { "tour" } else { "dfs" };
        let args = ["check", subject, "--budget", "60s", "--strategy", strategy, "--seed"];
        let mut child = common::command(&args, Path::new("."))
            .args([&run.to_string(), "--json", "--out"])
            .arg(out.path())
            .env("TMPDIR", temporary.path())
            .env(MARK, &mark)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("fathom starts");
        // From the first instruction to well into the run, different each time.
        std::thread::sleep(Duration::from_millis(run * 7919 % 1500));
        ended_early += u64::from(child.try_wait().expect("a child").is_some());
        // The supervisor, its worker, and whatever that has started.
        let processes = marked(&mark);
        kill(&mut child);
        let left = wait_for_nothing(|| leftovers(&processes, &mark, temporary.path()));
        assert_eq!(left, Vec::<String>::new(), "run {run}: {subject} by {strategy}");
    }
    assert_eq!(mounts(), before);
    // A run that finds something ends by itself; then there was nothing to kill.
    assert!(ended_early * 4 <= runs, "{ended_early} of {runs} runs ended before they were killed");
}

fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt;
    // The files of a process belong to its effective user (proc(5)).
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

fn kill(child: &mut Child) {
    child.kill().expect("our child");
    child.wait().expect("our child");
}

fn wait_for_nothing(look: impl Fn() -> Vec<String>) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = look();
        if left.is_empty() || Instant::now() > deadline {
            return left;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn entries(dir: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// The processes of a run, as directories of `/proc`.
fn marked(mark: &str) -> Vec<PathBuf> {
    let mark = format!("{MARK}={mark}");
    let is_marked = |entry: &PathBuf| {
        let environment = std::fs::read(entry.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    entries("/proc").into_iter().filter(is_marked).collect()
}

/// Everything that belongs to the killed processes and is still there.
fn leftovers(processes: &[PathBuf], mark: &str, temporary: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for device in entries("/sys/block") {
        let backing = std::fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
        let is_ours = |process: &PathBuf| {
            let number = process.file_name().unwrap_or_default().to_string_lossy();
            backing.contains(&format!("fathom-image-{number} "))
        };
        if processes.iter().any(is_ours) {
            left.push(device.display().to_string());
        }
    }
    for entry in marked(mark) {
        let name = std::fs::read_to_string(entry.join("comm")).unwrap_or_default();
        left.push(format!("process {} ({})", entry.display(), name.trim()));
    }
    left.extend(
        entries(&temporary.display().to_string())
            .iter()
            .map(|file| format!("file {}", file.display())),
    );
    left
}
