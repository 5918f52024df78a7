//! What Kubernetes needs to run the tasks of a plan: one Job per task, and a claim for the results. Written as
//! JSON, which `kubectl` takes as it takes YAML.
//!
//! The runner of a task finds everything in its pod; the same task started again by Kubernetes is the next
//! attempt. Without `privileged` in the plan a pod has no rights: an ordinary user, no capabilities, and for
//! guests an executable directory in memory.

use serde_json::{Value, json};

use crate::Task;
use crate::directory::TaskFile;
use crate::plan::{KubernetesOptions, Limits, Plan};
use crate::runner::TASK;

/// Where the claim is mounted.
const RESULTS: &str = "/results";

/// Seconds after which a pod on a node that does not answer is replaced; five minutes by default.
const LOST_SECONDS: u64 = 5;

/// Seconds that a finished Job stays.
const KEPT_SECONDS: u64 = 7 * 24 * 3600;

/// Seconds that setting up a pod may take.
const START_SECONDS: u64 = 300;

/// The files by their names.
pub fn manifests(plan: &Plan, tasks: &[Task]) -> Vec<(String, String)> {
    let mut files = vec![("claim.json".to_owned(), text(&claim(&plan.kubernetes)))];
    for task in tasks {
        files.push((format!("job-{}.json", task.name()), text(&job(plan, task))));
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

/// The Job of a task.
fn job(plan: &Plan, task: &Task) -> Value {
    let limits = &plan.limits;
    let attempts = u64::from(limits.retries) + 1;
    let time = limits.time.map_or(3600, |time| time.as_secs().max(1)) + START_SECONDS;
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": format!("fathom-{}", task.name()),
            "namespace": plan.kubernetes.namespace,
            "labels": labels(),
            "annotations": {"fathom/command": task.command_line()},
        },
        "spec": {
            "backoffLimit": limits.retries,
            "activeDeadlineSeconds": time * attempts,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": labels()}, "spec": pod(plan, task)},
        },
    })
}

fn pod(plan: &Plan, task: &Task) -> Value {
    let options = &plan.kubernetes;
    let lost = |what: &str| {
        json!({
            "key": format!("node.kubernetes.io/{what}"), "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": LOST_SECONDS,
        })
    };
    let mut pod = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 30,
        "tolerations": [lost("not-ready"), lost("unreachable")],
        "containers": [container(plan, task)],
        "volumes": [
            {"name": "results", "persistentVolumeClaim": {"claimName": options.claim}},
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

fn container(plan: &Plan, task: &Task) -> Value {
    let (options, limits) = (&plan.kubernetes, &plan.limits);
    let file = TaskFile { task: task.clone(), limits: limits.clone() };
    let file = serde_json::to_string(&file).unwrap_or_default();
    let rights = match plan.privileged {
        true => json!({"privileged": true, "runAsUser": 0}),
        false => json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}),
    };
    json!({
        "name": "task",
        "image": options.image,
        "imagePullPolicy": options.pull_policy,
        "command": ["/usr/bin/fathom", "swarm", "run-task", task.name(), "0", "--out", RESULTS],
        "env": [
            {"name": TASK, "value": file},
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "TMPDIR", "value": "/dev/shm"},
        ],
        "resources": {"requests": resources(limits), "limits": resources(limits)},
        "securityContext": rights,
        "volumeMounts": [
            {"name": "results", "mountPath": RESULTS},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
    })
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
        assert_eq!(container["resources"]["limits"]["memory"], "512Mi");
        assert_eq!(container["resources"]["requests"]["cpu"], "500m");
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(container["securityContext"]["capabilities"]["drop"][0], "ALL");
        assert_eq!(pod["tolerations"][0]["tolerationSeconds"], 5);
        assert!(pod["runtimeClassName"].is_null());
        let name = job["metadata"]["name"].as_str().unwrap();
        assert!(name.len() <= 63 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
    }

    #[test]
    fn rights_are_given_only_if_the_plan_says_so() {
        let pod = made("privileged = true")[1].1["spec"]["template"]["spec"].clone();
        assert_eq!(pod["containers"][0]["securityContext"]["privileged"], true);
        assert!(pod["securityContext"].is_null());
    }
}
