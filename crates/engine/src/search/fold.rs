//! Makes folded states again.
//!
//! A state that waits to be explored is known by its link: the parent and the choice. A run of nodes
//! has few parents, these have fewer, and so on: making a run again takes about twice as many steps as
//! it has states, and none of them is judged. That is little beside exploring it, and a folded state
//! takes no memory but its link.

use super::links::Links;
use super::open::Span;
use super::system::System;

/// A node, by the index of its parent in the generation before, and the choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Descent {
    parent: u32,
    choice: u32,
}

/// The ancestors of a run of nodes, by generation; the first are initial states, the last the run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ancestors {
    generations: Vec<Vec<Descent>>,
}

impl Ancestors {
    /// Finds the ancestors of the nodes in a span.
    pub(super) fn new(links: &Links, span: Span) -> Ancestors {
        let mut generations = Vec::with_capacity(span.depth as usize + 1);
        let mut nodes: Vec<u64> = (span.first_node..span.first_node + span.nodes).collect();
        for _ in 0..=span.depth {
            let (Some(&first), Some(&last)) = (nodes.first(), nodes.last()) else { break };
            let mut wanted = nodes.iter().peekable();
            let links: Vec<(u64, u32)> = (first..=last)
                .zip(links.iter_from(first))
                .filter(|(node, _)| wanted.next_if_eq(&node).is_some())
                .map(|(_, link)| link)
                .collect();
            let mut parents: Vec<u64> = links.iter().map(|(parent, _)| *parent).collect();
            parents.sort_unstable();
            parents.dedup();
            let index = |parent| parents.partition_point(|other| *other < parent) as u32;
            let descent = |&(parent, choice)| Descent { parent: index(parent), choice };
            let generation = links.iter().map(descent).collect();
            generations.push(generation);
            nodes = parents;
        }
        generations.reverse();
        Ancestors { generations }
    }

    /// Makes the states of the run.
    pub(super) fn make<S: System>(&self, system: &S) -> Vec<S::State> {
        let mut generations = self.generations.iter();
        let Some(first) = generations.next() else { return Vec::new() };
        let mut initial: Vec<Option<S::State>> = system.init().into_iter().map(Some).collect();
        let begin = |descent: &Descent| initial.get_mut(descent.choice as usize)?.take();
        let made: Option<Vec<_>> = first.iter().map(begin).collect();
        let mut states = made.expect(DETERMINISTIC);
        let mut actions = Vec::new();
        for generation in generations {
            let mut asked = u32::MAX;
            let step = |descent: &Descent| {
                let parent = &states[descent.parent as usize];
                if asked != descent.parent {
                    asked = descent.parent;
                    actions.clear();
                    system.actions(parent, &mut actions);
                }
                system.retrace(parent, actions.get(descent.choice as usize)?)
            };
            states = generation.iter().map(step).collect::<Option<_>>().expect(DETERMINISTIC);
        }
        states
    }
}

/// The message for a system that breaks its contract.
const DETERMINISTIC: &str = "a system does the same again: actions and next are deterministic";
