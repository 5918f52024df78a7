//! Repeats a recorded run and says whether it went the same way.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fathom_core::{HarnessFault, Op, Step, Supervision, Testbed, Trace, Violation};
use serde::Serialize;

use crate::check::call_monitor::{CallMonitor, HangWatchdog};
use crate::check::finding::TraceConfig;
use crate::check::oracle::{Oracle, Signature};
use crate::check::rerun::{CompareTrees, Runner};

/// The verdict of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayVerdict {
    /// The run went as recorded: the same violation, or the same answers if there was none.
    Reproduced,
    /// The recorded violation did not appear, nor any other.
    NotReproduced,
    /// Something else happened.
    Different,
}

/// The verdict of a replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The verdict.
    pub verdict: ReplayVerdict,
    /// The steps that were executed now.
    pub steps: Vec<Step>,
    /// The violation that shows now.
    pub violation: Option<Violation>,
    /// Its signature.
    pub signature: Option<Signature>,
    /// The signature in the trace.
    pub recorded: Option<Signature>,
    /// The first step whose answer is not the recorded one.
    pub changed: Option<usize>,
}

impl fmt::Display for ReplayVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReplayVerdict::Reproduced => "reproduced",
            ReplayVerdict::NotReproduced => "not reproduced",
            ReplayVerdict::Different => "different",
        })
    }
}

/// The configuration in a trace's header; a trace without one used the defaults.
///
/// # Errors
/// If the header has a configuration that this program does not understand.
pub fn trace_config(trace: &Trace) -> Result<TraceConfig, HarnessFault> {
    if trace.header.config.is_null() {
        return Ok(TraceConfig::default());
    }
    serde_json::from_value(trace.header.config.clone())
        .map_err(|error| HarnessFault::new("reading the configuration of the trace", error))
}

/// A call that takes longer is ended, if the subject has a way.
const DEADLINE: Duration = Duration::from_secs(30);

/// Runs the operations of a trace on `subject` and the reference, step by step.
///
/// # Errors
/// If the harness fails.
pub fn replay(subject: &mut dyn Testbed, trace: &Trace) -> Result<Replay, HarnessFault> {
    replay_supervised(subject, trace, DEADLINE, &None)
}

/// Like [`replay`], with a deadline for every call; a supervisor reads along.
///
/// # Errors
/// If the harness fails.
pub fn replay_supervised(
    subject: &mut dyn Testbed,
    trace: &Trace,
    deadline: Duration,
    supervision: &Supervision,
) -> Result<Replay, HarnessFault> {
    let config = trace_config(trace)?;
    let oracle = Oracle::new(&config.reference, config.times);
    let fsck = config.signature.as_ref().is_some_and(Signature::is_checker);
    let monitor = CallMonitor::new(supervision.as_ref().map(|supervisor| supervisor.journal(0)));
    let _watch = HangWatchdog::start(Arc::clone(&monitor), deadline, Arc::new(|_, _| {}));
    let mut runner = Runner {
        subject,
        reference: &config.reference,
        oracle: &oracle,
        monitor: Some(monitor),
        fsck,
        patient: true,
    };
    let ops: Vec<Op> = trace.ops().cloned().collect();
    let planned = config.ops_planned.unwrap_or(ops.len());
    let run = runner.run_planned(&ops, CompareTrees::AfterEach, planned)?;
    let changed = runner.first_disagreement(&trace.steps, &run.steps).map(|(at, ..)| at);
    let signature = run.signature();
    let same =
        signature == config.signature && changed.is_none() && run.steps.len() == trace.steps.len();
    let verdict = match (&signature, &config.signature) {
        _ if same => ReplayVerdict::Reproduced,
        (None, Some(_)) => ReplayVerdict::NotReproduced,
        _ => ReplayVerdict::Different,
    };
    Ok(Replay {
        verdict,
        steps: run.steps,
        violation: run.violation,
        signature,
        recorded: config.signature,
        changed,
    })
}
