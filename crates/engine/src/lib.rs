//! Generates workloads, runs them side by side on a subject and the reference, judges, records.
//!
//! The modules are the flow: [`generate`] makes operations, a [`duel`] executes each on both,
//! [`oracle`] judges, [`finding`] verifies, shrinks and records what is wrong; [`check`] is the
//! campaign that ties them, [`coverage`] counts what it has exercised, and [`replay`] repeats a
//! recorded one. The engine never prints: it tells a [`Reporter`].
//!
//! Beside it, [`search`] explores every state of a system that can be cloned, [`visited`] is its
//! memory, and [`crash`] is such a system: a file system whose power fails at every write.

#![forbid(unsafe_code)]

pub mod check;
pub mod choice;
pub mod coverage;
pub mod crash;
pub mod duel;
pub mod finding;
pub mod generate;
pub mod goals;
pub mod oracle;
pub mod pulse;
pub mod replay;
pub mod run;
pub mod search;
pub mod stats;
pub mod visited;

pub use check::{Back, Exploration, Plan, Player, Remounts, Report, Strategy, check, check_all};
pub use coverage::OpCoverage;
pub use finding::Finding;
pub use generate::{Config, Generator};
pub use oracle::{Oracle, Signature};
pub use replay::{Replay, ReplayVerdict, replay};
pub use stats::Stats;

/// Is told what happens; the engine itself never prints.
pub trait Reporter {
    /// Called every now and then.
    fn progress(&mut self, stats: &Stats);

    /// Something was found; verifying and shrinking begin.
    fn suspicion(&mut self, signature: &Signature, ops: usize);

    /// A finding is complete.
    fn finding(&mut self, finding: &Finding);
}

/// A reporter that says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Reporter for Silent {
    fn progress(&mut self, _: &Stats) {}
    fn suspicion(&mut self, _: &Signature, _: usize) {}
    fn finding(&mut self, _: &Finding) {}
}
