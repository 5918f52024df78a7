//! Models of on-disk designs, small enough to be explored completely: for people who want to know
//! whether a format survives power failures before they write the code.
//!
//! * [`mapping`]: where the blocks of a file are, link-type (FAT) and index-type (ext2), with one or
//!   two threads, with and without a volatile cache, every write a step of its own;
//! * [`volume`]: file systems with directories, whatever their format; [`journal`] and [`logfs`] are
//!   two of them, `examples/two_copies.rs` is one from outside;
//! * [`classic`]: the Dining Philosophers and two-phase commit, whose state counts are known.
//!
//! Each is a [`System`](fathom_engine::search::System): the explicit-state search of the engine
//! explores it. A counterexample is told step by step ([`story`]), shrunk ([`mod@shrink`]) and kept
//! ([`finding`]); [`catalog`] makes a design from its name and switches. `docs/adr/0006-designs.md`
//! says why designs see the engine and the engine never sees designs.

#![forbid(unsafe_code)]

pub mod catalog;
pub mod classic;
pub mod finding;
pub mod journal;
pub mod logfs;
pub mod mapping;
pub mod shrink;
pub mod story;
pub mod volume;
