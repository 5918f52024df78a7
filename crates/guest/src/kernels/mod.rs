//! Kernels that Fathom builds, and where they are kept.
//!
//! ```text
//!  Debian's linux-source-N ──► source ──► configuration ──► make ──► a kernel in the user's cache
//!  a developer's tree ───────────────────►                          (with its objects, for the next time)
//! ```
//!
//! * [`Cache`]: the directory of the user, with one directory per kernel.
//! * [`build`]: from an [`Order`] to a kernel; can be interrupted and goes on where it was.
//!
//! A kernel of Debian is finished once and for all: its sources and objects are removed. Those of a tree
//! stay, so that a changed file is compiled in seconds.

mod build;
mod cache;
mod configuration;
mod debian;
mod error;
mod tools;

pub use build::{Order, Progress, Source, build};
pub use cache::{Cache, Cached};
pub use error::BuildError;
