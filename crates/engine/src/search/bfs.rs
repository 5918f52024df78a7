//! Breadth first: nearest states first, so the first violation found is one of the shortest.
//!
//! The waiting states are a queue. States are explored in the order in which they were found, and
//! children are found in the order of their parents, whatever the batches: results do not depend on
//! how batches are cut.

use std::collections::VecDeque;

use super::explore::explore;
use super::open::{BATCH_RUNS_MAX, Open, Run, Span, join, run_states_max};
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

/// The waiting states, first in, first out. The newest states are folded if too many wait.
struct Queue<T> {
    runs: VecDeque<Run<T>>,
    /// Number of states in `runs`.
    states: usize,
    /// The folded states, which come after those in `runs`.
    folded: VecDeque<Span>,
    waiting_max: usize,
}

impl<T> Queue<T> {
    fn fold(&mut self, run: Run<T>) -> Option<Vec<T>> {
        let span = run.span();
        match self.folded.back_mut() {
            Some(last) if last.ends_before(&span) => last.nodes += span.nodes,
            _ => self.folded.push_back(span),
        }
        let mut states = run.states;
        states.clear();
        Some(states)
    }
}

impl<T> Open<T> for Queue<T> {
    const CUT_FREELY: bool = true;
    const NAME: &str = "bfs";

    fn new(waiting_max: usize) -> Queue<T> {
        Queue { runs: VecDeque::new(), states: 0, folded: VecDeque::new(), waiting_max }
    }

    fn push(&mut self, run: Run<T>) -> Option<Vec<T>> {
        if !self.folded.is_empty() || self.states >= self.waiting_max {
            return self.fold(run);
        }
        self.states += run.states.len();
        // Long runs stay with whoever made them; short ones would be too many.
        let fits = |last: &&mut Run<T>| {
            last.home == run.home || last.states.len() + run.states.len() <= run_states_max::<T>()
        };
        let (rest, spare) = join(self.runs.back_mut().filter(fits), run);
        self.runs.extend(rest);
        spare
    }

    fn take(&mut self) -> Vec<Run<T>> {
        let batch = self.runs.drain(..self.runs.len().min(BATCH_RUNS_MAX)).collect::<Vec<_>>();
        self.states -= batch.iter().map(|run| run.states.len()).sum::<usize>();
        batch
    }

    fn take_folded(&mut self) -> Vec<Span> {
        let mut batch = Vec::new();
        while self.runs.is_empty() && batch.len() < BATCH_RUNS_MAX {
            let Some(next) = self.folded.front_mut() else { break };
            batch.push(next.split_to(run_states_max::<T>() as u64));
            if next.nodes == 0 {
                self.folded.pop_front();
            }
        }
        batch
    }

    fn give_back(&mut self, runs: Vec<Run<T>>) {
        for run in runs.into_iter().rev() {
            self.states += run.states.len();
            self.runs.push_front(run);
        }
    }

    fn spans(&self) -> impl Iterator<Item = Span> {
        self.runs.iter().map(Run::span).chain(self.folded.iter().copied())
    }
}
