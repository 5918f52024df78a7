//! `fathom swarm --on kubernetes` on a real cluster of three nodes (`cargo xtask setup kubernetes` builds its
//! programs): a node is lost, another one joins, the coordinator is killed, a task runs out of memory or time, an
//! image does not exist, rights are missing, a swarm is stopped; printed manifests are applied, and the coordinator
//! runs inside the cluster.
#![cfg(feature = "kubernetes")]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{ask, command, scratch};
use serde_json::{Value, json};

/// A cluster; it ends with the test.
struct Cluster(PathBuf);

impl Cluster {
    fn script(&self, args: &[&str]) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../swarm/kubernetes/cluster.sh");
        let mut command = Command::new(script);
        command.arg(args[0]).arg(&self.0).args(&args[1..]);
        command
    }

    fn control(&self, args: &[&str]) {
        // What it starts must not hold the output of the test.
        let mut command = self.script(args);
        let status = command.stdout(Stdio::null()).stderr(Stdio::inherit()).status().unwrap();
        assert!(status.success(), "cluster.sh {args:?}");
    }

    /// A command of ours that can ask the cluster.
    fn fathom(&self, args: &[&str], dir: &Path) -> Command {
        let program = command(args, dir);
        let mut inside = self.script(&["run"]);
        inside.arg(program.get_program()).args(program.get_args()).current_dir(dir);
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        inside
    }

    /// The names of all Jobs.
    fn jobs(&self) -> Vec<String> {
        let output = self.script(&["get", "/apis/batch/v1/jobs"]).output().unwrap();
        let list: Value = serde_json::from_slice(&output.stdout).unwrap();
        let names = list["items"].as_array().unwrap().iter();
        names.map(|job| job["metadata"]["name"].as_str().unwrap().to_owned()).collect()
    }

    fn kubectl(&self, args: &[&str]) -> Output {
        self.script(&["run"]).arg("kubectl").args(args).output().unwrap()
    }

    /// A volume that is a directory of this machine, for the claim of that name.
    fn volume(&self, claim: &str, place: &Path) {
        fs::create_dir_all(place).unwrap();
        fs::set_permissions(place, fs::Permissions::from_mode(0o777)).unwrap();
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": claim},
            "spec": {
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"], "capacity": {"storage": "100Gi"},
                "claimRef": {"namespace": "default", "name": claim}, "hostPath": {"path": place},
            },
        });
        let file = place.with_extension("json");
        fs::write(&file, volume.to_string()).unwrap();
        let applied = self.kubectl(&["apply", "-f", &file.display().to_string()]);
        assert!(applied.status.success(), "{}", told(&applied));
    }

    /// Waits until every Job is over.
    fn wait_for_jobs(&self) {
        wait_for("the end of all Jobs", || {
            let output = self.script(&["get", "/apis/batch/v1/jobs"]).output().unwrap();
            let list: Value = serde_json::from_slice(&output.stdout).unwrap();
            let jobs = list["items"].as_array().unwrap();
            let is_over = |job: &Value| {
                let status = &job["status"];
                status["succeeded"].as_u64().or(status["failed"].as_u64()) > Some(0)
            };
            (!jobs.is_empty() && jobs.iter().all(is_over)).then_some(())
        });
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // What is left of a cluster that did not start is ended, too.
        let _ = self.script(&["stop"]).status();
    }
}

/// The programs of Kubernetes, if somebody has built them.
fn programs() -> Option<PathBuf> {
    let told = std::env::var_os("FATHOM_KUBERNETES").map(PathBuf::from);
    let cached =
        std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache/fathom/kubernetes"));
    told.or(cached).filter(|programs| programs.join("kubelet").exists())
}

fn plan(dir: &Path, name: &str, limits: &str, command: &str, kubernetes: &str) -> String {
    let time = if limits.contains("time =") { "" } else { "time = \"5m\"\n" };
    let text = format!(
        "tasks = 6\n[limits]\ncpus = 0.3\n{time}{limits}\n[[campaign]]\ncommand = \"{command}\"\n\
         vary = {{ strategy = [\"tour\", \"walk\"] }}\n[kubernetes]\npull_policy = \"Never\"\n{kubernetes}\n"
    );
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < Duration::from_secs(180), "waiting for {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn result(out: &str, dir: &Path) -> Value {
    let tasks = format!("{out}/tasks");
    let (_, value) = common::json(&["swarm", "merge", &tasks, "--out", "merged", "--json"], dir);
    fs::remove_dir_all(dir.join("merged")).unwrap();
    value
}

/// The node of an attempt that runs, as its results that were fetched meanwhile say.
fn busy_node(out: &Path) -> Option<String> {
    for task in fs::read_dir(out.join("tasks")).ok()?.flatten() {
        let attempt = task.path().join("attempt-1");
        if attempt.join("ended.json").exists() {
            continue;
        }
        let Ok(runner) = fs::read(attempt.join("runner.json")) else { continue };
        let runner: Value = serde_json::from_slice(&runner).ok()?;
        return runner["node"].as_str().map(str::to_owned);
    }
    None
}

fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{} {}", text(&output.stdout), text(&output.stderr))
}

/// One cluster for everything: starting it takes longer than each of the parts.
#[test]
fn tasks_come_to_the_same_result_on_a_cluster_that_loses_and_wins_nodes() {
    let Some(programs) = programs() else {
        println!(
            "SKIP swarm on kubernetes: no programs (cargo xtask setup kubernetes builds them)"
        );
        return;
    };
    let dir = scratch();
    let cluster = Cluster(dir.path().join("cluster"));
    cluster.control(&["start", &programs.display().to_string(), "3"]);
    let image = ask(&["swarm", "image", "-o", "fathom.tar"], dir.path());
    assert_eq!(image.code, 0, "{}", image.err);
    cluster.control(&["image", &dir.path().join("fathom.tar").display().to_string()]);

    a_node_is_lost_one_joins_and_the_coordinator_is_killed(&cluster, dir.path());
    a_task_without_memory_or_time_is_named(&cluster, dir.path());
    an_image_that_is_not_there_starts_nothing(&cluster, dir.path());
    a_swarm_that_is_stopped_keeps_what_it_has(&cluster, dir.path());
    no_cluster_and_no_rights_are_told(&cluster, dir.path());
    if cluster.kubectl(&["version", "--client"]).status.success() {
        printed_manifests_are_taken(&cluster, dir.path());
        a_coordinator_runs_inside_the_cluster(&cluster, dir.path());
    } else {
        println!("SKIP manifests of kubernetes: no kubectl (Debian package kubernetes-client)");
    }
}

const BUGGY: &str = "check model --mutant rmdir-errno --ops 60000";

fn a_node_is_lost_one_joins_and_the_coordinator_is_killed(cluster: &Cluster, dir: &Path) {
    let plan = plan(dir, "plan.toml", "memory = \"200M\"", BUGGY, "");
    let args = ["swarm", &plan, "--on", "kubernetes", "--out", "swarm"];
    let mut swarm = cluster.fathom(&args, dir);
    let mut swarm = swarm.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let node = wait_for("a task that runs", || busy_node(&dir.join("swarm")));
    cluster.control(&["kill", &node]);
    cluster.control(&["node", "n4"]);
    swarm.kill().unwrap();
    swarm.wait().unwrap();
    let again = cluster.fathom(&["swarm", "resume", "--out", "swarm"], dir).output().unwrap();
    assert_eq!(again.status.code(), Some(1), "{}", told(&again));
    assert!(told(&again).contains("6 of 6 tasks over"), "{}", told(&again));
    let quiet = ask(&["swarm", &plan, "--out", "quiet"], dir);
    assert_eq!(quiet.code, 1, "{} {}", quiet.out, quiet.err);
    assert_eq!(result("swarm", dir), result("quiet", dir));
    assert_eq!(cluster.jobs(), Vec::<String>::new(), "nothing is left in the cluster");
}

/// Why the first attempts ended.
fn reasons(out: &Path) -> Vec<Value> {
    let tasks = fs::read_dir(out.join("tasks")).unwrap().flatten();
    tasks
        .map(|task| fs::read(task.path().join("attempt-1/ended.json")).unwrap())
        .map(|text| serde_json::from_slice::<Value>(&text).unwrap()["reason"].clone())
        .collect()
}

fn a_task_without_memory_or_time_is_named(cluster: &Cluster, dir: &Path) {
    let endless = "check model --ops 100000000";
    // Memory that belongs to no process: its own supervisor would end a process first, and call that a finding.
    let hungry = "check test:fills-a-memory-file-after-500 --ops 100000000";
    for (command, limits, reason) in [
        (hungry, "memory = \"64M\"\nretries = 0", "memory"),
        (endless, "memory = \"500M\"\ntime = \"8s\"\nretries = 0", "time"),
    ] {
        let plan = plan(dir, &format!("{reason}.toml"), limits, command, "");
        let output = cluster
            .fathom(&["swarm", &plan, "--on", "kubernetes", "--out", reason, "--json"], dir)
            .output()
            .unwrap();
        // If the kernel ends the worker and not its supervisor, the death is a finding as well.
        let code = output.status.code();
        assert!(code == Some(2) || code == Some(1) && reason == "memory", "{}", told(&output));
        assert_eq!(reasons(&dir.join(reason)), vec![Value::from(reason); 6]);
        // What each had left until then is here.
        let left = result(reason, dir);
        assert_eq!(left["runs"], 6);
        assert!(reason == "memory" || left["operations"].as_u64().unwrap() > 0, "{left}");
        assert_eq!(cluster.jobs(), Vec::<String>::new());
    }
}

fn an_image_that_is_not_there_starts_nothing(cluster: &Cluster, dir: &Path) {
    let plan = plan(dir, "image.toml", "memory = \"200M\"", BUGGY, "image = \"missing:1\"");
    let args = ["swarm", &plan, "--on", "kubernetes", "--out", "image"];
    let output = cluster.fathom(&args, dir).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("missing:1"), "{}", told(&output));
    wait_for("an empty cluster", || cluster.jobs().is_empty().then_some(()));
    // A namespace that does not exist is refused before anything is made.
    let plan = self::plan(dir, "space.toml", "", BUGGY, "namespace = \"nowhere\"");
    let args = ["swarm", &plan, "--on", "kubernetes", "--out", "space"];
    let output = cluster.fathom(&args, dir).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", told(&output));
    assert!(told(&output).contains("nowhere"), "{}", told(&output));
    assert!(!dir.join("space").exists());
}

fn a_swarm_that_is_stopped_keeps_what_it_has(cluster: &Cluster, dir: &Path) {
    let plan = plan(dir, "long.toml", "memory = \"500M\"", "check model --ops 3000000", "");
    let args = ["swarm", &plan, "--on", "kubernetes", "--out", "long"];
    let mut swarm = cluster.fathom(&args, dir);
    let mut swarm = swarm.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("a task that runs", || busy_node(&dir.join("long")));
    assert_eq!(ask(&["swarm", "stop", "--out", "long"], dir).code, 0);
    assert_eq!(swarm.wait().unwrap().code(), Some(2));
    assert!(result("long", dir)["operations"].as_u64().unwrap() > 0);
    wait_for("an empty cluster", || cluster.jobs().is_empty().then_some(()));
}

fn no_cluster_and_no_rights_are_told(cluster: &Cluster, dir: &Path) {
    let plan = plan(dir, "none.toml", "", BUGGY, "");
    let args = ["swarm", &plan, "--on", "kubernetes", "--out", "none"];
    let mut without = command(&args, dir);
    let without = without.env("KUBECONFIG", dir.join("no-such-file")).output().unwrap();
    assert_eq!(without.status.code(), Some(2));
    assert!(told(&without).contains("no Kubernetes here"), "{}", told(&without));
    // A node may not make Jobs.
    let mut as_a_node = cluster.script(&["run", "env"]);
    as_a_node.arg(format!("KUBECONFIG={}", cluster.0.join("n1.kubeconfig").display()));
    let refused = as_a_node.arg(env!("CARGO_BIN_EXE_fathom")).args(args).current_dir(dir);
    let refused = refused.output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", told(&refused));
    assert!(told(&refused).contains("needed: jobs create"), "{}", told(&refused));
    assert!(!dir.join("none").exists());
    assert_eq!(cluster.jobs(), Vec::<String>::new());
}

/// `--manifests` and `kubectl apply`: tasks write to a claim, and a copy of it is united.
fn printed_manifests_are_taken(cluster: &Cluster, dir: &Path) {
    let plan = plan(dir, "printed.toml", "memory = \"200M\"", BUGGY, "claim = \"printed\"");
    let printed = ask(&["swarm", &plan, "--manifests", "manifests"], dir);
    assert_eq!(printed.code, 0, "{}", printed.err);
    cluster.volume("printed", &dir.join("printed"));
    let manifests = dir.join("manifests").display().to_string();
    let applied = cluster.kubectl(&["apply", "-f", &manifests]);
    assert!(applied.status.success(), "{}", told(&applied));
    cluster.wait_for_jobs();
    assert_eq!(result("printed", dir), result("quiet", dir));
    let deleted = cluster.kubectl(&["delete", "-f", &manifests]);
    assert!(deleted.status.success(), "{}", told(&deleted));
}

/// `crates/swarm/kubernetes/coordinator.yaml` with the plan of this test, and with the network of the node: this
/// cluster has no addresses of services.
fn a_coordinator_runs_inside_the_cluster(cluster: &Cluster, dir: &Path) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../swarm/kubernetes/coordinator.yaml");
    let text = fs::read_to_string(file).unwrap();
    let plan = plan(dir, "inside.toml", "memory = \"200M\"", BUGGY, "");
    let plan = fs::read_to_string(plan).unwrap();
    let plan: String = plan.lines().map(|line| format!("    {line}\n")).collect();
    let (before, rest) = text.split_once("  plan.toml: |\n").unwrap();
    let after = rest.split_once("---\n").unwrap().1;
    let here = "env: [{name: KUBERNETES_SERVICE_HOST, value: 10.77.0.1}, \
                {name: KUBERNETES_SERVICE_PORT, value: \"6443\"}]";
    let text =
        format!("{before}  plan.toml: |\n{plan}---\n{after}").replace("env: []", here).replace(
            "      restartPolicy: Never\n",
            "      restartPolicy: Never\n      hostNetwork: true\n",
        );
    let file = dir.join("coordinator.yaml");
    fs::write(&file, text).unwrap();
    cluster.volume("fathom-swarm", &dir.join("inside"));
    let applied = cluster.kubectl(&["apply", "-f", &file.display().to_string()]);
    assert!(applied.status.success(), "{}", told(&applied));
    wait_for("the coordinator", || (cluster.jobs().len() > 1).then_some(()));
    cluster.wait_for_jobs();
    assert_eq!(cluster.jobs(), ["fathom-swarm"], "its tasks have gone");
    let log = told(&cluster.kubectl(&["logs", "job/fathom-swarm"]));
    assert!(log.contains("6 of 6 tasks over"), "{log}");
    assert_eq!(result("inside/swarm", dir), result("quiet", dir));
    cluster.kubectl(&["delete", "-f", &file.display().to_string()]);
}
