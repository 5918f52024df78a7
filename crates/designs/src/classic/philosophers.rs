//! The Dining Philosophers (Dijkstra, EWD 310, 1971).
//!
//! Each takes the left fork, then the right one, eats, and puts both down. A philosopher thinks (0),
//! holds the left fork (1) or eats (2); the forks follow from that. Philosopher i eats only if the
//! next one holds nothing, so the states are the circular words over {0, 1, 2} in which 2 is followed
//! by 0: the trace of the n-th power of the matrix of allowed neighbours, whose eigenvalues are 0 and
//! 1 ± √2. That is [`Philosophers::states`], the Pell-Lucas numbers (OEIS A002203). In one of these
//! everybody holds the left fork: the deadlock.

use fathom_engine::search::System;
use serde::{Deserialize, Serialize};

/// A table with philosophers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Philosophers {
    seats: u32,
    polite: bool,
}

/// Seats that fit a packed state.
pub const SEATS_MAX: u32 = 32;

/// A table that cannot be laid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} philosophers: there are 2 to {SEATS_MAX} seats")]
pub struct SeatsError(u32);

/// One philosopher moves on: takes a fork, or puts both down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move(pub u32);

impl Philosophers {
    /// Lays a table with so many seats. `polite`: the last one takes the right fork first, which
    /// removes the deadlock (resource hierarchy).
    ///
    /// # Errors
    /// If there are fewer than 2 or more than 32.
    pub fn new(seats: u32, polite: bool) -> Result<Philosophers, SeatsError> {
        match seats {
            2..=SEATS_MAX => Ok(Philosophers { seats, polite }),
            _ => Err(SeatsError(seats)),
        }
    }

    /// Number of states, if nobody is polite: (1 + √2)ⁿ + (1 − √2)ⁿ.
    pub fn states(&self) -> u64 {
        let (mut this, mut next) = (2_u64, 2_u64);
        for _ in 0..self.seats {
            (this, next) = (next, 2 * next + this);
        }
        this
    }

    fn of(state: u64, seat: u32) -> u64 {
        state >> (2 * seat) & 3
    }

    /// Whether fork `fork` (left of seat `fork`) is on the table.
    fn is_free(&self, state: u64, fork: u32) -> bool {
        let before = (fork + self.seats - 1) % self.seats;
        let (left_of, right_of) = (Self::of(state, fork), Self::of(state, before));
        let taken_from_right = if self.is_polite(fork) { left_of == 2 } else { left_of >= 1 };
        let taken_from_left = if self.is_polite(before) { right_of >= 1 } else { right_of == 2 };
        !taken_from_right && !taken_from_left
    }

    /// Describes what a philosopher does next.
    pub(super) fn tell_move(&self, state: u64, Move(seat): Move) -> String {
        let (first, second) =
            if self.is_polite(seat) { ("right", "left") } else { ("left", "right") };
        match Self::of(state, seat) {
            0 => format!("philosopher {seat} takes the {first} fork"),
            1 => format!("philosopher {seat} takes the {second} fork and eats"),
            _ => format!("philosopher {seat} puts both forks down"),
        }
    }

    fn is_polite(&self, seat: u32) -> bool {
        self.polite && seat + 1 == self.seats
    }
}

impl System for Philosophers {
    type State = u64;
    type Action = Move;

    fn init(&self) -> Vec<u64> {
        vec![0]
    }

    fn actions(&self, _: &u64, actions: &mut Vec<Move>) {
        actions.extend((0..self.seats).map(Move));
    }

    fn next(&self, state: &u64, Move(seat): &Move) -> Option<u64> {
        let (left, right) = (*seat, (seat + 1) % self.seats);
        let (first, second) = if self.is_polite(*seat) { (right, left) } else { (left, right) };
        let unit = 1_u64 << (2 * seat);
        match Self::of(*state, *seat) {
            0 => self.is_free(*state, first).then(|| state + unit),
            1 => self.is_free(*state, second).then(|| state + unit),
            _ => Some(state - 2 * unit),
        }
    }

    fn key(&self, state: &u64) -> u128 {
        u128::from(*state)
    }
}
