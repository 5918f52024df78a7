//! Chooses a tracer and runs it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Result, TraceError};
use crate::ptrace;
use crate::target::Target;
use crate::traced::Traced;

/// Whose calls count.
#[derive(Clone, Debug)]
pub enum Who {
    /// A command that is started, and its descendants.
    Command(Vec<OsString>),
    /// A running process and its descendants.
    Process(i32),
    /// The processes of a control group.
    Cgroup(PathBuf),
    /// All processes of the machine.
    Everybody,
}

/// Which tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracer {
    /// The first that works.
    Auto,
    /// In the kernel.
    Bpf,
    /// Without privilege.
    Ptrace,
}

/// What to watch, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Whose calls count.
    pub who: Who,
    /// On which file systems.
    pub targets: Vec<Target>,
    /// Which tracer.
    pub tracer: Tracer,
    /// Where every call is written to.
    pub record: Option<PathBuf>,
    /// How long.
    pub budget: Option<Duration>,
}

/// Traces until the command ends, the time is over or we are interrupted.
pub fn run(plan: &Plan) -> Result<Traced> {
    match &plan.who {
        Who::Command(argv) => ptrace::run(argv, &plan.targets),
        _ => Err(TraceError::Bpf("only a command".into())),
    }
}
