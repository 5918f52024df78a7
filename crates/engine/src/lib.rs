//! Finds out what is wrong with a file system: three engines over one set of words.
//!
//! * [`check`] runs generated operations side by side on a subject and on the reference file system,
//!   compares every answer and the visible trees, and records what differs.
//! * [`crash`] cuts the power at every write of every short workload and judges what is left.
//! * [`search`] explores every state of a system that can be cloned; [`crash`] and the designs of
//!   on-disk formats are such systems.
//!
//! Operations come from [`fathom_generate`]; what they have exercised is in [`coverage`]. Several callers
//! at once are in [`callers`], and the search for an order that explains them in [`linear`]. The engine
//! never prints: it tells an [`Observer`](fathom_record::Observer).
//!
//! # Example
//!
//! The reference file system with a bug in it, compared with the reference:
//!
//! ```
//! use fathom_engine::{Plan, Silent, check};
//! use fathom_generate::Config;
//! use fathom_model::{ModelSubject, Mutant};
//!
//! let correct = fathom_model::Config::default();
//! let buggy = fathom_model::Config { mutant: Some(Mutant::RmdirErrno), ..correct.clone() };
//! let mut subject = ModelSubject::new(buggy).unwrap();
//! let mut plan = Plan::new(1, Config::default(), correct);
//! plan.ops_max = Some(9_000);
//! let report = check(&mut subject, &plan, &mut Silent).unwrap();
//! let found: Vec<String> = report.findings.iter().map(|f| f.signature.to_string()).collect();
//! assert_eq!(found, ["outcome rmdir ENOTEMPTY/EEXIST"]);
//! ```
//!
//! To read on: [`check::check`] is the campaign, one file per strategy beside it
//! (`check/tour.rs`, `check/dfs.rs`, `check/walk.rs`); [`search::System`] is all that a search needs of
//! what it explores.

#![forbid(unsafe_code)]

pub mod callers;
pub mod check;
pub mod coverage;
pub mod crash;
pub mod linear;
pub mod search;

pub use check::finding::Finding;
pub use check::oracle::{Oracle, Signature};
pub use check::replay::{Replay, ReplayVerdict, replay};
pub use check::stats::Stats;
pub use check::{
    Exploration, Participant, Plan, Remounts, Report, RestorePolicy, Strategy, Workload, check,
    check_all,
};
pub use coverage::OpCoverage;
pub use fathom_record::{Observer, Silent};
