//! `cargo xtask campaign suites`: foreign test suites judge the served reference.
//!
//! pjdfstest and fsx come from crates.io. LTP and xfstests are taken from where they are installed (`LTPROOT`, else
//! /opt/ltp; `XFSTESTS_ROOT`, else /var/lib/xfstests); what is not here is skipped with its reason. The table goes
//! to the standard output; the one in docs/SNAPSHOTS.md is a copy of it.

mod xfstests;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::{setup, shell};

/// The versions of the suites: another one may count otherwise.
const PJDFSTEST: &str = "pjdfstest@0.2.2";
const FSX: &str = "fsx@0.3.2";

/// Operations of fsx per seed.
const FSX_OPS: &str = "100000";
const FSX_SEEDS: [&str; 4] = ["1", "2", "3", "4"];

/// Users that Debian has, and the tests of permissions switch to.
const PJDFSTEST_CONFIG: &str = "\
[features]
posix_fallocate = {}
utimensat = {}
utime_now = {}
rename_ctime = {}
stat_st_birthtime = {}

[settings]
naptime = 0.05
allow_remount = false

[dummy_auth]
entries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"]]
";

/// File-system calls of LTP, as the names of its programs begin.
const LTP: [&str; 40] = [
    "access",
    "chdir",
    "chmod",
    "chown",
    "close",
    "copy_file_range",
    "creat",
    "dup",
    "faccessat",
    "fallocate",
    "fchdir",
    "fchmod",
    "fchown",
    "fgetxattr",
    "flock",
    "fremovexattr",
    "fsetxattr",
    "fstat",
    "fsync",
    "ftruncate",
    "getdents",
    "getxattr",
    "lchown",
    "link",
    "linkat",
    "listxattr",
    "llseek",
    "lseek",
    "lstat",
    "mkdir",
    "mknod",
    "open",
    "pread",
    "pwrite",
    "readlink",
    "rename",
    "rmdir",
    "symlink",
    "truncate",
    "unlink",
];

/// Time for one program of LTP.
const LTP_TIME_MAX: Duration = Duration::from_secs(60);

/// One line of the table.
struct Row {
    suite: String,
    passed: u64,
    failed: u64,
    skipped: u64,
    seconds: f64,
    names: Vec<String>,
}

/// Mounts the reference, runs each suite on it (`only` these, if any is named), prints the table.
pub(crate) fn run(fathom: &Path, only: &[String]) -> Result<()> {
    if !shell::is_root() {
        bail!("the suites need root: they switch users and make devices");
    }
    setup::need(&[
        ("getfacl", "acl", "pjdfstest is not built"),
        ("cc", "gcc", "nothing is built"),
    ])?;
    let tools = shell::root().join("target/suites");
    let mut rows = Vec::new();
    let mut skipped = Vec::new();
    type Suite = fn(&Path, &Path) -> Result<Row>;
    let suites: [(&str, Suite); 3] = [("pjdfstest", pjdfstest), ("fsx", fsx), ("ltp", ltp)];
    let wanted = |name: &str| only.is_empty() || only.iter().any(|row| row == name);
    for (name, suite) in suites.into_iter().filter(|(name, _)| wanted(name)) {
        let mounted = Mounted::start(fathom)?;
        match suite(&tools, mounted.dir()) {
            Ok(row) => rows.push(row),
            Err(error) => skipped.push(format!("SKIP {name}: {error:#}")),
        }
    }
    // It mounts what it tests itself.
    if wanted("xfstests") {
        match xfstests::run(fathom, &tools) {
            Ok(row) => rows.push(row),
            Err(error) => skipped.push(format!("SKIP xfstests: {error:#}")),
        }
    }
    println!("{:24} {:>7} {:>7} {:>8} {:>7}", "suite", "passed", "failed", "skipped", "s");
    for row in &rows {
        println!(
            "{:24} {:>7} {:>7} {:>8} {:>7.0}",
            row.suite, row.passed, row.failed, row.skipped, row.seconds
        );
        row.names.iter().for_each(|name| println!("  {name}"));
    }
    skipped.iter().for_each(|line| println!("{line}"));
    if rows.iter().any(|row| row.failed > 0) {
        bail!("something failed: see the names above");
    }
    Ok(())
}

/// A mounted reference, unmounted when it is dropped.
struct Mounted {
    dir: PathBuf,
}

impl Mounted {
    fn start(fathom: &Path) -> Result<Mounted> {
        let dir = std::env::temp_dir().join(format!("fathom-suites-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        shell::run(Command::new(fathom).args(["mount", "--background"]).arg(&dir))?;
        Ok(Mounted { dir })
    }

    fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A process of a suite that was left behind must not keep the next one from starting.
        let _ = Command::new("umount").arg("-l").arg(&self.dir).status();
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Builds a tool of crates.io, unless it is there.
fn installed(tools: &Path, package: &str) -> Result<PathBuf> {
    let name = package.split('@').next().unwrap_or(package);
    let program = tools.join("bin").join(name);
    if !program.exists() {
        let install = ["install", "--quiet", "--locked", "--root"];
        shell::run(shell::cargo().args(install).arg(tools).arg(package))?;
    }
    Ok(program)
}

fn pjdfstest(tools: &Path, dir: &Path) -> Result<Row> {
    let program = installed(tools, PJDFSTEST)?;
    let config = tools.join("pjdfstest.toml");
    fs::write(&config, PJDFSTEST_CONFIG)?;
    let start = Instant::now();
    let mut command = Command::new(&program);
    // Others than root walk to the files too.
    shell::run(Command::new("chmod").arg("755").arg(dir))?;
    command.arg("-c").arg(&config).arg("-p").arg(dir);
    let output = command.output().with_context(|| shell::show(&command))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut row = row(PJDFSTEST, start);
    let ended = |line: &str, word: &str| line.trim_end().ends_with(word);
    for line in text.lines() {
        match line {
            line if ended(line, "success") => row.passed += 1,
            line if ended(line, "skipped") => row.skipped += 1,
            line if ended(line, "FAILED") || line.contains("\tFAILED") => {
                row.failed += 1;
                row.names.push(line.trim().to_owned());
            }
            _ => {}
        }
    }
    if row.passed == 0 {
        bail!("it says nothing of success: {}", tail(&output));
    }
    Ok(row)
}

fn fsx(tools: &Path, dir: &Path) -> Result<Row> {
    let program = installed(tools, FSX)?;
    let start = Instant::now();
    let mut row = row(FSX, start);
    for seed in FSX_SEEDS {
        let mut command = Command::new(&program);
        command.args(["-N", FSX_OPS, "-S", seed]).arg(dir.join(format!("fsx-{seed}")));
        let output = command.output().with_context(|| shell::show(&command))?;
        match output.status.success() {
            true => row.passed += FSX_OPS.parse::<u64>()?,
            false => {
                row.failed += 1;
                row.names.push(format!("seed {seed}: {}", tail(&output)));
            }
        }
    }
    row.suite = format!("{FSX} (operations)");
    row.seconds = start.elapsed().as_secs_f64();
    Ok(row)
}

/// Runs the programs of LTP that are about files, here and on the temporary directory of the host: what
/// fails on both is not ours.
fn ltp(_tools: &Path, dir: &Path) -> Result<Row> {
    let root = std::env::var_os("LTPROOT").map_or_else(|| PathBuf::from("/opt/ltp"), PathBuf::from);
    let programs = root.join("testcases/bin");
    let Ok(entries) = fs::read_dir(&programs) else {
        bail!(
            "no LTP in {}: install it from github.com/linux-test-project/ltp, or set LTPROOT",
            root.display()
        );
    };
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| {
        let call = name.trim_end_matches(|c: char| c.is_ascii_digit());
        name.len() > call.len() && LTP.contains(&call)
    });
    names.sort();
    let start = Instant::now();
    let mut row = row("LTP", start);
    let elsewhere = std::env::temp_dir();
    for name in &names {
        let program = programs.join(name);
        match ltp_code(&program, &programs, dir)? {
            Some(0) => row.passed += 1,
            // TCONF: it does not apply here.
            Some(32) => row.skipped += 1,
            code if ltp_code(&program, &programs, &elsewhere)? == code => row.skipped += 1,
            code => {
                row.failed += 1;
                row.names.push(format!("{name}: exit code {code:?}, otherwise on the host"));
            }
        }
    }
    row.seconds = start.elapsed().as_secs_f64();
    Ok(row)
}

/// The exit code of one program; `None` if it was killed or takes too long.
fn ltp_code(program: &Path, programs: &Path, dir: &Path) -> Result<Option<i32>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        [programs.to_owned()].into_iter().chain(std::env::split_paths(&path)),
    )?;
    let mut child = Command::new(program)
        .env("TMPDIR", dir)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.code());
        }
        if start.elapsed() > LTP_TIME_MAX {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn row(suite: &str, start: Instant) -> Row {
    let seconds = start.elapsed().as_secs_f64();
    Row { suite: suite.to_owned(), passed: 0, failed: 0, skipped: 0, seconds, names: Vec::new() }
}

/// The last lines that a program has printed.
fn tail(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(5)..].join(" | ")
}
