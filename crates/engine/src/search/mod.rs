//! The explicit-state search: every state that a cloneable system can reach, judged.
//!
//! A [`System`] is four small functions and its properties. [`search`] explores it by a [`Strategy`]
//! within the bounds of a [`Plan`], tells an [`Observer`] how it goes, and returns a [`Report`].
//!
//! ```
//! use fathom_engine::search::{Plan, Property, Strategy, System, Unobserved, search};
//!
//! /// A number that can be doubled or increased.
//! struct Calculator;
//!
//! impl System for Calculator {
//!     type State = u64;
//!     type Action = char;
//!
//!     fn init(&self) -> Vec<u64> {
//!         vec![1]
//!     }
//!     fn actions(&self, _: &u64, actions: &mut Vec<char>) {
//!         actions.extend(['+', '*']);
//!     }
//!     fn next(&self, number: &u64, action: &char) -> Option<u64> {
//!         Some(if *action == '+' { number + 1 } else { number * 2 })
//!     }
//!     fn key(&self, number: &u64) -> u128 {
//!         (*number).into()
//!     }
//!     fn properties(&self) -> Vec<Property<Calculator>> {
//!         vec![Property::always("is not 100", |_, number| *number != 100)]
//!     }
//! }
//!
//! let report = search(&Calculator, &Strategy::Bfs, &Plan::default(), &mut Unobserved)?;
//! let trace = report.discoveries[0].path.trace(&Calculator).expect("its own path");
//! assert_eq!(trace.actions().collect::<String>(), "++***+**");
//! # Ok::<(), fathom_engine::search::SearchError>(())
//! ```
//!
//! # The same result for any number of threads
//!
//! States are expanded in batches by three parallel steps: *expand* the parents in pieces, *insert*
//! the keys of all children shard by shard, *collect* the new ones piece by piece. Within a shard
//! the keys are inserted in the order of their parents, so of two equal children the one with the
//! first parent (and the first action of it) stays, as if one thread had done everything in order.
//! Numbers, paths and counterexamples are then independent of threads and of timing; a search that
//! ends at a violation or at [`Plan::states_max`] ends exactly there. Bounds on time and memory are
//! checked between pieces (between batches of less than a tenth of a second) and end wherever the
//! machine happens to be.
//!
//! Which thread works on a piece makes no difference to the result, but to the time: each begins with
//! the states that it made itself, whose memory it has at hand, and helps the others afterwards.
//!
//! # Memory
//!
//! A visited state takes its key and two or three bytes for the way to it. States that wait to be
//! explored are kept whole up to a bound ([`Plan::waiting_max`]); the others are forgotten and made
//! again from the ways to them when their turn comes.
//!
//! # What is not promised
//!
//! Two states with the same key are one state. A [`System::key`] of hashed bits confuses two of n
//! states with probability n² / 2¹²⁹; a key that packs the state itself confuses none.

mod arrivals;
mod bfs;
mod checkpoint;
mod dfs;
mod explore;
mod fold;
mod judge;
mod key;
mod ledger;
mod links;
mod open;
mod order;
mod path;
mod piece;
mod plan;
mod progress;
mod rebuild;
mod recent;
mod replay;
mod report;
mod spin_barrier;
mod system;
mod visited;
mod walk;
mod workers;

pub use checkpoint::CheckpointError;
pub use key::key_of;
pub use order::ActionOrder;
pub use path::{Path, Trace};
pub use plan::{Checkpoints, Memory, Plan, Strategy};
pub use progress::{Observer, Progress, Unobserved};
pub use report::{Discovery, Report, Stop};
pub use system::{Expectation, Property, System};

use crate::search::visited::{Bitstate, Exact, Noted, Sharded, Visited};

/// The reason why a search could not be made. What a system does wrong is in the [`Report`].
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The checkpoint cannot be written, read or continued.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The plan asks for something that does not exist.
    #[error("{0}")]
    Plan(&'static str),
}

/// Explores `system`.
///
/// # Errors
/// If the plan contradicts itself, or a checkpoint cannot be used.
///
/// # Panics
/// If the system does, in any thread.
pub fn search<S: System>(
    system: &S,
    strategy: &Strategy,
    plan: &Plan,
    observer: &mut dyn Observer,
) -> Result<Report, SearchError> {
    match plan.memory {
        Memory::Exact if keeps_depths(strategy, plan) => {
            run(system, strategy, plan, Exact::with_depths, observer)
        }
        Memory::Exact => run(system, strategy, plan, Exact::new, observer),
        Memory::Bitstate { hashes: 0, .. } => {
            Err(SearchError::Plan("a bitstate set needs at least one bit per state"))
        }
        Memory::Bitstate { bytes, hashes, seed } => {
            run(system, strategy, plan, || Bitstate::new(bytes, hashes, seed), observer)
        }
    }
}

/// Whether the visited set must keep depths. A depth-first search may meet a state first by a
/// detour. Under a depth bound it has to look again when it meets the state closer to the start, or
/// it would miss what lies behind.
fn keeps_depths(strategy: &Strategy, plan: &Plan) -> bool {
    matches!(strategy, Strategy::Dfs) && plan.depth_max.is_some()
}

fn run<S: System, V: Visited>(
    system: &S,
    strategy: &Strategy,
    plan: &Plan,
    make: impl Fn() -> V,
    observer: &mut dyn Observer,
) -> Result<Report, SearchError> {
    let visited = Sharded::new(|| Noted::new(make(), &plan.states));
    match strategy {
        Strategy::Bfs => bfs::bfs(system, plan, &visited, observer),
        Strategy::Dfs => dfs::dfs(system, plan, &visited, observer),
        Strategy::Walk { .. } | Strategy::Replay(_) if plan.checkpoints.is_some() => {
            Err(SearchError::Plan("walks and replays have no checkpoints: repeat them instead"))
        }
        Strategy::Walk { seed, walks } => {
            Ok(walk::walk(system, plan, *seed, *walks, &visited, observer))
        }
        Strategy::Replay(path) => Ok(replay::replay(system, plan, path, &visited)),
    }
}
