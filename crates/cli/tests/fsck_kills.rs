//! Campaigns on checkers that are killed at random moments leave nothing: no process, no file.
//! `cargo xtask campaign kills` does it 200 times.

mod common;

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::running::{Mark, wait_for_nothing};

/// How many campaigns.
const RUNS: &str = "FATHOM_KILLS";
const RUNS_DEFAULT: u64 = 10;
const CHECKER: &str = "/usr/sbin/e2fsck";

/// A checker's environment is its own, so it bears no mark: it is known by its program, which only this test runs.
fn runs_of(program: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("proc(5)").flatten();
    let is_run = |exe: &Path| exe.starts_with(program);
    let found = entries
        .filter(|entry| fs::read_link(entry.path().join("exe")).is_ok_and(|exe| is_run(&exe)));
    found.map(|entry| format!("process {} of the checker", entry.file_name().display())).collect()
}

/// Everything of a killed campaign that is still there.
fn leftovers(mark: &Mark, program: &Path, temporary: &Path) -> Vec<String> {
    let mut left: Vec<String> =
        mark.processes().into_iter().map(|process| format!("process {process}")).collect();
    left.extend(runs_of(program));
    let files = fs::read_dir(temporary).into_iter().flatten().flatten();
    left.extend(files.map(|file| format!("file {}", file.path().display())));
    left
}

#[test]
fn killed_campaigns_leave_nothing() {
    if !Path::new(CHECKER).exists() {
        return println!("SKIP killed_campaigns_leave_nothing: there is no {CHECKER}");
    }
    let runs = std::env::var(RUNS).map_or(RUNS_DEFAULT, |text| text.parse().expect("a number"));
    let place = tempfile::tempdir().expect("a directory");
    let program = place.path().join("e2fsck");
    fs::copy(CHECKER, &program).expect("a copy of the checker");
    let (mut ended_early, mut with_checker) = (0, 0);
    for run in 0..runs {
        let temporary = tempfile::tempdir().expect("a directory");
        let out = tempfile::tempdir().expect("a directory");
        let mark = Mark::new();
        // The last pointers of inodes, the journal's among them, make e2fsck run for ever; others are quick.
        let field = if run % 2 == 0 { "i_block[14]" } else { "superblock" };
        let args = ["--json", "fsck", "e2fsck", "--disk", "ext4", "--field", field, "--program"];
        let mut command = common::command(&args, Path::new("."));
        mark.put(&mut command);
        let mut child = command
            .arg(&program)
            .arg("--out")
            .arg(out.path())
            .env("TMPDIR", temporary.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("fathom starts");
        std::thread::sleep(Duration::from_millis(run * 7919 % 1500));
        ended_early += u64::from(child.try_wait().expect("a child").is_some());
        with_checker += u64::from(!runs_of(&program).is_empty());
        child.kill().expect("our child");
        child.wait().expect("our child");
        let left = wait_for_nothing(|| leftovers(&mark, &program, temporary.path()));
        assert_eq!(left, Vec::<String>::new(), "run {run}: {field}");
    }
    println!("{with_checker} of {runs} campaigns were killed while a checker ran");
    assert!(ended_early * 4 <= runs, "{ended_early} of {runs} ended before they were killed");
    assert!(with_checker > 0, "no checker ran when a campaign was killed");
}
