//! Breadth first: nearest states first, so the first violation found is one of the shortest.
//!
//! A queue. States are explored in the order in which they were found, and children are found in the
//! order of their parents, whatever the batches: results do not depend on how batches are cut.

use std::collections::VecDeque;

use super::explore::explore;
use super::open::{BATCH_RUNS_MAX, Open, Run, join};
use super::plan::Plan;
use super::progress::Observer;
use super::report::Report;
use super::system::System;
use super::{SearchError, Sharded, Visited};

/// Explores breadth first.
pub(super) fn bfs<S: System, V: Visited>(
    system: &S,
    plan: &Plan,
    visited: &Sharded<V>,
    observer: &mut dyn Observer,
) -> Result<Report, SearchError> {
    explore::<S, V, Queue<S::State>>(system, plan, visited, observer)
}

/// First in, first out.
struct Queue<T> {
    runs: VecDeque<Run<T>>,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { runs: VecDeque::new() }
    }
}

impl<T> Open<T> for Queue<T> {
    const CUT_FREELY: bool = true;
    const NAME: &str = "bfs";

    fn push(&mut self, run: Run<T>) -> Option<Vec<T>> {
        let (rest, spare) = join(self.runs.back_mut(), run);
        self.runs.extend(rest);
        spare
    }

    fn take(&mut self) -> Vec<Run<T>> {
        self.runs.drain(..self.runs.len().min(BATCH_RUNS_MAX)).collect()
    }

    fn give_back(&mut self, runs: Vec<Run<T>>) {
        runs.into_iter().rev().for_each(|run| self.runs.push_front(run));
    }

    fn runs<'a>(&'a self) -> impl Iterator<Item = &'a Run<T>>
    where
        T: 'a,
    {
        self.runs.iter()
    }
}
