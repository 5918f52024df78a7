//! The knowledge of a search, apart from the states themselves: the part that a checkpoint keeps.

use super::judge::{Judge, Tallies};
use super::links::Links;
use super::open::{Run, Span};
use super::piece::{PieceResult, Place};
use super::report::Stop;
use super::system::System;

/// The counts, the links and the finds of a search.
#[derive(Clone, Debug)]
pub(super) struct Ledger {
    pub(super) links: Links,
    pub(super) states: u64,
    pub(super) transitions: u64,
    pub(super) states_by_depth: Vec<u64>,
    /// Sum of the keys of all nodes: a system that gives another sum has changed.
    pub(super) key_sum: u128,
    /// Nodes at the depth bound.
    pub(super) beyond: Vec<Span>,
    /// Nodes that were taken but not (completely) explored when the search ended.
    pub(super) unfinished: Vec<Span>,
    /// The finds, by node.
    pub(super) found: Tallies<u64>,
}

impl Ledger {
    pub(super) fn new<S: System>(judge: &Judge<'_, S>) -> Ledger {
        Ledger {
            links: Links::default(),
            states: 0,
            transitions: 0,
            states_by_depth: Vec::new(),
            key_sum: 0,
            beyond: Vec::new(),
            unfinished: Vec::new(),
            found: judge.tallies(),
        }
    }

    /// The largest number of steps to a state.
    pub(super) fn depth(&self) -> usize {
        self.states_by_depth.len().saturating_sub(1)
    }

    /// Counts new states.
    pub(super) fn count(&mut self, depth: u32, states: u64) {
        if states == 0 {
            return;
        }
        let depth = depth as usize;
        if self.states_by_depth.len() <= depth {
            self.states_by_depth.resize(depth + 1, 0);
        }
        self.states_by_depth[depth] += states;
        self.states += states;
    }

    /// Moves a state that was counted at a larger depth to a smaller one.
    fn correct(&mut self, from: u32, to: u32) {
        self.states_by_depth[from as usize] -= 1;
        self.states -= 1;
        self.count(to, 1);
        while self.states_by_depth.last() == Some(&0) {
            self.states_by_depth.pop();
        }
    }

    /// Adds the result of the parents in `span`; returns the children to explore, and the reason if
    /// the search has to end here. Calls `news` with each property that has something found for the
    /// first time.
    pub(super) fn add<S: System>(
        &mut self,
        span: Span,
        result: PieceResult<S::State>,
        judge: &Judge<'_, S>,
        news: impl FnMut(usize),
    ) -> (Vec<Run<S::State>>, Option<Stop>) {
        let depth = span.depth + 1;
        let mut first_node = self.links.nodes() + 1;
        judge.merge(&mut self.found, result.tallies, news, |place| match place {
            Place::Parent(index) => span.first_node + index,
            Place::Child(index) => first_node + index,
        });
        self.count(depth, result.states_new);
        result.moved_from.iter().for_each(|from| self.correct(*from, depth));
        self.key_sum = self.key_sum.wrapping_add(result.key_sum);
        self.transitions += result.transitions;
        if result.runs.is_empty() {
            let too_deep = Span { depth, first_node, nodes: result.links.nodes };
            too_deep.append(&mut self.beyond);
        }
        if result.halt.is_some() {
            let done = result.parents_done;
            let left =
                Span { first_node: span.first_node + done, nodes: span.nodes - done, ..span };
            left.append(&mut self.unfinished);
        }
        self.links.append(result.links);
        let mut runs = Vec::with_capacity(result.runs.len());
        for states in result.runs {
            let run = Run { depth, first_node, states, home: result.home };
            first_node += run.states.len() as u64;
            runs.push(run);
        }
        (runs, result.halt)
    }
}
