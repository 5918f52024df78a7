//! The table of deaths for `crash` and `design`, as `deaths.rs` has it for `check`.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::running::{Running, is_root, signal, wait_for};
use common::{ask, json, scratch};
use serde_json::Value;

const CRASH: &[&str] = &["crash", "littlefs", "--depth", "9"];
const DESIGN: &[&str] = &["design", "journal", "--depth", "30"];

fn findings(out: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(out).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_dir()).collect()
}

fn run_json(out: &Path) -> Value {
    let text = fs::read_to_string(out.join("run.json")).expect("run.json");
    serde_json::from_str(&text).expect("JSON")
}

/// Library file systems are C code in our process: it can end the process.
fn crash_dies(death: &str, args: &[&str], class: &str) {
    let dir = scratch();
    let subject = format!("test:{death}-on-rename");
    let crash = ["crash", subject.as_str(), "--depth", "3", "--jobs", "1", "--json"];
    let (code, value) = json(&[&crash[..], args].concat(), dir.path());
    assert_eq!(code, 1, "{death}: {value}");
    assert_eq!(value["complete"], false, "{death}");
    let finding = &value["findings"][0];
    let signature = finding["signature"].as_str().expect("a signature");
    assert!(signature.contains(class), "{death}: {signature}");
    assert_eq!((&finding["runs"], &finding["runs_reproduced"]), (&1.into(), &1.into()), "{value}");
    // Something to rename, and the rename.
    assert!(finding["ops"].as_u64() <= Some(3), "shrunk: {value}");
    let out = dir.path().join("fathom-out");
    assert_eq!(findings(&out).len(), 1, "{death}");
    let run = run_json(&out);
    assert_eq!(run["complete"], false, "{death}");
    assert_eq!(run["findings"][0]["id"], finding["id"], "{death}");
    let id = finding["id"].as_str().expect("an id");
    let again = ask(&[&["replay", id], args].concat(), dir.path());
    assert_eq!(again.code, 0, "{death}: {}{}", again.out, again.err);
    assert!(again.out.contains("reproduced"), "{death}: {}", again.out);
    assert_eq!(run_json(&out.join(id))["kind"], "replay");
}

#[test]
fn a_library_that_ends_the_process_is_a_finding() {
    crash_dies("dies-by-segv", &[], "SIGSEGV");
    crash_dies("dies-by-kill", &[], "SIGKILL");
}

#[test]
fn a_library_that_uses_up_the_memory_is_a_finding() {
    crash_dies("eats-memory", &["--memory-max", "300M"], "memory");
}

/// Somebody kills the worker: it is said, what was found before is kept, and nothing is left.
#[test]
fn searches_whose_worker_is_killed() {
    for (args, name) in [(CRASH, "KILL"), (CRASH, "ABRT"), (DESIGN, "KILL"), (DESIGN, "ABRT")] {
        let dir = scratch();
        let running = Running::start(&[args, &["--json"]].concat(), dir.path());
        let worker = running.worker();
        let out = dir.path().join("fathom-out");
        wait_for(|| out.join("run.json").exists().then_some(())).expect("it has begun");
        std::thread::sleep(Duration::from_millis(300));
        signal(name, &worker.to_string());
        let mark = running.mark.clone();
        let output = running.wait();
        let said = format!("{args:?} {name}: {output:?}");
        let found = findings(&out).len();
        assert_eq!(output.status.code(), Some(if found > 0 { 1 } else { 2 }), "{said}");
        let value: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
        assert_eq!(value["complete"], false, "{said}");
        let run = run_json(&out);
        assert_eq!(
            (&run["complete"], run["findings"].as_array().map(Vec::len)),
            (&false.into(), Some(found)),
            "{said}"
        );
        assert!(run["stop"].as_str().is_some_and(|stop| !stop.contains("goes on")), "{run}");
        assert!(wait_for(|| mark.processes().is_empty().then_some(())).is_some(), "{said}");
    }
}

/// Interruptions at random moments, by all three signals, to the program or to its whole group.
#[test]
fn searches_that_are_interrupted_keep_everything() {
    for round in 0..18u64 {
        let dir = scratch();
        let args = if round % 2 == 0 { CRASH } else { DESIGN };
        let running = Running::start(&[args, &["--json"]].concat(), dir.path());
        std::thread::sleep(Duration::from_millis(round * 7919 % 701));
        let id = running.id();
        let target = if round / 3 % 2 == 0 { format!("-{id}") } else { id.to_string() };
        let name = ["INT", "TERM", "HUP"][round as usize % 3];
        let _ = Command::new("kill").args([&format!("-{name}"), "--", &target]).output();
        let mark = running.mark.clone();
        let output = running.wait();
        let out = dir.path().join("fathom-out");
        let said = format!("round {round}, {args:?} {name}: {output:?}");
        // Before the first instructions of ours, a signal ends any program.
        let Some(code) = output.status.code() else {
            assert!(!out.exists(), "{said}");
            continue;
        };
        let found = findings(&out).len();
        assert_eq!(code, if found > 0 { 1 } else { 2 }, "{said}");
        let lines = String::from_utf8_lossy(&output.stdout).lines().count();
        assert_eq!(lines, 1, "one JSON value: {said}");
        if out.join("run.json").exists() {
            let run = run_json(&out);
            assert_eq!(run["findings"].as_array().map(Vec::len), Some(found), "{said}");
            assert_eq!(run["complete"], false, "{said}");
        }
        assert!(wait_for(|| mark.processes().is_empty().then_some(())).is_some(), "{said}");
    }
}

/// A small file system of its own, unmounted at the end.
struct Tmpfs(PathBuf);

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_loses_no_finding_of_a_search() {
    if !is_root() {
        return println!("SKIP a_full_disk_loses_no_finding_of_a_search: needs root");
    }
    let dir = scratch();
    let crash: &[&str] = &["crash", "littlefs", "--depth", "2", "--mutant", "lost-write"];
    let design: &[&str] = &["design", "journal", "--switch", "no-barrier", "--depth", "3"];
    let died: &[&str] = &["crash", "test:dies-by-segv-on-rename", "--depth", "3", "--jobs", "1"];
    for (name, args) in [("one", crash), ("two", design), ("three", died)] {
        let path = dir.path().join(name);
        fs::create_dir(&path).expect("a mount point");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=12k", "fathom-test"]).arg(&path);
        assert!(mount.status().expect("mount(8)").success());
        let out = Tmpfs(path);
        let answer = ask(&[args, &["--out", out.0.to_str().expect("text")]].concat(), dir.path());
        let said = format!("{args:?}: {}{}", answer.out, answer.err);
        assert_eq!(answer.code, 1, "{said}");
        assert!(answer.out.contains("finding "), "{said}");
        assert!(said.contains("No space left"), "{said}");
    }
}
