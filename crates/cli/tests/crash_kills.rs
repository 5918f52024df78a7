//! `fathom crash` on a kernel file system that is killed at random moments: Fathom itself, the process that
//! serves its disk, its guest. Nothing is left, and going on comes to the same result. Needs root; with
//! FATHOM_GUEST_KERNEL also in a guest. `cargo xtask campaign kills` does it 200 times.

mod common;

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::running::{Mark, PATIENCE, is_root, wait_for_nothing};
use serde_json::Value;

/// How many kills.
const RUNS: &str = "FATHOM_KILLS";
const RUNS_DEFAULT: u64 = 3;

const WORKLOADS: [&str; 13] = [
    "crash",
    "ext4",
    "--workload",
    "ace:1",
    "--ace-ops",
    "creat,unlink",
    "--level",
    "linear",
    "--no-probe",
    "--no-checker",
    "--checkpoint-every",
    "1s",
    "--json",
];

/// A lie that the workloads show, so that there is something to be lost with a run.
const LIE: [&str; 2] = ["--mutant", "ignore-fsync"];

/// A run: how it is started, and where it leaves its files.
struct Run<'a> {
    dir: &'a Path,
    guest: Option<&'a str>,
    /// More arguments.
    more: &'a [&'a str],
}

impl Run<'_> {
    fn start(&self, temporary: &Path, mark: &Mark) -> Child {
        let saved = self.dir.join("fathom-out/crash.checkpoint").exists();
        let mut command = common::command(&[&WORKLOADS[..], self.more].concat(), self.dir);
        mark.put(&mut command);
        command.arg(if saved { "--resume" } else { "--checkpoint" });
        if let Some(kernel) = self.guest {
            command.args(["--guest", kernel]);
        }
        let command = command.env("TMPDIR", temporary).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("fathom starts")
    }

    /// Runs to the end, which has this code.
    fn finish(&self, code: i32) -> Value {
        let temporary = tempfile::tempdir().expect("a directory");
        let output = self.start(temporary.path(), &Mark::new()).wait_with_output();
        let output = output.expect("it ends");
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(code), "{out}{err}");
        serde_json::from_str(out.lines().last().unwrap_or_default()).expect("a report")
    }

    /// Starts, and kills one of the processes after a while.
    fn kill(&self, number: u64) {
        let temporary = tempfile::tempdir().expect("a directory");
        let mark = Mark::new();
        let mut child = self.start(temporary.path(), &mark);
        std::thread::sleep(Duration::from_millis(number * 7919 % 2000));
        let victim = victim(&child, &mark, number);
        signal_kill(victim);
        // A run that has lost a process ends by itself, as a failure or (if it was done) with its report.
        let deadline = Instant::now() + PATIENCE;
        while child.try_wait().expect("our child").is_none() {
            assert!(Instant::now() < deadline, "kill {number}: it hangs");
            std::thread::sleep(Duration::from_millis(5));
        }
        let left = wait_for_nothing(|| leftovers(&mark, temporary.path()));
        assert_eq!(left, Vec::<String>::new(), "kill {number}");
    }
}

/// By turns Fathom, the process that serves the disk, and a guest, as far as they are there.
fn victim(child: &Child, mark: &Mark, number: u64) -> u32 {
    let wanted = ["fathom", "fathom-disk", "linux"][number as usize % 3];
    let name = |process: &u32| {
        std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default()
    };
    let found = mark.processes().into_iter().find(|process| name(process).trim() == wanted);
    found.filter(|_| wanted != "fathom").unwrap_or(child.id())
}

fn signal_kill(process: u32) {
    // It may have ended by itself.
    let _ = std::process::Command::new("kill").args(["-KILL", &process.to_string()]).output();
}

/// Processes and temporary files. What they have mounted and attached is nowhere else, and goes with them.
fn leftovers(mark: &Mark, temporary: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for process in mark.processes() {
        let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        left.push(format!("process {process} ({})", name.trim()));
    }
    let files = std::fs::read_dir(temporary).into_iter().flatten().flatten();
    left.extend(files.map(|file| format!("file {}", file.path().display())));
    left
}

/// What must not depend on interruptions. How many disks there are does: a disk has times and random numbers
/// of the kernel in it, so two undisturbed runs differ too.
fn results(report: &Value) -> (Value, Value, Value) {
    (report["workloads"].clone(), report["findings"].clone(), report["complete"].clone())
}

fn goes_on_after_kills(guest: Option<&str>) {
    let runs = std::env::var(RUNS).map_or(RUNS_DEFAULT, |text| text.parse().expect("a number"));
    let (quiet, disturbed) = (common::scratch(), common::scratch());
    let expected = Run { dir: quiet.path(), guest, more: &[] }.finish(0);
    let run = Run { dir: disturbed.path(), guest, more: &[] };
    for number in 1..=runs {
        run.kill(number);
    }
    assert_eq!(results(&run.finish(0)), results(&expected));
}

#[test]
fn a_killed_run_leaves_nothing_and_goes_on() {
    if !is_root() {
        return println!("SKIP a_killed_run_leaves_nothing_and_goes_on: needs root");
    }
    goes_on_after_kills(None);
}

/// What was found before a run was killed is found in the end, and nothing else. How many disks show it, and
/// which of them is told, depends on the moment: see [`results`].
#[test]
fn a_killed_run_keeps_what_it_has_found() {
    if !is_root() {
        return println!("SKIP a_killed_run_keeps_what_it_has_found: needs root");
    }
    let found = |report: &Value| {
        let findings = report["findings"].as_array().expect("a list").iter();
        let mut found: Vec<(String, String, bool)> = findings
            .map(|finding| {
                let text = |key: &str| finding[key].as_str().expect("text").to_owned();
                (text("class"), text("cause"), finding["reproduced"] == true)
            })
            .collect();
        found.sort();
        (found, report["workloads"].clone(), report["complete"].clone())
    };
    let (quiet, disturbed) = (common::scratch(), common::scratch());
    let expected = Run { dir: quiet.path(), guest: None, more: &LIE }.finish(1);
    assert!(!found(&expected).0.is_empty(), "{expected}");
    let run = Run { dir: disturbed.path(), guest: None, more: &LIE };
    for number in [1, 2, 4] {
        run.kill(number);
    }
    assert_eq!(found(&run.finish(1)), found(&expected));
}

#[test]
fn a_killed_run_in_a_guest_leaves_nothing_and_goes_on() {
    let Ok(kernel) = std::env::var("FATHOM_GUEST_KERNEL") else {
        let test = "a_killed_run_in_a_guest_leaves_nothing_and_goes_on";
        return println!("SKIP {test}: set FATHOM_GUEST_KERNEL to a kernel");
    };
    goes_on_after_kills(Some(&kernel));
}
