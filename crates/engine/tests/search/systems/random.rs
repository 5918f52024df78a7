//! Random graphs, and a search of them so plain that it can be believed.

use std::collections::{HashSet, VecDeque};

use fathom_engine::search::{Path, Property, System};

/// A graph of `nodes` nodes with up to `degree` edges each. States also carry a tag that the key
/// does not see if `vague`: then states with equal keys have different successors, and the result
/// depends on which of them is met first.
#[derive(Clone)]
pub(crate) struct RandomGraph {
    pub(crate) seed: u64,
    pub(crate) nodes: u64,
    pub(crate) degree: u64,
    pub(crate) vague: bool,
    pub(crate) bad: u64,
}

fn mix(seed: u64, value: u64) -> u64 {
    let mut z = seed ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl System for RandomGraph {
    /// Node and tag.
    type State = (u64, u64);
    type Action = u64;

    fn init(&self) -> Vec<(u64, u64)> {
        (0..3).map(|n| (mix(self.seed, n) % self.nodes, 0)).collect()
    }

    fn actions(&self, state: &(u64, u64), actions: &mut Vec<u64>) {
        actions.extend(0..mix(self.seed, state.0 << 8 | state.1) % (self.degree + 1));
    }

    fn next(&self, state: &(u64, u64), edge: &u64) -> Option<(u64, u64)> {
        let target = mix(self.seed, (state.0 << 20 | state.1 << 10 | edge) ^ 0x5555);
        let tag = if self.vague { target >> 60 } else { 0 };
        (target >> 40 & 7 > 0).then_some((target % self.nodes, tag))
    }

    fn key(&self, state: &(u64, u64)) -> u128 {
        u128::from(state.0)
    }

    fn within_boundary(&self, state: &(u64, u64)) -> bool {
        !state.0.is_multiple_of(11)
    }

    fn properties(&self) -> Vec<Property<RandomGraph>> {
        vec![
            Property::<Self>::always("good", |graph, state| !state.0.is_multiple_of(graph.bad)),
            Property::<Self>::sometimes("divisible by 1000", |_, state| {
                state.0.is_multiple_of(1000)
            }),
        ]
    }
}

/// What the plain search found.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Plain {
    pub(crate) states: u64,
    pub(crate) transitions: u64,
    pub(crate) states_by_depth: Vec<u64>,
    pub(crate) first_bad: Option<Path>,
    pub(crate) bad: u64,
}

/// Breadth first, one state at a time, up to a depth.
pub(crate) fn plain_bfs(graph: &RandomGraph, depth_max: usize) -> Plain {
    let mut plain = Plain::default();
    let mut seen = HashSet::new();
    let mut queue = VecDeque::new();
    let mut arrive = |plain: &mut Plain, state: (u64, u64), path: Vec<u32>| {
        if !graph.within_boundary(&state) || !seen.insert(graph.key(&state)) {
            return None;
        }
        let depth = path.len() - 1;
        plain.states += 1;
        plain.states_by_depth.resize(plain.states_by_depth.len().max(depth + 1), 0);
        plain.states_by_depth[depth] += 1;
        if state.0.is_multiple_of(graph.bad) {
            plain.bad += 1;
            plain.first_bad.get_or_insert_with(|| Path(path.clone()));
        }
        (depth < depth_max).then_some((state, path))
    };
    for (index, state) in graph.init().into_iter().enumerate() {
        queue.extend(arrive(&mut plain, state, vec![index as u32]));
    }
    while let Some((state, path)) = queue.pop_front() {
        let mut actions = Vec::new();
        graph.actions(&state, &mut actions);
        for (index, action) in actions.iter().enumerate() {
            let Some(next) = graph.next(&state, action) else { continue };
            plain.transitions += u64::from(graph.within_boundary(&next));
            let path = path.iter().copied().chain([index as u32]).collect();
            queue.extend(arrive(&mut plain, next, path));
        }
    }
    plain
}
