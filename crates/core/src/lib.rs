//! The words of Fathom.
//!
//! Everything that the parts of Fathom say to each other is here: an [`Op`] goes to a [`Subject`],
//! which answers with an [`Outcome`] and shows a [`Tree`]; a judge gives a [`Verdict`]; a [`Trace`]
//! keeps it all. This crate does no I/O of its own, reads no clock and rolls no dice.

#![forbid(unsafe_code)]

pub mod bytes;
mod call;
pub mod claim;
pub mod digest;
pub mod errno;
pub mod export;
pub mod flags;
pub mod op;
pub mod operand;
pub mod outcome;
mod packed;
pub mod partition;
pub mod pattern;
pub mod plain;
pub mod schedule;
pub mod subject;
pub mod supervision;
pub mod testbed;
pub mod trace;
pub mod tree;
pub mod verdict;
mod wrapper;

pub use bytes::{FsBytes, FsPath};
pub use claim::{Claim, Probe};
pub use digest::{DataSum, Digest};
pub use errno::Errno;
pub use flags::Mode;
pub use op::{Caller, Op, Slot, Target, TimeArg};
pub use operand::{Effect, Operand, OperandMut};
pub use outcome::{Outcome, Payload, Stat, Statfs};
pub use pattern::Pattern;
pub use plain::PlainTree;
pub use schedule::{Planned, Schedule};
pub use subject::{Capability, HarnessFault, Subject};
pub use supervision::{Activity, Journal, Supervision, Supervisor};
pub use testbed::{CheckerReport, PathState, RestoreMethod, Saved, Testbed, Unblock};
pub use trace::{Header, Interval, Step, Trace, TraceError, TraceReader, TraceWriter};
pub use tree::{Difference, Entry, Kind, Stamp, Times, Tree};
pub use verdict::{ReportKind, Verdict, Violation};
pub use wrapper::Wrapper;
