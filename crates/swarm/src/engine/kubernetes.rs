//! Kubernetes: one Job per attempt, through the API of the cluster.
//!
//! Results come back as the plan says: from the pods, by executing `fathom swarm hand-over` in the container
//! that keeps them (live while a task runs, and a last time when it is over), or by a claim that is also the
//! directory of the coordinator. A Job is deleted once its results are here, so that a swarm that is over leaves
//! nothing in the cluster. A pod whose node is lost is replaced by Kubernetes and runs the same attempt again.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{AttachParams, DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use tokio::io::AsyncReadExt as _;
use tokio::runtime::Runtime;
use twox_hash::XxHash64;

use super::{Engine, Order, Seen};
use crate::SwarmError;
use crate::directory::SwarmDirectory;
use crate::ended::Reason;
use crate::hand_over::take_over;
use crate::manifests::{
    ATTEMPT_LABEL, Counted, KEEPER_CONTAINER, PROGRAM, RESULTS, SWARM_LABEL, TASK_CONTAINER,
    TASK_LABEL, job, job_name,
};
use crate::plan::{Limits, Plan, Results};

/// Jobs that wait or run at the same time.
const CAPACITY: usize = 10_000;

/// Objects of one page of a list.
const PAGE: u32 = 500;

/// Time for a cluster to answer.
const ANSWER: Duration = Duration::from_secs(30);

/// Time for fetching the results of one task.
const FETCH: Duration = Duration::from_secs(120);

/// Time between two looks into the results of a task that runs, and how many are looked at at a time: most of
/// a coordinator's time is for those that are over.
const LIVE_EVERY: Duration = Duration::from_secs(10);
const LIVE_AT_A_TIME: usize = 4;

/// Time after which a pod that Kubernetes calls not ready, although its containers run, is given up: its node does
/// not answer. A cluster may take its time to replace such pods, or not do it at all while it doubts itself.
const UNREADY_MAX: Duration = Duration::from_secs(20);

/// Runs tasks as Jobs of Kubernetes.
pub struct Kubernetes {
    directory: SwarmDirectory,
    plan: Plan,
    runtime: Runtime,
    client: Client,
    /// When the results of a running task were fetched last.
    fetched: BTreeMap<String, Instant>,
    /// Since when a task is in a pod whose node does not answer.
    unready: BTreeMap<String, Instant>,
}

/// What the cluster shows of an attempt.
#[derive(Debug, PartialEq)]
enum Shown {
    /// Nothing runs yet.
    Waiting,
    /// It cannot run anywhere, and why.
    Hopeless(String),
    /// The task runs in this pod.
    Running(String),
    /// The task ran in a pod whose node does not answer any more.
    Unready,
    /// The task is over in this pod: how, if its runner should have said nothing.
    Over(String, Reason, String),
    /// The attempt is gone with its pod.
    Gone(Reason, String),
}

impl Kubernetes {
    /// Asks whether there is a cluster that takes the tasks of this plan. Nothing is started.
    ///
    /// # Errors
    /// If there is none, it does not answer, or it refuses the first task.
    pub fn new(directory: &SwarmDirectory, plan: &Plan) -> Result<Kubernetes, SwarmError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| SwarmError::Other(format!("cannot start a runtime: {error}")))?;
        let client = runtime.block_on(Client::try_default()).map_err(|error| {
            SwarmError::Other(format!(
                "no Kubernetes here: {} (is KUBECONFIG right, or does this run in a pod with a service \
                 account?)",
                innermost(&error)
            ))
        })?;
        let kubernetes = Kubernetes {
            directory: directory.clone(),
            plan: plan.clone(),
            runtime,
            client,
            fetched: BTreeMap::new(),
            unready: BTreeMap::new(),
        };
        kubernetes.try_a_task()?;
        kubernetes.delete_what_is_over()?;
        Ok(kubernetes)
    }

    /// Has the cluster check a Job without making it: the namespace, our rights, and every field.
    fn try_a_task(&self) -> Result<(), SwarmError> {
        let Some(task) = crate::Tasks::new(&self.plan)?.next() else { return Ok(()) };
        let job = self.job(&Order { task, attempt: 1 }, "trial")?;
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        self.ask(async { self.api::<Job>().create(&dry, &job).await.map(drop) })
    }

    /// Deletes Jobs whose results are here: a coordinator was ended between fetching and deleting.
    fn delete_what_is_over(&self) -> Result<(), SwarmError> {
        let Ok(swarm) = self.swarm() else { return Ok(()) };
        for job in self.list::<Job>(&swarm)? {
            let Some((name, attempt)) = label_of(&job.metadata) else { continue };
            if self.directory.ended(&name, attempt).is_some() {
                self.delete(&name, attempt)?;
            }
        }
        Ok(())
    }

    /// The label of everything that belongs to this swarm.
    fn swarm(&self) -> Result<String, SwarmError> {
        let path = std::fs::canonicalize(self.directory.path())
            .map_err(|error| SwarmError::io(self.directory.path(), "find it", error))?;
        let started = self.directory.state()?.started_ms;
        let digest = XxHash64::oneshot(started, path.as_os_str().as_encoded_bytes());
        Ok(format!("{:012x}", digest >> 16))
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.plan.kubernetes.namespace)
    }

    /// Waits for an answer of the cluster.
    fn ask<T>(&self, question: impl Future<Output = kube::Result<T>>) -> Result<T, SwarmError> {
        self.runtime.block_on(async {
            match tokio::time::timeout(ANSWER, question).await {
                Ok(answer) => answer.map_err(|error| told(&error)),
                Err(_) => Err(SwarmError::Other("Kubernetes does not answer".to_owned())),
            }
        })
    }

    fn job(&self, order: &Order, swarm: &str) -> Result<Job, SwarmError> {
        let counted = Counted::ByCoordinator { swarm, attempt: order.attempt };
        serde_json::from_value(job(&self.plan, &order.task, counted))
            .map_err(|error| SwarmError::Other(format!("a Job of Kubernetes: {error}")))
    }

    /// Everything of one kind that belongs to the swarm.
    fn list<K>(&self, swarm: &str) -> Result<Vec<K>, SwarmError>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + DeserializeOwned,
        K::DynamicType: Default,
    {
        let mut all = Vec::new();
        let mut page = ListParams::default().labels(&format!("{SWARM_LABEL}={swarm}")).limit(PAGE);
        loop {
            let list = self.ask(async { self.api::<K>().list(&page).await })?;
            all.extend(list.items);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    /// Deletes a Job and its pods; one that is gone already is as good.
    fn delete(&self, name: &str, attempt: u32) -> Result<(), SwarmError> {
        let swarm = self.swarm()?;
        let job = job_name(name, Counted::ByCoordinator { swarm: &swarm, attempt });
        self.ask(async {
            match self.api::<Job>().delete(&job, &DeleteParams::background()).await {
                Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                answer => answer.map(drop),
            }
        })
    }

    /// Executes a command of ours in the keeper of a pod; what it prints.
    fn execute(&self, pod: &str, words: &[&str]) -> Result<Vec<u8>, SwarmError> {
        let words: Vec<&str> = [PROGRAM, "swarm"].iter().chain(words).copied().collect();
        // An archive is a little larger than what is in it.
        let most = 2 * self.plan.limits.disk + (64 << 20);
        let fetch = async {
            let params = AttachParams::default().container(KEEPER_CONTAINER).stdin(false);
            let params = params.stdout(true).stderr(true).max_stdout_buf_size(1 << 16);
            let mut process =
                self.api::<Pod>().exec(pod, words, &params).await.map_err(|error| told(&error))?;
            let (stdout, stderr) = (process.stdout(), process.stderr());
            let status = process.take_status();
            let errors = tokio::spawn(async move {
                let mut text = String::new();
                if let Some(stderr) = stderr {
                    // What cannot be read is not told.
                    let _ = stderr.take(4096).read_to_string(&mut text).await;
                }
                text
            });
            let mut bytes = Vec::new();
            if let Some(stdout) = stdout {
                let read = stdout.take(most + 1).read_to_end(&mut bytes).await;
                read.map_err(|error| SwarmError::Other(format!("pod {pod}: {error}")))?;
            }
            if bytes.len() as u64 > most {
                return Err(SwarmError::Other(format!("pod {pod}: its results are too large")));
            }
            let status = match status {
                Some(status) => status.await,
                None => None,
            };
            match status.and_then(|status| status.status).as_deref() {
                Some("Success") => Ok(bytes),
                _ => {
                    let errors = errors.await.unwrap_or_default();
                    Err(SwarmError::Other(format!("pod {pod}: {}", errors.trim())))
                }
            }
        };
        self.runtime.block_on(async {
            let late = || SwarmError::Other(format!("pod {pod} does not hand its results over"));
            tokio::time::timeout(FETCH, fetch).await.unwrap_or_else(|_| Err(late()))
        })
    }

    /// Fetches what a task has left so far.
    fn fetch(&mut self, name: &str, attempt: u32, pod: &str) -> Result<(), SwarmError> {
        self.fetched.insert(name.to_owned(), Instant::now());
        if self.plan.kubernetes.results == Results::Claim {
            return Ok(());
        }
        let number = attempt.to_string();
        let archive = self.execute(pod, &["hand-over", name, &number, "--out", RESULTS])?;
        take_over(&self.directory, name, attempt, &archive)
    }

    /// Turns what the cluster shows of an attempt into what the coordinator has to know.
    fn see(&mut self, name: &str, attempt: u32, shown: Shown) -> Result<Seen, SwarmError> {
        if shown != Shown::Unready {
            self.unready.remove(name);
        }
        match shown {
            Shown::Waiting => Ok(Seen::Waiting),
            Shown::Unready => {
                let since = *self.unready.entry(name.to_owned()).or_insert_with(Instant::now);
                if since.elapsed() < UNREADY_MAX {
                    return Ok(Seen::Running);
                }
                self.unready.remove(name);
                self.delete(name, attempt)?;
                Ok(Seen::Gone(Reason::Lost, "its node does not answer".to_owned()))
            }
            Shown::Hopeless(why) => Err(SwarmError::Hopeless(why)),
            Shown::Running(_) => Ok(Seen::Running),
            Shown::Over(pod, reason, why) => {
                let seen = match self.fetch(name, attempt, &pod) {
                    // The coordinator finds its end in the directory.
                    Ok(()) if self.directory.ended(name, attempt).is_some() => Seen::Running,
                    Ok(()) => Seen::Gone(reason, why),
                    // Results that cannot be written here stay where they are.
                    Err(error @ SwarmError::Io { .. }) => return Err(error),
                    Err(error) => Seen::Gone(Reason::Lost, error.to_string()),
                };
                self.delete(name, attempt)?;
                Ok(seen)
            }
            Shown::Gone(reason, why) => {
                self.delete(name, attempt)?;
                Ok(Seen::Gone(reason, why))
            }
        }
    }
}

impl Engine for Kubernetes {
    fn name(&self) -> &'static str {
        "kubernetes"
    }

    fn capacity(&self) -> usize {
        self.plan.limits.at_once.unwrap_or(CAPACITY)
    }

    fn start(&mut self, orders: &[Order], _: &Limits) -> Result<(), SwarmError> {
        let swarm = self.swarm()?;
        for (number, order) in orders.iter().enumerate() {
            let job = self.job(order, &swarm)?;
            let made = self.ask(async {
                match self.api::<Job>().create(&PostParams::default(), &job).await {
                    // Made by a coordinator that was ended before it could say so.
                    Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                    answer => answer.map(drop),
                }
            });
            if let Err(error) = made {
                for order in &orders[..number] {
                    self.delete(&order.task.name(), order.attempt)?;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn watch(&mut self, names: &[String]) -> Result<BTreeMap<String, Seen>, SwarmError> {
        let swarm = self.swarm()?;
        let mut objects: BTreeMap<(String, u32), (Option<Job>, Vec<Pod>)> = BTreeMap::new();
        for job in self.list::<Job>(&swarm)? {
            let Some(label) = label_of(&job.metadata) else { continue };
            objects.entry(label).or_default().0 = Some(job);
        }
        for pod in self.list::<Pod>(&swarm)? {
            let Some(label) = label_of(&pod.metadata) else { continue };
            objects.entry(label).or_default().1.push(pod);
        }
        let mut seen = BTreeMap::new();
        let mut running = Vec::new();
        for name in names {
            let attempt = self.directory.last_attempt(name).map_or(1, |(last, _)| last);
            let found = objects.get(&(name.clone(), attempt));
            let shown = match found {
                Some((job, pods)) => shown(job.as_ref(), pods),
                None => Shown::Gone(Reason::Lost, "Kubernetes has no Job for it".to_owned()),
            };
            if let Shown::Running(pod) = &shown {
                let last = self.fetched.get(name).copied();
                if last.is_none_or(|at| at.elapsed() > LIVE_EVERY) {
                    running.push((last, name.clone(), attempt, pod.clone()));
                }
            }
            let state = self.see(name, attempt, shown)?;
            seen.insert(name.clone(), state);
        }
        // Those that were not looked at for the longest time first.
        running.sort();
        for (_, name, attempt, pod) in running.into_iter().take(LIVE_AT_A_TIME) {
            // A pod that is just ending hands nothing over; the next look tells what became of it.
            let fetched = self.fetch(&name, attempt, &pod);
            // Its end was among it: nobody will ask for it again.
            if fetched.is_ok() && self.directory.ended(&name, attempt).is_some() {
                self.delete(&name, attempt)?;
            }
        }
        Ok(seen)
    }

    fn stop(&mut self) -> Result<(), SwarmError> {
        let swarm = self.swarm()?;
        let pods = self.list::<Pod>(&swarm)?;
        for job in self.list::<Job>(&swarm)? {
            let Some((name, attempt)) = label_of(&job.metadata) else { continue };
            let own: Vec<Pod> = pods
                .iter()
                .filter(|pod| {
                    label_of(&pod.metadata).is_some_and(|(of, n)| of == name && n == attempt)
                })
                .cloned()
                .collect();
            match shown(Some(&job), &own) {
                // It ends, says so, and is fetched like any other.
                Shown::Running(pod) if self.plan.kubernetes.results == Results::Api => {
                    // A pod that is just ending need not be asked.
                    let _ = self.execute(&pod, &["stop", "--anyway", "--out", RESULTS]);
                }
                Shown::Running(_) | Shown::Over(..) => {}
                _ => self.delete(&name, attempt)?,
            }
        }
        Ok(())
    }
}

/// The task and the attempt that an object belongs to.
fn label_of(
    metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
) -> Option<(String, u32)> {
    let labels = metadata.labels.as_ref()?;
    let (name, attempt) = (labels.get(TASK_LABEL)?, labels.get(ATTEMPT_LABEL)?);
    Some((name.clone(), attempt.parse().ok()?))
}

/// What a Job and its pods say of their attempt.
fn shown(job: Option<&Job>, pods: &[Pod]) -> Shown {
    let status = job.and_then(|job| job.status.as_ref());
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let failed = conditions.iter().find(|now| now.type_ == "Failed" && now.status == "True");
    if let Some(failed) = failed {
        let why = failed.message.clone().unwrap_or_default();
        let reason = match failed.reason.as_deref() {
            Some("DeadlineExceeded") => Reason::Time,
            _ => Reason::Lost,
        };
        return Shown::Gone(reason, format!("Kubernetes says: {why}"));
    }
    // One that is being deleted is replaced; the newest is the one that counts.
    let living = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    let newest = living.max_by_key(|pod| pod.metadata.creation_timestamp.as_ref().map(|at| at.0));
    match (newest, job) {
        (Some(pod), _) => shown_by_pod(pod),
        (None, Some(_)) => Shown::Waiting,
        (None, None) => Shown::Gone(Reason::Lost, "its Job is gone".to_owned()),
    }
}

fn shown_by_pod(pod: &Pod) -> Shown {
    let name = pod.metadata.name.clone().unwrap_or_default();
    let Some(status) = &pod.status else { return Shown::Waiting };
    let statuses = status.container_statuses.as_deref().unwrap_or_default();
    if let Some(why) = statuses.iter().find_map(cannot_start) {
        return Shown::Hopeless(why);
    }
    let task = statuses.iter().find(|status| status.name == TASK_CONTAINER);
    let state = task.and_then(|task| task.state.as_ref());
    let ended = state.and_then(|state| state.terminated.as_ref());
    match (status.phase.as_deref(), ended) {
        (Some("Failed"), None) => {
            let why = status.message.clone().or(status.reason.clone()).unwrap_or_default();
            let reason = if why.contains("ephemeral") { Reason::Disk } else { Reason::Lost };
            Shown::Gone(reason, format!("Kubernetes says: {why}"))
        }
        (_, Some(ended)) => {
            let reason = match (ended.reason.as_deref(), ended.exit_code) {
                (Some("OOMKilled"), _) => Reason::Memory,
                (_, 128..) => Reason::Killed,
                _ => Reason::Failed,
            };
            let why = ended.reason.clone().unwrap_or_default();
            Shown::Over(
                name,
                reason,
                format!("its runner ended: {why}, exit code {}", ended.exit_code),
            )
        }
        (Some("Running"), None) if state.is_some_and(|state| state.running.is_some()) => {
            let conditions = status.conditions.as_deref().unwrap_or_default();
            let unready = conditions.iter().any(|now| now.type_ == "Ready" && now.status != "True");
            // Nothing is asked of a container to be ready but to run.
            let all_run = statuses
                .iter()
                .all(|status| status.state.as_ref().is_some_and(|state| state.running.is_some()));
            if unready && all_run { Shown::Unready } else { Shown::Running(name) }
        }
        _ => Shown::Waiting,
    }
}

/// Why a container will never start, if that is so: nothing that another attempt could change.
fn cannot_start(status: &ContainerStatus) -> Option<String> {
    let waiting = status.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref()?;
    let told = waiting.message.as_deref().unwrap_or_default();
    let image = &status.image;
    match reason {
        "ErrImagePull" | "ImagePullBackOff" | "ErrImageNeverPull" | "InvalidImageName" => {
            Some(format!(
                "the image {image} cannot be had ({reason}: {told}): see kubernetes.image in the plan"
            ))
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            Some(format!("a container of {image} cannot be made ({reason}: {told})"))
        }
        _ => None,
    }
}

/// An error of the cluster, for a person.
fn told(error: &kube::Error) -> SwarmError {
    match error {
        kube::Error::Api(status) if status.code == 403 || status.code == 401 => {
            SwarmError::Other(format!(
                "Kubernetes refuses: {} (needed: jobs create, list, delete; pods list; pods/exec get, create)",
                status.message
            ))
        }
        kube::Error::Api(status) => {
            SwarmError::Other(format!("Kubernetes refuses: {}", status.message))
        }
        other => SwarmError::Other(format!("Kubernetes cannot be asked: {}", innermost(other))),
    }
}

/// The error at the bottom, which says what happened.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, second: u32, status: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
            "status": status,
        }))
        .unwrap()
    }

    fn with_task(phase: &str, state: Value) -> Value {
        let status = |name: &str, state: Value| json!({"name": name, "image": "fathom:1", "imageID": "", "ready": true, "restartCount": 0, "state": state});
        json!({"phase": phase, "containerStatuses": [
            status("task", state), status("keeper", json!({"running": {}})),
        ]})
    }

    fn job(status: Value) -> Job {
        serde_json::from_value(json!({"metadata": {"name": "j"}, "status": status})).unwrap()
    }

    #[test]
    fn states_of_pods_mean_what_they_mean() {
        let job = job(json!({"active": 1}));
        let see = |status: Value| shown(Some(&job), &[pod("p", 1, status)]);
        assert_eq!(shown(Some(&job), &[]), Shown::Waiting);
        assert!(matches!(shown(None, &[]), Shown::Gone(Reason::Lost, _)));
        assert_eq!(see(json!({"phase": "Pending"})), Shown::Waiting);
        let running = with_task("Running", json!({"running": {}}));
        assert_eq!(see(running.clone()), Shown::Running("p".to_owned()));
        let mut lost = running;
        lost["conditions"] = json!([{"type": "Ready", "status": "False"}]);
        assert_eq!(see(lost), Shown::Unready);
        for (reason, code, expected) in [
            ("Completed", 0, Reason::Failed),
            ("OOMKilled", 137, Reason::Memory),
            ("Error", 137, Reason::Killed),
            ("Error", 2, Reason::Failed),
        ] {
            let ended = json!({"terminated": {"reason": reason, "exitCode": code}});
            // The keeper still runs.
            let shown = see(with_task("Running", ended));
            assert!(matches!(shown, Shown::Over(_, got, _) if got == expected), "{shown:?}");
        }
        let full =
            json!({"phase": "Failed", "reason": "Evicted", "message": "ephemeral local storage"});
        assert!(matches!(see(full), Shown::Gone(Reason::Disk, _)));
        for reason in ["ErrImagePull", "ErrImageNeverPull"] {
            let waiting = json!({"waiting": {"reason": reason, "message": "no such image"}});
            let Shown::Hopeless(why) = see(with_task("Pending", waiting)) else {
                panic!("{reason}")
            };
            assert!(why.contains("fathom:1") && why.contains("no such image"), "{why}");
        }
        let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
        assert_eq!(see(with_task("Pending", waiting)), Shown::Waiting);
    }

    #[test]
    fn a_pod_that_replaces_a_lost_one_counts() {
        let job = job(json!({"active": 1}));
        let mut lost = pod("lost", 1, with_task("Running", json!({"running": {}})));
        let new = pod("new", 2, json!({"phase": "Pending"}));
        assert_eq!(shown(Some(&job), &[new.clone(), lost.clone()]), Shown::Waiting);
        lost.metadata.deletion_timestamp = lost.metadata.creation_timestamp.clone();
        assert_eq!(shown(Some(&job), &[lost.clone()]), Shown::Waiting);
        assert_eq!(shown(Some(&job), &[lost, new]), Shown::Waiting);
    }

    #[test]
    fn a_job_that_is_given_up_is_gone() {
        let failed = |reason: &str| {
            job(
                json!({"conditions": [{"type": "Failed", "status": "True", "reason": reason, "message": "m"}]}),
            )
        };
        let running = [pod("p", 1, with_task("Running", json!({"running": {}})))];
        let late = shown(Some(&failed("DeadlineExceeded")), &running);
        assert!(matches!(late, Shown::Gone(Reason::Time, _)));
        let lost = shown(Some(&failed("BackoffLimitExceeded")), &running);
        assert!(matches!(lost, Shown::Gone(Reason::Lost, _)));
    }
}
