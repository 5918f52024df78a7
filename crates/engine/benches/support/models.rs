//! The toy systems of the tests, as stateright wants them: the same functions behind its trait.

use stateright::{Model, Property};

use super::disk::{Disk, Sectors};
use super::puzzle::Puzzle;
use super::two_phase::{Action, Manager, State, TwoPhase};

impl Model for TwoPhase {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.list_actions(state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        Some(TwoPhase::step(state, action))
    }

    fn properties(&self) -> Vec<Property<TwoPhase>> {
        vec![
            Property::sometimes("all abort", |_, state| TwoPhase::all(state, Manager::Aborted)),
            Property::sometimes("all commit", |_, state| TwoPhase::all(state, Manager::Committed)),
            Property::always("consistent", |_, state| TwoPhase::consistent(state)),
        ]
    }
}

impl Model for Puzzle {
    type State = u64;
    type Action = u8;

    fn init_states(&self) -> Vec<u64> {
        vec![self.start()]
    }

    fn actions(&self, _: &u64, actions: &mut Vec<u8>) {
        actions.extend(0..4);
    }

    fn next_state(&self, state: &u64, direction: u8) -> Option<u64> {
        self.slide(*state, direction)
    }

    fn properties(&self) -> Vec<Property<Puzzle>> {
        vec![Property::always("has a blank", |puzzle: &Puzzle, state| puzzle.has_blank(*state))]
    }
}

impl Model for Disk {
    type State = Sectors;
    type Action = u8;

    fn init_states(&self) -> Vec<Sectors> {
        vec![Disk::start()]
    }

    fn actions(&self, _: &Sectors, actions: &mut Vec<u8>) {
        actions.extend(Disk::sectors());
    }

    fn next_state(&self, disk: &Sectors, sector: u8) -> Option<Sectors> {
        self.write(disk, sector)
    }

    fn properties(&self) -> Vec<Property<Disk>> {
        vec![Property::always("whole", |_, disk| Disk::whole(disk))]
    }
}
