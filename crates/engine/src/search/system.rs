//! The systems that can be explored.

/// A system of states and actions. Both `actions` and `next` must be deterministic: a state is
/// re-created by taking the same actions again.
///
/// # Systems with records
///
/// A system may judge steps by itself inside `next`, and remember (behind locks) what it has judged
/// and what it found. Such records are saved and restored with the search by [`save`](System::save)
/// and [`load`](System::load). They are the same after any interruption and with any number of
/// threads if recording a step is *idempotent and commutative*: steps are taken in any order, and
/// some twice, because parents whose exploration was interrupted are explored again. A set of what
/// was judged and the smallest witness of each find are such records; a counter of calls is not.
pub trait System: Sync {
    /// A state.
    type State: Send + Sync;
    /// A step out of a state.
    type Action;

    /// The states to start from.
    fn init(&self) -> Vec<Self::State>;

    /// Appends the actions that may be possible in a state, in a fixed order.
    fn actions(&self, state: &Self::State, actions: &mut Vec<Self::Action>);

    /// The state after an action, if it is possible at all.
    fn next(&self, state: &Self::State, action: &Self::Action) -> Option<Self::State>;

    /// Makes a known state again, when too many wait to be kept, a search is resumed or a path is
    /// looked at. Gives the same result as [`next`](System::next), but nothing needs to be judged
    /// again.
    fn retrace(&self, state: &Self::State, action: &Self::Action) -> Option<Self::State> {
        self.next(state, action)
    }

    /// Called before one of several threads explores a state. What the state shares with states that
    /// others explore (an `Arc` that is cloned with it) should become its own: threads that count
    /// references to the same thing wait for each other at every step.
    fn unshare(&self, _state: &mut Self::State) {}

    /// Identifies a state. States with equal keys are explored once: symmetry and isomorphism
    /// reduction is choosing equal keys. Either 128 hashed bits (see [`key_of`](super::key_of)) or,
    /// if it fits, the state itself; the search scatters the bits.
    fn key(&self, state: &Self::State) -> u128;

    /// The conditions on its states.
    fn properties(&self) -> Vec<Property<Self>> {
        Vec::new()
    }

    /// Whether a state is inside: states outside are neither counted nor judged nor explored.
    fn within_boundary(&self, _state: &Self::State) -> bool {
        true
    }

    /// Whether a state without successors is a proper end rather than a deadlock.
    fn may_end(&self, _state: &Self::State) -> bool {
        false
    }

    /// Saves the system's own records, for a checkpoint. No thread is inside the system meanwhile.
    fn save(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Replaces the records by saved ones, before the search makes any state; returns false if
    /// these are not records of this system.
    fn load(&self, saved: &[u8]) -> bool {
        saved.is_empty()
    }
}

/// The states in which a property must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// The property must hold in every state.
    Always,
    /// The property must hold in at least one state.
    Sometimes,
}

/// A named condition on states.
#[derive(Debug)]
pub struct Property<S: System + ?Sized> {
    /// The states in which it must hold.
    pub expectation: Expectation,
    /// Its name in reports.
    pub name: &'static str,
    /// Whether it holds in a state.
    pub holds: fn(&S, &S::State) -> bool,
}

impl<S: System + ?Sized> Property<S> {
    /// Makes a property that must hold in every state; the first state where it does not is a
    /// counterexample.
    pub fn always(name: &'static str, holds: fn(&S, &S::State) -> bool) -> Property<S> {
        Property { expectation: Expectation::Always, name, holds }
    }

    /// Makes a property that must hold in some state; the first such state is a witness.
    pub fn sometimes(name: &'static str, holds: fn(&S, &S::State) -> bool) -> Property<S> {
        Property { expectation: Expectation::Sometimes, name, holds }
    }
}
