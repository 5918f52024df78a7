//! A workload with its power failures: everything that is needed to see a finding again.

use std::fmt;

use fathom_block::CrashPoint;
use fathom_core::Op;
use serde::{Deserialize, Serialize};

/// One thing that happens. A run starts with a freshly formatted, mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// An operation; [`Op::Remount`] unmounts and mounts.
    Op(Op),
    /// The power fails. The position of the point counts the events of the device since the last
    /// mount began. Then the device is mounted again, with whatever recovery that includes.
    PowerCut(CrashPoint),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Op(op) => op.fmt(f),
            Event::PowerCut(point) => write!(f, "power cut ({point})"),
        }
    }
}

/// A list of events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Script(pub Vec<Event>);

impl Script {
    /// The operations.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        self.0.iter().filter_map(|event| match event {
            Event::Op(op) => Some(op),
            Event::PowerCut(_) => None,
        })
    }

    /// How many operations there are.
    pub fn ops_len(&self) -> usize {
        self.ops().count()
    }
}
