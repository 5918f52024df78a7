//! Coverage of test tools: arguments, and the forms in which it is told.

pub(crate) mod args;
mod chart;
pub(crate) mod diff;
pub(crate) mod export;
pub(crate) mod html;
pub(crate) mod own;
pub(crate) mod text;
