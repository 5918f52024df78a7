//! What a run leaves behind: its findings, its `run.json`, and the list of what is known already.
//!
//! Every command that can find something uses the same few words:
//!
//! * A [`Finding`] is a directory of readable files, named by its content.
//! * A [`Run`] is the file `run.json` that every command writes and `fathom report` shows.
//! * An [`Observer`] receives both while the command works, and may stop it.
//! * A [`RunDirectory`] is the observer that keeps them: what was found is on disk at once.
//! * [`Known`] findings are counted and not reported.
//! * [`coverage`] is what a run has exercised of the system calls.
//! * [`states`] is what a run has visited, as a sketch that can be united with others.
//! * [`pace`] says when something is told or over, also in a guest whose clock stands still.
//! * [`minimise`] leaves out what a finding does not need.

#![forbid(unsafe_code)]

pub mod coverage;
mod directory;
mod file;
mod finding;
mod known;
mod minimise;
mod observer;
pub mod pace;
pub mod run;
pub mod states;
pub mod swarm;

pub use directory::{Kept, RunDirectory};
pub use finding::{Evidence, Finding, RecordError, Variant};
pub use known::{KNOWN_FILE, Known, KnownEntry, KnownError};
pub use minimise::minimise;
pub use observer::{Observer, Progress, Silent};
pub use run::Run;
pub use states::{STATES_FILE, Sketch, VisitedStates};
