//! States that wait to be explored.

use serde::{Deserialize, Serialize};

/// States of one run at most: large enough to be worth a claim, small enough to share evenly. Large
/// states come in shorter runs: a batch with all its children should not be much more than what the
/// caches hold. Depends on nothing but the type, so that results do not either.
pub(super) const fn run_states_max<T>() -> usize {
    const RUN_BYTES: usize = 32 << 10;
    let fitting = RUN_BYTES / if size_of::<T>() == 0 { 1 } else { size_of::<T>() };
    match fitting {
        ..16 => 16,
        16..=256 => fitting,
        _ => 256,
    }
}

/// Runs of one batch at most.
pub(super) const BATCH_RUNS_MAX: usize = 64;

/// States at the same depth with consecutive node numbers.
#[derive(Debug)]
pub(super) struct Run<T> {
    pub(super) depth: u32,
    pub(super) first_node: u64,
    pub(super) states: Vec<T>,
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

/// The numbers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Span {
    pub(super) depth: u32,
    pub(super) first_node: u64,
    pub(super) nodes: u64,
}

impl Span {
    fn ends_before(&self, next: &Span) -> bool {
        self.depth == next.depth && self.first_node + self.nodes == next.first_node
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

/// The order of a strategy: which of the waiting runs come next.
pub(super) trait Open<T>: Default {
    /// Whether the order of states is the same however batches are cut. Then a batch may be shared
    /// and ended as timing suggests.
    const CUT_FREELY: bool;

    /// The strategy's name.
    const NAME: &str;

    /// Adds new states; returns their vector if it is not needed.
    fn push(&mut self, run: Run<T>) -> Option<Vec<T>>;

    /// The next batch: some runs, in the order in which their states were found.
    fn take(&mut self) -> Vec<Run<T>>;

    /// Returns the runs of a batch that were not explored.
    fn give_back(&mut self, runs: Vec<Run<T>>);

    /// All runs that wait, such that pushing them in this order makes the same list again.
    fn runs<'a>(&'a self) -> impl Iterator<Item = &'a Run<T>>
    where
        T: 'a;
}

/// Joins a new run with the last one, as far as that has room; returns what remains, and the vector
/// if nothing does.
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
    for Run { depth, mut first_node, states } in runs {
        if states.len() <= size {
            pieces.push(Run { depth, first_node, states });
            continue;
        }
        let mut rest = states.into_iter();
        while rest.len() > 0 {
            let states: Vec<T> = rest.by_ref().take(size).collect();
            let nodes = states.len() as u64;
            pieces.push(Run { depth, first_node, states });
            first_node += nodes;
        }
    }
    pieces
}
