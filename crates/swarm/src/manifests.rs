//! What Kubernetes needs to run the tasks of a plan: one Job per task, and a claim for the results. Written as
//! JSON, which `kubectl` takes as it takes YAML.
//!
//! The runner of a task finds everything in its pod; the same task started again by Kubernetes is the next
//! attempt. Without `privileged` in the plan a pod has no rights: an ordinary user, no capabilities, and for
//! guests an executable directory in memory.

use serde_json::{Value, json};

use crate::Task;
use crate::directory::TaskFile;
use crate::plan::{KubernetesOptions, Limits, Plan, Results};
use crate::runner::TASK;

/// Where results are written.
pub(crate) const RESULTS: &str = "/results";

/// The program in the image.
pub(crate) const PROGRAM: &str = "/usr/bin/fathom";

/// The container that runs the task.
pub(crate) const TASK_CONTAINER: &str = "task";

/// The container that keeps results until they are fetched.
pub(crate) const KEEPER_CONTAINER: &str = "keeper";

/// Labels of what belongs to a coordinator: its swarm, the task, the number of the attempt.
pub(crate) const SWARM_LABEL: &str = "fathom/swarm";
pub(crate) const TASK_LABEL: &str = "fathom/task";
pub(crate) const ATTEMPT_LABEL: &str = "fathom/attempt";

/// Seconds after which a pod on a node that does not answer is replaced; five minutes by default.
const LOST_SECONDS: u64 = 5;

/// Seconds that a finished Job stays.
const KEPT_SECONDS: u64 = 7 * 24 * 3600;

/// Seconds that setting up a pod may take.
const START_SECONDS: u64 = 300;

/// Seconds that results wait for a coordinator that is gone.
const KEEP_SECONDS: u64 = 3600;

/// What a keeper needs.
const KEEPER_MEMORY: u64 = 64 << 20;

/// What the runner of a task needs beside its command.
const RUNNER_MEMORY: u64 = 32 << 20;

/// Who counts the attempts of a task.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Counted<'a> {
    /// Kubernetes alone: a pod that is started again is the next attempt.
    ByPods,
    /// A coordinator: one Job per attempt of this swarm.
    #[cfg_attr(
        not(feature = "kubernetes"),
        allow(dead_code, reason = "only the engine of that feature counts attempts")
    )]
    ByCoordinator { swarm: &'a str, attempt: u32 },
}

/// The files by their names.
pub fn manifests(plan: &Plan, tasks: &[Task]) -> Vec<(String, String)> {
    let mut files = vec![("claim.json".to_owned(), text(&claim(&plan.kubernetes)))];
    for task in tasks {
        files.push((format!("job-{}.json", task.name()), text(&job(plan, task, Counted::ByPods))));
    }
    files
}

fn text(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": "fathom", "app.kubernetes.io/component": "swarm-task"})
}

/// The claim that all tasks write to.
fn claim(options: &KubernetesOptions) -> Value {
    let mut spec = json!({
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": bytes(options.claim_size)}},
    });
    if let Some(class) = &options.storage_class {
        spec["storageClassName"] = json!(class);
    }
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": options.claim, "namespace": options.namespace, "labels": labels()},
        "spec": spec,
    })
}

/// The name of a Job.
pub(crate) fn job_name(task: &str, counted: Counted<'_>) -> String {
    match counted {
        Counted::ByPods => format!("fathom-{task}"),
        Counted::ByCoordinator { swarm, attempt } => format!("fathom-{swarm}-{task}-{attempt}"),
    }
}

/// The Job of a task, or of one attempt.
pub(crate) fn job(plan: &Plan, task: &Task, counted: Counted<'_>) -> Value {
    let limits = &plan.limits;
    let mut labels = labels();
    let mut time = limits.time.map_or(3600, |time| time.as_secs().max(1)) + START_SECONDS;
    match counted {
        Counted::ByPods => time *= u64::from(limits.retries) + 1,
        Counted::ByCoordinator { swarm, attempt } => {
            time += KEEP_SECONDS;
            labels[SWARM_LABEL] = json!(swarm);
            labels[TASK_LABEL] = json!(task.name());
            labels[ATTEMPT_LABEL] = json!(attempt.to_string());
        }
    }
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": job_name(&task.name(), counted),
            "namespace": plan.kubernetes.namespace,
            "labels": labels,
            "annotations": {"fathom/command": task.command_line()},
        },
        "spec": {
            "backoffLimit": limits.retries,
            "activeDeadlineSeconds": time,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": pod(plan, task, counted)},
        },
    })
}

/// Whether the results stay in the pod until they are fetched.
fn are_fetched(plan: &Plan, counted: Counted<'_>) -> bool {
    matches!(counted, Counted::ByCoordinator { .. }) && plan.kubernetes.results == Results::Api
}

fn pod(plan: &Plan, task: &Task, counted: Counted<'_>) -> Value {
    let options = &plan.kubernetes;
    let lost = |what: &str| {
        json!({
            "key": format!("node.kubernetes.io/{what}"), "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": LOST_SECONDS,
        })
    };
    let mut containers = vec![task_container(plan, task, counted)];
    let results = match counted {
        Counted::ByCoordinator { attempt, .. } if are_fetched(plan, counted) => {
            containers.push(keeper(plan, task, attempt));
            json!({"name": "results", "emptyDir": {"sizeLimit": bytes(2 * plan.limits.disk)}})
        }
        _ => json!({"name": "results", "persistentVolumeClaim": {"claimName": options.claim}}),
    };
    let mut pod = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 30,
        "tolerations": [lost("not-ready"), lost("unreachable")],
        "containers": containers,
        "volumes": [
            results,
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": bytes(plan.limits.memory)}},
        ],
    });
    if !plan.privileged {
        pod["securityContext"] = json!({
            "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        });
    }
    if !options.node_selector.is_empty() {
        pod["nodeSelector"] = json!(options.node_selector);
    }
    if !options.pull_secrets.is_empty() {
        let named = |name: &String| json!({"name": name});
        pod["imagePullSecrets"] = options.pull_secrets.iter().map(named).collect();
    }
    if let Some(class) = &options.runtime_class {
        pod["runtimeClassName"] = json!(class);
    }
    pod
}

/// A container without rights.
fn container(plan: &Plan, name: &str, command: &[&str], limits: &Limits) -> Value {
    json!({
        "name": name,
        "image": plan.kubernetes.image,
        "imagePullPolicy": plan.kubernetes.pull_policy,
        "command": command,
        "resources": {"requests": resources(limits), "limits": resources(limits)},
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "results", "mountPath": RESULTS}],
    })
}

fn task_container(plan: &Plan, task: &Task, counted: Counted<'_>) -> Value {
    let file = TaskFile { task: task.clone(), limits: plan.limits.clone() };
    let file = serde_json::to_string(&file).unwrap_or_default();
    let attempt = match counted {
        Counted::ByPods => 0,
        Counted::ByCoordinator { attempt, .. } => attempt,
    };
    let (name, attempt) = (task.name(), attempt.to_string());
    let command = [PROGRAM, "swarm", "run-task", &name, &attempt, "--out", RESULTS];
    let limits = Limits { memory: plan.limits.memory + RUNNER_MEMORY, ..plan.limits.clone() };
    let mut container = container(plan, TASK_CONTAINER, &command, &limits);
    container["env"] = json!([
        {"name": TASK, "value": file},
        {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "TMPDIR", "value": "/dev/shm"},
    ]);
    container["volumeMounts"] = json!([
        {"name": "results", "mountPath": RESULTS},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]);
    if plan.privileged {
        container["securityContext"] = json!({"privileged": true, "runAsUser": 0});
    }
    container
}

/// The container that outlives the task, whatever ends it: out of memory, for example.
fn keeper(plan: &Plan, task: &Task, attempt: u32) -> Value {
    let (name, attempt) = (task.name(), attempt.to_string());
    let command = [PROGRAM, "swarm", "keep", &name, &attempt, "--out", RESULTS];
    let limits = Limits { cpus: 0.05, memory: KEEPER_MEMORY, ..plan.limits.clone() };
    container(plan, KEEPER_CONTAINER, &command, &limits)
}

fn resources(limits: &Limits) -> Value {
    json!({
        "cpu": format!("{}m", (limits.cpus * 1000.0).ceil() as u64),
        "memory": bytes(limits.memory),
        "ephemeral-storage": bytes(limits.disk),
    })
}

/// A size as Kubernetes writes it.
fn bytes(bytes: u64) -> String {
    format!("{}Mi", bytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use super::*;
    use crate::Tasks;

    fn made(more: &str) -> Vec<(String, Value)> {
        let text = format!(
            "tasks = 3\n{more}\n[limits]\ncpus = 0.5\nmemory = \"512M\"\nretries = 1\ntime = \"60s\"\n\
             [[campaign]]\ncommand = \"check model --ops 100\"\n"
        );
        let plan = Plan::parse(&text).unwrap();
        let tasks: Vec<Task> = Tasks::new(&plan).unwrap().collect();
        let files = manifests(&plan, &tasks).into_iter();
        files.map(|(name, text)| (name, serde_json::from_str(&text).unwrap())).collect()
    }

    #[test]
    fn every_task_is_a_job_with_its_limits_and_without_rights() {
        let files = made("");
        assert_eq!(files.len(), 4);
        let job = &files[1].1;
        let pod = &job["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        assert_eq!(job["spec"]["activeDeadlineSeconds"], 720);
        // The runner has its own share, so that its command comes to the limit first.
        assert_eq!(container["resources"]["limits"]["memory"], "544Mi");
        assert_eq!(container["resources"]["requests"]["cpu"], "500m");
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
        assert_eq!(pod["tolerations"][0]["tolerationSeconds"], 5);
        assert!(pod["runtimeClassName"].is_null());
        assert_eq!(pod["containers"].as_array().unwrap().len(), 1);
        let name = job["metadata"]["name"].as_str().unwrap();
        assert!(name.len() <= 63 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
    }

    #[test]
    fn rights_are_given_only_if_the_plan_says_so() {
        let pod = made("privileged = true")[1].1["spec"]["template"]["spec"].clone();
        assert_eq!(pod["containers"][0]["securityContext"]["privileged"], true);
        assert!(pod["securityContext"].is_null());
    }

    #[test]
    fn results_of_a_coordinator_are_kept_in_the_pod_unless_there_is_a_claim() {
        let text = "tasks = 1\n[[campaign]]\ncommand = \"check model --ops 100\"\n";
        let counted = Counted::ByCoordinator { swarm: "abc", attempt: 2 };
        let pod = |text: &str| {
            let plan = Plan::parse(text).unwrap();
            let task = Tasks::new(&plan).unwrap().next().unwrap();
            let job = job(&plan, &task, counted);
            assert_eq!(job["metadata"]["labels"][ATTEMPT_LABEL], "2");
            job["spec"]["template"]["spec"].clone()
        };
        let fetched = pod(text);
        assert_eq!(fetched["containers"][1]["name"], KEEPER_CONTAINER);
        assert!(fetched["volumes"][0]["persistentVolumeClaim"].is_null());
        let claimed = pod(&format!("{text}[kubernetes]\nresults = \"claim\"\n"));
        assert_eq!(claimed["containers"].as_array().unwrap().len(), 1);
        assert_eq!(claimed["volumes"][0]["persistentVolumeClaim"]["claimName"], "fathom-swarm");
    }

    /// Every kind of object that is made: with and without rights, with every option of a plan, for people and
    /// for a coordinator.
    fn all_kinds() -> Vec<Value> {
        let limits = "[limits]\ncpus = 0.5\nmemory = \"512M\"\n";
        let campaign = "[[campaign]]\ncommand = \"check model --ops 100\"\n";
        let options = "[kubernetes]\nnamespace = \"swarms\"\nruntime_class = \"kata\"\n\
            storage_class = \"fast\"\npull_policy = \"Never\"\npull_secrets = [\"secret\"]\n\
            node_selector = { disk = \"ssd\" }\n";
        let claim = "[kubernetes]\nresults = \"claim\"\n";
        let counted = Counted::ByCoordinator { swarm: "abc", attempt: 2 };
        let mut objects = Vec::new();
        for (head, tail) in [("", ""), ("privileged = true\n", ""), ("", options), ("", claim)] {
            let plan = Plan::parse(&format!("tasks = 1\n{head}{limits}{campaign}{tail}")).unwrap();
            let tasks: Vec<Task> = Tasks::new(&plan).unwrap().collect();
            let files = manifests(&plan, &tasks).into_iter();
            objects.extend(files.map(|(_, text)| serde_json::from_str(&text).unwrap()));
            objects.push(job(&plan, &tasks[0], counted));
        }
        objects
    }

    /// The validator that `cargo xtask setup kubernetes` installs, or the one that is in the path.
    fn validator() -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let home = std::env::var_os("HOME").unwrap_or_default();
        let cached = Path::new(&home).join(".cache/fathom/kubernetes-validate/bin");
        let places = std::env::split_paths(&path).chain([cached]);
        places.map(|place| place.join("kubernetes-validate")).find(|program| program.exists())
    }

    /// Against the schemas of all versions that the validator knows; unknown fields are errors.
    #[test]
    fn the_schemas_of_newer_versions_know_every_field() {
        let Some(validator) = validator() else {
            println!("SKIP: no kubernetes-validate (cargo xtask setup kubernetes installs it)");
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let validate = |version: &str, files: &[PathBuf]| {
            let mut command = Command::new(&validator);
            command.args(["-k", version, "--strict", "--quiet"]).args(files);
            let output = command.output().unwrap();
            let told = [output.stdout, output.stderr].concat();
            (output.status.code(), String::from_utf8_lossy(&told).into_owned())
        };
        let mut files = Vec::new();
        for (index, object) in all_kinds().iter().enumerate() {
            files.push(dir.path().join(format!("{index}.json")));
            std::fs::write(&files[index], text(object)).unwrap();
        }
        let newest = (25..).map(|minor| format!("1.{minor}.0")).map_while(|version| {
            let (code, told) = validate(&version, &files);
            // The first version that it does not know.
            (code != Some(2)).then(|| assert_eq!(code, Some(0), "{version}: {told}"))?;
            Some(version)
        });
        let newest = newest.last().expect("it knows 1.25");
        println!("{} objects are valid from 1.25.0 to {newest}", files.len());

        // The validator would have seen a field that does not exist.
        let mut wrong = all_kinds()[1].clone();
        wrong["spec"]["backofLimit"] = json!(1);
        std::fs::write(&files[0], text(&wrong)).unwrap();
        let (code, told) = validate(&newest, &files[..1]);
        assert_eq!(code, Some(1), "{told}");
        assert!(told.contains("backofLimit"), "{told}");
    }
}
