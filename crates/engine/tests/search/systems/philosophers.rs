//! Dining philosophers who take the left fork first, then the right one, then put both back.
//!
//! A philosopher who eats excludes that the right neighbour holds a fork on that side, so the states
//! are the cyclic words over {thinks, waits, eats} in which `eats` is followed by `thinks`: by their
//! transfer matrix (1+√2)ⁿ + (1-√2)ⁿ, the Pell-Lucas numbers (OEIS A002203) 6, 14, 34, 82, 198, ….
//! The only deadlock is that all wait, after n steps.

use fathom_engine::search::System;

pub(crate) struct Philosophers(pub(crate) usize);

pub(crate) const THINKS: u8 = 0;
pub(crate) const WAITS: u8 = 1;
pub(crate) const EATS: u8 = 2;

impl Philosophers {
    pub(crate) fn states(&self) -> u64 {
        let (mut this, mut next) = (2, 2);
        for _ in 0..self.0 {
            (this, next) = (next, 2 * next + this);
        }
        this
    }
}

impl System for Philosophers {
    type State = Vec<u8>;
    type Action = usize;

    fn init(&self) -> Vec<Vec<u8>> {
        vec![vec![THINKS; self.0]]
    }

    fn actions(&self, _: &Vec<u8>, actions: &mut Vec<usize>) {
        actions.extend(0..self.0);
    }

    fn next(&self, state: &Vec<u8>, &who: &usize) -> Option<Vec<u8>> {
        let left = state[(who + self.0 - 1) % self.0];
        let right = state[(who + 1) % self.0];
        let mut next = state.clone();
        next[who] = match state[who] {
            THINKS if left != EATS => WAITS,
            WAITS if right == THINKS => EATS,
            EATS => THINKS,
            _ => return None,
        };
        Some(next)
    }

    fn key(&self, state: &Vec<u8>) -> u128 {
        state.iter().fold(0, |key, philosopher| key * 3 + u128::from(*philosopher))
    }
}
