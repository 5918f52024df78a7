//! Chooses a tracer and runs it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Result, TraceError};
use crate::target::Target;
use crate::traced::Traced;
use crate::{bpf, ptrace};

/// The processes whose calls count.
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

/// The tracer to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tracer {
    /// The first tracer that works.
    Auto,
    /// The BPF tracer, which finds the file systems of paths in the kernel.
    Bpf,
    /// The BPF tracer, with paths resolved in user space.
    Stream,
    /// The ptrace tracer, which needs no privilege.
    Ptrace,
}

/// The processes, file systems and tracer of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The processes whose calls count.
    pub who: Who,
    /// The watched file systems.
    pub targets: Vec<Target>,
    /// The tracer to use.
    pub tracer: Tracer,
    /// The file to which every call is written.
    pub record: Option<PathBuf>,
    /// Longest duration of the run.
    pub budget: Option<Duration>,
    /// Whether to take the self-test of the walk as failed, so that tests can see what happens
    /// then.
    pub distrust: bool,
}

/// Traces until the command ends, the time is over or we are interrupted.
pub fn run(plan: &Plan) -> Result<Traced> {
    if plan.tracer == Tracer::Stream && plan.record.is_some() {
        return Err(TraceError::Data("a stream makes no record: record with bpf".to_owned()));
    }
    let in_kernel = match plan.tracer {
        Tracer::Auto => {
            bpf::prepare(plan, true).or_else(|error| stream_instead(plan, error)).map_err(Some)
        }
        Tracer::Bpf => Ok(bpf::prepare(plan, true)?),
        Tracer::Stream => Ok(bpf::prepare(plan, false)?),
        Tracer::Ptrace => Err(None),
    };
    let reason = match in_kernel {
        Ok(tracer) => return tracer.run(plan),
        Err(reason) => reason,
    };
    // Another tracer would not find it either.
    if let Some(error @ TraceError::Target { .. }) = reason {
        return Err(error);
    }
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

/// Streams paths to user space because they are not found in the kernel here. A record needs the
/// walk.
fn stream_instead(plan: &Plan, walk: TraceError) -> Result<bpf::Tracer> {
    // All other failures concern both ways: no privilege, no type information.
    if plan.record.is_some() || !matches!(walk, TraceError::Unproven(_)) {
        return Err(walk);
    }
    match bpf::prepare(plan, false) {
        Ok(tracer) => Ok(tracer.because(&walk)),
        Err(error) => Err(TraceError::Data(format!("{walk}; nor with a stream: {error}"))),
    }
}
