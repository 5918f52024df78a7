//! The plan: what to run, how often, in which variety, within which limits.
//!
//! It is one TOML file; `docs/SWARM.md` has every key. A key that is not known and a limit that nothing can
//! keep are refused before anything is started.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{bytes_text, time_text};
use crate::words;

/// More tasks than anybody can look at.
const TASKS_MAX: u64 = 1_000_000;

/// Less memory than the program needs.
const MEMORY_MIN: u64 = 64 << 20;

/// Less disk than one finding needs.
const DISK_MIN: u64 = 1 << 20;

/// More processors than a machine has.
const CPUS_MAX: f64 = 1024.0;

/// Commands whose results can be united.
const COMMANDS: [&str; 4] = ["check", "crash", "design", "fsck"];

/// Options that the swarm gives itself.
const RESERVED: [&str; 7] =
    ["--out", "--json", "--guest", "--worker", "--in-guest", "--dry-run", "--memory-max"];

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// How many tasks, those of enumerable spaces not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskCount>,
    /// Time of the whole swarm: nothing is started after it, and what still runs is ended.
    #[serde(default, with = "time_text", skip_serializing_if = "Option::is_none")]
    pub budget: Option<Duration>,
    /// Decides the seeds of the tasks and their variety.
    #[serde(default = "one")]
    pub seed: u64,
    /// Whether tasks may use the rights of the superuser on the machine that they run on.
    #[serde(default)]
    pub privileged: bool,
    /// The limits of each task.
    #[serde(default)]
    pub limits: Limits,
    /// What is run.
    #[serde(rename = "campaign")]
    pub campaigns: Vec<Campaign>,
    /// What only Slurm needs.
    #[serde(default)]
    pub slurm: SlurmOptions,
    /// What only Kubernetes needs.
    #[serde(default)]
    pub kubernetes: KubernetesOptions,
}

/// A number of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TaskCount {
    /// So many.
    Number(u64),
    /// "until the budget is used".
    Words(String),
}

/// The words for as many tasks as the budget allows.
const UNTIL_THE_BUDGET: &str = "until the budget is used";

/// The limits of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Processors.
    pub cpus: f64,
    /// Memory, everything that it starts and its files in memory included.
    #[serde(with = "bytes_text")]
    pub memory: u64,
    /// What it writes to its directory.
    #[serde(with = "bytes_text")]
    pub disk: u64,
    /// Time from its start to its end; the budget of the command is its own affair.
    #[serde(with = "time_text")]
    pub time: Option<Duration>,
    /// How often a task that failed is started again.
    pub retries: u32,
    /// Tasks at the same time, on a cluster those that wait for a place included; without it as many as have
    /// processors and memory on this machine, or as many as the cluster takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_once: Option<usize>,
}

impl Default for Limits {
    fn default() -> Limits {
        let time = Some(Duration::from_secs(3600));
        Limits { cpus: 1.0, memory: 1 << 30, disk: 1 << 30, time, retries: 2, at_once: None }
    }
}

/// A command and its variety.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Campaign {
    /// A command of `fathom`, without the program: `check {fs} --ops 20000`. `{fs}` is a file system of
    /// the list, `{seed}` a number that no other task has.
    pub command: String,
    /// How many of the tasks are its, in proportion to the others.
    #[serde(default = "one")]
    pub share: u64,
    /// File systems, one for each `{fs}`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub file_systems: Vec<String>,
    /// Kernels of guests; without any the command runs on the machine's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<String>,
    /// The parts of an enumerable space (`--part 3/64`): each is one task, and none is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<u64>,
    /// Seeds: by default `check` gets another one in each task, other commands get none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeds: Option<Seeds>,
    /// Options by name with their values. An empty text leaves the option out; `true` and `false` are for
    /// options without a value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub vary: BTreeMap<String, Vec<Value>>,
}

/// The seeds of a campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Seeds {
    /// Another one for each task, or none.
    Own(bool),
    /// One of these.
    List(Vec<u64>),
}

/// A value of an option.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// Whether the option is given.
    Flag(bool),
    /// A number.
    Number(i64),
    /// Anything else.
    Text(String),
}

/// Slurm's part of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SlurmOptions {
    /// The partition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// Further options of `sbatch`, as words.
    pub options: Vec<String>,
    /// The path of the program on the nodes [default: that of this one].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

/// Kubernetes' part of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KubernetesOptions {
    /// The namespace.
    pub namespace: String,
    /// The image: see `fathom swarm image`.
    pub image: String,
    /// `Always`, `IfNotPresent` or `Never`.
    pub pull_policy: String,
    /// Secrets for pulling the image.
    pub pull_secrets: Vec<String>,
    /// Labels that a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// The runtime class, for example `kata`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class: Option<String>,
    /// How results come back to a coordinator; manifests for `kubectl` use the claim.
    pub results: Results,
    /// The claim that all tasks write their results to; it must be writable from every node.
    pub claim: String,
    /// Its size, if it is to be made.
    #[serde(with = "bytes_text")]
    pub claim_size: u64,
    /// Its storage class; without it the default of the cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
}

/// How the results of tasks come back from Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Results {
    /// Fetched from the pods, through the API of the cluster; nothing has to be shared.
    Api,
    /// Written to a claim that is also the directory of the coordinator (`--out`).
    Claim,
}

impl Default for KubernetesOptions {
    fn default() -> KubernetesOptions {
        KubernetesOptions {
            namespace: "default".to_owned(),
            image: "fathom:latest".to_owned(),
            pull_policy: "IfNotPresent".to_owned(),
            pull_secrets: Vec::new(),
            node_selector: BTreeMap::new(),
            runtime_class: None,
            results: Results::Api,
            claim: "fathom-swarm".to_owned(),
            claim_size: 10 << 30,
            storage_class: None,
        }
    }
}

fn one() -> u64 {
    1
}

/// A plan that cannot work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PlanError(pub String);

impl Plan {
    /// Reads a plan and checks that it can work.
    ///
    /// # Errors
    /// Names the key or the value that cannot.
    pub fn parse(text: &str) -> Result<Plan, PlanError> {
        let plan: Plan = toml::from_str(text).map_err(|error| PlanError(error.to_string()))?;
        plan.validate()?;
        Ok(plan)
    }

    /// The plan as a file.
    ///
    /// # Panics
    /// Never: a plan is plain data.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a plan is plain data")
    }

    /// The number of tasks that are not parts of a space; none: as many as the budget allows.
    pub fn tasks_number(&self) -> Option<u64> {
        match self.tasks {
            Some(TaskCount::Number(number)) => Some(number),
            Some(TaskCount::Words(_)) => None,
            None => Some(0),
        }
    }

    fn validate(&self) -> Result<(), PlanError> {
        self.validate_tasks().and_then(|()| self.limits.validate()).map_err(PlanError)?;
        for (index, campaign) in self.campaigns.iter().enumerate() {
            campaign.validate().map_err(|why| {
                PlanError(format!("campaign {} ({:?}): {why}", index + 1, campaign.command))
            })?;
        }
        Ok(())
    }

    fn validate_tasks(&self) -> Result<(), String> {
        if self.campaigns.is_empty() {
            return Err("there is no [[campaign]]: nothing would be run".to_owned());
        }
        let free = self.campaigns.iter().filter(|campaign| campaign.parts.is_none()).count();
        match &self.tasks {
            None if free > 0 => {
                Err(format!("tasks is missing: give a number, or {UNTIL_THE_BUDGET:?}"))
            }
            Some(_) if free == 0 => {
                Err("every campaign has parts, which decide the number of tasks: leave tasks out"
                    .to_owned())
            }
            Some(TaskCount::Number(0)) => Err("tasks = 0 runs nothing".to_owned()),
            Some(TaskCount::Number(number)) if *number > TASKS_MAX => {
                Err(format!("tasks = {number} is more than {TASKS_MAX}"))
            }
            Some(TaskCount::Words(words)) if words != UNTIL_THE_BUDGET => {
                Err(format!("tasks = {words:?}: give a number, or {UNTIL_THE_BUDGET:?}"))
            }
            Some(TaskCount::Words(_)) if self.budget.is_none() => {
                Err(format!("tasks = {UNTIL_THE_BUDGET:?} needs a budget, for example \"1h\""))
            }
            _ => Ok(()),
        }
    }
}

impl Limits {
    fn validate(&self) -> Result<(), String> {
        let Limits { cpus, memory, disk, retries, at_once, .. } = self;
        if !(0.01..=CPUS_MAX).contains(cpus) {
            return Err(format!("limits.cpus = {cpus}: give 0.01 to {CPUS_MAX}"));
        }
        if *memory < MEMORY_MIN {
            return Err("limits.memory is less than the program needs: give at least 64M".into());
        }
        if *disk < DISK_MIN {
            return Err("limits.disk is less than a finding needs: give at least 1M".into());
        }
        if *retries > 100 {
            return Err(format!("limits.retries = {retries}: give at most 100"));
        }
        if *at_once == Some(0) {
            return Err("limits.at_once = 0 would start nothing".into());
        }
        Ok(())
    }
}

impl Campaign {
    /// The words of the command, with its places for values.
    pub(crate) fn words(&self) -> Result<Vec<String>, String> {
        words::split(&self.command)
    }

    fn validate(&self) -> Result<(), String> {
        let words = self.words()?;
        let name = words.first().map(String::as_str).unwrap_or_default();
        if !COMMANDS.contains(&name) {
            return Err(format!("it is none of {}", COMMANDS.join(", ")));
        }
        let options = words.iter().map(String::as_str).chain(self.vary.keys().map(String::as_str));
        for option in options {
            let option = option.split('=').next().unwrap_or(option);
            let long = format!("--{}", option.trim_start_matches('-'));
            if option.starts_with("--") && RESERVED.contains(&option)
                || self.vary.contains_key(option) && RESERVED.contains(&long.as_str())
            {
                return Err(format!("{long} is given by the swarm: leave it out"));
            }
        }
        let has_place = self.command.contains("{fs}");
        if has_place == self.file_systems.is_empty() {
            return Err("{fs} in the command and file_systems belong together".to_owned());
        }
        if self.share == 0 || self.parts == Some(0) || self.parts > Some(TASKS_MAX) {
            return Err("share and parts need at least 1".to_owned());
        }
        if let Some((name, _)) = self.vary.iter().find(|(_, values)| values.is_empty()) {
            return Err(format!("vary.{name} has no values"));
        }
        if self.seeds == Some(Seeds::List(Vec::new())) {
            return Err("seeds has no values".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "tasks = 4\n[[campaign]]\ncommand = \"check model --ops 100\"\n";

    fn refused(text: &str) -> String {
        Plan::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_plan_is_read_back_as_it_was_written() {
        let text = "tasks = \"until the budget is used\"\nbudget = \"10m\"\nseed = 3\n\
            [limits]\ncpus = 0.5\nmemory = \"512M\"\ndisk = \"100M\"\ntime = \"90s\"\n\
            [[campaign]]\ncommand = \"check {fs}\"\nfile_systems = [\"ext4\", \"xfs\"]\n\
            kernels = [\"6.12\"]\nseeds = [1, 2]\n\
            vary = { strategy = [\"tour\", \"dfs\"], times = [true, false], moves = [3] }\n\
            [kubernetes]\nnode_selector = { disk = \"fast\" }\n";
        let plan = Plan::parse(text).unwrap();
        assert_eq!(Plan::parse(&plan.to_toml()).unwrap(), plan);
        assert_eq!(plan.tasks_number(), None);
    }

    #[test]
    fn what_cannot_work_is_named() {
        Plan::parse(GOOD).unwrap();
        let cases = [
            ("tusks = 4\n", "tusks"),
            ("tasks = 0\n[[campaign]]\ncommand = \"check a\"", "runs nothing"),
            ("tasks = \"many\"\n[[campaign]]\ncommand = \"check a\"", "until the budget"),
            ("tasks = \"until the budget is used\"\n[[campaign]]\ncommand = \"check a\"", "budget"),
            ("[[campaign]]\ncommand = \"check a\"", "tasks is missing"),
            ("tasks = 4\n", "campaign"),
            ("tasks = 4\n[[campaign]]\ncommand = \"mount /x\"", "none of check"),
            ("tasks = 4\n[[campaign]]\ncommand = \"check a --out=b\"", "--out is given"),
            ("tasks = 4\n[[campaign]]\ncommand = \"check a 'b\"", "quote"),
            ("tasks = 4\n[[campaign]]\ncommand = \"check {fs}\"", "belong together"),
            (
                "tasks = 4\n[[campaign]]\ncommand = \"check a\"\nvary = { guest = [\"b\"] }",
                "--guest",
            ),
            ("tasks = 4\n[[campaign]]\ncommand = \"check a\"\nvary = { moves = [] }", "no values"),
            ("tasks = 4\n[limits]\ncpus = -1\n[[campaign]]\ncommand = \"check a\"", "cpus"),
            ("tasks = 4\n[limits]\nmemory = \"1M\"\n[[campaign]]\ncommand = \"check a\"", "64M"),
            ("tasks = 4\n[limits]\ntime = \"0s\"\n[[campaign]]\ncommand = \"check a\"", "no time"),
            ("tasks = 4\n[limits]\ndisc = \"1G\"\n[[campaign]]\ncommand = \"check a\"", "disc"),
            ("tasks = 4\n[[campaign]]\ncommand = \"crash a\"\nparts = 3\n", "leave tasks out"),
        ];
        for (text, word) in cases {
            assert!(refused(text).contains(word), "{text}: {}", refused(text));
        }
    }
}
