//! Makes the operations that are tried: one crate for every source of workloads.
//!
//! * [`Generator`] draws weighted random operations that fit the state of the reference; every knob is in
//!   [`DEFAULT_TOML`].
//! * [`layered`] grows long workloads in three layers: directories, links and files that become large.
//! * [`callers`] draws operations of several callers that get into each other's way.
//! * [`ace`] enumerates every short workload of a bounded space, [`known`] those that once showed a bug,
//!   [`persisted`] puts persistence operations between weighted random ones, [`varied`] gives other
//!   arguments to the operations of any of them, and [`fitted`] leaves out what a file system lacks.
//!
//! All of them are pure functions of a seed or of a number: whatever is random comes from the one stream in
//! [`choice`].
//!
//! # Example
//!
//! ```
//! use fathom_generate::ace::{self, Part, Space};
//!
//! let space = Space::new(1, false, false).unwrap();
//! assert_eq!(ace::unique(&space, Part::WHOLE).count(), 316);
//! ```

#![forbid(unsafe_code)]

pub mod ace;
pub mod callers;
pub mod choice;
pub mod fitted;
pub mod known;
pub mod layered;
pub mod persisted;
pub mod varied;
mod weighted;

pub use weighted::{Call, Config, ConfigError, DEFAULT_TOML, Generator};
