//! From what was typed to what it means.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use fathom_engine::{Config, Plan};

use crate::args::CheckArgs;
use crate::subjects::{Spec, parse_mutant, read_profile};

/// Without --ops and --budget.
const BUDGET_DEFAULT: Duration = Duration::from_secs(30);

/// A subject and a plan for it.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) spec: Spec,
    pub(crate) plan: Plan,
}

/// The meaning of the arguments of `check`.
pub(crate) fn of_check(args: &CheckArgs) -> Result<Checked> {
    let mut spec: Spec = args.subject.parse()?;
    if let Some(name) = &args.mutant {
        spec = spec.with_mutant(parse_mutant(name)?)?;
    }
    if args.ops == Some(0) {
        bail!("--ops 0 checks nothing: give at least 1");
    }
    let mut config = match &args.config {
        None => Config::default(),
        Some(path) => {
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Config::from_toml(&text).with_context(|| format!("in {}", path.display()))?
        }
    };
    config.check.times |= args.times;
    if let Some(walk_every) = args.walk_every {
        config.check.walk_every = walk_every;
    }
    config.validate()?;
    let profile = args.profile.clone().map_or_else(|| spec.profile(), Ok)?;
    let budget = match (args.ops, args.budget) {
        (None, None) => Some(BUDGET_DEFAULT),
        (_, budget) => budget,
    };
    let reference = spec.reference(read_profile(&profile)?)?;
    let seed = args.seed.unwrap_or_else(clock_seed);
    let labels = labels(&profile);
    Ok(Checked { spec, plan: Plan { seed, config, reference, ops_max: args.ops, budget, labels } })
}

/// What a reader of a finding wants to know of this machine.
pub(crate) fn labels(profile: &str) -> BTreeMap<String, String> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let labels = [("kernel", kernel.trim()), ("profile", profile)];
    labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()
}

/// Six digits are enough to be different, and short enough to be typed.
fn clock_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 / 1000 % 1_000_000
}
