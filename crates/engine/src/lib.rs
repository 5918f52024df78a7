//! Finds out what is wrong with a file system: three engines over one set of words.
//!
//! * [`check`] runs generated operations side by side on a subject and on the reference file system,
//!   compares every answer and the visible trees, and records what differs.
//! * [`crash`] cuts the power at every write of every short workload and judges what is left.
//! * [`search`] explores every state of a system that can be cloned; [`crash`] and the designs of
//!   on-disk formats are such systems.
//!
//! They share [`generate`] (where operations come from), [`choice`] (the one seeded stream of random
//! choices) and [`coverage`] (what the operations have exercised). The engine never prints: it tells a
//! [`Reporter`].

#![forbid(unsafe_code)]

pub mod check;
pub mod choice;
pub mod coverage;
pub mod crash;
pub mod generate;
pub mod search;

pub use check::finding::Finding;
pub use check::oracle::{Oracle, Signature};
pub use check::replay::{Replay, ReplayVerdict, replay};
pub use check::stats::Stats;
pub use check::{
    Exploration, Participant, Plan, Remounts, Report, RestorePolicy, Strategy, check, check_all,
};
pub use coverage::OpCoverage;
pub use generate::{Config, Generator};

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
