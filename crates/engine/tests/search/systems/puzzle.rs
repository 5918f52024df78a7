//! The sliding puzzle: half of all permutations can be reached, (w·h)! / 2.
//!
//! With the blank starting in a corner, the numbers by depth of the 3 × 3 puzzle are OEIS A089473.

use fathom_engine::search::{Property, System};

/// Positions by distance from the start, 3 × 3.
pub(crate) const EIGHT_BY_DEPTH: [u64; 32] = [
    1, 2, 4, 8, 16, 20, 39, 62, 116, 152, 286, 396, 748, 1024, 1893, 2512, 4485, 5638, 9529, 10878,
    16993, 17110, 23952, 20224, 24047, 15578, 14560, 6274, 3910, 760, 221, 2,
];

#[derive(Clone)]
pub(crate) struct Puzzle {
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl Puzzle {
    pub(crate) fn states(&self) -> u64 {
        (1..=u64::from(self.width * self.height)).product::<u64>() / 2
    }

    /// The tile at a cell, four bits each; the blank is 0.
    fn tile(state: u64, cell: u32) -> u64 {
        state >> (4 * cell) & 15
    }

    pub(crate) fn start(&self) -> u64 {
        (0..self.width * self.height).fold(0, |state, cell| state | u64::from(cell) << (4 * cell))
    }

    fn blank(&self, state: u64) -> Option<u32> {
        (0..self.width * self.height).find(|cell| Puzzle::tile(state, *cell) == 0)
    }

    pub(crate) fn has_blank(&self, state: u64) -> bool {
        self.blank(state).is_some()
    }

    pub(crate) fn slide(&self, state: u64, direction: u8) -> Option<u64> {
        let blank = self.blank(state)?;
        let (x, y) = (blank % self.width, blank / self.width);
        let from = match direction {
            0 if x > 0 => blank - 1,
            1 if x + 1 < self.width => blank + 1,
            2 if y > 0 => blank - self.width,
            3 if y + 1 < self.height => blank + self.width,
            _ => return None,
        };
        let tile = Puzzle::tile(state, from);
        Some(state ^ (tile << (4 * from)) ^ (tile << (4 * blank)))
    }
}

impl System for Puzzle {
    type State = u64;
    type Action = u8;

    fn init(&self) -> Vec<u64> {
        vec![self.start()]
    }

    fn actions(&self, _: &u64, actions: &mut Vec<u8>) {
        actions.extend(0..4);
    }

    fn next(&self, state: &u64, direction: &u8) -> Option<u64> {
        self.slide(*state, *direction)
    }

    fn key(&self, state: &u64) -> u128 {
        u128::from(*state)
    }

    fn properties(&self) -> Vec<Property<Puzzle>> {
        vec![Property::<Self>::always("has a blank", |puzzle, state| puzzle.has_blank(*state))]
    }
}
