//! The result of a tracer, whichever it is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::sample::Samples;

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The command ended by itself, with this code.
    Exit(i32),
    /// The command ended by this signal.
    Signal(i32),
}

impl Ended {
    /// Reads the status of `waitpid`.
    pub fn from_status(status: i32) -> Ended {
        if libc::WIFSIGNALED(status) {
            Ended::Signal(libc::WTERMSIG(status))
        } else {
            Ended::Exit(libc::WEXITSTATUS(status))
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Exit(code) => write!(f, "exit code {code}"),
            Ended::Signal(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

/// The counts of a run.
#[derive(Debug, Default)]
pub struct Traced {
    /// All calls that could concern the watched file systems.
    pub samples: Samples,
    /// The name of the tracer.
    pub tracer: String,
    /// Limits of that tracer in this run: what it cannot see, and what happened on the way.
    pub limits: Vec<String>,
    /// The end of the command; `None` if there was none.
    pub ended: Option<Ended>,
    /// Calls that were made and could not be counted.
    pub lost: u64,
    /// Calls whose file system was inferred from the last directory that was known.
    pub guessed: u64,
}
