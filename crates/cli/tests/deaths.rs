//! The table of deaths: whatever ends a campaign, what it found is on disk and told, the program
//! ends by itself, and nothing that it started outlives it.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::running::{Running, is_root, piped, signal, wait_for};
use common::{ask, command, json, scratch};
use serde_json::Value;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The only finding of a run.
fn only_finding(dir: &Path) -> (String, toml::Table) {
    let out = dir.join("fathom-out");
    let entries = fs::read_dir(&out).expect("the output directory").flatten();
    let found: Vec<PathBuf> =
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    let recorded = fs::read_to_string(found[0].join("finding.toml")).expect("finding.toml");
    for file in ["trace.jsonl", "minimal.jsonl", "repro.c", "repro.sh", "diff.txt"] {
        assert!(found[0].join(file).is_file(), "{file}");
    }
    let id = found[0].file_name().expect("a name").to_string_lossy().into_owned();
    (id, recorded.parse().expect("TOML"))
}

/// Runs a death to its end; it must be told, written with its 4 operations, run again, and replay.
fn dies(subject: &str, args: &[&str], class: &str, signature: &str) {
    let dir = scratch();
    let check = ["check", subject, "--ops", "5000", "--seed", "1"];
    let answer = ask(&[&check[..], args].concat(), dir.path());
    assert_eq!(answer.code, 1, "{subject}: {}{}", answer.out, answer.err);
    let (id, recorded) = only_finding(dir.path());
    assert_eq!(recorded["class"].as_str(), Some(class), "{subject}: {}", answer.out);
    let signed = recorded["signature"].as_str().unwrap_or_default();
    assert!(signed.ends_with(signature), "{subject}: {signed}");
    assert_eq!(recorded["details"]["ops"].as_integer(), Some(4), "{subject}: {}", answer.out);
    assert!(answer.out.contains(&format!("finding {id}: ")), "{subject}: {}", answer.out);
    assert!(answer.out.contains(&format!("files:  fathom-out/{id}")), "{subject}: {}", answer.out);
    assert!(answer.err.starts_with("seed 1\n"), "{subject}: {}", answer.err);
    // A kernel that has oopsed is not asked again.
    let again = i64::from(class != "oops");
    assert_eq!(recorded["runs"].as_integer(), Some(again), "{subject}: {}", answer.out);
    assert_eq!(recorded["runs_reproduced"].as_integer(), Some(again), "{subject}: {}", answer.out);
    let run = fs::read_to_string(dir.path().join("fathom-out/run.json")).expect("run.json");
    let run: Value = serde_json::from_str(&run).expect("JSON");
    assert_eq!((&run["complete"], &run["findings"][0]["id"]), (&false.into(), &id.clone().into()));

    let again = ask(&[&["replay", &id], args].concat(), dir.path());
    assert_eq!(again.code, 0, "{subject}: {}{}", again.out, again.err);
    assert!(again.out.contains(&format!("reproduced: {signed}")), "{subject}: {}", again.out);
    let fixed = ask(&[&["replay", &id, "--subject", "model"], args].concat(), dir.path());
    assert_eq!(fixed.code, 1, "{subject}: {}{}", fixed.out, fixed.err);
    assert!(fixed.out.contains("not reproduced"), "{subject}: {}", fixed.out);
}

#[test]
fn a_worker_that_dies_by_a_signal_is_a_finding() {
    dies("test:dies-by-segv-after-3", &[], "died", " SIGSEGV");
    dies("test:dies-by-kill-after-3", &[], "died", " SIGKILL");
}

/// What is not needed is left out, every try in a process of its own.
#[test]
fn deaths_are_shrunk() {
    let dir = scratch();
    let args = ["check", "test:dies-by-segv-on-rename", "--ops", "5000", "--seed", "1", "--json"];
    let (code, value) = json(&args, dir.path());
    assert_eq!(code, 1, "{value}");
    assert_eq!((&value["findings"][0]["ops"], &value["complete"]), (&1.into(), &false.into()));
    let (_, recorded) = only_finding(dir.path());
    assert!(recorded["details"]["ops"].as_integer() > Some(1), "{recorded}");
}

/// A death that does not show again says so: somebody has killed the worker, say.
#[test]
fn a_death_by_another_hand_is_not_reproduced() {
    let dir = scratch();
    let running = Running::start(&["check", "model", "--budget", "60s", "--json"], dir.path());
    let worker = running.worker();
    std::thread::sleep(Duration::from_millis(700));
    signal("KILL", &worker.to_string());
    let output = running.wait();
    let value: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    let finding = &value["findings"][0];
    assert_eq!((&finding["runs"], &finding["runs_reproduced"]), (&1.into(), &0.into()), "{value}");
}

#[test]
fn a_worker_whose_thread_the_kernel_ended_is_a_finding() {
    dies("test:dies-by-oops-after-3", &[], "oops", " kernel");
}

#[test]
fn a_worker_that_uses_up_the_memory_is_a_finding() {
    dies("test:eats-memory-after-3", &["--memory-max", "300M"], "out_of_memory", " memory");
}

/// A swarm tells its task how much memory it has; without that the kernel would end whatever it likes.
#[test]
fn the_memory_that_whoever_started_it_allows_is_the_limit() {
    let dir = scratch();
    let args = ["check", "test:eats-memory-after-3", "--ops", "5000", "--seed", "1", "--json"];
    let mut check = command(&args, dir.path());
    let allowed = (375_u64 << 20).to_string();
    let output = check.env("FATHOM_MEMORY_MAX_BYTES", allowed).output().expect("it starts");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    assert!(err.contains("300 MiB of memory were used up"), "four fifths of it: {err}");
    let (_, recorded) = only_finding(dir.path());
    assert_eq!(recorded["class"].as_str(), Some("out_of_memory"), "{err}");
}

#[test]
fn a_worker_that_hangs_is_a_finding() {
    dies("test:hangs-after-3", &["--deadline", "400ms"], "hang", " no answer");
}

/// An oops cannot be had for the asking: the line of the log is written by the test, to a file that
/// is read instead of /dev/kmsg.
#[test]
fn what_the_kernel_logged_is_told_with_the_oops() {
    let dir = scratch();
    let log = dir.path().join("log");
    fs::write(&log, "4,1,1,-;WARNING: before the campaign\n").unwrap();
    let oops = "1,7,7,-;BUG: kernel NULL pointer dereference, address: 0000000000000008";
    let writes = format!("sleep 0.3; echo '{oops}' >> '{}'", log.display());
    let output = piped()
        .args(["check", "test:hangs-after-30", "--seed", "1", "--deadline", "1s", "--json"])
        .current_dir(dir.path())
        .env("FATHOM_TEST_KERNEL_LOG", &log)
        .spawn()
        .and_then(|child| {
            Command::new("sh").args(["-c", &writes]).status()?;
            child.wait_with_output()
        })
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    assert_eq!(value["findings"][0]["class"], "oops");
    assert_eq!(value["complete"], false);
    let (_, recorded) = only_finding(dir.path());
    let story = recorded["story"].as_str().unwrap();
    assert!(story.contains("BUG: kernel NULL pointer dereference"), "{story}");
    assert!(!story.contains("before the campaign"), "{story}");
}

#[test]
fn a_panic_of_the_harness_is_an_error_and_no_finding() {
    let dir = scratch();
    let answer =
        ask(&["check", "test:panics-after-30", "--ops", "5000", "--seed", "1"], dir.path());
    assert_eq!(answer.code, 2, "{}{}", answer.out, answer.err);
    assert!(answer.err.contains("panicked: asked for"), "{}", answer.err);
}

#[test]
fn a_worker_that_somebody_kills_is_a_finding() {
    let dir = scratch();
    let args = ["check", "model", "--budget", "60s", "--seed", "1"];
    let running = Running::start(&args, dir.path());
    let worker = running.worker();
    // Until it executes operations there is nothing to record.
    std::thread::sleep(Duration::from_millis(700));
    signal("KILL", &worker.to_string());
    let output = running.wait();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("died of it: SIGKILL"), "{}", text(&output.stdout));
    only_finding(dir.path());
}

#[test]
fn fifty_interruptions_end_the_program_and_keep_everything() {
    let dir = scratch();
    for round in 0..50u64 {
        let name = ["INT", "TERM", "HUP"][round as usize % 3];
        let mutant = if round % 2 == 0 { "model" } else { "model:rmdir-errno" };
        let seed = round.to_string();
        let args = ["check", mutant, "--budget", "60s", "--seed", &seed, "--json", "--strategy"];
        let args = [&args[..], &[["tour", "dfs", "walk"][round as usize / 3 % 3]]].concat();
        let out = format!("out-{round}");
        let running = Running::start(&[&args[..], &["--out", &out]].concat(), dir.path());
        std::thread::sleep(Duration::from_millis(round * 7919 % 601));
        // The terminal signals the whole group; others only the program that they started.
        let group = format!("-{}", running.id());
        let target = if round % 2 == 0 { group } else { running.id().to_string() };
        let mark = running.mark.clone();
        // It may have ended by itself: it has found its mutant.
        let _ = Command::new("kill").args([&format!("-{name}"), "--", &target]).output();
        let began = Instant::now();
        let output = running.wait();
        assert!(began.elapsed() < Duration::from_secs(50), "round {round}: {:?}", began.elapsed());
        let said = format!("round {round}: {}{}", text(&output.stdout), text(&output.stderr));
        let code = output.status.code();
        // Before the first instructions of ours, a signal ends any program.
        if code.is_none() {
            assert!(!dir.path().join(&out).exists(), "{said}");
            continue;
        }
        let findings = directories(&dir.path().join(&out));
        assert_eq!(code, Some(if findings > 0 { 1 } else { 2 }), "{said}");
        let lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 1, "one JSON value: {said}");
        let value: Value = serde_json::from_str(&lines[0]).expect("JSON");
        if findings == 0 {
            assert_eq!(value["complete"], false, "{said}");
        }
        let left = wait_for(|| mark.processes().is_empty().then_some(()));
        assert!(left.is_some(), "{said}: {:?}", mark.processes());
    }
}

#[test]
fn the_second_interruption_ends_at_once() {
    let dir = scratch();
    let args = ["check", "test:hangs-after-30", "--seed", "1", "--deadline", "50s", "--json"];
    let running = Running::start(&args, dir.path());
    running.worker();
    std::thread::sleep(Duration::from_millis(500));
    signal("INT", &running.id().to_string());
    std::thread::sleep(Duration::from_millis(500));
    signal("INT", &running.id().to_string());
    let began = Instant::now();
    let output = running.wait();
    assert!(began.elapsed() < Duration::from_secs(40), "{:?}", began.elapsed());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("SIGINT: stopping"), "{}", text(&output.stderr));
    let value: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
    assert_eq!(value["complete"], false);
}

#[test]
fn searches_are_interrupted_too() {
    let dir = scratch();
    let crash: &[&str] = &["crash", "littlefs", "--depth", "9", "--json"];
    let design: &[&str] = &["design", "journal", "--depth", "30", "--json"];
    for args in [crash, design] {
        let running = Running::start(args, dir.path());
        running.worker();
        std::thread::sleep(Duration::from_millis(1500));
        signal("TERM", &format!("-{}", running.id()));
        let output = running.wait();
        let said = format!("{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
        let last = text(&output.stdout).lines().last().map(str::to_owned).unwrap_or_default();
        let value: Value = serde_json::from_str(&last).unwrap_or_else(|_| panic!("{said}"));
        let found = |key: &str| value[key].as_array().is_some_and(|list| !list.is_empty());
        let expected = if found("findings") || found("violations") { 1 } else { 2 };
        assert_eq!(output.status.code(), Some(expected), "{said}");
        assert_ne!(value["stop"], "every reachable state was visited", "{said}");
    }
}

#[test]
fn nothing_outlives_the_supervisor_or_the_worker() {
    if !is_root() {
        return println!("SKIP nothing_outlives_the_supervisor_or_the_worker: needs root");
    }
    let served = format!("fuse:{} mount {{mnt}}", env!("CARGO_BIN_EXE_fathom"));
    for (subject, victim) in [
        (served.as_str(), "supervisor"),
        (&served, "worker"),
        ("ext4", "supervisor"),
        ("ext4", "worker"),
    ] {
        let dir = scratch();
        let args = ["check", subject, "--budget", "60s", "--seed", "1"];
        let running = Running::start(&args, dir.path());
        let worker = running.worker();
        std::thread::sleep(Duration::from_millis(1200));
        let mark = running.mark.clone();
        assert!(mark.processes().len() >= 2, "{subject}");
        let target = if victim == "worker" { worker } else { running.id() };
        signal("KILL", &target.to_string());
        let output = running.wait();
        if victim == "worker" {
            assert_eq!(output.status.code(), Some(1), "{subject}: {}", text(&output.stderr));
            only_finding(dir.path());
        }
        let gone = wait_for(|| mark.processes().is_empty().then_some(()));
        assert!(gone.is_some(), "{subject}, {victim}: {:?} are left", mark.processes());
    }
}

/// What it does instead is the question that its developer asks next.
#[test]
fn a_daemon_that_does_not_mount_is_told_with_its_processes() {
    if !is_root() {
        return println!(
            "SKIP a_daemon_that_does_not_mount_is_told_with_its_processes: needs root"
        );
    }
    let dir = scratch();
    let args = ["check", "fuse:sleep 60; true {mnt}", "--start-within", "1s"];
    let output = Running::start(&args, dir.path()).wait();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let expected =
        ["had not mounted after 1 s", "its processes: fathom-sandbox (S", "sh (S", "sleep (S"];
    assert!(expected.iter().all(|words| said.contains(words)), "{said}");
}

#[test]
fn a_daemon_that_stops_answering_is_a_finding_and_is_ended() {
    if !is_root() {
        return println!(
            "SKIP a_daemon_that_stops_answering_is_a_finding_and_is_ended: needs root"
        );
    }
    let dir = scratch();
    let fathom = env!("CARGO_BIN_EXE_fathom");
    let stops = "p=$!; (sleep 1.5; kill -STOP $p) & wait";
    let subject = format!("fuse:{fathom} mount {{mnt}} & {stops}");
    // It is started again with every episode, and by a tour in between: the first one must be longer
    // than its life.
    fs::write(dir.path().join("long.toml"), "[check]\nepisode_ops = 100000000\n").unwrap();
    let args = ["check", &subject, "--first", "--budget", "40s", "--seed", "1", "--deadline", "2s"];
    let long = ["--config", "long.toml", "--strategy", "walk"];
    let answer = ask(&[&args[..], &long].concat(), dir.path());
    assert_eq!(answer.code, 1, "{}{}", answer.out, answer.err);
    let (_, recorded) = only_finding(dir.path());
    assert_eq!(recorded["class"].as_str(), Some("hang"), "{}", answer.out);
}

/// Whoever kills the daemon, at whatever moment: the end of the run is not clean.
#[test]
fn a_daemon_that_somebody_kills_is_a_finding() {
    if !is_root() {
        return println!("SKIP a_daemon_that_somebody_kills_is_a_finding: needs root");
    }
    let fathom = env!("CARGO_BIN_EXE_fathom");
    for strategy in ["walk", "tour"] {
        let dir = scratch();
        // Once, so that running it again shows nothing.
        let once = dir.path().join("once");
        let kill = format!("kill -0 $p && mkdir {} && kill -KILL $p", once.display());
        // Not before the campaign works there: by then it has told once what it covered.
        let covered = dir.path().join("fathom-out/coverage.json");
        let busy = format!("[ -e {} ]", covered.display());
        let wait = format!("while kill -0 $p; do {busy} && break; sleep 0.1; done");
        let subject = format!("fuse:{fathom} mount {{mnt}} & p=$!; ({wait}; {kill}) & wait $p");
        fs::write(
            dir.path().join("long.toml"),
            "[check]\nepisode_ops = 100000000\nshrink_seconds = 1\n",
        )
        .unwrap();
        let args = ["check", &subject, "--first", "--budget", "40s", "--seed", "1"];
        let long = ["--config", "long.toml", "--strategy", strategy];
        let answer = ask(&[&args[..], &long].concat(), dir.path());
        assert_eq!(answer.code, 1, "{strategy}: {}{}", answer.out, answer.err);
        let (_, recorded) = only_finding(dir.path());
        assert_eq!(recorded["class"].as_str(), Some("server_died"), "{strategy}: {}", answer.out);
    }
}

/// A file system that somebody else serves; its daemon is killed at the end.
struct Served(Child);

impl Served {
    fn start(mut command: Command, point: &Path) -> Served {
        let device =
            |path: &Path| std::os::unix::fs::MetadataExt::dev(&fs::metadata(path).unwrap());
        let above = device(point);
        let served = Served(command.arg(point).stdin(Stdio::null()).spawn().unwrap());
        wait_for(|| (device(point) != above).then_some(())).expect("it is mounted");
        served
    }

    fn signal(&self, name: &str) {
        signal(name, &self.0.id().to_string());
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        for name in ["CONT", "TERM"] {
            let _ =
                Command::new("kill").args([&format!("-{name}"), &self.0.id().to_string()]).status();
        }
        let _ = self.0.wait();
    }
}

/// Runs the program with its output in a file: a thread that does not die would keep a pipe open.
fn told_to_a_file(args: &[&str], dir: &Path, meanwhile: impl FnOnce()) -> (Option<i32>, String) {
    let file = fs::File::create(dir.join("said")).unwrap();
    let mut child = piped()
        .args(args)
        .current_dir(dir)
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    meanwhile();
    let status = wait_for(|| child.try_wait().unwrap());
    (status.and_then(|status| status.code()), fs::read_to_string(dir.join("said")).unwrap())
}

#[test]
fn a_foreign_daemon_that_stops_answering_is_a_finding() {
    if !is_root() {
        return println!("SKIP a_foreign_daemon_that_stops_answering_is_a_finding: needs root");
    }
    let dir = scratch();
    let point = dir.path().join("mnt");
    fs::create_dir(&point).unwrap();
    let mut mount = piped();
    mount.arg("mount");
    let daemon = Served::start(mount, &point);
    let subject = format!("dir:{}", point.display());
    let args = ["check", &subject, "--first", "--budget", "40s", "--seed", "1", "--deadline", "1s"];
    let (code, said) = told_to_a_file(&args, dir.path(), || {
        std::thread::sleep(Duration::from_millis(2500));
        daemon.signal("STOP");
    });
    assert_eq!(code, Some(1), "{said}");
    let (_, recorded) = only_finding(dir.path());
    assert_eq!(recorded["class"].as_str(), Some("hang"), "{said}");
}

/// A request that a daemon has taken cannot be given up: a thread that waits for its answer does not
/// even die of a SIGKILL (request_wait_answer in fs/fuse/dev.c). bindfs takes it, and waits itself
/// for a daemon that has stopped. The program ends all the same, and names the thread.
#[test]
fn a_thread_that_the_kernel_does_not_let_go_of_is_named() {
    if !is_root() || !Path::new("/usr/bin/bindfs").exists() {
        return println!(
            "SKIP a_thread_that_the_kernel_does_not_let_go_of_is_named: needs root and bindfs"
        );
    }
    let dir = scratch();
    let (inner, outer) = (dir.path().join("inner"), dir.path().join("outer"));
    fs::create_dir(&inner).unwrap();
    fs::create_dir(&outer).unwrap();
    let mut mount = piped();
    mount.arg("mount");
    let daemon = Served::start(mount, &inner);
    let mut mount = Command::new("bindfs");
    mount.args(["-f", "-o", "attr_timeout=0,entry_timeout=0"]).arg(&inner);
    let _outer = Served::start(mount, &outer);
    daemon.signal("STOP");
    let subject = format!("dir:{}", outer.display());
    let args = ["check", &subject, "--ops", "1000", "--seed", "1", "--deadline", "500ms"];
    let (code, said) = told_to_a_file(&args, dir.path(), || {});
    daemon.signal("CONT");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("what the kernel does not let go of:"), "{said}");
    assert!(said.contains("state D in "), "{said}");
    assert!(said.contains("not run again: the kernel still holds"), "{said}");
    let (_, recorded) = only_finding(dir.path());
    assert_eq!(recorded["class"].as_str(), Some("hang"), "{said}");
    assert_eq!(recorded["labels"]["while"].as_str(), Some("being set up"), "{said}");
}

/// A recipe whose programs are these.
fn recipe(dir: &Path, format: &str, checker: &str) -> PathBuf {
    let file = dir.join("recipe.toml");
    let text = format!(
        "name = \"x\"\nabout = \"for a test\"\nfs_type = \"ext4\"\nprofile = \"ext4\"\nimage_kib = 65536\n\
         removed_entries = [\"lost+found\"]\n\
         [format]\ncommand = \"{format}\"\npackage = \"e2fsprogs\"\n\
         [check]\ncommand = \"{checker}\"\npackage = \"e2fsprogs\"\nclean = [0]\nfailed = [8]\n"
    );
    fs::write(&file, text).unwrap();
    file
}

#[test]
fn programs_that_never_end_are_ended() {
    if !is_root() {
        return println!("SKIP programs_that_never_end_are_ended: needs root");
    }
    let dir = scratch();
    let script = dir.path().join("never");
    fs::write(&script, "exec sleep 1000\n").unwrap();
    let sleeps = format!("sh {}", script.display());
    let never = recipe(dir.path(), &sleeps, "true");
    let args =
        ["check", "ext4", "--ops", "2000", "--seed", "1", "--deadline", "500ms", "--profile"];
    let answer = ask(&[&args[..], &[never.to_str().unwrap()]].concat(), dir.path());
    assert_eq!(answer.code, 2, "{}{}", answer.out, answer.err);
    assert!(answer.err.contains("while the subject was being set up"), "{}", answer.err);

    let never = recipe(dir.path(), "mkfs.ext4 -q -F -b 4096 -I 256 -m 0", &sleeps);
    let check = [&args[..], &[never.to_str().unwrap(), "--fsck", "500"]].concat();
    let answer = ask(&check, dir.path());
    assert_eq!(answer.code, 1, "{}{}", answer.out, answer.err);
    let (_, recorded) = only_finding(dir.path());
    assert_eq!(recorded["class"].as_str(), Some("hang"), "{}", answer.out);
}

/// A small file system of its own, unmounted at the end.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn new(path: PathBuf, options: &str) -> Tmpfs {
        fs::create_dir(&path).unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "fathom-test"])
            .arg(&path)
            .status();
        assert!(done.unwrap().success());
        Tmpfs(path)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_loses_no_finding() {
    if !is_root() {
        return println!("SKIP a_full_disk_loses_no_finding: needs root");
    }
    let dir = scratch();
    let found: &[&str] = &["check", "model:rmdir-errno", "--ops", "9000", "--seed", "1"];
    let died: &[&str] = &["check", "test:dies-by-segv-after-30", "--ops", "9000", "--seed", "1"];
    for (name, args) in [("one", found), ("two", died)] {
        let out = Tmpfs::new(dir.path().join(name), "size=8k");
        let answer = ask(&[args, &["--out", out.0.to_str().unwrap()]].concat(), dir.path());
        let said = format!("{args:?}: {}{}", answer.out, answer.err);
        assert_eq!(answer.code, 1, "{said}");
        assert!(answer.out.starts_with("finding "), "{said}");
        assert!(said.contains("cannot write it") && said.contains("No space left"), "{said}");
    }
}

#[test]
fn a_bad_output_directory_is_refused_before_the_campaign() {
    let dir = scratch();
    fs::write(dir.path().join("file"), "").unwrap();
    fs::create_dir(dir.path().join("target")).unwrap();
    let mut cases = vec![
        (vec!["check", "model", "--out", "file/x"], "cannot write to file/x"),
        (vec!["crash", "littlefs", "--out", "file/x"], "cannot write to file/x"),
        (vec!["design", "philosophers", "--out", "file"], "cannot write to file"),
        (vec!["check", "dir:target", "--out", "target/y/z"], "lies on the subject"),
        (vec!["check", "dir:target", "--out", "target/../target"], "lies on the subject"),
        (
            vec!["check", "model", "--against", "dir:target", "--out", "target"],
            "lies on the subject",
        ),
    ];
    let read_only = is_root().then(|| Tmpfs::new(dir.path().join("ro"), "ro"));
    if read_only.is_some() {
        cases.push((vec!["check", "model", "--out", "ro/x"], "Read-only file system"));
        cases.push((vec!["check", "model", "--out", "ro"], "Read-only file system"));
    }
    for (args, expected) in cases {
        let began = Instant::now();
        let answer = ask(&args, dir.path());
        assert_eq!(answer.code, 2, "{args:?}: {}{}", answer.out, answer.err);
        assert!(answer.err.contains(expected), "{args:?}: {}", answer.err);
        assert!(began.elapsed() < Duration::from_secs(60), "{args:?} began a campaign");
    }
    assert_eq!(fs::read_dir(dir.path().join("target")).unwrap().count(), 0);
}

/// How many directories there are in an output directory: each is a finding.
fn directories(out: &Path) -> usize {
    let entries = fs::read_dir(out).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_dir()).count()
}

#[test]
fn a_name_that_is_no_text_is_a_directory_like_others() {
    let dir = scratch();
    let out = dir.path().join(OsStr::from_bytes(b"out-\xff\xfe"));
    for args in [
        &["check", "model:rmdir-errno", "--ops", "9000", "--seed", "1"][..],
        &["check", "test:dies-by-segv-after-30", "--ops", "9000", "--seed", "1"],
        &["crash", "littlefs", "--depth", "2", "--mutant", "lost-write"],
        &["design", "journal", "--switch", "no-barrier", "--depth", "3"],
    ] {
        let before = directories(&out);
        let output = piped().args(args).arg("--out").arg(&out).output().unwrap();
        let said = format!("{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(directories(&out) > before, "{said}");
    }
}

#[test]
fn absurd_sizes_are_refused() {
    let dir = scratch();
    let huge = "99999999999";
    let cases: &[&[&str]] = &[
        &["design", "philosophers", "--bitstate-mib", "99999999"],
        &["design", "philosophers", "--bitstate-mib", "18446744073709551615"],
        &["design", "philosophers", "--bitstate-mib", "0"],
        &["design", "philosophers", "--memory-mib", "18446744073709551615"],
        &["design", "philosophers", "--jobs", huge],
        &["design", "philosophers", "--size", "4294967295"],
        &["design", "two-phase", "--size", "4294967295"],
        &["design", "link", "--files", huge],
        &["design", "link", "--blocks", huge],
        &["design", "link", "--threads", huge],
        &["design", "journal", "--files", huge],
        &["crash", "littlefs", "--geometry", "99999999999x256/16"],
        &["crash", "littlefs", "--geometry", "32x99999999999/16"],
        &["crash", "littlefs", "--geometry", "18446744073709551615x2/1"],
        &["crash", "littlefs", "--sizes", huge],
        &["crash", "littlefs", "--jobs", huge],
        &["crash", "littlefs", "--memory-mib", "18446744073709551615"],
        &["check", "model", "--memory-max", "0"],
        &["check", "ext4", "--space", "99999999999G"],
        &["replay", "x", "--memory-max", "many"],
    ];
    for args in cases {
        let began = Instant::now();
        let answer = ask(args, dir.path());
        assert_eq!(answer.code, 2, "{args:?}: {}{}", answer.out, answer.err);
        assert!(
            answer.err.len() > 20 && !answer.err.contains("panicked"),
            "{args:?}: {}",
            answer.err
        );
        assert!(!answer.err.contains("worker was ended"), "{args:?}: {}", answer.err);
        assert!(began.elapsed() < Duration::from_secs(60), "{args:?}");
    }
}

#[test]
fn without_a_supervisor_everything_is_as_it_was() {
    let dir = scratch();
    let args = ["check", "model:rmdir-errno", "--ops", "9000", "--seed", "1", "--json"];
    let (code, mut with) = json(&args, dir.path());
    let output =
        piped().args(args).current_dir(dir.path()).env("FATHOM_NO_SUPERVISOR", "1").output();
    let output = output.unwrap();
    let mut without: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((code, output.status.code()), (1, Some(1)));
    // Seconds are the only thing that may differ.
    for report in [&mut with, &mut without] {
        let seconds = report["findings"][0].as_object_mut().unwrap().remove("at_seconds");
        assert!(seconds.is_some(), "{report}");
    }
    assert_eq!(with["findings"], without["findings"]);
    assert_eq!(with["ops"], without["ops"]);
}
