//! `fathom swarm`: a plan becomes tasks, tasks become one result, whatever is killed in between.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::swarm::{files, plan};
use common::{ask, command, json, scratch};
use serde_json::Value;

/// Six quick tasks on the reference with a bug in it.
const BUGGY: &str = "tasks = 6\n[limits]\ncpus = 1\nmemory = \"256M\"\nat_once = 3\n\
    [[campaign]]\ncommand = \"check model --mutant rmdir-errno --ops 4000\"\n\
    vary = { strategy = [\"tour\", \"walk\"], inputs = [\"default\", \"random\"] }\n";

/// What must be the same whatever happened on the way.
fn result(out: &str, dir: &Path) -> Value {
    let tasks = format!("{out}/tasks");
    let (_, mut value) = json(&["swarm", "merge", &tasks, "--out", "merged", "--json"], dir);
    fs::remove_dir_all(dir.join("merged")).unwrap();
    value.as_object_mut().unwrap().remove("seconds");
    value
}

#[test]
fn a_plan_becomes_commands_that_anybody_can_run() {
    let dir = scratch();
    let plan = plan(dir.path(), BUGGY);
    let dry = ask(&["swarm", &plan, "--dry-run"], dir.path());
    assert_eq!(dry.code, 0, "{}", dry.err);
    let lines: Vec<&str> = dry.out.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.len(), 6, "{}", dry.out);
    assert!(dry.out.contains("# unprivileged"), "{}", dry.out);
    assert!(!dir.path().join("fathom-out").exists(), "nothing was made");

    let swarm = ask(&["swarm", &plan, "--out", "swarm"], dir.path());
    assert_eq!(swarm.code, 1, "{} {}", swarm.out, swarm.err);
    assert!(swarm.out.contains("6 of 6 tasks over"), "{}", swarm.out);
    assert!(dir.path().join("swarm/index.html").exists());
    let (_, status) = json(&["swarm", "status", "--out", "swarm", "--json"], dir.path());
    assert_eq!(status["runs"], 6);
    assert_eq!(status["findings"][0]["signature"], "outcome rmdir ENOTEMPTY/EEXIST");
    assert_eq!(status["findings"].as_array().unwrap().len(), 1, "{status}");
    let log = ask(&["swarm", "logs", "2", "--out", "swarm"], dir.path());
    assert!(log.out.contains("rmdir"), "{}", log.out);
    let report = ask(&["report", "swarm/united"], dir.path());
    assert_eq!(report.code, 0, "{}", report.err);

    // By hand, one after the other, in directories of one's own: the same result.
    for (index, line) in lines.iter().enumerate() {
        let out = format!("hand/{index}");
        let mut words: Vec<&str> = line.split(' ').skip(1).collect();
        words.extend(["--out", &out]);
        assert_eq!(ask(&words, dir.path()).code, 1, "{line}");
    }
    fs::create_dir(dir.path().join("by-hand")).unwrap();
    fs::rename(dir.path().join("hand"), dir.path().join("by-hand/tasks")).unwrap();
    assert_eq!(result("swarm", dir.path()), result("by-hand", dir.path()));

    // There is one already.
    let again = ask(&["swarm", &plan, "--out", "swarm"], dir.path());
    assert_eq!(again.code, 2);
    assert!(again.err.contains("resume"), "{}", again.err);
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may be over.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(args: &[&str], dir: &Path) -> Running {
    let mut command = command(args, dir);
    Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(began.elapsed() < Duration::from_secs(60), "waiting for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Tasks that take a moment.
const SLOWER: &str = "tasks = 5\n[limits]\nmemory = \"256M\"\nat_once = 2\n\
    [[campaign]]\ncommand = \"check model --mutant rmdir-errno --ops 40000\"\n\
    vary = { strategy = [\"tour\", \"walk\"] }\n";

#[test]
fn a_killed_coordinator_and_killed_runners_lose_nothing_and_count_nothing_twice() {
    let dir = scratch();
    let plan = plan(dir.path(), SLOWER);
    assert_eq!(ask(&["swarm", &plan, "--out", "quiet"], dir.path()).code, 1);

    let out = dir.path().join("swarm");
    for round in 0..3 {
        let args: &[&str] = match round {
            0 => &["swarm", &plan, "--out", "swarm"],
            _ => &["swarm", "resume", "--out", "swarm"],
        };
        let mut coordinator = start(args, dir.path());
        let before = files(&out, "runner.json").len();
        wait_for("a task", || {
            let over = coordinator.0.try_wait().unwrap().is_some();
            over || files(&out, "runner.json").len() > before
        });
        drop(coordinator);
        // Runners go on without it; the first that still runs is killed too, and its command with it.
        if round == 0 {
            kill_a_runner(&out);
        }
    }
    // As long as somebody holds the lock, another coordinator is refused.
    let lock = fs::File::options().write(true).open(out.join("lock")).unwrap();
    lock.lock().unwrap();
    let second = ask(&["swarm", "resume", "--out", "swarm"], dir.path());
    assert_eq!(second.code, 2, "{} {}", second.out, second.err);
    assert!(second.err.contains("works on it already"), "{}", second.err);
    drop(lock);
    let resumed = ask(&["swarm", "resume", "--out", "swarm"], dir.path());
    assert_eq!(resumed.code, 1, "{} {}", resumed.out, resumed.err);
    assert!(resumed.out.contains("5 of 5 tasks over"), "{}", resumed.out);
    assert_eq!(result("swarm", dir.path()), result("quiet", dir.path()));
}

/// Kills a process that runs a task of this swarm, if there is one.
fn kill_a_runner(out: &Path) {
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        if words.contains("run-task") && words.contains(&out.display().to_string()) {
            let pid: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
            let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
            return;
        }
    }
}

#[test]
fn a_swarm_can_be_stopped_extended_and_continued() {
    let dir = scratch();
    let plan = plan(dir.path(), SLOWER);
    let mut coordinator = start(&["swarm", &plan, "--out", "swarm"], dir.path());
    let out = dir.path().join("swarm");
    wait_for("a task", || !files(&out, "runner.json").is_empty());
    assert_eq!(ask(&["swarm", "stop", "--out", "swarm"], dir.path()).code, 0);
    let code = coordinator.0.wait().unwrap().code();
    assert!(matches!(code, Some(1 | 2)), "{code:?}");
    let added = ask(&["swarm", "add", "2", "--out", "swarm"], dir.path());
    assert!(added.out.contains("2 tasks added"), "{} {}", added.out, added.err);
    let resumed = ask(&["swarm", "resume", "--out", "swarm"], dir.path());
    assert!(resumed.out.contains("7 of 7 tasks over"), "{} {}", resumed.out, resumed.err);
}

#[test]
fn a_swarm_is_extended_and_united_while_it_runs() {
    let dir = scratch();
    let plan = plan(dir.path(), SLOWER);
    let mut coordinator = start(&["swarm", &plan, "--out", "swarm"], dir.path());
    let out = dir.path().join("swarm");
    wait_for("a task", || !files(&out, "run.json").is_empty());
    let added = ask(&["swarm", "add", "2", "--out", "swarm"], dir.path());
    assert!(added.out.contains("2 tasks added"), "{} {}", added.out, added.err);
    // A run comes further, and no run goes away.
    let (mut before, mut looks, mut unfinished) = (0, 0, 0);
    while coordinator.0.try_wait().unwrap().is_none() {
        let now = result("swarm", dir.path());
        let runs = now["runs"].as_u64().unwrap();
        assert!(runs >= before, "{runs} runs after {before}: {now}");
        unfinished += u64::from(now["complete_runs"].as_u64() < Some(7));
        (before, looks) = (runs, looks + 1);
    }
    assert!(unfinished > 0, "{looks} looks, and none while tasks ran");
    assert_eq!(coordinator.0.wait().unwrap().code(), Some(1));
    let (_, status) = json(&["swarm", "status", "--out", "swarm", "--json"], dir.path());
    assert_eq!((&status["tasks"]["found"], &status["runs"]), (&7.into(), &7.into()), "{status}");
    let last = result("swarm", dir.path());
    for key in ["runs", "operations", "states", "partitions_hit"] {
        assert_eq!(last[key], status[key], "{key}");
    }
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_made() {
    let dir = scratch();
    let campaign = "[[campaign]]\ncommand = \"check model --ops 10\"\n";
    let cases = [
        (format!("tasks = 2\ncolour = 1\n{campaign}"), "colour"),
        (format!("tasks = 2\n[limits]\nmemory = \"900T\"\n{campaign}"), "this machine has"),
        (format!("tasks = 2\n[limits]\ncpus = 900\n{campaign}"), "limits.cpus"),
        ("tasks = 2\n[[campaign]]\ncommand = \"check model --opps 10\"\n".to_owned(), "--opps"),
        ("tasks = 2\n[[campaign]]\ncommand = \"check ext4\"\n".to_owned(), "privileged = true"),
        (format!("tasks = 2\n{campaign}vary = {{ strategy = [\"fly\"] }}\n"), "fly"),
    ];
    for (text, word) in cases {
        let plan = plan(dir.path(), &text);
        let answer = ask(&["swarm", &plan, "--out", "swarm"], dir.path());
        assert_eq!(answer.code, 2, "{text}");
        assert!(answer.err.contains(word), "{text}: {}", answer.err);
        assert!(!dir.path().join("swarm").exists(), "{text}");
    }
    let good = plan(dir.path(), &format!("tasks = 2\n{campaign}"));
    let mut no_slurm = command(&["swarm", &good, "--on", "slurm", "--out", "swarm"], dir.path());
    let answer = no_slurm.env("PATH", "/nowhere").output().unwrap();
    assert_eq!(answer.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&answer.stderr).contains("no Slurm here"));
    let full = ask(&["swarm", &good, "--out", "/dev/full/swarm"], dir.path());
    assert_eq!(full.code, 2, "{}", full.err);
    for args in [["swarm", "status"], ["swarm", "resume"], ["swarm", "stop"]] {
        let answer = ask(&[args[0], args[1], "--out", "nothing"], dir.path());
        assert_eq!(answer.code, 2, "{args:?}");
        assert!(answer.err.contains("no swarm"), "{args:?}: {}", answer.err);
    }
    assert_eq!(ask(&["swarm", "merge", "nothing-here"], dir.path()).code, 2);
    assert!(!dir.path().join("swarm").exists());
}

/// A directory without room, which is a small file system in memory: a swarm that cannot be written is not there
/// afterwards, one that has no room later ends with a clear message, and goes on once there is room.
#[test]
fn a_full_directory_starts_nothing_and_loses_nothing() {
    let dir = scratch();
    let plan = plan(dir.path(), BUGGY);
    let program = env!("CARGO_BIN_EXE_fathom");
    let script = format!(
        "mkdir full && mount -t tmpfs -o size=64k none full || {{ echo no rights; exit; }}
        head -c 64k /dev/zero > full/rest
        {program} swarm {plan} --out full/swarm; echo code $?; ls full
        rm full/rest
        {program} swarm {plan} --out full/swarm; echo code $?
        mount -o remount,size=16m full
        {program} swarm resume --out full/swarm; echo code $?"
    );
    let mut alone = std::process::Command::new("unshare");
    alone.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
    let Ok(output) = alone.current_dir(dir.path()).env("NO_COLOR", "1").output() else {
        println!("SKIP a full directory: no unshare");
        return;
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    if out.is_empty() || out.starts_with("no rights") {
        println!("SKIP a full directory: nothing can be mounted here: {err}");
        return;
    }
    assert!(out.starts_with("code 2\nrest\ncode 2\n"), "{out} {err}");
    assert!(err.matches("No space left on device").count() >= 2, "{err}");
    assert!(out.contains("6 of 6 tasks over") && out.ends_with("code 1\n"), "{out} {err}");
}

#[test]
fn manifests_and_an_image_are_written() {
    let dir = scratch();
    let plan = plan(dir.path(), "tasks = 2\n[[campaign]]\ncommand = \"check model --ops 10\"\n");
    let made = ask(&["swarm", &plan, "--manifests", "k8s"], dir.path());
    assert_eq!(made.code, 0, "{}", made.err);
    assert_eq!(fs::read_dir(dir.path().join("k8s")).unwrap().count(), 3);
    let small = dir.path().join("program");
    fs::write(&small, "x").unwrap();
    let image = |name: &str| {
        let program = small.display().to_string();
        let made = ask(&["swarm", "image", "-o", name, "--program", &program], dir.path());
        assert_eq!(made.code, 0, "{}", made.err);
        fs::read(dir.path().join(name)).unwrap()
    };
    assert_eq!(image("a.tar"), image("b.tar"));
}

/// With the program that is tested, its libraries and a tool: all that an image has.
#[test]
fn the_image_of_the_program_is_the_same_byte_for_byte() {
    let dir = scratch();
    let image = |name: &str| {
        let args = ["swarm", "image", "-o", name, "--tool", "sh", "--json"];
        let (code, value) = json(&args, dir.path());
        assert_eq!(code, 0, "{value}");
        value["digest"].as_str().unwrap().to_owned()
    };
    let (one, two) = (image("a.tar"), image("b.tar"));
    assert_eq!(one, two);
    let bytes = |name: &str| fs::read(dir.path().join(name)).unwrap();
    let (one, two) = (bytes("a.tar"), bytes("b.tar"));
    let program = fs::metadata(env!("CARGO_BIN_EXE_fathom")).unwrap().len();
    assert!(one.len() as u64 > program, "{} bytes", one.len());
    assert!(one == two, "the archives differ");
}
