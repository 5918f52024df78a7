//! `FuseSubject`: real daemons, and that nothing is left of them.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::*;
use fathom_core::{Capability, Op, Subject, Testbed};
use fathom_subjects::FuseSubject;
use fathom_subjects::sys::View;

/// A daemon that serves a directory of its own storage.
const BINDFS: &str = "bindfs {state} {mnt}";

/// ext4 in a file, made at the first start.
const FUSE2FS: &str = "[ -e {state}/disk ] || mkfs.ext4 -q -b 4096 -I 256 -m 0 {state}/disk 32m; \
                       fuse2fs -o allow_other {state}/disk {mnt}";

/// The subject, or `None` after saying why not.
fn subject(test: &str, program: &str, command: &str) -> Option<FuseSubject> {
    if !is_root() {
        skip(test, "needs root");
        return None;
    }
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    if !found.status.success() {
        skip(test, format!("{program} is not installed"));
        return None;
    }
    Some(FuseSubject::new(command, View::default()).unwrap())
}

fn refused(command: &str) -> String {
    FuseSubject::new(command, View::default()).err().unwrap().to_string()
}

#[test]
fn a_daemon_is_used_restarted_and_emptied() {
    for (program, command) in [("bindfs", BINDFS), ("fuse2fs", FUSE2FS)] {
        let Some(mut subject) = subject("a_daemon_is_used", program, command) else { continue };
        assert_eq!(subject.name(), format!("fuse:{command}"));
        assert_eq!(subject.observe().unwrap().entries.len(), 1, "it is empty: {program}");
        assert!(subject.capabilities().contains(&Capability::Remount), "{program}");
        expect(&mut subject, mkdir("d", 0o755), ok(0));
        expect(&mut subject, create(0, "d/f"), ok(0));
        expect(&mut subject, pwrite(0, 5000, 1, 100), ok(100));
        expect(&mut subject, Op::Close { slot: 0 }, ok(0));
        let before = subject.observe().unwrap();
        expect(&mut subject, Op::Remount, ok(0));
        assert_eq!(before.differences(&subject.observe().unwrap()), [], "{program}");
        subject.reset().unwrap();
        assert_eq!(subject.observe().unwrap().entries.len(), 1, "{program}");
        assert!(subject.restore_methods().is_empty());
    }
}

#[test]
fn a_daemon_without_storage_of_ours_is_emptied_by_removing() {
    let storage = tempfile::tempdir().unwrap();
    let command = format!("bindfs {}", storage.path().display());
    let Some(mut subject) = subject("emptied_by_removing", "bindfs", &command) else { return };
    expect(&mut subject, mkdir("d", 0o700), ok(0));
    expect(&mut subject, create(0, "d/f"), ok(0));
    let root = fathom_core::FsPath::from(".");
    let first = subject.observe().unwrap().entries[&root].mode;
    let chmod = Op::Chmod { target: path("."), mode: fathom_core::Mode(0o700) };
    expect(&mut subject, chmod, ok(0));
    subject.reset().unwrap();
    let tree = subject.observe().unwrap();
    assert_eq!((tree.entries.len(), tree.entries[&root].mode), (1, first));
    drop(subject);
    // What was there before is somebody's.
    std::fs::write(storage.path().join("precious"), "x").unwrap();
    let error = refused(&command);
    assert!(error.contains("not empty") && error.contains("precious"), "{error}");
    assert!(storage.path().join("precious").exists());
}

#[test]
fn a_program_that_does_not_mount_is_an_error_with_its_words() {
    if !is_root() {
        return skip("a_program_that_does_not_mount", "needs root");
    }
    let error = refused("echo oh dear; exit 3; true");
    assert!(error.contains("ended before it had mounted; it printed: oh dear"), "{error}");
    let error = refused("no-such-program");
    assert!(error.contains("not found"), "{error}");
    assert!(refused(" ").contains("there is none"));
}

/// A thread that holds the allocator's lock while the sandbox is made does not exist in the sandbox, so
/// whoever waits for that lock there waits for ever.
#[test]
fn a_daemon_starts_while_other_threads_allocate() {
    if !is_root() {
        return skip("a_daemon_starts_while_other_threads_allocate", "needs root");
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    // Large enough that the C library takes the lock of its arena for it.
                    std::hint::black_box(Vec::<u8>::with_capacity(20_000));
                }
            });
        }
        // The others must have stopped before this fails: it waits for them.
        let mut answers = (0..200).map(|_| refused("echo it is alive; exit 3; true"));
        let wrong = answers.find(|answer| !answer.contains("it is alive"));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(wrong, None);
    });
}

fn processes() -> Vec<String> {
    let all = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("comm")).ok());
    all.map(|name| name.trim().to_owned()).collect()
}

const HOLD: &str = "FATHOM_TEST_HOLD_FUSE";

/// The holder acts as another user when it is killed.
const AS_NOBODY: &str = "FATHOM_TEST_HOLD_AS_NOBODY";

/// Not a test of its own: what the next one kills.
#[test]
fn holder() {
    if std::env::var(HOLD).is_err() {
        return;
    }
    let command = std::env::var(HOLD).unwrap();
    let mut subject = FuseSubject::new(&command, View::default()).unwrap();
    expect(&mut subject, create(0, "f"), ok(0));
    if std::env::var_os(AS_NOBODY).is_some() {
        // As campaigns do between two calls of another user.
        let nobody = rustix::process::Uid::from_raw(65534);
        rustix::thread::set_thread_res_uid(nobody, nobody, rustix::process::Uid::ROOT).unwrap();
    }
    println!("\nholding");
    std::thread::sleep(Duration::from_secs(60));
}

/// bindfs daemonises: it is nobody's child when its user is killed.
#[test]
fn a_killed_user_leaves_no_daemon_behind() {
    let Some(subject) = subject("a_killed_user_leaves_no_daemon", "bindfs", BINDFS) else { return };
    drop(subject);
    killed_user_leaves_no_daemon(&[]);
}

/// Of the end of a parent that may not signal its child the kernel tells nothing.
#[test]
fn a_user_that_is_killed_while_it_acts_as_another_one_leaves_no_daemon_behind() {
    let Some(subject) = subject("a_user_that_acts_as_another_one", "bindfs", BINDFS) else {
        return;
    };
    drop(subject);
    killed_user_leaves_no_daemon(&[(AS_NOBODY, "1")]);
}

fn killed_user_leaves_no_daemon(variables: &[(&str, &str)]) {
    let dir = tempfile::tempdir().unwrap();
    // Tests run beside each other, and names of processes have 15 characters.
    let name = format!("bindfs-held{}", variables.len());
    let program = dir.path().join(&name);
    std::os::unix::fs::symlink("/usr/bin/bindfs", &program).unwrap();
    let daemons = || processes().iter().filter(|process| **process == name).count();
    let before = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "holder", "--nocapture"])
        .env(HOLD, format!("{} {{state}}", program.display()))
        .envs(variables.iter().copied())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let holding = lines.map_while(Result::ok).any(|line| line == "holding");
    assert!(holding && daemons() > 0);
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while daemons() > 0 {
        assert!(Instant::now() < deadline, "a daemon is left");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(std::fs::read_to_string("/proc/self/mountinfo").unwrap(), before);
}

#[test]
fn a_call_that_does_not_return_can_be_ended() {
    let test = "a_call_that_does_not_return";
    // Under a name of its own, so that it can be told from the daemons of other tests.
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("bindfs-stop");
    std::os::unix::fs::symlink("/usr/bin/bindfs", &program).unwrap();
    let command = format!("{} {{state}} {{mnt}}", program.display());
    let Some(mut subject) = subject(test, "/usr/bin/bindfs", &command) else { return };
    let rescue = subject.unblock().unwrap();
    // The process that started it may be one of those that are named, and end before it is stopped.
    let stop = "until kill -STOP $(pidof bindfs-stop); do sleep 0.01; done";
    let stopper = Command::new("timeout").args(["10", "sh", "-c", stop]).status().unwrap();
    assert!(stopper.success());
    let saviour = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        rescue();
    });
    let answer = subject.apply(&mkdir("d", 0o755)).unwrap();
    assert!(answer.result.is_err(), "{answer}");
    saviour.join().unwrap();
}
