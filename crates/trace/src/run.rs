//! Chooses a tracer and runs it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Result, TraceError};
use crate::target::Target;
use crate::traced::Traced;
use crate::{bpf, ptrace};

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
    let reason = match plan.tracer {
        Tracer::Ptrace => None,
        Tracer::Auto | Tracer::Bpf => match bpf::prepare(plan) {
            Ok(tracer) => return tracer.run(plan),
            Err(error) if plan.tracer == Tracer::Bpf => return Err(error),
            Err(error) => Some(error),
        },
    };
    let why = reason.as_ref().map(ToString::to_string).unwrap_or_default();
    let Who::Command(argv) = &plan.who else {
        return Err(TraceError::Data(format!(
            "without a command only the tracer in the kernel can watch. {why}"
        )));
    };
    if plan.record.is_some() {
        return Err(TraceError::Data(format!(
            "only the tracer in the kernel can record every call. {why}"
        )));
    }
    let mut traced = ptrace::run(argv, &plan.targets, plan.budget)?;
    if reason.is_some() {
        traced.limits.push(why);
    }
    Ok(traced)
}
