//! Makes the states of a checkpoint again.
//!
//! Nodes are made in generations: the next nodes whose parents are all made. Those of a generation
//! are made by all threads, and then enter the visited set in their order.

use std::collections::HashMap;

use crate::search::visited::{Arrival, Sharded, Visited, shard_of};

use super::key::scatter;
use super::ledger::Ledger;
use super::open::{Run, Span, cut, run_states_max};
use super::system::System;

/// Greatest number of nodes of one generation: their states exist before they are known to be
/// needed.
const GENERATION_NODES_MAX: u64 = 1 << 14;

/// Number of nodes below which one thread makes them: starting another one takes some ten
/// microseconds.
const ALONE_BELOW: usize = 64;

/// A node to be made.
#[derive(Clone, Copy)]
struct Link {
    node: u64,
    parent: u64,
    choice: u32,
}

/// A node that was made.
struct Made<T> {
    key: u128,
    depth: u32,
    state: T,
    /// A second copy of the state, if one waits to be explored and another one has children to
    /// make.
    copy: Option<T>,
}

/// Follows all links: fills the visited set in the order in which it was filled before, and returns
/// the states in the spans `open`. None if the system no longer does what it did.
pub(super) fn rebuild<S: System, V: Visited>(
    system: &S,
    threads: usize,
    visited: &Sharded<V>,
    ledger: &Ledger,
    open: &[Span],
) -> Option<Vec<Run<S::State>>> {
    let mut pending = PendingParents::new(system, ledger, open)?;
    let (mut key_sum, mut states) = (0_u128, HashMap::new());
    let mut links = (1..)
        .zip(ledger.links.iter())
        .map(|(node, (parent, choice))| Link { node, parent, choice })
        .peekable();
    while let Some(&Link { node: first, .. }) = links.peek() {
        let next = || {
            links.next_if(|link| link.parent < first && link.node - first < GENERATION_NODES_MAX)
        };
        let generation: Vec<Link> = std::iter::from_fn(next).collect();
        let made = pending.make(&generation, threads)?;
        for (link, Made { key, depth, state, copy }) in generation.into_iter().zip(made) {
            key_sum = key_sum.wrapping_add(key);
            if visited.shard(shard_of(key)).insert(key, depth) == Arrival::Known {
                return None;
            }
            if pending.is_open[link.node as usize] {
                states.insert(link.node, state);
                pending.finish(link, depth, copy);
            } else {
                pending.finish(link, depth, Some(state));
            }
        }
    }
    if key_sum != ledger.key_sum {
        return None;
    }
    let mut runs = Vec::new();
    for &Span { depth, first_node, nodes } in open {
        let states = (first_node..first_node + nodes).map(|node| states.remove(&node));
        let states = states.collect::<Option<Vec<_>>>()?;
        let run = Run { depth, first_node, states, home: 0 };
        runs.extend(cut(vec![run], run_states_max::<S::State>()));
    }
    Some(runs)
}

/// The states that still have children to come.
struct PendingParents<'a, S: System> {
    system: &'a S,
    /// Depth and state of each such node.
    parents: HashMap<u64, (u32, S::State)>,
    /// Number of children that each node still has to come.
    children: Vec<u32>,
    /// Whether each node waits to be explored.
    is_open: Vec<bool>,
}

impl<'a, S: System> PendingParents<'a, S> {
    /// Counts the children of every node; none if the links are not those of a search.
    fn new(system: &'a S, ledger: &Ledger, open: &[Span]) -> Option<PendingParents<'a, S>> {
        let nodes = ledger.links.nodes() as usize + 1;
        let mut children = vec![0_u32; nodes];
        for (node, (parent, _)) in (1..).zip(ledger.links.iter()) {
            if parent >= node {
                return None;
            }
            children[parent as usize] += 1;
        }
        let mut is_open = vec![false; nodes];
        for span in open {
            let nodes = span.first_node as usize..(span.first_node + span.nodes) as usize;
            is_open.get_mut(nodes)?.fill(true);
        }
        Some(PendingParents { system, parents: HashMap::new(), children, is_open })
    }

    fn has_children(&self, node: u64) -> bool {
        self.children[node as usize] > 0
    }

    /// Makes a generation, in its order.
    fn make(&self, generation: &[Link], threads: usize) -> Option<Vec<Made<S::State>>> {
        if threads < 2 || generation.len() < ALONE_BELOW {
            return self.make_alone(generation);
        }
        std::thread::scope(|scope| {
            let shares = generation.chunks(generation.len().div_ceil(threads));
            let helpers: Vec<_> =
                shares.map(|share| scope.spawn(|| self.make_alone(share))).collect();
            let mut made = Vec::with_capacity(generation.len());
            for helper in helpers {
                let share = helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                made.extend(share?);
            }
            Some(made)
        })
    }

    fn make_alone(&self, links: &[Link]) -> Option<Vec<Made<S::State>>> {
        // Siblings come together: their parent is asked only once for its actions.
        let (mut asked, mut actions) = (0, Vec::new());
        let make = |link: &Link| {
            if link.parent != asked {
                asked = link.parent;
                actions.clear();
                self.system.actions(&self.parents.get(&asked)?.1, &mut actions);
            }
            let (depth, state) = self.child(*link, &actions)?;
            let twice = self.is_open[link.node as usize] && self.has_children(link.node);
            let copy = if twice { Some(self.child(*link, &actions)?.1) } else { None };
            Some(Made { key: scatter(self.system.key(&state)), depth, state, copy })
        };
        links.iter().map(make).collect()
    }

    /// Makes a node, given the actions of its parent: its depth and its state.
    fn child(&self, link: Link, actions: &[S::Action]) -> Option<(u32, S::State)> {
        let choice = link.choice as usize;
        if link.parent == 0 {
            return Some((0, self.system.init().into_iter().nth(choice)?));
        }
        let (depth, state) = self.parents.get(&link.parent)?;
        Some((depth + 1, self.system.retrace(state, actions.get(choice)?)?))
    }

    /// Takes a node that was made; keeps its state if it has children to come, and drops its parent
    /// if that has none left.
    fn finish(&mut self, link: Link, depth: u32, state: Option<S::State>) {
        self.children[link.parent as usize] -= 1;
        if !self.has_children(link.parent) {
            self.parents.remove(&link.parent);
        }
        if let Some(state) = state.filter(|_| self.has_children(link.node)) {
            self.parents.insert(link.node, (depth, state));
        }
    }
}
