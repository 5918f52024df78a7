//! A swarm at one moment, as reports want it.

use serde::{Deserialize, Serialize};

use crate::Run;

/// A swarm at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SwarmStatus {
    /// The engine that runs its tasks.
    pub engine: String,
    /// Whether a coordinator works on it.
    pub active: bool,
    /// Time that it was worked on.
    pub seconds: f64,
    /// Number of tasks by state.
    pub tally: TaskTally,
    /// The tasks: those that run, those that failed, then others, as many as a page can show.
    pub tasks: Vec<TaskLine>,
    /// The course of the swarm.
    pub course: Vec<CoursePoint>,
    /// The united result so far.
    pub run: Run,
}

/// Number of tasks by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskTally {
    /// Not started yet, or to be started again.
    pub waiting: u64,
    /// Started.
    pub running: u64,
    /// Ended without a finding.
    pub done: u64,
    /// Ended with a finding.
    pub found: u64,
    /// Given up.
    pub failed: u64,
    /// Attempts that were not the first.
    pub retries: u64,
}

impl TaskTally {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.waiting + self.running + self.done + self.found + self.failed
    }
}

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskPhase {
    /// It runs.
    Running,
    /// It was given up.
    Failed,
    /// It found something.
    Found,
    /// It was not started yet, or will be started again.
    Waiting,
    /// It ended without a finding.
    Done,
}

/// A task, in one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskLine {
    /// Its number.
    pub number: u64,
    /// The command.
    pub command: String,
    /// Its state.
    pub phase: TaskPhase,
    /// The number of the attempt.
    pub attempt: u32,
    /// The machine.
    pub node: String,
    /// Time since its start, or until its end.
    pub seconds: f64,
    /// Operations so far.
    pub operations: u64,
    /// Findings so far.
    pub findings: u64,
    /// Why it ended, or what is strange about it.
    pub remark: String,
}

/// A swarm at one moment of its course.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CoursePoint {
    /// Time that it was worked on.
    pub seconds: f64,
    /// Tasks that run.
    pub running: u64,
    /// Tasks that are over.
    pub over: u64,
    /// Operations of all runs.
    pub operations: u64,
    /// Different states.
    pub states: u64,
    /// Partitions of inputs and outputs that were exercised.
    pub coverage: u64,
    /// Causes that were found.
    pub findings: u64,
}
