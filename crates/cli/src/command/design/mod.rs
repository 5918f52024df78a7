//! `fathom design`: explores a model of an on-disk design completely.

pub(crate) mod again;
mod args;
mod page;
mod paper;
mod tell;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use fathom_designs::catalog::{Spec, SpecError, Visitor, names};
use fathom_designs::finding::{Finding, first_seen};
use fathom_designs::story::ExplainedSystem;
use fathom_engine::search::{
    self, Discovery, Memory, Plan, Progress, Report, Stop, Strategy, System,
};
use fathom_record::Observer;

use super::Ending;
use crate::near::did_you_mean;
use crate::progress::RunObserver;
use crate::sizes;
use crate::supervise::worker;
use crate::text::{print, print_json};
pub(crate) use args::DesignArgs;
use tell::{Outcome, Violation};

/// States of a mapping design unless told otherwise: the seed's geometry has about 10¹⁰.
const MAPPING_STATES_DEFAULT: u64 = 1_000_000;
/// Length of a workload unless told otherwise.
const DEPTH_DEFAULT: u32 = 6;
/// Shrinking and writing may add so much to the budget.
const GRACE: Duration = Duration::from_secs(60);
/// Time for shrinking one violation; the paths of the search are short already.
const SHRINK_BUDGET: Duration = Duration::from_secs(10);

pub(crate) fn run(args: &DesignArgs, out: &Path, json: bool) -> Result<Ending> {
    if args.paper_tables {
        return paper::run(args, out, json);
    }
    let spec = spec(args);
    let mut observer = RunObserver::start(out, page::run_of(&spec, args.jobs), &args.known, json)?;
    let explored = spec.open(Explore { args, spec: &spec, observer: &mut observer });
    let outcome = match explored.map_err(with_hint).and_then(|outcome| outcome) {
        Ok(outcome) => outcome,
        Err(error) => return observer.fail(error),
    };
    let ending = observer.finish(|run| page::describe(run, &outcome))?;
    if outcome.report.transitions == 0 && outcome.violations.is_empty() && ending == Ending::Clean {
        bail!("no step was taken: this run says nothing about {spec}");
    }
    match json {
        true => print_json(&outcome.json(observer.run()))?,
        false => print(&outcome.text(args, observer.run()))?,
    }
    Ok(ending)
}

/// Before the search: nobody wants to hear afterwards that its result cannot be kept.
fn make_out(out: &Path) -> Result<()> {
    fs::create_dir_all(out)
        .with_context(|| format!("cannot write to {}: give another --out", out.display()))
}

/// What was typed, as data.
fn spec(args: &DesignArgs) -> Spec {
    Spec {
        switches: args.switch.clone(),
        files: args.files,
        blocks: args.blocks,
        threads: args.threads,
        cache: args.cache,
        order: args.order.map(Into::into),
        size: args.size,
        crashes: args.crashes,
        remember: args.remember,
        names_count: args.no_symmetry,
        ..Spec::new(args.design.as_deref().expect("clap asks for it"))
    }
}

/// The error, with the names that look like what was typed.
pub(crate) fn with_hint(error: SpecError) -> Error {
    let hint = match &error {
        SpecError::Name { name } => did_you_mean(name, names().into_iter()),
        SpecError::Switch { switch, known, .. } => did_you_mean(switch, known.iter().copied()),
        _ => String::new(),
    };
    anyhow!("{error}{hint}")
}

/// Searches a design, and looks into what it finds.
struct Explore<'a> {
    args: &'a DesignArgs,
    spec: &'a Spec,
    observer: &'a mut RunObserver,
}

impl Visitor for Explore<'_> {
    type Out = Result<Outcome>;

    fn visit<S: ExplainedSystem>(self, system: &S) -> Result<Outcome> {
        let mut plan = Plan { deadlock: system.has_deadlocks(), ..plan(self.args, self.spec)? };
        // The search knows nothing of known findings: then the watcher stops it at the first new one.
        plan.stop_at_first &= !self.observer.has_known();
        self.observer.keep_states(&format!("design {}", self.spec), &plan.states);
        worker::limit(GRACE, plan.time_max.map(|time| time + GRACE));
        let is_critical = |property: &str| system.is_critical(property);
        let mut watcher = Watcher {
            spec: self.spec,
            time_max: plan.time_max,
            is_critical: &is_critical,
            observer: self.observer,
            seen: BTreeMap::new(),
            first: self.args.first,
            news: false,
        };
        let mut report = explore(system, self.args, &plan, &mut watcher)?;
        if watcher.first && watcher.news && report.stop == Stop::Asked {
            report.stop = Stop::Violation;
        }
        let seen = watcher.seen;
        let mut violations = Vec::new();
        for discovery in report.violations() {
            let violation = look_into(system, self.spec, discovery);
            if let Some(finding) = violation.finding.as_ref().filter(|_| violation.critical) {
                let seen_as = seen.get(&discovery.property).map(String::as_str);
                self.observer.finding(&finding.record(), seen_as);
            }
            violations.push(violation);
        }
        let recoveries = system.power_failures();
        let ops = report.transitions + recoveries;
        let device = system.device();
        Ok(Outcome { spec: self.spec.clone(), device, report, ops, recoveries, violations })
    }
}

fn look_into<S: ExplainedSystem>(system: &S, spec: &Spec, discovery: &Discovery) -> Violation {
    let (property, count) = (&discovery.property, discovery.count);
    let trace = discovery.path.trace(system).ok();
    let finding = trace.and_then(|trace| {
        Finding::investigate(system, spec, property, count, &trace, SHRINK_BUDGET)
    });
    Violation {
        property: property.clone(),
        critical: system.is_critical(property),
        count,
        steps: discovery.path.steps(),
        path: discovery.path.to_string(),
        finding,
    }
}

/// How far to go.
fn plan(args: &DesignArgs, spec: &Spec) -> Result<Plan> {
    let depth_max = match spec.name.as_str() {
        "journal" | "log" => Some(args.depth.unwrap_or(DEPTH_DEFAULT)),
        _ => args.depth,
    };
    let states_max = match spec.name.as_str() {
        "link" | "index" if args.depth.is_none() => args.states.or(Some(MAPPING_STATES_DEFAULT)),
        _ => args.states,
    };
    Ok(Plan { states_max, ..bounds(args, depth_max)? })
}

/// The bounds that were typed.
fn bounds(args: &DesignArgs, depth_max: Option<u32>) -> Result<Plan> {
    let memory = match args.bitstate_mib {
        None => Memory::Exact,
        Some(mib) => {
            let bytes = sizes::mib("--bitstate-mib", mib as u64)?;
            sizes::must_fit(&format!("--bitstate-mib {mib}"), bytes)?;
            Memory::Bitstate {
                bytes: bytes as usize,
                hashes: args.bitstate_hashes,
                seed: args.bitstate_seed,
            }
        }
    };
    let memory_max_bytes =
        args.memory_mib.map(|mib| sizes::mib("--memory-mib", mib)).transpose()?;
    Ok(Plan {
        threads: args.jobs,
        depth_max,
        states_max: args.states,
        memory_max_bytes,
        time_max: {
            let mut budget = args.budget;
            worker::take_budget(&mut budget);
            budget
        },
        stop_at_first: args.first,
        memory,
        order: args.action_order,
        ..Plan::default()
    })
}

fn explore<S: System>(
    system: &S,
    args: &DesignArgs,
    plan: &Plan,
    observer: &mut dyn search::Observer,
) -> Result<Report> {
    let strategy = if args.dfs { Strategy::Dfs } else { Strategy::Bfs };
    Ok(search::search(system, &strategy, plan, observer)?)
}

/// Tells the observer of the run what the search does.
struct Watcher<'a> {
    spec: &'a Spec,
    time_max: Option<Duration>,
    is_critical: &'a dyn Fn(&str) -> bool,
    observer: &'a mut RunObserver,
    /// The ids under which violations were recorded when they were first seen.
    seen: BTreeMap<String, String>,
    /// Whether the first finding that is not known ends the search.
    first: bool,
    /// Whether there was one.
    news: bool,
}

impl search::Observer for Watcher<'_> {
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()> {
        if self.first && self.news {
            return ControlFlow::Break(());
        }
        self.observer.progress(&fathom_record::Progress {
            elapsed: progress.elapsed,
            counts: vec![
                ("operations", progress.transitions),
                ("states", progress.states),
                ("waiting", progress.open),
                ("depth", progress.depth as u64),
            ],
            share: self.time_max.map(|max| progress.elapsed.as_secs_f64() / max.as_secs_f64()),
            findings: self.seen.len() as u64,
        })
    }

    fn discovery(&mut self, discovery: &Discovery) {
        if discovery.violation && (self.is_critical)(&discovery.property) {
            let finding = first_seen(self.spec, discovery);
            self.news |= self.observer.seen(&finding);
            self.seen.insert(discovery.property.clone(), finding.id);
        }
    }
}
