//! Depth first: the newest states first, so that few have to wait.
//!
//! The waiting states are a stack. A batch is always the same newest states, whatever the number of
//! threads, so that the order is the same too; with one state per batch it would be the textbook's
//! search.

use super::explore::explore;
use super::open::{BATCH_RUNS_MAX, Open, Run, Span, join};
use super::plan::Plan;
use super::progress::Observer;
use super::report::Report;
use super::system::System;
use super::{SearchError, Sharded, Visited};

/// States after which a batch is full: enough to keep a dozen threads busy, few enough that the
/// search stays narrow.
const BATCH_STATES: usize = 1024;

/// Explores depth first.
pub(super) fn dfs<S: System, V: Visited>(
    system: &S,
    plan: &Plan,
    visited: &Sharded<V>,
    observer: &mut dyn Observer,
) -> Result<Report, SearchError> {
    explore::<S, V, Stack<S::State>>(system, plan, visited, observer)
}

/// The waiting states, last in, first out.
struct Stack<T> {
    runs: Vec<Run<T>>,
}

impl<T> Open<T> for Stack<T> {
    const CUT_FREELY: bool = false;
    const NAME: &str = "dfs";

    /// Makes an empty stack. Few states wait: none is folded.
    fn new(_: usize) -> Stack<T> {
        Stack { runs: Vec::new() }
    }

    fn push(&mut self, run: Run<T>) -> Option<Vec<T>> {
        let (rest, spare) = join(self.runs.last_mut(), run);
        self.runs.extend(rest);
        spare
    }

    fn take(&mut self) -> Vec<Run<T>> {
        let (mut states, mut from) = (0, self.runs.len());
        while from > 0 && states < BATCH_STATES && self.runs.len() - from < BATCH_RUNS_MAX {
            from -= 1;
            states += self.runs[from].states.len();
        }
        self.runs.split_off(from)
    }

    fn give_back(&mut self, runs: Vec<Run<T>>) {
        self.runs.extend(runs);
    }

    fn spans(&self) -> impl Iterator<Item = Span> {
        self.runs.iter().map(Run::span)
    }
}
