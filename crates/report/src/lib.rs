//! Runs, told to people: as text for a terminal, as one HTML page that needs nothing else, and as
//! JSON for machines.
//!
//! A command that runs something fills a [`Run`] and writes it as `run.json` into its output
//! directory. Everything here starts from that file, so a report can be made again later, elsewhere,
//! by a newer program, without running anything.

#![forbid(unsafe_code)]

mod compare;
pub mod cover;
pub mod html;
pub mod mail;
pub mod text;
mod verdict;
mod visible;
pub mod words;

pub use fathom_record::{Run, run};
