//! From the first suspicion to a complete finding: run it again, twice, then shrink it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fathom_core::{
    Errno, HarnessFault, Header, Op, Outcome, Step, Supervision, Testbed, Trace, Violation,
};
use fathom_model::{Model, TreeOptions};
use serde::{Deserialize, Serialize};

use super::evidence::final_claims;
use super::shrink::Shrinker;
use super::{Disk, Finding, RunRecord, Stored, TraceConfig, finding_id};
use crate::check::Plan;
use crate::check::call_monitor::CallMonitor;
use crate::check::oracle::{Oracle, Signature};
use crate::check::replay::trace_config;
use crate::check::rerun::{CompareTrees, Run, Runner, Trees};

/// A run that ends with a violation.
#[derive(Clone, Debug)]
pub struct Case {
    /// The run; the violation was noticed after the last step.
    pub steps: Vec<Step>,
    /// The violation that was noticed.
    pub violation: Violation,
    /// How many operations the run was to have: how closely it was looked at depends on that.
    pub planned: usize,
}

impl Case {
    /// The operations of the run.
    pub fn ops(&self) -> Vec<Op> {
        self.steps.iter().map(|step| step.op.clone()).collect()
    }

    /// The cause, by which it is the same as another.
    pub fn signature(&self) -> Signature {
        let last = self.steps.last().expect("a violation has an operation");
        Signature::of(&last.op, &self.violation)
    }

    /// The end of a run, if it is a violation.
    fn of_run(run: Run) -> Option<Case> {
        Some(Case { steps: run.steps, violation: run.violation?, planned: run.planned })
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

/// Runs the trace twice more from an empty file system, comparing the trees after every operation,
/// then looks for the shortest run with the same signature.
///
/// # Errors
/// If the harness fails while the trees are recorded.
pub fn investigate(
    runner: &mut Runner<'_>,
    plan: &Plan,
    episode: u64,
    mut case: Case,
    disks: Vec<Disk>,
) -> Result<Finding, HarnessFault> {
    let ops = case.ops();
    let seen = case.signature().to_string();
    let mut runs = vec![RunRecord { run: "campaign".to_owned(), ops: ops.len(), seen }];
    let mut reproduced = false;
    for name in ["again", "once more"] {
        let again = runner.run(&ops, CompareTrees::AfterEach);
        runs.push(run_record(name, ops.len(), &again));
        let Ok(again) = again else { continue };
        // A call that hangs once and not again is still one that hung, and so it is with a server that ends.
        let once_is_enough =
            matches!(case.violation, Violation::Hang { .. } | Violation::ServerDied { .. });
        if !once_is_enough && case.absorb_disagreement(runner, &again) {
            reproduced = false;
            break;
        }
        // Comparing after every operation shows the guilty one, where the campaign compared less often.
        if let Some(again) = Case::of_run(again) {
            case = again;
            reproduced = true;
        }
    }
    let signature = case.signature();
    let mut minimal = case.clone();
    if reproduced {
        let deadline = Instant::now() + Duration::from_secs(plan.config.check.shrink_seconds);
        let mut shrinker = Shrinker::new(runner, signature.clone(), deadline)
            .supervised(&plan.supervision)
            .within(plan.shrink_ops_max)
            .about(&case.violation);
        minimal = shrinker.shrink(&case.ops()).and_then(Case::of_run).unwrap_or(minimal);
    }
    let (trees, claims) = match runner.evidence(&minimal.ops(), &mut minimal.violation) {
        // There is nobody left to ask.
        Err(_) if matches!(minimal.violation, Violation::ServerDied { .. }) => Default::default(),
        evidence => evidence?,
    };
    expect_answer(&plan.reference, &mut minimal);
    let subject = runner.subject.name();
    let mut minimal_trace =
        trace(&subject, plan, &signature, minimal.steps.clone(), minimal.planned);
    minimal_trace.header.claims = claims;
    Ok(Finding {
        id: finding_id(&subject, &signature, minimal.ops().iter()),
        trace: trace(&subject, plan, &signature, case.steps, case.planned),
        minimal: minimal_trace,
        violation: minimal.violation,
        signature,
        episode,
        trees,
        runs,
        labels: plan.labels.clone(),
        disks,
        sightings: 1,
        complete: true,
    })
}

/// What answers now one thing and now another is held against the reference: its answer is the one
/// that a program expects.
fn expect_answer(reference: &fathom_model::Config, case: &mut Case) {
    let (Violation::NonDeterministic { .. }, Ok(mut model)) =
        (&case.violation, Model::new(reference.clone()))
    else {
        return;
    };
    let answers: Vec<Outcome> = case.steps.iter().map(|step| model.execute(&step.op)).collect();
    if let (Some(last), Some(answer)) = (case.steps.last_mut(), answers.into_iter().next_back()) {
        last.expected = Some(answer);
    }
}

/// A finding as it was first seen: nothing was run again, nothing is shorter.
pub fn first_seen(
    subject: &str,
    plan: &Plan,
    episode: u64,
    case: &Case,
    disks: Vec<Disk>,
) -> Finding {
    let signature = case.signature();
    let ops = case.ops();
    let trace = trace(subject, plan, &signature, case.steps.clone(), case.planned);
    let seen = signature.to_string();
    Finding {
        id: finding_id(subject, &signature, ops.iter()),
        minimal: trace.clone(),
        trace,
        violation: case.violation.clone(),
        signature,
        episode,
        trees: expected_trees(plan, &ops),
        runs: vec![RunRecord { run: "campaign".to_owned(), ops: ops.len(), seen }],
        labels: plan.labels.clone(),
        disks,
        sightings: 1,
        complete: false,
    }
}

/// The trees of the reference around the last operation; nobody looks at the subject.
fn expected_trees(plan: &Plan, ops: &[Op]) -> Trees {
    let mut trees = Trees::default();
    if let (Ok(mut model), Some((last, before))) =
        (Model::new(plan.reference.clone()), ops.split_last())
    {
        for op in before {
            model.execute(op);
        }
        trees.before = model.volume().tree(TreeOptions::default());
        model.execute(last);
        trees.expected = model.volume().tree(TreeOptions::default());
    }
    trees
}

/// A call that never returned, in a process that cannot go on.
pub fn hang(subject: &str, plan: &Plan, ops: &[Op], late: Duration) -> Finding {
    let violation = Violation::Hang { seconds: late.as_secs() };
    source(subject, plan).last_words(ops, violation)
}

/// The facts about a campaign that its findings repeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FindingSource {
    /// The subject, as it can be typed.
    pub subject: String,
    /// Seed of the campaign.
    pub seed: u64,
    /// The reference of the subject.
    pub reference: fathom_model::Config,
    /// Whether the order of timestamps was compared.
    pub times: bool,
    /// Kernel version, profile, ….
    pub labels: BTreeMap<String, String>,
}

impl FindingSource {
    /// Makes a finding of operations whose last one was never answered. All answers before it were
    /// as expected, otherwise there would have been a finding before.
    pub fn last_words(&self, ops: &[Op], violation: Violation) -> Finding {
        let mut steps = Vec::new();
        let mut trees = Trees::default();
        if let Ok(mut model) = Model::new(self.reference.clone()) {
            for (n, op) in ops.iter().enumerate() {
                let last = n + 1 == ops.len();
                if last {
                    trees.before = model.volume().tree(TreeOptions::default());
                }
                let answer = model.execute(op);
                let (outcome, expected) =
                    if last { (Outcome::err(Errno::ETIME), Some(answer)) } else { (answer, None) };
                steps.push(Step { expected, ..Step::new(n as u64, op.clone(), outcome) });
            }
            trees.expected = model.volume().tree(TreeOptions::default());
        }
        let signature = Signature::of(ops.last().unwrap_or(&Op::Remount), &violation);
        let mut trace = self.trace(&signature, steps, ops.len());
        trace.header.claims = final_claims(&violation);
        let seen = signature.to_string();
        Finding {
            id: finding_id(&self.subject, &signature, ops.iter()),
            minimal: trace.clone(),
            trace,
            violation,
            signature,
            episode: 0,
            trees,
            runs: vec![RunRecord { run: "campaign".to_owned(), ops: ops.len(), seen }],
            labels: self.labels.clone(),
            disks: Vec::new(),
            sightings: 1,
            complete: false,
        }
    }

    /// Completes a finding of [`FindingSource::last_words`] that was run again and shrunk to the
    /// operations `minimal`; `runs` has what each further run ended with.
    pub fn confirmed(&self, first: Finding, minimal: &[Op], runs: Vec<RunRecord>) -> Finding {
        let shrunk = self.last_words(minimal, first.violation);
        let runs = first.runs.into_iter().chain(runs).collect();
        let (trace, labels) = (first.trace, first.labels);
        Finding { trace, runs, labels, complete: true, ..shrunk }
    }

    fn trace(&self, signature: &Signature, steps: Vec<Step>, planned: usize) -> Trace {
        let config = TraceConfig {
            reference: self.reference.clone(),
            times: self.times,
            signature: Some(signature.clone()),
            ops_planned: (planned > steps.len()).then_some(planned),
        };
        let mut header = Header::new(&*self.subject, "model");
        header.seed = Some(self.seed);
        header.config = serde_json::to_value(config).expect("a configuration is plain data");
        Trace { header, steps }
    }
}

/// Looks longer for a shorter way to a finding; `None` if the subject no longer shows it.
///
/// # Errors
/// If the harness fails.
pub fn shrink_further(
    subject: &mut dyn Testbed,
    stored: Stored,
    budget: Duration,
    supervision: &Supervision,
) -> Result<Option<Finding>, HarnessFault> {
    let config = trace_config(&stored.minimal)?;
    let oracle = Oracle::new(&config.reference, config.times);
    let fsck = config.signature.as_ref().is_some_and(Signature::is_checker);
    let patient = config.signature.as_ref().is_some_and(Signature::is_stale);
    let journal = supervision.as_ref().map(|supervisor| supervisor.journal(0));
    let monitor = journal.map(|journal| CallMonitor::new(Some(journal)));
    let mut runner =
        Runner { subject, reference: &config.reference, oracle: &oracle, monitor, fsck, patient };
    let ops: Vec<Op> = stored.minimal.ops().cloned().collect();
    let planned = config.ops_planned.unwrap_or(ops.len());
    let now = Case::of_run(runner.run_planned(&ops, CompareTrees::AfterEach, planned)?);
    let Some(case) = now.filter(|now| Some(now.signature()) == config.signature) else {
        return Ok(None);
    };
    let signature = case.signature();
    let mut shrinker = Shrinker::new(&mut runner, signature.clone(), Instant::now() + budget)
        .supervised(supervision)
        .about(&case.violation);
    let mut case = shrinker.shrink(&ops).and_then(Case::of_run).unwrap_or(case);
    let ops = case.ops();
    let (trees, claims) = runner.evidence(&ops, &mut case.violation)?;
    let ops_planned = (case.planned > ops.len()).then_some(case.planned);
    let config = TraceConfig { ops_planned, ..config.clone() };
    let config = serde_json::to_value(config).expect("a configuration is plain data");
    let header = Header { claims, config, ..stored.minimal.header };
    Ok(Some(Finding {
        id: finding_id(&stored.recorded.subject, &signature, ops.iter()),
        violation: case.violation,
        signature,
        episode: stored.recorded.episode,
        trace: stored.trace,
        minimal: Trace { header, steps: case.steps },
        trees,
        runs: stored.runs,
        labels: stored.recorded.labels,
        disks: stored.disks,
        sightings: stored.recorded.sightings,
        complete: true,
    }))
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

fn trace(
    subject: &str,
    plan: &Plan,
    signature: &Signature,
    steps: Vec<Step>,
    planned: usize,
) -> Trace {
    source(subject, plan).trace(signature, steps, planned)
}

fn source(subject: &str, plan: &Plan) -> FindingSource {
    FindingSource {
        subject: subject.to_owned(),
        seed: plan.seed,
        reference: plan.reference.clone(),
        times: plan.config.check.times,
        labels: plan.labels.clone(),
    }
}
