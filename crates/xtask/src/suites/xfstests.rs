//! The quick group of xfstests' generic tests, on the served reference.
//!
//! An installed tree is used as it is (`XFSTESTS_ROOT`, else where its `make install` puts it). Its tests mount by
//! mount(8) what they test, so `mount.fuse.reffs` must be there and be the program that is tested, and three users.
//! All of it runs in mount and process namespaces of its own: what a test leaves behind ends with them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Row, row};
use crate::shell;

/// Where `make install` of xfstests puts it.
const ROOT: &str = "/var/lib/xfstests";

/// The helper of mount(8).
const HELPER: &str = "/sbin/mount.fuse.reffs";

/// The users that tests of permissions switch to.
const USERS: [&str; 3] = ["fsgqa", "fsgqa2", "123456-fsgqa"];

/// Time for one test. The slowest needs half a minute on an idle machine.
const TIME_MAX: Duration = Duration::from_secs(240);

/// Groups of tests that are left out as a whole: they wound the machine, or need devices that can fail.
const GROUPS_LEFT_OUT: &str = "dangerous,dangerous_fuzzers,dangerous_selftest,shutdown,swap,quota";

/// Tests that change settings of the whole machine, and what they change.
const LEFT_OUT: [(&str, &str); 6] = [
    ("generic/460", "when all file systems write back"),
    ("generic/530", "half of all files that the machine may open"),
    ("generic/531", "half of all files that the machine may open"),
    ("generic/581", "how many keys users may have"),
    ("generic/597", "whether links of others are followed"),
    ("generic/598", "whether files of others are opened"),
];

/// Tests that fail for a reason that is not ours: the kernel's side of FUSE, or the machine.
/// docs/SNAPSHOTS.md has them too.
const EXPLAINED: [(&str, &str); 4] = [
    ("generic/394", "its shell may not raise its limit again without CAP_SYS_RESOURCE"),
    ("generic/424", "FUSE does not carry the attributes of statx(2)"),
    ("generic/564", "its shell may not raise its limit again without CAP_SYS_RESOURCE"),
    ("generic/732", "two mounts of one source share a server only where the kernel is the server"),
];

/// Runs the group and counts.
pub(super) fn run(fathom: &Path, tools: &Path) -> Result<Row> {
    let root = std::env::var_os("XFSTESTS_ROOT").map_or_else(|| ROOT.into(), PathBuf::from);
    is_there(&root, fathom)?;
    let place = tools.join("xfstests");
    // What an earlier run left: results of tests that are not run now.
    let _ = fs::remove_dir_all(&place);
    for dir in ["test", "scratch", "results"] {
        fs::create_dir_all(place.join(dir))?;
    }
    // Users of the tests go there too.
    shell::run(Command::new("chmod").arg("755").args([&place, &place.join("test")]))?;
    fs::write(place.join("local.config"), config(&place))?;
    let start = Instant::now();
    let mut tests = Tests {
        left_out: LEFT_OUT.map(|(name, _)| name.to_owned()).to_vec(),
        row: row("xfstests", start),
    };
    while let Some(late) = tests.run(&root, &place)? {
        tests.row.failed += 1;
        tests.row.names.push(format!("{late}: takes more than {} s", TIME_MAX.as_secs()));
    }
    if tests.row.passed == 0 {
        bail!("nothing passed: see {}", place.join("results").display());
    }
    tests.row.suite = "xfstests (generic, quick)".to_owned();
    tests.row.seconds = start.elapsed().as_secs_f64();
    Ok(tests.row)
}

/// Says what is missing and how to get it.
fn is_there(root: &Path, fathom: &Path) -> Result<()> {
    if !root.join("check").is_file() {
        bail!(
            "no xfstests in {}: install it from git.kernel.org (fs/xfs/xfstests-dev), or set XFSTESTS_ROOT",
            root.display()
        );
    }
    let program = fathom.canonicalize().with_context(|| fathom.display().to_string())?;
    if fs::canonicalize(HELPER).ok() != Some(program.clone()) {
        bail!("mount(8) would not start what is tested: ln -sf {} {HELPER}", program.display());
    }
    let users = fs::read_to_string("/etc/passwd")?;
    let is_there = |name: &str| users.lines().any(|line| line.split(':').next() == Some(name));
    if let Some(name) = USERS.iter().find(|name| !is_there(name)) {
        bail!("no user {name}: useradd -m fsgqa; useradd fsgqa2; useradd 123456-fsgqa");
    }
    Ok(())
}

/// What the tests read: docs/SNAPSHOTS.md explains it.
fn config(place: &Path) -> String {
    let place = place.display();
    let options = |name: &str| format!("-o subtype=,acl,state={place}/{name}.state");
    format!(
        "export FSTYP=fuse\n\
         export FUSE_SUBTYP=.reffs\n\
         export TEST_DEV=fathom-test\n\
         export TEST_DIR={place}/test\n\
         export SCRATCH_DEV=fathom-scratch\n\
         export SCRATCH_MNT={place}/scratch\n\
         export TEST_FS_MOUNT_OPTS=\"{}\"\n\
         export MOUNT_OPTIONS=\"{}\"\n\
         export RESULT_BASE={place}/results\n",
        options("test"),
        options("scratch"),
    )
}

/// The tests of a run, which is several calls of `check` if a test has to be ended.
struct Tests {
    /// What the next call leaves out: what was tried, too.
    left_out: Vec<String>,
    row: Row,
}

impl Tests {
    /// Runs what is not left out; returns the test that took too long, with which everything was ended.
    fn run(&mut self, root: &Path, place: &Path) -> Result<Option<String>> {
        let list = place.join("left-out");
        fs::write(&list, self.left_out.join("\n"))?;
        let child = Namespaces::start(root, place, &list)?;
        let mut line = String::new();
        loop {
            match child.lines.recv_timeout(TIME_MAX) {
                Ok(b'\n') => self.count(&std::mem::take(&mut line)),
                Ok(byte) => line.push(char::from(byte)),
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
                Err(RecvTimeoutError::Timeout) => {
                    drop(child);
                    let name = test_of(&line).map(str::to_owned);
                    let name = name.with_context(|| format!("it says nothing any more: {line}"))?;
                    self.left_out.push(name.clone());
                    return Ok(Some(name));
                }
            }
        }
    }

    /// One line: `generic/001 4s ...  3s`, `[not run] why`, `[expunged]`, or what went wrong.
    fn count(&mut self, line: &str) {
        println!("{line}");
        let Some(name) = test_of(line) else { return };
        if line.contains("[expunged]") {
            return;
        }
        self.left_out.push(name.to_owned());
        let failed =
            ["output mismatch", "[failed", "_check_dmesg", "[dumped core]", "no qualified output"];
        let explained = EXPLAINED.iter().find(|(known, _)| *known == name);
        match (failed.iter().any(|word| line.contains(word)), explained) {
            _ if line.contains("[not run]") => self.row.skipped += 1,
            (true, Some(_)) => self.row.skipped += 1,
            (true, None) => {
                self.row.failed += 1;
                self.row.names.push(line.trim().to_owned());
            }
            (false, Some((_, why))) => {
                self.row.passed += 1;
                self.row.names.push(format!("{name} passes, although {why}"));
            }
            (false, None) => self.row.passed += 1,
        }
    }
}

/// The test that a line of `check` is about.
fn test_of(line: &str) -> Option<&str> {
    let word = line.split_whitespace().next()?;
    let number = word.strip_prefix("generic/")?;
    let is_number = number.len() == 3 && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && line.starts_with(word)).then_some(word)
}

/// `check` in namespaces of its own, which end with it.
struct Namespaces {
    child: Child,
    /// What it prints, byte by byte: a line begins when its test does.
    lines: Receiver<u8>,
}

impl Namespaces {
    fn start(root: &Path, place: &Path, left_out: &Path) -> Result<Namespaces> {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--"])
            .args(["./check", "-g", "generic/quick", "-x", GROUPS_LEFT_OUT, "-E"])
            .arg(left_out)
            .current_dir(root)
            .env("HOST_OPTIONS", place.join("local.config"))
            // A test that reads /proc/locks must look at that of the machine.
            .env("FSTESTS_ISOL", "privatens")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| shell::show(&command))?;
        let mut output = child.stdout.take().context("its output")?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                if bytes[..count].iter().any(|byte| sender.send(*byte).is_err()) {
                    return;
                }
            }
        });
        Ok(Namespaces { child, lines })
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        // Nothing to kill if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_check_are_counted() {
        let row = row("xfstests", Instant::now());
        let mut tests = Tests { left_out: Vec::new(), row };
        for line in [
            "FSTYP         -- fuse",
            "generic/001        4s",
            "generic/002 3s ...  4s",
            "generic/003       [not run] atime related mount options have no effect on fuse",
            "generic/004       [expunged]",
            "generic/005       - output mismatch (see results/generic/005.out.bad)",
            "    --- tests/generic/005.out",
            "Ran: generic/001 generic/002",
        ] {
            tests.count(line);
        }
        let counted = (tests.row.passed, tests.row.failed, tests.row.skipped);
        assert_eq!(counted, (2, 1, 1));
        assert!(tests.row.names[0].starts_with("generic/005"), "{:?}", tests.row.names);
        assert_eq!(tests.left_out.len(), 4);
    }

    #[test]
    fn what_is_explained_or_left_out_has_a_reason() {
        for (name, why) in LEFT_OUT.iter().chain(&EXPLAINED) {
            assert!(test_of(name) == Some(name) && !why.is_empty(), "{name}");
        }
        let explained =
            EXPLAINED.iter().all(|(name, _)| !LEFT_OUT.iter().any(|(out, _)| out == name));
        assert!(explained, "a test that is left out cannot fail");
    }
}
