//! Two-phase commit (Gray and Lamport, *Consensus on Transaction Commit*, 2006; the TLA⁺ module
//! TwoPhase). The published counts, 288 states for 3 resource managers and 8,832 for 5, are those of
//! TLC and of stateright.
//!
//! The module ends in states where everybody committed or aborted. With [`TwoPhase::fallible`] the
//! transaction manager may fail for ever before it has decided: then those who are prepared wait for
//! ever, the well-known flaw of the protocol, and the search finds the deadlock.

use fathom_engine::search::{Property, System};
use serde::{Deserialize, Serialize};

/// A transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwoPhase {
    managers: u32,
    fallible: bool,
}

/// Managers that fit a packed state.
pub const MANAGERS_MAX: u32 = 20;

/// A transaction that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} resource managers: there are 1 to {MANAGERS_MAX}")]
pub struct ManagersError(u32);

/// The state of a resource manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manager {
    Working,
    Prepared,
    Committed,
    Aborted,
}

/// The states of all managers, and the messages. These are never lost and stay readable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// The state of every resource manager, in two bits each.
    managers: u64,
    /// The state of the transaction manager: 0 undecided, 1 committed, 2 aborted, 3 failed.
    transaction: u8,
    /// Set of the resource managers that said "prepared".
    prepared: u32,
    /// Set of the resource managers that the transaction manager has heard.
    heard: u32,
}

/// One step of a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The transaction manager hears that one is prepared.
    Hear(u32),
    /// The transaction manager decides to commit.
    DecideCommit,
    /// The transaction manager decides to abort.
    DecideAbort,
    /// The transaction manager fails for ever.
    Fail,
    /// A resource manager prepares.
    Prepare(u32),
    /// A resource manager chooses to abort by itself.
    ChooseAbort(u32),
    /// A resource manager hears that the transaction is committed.
    HearCommit(u32),
    /// A resource manager hears that the transaction is aborted.
    HearAbort(u32),
}

impl TwoPhase {
    /// Makes a transaction of so many resource managers. `fallible`: the transaction manager may
    /// fail.
    ///
    /// # Errors
    /// If there are none or more than 20.
    pub fn new(managers: u32, fallible: bool) -> Result<TwoPhase, ManagersError> {
        match managers {
            1..=MANAGERS_MAX => Ok(TwoPhase { managers, fallible }),
            _ => Err(ManagersError(managers)),
        }
    }

    fn all(&self) -> u32 {
        (1 << self.managers) - 1
    }
}

impl State {
    fn manager(&self, number: u32) -> Manager {
        match self.managers >> (2 * number) & 3 {
            0 => Manager::Working,
            1 => Manager::Prepared,
            2 => Manager::Committed,
            _ => Manager::Aborted,
        }
    }

    fn with(mut self, number: u32, manager: Manager) -> State {
        self.managers = self.managers & !(3 << (2 * number)) | (manager as u64) << (2 * number);
        self
    }

    fn any(&self, managers: u32, wanted: Manager) -> bool {
        (0..managers).any(|number| self.manager(number) == wanted)
    }
}

impl System for TwoPhase {
    type State = State;
    type Action = Action;

    fn init(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.transaction == 0 {
            if state.heard == self.all() {
                actions.push(Action::DecideCommit);
            }
            actions.push(Action::DecideAbort);
            let news = state.prepared & !state.heard;
            actions.extend((0..self.managers).filter(|n| news & (1 << n) != 0).map(Action::Hear));
            if self.fallible {
                actions.push(Action::Fail);
            }
        }
        for number in 0..self.managers {
            if state.manager(number) == Manager::Working {
                actions.extend([Action::Prepare(number), Action::ChooseAbort(number)]);
            }
            match state.transaction {
                1 => actions.push(Action::HearCommit(number)),
                2 => actions.push(Action::HearAbort(number)),
                _ => {}
            }
        }
    }

    fn next(&self, state: &State, action: &Action) -> Option<State> {
        let next = match *action {
            Action::Hear(number) => State { heard: state.heard | 1 << number, ..*state },
            Action::DecideCommit => State { transaction: 1, ..*state },
            Action::DecideAbort => State { transaction: 2, ..*state },
            Action::Fail => State { transaction: 3, ..*state },
            Action::Prepare(number) => State { prepared: state.prepared | 1 << number, ..*state }
                .with(number, Manager::Prepared),
            Action::ChooseAbort(number) => state.with(number, Manager::Aborted),
            Action::HearCommit(number) => state.with(number, Manager::Committed),
            Action::HearAbort(number) => state.with(number, Manager::Aborted),
        };
        (next != *state).then_some(next)
    }

    fn key(&self, state: &State) -> u128 {
        u128::from(state.managers)
            | u128::from(state.transaction) << 40
            | u128::from(state.prepared) << 48
            | u128::from(state.heard) << 80
    }

    fn may_end(&self, state: &State) -> bool {
        !state.any(self.managers, Manager::Working) && !state.any(self.managers, Manager::Prepared)
    }

    fn properties(&self) -> Vec<Property<TwoPhase>> {
        vec![
            Property::always("nobody commits while another aborts", |two_phase, state: &State| {
                let managers = two_phase.managers;
                !(state.any(managers, Manager::Committed) && state.any(managers, Manager::Aborted))
            }),
            Property::sometimes("all commit", |two_phase, state: &State| {
                (0..two_phase.managers).all(|n| state.manager(n) == Manager::Committed)
            }),
            Property::sometimes("all abort", |two_phase, state: &State| {
                (0..two_phase.managers).all(|n| state.manager(n) == Manager::Aborted)
            }),
        ]
    }
}
