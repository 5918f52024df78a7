//! From the first suspicion to a complete finding: run it again, twice, then shrink it.

use std::time::{Duration, Instant};

use fathom_core::{HarnessFault, Header, Op, Step, Trace, Violation};

use super::shrink::Shrinker;
use super::{Finding, RunRecord, Stored, TraceConfig, finding_id};
use crate::Reset;
use crate::check::Plan;
use crate::oracle::{Oracle, Signature};
use crate::replay::trace_config;
use crate::run::{Run, Runner, Walk};

/// A violation as the campaign noticed it.
#[derive(Clone, Debug)]
pub struct Suspicion {
    /// The run so far; the last step is where it was noticed.
    pub steps: Vec<Step>,
    /// What was noticed.
    pub violation: Violation,
    /// Which episode.
    pub episode: u64,
}

impl Suspicion {
    /// The operations of the run.
    pub fn ops(&self) -> Vec<Op> {
        self.steps.iter().map(|step| step.op.clone()).collect()
    }

    /// What makes it the same as another.
    pub fn signature(&self) -> Signature {
        let last = self.steps.last().expect("a violation has an operation");
        Signature::of(&last.op, &self.violation)
    }
}

/// Runs the trace twice more from an empty file system, comparing the trees after every operation,
/// then looks for the shortest run with the same signature.
///
/// # Errors
/// If the harness fails while the trees are recorded.
pub fn investigate(
    runner: &mut Runner<'_>,
    plan: &Plan,
    suspicion: Suspicion,
) -> Result<Finding, HarnessFault> {
    let ops = suspicion.ops();
    let mut runs = vec![RunRecord {
        run: "campaign".to_owned(),
        ops: ops.len(),
        seen: suspicion.signature().to_string(),
    }];
    let mut case = Case { steps: suspicion.steps, violation: suspicion.violation };
    let mut reproduced = false;
    for name in ["again", "once more"] {
        let again = runner.run(&ops, Walk::Each);
        runs.push(run_record(name, ops.len(), &again));
        let Ok(again) = again else { continue };
        if case.absorb_disagreement(runner, &again) {
            break;
        }
        // Walking after every operation shows the guilty one, where the campaign walked less often.
        if let Some(violation) = again.violation {
            case = Case { steps: again.steps, violation };
            reproduced = true;
        }
    }
    let signature = case.signature();
    let mut minimal = case.clone();
    if reproduced && !matches!(case.violation, Violation::NonDeterministic { .. }) {
        let deadline = Instant::now() + Duration::from_secs(plan.config.check.shrink_seconds);
        let mut shrinker = Shrinker::new(runner, signature.clone(), deadline);
        if let Some(run) = shrinker.shrink(case.ops()) {
            minimal = Case {
                steps: run.steps,
                violation: run.violation.unwrap_or(case.violation.clone()),
            };
        }
    }
    let trees = runner.trees(&minimal.ops())?;
    let subject = runner.subject.name();
    Ok(Finding {
        id: finding_id(&subject, &signature, minimal.steps.iter().map(|step| &step.op)),
        trace: trace(&subject, plan, &signature, case.steps),
        minimal: trace(&subject, plan, &signature, minimal.steps),
        violation: minimal.violation,
        signature,
        episode: suspicion.episode,
        trees,
        runs,
        labels: plan.labels.clone(),
    })
}

/// Looks longer for a shorter way to a finding; `None` if the subject no longer shows it.
///
/// # Errors
/// If the harness fails.
pub fn shrink_further(
    subject: &mut dyn Reset,
    stored: Stored,
    budget: Duration,
) -> Result<Option<Finding>, HarnessFault> {
    let config = trace_config(&stored.minimal)?;
    let oracle = Oracle::new(&config.reference, config.times);
    let mut runner = Runner { subject, reference: &config.reference, oracle: &oracle };
    let ops: Vec<Op> = stored.minimal.ops().cloned().collect();
    let mut run = runner.run(&ops, Walk::Each)?;
    let Some(signature) = run.signature().filter(|now| Some(now) == config.signature.as_ref())
    else {
        return Ok(None);
    };
    let mut shrinker = Shrinker::new(&mut runner, signature.clone(), Instant::now() + budget);
    if let Some(shorter) = shrinker.shrink(ops) {
        run = shorter;
    }
    let Run { steps, violation: Some(violation), .. } = run else { return Ok(None) };
    let minimal = Trace { header: stored.minimal.header, steps };
    let ops: Vec<Op> = minimal.ops().cloned().collect();
    Ok(Some(Finding {
        id: finding_id(&minimal.header.subject, &signature, ops.iter()),
        violation,
        signature,
        episode: stored.recorded.episode,
        trace: stored.trace,
        minimal,
        trees: runner.trees(&ops)?,
        runs: stored.runs,
        labels: stored.recorded.labels,
    }))
}

/// A run that ends with a violation.
#[derive(Clone)]
struct Case {
    steps: Vec<Step>,
    violation: Violation,
}

impl Case {
    fn ops(&self) -> Vec<Op> {
        self.steps.iter().map(|step| step.op.clone()).collect()
    }

    fn signature(&self) -> Signature {
        let last = self.steps.last().expect("a violation has an operation");
        Signature::of(&last.op, &self.violation)
    }

    /// If the run gave another answer than this one, that is the violation.
    fn absorb_disagreement(&mut self, runner: &Runner<'_>, again: &Run) -> bool {
        let Some((at, first, second)) = runner.first_disagreement(&self.steps, &again.steps) else {
            return false;
        };
        self.steps.truncate(at + 1);
        self.violation = Violation::NonDeterministic { first, second };
        true
    }
}

fn run_record(name: &str, ops: usize, run: &Result<Run, HarnessFault>) -> RunRecord {
    let (ops, seen) = match run {
        Ok(run) => (run.steps.len(), seen(run)),
        Err(fault) => (ops, format!("harness fault: {fault}")),
    };
    RunRecord { run: name.to_owned(), ops, seen }
}

fn seen(run: &Run) -> String {
    match (run.signature(), &run.inconclusive) {
        (Some(signature), _) => signature.to_string(),
        (None, Some(why)) => format!("inconclusive: {why}"),
        (None, None) => "nothing".to_owned(),
    }
}

fn trace(subject: &str, plan: &Plan, signature: &Signature, steps: Vec<Step>) -> Trace {
    let config = TraceConfig {
        reference: plan.reference.clone(),
        times: plan.config.check.times,
        signature: Some(signature.clone()),
    };
    let mut header = Header::new(subject, "model");
    header.seed = Some(plan.seed);
    header.config = serde_json::to_value(config).expect("a configuration is plain data");
    Trace { header, steps }
}
