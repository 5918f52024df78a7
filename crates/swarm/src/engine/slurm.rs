//! Slurm: arrays of jobs through `sbatch`, their states by `squeue --json`. The directory of the swarm must
//! be on a file system that the nodes share; nothing but the program is needed on them.
//!
//! A job whose node is lost is put back into the queue by Slurm itself (`--requeue`) and runs the same
//! attempt again; what it had done before lies beside it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

use super::{Engine, Order, Seen};
use crate::SwarmError;
use crate::directory::{SwarmDirectory, read_json};
use crate::ended::Reason;
use crate::merge::replace;
use crate::plan::{Limits, Plan, SlurmOptions};
use crate::words::quoted;

/// Jobs of one array: below what every Slurm allows (`MaxArraySize` is 1001 by default).
const ARRAY_MAX: usize = 1000;

/// Jobs that wait or run at the same time, unless the plan says how many.
const CAPACITY: usize = 10_000;

/// Seconds between a signal and the end of a job whose time is over.
const GRACE_SECONDS: u64 = 30;

/// Runs tasks as jobs of Slurm.
pub struct Slurm {
    directory: SwarmDirectory,
    program: String,
    options: SlurmOptions,
    /// Jobs that wait or run at the same time. Slurm's own throttle (`--array=1-18%4`) is one of an array, and
    /// every task that is started again is in another one.
    at_once: usize,
    /// Task → array and index; also in `slurm/jobs.json`.
    jobs: BTreeMap<String, (u64, usize)>,
}

impl Slurm {
    /// Asks whether there is a cluster.
    ///
    /// # Errors
    /// If there is none, or it does not answer.
    pub fn new(
        directory: &SwarmDirectory,
        program: PathBuf,
        plan: &Plan,
    ) -> Result<Slurm, SwarmError> {
        let slurm = Slurm::of(directory, program, plan);
        let answer = run("sinfo", &["--noheader".to_owned(), "--format=%D".to_owned()])?;
        match answer.trim().is_empty() {
            true => Err(SwarmError::Other("Slurm has no nodes: see `sinfo`".to_owned())),
            false => Ok(slurm),
        }
    }

    /// Whatever the cluster says.
    fn of(directory: &SwarmDirectory, program: PathBuf, plan: &Plan) -> Slurm {
        let path = directory.path().join("slurm/jobs.json");
        Slurm {
            directory: directory.clone(),
            program: plan.slurm.program.clone().unwrap_or_else(|| program.display().to_string()),
            options: plan.slurm.clone(),
            at_once: plan.limits.at_once.unwrap_or(CAPACITY),
            jobs: read_json(&path).unwrap_or_default(),
        }
    }

    /// Submits one array.
    fn submit(&mut self, orders: &[Order], limits: &Limits) -> Result<(), SwarmError> {
        let folder = self.directory.path().join("slurm");
        let failed = |error| SwarmError::io(&folder, "write it", error);
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let first = &orders[0];
        let name = format!("{}-{}", first.task.name(), first.attempt);
        let list = folder.join(format!("{name}.list"));
        let mut lines = String::new();
        for order in orders {
            let _ = writeln!(lines, "{} {}", order.task.name(), order.attempt);
        }
        replace(&list, lines.as_bytes()).map_err(failed)?;
        let script = folder.join(format!("{name}.sh"));
        replace(&script, self.script(&list.display().to_string()).as_bytes()).map_err(failed)?;
        let mut options = self.sbatch_options(orders.len(), limits, &folder.display().to_string());
        options.push(script.display().to_string());
        let answer = run("sbatch", &options)?;
        let number = answer.trim().split(';').next().unwrap_or_default();
        let job: u64 = number.parse().map_err(|_| {
            SwarmError::Other(format!("sbatch answers {answer:?} instead of the number of a job"))
        })?;
        for (index, order) in orders.iter().enumerate() {
            self.jobs.insert(order.task.name(), (job, index + 1));
        }
        let text = serde_json::to_vec(&self.jobs).unwrap_or_default();
        replace(&folder.join("jobs.json"), &text).map_err(failed)
    }

    fn script(&self, list: &str) -> String {
        let out = self.directory.path().display().to_string();
        format!(
            "#!/bin/sh\n\
             # Runs one task of a swarm: `fathom swarm run-task NAME ATTEMPT`.\n\
             set -- $(sed -n \"${{SLURM_ARRAY_TASK_ID}}p\" {})\n\
             exec {} swarm run-task \"$1\" \"$2\" --out {}\n",
            quoted(&[list]),
            quoted(&[&self.program]),
            quoted(&[out]),
        )
    }

    fn sbatch_options(&self, jobs: usize, limits: &Limits, folder: &str) -> Vec<String> {
        let mut options = vec![
            "--parsable".to_owned(),
            "--requeue".to_owned(),
            "--job-name=fathom-swarm".to_owned(),
            format!("--array=1-{jobs}"),
            format!("--cpus-per-task={}", limits.cpus.ceil() as u64),
            // The runner and its command; the command alone is held to the limit by the runner where it
            // can make a group.
            format!("--mem={}M", (limits.memory >> 20) + 32),
            format!("--output={folder}/%A_%a.log"),
            "--open-mode=append".to_owned(),
        ];
        if let Some(time) = limits.time {
            // The runner ends the command first, and tells why.
            options.push(format!("--time={}", time.as_secs().div_ceil(60) + 1));
            options.push(format!("--signal=TERM@{GRACE_SECONDS}"));
        }
        options.extend(self.options.partition.iter().map(|name| format!("--partition={name}")));
        options.extend(self.options.account.iter().map(|name| format!("--account={name}")));
        options.extend(self.options.options.iter().cloned());
        options
    }
}

impl Engine for Slurm {
    fn name(&self) -> &'static str {
        "slurm"
    }

    fn capacity(&self) -> usize {
        self.at_once
    }

    fn start(&mut self, orders: &[Order], limits: &Limits) -> Result<(), SwarmError> {
        orders.chunks(ARRAY_MAX).try_for_each(|part| self.submit(part, limits))
    }

    fn watch(&mut self, names: &[String]) -> Result<BTreeMap<String, Seen>, SwarmError> {
        let text = run("squeue", &["--json".to_owned(), "--states=all".to_owned()])?;
        let (states, held) = states(&text)?;
        for job in held {
            // Slurm lets a job whose node was lost wait for two minutes. Nothing is wrong with the job, so
            // it need not; that it waits after all is no problem either.
            let _ = run(
                "scontrol",
                &["update".to_owned(), format!("JobId={job}"), "StartTime=now".to_owned()],
            );
        }
        let mut seen = BTreeMap::new();
        for name in names {
            let Some(&(job, index)) = self.jobs.get(name) else { continue };
            let state = states.get(&(job, Some(index))).or_else(|| states.get(&(job, None)));
            let gone = || Seen::Gone(Reason::Lost, format!("Slurm has no job {job}_{index}"));
            seen.insert(name.clone(), state.map_or_else(gone, |state| meaning(state)));
        }
        Ok(seen)
    }

    fn stop(&mut self) -> Result<(), SwarmError> {
        let jobs: std::collections::BTreeSet<u64> =
            self.jobs.values().map(|(job, _)| *job).collect();
        let jobs: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        if jobs.is_empty() {
            return Ok(());
        }
        // Those that wait end at once; those that run see the request in the directory, and write what
        // they have.
        let mut options = vec!["--state=PENDING".to_owned(), "--quiet".to_owned()];
        options.extend(jobs);
        run("scancel", &options).map(drop)
    }
}

/// By array and index; without an index those that wait as a whole.
type States = BTreeMap<(u64, Option<usize>), String>;

/// The states of all jobs, and the numbers of those that lost their node and are held back.
fn states(text: &str) -> Result<(States, Vec<u64>), SwarmError> {
    let wrong = || SwarmError::Other("squeue --json answers something else than JSON".to_owned());
    let value: Value = serde_json::from_str(text).map_err(|_| wrong())?;
    let jobs = value["jobs"].as_array().ok_or_else(wrong)?;
    let (mut states, mut held) = (BTreeMap::new(), Vec::new());
    for job in jobs {
        // Newer versions wrap numbers: {"set": true, "number": 7}.
        let number = |value: &Value| value.as_u64().or_else(|| value["number"].as_u64());
        let Some(array) = number(&job["array_job_id"]).filter(|id| *id > 0) else { continue };
        let index = match job["array_task_string"].as_str() {
            Some(list) if !list.is_empty() => None,
            _ => number(&job["array_task_id"]).map(|index| index as usize),
        };
        // A list of flags in newer versions, a text in older ones.
        let state = match &job["job_state"] {
            Value::Array(flags) => flags.first().and_then(Value::as_str),
            other => other.as_str(),
        };
        let state = state.unwrap_or_default().to_owned();
        let is_again = number(&job["restart_cnt"]).is_some_and(|count| count > 0);
        if is_again && state == "PENDING" && job["state_reason"] == "BeginTime" {
            held.extend(number(&job["job_id"]));
        }
        states.insert((array, index), state);
    }
    Ok((states, held))
}

/// What a state of Slurm means.
fn meaning(state: &str) -> Seen {
    let reason = match state {
        "PENDING" | "REQUEUED" | "REQUEUE_HOLD" | "SUSPENDED" | "SPECIAL_EXIT" => {
            return Seen::Waiting;
        }
        "RUNNING" | "CONFIGURING" | "COMPLETING" | "STAGE_OUT" | "RESIZING" | "SIGNALING" => {
            return Seen::Running;
        }
        "OUT_OF_MEMORY" => Reason::Memory,
        "TIMEOUT" | "DEADLINE" => Reason::Time,
        "CANCELLED" => Reason::Killed,
        "FAILED" => Reason::Failed,
        _ => Reason::Lost,
    };
    Seen::Gone(reason, format!("Slurm says {state}"))
}

/// Runs a program of Slurm.
fn run(program: &str, options: &[String]) -> Result<String, SwarmError> {
    let told = |why: &str| {
        SwarmError::Other(format!(
            "no Slurm here: {program}: {why} (is slurm-client installed, SLURM_CONF right?)"
        ))
    };
    let Output { status, stdout, stderr } =
        Command::new(program).args(options).output().map_err(|error| told(&error.to_string()))?;
    if !status.success() {
        return Err(told(String::from_utf8_lossy(&stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_jobs_are_submitted_than_the_plan_allows() {
        let capacity = |limits: &str| {
            let text = format!("tasks = 6\n{limits}[[campaign]]\ncommand = \"check model\"\n");
            let directory = SwarmDirectory::new("/nowhere".as_ref());
            Slurm::of(&directory, "fathom".into(), &Plan::parse(&text).unwrap()).capacity()
        };
        assert_eq!(capacity("[limits]\nat_once = 2\n"), 2);
        assert_eq!(capacity(""), CAPACITY);
    }

    #[test]
    fn states_of_old_and_new_versions_are_understood() {
        let old = r#"{"jobs": [
            {"job_id": 8, "array_job_id": 7, "array_task_id": 2, "array_task_string": "", "job_state": "RUNNING"},
            {"job_id": 7, "array_job_id": 7, "array_task_id": null, "array_task_string": "3-9", "job_state": "PENDING"}]}"#;
        let states_old = states(old).unwrap().0;
        assert_eq!(states_old[&(7, Some(2))], "RUNNING");
        assert_eq!(states_old[&(7, None)], "PENDING");
        let new = r#"{"jobs": [{"array_job_id": {"set": true, "number": 7},
            "array_task_id": {"set": true, "number": 2}, "job_state": ["OUT_OF_MEMORY"]}]}"#;
        let seen = meaning(&states(new).unwrap().0[&(7, Some(2))]);
        assert!(matches!(seen, Seen::Gone(Reason::Memory, _)));
        assert!(states("Slurm is down").is_err());
    }
}
