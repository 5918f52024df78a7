//! Two-phase commit (Gray and Lamport, *Consensus on Transaction Commit*, 2003).
//!
//! stateright publishes the numbers of states of its model of it: 288 with 3 resource managers,
//! 8,832 with 5. The same system here, as plain data.

use std::collections::BTreeSet;

use fathom_engine::search::{Property, System, key_of};

#[derive(Clone)]
pub(crate) struct TwoPhase {
    pub(crate) managers: u8,
    /// Resource managers are interchangeable: explore only one of each set of equivalent states.
    pub(crate) symmetric: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Message {
    Prepared(u8),
    Commit,
    Abort,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Manager {
    Working,
    Prepared,
    Committed,
    Aborted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Coordinator {
    Init,
    Committed,
    Aborted,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) managers: Vec<Manager>,
    pub(crate) coordinator: Coordinator,
    pub(crate) prepared: Vec<bool>,
    pub(crate) messages: BTreeSet<Message>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Action {
    HearPrepared(u8),
    Commit,
    Abort,
    Prepare(u8),
    ChooseAbort(u8),
    HearCommit(u8),
    HearAbort(u8),
}

impl TwoPhase {
    pub(crate) fn new(managers: u8) -> TwoPhase {
        TwoPhase { managers, symmetric: false }
    }

    pub(crate) fn start(&self) -> State {
        State {
            managers: vec![Manager::Working; self.managers.into()],
            coordinator: Coordinator::Init,
            prepared: vec![false; self.managers.into()],
            messages: BTreeSet::new(),
        }
    }

    pub(crate) fn list_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let undecided = state.coordinator == Coordinator::Init;
        if undecided && state.prepared.iter().all(|prepared| *prepared) {
            actions.push(Action::Commit);
        }
        if undecided {
            actions.push(Action::Abort);
        }
        for manager in 0..self.managers {
            if undecided && state.messages.contains(&Message::Prepared(manager)) {
                actions.push(Action::HearPrepared(manager));
            }
            if state.managers[usize::from(manager)] == Manager::Working {
                actions.extend([Action::Prepare(manager), Action::ChooseAbort(manager)]);
            }
            if state.messages.contains(&Message::Commit) {
                actions.push(Action::HearCommit(manager));
            }
            if state.messages.contains(&Message::Abort) {
                actions.push(Action::HearAbort(manager));
            }
        }
    }

    pub(crate) fn step(state: &State, action: Action) -> State {
        let mut next = state.clone();
        match action {
            Action::HearPrepared(manager) => next.prepared[usize::from(manager)] = true,
            Action::Commit => {
                next.coordinator = Coordinator::Committed;
                next.messages.insert(Message::Commit);
            }
            Action::Abort => {
                next.coordinator = Coordinator::Aborted;
                next.messages.insert(Message::Abort);
            }
            Action::Prepare(manager) => {
                next.managers[usize::from(manager)] = Manager::Prepared;
                next.messages.insert(Message::Prepared(manager));
            }
            Action::ChooseAbort(manager) | Action::HearAbort(manager) => {
                next.managers[usize::from(manager)] = Manager::Aborted;
            }
            Action::HearCommit(manager) => {
                next.managers[usize::from(manager)] = Manager::Committed;
            }
        }
        next
    }

    pub(crate) fn consistent(state: &State) -> bool {
        !(state.managers.contains(&Manager::Aborted)
            && state.managers.contains(&Manager::Committed))
    }

    pub(crate) fn all(state: &State, wanted: Manager) -> bool {
        state.managers.iter().all(|manager| *manager == wanted)
    }

    /// The key that all renamings of the resource managers have in common.
    pub(crate) fn symmetric_key(state: &State) -> u128 {
        let mut managers: Vec<_> = (0..state.managers.len())
            .map(|index| {
                let sent = state.messages.contains(&Message::Prepared(index as u8));
                (state.managers[index], state.prepared[index], sent)
            })
            .collect();
        managers.sort_unstable();
        let (commit, abort) =
            (state.messages.contains(&Message::Commit), state.messages.contains(&Message::Abort));
        key_of(&(managers, state.coordinator, commit, abort))
    }
}

impl System for TwoPhase {
    type State = State;
    type Action = Action;

    fn init(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.list_actions(state, actions);
    }

    fn next(&self, state: &State, action: &Action) -> Option<State> {
        Some(TwoPhase::step(state, *action))
    }

    fn key(&self, state: &State) -> u128 {
        if self.symmetric { TwoPhase::symmetric_key(state) } else { key_of(state) }
    }

    fn properties(&self) -> Vec<Property<TwoPhase>> {
        vec![
            Property::<Self>::sometimes("all abort", |_, state| {
                TwoPhase::all(state, Manager::Aborted)
            }),
            Property::<Self>::sometimes("all commit", |_, state| {
                TwoPhase::all(state, Manager::Committed)
            }),
            Property::<Self>::always("consistent", |_, state| TwoPhase::consistent(state)),
        ]
    }
}
