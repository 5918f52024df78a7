//! Who is told what a run does.

use std::ops::ControlFlow;
use std::time::Duration;

use fathom_core::partition::Coverage;

use crate::Finding;

/// Where a run is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Duration,
    /// What this kind of run counts, the most telling first. The names are those of
    /// [`Run::counts`](crate::Run::counts).
    pub counts: Vec<(&'static str, u64)>,
    /// Which part of its bounds is used up, if it has any.
    pub share: Option<f64>,
    /// Different findings so far.
    pub findings: u64,
}

impl Progress {
    /// The value of a count, 0 if the run does not count that.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value)
    }
}

/// Receives the progress and the findings of a run; what works never prints.
pub trait Observer {
    /// Called a few times per second; `Break` ends the run, with everything that it has.
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()>;

    /// Called beside [`Observer::progress`] by runs that count what they exercise. Working `coverage` out takes
    /// milliseconds: an observer asks for it when it writes it, not each time.
    fn coverage(&mut self, _coverage: &dyn Fn() -> Coverage) {}

    /// Something that a reader should know, and that is no finding.
    fn note(&mut self, _note: &str) {}

    /// Something was found. It is told as it was first seen: running it again and shrinking it
    /// begin now, and may fail. Returns whether it is news: what is known is only counted, and need
    /// not be looked at any closer.
    fn seen(&mut self, finding: &Finding) -> bool;

    /// A finding is complete, or has been seen more often. `seen_as` is the id under which it was
    /// first told, if that was another one.
    fn finding(&mut self, finding: &Finding, seen_as: Option<&str>);
}

/// An observer that ignores everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn progress(&mut self, _: &Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn seen(&mut self, _: &Finding) -> bool {
        true
    }

    fn finding(&mut self, _: &Finding, _: Option<&str>) {}
}
