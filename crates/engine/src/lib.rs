//! Finds out what is wrong with a file system: three engines over one set of words.
//!
//! * [`check`] runs generated operations side by side on a subject and on the reference file system,
//!   compares every answer and the visible trees, and records what differs.
//! * [`crash`] cuts the power at every write of every short workload and judges what is left.
//! * [`search`] explores every state of a system that can be cloned; [`crash`] and the designs of
//!   on-disk formats are such systems.
//!
//! They share [`generate`] (where operations come from), [`choice`] (the one seeded stream of random
//! choices) and [`coverage`] (what the operations have exercised). The engine never prints: it tells an
//! [`Observer`](fathom_record::Observer).

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
pub use fathom_record::{Observer, Silent};
pub use generate::{Config, Generator};
