//! Classics whose state counts are known: the search is measured and tested with them.

pub mod philosophers;
pub mod two_phase;

pub use philosophers::Philosophers;
pub use two_phase::TwoPhase;
