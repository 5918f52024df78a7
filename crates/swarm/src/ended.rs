//! The end of a task, with its reason.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How an attempt to run a task ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ended {
    /// Why.
    pub reason: Reason,
    /// The exit code of the command, if it had one.
    #[serde(default)]
    pub code: Option<i32>,
    /// In words, what a person wants to know.
    #[serde(default)]
    pub told: String,
    /// Time from start to end.
    pub seconds: f64,
    /// The most memory that it used, if that is known.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// The machine.
    #[serde(default)]
    pub node: String,
    /// What kept its limits.
    #[serde(default)]
    pub kept_by: String,
}

/// Why an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The command came to its end and found nothing.
    Done,
    /// The command found something.
    Found,
    /// The command failed: its arguments, its harness, or what it needs.
    Failed,
    /// It used more memory than it may.
    Memory,
    /// It took longer than it may.
    Time,
    /// It wrote more than it may.
    Disk,
    /// A signal ended it.
    Killed,
    /// It, or the machine that it ran on, is gone without a word.
    Lost,
    /// The swarm was stopped.
    Stopped,
    /// The budget of the swarm is used.
    Budget,
}

impl Reason {
    /// Whether the task came to an end of its own.
    pub fn is_final(self) -> bool {
        matches!(self, Reason::Done | Reason::Found)
    }

    /// Whether it ended because somebody wanted it to.
    pub fn is_wanted(self) -> bool {
        matches!(self, Reason::Stopped | Reason::Budget)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Done => "done",
            Reason::Found => "found something",
            Reason::Failed => "failed",
            Reason::Memory => "out of memory",
            Reason::Time => "out of time",
            Reason::Disk => "out of disk",
            Reason::Killed => "killed",
            Reason::Lost => "lost",
            Reason::Stopped => "stopped",
            Reason::Budget => "the budget is used",
        })
    }
}
