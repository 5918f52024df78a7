//! The result of a search.

use std::fmt;
use std::time::Duration;

use super::path::Path;

/// The reason why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Every reachable state was visited (with a bitstate set: except the missed ones).
    Exhausted,
    /// A violation was found, and the plan said to stop there.
    Violation,
    /// Every state within the depth bound was visited.
    Depth,
    /// There are more states than the plan allows.
    States,
    /// The process occupies as much memory as the plan allows.
    Memory,
    /// The time is over.
    Time,
    /// The observer asked for it.
    Asked,
    /// All walks were made.
    Walked,
    /// The path was followed to its end.
    Replayed,
    /// The path could not be followed: the system has no such choice at this step (0 is the choice
    /// of the initial state).
    Diverged(usize),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::Exhausted => f.write_str("every reachable state was visited"),
            Stop::Violation => f.write_str("stopped at the first violation"),
            Stop::Depth => f.write_str("every state within the depth bound was visited"),
            Stop::States => f.write_str("stopped by the bound on states"),
            Stop::Memory => f.write_str("stopped by the bound on memory"),
            Stop::Time => f.write_str("stopped by the bound on time"),
            Stop::Asked => f.write_str("stopped on request"),
            Stop::Walked => f.write_str("all walks were made"),
            Stop::Replayed => f.write_str("the path was followed to its end"),
            Stop::Diverged(step) => write!(f, "the path cannot be followed at step {step}"),
        }
    }
}

/// A state of interest and the path to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discovery {
    /// The name of the property, or [`Discovery::DEADLOCK`].
    pub property: String,
    /// Whether the property is violated there; otherwise the state is the witness of a `sometimes`.
    pub violation: bool,
    /// The way to the first such state; with [`Strategy::Bfs`](super::Strategy::Bfs) a shortest one.
    pub path: Path,
    /// Number of states that violate the property, as far as the search went.
    pub count: u64,
}

impl Discovery {
    /// The name of the property that a state has a successor.
    pub const DEADLOCK: &str = "deadlock";
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The reason why it ended.
    pub stop: Stop,
    /// Number of different states visited.
    pub states: u64,
    /// Number of steps taken within the boundary out of the states that were explored completely.
    pub transitions: u64,
    /// Number of states by the number of steps to them. With depth-first search and no depth bound,
    /// by the steps of the way that was found first.
    pub states_by_depth: Vec<u64>,
    /// Number of states visited whose successors are not (completely) known.
    pub states_open: u64,
    /// Violations and witnesses, in the order of the system's properties; deadlock last.
    pub discoveries: Vec<Discovery>,
    /// `sometimes` properties without a witness.
    pub never: Vec<&'static str>,
    /// Estimated number of states that a bitstate set took for known ones.
    pub omitted: f64,
    /// Bytes of memory for visited states.
    pub visited_bytes: usize,
    /// Bytes of memory for the ways to them.
    pub links_bytes: usize,
    /// Time spent exploring in this run (re-creating the states of a checkpoint not included).
    pub elapsed: Duration,
}

impl Report {
    /// The violations.
    pub fn violations(&self) -> impl Iterator<Item = &Discovery> {
        self.discoveries.iter().filter(|discovery| discovery.violation)
    }

    /// The discovery of one property.
    pub fn discovery(&self, property: &str) -> Option<&Discovery> {
        self.discoveries.iter().find(|discovery| discovery.property == property)
    }

    /// The largest number of steps to a state.
    pub fn depth(&self) -> usize {
        self.states_by_depth.len().saturating_sub(1)
    }

    /// Bytes of memory for one visited state and the way to it.
    pub fn bytes_per_state(&self) -> f64 {
        (self.visited_bytes + self.links_bytes) as f64 / self.states.max(1) as f64
    }

    /// The fraction of states that the visited set did not miss; an upper estimate, since states
    /// behind missed ones are unknown.
    pub fn coverage(&self) -> f64 {
        let states = self.states as f64;
        if states == 0.0 { 1.0 } else { states / (states + self.omitted) }
    }
}
