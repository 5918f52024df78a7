//! The reproducers of `fathom crash` for libraries: compiled and run without Fathom, they tell what was
//! found from what was promised.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{copy_program, scratch};
use fathom_block::disks::{End, Record, Workload, borrow_all};
use fathom_block::{BlockBacked, InProcess};
use fathom_core::Op;
use fathom_engine::crash::Event;
use fathom_engine::crash::stored::StoredCrash;

/// The directory of the first finding of a run that has a program.
fn finding(args: &[&str], dir: &Path) -> PathBuf {
    let (code, run) = common::json(&[args, &["--json"]].concat(), dir);
    assert_eq!(code, 1, "{run}");
    let findings = run["findings"].as_array().expect("a list").iter();
    let ids = findings.map(|finding| finding["id"].as_str().expect("an id"));
    let mut dirs = ids.map(|id| dir.join("fathom-out").join(id));
    let found = dirs.find(|found| found.join("repro/Cargo.toml").is_file());
    found.unwrap_or_else(|| panic!("no program: {run}"))
}

/// Compiles the program of a finding. Libraries are compiled once for all.
fn compile(found: &Path) -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("reproducers");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--quiet"])
        .current_dir(found.join("repro"))
        .env("CARGO_TARGET_DIR", &target)
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    let program = found.join("program");
    copy_program(&target.join("debug/repro"), &program);
    program
}

fn run(program: &Path, args: &[&Path]) -> (Option<i32>, String) {
    let output = Command::new(program).args(args).output().expect("it runs");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The disk after the operations of a finding, on a library without a fault and with the power on.
fn without_failure(found: &Path, library: &dyn BlockBacked) -> Vec<u8> {
    let stored = StoredCrash::read(found).expect("a finding");
    let ops: Vec<Op> = stored
        .minimal
        .0
        .iter()
        .filter_map(|event| match event {
            Event::Op(op) => Some(op.clone()),
            Event::PowerCut(_) => None,
        })
        .collect();
    let ops = borrow_all(&ops);
    let base = library.format().expect("it can be formatted");
    let workload = Workload { ops: &ops, end: End::PowerOff, look: false };
    let recorded = InProcess::new(library).record(&base, &workload).expect("no fault");
    recorded.expect("it mounts").disk_after(&base).to_vec()
}

/// One test for all: they share what is compiled.
#[test]
fn programs_tell_what_was_found_from_what_was_promised() {
    let steps = ["--steps", "put,mkdir,move,rename,rewrite", "--sizes", "10,300", "--no-probe"];
    let library = fathom_subjects::library::all();
    let library = library.iter().find(|known| known.name == "littlefs").expect("it is built in");
    let library = library.open(None).expect("it is built in");

    // The real bug. Nobody has mended it: with the power on until the end, the same program is content.
    let dir = scratch();
    let crash = [&["crash", "littlefs", "--depth", "3"], &steps[..]].concat();
    let found = finding(&crash, dir.path());
    let (code, said) = run(&compile(&found), &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("after the power failure:\npromised:\n"), "{said}");
    let source = found.join("repro/src/main.rs");
    let text = std::fs::read_to_string(&source).expect("the program");
    let (before, after) = text.split_once("const EVENTS: usize = ").expect("where it fails");
    let (_, after) = after.split_once(';').expect("a number");
    let mended = format!("{before}const EVENTS: usize = 1_000_000;{after}");
    std::fs::write(&source, mended).expect("written");
    let (code, said) = run(&compile(&found), &[]);
    assert_eq!((code, said.as_str()), (Some(0), "as promised\n"));

    // Faults around the library: the program judges the disks that they leave.
    for mutant in ["lost-write", "late-write", "rename-in-two-steps", "wide-rewrite"] {
        let dir = scratch();
        let crash = ["crash", "littlefs", "--mutant", mutant, "--depth", "2", "--first"];
        let found = finding(&[&crash[..], &steps].concat(), dir.path());
        let program = compile(&found);
        let (code, said) = run(&program, &[&found.join("crash.img")]);
        assert_eq!(code, Some(1), "{mutant}: {said}");
        let legal = found.join("legal.img");
        std::fs::write(&legal, without_failure(&found, &*library)).expect("written");
        let (code, said) = run(&program, &[&legal]);
        assert_eq!((code, said.as_str()), (Some(0), "as promised\n"), "{mutant}");
        let (code, said) = run(&program, &[]);
        assert_eq!(code, Some(2), "{mutant}: {said}");
    }
}
