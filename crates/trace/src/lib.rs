//! Watches the system calls of a test tool and counts which inputs and outputs of a file system it
//! exercises.
//!
//! ```text
//! tracer or importer ──► samples ──► coverage ──► report
//! bpf, ptrace, logs      (counted)   partitions   metrics, holes
//! ```
//!
//! A [`Sample`](sample::Sample) is a call by the classes of its arguments: all that partitions need.
//! Tracers and importers only count samples; [`analyse`] turns them into partitions once, at the end.

#![allow(unsafe_code, reason = "system calls; each block says why it is sound")]

pub mod analyse;
pub mod bpf;
pub mod error;
mod guard;
pub mod import;
pub mod layout;
pub mod ptrace;
pub mod record;
pub mod report;
pub mod run;
pub mod sample;
mod signals;
pub mod spawn;
pub mod target;
pub mod traced;

pub use error::{Result, TraceError};
pub use target::Target;
pub use traced::{Ended, Traced};
