//! Classics whose state counts are known: the search is measured and tested with them.

pub mod philosophers;
mod tell;
pub mod two_phase;

pub use philosophers::{Philosophers, SeatsError};
pub use two_phase::{ManagersError, TwoPhase};
