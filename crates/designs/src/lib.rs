//! Models of on-disk designs, small enough to be explored completely: for people who want to know
//! whether a format survives power failures before they write the code.
//!
//! * [`mapping`]: where the blocks of a file are, link-type (FAT) and index-type (ext2), with one or
//!   two threads, with and without a volatile cache, every write a step of its own;
//! * [`classic`]: the Dining Philosophers and two-phase commit, whose state counts are known.
//!
//! Each is a [`System`](fathom_engine::search::System): the explicit-state search of the engine
//! explores it, and a counterexample is a path that can be followed step by step. Why designs see
//! the engine, and the engine never sees designs: `docs/adr/0006-designs.md`.

#![forbid(unsafe_code)]

pub mod classic;
pub mod journal;
pub mod logfs;
pub mod mapping;
pub mod volume;
