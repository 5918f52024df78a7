//! Crash checking: every short workload, the power cut at every write, everything that is left judged.
//!
//! ```text
//!  workload ──► Record ──► crash images ──► Examine ──► judge ──► groups ──► findings
//!  (steps that  (mount,    (fathom-block,   (mount, read (against   (by       (shrunk,
//!  make sense)  operate)   every level)     all, use it) a promise) cause)    recorded)
//! ```
//!
//! [`CrashSystem`] is a [`System`](crate::search::System): the search finds the workloads, shortest
//! first, and every step that it takes is interrupted at all of its crash points. What may be left is
//! known from the reference file system and the subject's [`Guarantee`](fathom_block::Guarantee): see
//! [`promise`]. What *is* left is found out by examining each distinct image once
//! ([`fathom_block::disks`]), or from the memo of what another examination read.
//!
//! # What a state is
//!
//! An image, and the operations since it was mounted: a state is made again by mounting and repeating
//! these, because the memory of a library cannot be cloned. Two states are the same if their
//! [`shape`] is, or by the digest of the tree or of the image: see [`config::Identity`].

pub mod config;
pub mod finding;
mod flushes;
pub mod imported;
pub mod judge;
pub mod last_words;
mod ledger;
pub mod prefixes;
pub mod promise;
pub mod recovery;
pub mod replay;
mod repro;
pub mod run;
pub mod script;
pub mod sequences;
mod shape;
pub mod shrink;
pub mod stored;
pub mod system;
pub mod workload;

pub use config::CrashConfig;
pub use fathom_block::in_process::quiet_panics;
pub use finding::CrashFinding;
pub use judge::{Cause, Class};
pub use run::{CrashPlan, CrashReport, WorkloadCounts, crash};
pub use script::{Event, Script};
pub use stored::CrashReplay;
pub use system::CrashSystem;
