//! Real programs on a RefFS: they must not notice that it is not a disk.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{is_root, skip};
use fathom_model::Config;
use fathom_subjects::fuse::{Mount, Options};
use tempfile::TempDir;

struct Mounted {
    mount: Option<Mount>,
    point: TempDir,
}

impl Mounted {
    /// `None` after saying why not.
    fn new(test: &str, tool: &str) -> Option<Mounted> {
        if !is_root() {
            skip(test, "needs root");
            return None;
        }
        if Command::new(tool).arg("--version").output().is_err() {
            skip(test, format!("{tool} is not installed"));
            return None;
        }
        let point = tempfile::tempdir().unwrap();
        let mount = Mount::start(point.path(), Config::default(), Options::default()).unwrap();
        Some(Mounted { mount: Some(mount), point })
    }

    fn path(&self) -> &Path {
        self.point.path()
    }

    /// Runs a program in the mount, which must succeed; returns what it printed.
    #[track_caller]
    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.path()).env("HOME", self.path());
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Fathom");
            command.env(format!("GIT_{who}_EMAIL"), "fathom@example.org");
        }
        let output = command.output().unwrap();
        let (out, err) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program} {arguments:?}:\n{out}{err}");
        format!("{out}{err}")
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let mount = self.mount.take().unwrap();
        if !std::thread::panicking() {
            mount.with_volume(|volume| volume.check_invariants()).unwrap();
        }
        mount.unmount().unwrap();
    }
}

/// The root of this workspace.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned()
}

#[test]
fn git_repositories_are_sound() {
    let Some(mounted) = Mounted::new("git_repositories_are_sound", "git") else { return };
    mounted.run("git", &["init", "-q", "-b", "main", "made"]);
    for round in 0..5 {
        for file in 0..20 {
            let text = "line\n".repeat(100 * round + file);
            fs::write(mounted.path().join(format!("made/file{file}")), text).unwrap();
        }
        mounted.run("git", &["-C", "made", "add", "."]);
        mounted.run("git", &["-C", "made", "commit", "-q", "-m", &format!("round {round}")]);
    }
    mounted.run("git", &["-C", "made", "gc", "-q"]);
    mounted.run("git", &["clone", "-q", "made", "cloned"]);
    mounted.run("git", &["clone", "-q", "--no-hardlinks", "made", "copied"]);
    for repository in ["made", "cloned", "copied"] {
        mounted.run("git", &["-C", repository, "fsck", "--full", "--strict"]);
        assert_eq!(mounted.run("git", &["-C", repository, "status", "--porcelain"]), "");
        assert_eq!(mounted.run("git", &["-C", repository, "rev-list", "--count", "HEAD"]), "5\n");
    }
    let theirs = workspace();
    if theirs.join(".git").is_dir() {
        let theirs = theirs.to_str().unwrap();
        mounted.run("git", &["-c", "safe.directory=*", "clone", "-q", theirs, "this"]);
        mounted.run("git", &["-C", "this", "fsck", "--full"]);
        assert_eq!(mounted.run("git", &["-C", "this", "status", "--porcelain"]), "");
    }
}

#[test]
fn sqlite_databases_are_sound() {
    let Some(mounted) = Mounted::new("sqlite_databases_are_sound", "sqlite3") else { return };
    for journal in ["delete", "truncate", "persist", "wal"] {
        let database = format!("{journal}.db");
        let prepare = format!("PRAGMA journal_mode={journal}; CREATE TABLE t (a INTEGER, b TEXT);");
        mounted.run("sqlite3", &[&database, &prepare]);
        let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
            INSERT INTO t SELECT i, hex(randomblob(50)) FROM n;";
        mounted.run("sqlite3", &[&database, &format!("BEGIN; {fill} ROLLBACK;")]);
        mounted.run("sqlite3", &[&database, fill]);
        for _ in 0..20 {
            mounted.run("sqlite3", &[&database, "UPDATE t SET b = b || 'x' WHERE a % 7 = 0;"]);
        }
        mounted.run("sqlite3", &[&database, "DELETE FROM t WHERE a > 4000; VACUUM;"]);
        let check = "PRAGMA integrity_check; SELECT count(*), max(a) FROM t;";
        assert_eq!(mounted.run("sqlite3", &[&database, check]), "ok\n4000|4000\n");
    }
}

#[test]
fn fio_verifies_what_it_wrote() {
    let Some(mounted) = Mounted::new("fio_verifies_what_it_wrote", "fio") else { return };
    for (name, engine, direct) in
        [("psync", "psync", "0"), ("direct", "psync", "1"), ("mmap", "mmap", "0")]
    {
        let options = [
            format!("--name={name}"),
            format!("--ioengine={engine}"),
            format!("--direct={direct}"),
            format!("--directory={}", mounted.path().display()),
            "--rw=randrw --bsrange=512-64k --size=8m --numjobs=2".to_owned(),
            "--verify=crc32c --do_verify=1 --verify_fatal=1 --randseed=7".to_owned(),
        ]
        .join(" ");
        let options: Vec<&str> = options.split(' ').collect();
        let text = mounted.run("fio", &options);
        assert!(text.contains("err= 0"), "{text}");
        assert!(!text.contains("verify:") && !text.contains("bad magic"), "{text}");
    }
}

#[test]
fn archives_come_back_as_they_were() {
    let Some(mounted) = Mounted::new("archives_come_back", "tar") else { return };
    let theirs = workspace().join("crates");
    let copy = |from: &str, to: &str| {
        mounted.run(
            "sh",
            &["-c", &format!("mkdir {to} && tar -C {from} -cf - . | tar -C {to} -xpf -")],
        );
    };
    copy(theirs.to_str().unwrap(), "first");
    mounted.run("ln", &["first/core/Cargo.toml", "first/hard link"]);
    copy("first", "second");
    mounted.run("diff", &["-r", "first", "second"]);
    mounted.run("cp", &["-a", "--sparse=always", "second", "third"]);
    mounted.run("diff", &["-r", "first", "third"]);
    mounted.run("rm", &["-r", "first", "second", "third"]);
    let statfs = mounted.mount.as_ref().unwrap().with_volume(|volume| volume.statfs());
    assert!(statfs.files - statfs.files_free < 3_000);
    assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 0);
}

/// Takes two minutes: the longest test of all, and the one that uses the mount most.
#[test]
fn cargo_builds_and_tests_this_project() {
    let test = "cargo_builds_and_tests_this_project";
    let Some(mounted) = Mounted::new(test, "cargo") else { return };
    let mut command = Command::new("cargo");
    command.args(["test", "-p", "fathom-core"]).current_dir(workspace());
    let output = command.env("CARGO_TARGET_DIR", mounted.path().join("target")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("test result: ok"), "{text}");
}
