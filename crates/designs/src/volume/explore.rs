//! Runs a whole exploration in one call.

use std::fmt;

use fathom_engine::search::{Plan, Report, Strategy, Unobserved, search};

use super::design::Design;
use super::explorer::{Explorer, ExplorerError, Limits};

/// The result of an exploration.
#[derive(Debug)]
pub struct Explored<D> {
    /// The explorer, to look at paths.
    pub explorer: Explorer<D>,
    /// The report of the search.
    pub report: Report,
}

/// Tries every workload of up to so many operations, with one power failure at every write of each.
///
/// # Errors
/// If the design has a mistake that needs no workload to be seen.
pub fn explore<D: Design>(design: D, depth: u32) -> Result<Explored<D>, ExplorerError> {
    let explorer = Explorer::new(design, Limits::default())?;
    let plan = Plan { depth_max: Some(depth), ..Plan::default() };
    let report = search(&explorer, &Strategy::Bfs, &plan, &mut Unobserved)
        .expect("a plan with nothing but a depth is sound");
    Ok(Explored { explorer, report })
}

/// Shows people how far it went, and the shortest way to each violation.
impl<D: Design> fmt::Display for Explored<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explored { explorer, report } = self;
        let (states, failures) = (report.states, explorer.recoveries());
        writeln!(f, "{states} states, {failures} power failures: {}", report.stop)?;
        for violation in report.violations() {
            writeln!(f, "{} is violated:", violation.property)?;
            write!(f, "{}", explorer.tell(&violation.path))?;
        }
        Ok(())
    }
}
