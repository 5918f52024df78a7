//! Toy systems whose numbers of states are published or follow a closed formula.

pub(crate) mod disk;
pub(crate) mod grid;
pub(crate) mod jugs;
pub(crate) mod philosophers;
pub(crate) mod puzzle;
pub(crate) mod queens;
pub(crate) mod random;
pub(crate) mod recorder;
pub(crate) mod two_phase;
