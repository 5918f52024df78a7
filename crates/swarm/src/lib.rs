//! Splits a campaign into diverse tasks, runs them in limits of their own, and unites their results.
//!
//! ```text
//!  plan.toml ──► tasks ──► an engine starts each ──► run directories ──► one result
//!  (Plan)       (Tasks)   (local, slurm, …)          (of anybody)        (Merged)
//! ```
//!
//! * [`plan`] and [`Tasks`]: pure; the n-th task of a plan is always the same ordinary command.
//! * [`engine`]: where tasks run; each starts runners ([`RunTask`]), which are the same everywhere.
//! * [`Coordinator`]: brings every task to its end; everything that it knows is in a [`SwarmDirectory`].
//! * [`merge()`]: pure in the sense that counts: idempotent, in any order, at any moment, of untrusted input.

#![forbid(unsafe_code)]

mod coordinator;
mod directory;
mod diversify;
mod ended;
mod ends;
pub mod engine;
mod hand_over;
pub mod image;
mod limits;
mod listen;
mod manifests;
mod merge;
pub mod plan;
mod runner;
mod status;
mod tar;
mod task;
pub mod units;
mod words;

use std::io;
use std::path::{Path, PathBuf};

pub use coordinator::{Coordinator, Watcher};
pub use directory::{Lock, SwarmDirectory, SwarmState};
pub use diversify::Tasks;
pub use ended::{Ended, Reason};
pub use hand_over::{hand_over, keep};
pub use listen::{Listener, Page};
pub use manifests::manifests;
pub use merge::{Merged, MergedFinding, Refused, merge};
pub use plan::{Plan, PlanError};
pub use runner::{RunTask, end_with_runner};
pub use task::Task;
pub use words::quoted;

/// Why a swarm cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum SwarmError {
    /// The plan cannot work.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A file cannot be read or written.
    #[error("{}: cannot {what}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// No task can run where they were started, and asking again will not change that.
    #[error("{0}")]
    Hopeless(String),
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

impl SwarmError {
    pub(crate) fn io(path: &Path, what: &'static str, source: io::Error) -> SwarmError {
        SwarmError::Io { path: path.to_owned(), what, source }
    }
}
