//! Makes the states of a checkpoint again.

use std::collections::HashMap;

use crate::visited::{Arrival, Sharded, Visited, shard_of};

use super::key::scatter;
use super::ledger::Ledger;
use super::open::{RUN_STATES_MAX, Run, Span, cut};
use super::system::System;

/// Follows all links: fills the visited set in the order in which it was filled before, and returns
/// the states in the spans `open`. None if the system no longer does what it did.
pub(super) fn rebuild<S: System, V: Visited>(
    system: &S,
    visited: &Sharded<V>,
    ledger: &Ledger,
    open: &[Span],
) -> Option<Vec<Run<S::State>>> {
    let nodes = ledger.links.nodes() as usize;
    let mut is_open = vec![false; nodes + 1];
    for span in open {
        let nodes = span.first_node as usize..(span.first_node + span.nodes) as usize;
        is_open.get_mut(nodes)?.fill(true);
    }
    let mut family = Family::new(system, ledger)?;
    let (mut key_sum, mut states) = (0_u128, HashMap::new());
    for (node, (parent, choice)) in (1..).zip(ledger.links.iter()) {
        let (depth, state) = family.child(parent, choice)?;
        let key = scatter(system.key(&state));
        key_sum = key_sum.wrapping_add(key);
        if visited.shard(shard_of(key)).insert(key, depth) == Arrival::Known {
            return None;
        }
        if is_open[node as usize] {
            // A state that was being explored when the search ended also has children.
            let twin = if family.has_children(node) { family.child(parent, choice) } else { None };
            family.grown_up(parent, node, twin);
            states.insert(node, state);
        } else {
            family.grown_up(parent, node, Some((depth, state)));
        }
    }
    if key_sum != ledger.key_sum {
        return None;
    }
    let mut runs = Vec::new();
    for &Span { depth, first_node, nodes } in open {
        let states = (first_node..first_node + nodes).map(|node| states.remove(&node));
        let states = states.collect::<Option<Vec<_>>>()?;
        runs.extend(cut(vec![Run { depth, first_node, states }], RUN_STATES_MAX));
    }
    Some(runs)
}

/// The states that still have children to come.
struct Family<'a, S: System> {
    system: &'a S,
    /// Depth and state of each such node.
    parents: HashMap<u64, (u32, S::State)>,
    /// How many children each node still has to come.
    children: Vec<u32>,
    /// The node whose actions are known, and these: brothers come together.
    actions: (u64, Vec<S::Action>),
}

impl<'a, S: System> Family<'a, S> {
    /// None if the links are not those of a search.
    fn new(system: &'a S, ledger: &Ledger) -> Option<Family<'a, S>> {
        let mut children = vec![0_u32; ledger.links.nodes() as usize + 1];
        for (node, (parent, _)) in (1..).zip(ledger.links.iter()) {
            if parent >= node {
                return None;
            }
            children[parent as usize] += 1;
        }
        Some(Family { system, parents: HashMap::new(), children, actions: (0, Vec::new()) })
    }

    fn has_children(&self, node: u64) -> bool {
        self.children[node as usize] > 0
    }

    /// A child of a node, and its depth.
    fn child(&mut self, parent: u64, choice: u32) -> Option<(u32, S::State)> {
        let choice = choice as usize;
        if parent == 0 {
            return Some((0, self.system.init().into_iter().nth(choice)?));
        }
        let (depth, state) = self.parents.get(&parent)?;
        if self.actions.0 != parent {
            self.actions.0 = parent;
            self.actions.1.clear();
            self.system.actions(state, &mut self.actions.1);
        }
        let child = self.system.next(state, self.actions.1.get(choice)?)?;
        Some((depth + 1, child))
    }

    /// The child `node` of `parent` is done; it may be a parent itself.
    fn grown_up(&mut self, parent: u64, node: u64, state: Option<(u32, S::State)>) {
        self.children[parent as usize] -= 1;
        if !self.has_children(parent) {
            self.parents.remove(&parent);
        }
        if let Some(state) = state.filter(|_| self.has_children(node)) {
            self.parents.insert(node, state);
        }
    }
}
