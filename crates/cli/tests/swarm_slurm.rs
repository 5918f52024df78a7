//! `fathom swarm --on slurm` on a real Slurm of three nodes: one is lost while tasks run, another one is added, a task
//! runs out of memory or time.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::swarm::{files, plan, reasons, value};
use common::{ask, command, json, scratch};
use serde_json::Value;

/// A cluster; it ends with the test.
struct Cluster(PathBuf);

impl Cluster {
    fn script(&self, args: &[&str]) -> bool {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../swarm/slurm/cluster.sh");
        let mut command = Command::new(script);
        command.arg(args[0]).arg(&self.0).args(&args[1..]);
        // What it starts must not hold the output of the test.
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    }

    fn conf(&self) -> PathBuf {
        self.0.join("slurm.conf")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.script(&["stop"]);
    }
}

fn has(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
    found.is_ok_and(|output| output.status.success())
}

fn is_root() -> bool {
    fs::read_to_string("/proc/self/status").is_ok_and(|status| status.contains("\nUid:\t0\t"))
}

const PLAN: &str = "tasks = 6\n[limits]\nmemory = \"200M\"\ntime = \"5m\"\n\
    [[campaign]]\ncommand = \"check model --mutant rmdir-errno --ops 60000\"\n\
    vary = { strategy = [\"tour\", \"walk\"] }\n";

fn result(out: &str, dir: &Path) -> Value {
    let (_, value) =
        json(&["swarm", "merge", &format!("{out}/tasks"), "--out", "merged", "--json"], dir);
    fs::remove_dir_all(dir.join("merged")).unwrap();
    value
}

/// The node of an attempt that runs.
fn busy_node(out: &Path) -> Option<String> {
    for task in fs::read_dir(out.join("tasks")).ok()?.flatten() {
        let attempt = task.path().join("attempt-1");
        if attempt.join("ended.json").exists() || !attempt.join("run.json").exists() {
            continue;
        }
        let runner: Value =
            serde_json::from_slice(&fs::read(attempt.join("runner.json")).ok()?).ok()?;
        return runner["node"].as_str().map(str::to_owned);
    }
    None
}

/// A cluster of three nodes, if that can be had here.
fn cluster(dir: &Path) -> Option<Cluster> {
    let missing = ["slurmctld", "slurmd", "sbatch", "munged"].into_iter().find(|name| !has(name));
    if let Some(missing) = missing {
        println!("SKIP swarm on slurm: {missing} is not installed");
        return None;
    }
    if !is_root() {
        println!("SKIP swarm on slurm: not root");
        return None;
    }
    let cluster = Cluster(dir.join("slurm"));
    assert!(cluster.script(&["start", "3"]), "the cluster starts");
    Some(cluster)
}

/// Starts a swarm on a cluster.
fn start(cluster: &Cluster, text: &str, dir: &Path) -> Child {
    let plan = plan(dir, text);
    let mut swarm = command(&["swarm", &plan, "--on", "slurm", "--out", "swarm"], dir);
    swarm.env("SLURM_CONF", cluster.conf()).stdout(Stdio::null()).stderr(Stdio::null());
    swarm.spawn().unwrap()
}

/// Attempts that run, and those that are over.
fn attempts(out: &Path) -> (usize, usize) {
    let tasks = fs::read_dir(out.join("tasks")).into_iter().flatten().flatten();
    let attempts = tasks.flat_map(|task| fs::read_dir(task.path()).into_iter().flatten().flatten());
    let is_over = |attempt: &PathBuf| attempt.join("ended.json").exists();
    let (over, mut running): (Vec<_>, Vec<_>) =
        attempts.map(|entry| entry.path()).partition(is_over);
    running.retain(|attempt| attempt.join("runner.json").exists());
    // What has not ended by now ran when the last one of them was looked at: all of these ran at one moment.
    running.retain(|attempt| !is_over(attempt));
    (running.len(), over.len())
}

/// Half of the tasks fail and are started again, which are arrays of their own.
const NARROW: &str = "tasks = 6\n[limits]\nmemory = \"200M\"\nat_once = 2\nretries = 1\n\
    [[campaign]]\ncommand = \"check model --ops 30000\"\n\
    [[campaign]]\ncommand = \"check dir:/nowhere\"\nseeds = true\n";

#[test]
fn no_more_tasks_run_than_the_plan_allows() {
    let dir = scratch();
    let Some(cluster) = cluster(dir.path()) else { return };
    let mut swarm = start(&cluster, NARROW, dir.path());
    let (began, out) = (Instant::now(), dir.path().join("swarm"));
    let mut most = 0;
    while swarm.try_wait().unwrap().is_none() {
        most = most.max(attempts(&out).0);
        if began.elapsed() > Duration::from_secs(300) {
            let _ = swarm.kill();
            panic!("{:?} in five minutes", attempts(&out));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    // Six processors are free, and without the limit six would run.
    assert!((1..=2).contains(&most), "{most} at once");
    // Three tasks twice, and three once; on a machine that has no time for its nodes one may be lost and come again.
    let (running, over) = attempts(&out);
    assert!(running == 0 && over >= 9, "{running} run, {over} are over");
}

/// Takes about half a minute: Slurm needs ten seconds to see that a node is lost.
#[test]
fn a_node_is_lost_and_the_result_is_that_of_a_quiet_local_run() {
    let dir = scratch();
    let Some(cluster) = cluster(dir.path()) else { return };
    let mut swarm = start(&cluster, PLAN, dir.path());
    let plan = dir.path().join("plan.toml").display().to_string();
    let (began, out) = (Instant::now(), dir.path().join("swarm"));
    let node = loop {
        if let Some(node) = busy_node(&out) {
            break node;
        }
        assert!(began.elapsed() < Duration::from_secs(90), "no task runs");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(cluster.script(&["kill", &node]));
    assert!(cluster.script(&["node", &node]), "it comes back, as a machine does");
    // The coordinator is killed as well, and started again.
    std::thread::sleep(Duration::from_secs(2));
    swarm.kill().unwrap();
    swarm.wait().unwrap();
    let mut again = command(&["swarm", "resume", "--out", "swarm"], dir.path());
    let again = again.env("SLURM_CONF", cluster.conf()).output().unwrap();
    let told = String::from_utf8_lossy(&again.stdout).into_owned();
    assert_eq!(again.status.code(), Some(1), "{told} {}", String::from_utf8_lossy(&again.stderr));
    assert!(told.contains("6 of 6 tasks over"), "{told}");
    let quiet = ask(&["swarm", &plan, "--out", "quiet"], dir.path());
    assert_eq!(quiet.code, 1, "{} {}", quiet.out, quiet.err);
    assert_eq!(result("swarm", dir.path()), result("quiet", dir.path()));
}

/// A task that goes wrong twice, and another one, on a cluster; what was told.
fn two_tasks(cluster: &Cluster, fault: &str, limits: &str, out: &str, dir: &Path) -> String {
    let text = format!(
        "tasks = 2\n[limits]\nretries = 1\n{limits}\n[[campaign]]\ncommand = \"{fault}\"\n\
         [[campaign]]\ncommand = \"check model --ops 3000\"\n"
    );
    let plan = plan(dir, &text);
    let mut swarm = command(&["swarm", &plan, "--on", "slurm", "--out", out], dir);
    let output = swarm.env("SLURM_CONF", cluster.conf()).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_task_without_memory_or_time_is_named_and_its_neighbour_done() {
    let dir = scratch();
    let Some(cluster) = cluster(dir.path()) else { return };
    let hungry = "check test:fills-a-memory-file-after-500 --ops 100000 --seed 1";
    let endless = "check model --budget 100s --seed 1";
    for (fault, limits, reason, words) in [
        (hungry, "memory = \"96M\"", "memory", "out of memory"),
        (endless, "memory = \"200M\"\ntime = \"3s\"", "time", "out of time"),
    ] {
        let told = two_tasks(&cluster, fault, limits, reason, dir.path());
        let out = dir.path().join(reason);
        let kept_by = value(&files(&out, "ended.json")[0])["kept_by"].clone();
        if reason == "memory" && !kept_by.as_str().unwrap_or_default().contains("control group") {
            println!("SKIP memory on slurm: no control groups can be made here");
            continue;
        }
        let mut ends = reasons(&out);
        ends.sort();
        let mut expected = [reason, reason, "done"];
        expected.sort_unstable();
        assert_eq!(ends, expected, "{told}");
        assert!(told.contains(words) && told.contains("1 started again"), "{told}");
        assert!(told.contains("1 of 2 tasks over") && told.contains("given up"), "{told}");
        assert_eq!(result(reason, dir.path())["runs"], 2, "what was done until then is united");
    }
}

/// More tasks than the three nodes take at a time.
const WIDE: &str = "tasks = 12\n[limits]\nmemory = \"200M\"\ntime = \"5m\"\n\
    [[campaign]]\ncommand = \"check model --mutant rmdir-errno --ops 30000\"\n\
    vary = { strategy = [\"tour\", \"walk\"] }\n";

#[test]
fn a_node_that_is_added_while_tasks_run_takes_some_of_them() {
    let dir = scratch();
    let Some(cluster) = cluster(dir.path()) else { return };
    let mut swarm = start(&cluster, WIDE, dir.path());
    let (began, out) = (Instant::now(), dir.path().join("swarm"));
    while files(&out, "runner.json").is_empty() {
        assert!(began.elapsed() < Duration::from_secs(90), "no task runs");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(cluster.script(&["add", "n9"]));
    assert_eq!(swarm.wait().unwrap().code(), Some(1));
    let nodes: BTreeSet<String> = files(&out, "runner.json")
        .iter()
        .map(|path| value(path)["node"].as_str().unwrap().to_owned())
        .collect();
    assert!(nodes.contains("n9"), "{nodes:?}");
    assert!(nodes.len() >= 2, "{nodes:?}");
    assert_eq!(result("swarm", dir.path())["complete_runs"], 12);
}
