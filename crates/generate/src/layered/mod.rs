//! Layered workloads: long sequences of calls that grow structures.
//!
//! After "Testing File System Implementations on Layered Models" (ICSE 2020), whose tool is called Dogfood.
//! Three layers, one file each:
//!
//! * [`core`]: an abstract file system, a graph of inodes, names and open files, and the ten commands that
//!   change it. [`grow`] explores its states like a bounded model checker with priorities.
//! * [`core_ext`]: commands that hardly change the graph and much below it: reading, writing, syncing,
//!   remounting, and commands that are thousands of calls (`deepen`, `enlarge`, `prune`).
//! * [`syntax`]: makes calls of commands. Every parameter that the layers above do not care for is chosen
//!   here, mostly the default, sometimes anything.
//!
//! A workload is a list of [`Call`]s: abstract commands that name inodes, not paths, each with the seed of its
//! parameters. What depends on a command that is left out is left out with it, so a workload can be shrunk
//! as it is, and whatever remains can be executed.

pub mod core;
pub mod core_ext;
pub mod grow;
mod kmeans;
pub mod pattern;
pub mod preset;
mod printed;
mod stream;
pub mod syntax;

pub use self::core::{Command, Graph, Kind};
pub use grow::Grower;
pub use preset::{Preset, PresetError};
pub use printed::PrintedWorkload;
pub use stream::LayeredWorkloads;
pub use syntax::Refiner;

use serde::{Deserialize, Serialize};

/// One command of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// What is done to the graph.
    pub command: Command,
    /// The seed of everything else.
    pub seed: u64,
    /// The size of what is made, instead of the one that the seed gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
}
