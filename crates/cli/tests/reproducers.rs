//! The reproducers of findings prove them: exit code 1 on the file system that has the bug, 0 on the
//! one that does not.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use common::{ask, json, scratch};

/// Mutants whose finding of seed 1 has a step that FUSE cannot carry (`O_TMPFILE`: fuser has no
/// FUSE_TMPFILE), with a seed whose finding has none.
const OTHER_SEED: &[(&str, &str)] = &[("block-leak", "3"), ("inode-leak", "3")];

/// Mutants that do not outlive the server (the free blocks are counted again when it reads its state), or that it
/// does not hear of: the kernel cuts what is behind the end of a file, and O_TMPFILE is not carried.
/// The finding of `listing-skips` is shrunk to a piece of no bytes, which a correct file system may refuse.
const NOT_SERVED: &[&str] =
    &["reservation-leak", "mapped-tail-shows", "tmpfile-link-empties", "listing-skips"];

/// How many mutants are looked at side by side.
const WORKERS: usize = 2;

fn can_mount(test: &str) -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    let fuse = Path::new("/dev/fuse").exists();
    if !root || !fuse {
        println!("SKIP {test}: needs root and /dev/fuse");
    }
    root && fuse
}

/// A program of a finding: what to run it with, and its file.
fn programs(finding: &Path) -> [(&'static str, Command); 2] {
    let binary = finding.join("repro");
    let compiled = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([&binary, &finding.join("repro.c")])
        .output()
        .expect("a C compiler named cc");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let mut script = Command::new("bash");
    script.arg(finding.join("repro.sh"));
    [("repro.c", Command::new(binary)), ("repro.sh", script)]
}

/// The only finding in a directory of findings.
fn the_finding(out: &Path) -> PathBuf {
    let is_finding = |path: &PathBuf| path.join("repro.c").exists();
    let entries = fs::read_dir(out).expect("findings").map(|entry| entry.expect("an entry").path());
    let found: Vec<PathBuf> = entries.filter(is_finding).collect();
    found.into_iter().next().expect("a finding with its reproducers")
}

/// RefFS on a mount point, served by a process of its own that a command can stop and start again.
struct Served {
    place: tempfile::TempDir,
}

impl Served {
    fn start(mutant: Option<&str>) -> Served {
        let place = scratch();
        let with = mutant.map_or(String::new(), |name| format!("--mutant {name}"));
        let fathom = env!("CARGO_BIN_EXE_fathom");
        fs::create_dir(place.path().join("mnt")).expect("a mount point");
        let script = format!(
            "cd '{}'
stop() {{
    umount -l mnt
    pid=$(cat pid)
    while [ -d /proc/$pid ] && ! grep -q '^State:.Z' /proc/$pid/status; do sleep 0.02; done
}}
start() {{
    : >said
    '{fathom}' mount mnt --state state {with} >said 2>&1 </dev/null &
    echo $! >pid
    until grep -q serving said; do sleep 0.02; done
}}
\"$@\"
",
            place.path().display()
        );
        fs::write(place.path().join("serve.sh"), script).expect("the script");
        let served = Served { place };
        served.run("start");
        served
    }

    fn run(&self, what: &str) {
        let script = self.place.path().join("serve.sh");
        let mut child = Command::new("sh").arg(script).arg(what).spawn().expect("sh");
        assert!(child.wait().expect("it ends").success(), "{what}");
    }

    fn mount_point(&self) -> PathBuf {
        self.place.path().join("mnt")
    }

    fn remount(&self) -> String {
        let script = self.place.path().join("serve.sh");
        format!("sh '{0}' stop && sh '{0}' start", script.display())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.run("stop");
    }
}

/// Runs a program and returns its exit code with what it said.
fn run(mut program: Command, directory: &Path, remount: &str) -> (Option<i32>, String) {
    let output = program
        .arg(directory)
        .env("REMOUNT", remount)
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

/// What is wrong with the reproducers of a mutant's finding.
fn prove(mutant: &str) -> Vec<String> {
    let dir = scratch();
    let seed = OTHER_SEED.iter().find(|(name, _)| *name == mutant).map_or("1", |(_, seed)| seed);
    let args = [
        "check", "model", "--mutant", mutant, "--seed", seed, "--ops", "200000", "--first", "--out",
    ];
    let answer = ask(&[&args[..], &["out"]].concat(), dir.path());
    if answer.code != 1 {
        return vec![format!("{mutant}: not found: {}{}", answer.out, answer.err)];
    }
    let finding = the_finding(&dir.path().join("out"));
    let mut wrong = Vec::new();
    for (bug, code) in [(Some(mutant), 1), (None, 0)] {
        for (name, program) in programs(&finding) {
            let served = Served::start(bug);
            let (ended, said) = run(program, &served.mount_point(), &served.remount());
            if ended != Some(code) {
                let bug = bug.map_or("without the bug", |_| "with the bug");
                wrong.push(format!("{mutant}: {name} {bug} ended with {ended:?}:\n{said}"));
            }
        }
    }
    wrong
}

#[test]
fn the_reproducers_of_every_mutant_tell_it_from_the_correct_file_system() {
    if !can_mount("the_reproducers_of_every_mutant") {
        return;
    }
    let (code, list) = json(&["list", "mutants", "--json"], scratch().path());
    assert_eq!(code, 0);
    let mutants: Vec<String> = list
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|mutant| mutant["name"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(mutants.len(), 51);
    let served = mutants.into_iter().filter(|mutant| !NOT_SERVED.contains(&mutant.as_str()));
    let queue = Mutex::new(served.collect::<Vec<String>>());
    let wrong = Mutex::new(Vec::new());
    let next = || queue.lock().expect("no panic").pop();
    thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(mutant) = next() {
                    wrong.lock().expect("no panic").extend(prove(&mutant));
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// bindfs on a directory of the test: what it forwards to is the correct file system.
struct Bindfs {
    place: tempfile::TempDir,
}

impl Bindfs {
    fn start() -> Bindfs {
        let place = scratch();
        for name in ["backing", "mnt"] {
            fs::create_dir(place.path().join(name)).expect("a directory");
        }
        let args = [place.path().join("backing"), place.path().join("mnt")];
        let status = Command::new("bindfs").args(args).status().expect("bindfs starts");
        assert!(status.success());
        Bindfs { place }
    }
}

impl Drop for Bindfs {
    fn drop(&mut self) {
        let mount_point = self.place.path().join("mnt");
        let gone = Instant::now() + Duration::from_secs(10);
        while Instant::now() < gone {
            let status = Command::new("umount").arg(&mount_point).status();
            if status.is_ok_and(|status| status.success()) {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn the_reproducers_of_a_finding_on_bindfs_tell_it_from_its_backing_directory() {
    let test = "the_reproducers_of_a_finding_on_bindfs";
    if !can_mount(test) {
        return;
    }
    if Command::new("bindfs").arg("--version").output().is_err() {
        println!("SKIP {test}: bindfs is missing: install the package bindfs");
        return;
    }
    let dir = scratch();
    let args = ["check", "fuse:bindfs {state} {mnt}", "--seed", "1", "--budget", "60s"];
    let answer = ask(&[&args[..], &["--first", "--out", "out"]].concat(), dir.path());
    assert_eq!(answer.code, 1, "{}{}", answer.out, answer.err);
    println!("{}", answer.out);
    let finding = the_finding(&dir.path().join("out"));
    for (place, code) in [("mnt", 1), ("backing", 0)] {
        for (name, program) in programs(&finding) {
            let bindfs = Bindfs::start();
            let (ended, said) = run(program, &bindfs.place.path().join(place), "true");
            assert_eq!(ended, Some(code), "{name} in {place}:\n{said}");
        }
    }
}
