//! `fathom design`: explores a model of an on-disk design completely.

mod args;
mod paper;
mod tell;

use std::ops::ControlFlow;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use fathom_designs::classic::{Philosophers, TwoPhase};
use fathom_designs::journal::{self, Journal};
use fathom_designs::logfs::{self, Logfs};
use fathom_designs::mapping::{Kind, Layout, Mapping};
use fathom_designs::volume::{Design, Explorer, Limits};
use fathom_engine::search::{
    Discovery, Memory, Observer, Plan, Progress, Report, Strategy, System, search,
};

use super::Ending;
use crate::near::did_you_mean;
use crate::text::{grouped, print, print_json};
pub(crate) use args::DesignArgs;
use tell::{Outcome, Story};

/// The designs and what each is.
pub(crate) const DESIGNS: [(&str, &str); 6] = [
    ("link", "file mapping by chains, as FAT"),
    ("index", "file mapping by tables, as ext2"),
    ("journal", "a journal in ordered mode, as ext4"),
    ("log", "log-structured with checkpoints, as F2FS"),
    ("philosophers", "the Dining Philosophers"),
    ("two-phase", "two-phase commit"),
];

/// States of a mapping design unless told otherwise: the seed's geometry has about 10¹⁰.
const MAPPING_STATES_DEFAULT: u64 = 1_000_000;
/// Length of a workload unless told otherwise.
const DEPTH_DEFAULT: u32 = 6;

pub(crate) fn run(args: &DesignArgs, json: bool) -> Result<Ending> {
    if args.paper_tables {
        return paper::run(args, json);
    }
    let name = args.design.as_deref().expect("clap asks for it");
    let outcome = match name {
        "link" => mapping(args, Kind::Link)?,
        "index" => mapping(args, Kind::Index)?,
        "journal" => volume(args, journal_design(args)?)?,
        "log" => volume(args, log_design(args)?)?,
        "philosophers" => {
            let table =
                Philosophers::new(args.size.unwrap_or(10), has(args, "polite", &["polite"])?)?;
            classic(args, &table, |_, action, _| format!("philosopher {} moves on", action.0))?
        }
        "two-phase" => {
            let switches = ["fallible"];
            let two_phase =
                TwoPhase::new(args.size.unwrap_or(5), has(args, "fallible", &switches)?)?;
            classic(args, &two_phase, |_, action, _| format!("{action:?}"))?
        }
        _ => {
            let known = DESIGNS.map(|(name, _)| name);
            bail!(
                "no design is called {name:?}: the known ones are {}{}",
                known.join(", "),
                did_you_mean(name, known.into_iter())
            )
        }
    };
    match json {
        true => print_json(&outcome.json(name))?,
        false => print(&outcome.text(name, args))?,
    }
    Ok(outcome.ending())
}

/// Whether a switch of a classic is given; any other is a mistake.
fn has(args: &DesignArgs, wanted: &str, known: &[&'static str]) -> Result<bool> {
    switches(args, |text| known.iter().find(|name| **name == text).copied(), known)
        .map(|given| given.contains(&wanted))
}

fn switches<T>(
    args: &DesignArgs,
    parse: impl Fn(&str) -> Option<T>,
    known: &[&'static str],
) -> Result<Vec<T>> {
    let one = |text: &String| {
        parse(text).ok_or_else(|| {
            let names = if known.is_empty() { "it has none".to_owned() } else { known.join(", ") };
            anyhow!(
                "this design has no switch {text:?}: {names}{}",
                did_you_mean(text, known.iter().copied())
            )
        })
    };
    args.switch.iter().map(one).collect()
}

fn journal_design(args: &DesignArgs) -> Result<Journal> {
    let known = journal::Switch::ALL.map(journal::Switch::name);
    let without = switches(args, |text| text.parse().ok(), &known)?;
    let mut design = Journal { without, ..Journal::default() };
    design.menu.entries_max = args.files.unwrap_or(design.menu.entries_max);
    Ok(design)
}

fn log_design(args: &DesignArgs) -> Result<Logfs> {
    let known = logfs::Switch::ALL.map(logfs::Switch::name);
    let switches = switches(args, |text| text.parse().ok(), &known)?;
    let mut design = Logfs { switches, ..Logfs::default() };
    design.menu.entries_max = args.files.unwrap_or(design.menu.entries_max);
    Ok(design)
}

/// The mapping design that the arguments describe.
fn mapping_of(args: &DesignArgs, kind: Kind) -> Result<Mapping> {
    switches(args, |_| None::<()>, &[])?;
    let seed = Mapping::new(kind)?;
    let files = args.files.unwrap_or(seed.layout.files());
    let layout = Layout::new(kind, files, args.blocks.unwrap_or(seed.layout.data_blocks()))?;
    if !(1..=2).contains(&args.threads) {
        bail!("--threads {}: the model has 1 or 2 threads; --jobs is for the search", args.threads);
    }
    Ok(Mapping {
        layout,
        threads: args.threads,
        cache: args.cache,
        order: args.order.into(),
        crashes: args.crashes > 0,
        symmetry: !args.no_symmetry,
    })
}

fn mapping(args: &DesignArgs, kind: Kind) -> Result<Outcome> {
    let mapping = mapping_of(args, kind)?;
    let states_max = args.states.or(args.depth.is_none().then_some(MAPPING_STATES_DEFAULT));
    let plan = Plan { states_max, ..plan(args, args.depth) };
    let report = explore(&mapping, args, &plan)?;
    let tell = |discovery: &Discovery| {
        let Ok(trace) = discovery.path.trace(&mapping) else { return String::new() };
        let (mut before, mut text) = (&trace.start, String::new());
        for (number, (action, after)) in trace.steps.iter().enumerate() {
            text += &format!("{:>3}. {}\n", number + 1, mapping.tell_step(before, action, after));
            before = after;
        }
        text + "  on the device:\n" + &mapping.draw(trace.end().media())
    };
    let critical = |name: &str| {
        use fathom_designs::mapping::Fault;
        !Fault::ALL.iter().any(|fault| fault.name() == name && !fault.is_critical())
    };
    let stories = stories(&report, tell, critical);
    Ok(Outcome { ops: report.transitions, recoveries: 0, report, stories })
}

fn volume<D: Design>(args: &DesignArgs, design: D) -> Result<Outcome> {
    let limits =
        Limits { remember: args.remember, names_count: args.no_symmetry, crashes: args.crashes };
    let explorer = Explorer::new(design, limits)?;
    let report = explore(&explorer, args, &plan(args, Some(args.depth.unwrap_or(DEPTH_DEFAULT))))?;
    let stories = stories(&report, |discovery| explorer.tell(&discovery.path), |_| true);
    let recoveries = explorer.recoveries();
    Ok(Outcome { ops: report.transitions + recoveries, recoveries, report, stories })
}

fn classic<S: System>(
    args: &DesignArgs,
    system: &S,
    tell: impl Fn(&S::State, &S::Action, &S::State) -> String,
) -> Result<Outcome> {
    let plan = Plan { deadlock: true, ..plan(args, args.depth) };
    let report = explore(system, args, &plan)?;
    let story = |discovery: &Discovery| {
        let Ok(trace) = discovery.path.trace(system) else { return String::new() };
        let (mut before, mut text) = (&trace.start, String::new());
        for (number, (action, after)) in trace.steps.iter().enumerate() {
            text += &format!("{:>3}. {}\n", number + 1, tell(before, action, after));
            before = after;
        }
        text
    };
    let stories = stories(&report, story, |_| true);
    Ok(Outcome { ops: report.transitions, recoveries: 0, report, stories })
}

fn stories(
    report: &Report,
    tell: impl Fn(&Discovery) -> String,
    critical: impl Fn(&str) -> bool,
) -> Vec<Story> {
    let story = |discovery: &Discovery| Story {
        property: discovery.property.clone(),
        critical: critical(&discovery.property),
        count: discovery.count,
        steps: discovery.path.steps(),
        path: discovery.path.to_string(),
        text: tell(discovery),
    };
    report.violations().map(story).collect()
}

fn plan(args: &DesignArgs, depth_max: Option<u32>) -> Plan {
    Plan {
        threads: args.jobs,
        depth_max,
        states_max: args.states,
        memory_max_bytes: args.memory_mib.map(|mib| mib << 20),
        time_max: args.budget,
        stop_at_first: args.first,
        memory: match args.bitstate_mib {
            None => Memory::Exact,
            Some(mib) => Memory::Bitstate { bytes: mib << 20, hashes: 3, seed: 1 },
        },
        ..Plan::default()
    }
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
        ControlFlow::Continue(())
    }

    fn discovery(&mut self, _: &Discovery) {}
}
