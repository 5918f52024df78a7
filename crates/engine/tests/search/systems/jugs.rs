//! Two jugs of coprime sizes a and b and a tap: 2·(a + b) states (one jug is always empty or full).
//! Measuring 4 with jugs of 3 and 5 takes 6 steps.

use fathom_engine::search::{Property, System};

pub(crate) struct Jugs {
    pub(crate) sizes: [u32; 2],
    pub(crate) wanted: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    Fill(usize),
    Empty(usize),
    PourFrom(usize),
}

impl System for Jugs {
    type State = [u32; 2];
    type Action = Action;

    fn init(&self) -> Vec<[u32; 2]> {
        vec![[0, 0]]
    }

    fn actions(&self, _: &[u32; 2], actions: &mut Vec<Action>) {
        for jug in 0..2 {
            actions.extend([Action::Fill(jug), Action::Empty(jug), Action::PourFrom(jug)]);
        }
    }

    fn next(&self, state: &[u32; 2], action: &Action) -> Option<[u32; 2]> {
        let mut next = *state;
        match *action {
            Action::Fill(jug) => next[jug] = self.sizes[jug],
            Action::Empty(jug) => next[jug] = 0,
            Action::PourFrom(jug) => {
                let poured = state[jug].min(self.sizes[1 - jug] - state[1 - jug]);
                next[jug] -= poured;
                next[1 - jug] += poured;
            }
        }
        Some(next)
    }

    fn key(&self, state: &[u32; 2]) -> u128 {
        u128::from(state[0]) << 32 | u128::from(state[1])
    }

    fn properties(&self) -> Vec<Property<Jugs>> {
        vec![Property::<Self>::always("not measured", |jugs, state| !state.contains(&jugs.wanted))]
    }
}
