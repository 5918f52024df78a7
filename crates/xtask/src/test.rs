//! `cargo xtask test`: runs everything that must hold before a change lands.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::{setup, shell, tidy};

/// Runs the steps in order and stops at the first that fails.
pub(crate) fn run() -> Result<()> {
    setup::run()?;
    tidy::run(false)?;
    let mut skipped = BTreeSet::new();
    let libraries = library_features(&mut skipped);
    lint(&libraries, &mut skipped)?;
    deny(&mut skipped)?;
    tests(&["--workspace"], &mut skipped)?;
    // The workspace is built without them, as a user builds it.
    let all = ["-p", "fathom-subjects", "--lib", "--test", "library*", "--features", &libraries];
    tests(&all, &mut skipped)?;
    for line in &skipped {
        println!("{line}");
    }
    println!("skipped with a reason: {}", skipped.len());
    Ok(())
}

/// Lists the features of library file systems that are not built by default, as far as they can be
/// built here.
fn library_features(skipped: &mut BTreeSet<String>) -> String {
    let mut features = "fatfs,redoxfs,rsext4".to_owned();
    if setup::has_libclang() {
        features.push_str(",littlefs-c");
    } else {
        skipped.insert("SKIP littlefs-c: libclang is not installed (libclang-dev)".to_owned());
    }
    features
}

/// Checks formatting and runs clippy, where the toolchain has them.
fn lint(libraries: &str, skipped: &mut BTreeSet<String>) -> Result<()> {
    if shell::output(shell::cargo().args(["fmt", "--version"])).is_ok() {
        shell::run(shell::cargo().args(["fmt", "--all", "--check"]))?;
    } else {
        skipped.insert("SKIP fmt: this toolchain has no rustfmt".to_owned());
    }
    if shell::output(shell::cargo().args(["clippy", "--version"])).is_ok() {
        let lints = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
        shell::run(shell::cargo().args(lints))?;
        let lints = ["clippy", "-p", "fathom-subjects", "--all-targets", "--features", libraries];
        shell::run(shell::cargo().args(lints).args(["--", "-D", "warnings"]))?;
    } else {
        skipped.insert("SKIP clippy: this toolchain has no clippy".to_owned());
    }
    Ok(())
}

/// Checks licences, sources and duplicate versions; advisories need a network and stay out of the
/// tests.
fn deny(skipped: &mut BTreeSet<String>) -> Result<()> {
    if !shell::has_program("cargo-deny") {
        skipped.insert("SKIP deny: cargo-deny is not installed (cargo install cargo-deny)".into());
        return Ok(());
    }
    shell::run(shell::cargo().args(["deny", "--offline", "check", "licenses", "bans", "sources"]))
}

/// Runs tests. The runner's lines are passed on; what passing tests printed is kept back, except
/// their `SKIP name: reason` lines, which are collected.
fn tests(which: &[&str], skipped: &mut BTreeSet<String>) -> Result<()> {
    let mut command = shell::cargo();
    command.arg("test").args(which).args(["--no-fail-fast", "--", "--show-output"]);
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo test")?;
    let stdout = child.stdout.take().expect("it was piped");
    let mut in_failures = false;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if let Some(at) = line.find("SKIP ") {
            skipped.insert(line[at..].to_owned());
        }
        in_failures = (in_failures || line == "failures:") && !line.starts_with("test result:");
        if in_failures || line.starts_with("test ") || line.starts_with("running ") {
            println!("{line}");
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{} ended with {status}", shell::show(&command));
    }
    Ok(())
}
