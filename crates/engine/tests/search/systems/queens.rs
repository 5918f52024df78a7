//! Queens, placed row by row without attacking each other. The backtracking tree for 8 queens has
//! 2057 nodes by depth 1, 8, 42, 140, 344, 568, 550, 312, 92 (OEIS A319284); 92 are solutions.

use fathom_engine::search::{Property, System, key_of};

pub(crate) const EIGHT_BY_DEPTH: [u64; 9] = [1, 8, 42, 140, 344, 568, 550, 312, 92];

pub(crate) struct Queens(pub(crate) u8);

impl System for Queens {
    type State = Vec<u8>;
    type Action = u8;

    fn init(&self) -> Vec<Vec<u8>> {
        vec![Vec::new()]
    }

    fn actions(&self, _: &Vec<u8>, actions: &mut Vec<u8>) {
        actions.extend(0..self.0);
    }

    fn next(&self, state: &Vec<u8>, column: &u8) -> Option<Vec<u8>> {
        let attacked = state
            .iter()
            .rev()
            .zip(1..)
            .any(|(other, rows)| other == column || other.abs_diff(*column) == rows);
        if attacked || state.len() == usize::from(self.0) {
            return None;
        }
        let mut next = state.clone();
        next.push(*column);
        Some(next)
    }

    fn key(&self, state: &Vec<u8>) -> u128 {
        key_of(state)
    }

    fn properties(&self) -> Vec<Property<Queens>> {
        vec![Property::<Self>::always("unsolved", |queens, state| {
            state.len() < usize::from(queens.0)
        })]
    }

    fn may_end(&self, state: &Vec<u8>) -> bool {
        state.len() == usize::from(self.0)
    }
}
