//! `cargo xtask test`: runs everything that must hold before a change lands.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use crate::{setup, shell, tidy};

/// So many tests may fail once and pass when they are run again alone. Tests drive the kernel of
/// this machine and wait for real processes, so a starved machine can make one fail; more than a
/// few at once are not chance.
const MAY_WAVER: usize = 3;

/// What a run of the tests told beside passing and failing.
#[derive(Default)]
struct Told {
    /// `SKIP name: reason`, for each test that cannot run here.
    skipped: BTreeSet<String>,
    /// Tests that failed once and passed when they were run again alone.
    wavered: BTreeSet<String>,
}

/// Runs the steps in order and stops at the first that fails.
pub(crate) fn run() -> Result<()> {
    setup::run()?;
    tidy::run(false)?;
    let mut told = Told::default();
    let libraries = library_features(&mut told.skipped);
    lint(&libraries, &mut told.skipped)?;
    deny(&mut told.skipped)?;
    tests(&["--workspace"], &mut told)?;
    // The workspace is built without them, as a user builds it.
    let all = ["-p", "fathom-subjects", "--lib", "--test", "library*", "--features", &libraries];
    tests(&all, &mut told)?;
    tests(&["-p", "fathom-swarm", "--features", "kubernetes"], &mut told)?;
    for line in &told.skipped {
        println!("{line}");
    }
    for name in &told.wavered {
        println!("WAVERED {name}: failed once (see above), and passed when it was run again alone");
    }
    println!("skipped with a reason: {}", told.skipped.len());
    println!("passed only when run again: {}", told.wavered.len());
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
        let lints = ["clippy", "-p", "fathom-swarm", "--all-targets", "--features", "kubernetes"];
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

/// Runs tests, and those that failed once more alone. A test that fails twice fails the run, and so
/// do more than [`MAY_WAVER`] that failed once.
fn tests(which: &[&str], told: &mut Told) -> Result<()> {
    let (succeeded, failed) = run_tests(which, &[], told)?;
    if succeeded {
        return Ok(());
    }
    // Nothing that has a name failed: a test program died, or something could not be built.
    if failed.is_empty() {
        bail!("the tests {which:?} could not be run to their end");
    }
    told.wavered.extend(failed.iter().cloned());
    if told.wavered.len() > MAY_WAVER {
        bail!("{} tests failed: {failed:?}", failed.len());
    }
    println!("run again alone: {failed:?}");
    let mut alone = vec!["--exact", "--test-threads=1"];
    alone.extend(failed.iter().map(String::as_str));
    let (succeeded, again) = run_tests(which, &alone, told)?;
    if !succeeded {
        bail!("tests failed twice: {again:?}");
    }
    Ok(())
}

/// Runs tests with these words for the runner; says whether all succeeded, and the names of those
/// that did not. The runner's lines are passed on; what passing tests printed is kept back, except
/// their `SKIP name: reason` lines, which are collected.
fn run_tests(which: &[&str], words: &[&str], told: &mut Told) -> Result<(bool, BTreeSet<String>)> {
    let mut command = shell::cargo();
    command.arg("test").args(which).args(["--no-fail-fast", "--", "--show-output"]).args(words);
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot start cargo test")?;
    let stdout = child.stdout.take().expect("it was piped");
    let mut in_failures = false;
    let mut failed = BTreeSet::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if let Some(at) = line.find("SKIP ") {
            told.skipped.insert(line[at..].to_owned());
        }
        in_failures = (in_failures || line == "failures:") && !line.starts_with("test result:");
        if in_failures || line.starts_with("test ") || line.starts_with("running ") {
            println!("{line}");
        }
        failed.extend(failed_test(&line));
    }
    Ok((child.wait()?.success(), failed))
}

/// The name of the test that this line of the runner says has failed.
fn failed_test(line: &str) -> Option<String> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    // What has to panic is told with that behind its name.
    Some(name.trim_end_matches(" - should panic").to_owned())
}

#[cfg(test)]
mod tests {
    use super::failed_test;

    #[test]
    fn names_of_failed_tests_are_read_from_the_runners_lines() {
        assert_eq!(failed_test("test a::b ... FAILED").as_deref(), Some("a::b"));
        assert_eq!(failed_test("test a - should panic ... FAILED").as_deref(), Some("a"));
        for line in ["test a::b ... ok", "test result: FAILED. 1 passed", "    a::b"] {
            assert_eq!(failed_test(line), None, "{line}");
        }
    }
}
