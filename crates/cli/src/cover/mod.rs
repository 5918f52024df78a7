//! `fathom cover`: what was typed, and the coverage of our own runs.

pub(crate) mod args;
pub(crate) mod own;
