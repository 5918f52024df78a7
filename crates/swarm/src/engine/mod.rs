//! Engines: where tasks run.
//!
//! An engine starts runners ([`crate::RunTask`]), says which of them it still has, and ends them. What a
//! task leaves lies in the directory of the swarm, which every engine makes reachable for its runners. How
//! a task ended is read there; an engine is only asked about those that say nothing.

#[cfg(feature = "kubernetes")]
mod kubernetes;
mod local;
mod slurm;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::ended::Reason;
use crate::plan::Limits;
use crate::{SwarmError, Task};

#[cfg(feature = "kubernetes")]
pub use kubernetes::Kubernetes;
pub use local::Local;
pub use slurm::Slurm;

/// An attempt that is to be started.
#[derive(Clone, Debug)]
pub struct Order {
    /// The task.
    pub task: Task,
    /// The number of the attempt.
    pub attempt: u32,
}

/// What an engine knows of an attempt that it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It waits for its turn.
    Waiting,
    /// It runs.
    Running,
    /// It is not there any more.
    Gone(Reason, String),
}

/// A place where tasks run.
pub trait Engine {
    /// Its name, as on the command line.
    fn name(&self) -> &'static str;

    /// How many attempts it takes at the same time, waiting ones included.
    fn capacity(&self) -> usize;

    /// Starts attempts.
    ///
    /// # Errors
    /// If it cannot; then none of them is started.
    fn start(&mut self, orders: &[Order], limits: &Limits) -> Result<(), SwarmError>;

    /// Says what became of attempts by the names of their tasks. One that it does not name is not known to
    /// it.
    ///
    /// # Errors
    /// If it cannot be asked now: it is asked again, unless it says that this is hopeless.
    fn watch(&mut self, names: &[String]) -> Result<BTreeMap<String, Seen>, SwarmError>;

    /// Waits for the next look at the tasks; not so long if it hears of an end.
    fn wait(&mut self, at_most: Duration) {
        std::thread::sleep(at_most);
    }

    /// Asks everything that it has to end.
    ///
    /// # Errors
    /// If it cannot be told.
    fn stop(&mut self) -> Result<(), SwarmError>;
}
