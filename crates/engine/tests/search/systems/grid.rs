//! Counters that only count up: the points of a box, reached by unit steps from its corner.
//!
//! With sides n₁ … n_d: n₁·…·n_d states, Σᵢ (nᵢ - 1)·Πⱼ≠ᵢ nⱼ steps, depth Σᵢ (nᵢ - 1), and the state
//! x is Σᵢ xᵢ steps away. With all sides 2: binomial coefficients by depth.

use fathom_engine::search::{Property, System};

pub(crate) struct Grid {
    pub(crate) sides: Vec<u8>,
    /// The sum of counters that must never be reached.
    pub(crate) forbidden: u32,
}

impl Grid {
    pub(crate) fn new(sides: &[u8]) -> Grid {
        Grid { sides: sides.to_vec(), forbidden: u32::MAX }
    }

    pub(crate) fn states(&self) -> u64 {
        self.sides.iter().map(|side| u64::from(*side)).product()
    }

    pub(crate) fn transitions(&self) -> u64 {
        let states = self.states();
        self.sides.iter().map(|side| u64::from(side - 1) * (states / u64::from(*side))).sum()
    }

    /// Coefficients of Πᵢ (1 + x + … + x^(nᵢ-1)).
    pub(crate) fn states_by_depth(&self) -> Vec<u64> {
        let mut counts = vec![1];
        for &side in &self.sides {
            let mut next = vec![0; counts.len() + usize::from(side) - 1];
            for (depth, count) in counts.iter().enumerate() {
                for step in 0..usize::from(side) {
                    next[depth + step] += count;
                }
            }
            counts = next;
        }
        counts
    }
}

impl System for Grid {
    type State = Vec<u8>;
    type Action = usize;

    fn init(&self) -> Vec<Vec<u8>> {
        vec![vec![0; self.sides.len()]]
    }

    fn actions(&self, _: &Vec<u8>, actions: &mut Vec<usize>) {
        actions.extend(0..self.sides.len());
    }

    fn next(&self, state: &Vec<u8>, &counter: &usize) -> Option<Vec<u8>> {
        let mut next = state.clone();
        next[counter] += 1;
        (next[counter] < self.sides[counter]).then_some(next)
    }

    fn key(&self, state: &Vec<u8>) -> u128 {
        state.iter().fold(0, |key, counter| key << 8 | u128::from(*counter))
    }

    fn properties(&self) -> Vec<Property<Grid>> {
        vec![
            Property::<Self>::always("allowed", |grid, state| {
                state.iter().map(|counter| u32::from(*counter)).sum::<u32>() != grid.forbidden
            }),
            Property::<Self>::sometimes("full", |grid, state| {
                state.iter().zip(&grid.sides).all(|(counter, side)| counter + 1 == *side)
            }),
            Property::<Self>::sometimes("overfull", |grid, state| {
                state.iter().zip(&grid.sides).any(|(counter, side)| counter >= side)
            }),
        ]
    }
}
