//! States that wait to be explored.

use serde::{Deserialize, Serialize};

/// Greatest number of states of one run: large enough to be worth a claim, small enough to share
/// evenly. Large states come in shorter runs: a batch with all its children should not be much more
/// than what the caches hold. Depends on nothing but the type, so that results do not either.
pub(super) const fn run_states_max<T>() -> usize {
    const RUN_BYTES: usize = 32 << 10;
    let fitting = RUN_BYTES / if size_of::<T>() == 0 { 1 } else { size_of::<T>() };
    match fitting {
        ..16 => 16,
        16..=256 => fitting,
        _ => 256,
    }
}

/// Greatest number of runs of one batch.
pub(super) const BATCH_RUNS_MAX: usize = 64;

/// States at the same depth with consecutive node numbers.
#[derive(Debug)]
pub(super) struct Run<T> {
    pub(super) depth: u32,
    pub(super) first_node: u64,
    pub(super) states: Vec<T>,
    /// The thread that made (most of) them, and explores them best: what it allocated is freed where
    /// it belongs, and counted references stay on one core.
    pub(super) home: usize,
}

impl<T> Run<T> {
    pub(super) fn span(&self) -> Span {
        Span { depth: self.depth, first_node: self.first_node, nodes: self.states.len() as u64 }
    }

    /// Moves as many states of `next` to the end of this run as belong there.
    fn fill_from(&mut self, next: &mut Run<T>) {
        if self.span().ends_before(&next.span()) {
            let fits =
                next.states.len().min(run_states_max::<T>().saturating_sub(self.states.len()));
            self.states.extend(next.states.drain(..fits));
            next.first_node += fits as u64;
        }
    }
}

/// The node numbers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Span {
    pub(super) depth: u32,
    pub(super) first_node: u64,
    pub(super) nodes: u64,
}

impl Span {
    pub(super) fn ends_before(&self, next: &Span) -> bool {
        self.depth == next.depth && self.first_node + self.nodes == next.first_node
    }

    /// Takes at most so many nodes from the beginning.
    pub(super) fn split_to(&mut self, nodes_max: u64) -> Span {
        let first = Span { nodes: self.nodes.min(nodes_max), ..*self };
        self.first_node += first.nodes;
        self.nodes -= first.nodes;
        first
    }

    /// Appends a span to a list, joining neighbours.
    pub(super) fn append(self, spans: &mut Vec<Span>) {
        match spans.last_mut() {
            _ if self.nodes == 0 => {}
            Some(last) if last.ends_before(&self) => last.nodes += self.nodes,
            _ => spans.push(self),
        }
    }
}

/// Memory for waiting states, not counting what they have on the heap. States that do not fit are
/// folded.
const WAITING_BYTES: usize = 128 << 20;

/// Default limit of states that wait in memory.
pub(super) fn waiting_max_default<T>() -> usize {
    WAITING_BYTES / size_of::<T>().max(1)
}

/// The order of a strategy: which of the waiting runs come next.
///
/// A strategy may *fold* runs: forget the states and keep their numbers. The difference of a state to
/// its parent is the choice that led to it, so the links say how to make it again (see
/// [`fold`](super::fold)).
pub(super) trait Open<T> {
    /// Whether the order of states is the same however batches are cut. Then a batch may be shared
    /// and ended as timing suggests.
    const CUT_FREELY: bool;

    /// The name of the strategy.
    const NAME: &str;

    /// Makes an empty list. About `waiting_max` states may wait in memory.
    fn new(waiting_max: usize) -> Self;

    /// Adds new states; returns their vector, empty, if it is not needed.
    fn push(&mut self, run: Run<T>) -> Option<Vec<T>>;

    /// Takes the next batch: some runs, in the order in which their states were found. None if the
    /// next states are folded.
    fn take(&mut self) -> Vec<Run<T>>;

    /// Takes the numbers of a batch of folded states, if these come next.
    fn take_folded(&mut self) -> Vec<Span> {
        Vec::new()
    }

    /// Returns the runs of a batch that were not explored.
    fn give_back(&mut self, runs: Vec<Run<T>>);

    /// The numbers of all states that wait, such that pushing them in this order makes the same list
    /// again.
    fn spans(&self) -> impl Iterator<Item = Span>;
}

/// Joins a new run with the last one, as far as that has room; returns the rest, and the vector if
/// there is none.
pub(super) fn join<T>(
    last: Option<&mut Run<T>>,
    mut run: Run<T>,
) -> (Option<Run<T>>, Option<Vec<T>>) {
    if let Some(last) = last {
        last.fill_from(&mut run);
    }
    if run.states.is_empty() { (None, Some(run.states)) } else { (Some(run), None) }
}

/// Cuts runs into pieces of at most `size` states.
pub(super) fn cut<T>(runs: Vec<Run<T>>, size: usize) -> Vec<Run<T>> {
    let mut pieces = Vec::with_capacity(runs.len());
    for Run { depth, mut first_node, states, home } in runs {
        if states.len() <= size {
            pieces.push(Run { depth, first_node, states, home });
            continue;
        }
        let mut rest = states.into_iter();
        while rest.len() > 0 {
            let states: Vec<T> = rest.by_ref().take(size).collect();
            let nodes = states.len() as u64;
            pieces.push(Run { depth, first_node, states, home });
            first_node += nodes;
        }
    }
    pieces
}
