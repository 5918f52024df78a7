//! `fathom design`: explores a model of an on-disk design completely.

pub(crate) mod again;
mod args;
mod page;
mod paper;
mod tell;

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Error, Result, anyhow, bail};
use fathom_designs::catalog::{Spec, SpecError, Visitor, names};
use fathom_designs::finding::Finding;
use fathom_designs::story::ExplainedSystem;
use fathom_engine::search::{
    Discovery, Memory, Observer, Plan, Progress, Report, Strategy, System, search,
};
use fathom_report::run::FILE;

use super::Ending;
use crate::near::did_you_mean;
use crate::sizes;
use crate::supervise::output::keep;
use crate::supervise::worker;
use crate::text::{grouped, print, print_json};
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
    let outcome = spec.open(Explore { args, spec: &spec, out }).map_err(with_hint)??;
    for finding in outcome.findings() {
        keep(finding.write(out));
    }
    if let Err(error) = page::page(&outcome, args.jobs, out).write(&out.join(FILE)) {
        eprintln!(
            "fathom: {FILE} cannot be written, `fathom report` will not show this run: {error}"
        );
    }
    match json {
        true => print_json(&outcome.json())?,
        false => print(&outcome.text(args, out))?,
    }
    if outcome.report.transitions == 0 && outcome.violations.is_empty() {
        bail!("no step was taken: this run says nothing about {spec}");
    }
    Ok(outcome.ending())
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
    out: &'a Path,
}

impl Visitor for Explore<'_> {
    type Out = Result<Outcome>;

    fn visit<S: ExplainedSystem>(self, system: &S) -> Result<Outcome> {
        make_out(self.out)?;
        let plan = Plan { deadlock: system.has_deadlocks(), ..plan(self.args, self.spec)? };
        worker::limit(GRACE, plan.time_max.map(|time| time + GRACE));
        let report = explore(system, self.args, &plan)?;
        let violations =
            report.violations().map(|discovery| self.look_into(system, discovery)).collect();
        let recoveries = system.power_failures();
        let ops = report.transitions + recoveries;
        let device = system.device();
        Ok(Outcome { spec: self.spec.clone(), device, report, ops, recoveries, violations })
    }
}

impl Explore<'_> {
    fn look_into<S: ExplainedSystem>(&self, system: &S, discovery: &Discovery) -> Violation {
        let (property, count) = (&discovery.property, discovery.count);
        let trace = discovery.path.trace(system).ok();
        let finding = trace.and_then(|trace| {
            Finding::investigate(system, self.spec, property, count, &trace, SHRINK_BUDGET)
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
            Memory::Bitstate { bytes: bytes as usize, hashes: 3, seed: 1 }
        }
    };
    let memory_max_bytes =
        args.memory_mib.map(|mib| sizes::mib("--memory-mib", mib)).transpose()?;
    Ok(Plan {
        threads: args.jobs,
        depth_max,
        states_max: args.states,
        memory_max_bytes,
        time_max: args.budget,
        stop_at_first: args.first,
        memory,
        ..Plan::default()
    })
}

fn explore<S: System>(system: &S, args: &DesignArgs, plan: &Plan) -> Result<Report> {
    let strategy = if args.dfs { Strategy::Dfs } else { Strategy::Bfs };
    Ok(search(system, &strategy, plan, &mut Bar { last: Duration::ZERO })?)
}

/// Tells how it goes, on the standard error, once a second if that is a terminal.
struct Bar {
    last: Duration,
}

impl Observer for Bar {
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()> {
        use std::io::IsTerminal;
        if std::io::stderr().is_terminal() && progress.elapsed - self.last >= Duration::from_secs(1)
        {
            self.last = progress.elapsed;
            let (states, open) = (grouped(progress.states), grouped(progress.open));
            eprintln!("{states} states, {open} waiting, depth {}", progress.depth);
        }
        match worker::is_interrupted() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn discovery(&mut self, _: &Discovery) {}
}
