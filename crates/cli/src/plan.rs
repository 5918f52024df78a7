//! From what was typed to what it means.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use fathom_engine::{Exploration, Plan, Strategy, Workload};
use fathom_generate::Call;
use fathom_generate::Config;
use fathom_subjects::catalogue::{Asked, Purpose};
use fathom_subjects::kernel::drawn::has_options;

use crate::args::{CheckArgs, Distribution};
use crate::drawn_options;
use crate::execution;
use crate::subjects::Spec;
use crate::supervise::worker;

/// Without --ops and --budget.
const BUDGET_DEFAULT: Duration = Duration::from_secs(30);

/// How often nothing is done for a while, where that takes no time.
const WAIT_WEIGHT: u32 = 3;

/// A call may wait for a server that starts again, and for what others may reclaim before it.
const NETWORK_DEADLINE: Duration = Duration::from_secs(120);

/// How long a call on a subject may take if `asked` was asked for: over a network it takes its time.
pub(crate) fn call_deadline(spec: &Spec, asked: Duration) -> Duration {
    if spec.offers().network { asked.max(NETWORK_DEADLINE) } else { asked }
}

/// How often something happens to a server.
const SERVER_WEIGHT: u32 = 2;

/// Shrinking may take so many times longer on a clock that stands still but for waits.
const WAITS_TRIED: u64 = 3600;

/// Operations of shrinking that stand for a second of it there: a guest executes 1,000 to 5,000 in one. With 2,000,
/// traces of thousands that need a remount stayed as long as they were.
const SHRINK_OPS_PER_SECOND: u64 = 5000;

/// A subject and a plan for it.
#[derive(Clone)]
pub(crate) struct CheckPlan {
    pub(crate) spec: Spec,
    /// Who else votes, each with its reference.
    pub(crate) rivals: Vec<(Spec, fathom_model::Config)>,
    pub(crate) plan: Plan,
    /// What was found out about the subject.
    pub(crate) notes: Vec<String>,
}

/// The meaning of the arguments of `check`.
pub(crate) fn of_check(args: &CheckArgs, out: &Path) -> Result<CheckPlan> {
    let seed = args.seed.unwrap_or_else(clock_seed);
    let draws = args.options.is_some() && has_options(&args.subject);
    let subject = if draws { args.subject.clone() } else { variant(args, seed)? };
    let spec = subject.parse::<Spec>()?.with(&Asked {
        mutant: args.mutant.as_deref(),
        profile: args.profile.as_deref(),
        mkfs: args.mkfs_opts.as_deref(),
        mount: args.mount_opts.as_deref(),
        space_bytes: args.space,
        disk_bytes: args.disk,
        nfs: args.nfs.as_deref(),
        server: args.server.as_deref(),
        clients: args.clients,
        lossy: args.lossy,
        ..Asked::default()
    })?;
    spec.demand(Purpose::Check)?;
    spec.check_risk(args.on_host)?;
    let (spec, drawn) = match draws {
        true => with_drawn_options(args, &spec, seed, out)?,
        false => (spec, Vec::new()),
    };
    if args.ops == Some(0) {
        bail!("--ops 0 checks nothing: give at least 1");
    }
    let mut config = config(args, seed)?;
    let offers = spec.offers();
    if offers.network && args.config.is_none() {
        config.weights.insert(Call::Server, SERVER_WEIGHT);
    }
    config.weights.retain(|call, _| offers.operations.contains(call.name()));
    let profile = args.profile.clone().map_or_else(|| spec.profile(), Ok)?;
    let mut reference = reference(&spec, &profile, args.dry_run)?;
    // A profile that somebody named says all that may be missing.
    let notes = match args.profile.is_none() && !args.dry_run {
        true => spec.probe(&mut reference, &args.require)?,
        false => Vec::new(),
    };
    let notes = [drawn, notes].concat();
    let mut plan = Plan::new(seed, config, reference);
    plan.explore = exploration(args)?;
    plan.explore.deadline = call_deadline(&spec, plan.explore.deadline);
    plan.ops_max = args.ops;
    plan.budget = match (args.ops, args.budget) {
        (None, None) => Some(BUDGET_DEFAULT),
        (_, budget) => budget,
    };
    plan.map = args.map.clone().map(|path| (path, args.resume));
    if plan.map.is_some() && plan.explore.strategy != Strategy::Tour {
        bail!("--map keeps the map of a tour: leave it out, or give --strategy tour");
    }
    plan.labels = labels(&profile);
    if let Some(guest) = worker::in_guest() {
        plan.seed = guest.seed;
        plan.ops_max = plan.ops_max.map(|ops| ops.saturating_sub(guest.ops_before).max(1));
        plan.labels.insert("guest".to_owned(), guest.kernel.clone());
        plan.labels.insert("guest_seed".to_owned(), guest.kernel_seed.to_string());
        let command = repeated_command(plan.seed, plan.ops_max);
        plan.labels.insert(execution::COMMAND_LABEL.to_owned(), command);
        worker::take_budget(&mut plan.budget);
        if guest.virtual_clock {
            let seconds = plan.config.check.shrink_seconds / WAITS_TRIED;
            plan.shrink_ops_max = Some(seconds.saturating_mul(SHRINK_OPS_PER_SECOND));
        }
    }
    take_workload(args, &mut plan)?;
    Ok(CheckPlan { spec, rivals: rivals(args)?, plan, notes })
}

/// The configuration that a file has, changed by what the command line says.
fn config(args: &CheckArgs, seed: u64) -> Result<Config> {
    let mut config = match &args.config {
        None => Config::default(),
        Some(path) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Config::from_toml(&text).with_context(|| format!("in {}", path.display()))?
        }
    };
    adapt_to_clock(&mut config, args);
    config.check.times |= args.times;
    if let Some(tree_every) = args.tree_every {
        config.check.tree_every = tree_every;
    }
    if args.every_tree {
        config.check.tree_every = 1;
    }
    if args.first {
        config.check.findings_max = 1;
    }
    if args.inputs == Distribution::Random {
        config.draw_weights(seed);
    }
    config.validate()?;
    Ok(config)
}

/// Where the clock stands still but for waits, these are free, and shrinking is not bounded by it, but by the
/// number of its operations ([`SHRINK_OPS_PER_SECOND`]).
fn adapt_to_clock(config: &mut Config, args: &CheckArgs) {
    if !worker::in_guest().is_some_and(|guest| guest.virtual_clock) {
        return;
    }
    if args.config.is_none() {
        config.weights.insert(Call::Wait, WAIT_WEIGHT);
    }
    config.check.shrink_seconds = config.check.shrink_seconds.saturating_mul(WAITS_TRIED);
}

/// Takes over where operations come from.
fn take_workload(args: &CheckArgs, plan: &mut Plan) -> Result<()> {
    plan.workload = args.workload.clone();
    let mut strategy = plan.explore.strategy.to_string();
    if plan.workload != Workload::Ops {
        if plan.map.is_some() || args.callers.is_some() {
            bail!("--workload layered goes without --map and --callers: leave one of them out");
        }
        strategy = "layered".to_owned();
    }
    plan.labels.insert("strategy".to_owned(), strategy);
    Ok(())
}

/// The reference of a subject. Nothing is made for a plan that is only shown.
fn reference(spec: &Spec, profile: &str, dry_run: bool) -> Result<fathom_model::Config> {
    Ok(if dry_run { spec.planned_reference(profile)? } else { spec.reference(profile)? })
}

/// The subject with options that the seed draws, and what is to be told of that.
fn with_drawn_options(
    args: &CheckArgs,
    spec: &Spec,
    seed: u64,
    out: &Path,
) -> Result<(Spec, Vec<String>)> {
    check_random(args)?;
    if worker::in_guest().is_none() && !args.on_host {
        bail!(
            "{spec} with unusual options may harm this machine: run it in a guest (--guest KERNEL), or with \
             --on-host if nothing here matters"
        );
    }
    let found = drawn_options::draw(spec, seed, out, args.dry_run)?;
    let note = found.note();
    Ok((found.spec, vec![note]))
}

fn check_random(args: &CheckArgs) -> Result<()> {
    match args.options.as_deref() {
        None | Some("random") => Ok(()),
        Some(options) => bail!(
            "--options {options} is not known: give random, or the name of a variant as subject"
        ),
    }
}

/// The subject, or the variant of it that the seed picks.
fn variant(args: &CheckArgs, seed: u64) -> Result<String> {
    if args.options.is_none() {
        return Ok(args.subject.clone());
    }
    check_random(args)?;
    let mut names = fathom_subjects::kernel::variants_of(&args.subject);
    if names.is_empty() {
        bail!("{} has no variants and no options to draw: ext4, xfs and btrfs have", args.subject);
    }
    Ok(names.swap_remove((seed % names.len() as u64) as usize))
}

fn exploration(args: &CheckArgs) -> Result<Exploration> {
    let default = Exploration::default();
    if args.depth == Some(0) || args.moves == Some(0) || args.states == Some(0) {
        bail!("--depth, --moves and --states need at least 1: nothing would be explored");
    }
    Ok(Exploration {
        strategy: args.strategy,
        depth_max: args.depth.unwrap_or(default.depth_max),
        moves: args.moves.unwrap_or(default.moves),
        back: args.back,
        remounts: args.remount,
        fsck_every: args.fsck,
        states_max: args.states,
        deadline: args.deadline,
        images: args.images,
        hold_files: default.hold_files,
    })
}

/// The model always votes; who else does is set up by its own profile.
fn rivals(args: &CheckArgs) -> Result<Vec<(Spec, fathom_model::Config)>> {
    let mut rivals = Vec::new();
    for name in args.against.iter().filter(|name| *name != "model") {
        let mut spec: Spec = name.parse().context("in --against")?;
        if spec.offers().space {
            spec = spec.with(&Asked { space_bytes: args.space, ..Asked::default() })?;
        }
        spec.check_risk(args.on_host)?;
        let mut reference = reference(&spec, &spec.profile()?, args.dry_run)?;
        if !args.dry_run {
            spec.probe(&mut reference, &[])?;
        }
        rivals.push((spec, reference));
    }
    Ok(rivals)
}

/// What a reader of a finding wants to know of this machine.
pub(crate) fn labels(profile: &str) -> BTreeMap<String, String> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let labels = [("kernel", kernel.trim()), ("profile", profile)];
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// The words, as JSON, of a command that repeats this one in a guest: with its seed and limit, and without
/// what belongs to this run alone.
fn repeated_command(seed: u64, ops_max: Option<u64>) -> String {
    const OWN: [&str; 7] =
        ["--out", "--guest", "--guest-seed", "--guest-seeds", "--seed", "--ops", "--worker"];
    let mut words = Vec::new();
    let mut typed = std::env::args().skip(1);
    while let Some(word) = typed.next() {
        let name = word.split('=').next().unwrap_or_default();
        if OWN.contains(&name) {
            // Its value is a word of its own, unless there is a sign between them.
            if name == word {
                typed.next();
            }
        } else if word != "--in-guest" {
            // How it is told is part of the execution: who prints, waits.
            words.push(word);
        }
    }
    words.extend(["--seed".to_owned(), seed.to_string()]);
    if let Some(ops) = ops_max {
        words.extend(["--ops".to_owned(), ops.to_string()]);
    }
    serde_json::to_string(&words).unwrap_or_default()
}

/// A seed for whoever gives none. Six digits are enough to be different, and short enough to be typed.
pub(crate) fn clock_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 / 1000 % 1_000_000
}
