//! The programs of findings that show neither in an answer nor in a tree: a checker that is not content,
//! a kernel that complains, a call that does not return, an answer that changes. Both programs are run
//! where the bug is and where it is not.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use common::*;
use fathom_core::export::{Assert, c, shell};
use fathom_core::flags::OpenFlags;
use fathom_core::{Claim, Errno, Header, Op, Outcome, Probe, Step, Trace};

fn trace(steps: &[(Op, Outcome)], probes: &[(Probe, &str)]) -> Trace {
    let mut header = Header::new("a subject", "model");
    let claim = |(probe, expected): &(Probe, &str)| Claim {
        probe: probe.clone(),
        expected: (*expected).to_owned(),
        found: "something else".to_owned(),
    };
    header.claims = probes.iter().map(claim).collect();
    let step = |(n, (op, outcome)): (usize, &(Op, Outcome))| {
        Step::new(n as u64, op.clone(), outcome.clone())
    };
    Trace { header, steps: steps.iter().enumerate().map(step).collect() }
}

/// What a program ends with in a fresh directory: C, shell, and the shell without Python.
fn exit_codes(trace: &Trace, environment: &[(&str, &str)]) -> [Option<i32>; 3] {
    let build = tempfile::tempdir().unwrap();
    let (source, script) = (build.path().join("repro.c"), build.path().join("repro.sh"));
    fs::write(&source, c::program(trace, Assert::Expected).unwrap()).unwrap();
    fs::write(&script, shell::script(trace, Assert::Expected).unwrap()).unwrap();
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O0", "-o", "repro", "repro.c"])
        .current_dir(build.path())
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let tools = build.path().join("tools");
    tools_without_python(&tools);
    let mut bash = Command::new("bash");
    bash.arg(&script);
    let mut bare = Command::new("/bin/bash");
    bare.arg(&script).env("PATH", &tools);
    [Command::new(build.path().join("repro")), bash, bare].map(|mut program| {
        let work = tempfile::tempdir().unwrap();
        program.arg(work.path()).envs(environment.iter().copied());
        let output = program.output().unwrap();
        println!("{}", String::from_utf8_lossy(&output.stdout));
        println!("{}", String::from_utf8_lossy(&output.stderr));
        output.status.code()
    })
}

fn tools_without_python(dir: &Path) {
    fs::create_dir(dir).unwrap();
    for place in ["/usr/bin", "/bin", "/usr/sbin"] {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if !name.to_string_lossy().starts_with("python") {
                // The first one counts, as in PATH.
                let _ = symlink(entry.path(), dir.join(&name));
            }
        }
    }
}

#[track_caller]
fn ends_with(trace: &Trace, environment: &[(&str, &str)], code: i32) {
    assert_eq!(exit_codes(trace, environment), [Some(code); 3]);
}

/// A step that no common tool makes, so that the helper is needed.
fn seek() -> (Op, Outcome) {
    (Op::Lseek { slot: 0, offset: 3, whence: fathom_core::flags::Whence::Set }, ok(3))
}

#[test]
fn a_checker_is_asked_in_the_end() {
    let checker = Probe::Checker { command: "fsck.x -n IMAGE".to_owned() };
    let steps = [(create(0, "f"), ok(0)), seek()];
    let trace = trace(&steps, &[(checker, "clean")]);
    ends_with(&trace, &[("CHECK", "true")], 0);
    ends_with(&trace, &[("CHECK", "exit 4")], 1);
    ends_with(&trace, &[], 2);
}

#[test]
fn the_log_of_the_kernel_is_looked_at_in_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let says = |line: &str| format!("echo '{line}' >> '{}'", log.display());
    let (error, notice) = (says("3,9,9,-;BUG: a lock is held"), says("6,9,9,-;mounted"));
    fs::write(&log, "3,1,1,-;an error before the first step\n").unwrap();
    let probes =
        [(Probe::Checker { command: "x".to_owned() }, "clean"), (Probe::KernelLog, "nothing")];
    let trace = trace(&[(mkdir("d", 0o755), ok(0)), (create(0, "f"), ok(0)), seek()], &probes);
    let log = log.to_str().unwrap();
    ends_with(&trace, &[("KMSG", log), ("CHECK", &notice)], 0);
    ends_with(&trace, &[("KMSG", log), ("CHECK", &error)], 1);
}

#[test]
fn a_call_that_does_not_return_is_given_up() {
    let fifo = mknod("p", 0o010_600, (0, 0));
    let waits = open(0, "p", OpenFlags::empty());
    let goes_on = open(0, "p", OpenFlags::O_RDWR);
    let probes = [(Probe::Returns { seconds: 2 }, "yes")];
    ends_with(&trace(&[(fifo.clone(), ok(0)), (waits, ok(0))], &probes), &[], 1);
    ends_with(&trace(&[(fifo, ok(0)), (goes_on, ok(0))], &probes), &[], 0);
}

#[test]
fn what_changes_is_tried_more_than_once() {
    let probes = [(Probe::Always { tries: 3 }, "yes")];
    let mkdir = mkdir("d", 0o755);
    ends_with(&trace(&[(mkdir.clone(), ok(0))], &probes), &[], 0);
    ends_with(&trace(&[(mkdir, err(Errno::EEXIST))], &probes), &[], 1);
}
