//! From what was typed to a plan.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fathom_block::{DiskFileSystem, Level};
use fathom_engine::crash::config::Points;
use fathom_engine::crash::workload::StepKind;
use fathom_engine::crash::{CrashConfig, CrashPlan};
use fathom_engine::search::Strategy;
use serde_json::Value;

use super::subject::is_design;
use crate::args::{CrashArgs, Search};
use crate::sizes;
use crate::supervise::worker;

/// The checkpoint of a run, in its output directory.
const CHECKPOINT: &str = "crash.checkpoint";

/// The largest write: more than any device in memory that can be searched has.
const SIZE_MAX: u64 = 64 << 20;

/// Time for shrinking one finding.
const SHRINK_BUDGET: Duration = Duration::from_secs(5);

/// The same for a kernel file system, whose disks take milliseconds to examine.
const SHRINK_BUDGET_KERNEL: Duration = Duration::from_secs(20);

/// Crash states of one layered workload, and subsets of the writes in flight at one point of it.
const LAYERED_STATES: (u64, u64) = (400, 16);

/// Blocks of a write to a design: one, and as many as a journaled file can have twice.
const DESIGN_SIZES: [u64; 2] = [1, 2];

/// The plan.
pub(crate) fn plan(
    args: &CrashArgs,
    subject: &dyn DiskFileSystem,
    out: &Path,
) -> Result<CrashPlan> {
    let mut config = match &args.config {
        None => CrashConfig::default(),
        Some(path) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            CrashConfig::with(&text).with_context(|| format!("in {}", path.display()))?
        }
    };
    if is_design(&args.subject) && args.config.is_none() {
        // A byte stands for a block; nothing is durable before a sync.
        config.sizes = DESIGN_SIZES.to_vec();
        config.steps.push(StepKind::Sync);
    }
    let is_kernel = !subject.is_deterministic();
    if is_kernel && args.config.is_none() {
        // Exhaustively up to eight writes in flight.
        config.bounds.subsets_max = 256;
    }
    bound_layered(&mut config, args);
    config.depth = args.depth.unwrap_or(config.depth);
    config.crashes = args.crashes.unwrap_or(config.crashes);
    config.remember = args.remember.unwrap_or(config.remember);
    config.identity = args.identity.map_or(config.identity, Into::into);
    config.points = args.points.map_or(config.points, Into::into);
    leave_out(&mut config, args, is_kernel);
    if !args.level.is_empty() {
        config.levels =
            args.level.iter().map(|name| name.parse::<Level>()).collect::<Result<_, _>>()?;
    }
    if config.points == Points::Persistence && args.level.is_empty() {
        // Writes in order: nothing is reordered or torn there.
        config.levels = vec![Level::Linear];
    }
    if !args.steps.is_empty() {
        config.steps = steps(&args.steps)?;
    }
    if !args.sizes.is_empty() {
        config.sizes = args.sizes.clone();
    }
    if let Some(size) = config.sizes.iter().find(|size| **size > SIZE_MAX) {
        bail!("a write of {size} bytes fits no device of this check: give at most {SIZE_MAX}");
    }
    let memory_max_bytes =
        args.memory_mib.map(|mib| sizes::mib("--memory-mib", mib)).transpose()?;
    let strategy = strategy(args);
    let checkpoint = checkpoint(args, out)?;
    Ok(CrashPlan {
        config,
        strategy,
        threads: args.jobs,
        time_max: budget(args),
        states_max: args.states,
        memory_max_bytes,
        stop_at_first: args.first,
        checkpoint,
        checkpoint_every: args.checkpoint_every,
        shrink_budget: if is_kernel { SHRINK_BUDGET_KERNEL } else { SHRINK_BUDGET },
        labels: BTreeMap::new(),
        group: !args.every_variant,
        supervision: worker::supervision(),
        states: Default::default(),
        order: args.action_order,
    })
}

/// One layered workload has thousands of points and of subsets: many short looks say more than one long one.
fn bound_layered(config: &mut CrashConfig, args: &CrashArgs) {
    let source = args.workload.as_deref().unwrap_or_default();
    if source.starts_with("layered") && args.config.is_none() {
        (config.workload_states_max, config.bounds.subsets_max) = LAYERED_STATES;
    }
}

/// Takes out what is not asked about each disk.
fn leave_out(config: &mut CrashConfig, args: &CrashArgs, is_kernel: bool) {
    config.probe &= !args.no_probe;
    config.fsck &= !args.no_checker;
    // With neither, each disk of a kernel file system is mounted once, and only looked at.
    config.recheck &= !(is_kernel && args.no_probe && args.no_checker);
}

fn strategy(args: &CrashArgs) -> Strategy {
    match args.strategy.unwrap_or(Search::Bfs) {
        Search::Bfs => Strategy::Bfs,
        Search::Dfs => Strategy::Dfs,
        Search::Walk => Strategy::Walk { seed: args.seed, walks: args.walks },
    }
}

fn steps(names: &[String]) -> Result<Vec<StepKind>> {
    let parse = |name: &String| {
        serde_json::from_value::<StepKind>(Value::String(name.clone()))
            .with_context(|| format!("no step is called {name:?}: see `fathom config crash`"))
    };
    names.iter().map(parse).collect()
}

/// Where the search is saved, and whether to go on from there.
fn checkpoint(args: &CrashArgs, out: &Path) -> Result<Option<(PathBuf, bool)>> {
    Ok(match args.strategy {
        Some(Search::Walk) if args.resume => {
            bail!("--resume continues bfs and dfs: walks are repeated by their seed")
        }
        Some(Search::Walk) => None,
        _ if args.checkpoint || args.resume => Some((out.join(CHECKPOINT), args.resume)),
        _ => None,
    })
}

/// The time for the search; in a guest whose clock stands still the host keeps it.
fn budget(args: &CrashArgs) -> Option<Duration> {
    let mut budget = args.budget;
    worker::take_budget(&mut budget);
    budget
}
