//! The coverage of a run: what was exercised, how evenly, and what never.
//!
//! It is plain data with names as text, so that reports of different runs, tools and versions can be
//! read back and compared. `trace` fills it, `report` shows it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The version of the format; readers refuse others.
pub const VERSION: u32 = 1;

/// The coverage of one run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// The version of the format: [`VERSION`].
    pub fathom_cover: u32,
    /// The command that was run or the logs that were read.
    pub title: String,
    /// The tracer: `bpf`, `stream`, `ptrace`, or the kind of log.
    pub tracer: String,
    /// Limits of the tracer in this run: what it could not see.
    pub limits: Vec<String>,
    /// The watched file systems.
    pub mounts: Vec<Watched>,
    /// The end of the command.
    pub ended: Option<Ended>,
    /// Seconds that it ran.
    pub seconds: f64,
    /// The granularity of amounts: `powers` or `boundaries`.
    pub amounts: String,
    /// Whether results are known (logs of inputs have none).
    pub has_outputs: bool,
    /// Calls on the watched file systems.
    pub calls: u64,
    /// Calls that could not be counted.
    pub lost: u64,
    /// Calls of which the file system was not found out; they count nowhere else.
    pub unresolved: u64,
    /// Calls attributed to the last directory that was known.
    pub guessed: u64,
    /// Number of exercised partitions.
    pub partitions_hit: usize,
    /// Number of reachable partitions.
    pub partitions_total: usize,
    /// Number of partitions left out of the total.
    pub partitions_unreachable: usize,
    /// Number of pairs of flags that met.
    pub pairs_hit: usize,
    /// Number of pairs of flags that can meet.
    pub pairs_total: usize,
    /// Exercised and reachable partitions by scope: how far from everyday use a call is.
    pub scopes: BTreeMap<String, Tally>,
    /// Every family of calls.
    pub bases: BTreeMap<String, CallReport>,
    /// Calls that belong to no file system (a bad descriptor, a bad address): how each ended.
    pub orphans: BTreeMap<String, BTreeMap<String, u64>>,
    /// The largest holes, largest first.
    pub holes: Vec<Hole>,
}

/// A watched file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// Its mount point.
    pub path: String,
    /// Its type.
    pub kind: String,
}

/// Exercised and reachable partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Number of exercised ones.
    pub hit: usize,
    /// Number of reachable ones.
    pub total: usize,
}

/// One family of calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CallReport {
    /// Its distance from everyday use.
    pub scope: String,
    /// Number of calls.
    pub calls: u64,
    /// Number of calls by system call.
    pub variants: BTreeMap<String, u64>,
    /// Number of exercised partitions of arguments and results.
    pub partitions_hit: usize,
    /// Number of reachable partitions of arguments and results.
    pub partitions_total: usize,
    /// The partitions of its arguments.
    pub args: BTreeMap<String, PlaceReport>,
    /// The partitions of its results.
    pub output: PlaceReport,
}

/// One argument, or the result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PlaceReport {
    /// The kind: `bitmask`, `numeric`, `categorical`, `identifier`, `pointer` or `output`.
    pub kind: String,
    /// Exercised and reachable partitions.
    #[serde(flatten)]
    pub tally: Tally,
    /// Coefficient of variation of the counts: 0 is even; none if nothing was exercised.
    pub variation: Option<f64>,
    /// All partitions with their counts, in their natural order.
    pub partitions: Vec<Bucket>,
    /// Pairs of flags, where it has any.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pairs: Option<Pairs>,
}

/// One partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// Number of calls that exercised it.
    pub count: u64,
    /// The reason why it cannot be exercised.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unreachable: Option<String>,
    /// Whether no manual page mentions it: then it does not count in the totals.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub undocumented: bool,
}

impl Bucket {
    /// Whether it counts in the totals.
    pub fn counts(&self) -> bool {
        !self.undocumented && (self.unreachable.is_none() || self.count > 0)
    }
}

/// Pairs of flags of one argument.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pairs {
    /// Exercised and possible pairs.
    #[serde(flatten)]
    pub tally: Tally,
    /// The exercised ones (`A|B`) with their counts.
    pub counts: BTreeMap<String, u64>,
}

/// Inputs or outputs that no test exercises.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hole {
    /// The hole in words.
    pub words: String,
    /// An example of a call that would fill it.
    pub add: String,
    /// The partitions of the hole, by their names on the command line.
    pub partitions: Vec<String>,
}

/// The end of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// The command ended by itself, with this code.
    Exit(i32),
    /// The command ended by this signal.
    Signal(i32),
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Exit(code) => write!(f, "exit code {code}"),
            Ended::Signal(signal) => write!(f, "killed by signal {signal}"),
        }
    }
}

impl Report {
    /// The share of the reachable partitions that were hit, 0 to 1.
    pub fn completeness(&self) -> f64 {
        ratio(self.partitions_hit, self.partitions_total)
    }

    /// The count of a partition by its name on the command line; `None` if there is no such partition.
    pub fn count(&self, id: &str) -> Option<u64> {
        let (base, rest) = id.split_once('.')?;
        let (place, name) = rest.split_once('.')?;
        let call = self.bases.get(base)?;
        let place = if place == "output" { &call.output } else { call.args.get(place)? };
        place.partitions.iter().find(|bucket| bucket.name == name).map(|bucket| bucket.count)
    }

    /// The names of all partitions, as [`Report::count`] takes them.
    pub fn ids(&self) -> Vec<String> {
        let places = self.bases.iter().flat_map(|(base, call)| {
            let args = call.args.iter().map(|(arg, place)| (arg.as_str(), place));
            args.chain([("output", &call.output)]).map(move |(arg, place)| (base, arg, place))
        });
        let ids = places.flat_map(|(base, arg, place)| {
            place.partitions.iter().map(move |bucket| format!("{base}.{arg}.{}", bucket.name))
        });
        ids.collect()
    }
}

/// The share of `hit` in `total`, 0 if `total` is 0.
pub fn ratio(hit: usize, total: usize) -> f64 {
    if total == 0 { 0.0 } else { hit as f64 / total as f64 }
}
