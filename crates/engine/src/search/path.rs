//! Paths to states.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use super::system::System;

/// A path as choices: the index of the initial state, then the index of an action of each state.
/// Short enough to copy: it reads and prints as `0/3/1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Path(pub Vec<u32>);

impl Path {
    /// Number of actions.
    pub fn steps(&self) -> usize {
        self.0.len().saturating_sub(1)
    }

    /// Follows the path; the error is the first choice that the system does not have.
    ///
    /// # Errors
    /// If this is not a path of this system.
    pub fn trace<S: System>(&self, system: &S) -> Result<Trace<S>, usize> {
        let (&first, rest) = self.0.split_first().ok_or(0_usize)?;
        let start = system.init().into_iter().nth(first as usize).ok_or(0_usize)?;
        let mut trace = Trace { start, steps: Vec::with_capacity(rest.len()) };
        for (step, &choice) in rest.iter().enumerate() {
            let mut actions = Vec::new();
            system.actions(trace.end(), &mut actions);
            let action = actions.into_iter().nth(choice as usize).ok_or(step + 1)?;
            let state = system.retrace(trace.end(), &action).ok_or(step + 1)?;
            trace.steps.push((action, state));
        }
        Ok(trace)
    }

    /// Finds the path of a sequence of actions from an initial state, if the system can take them.
    pub fn of_actions<S: System>(system: &S, init: u32, wanted: &[S::Action]) -> Option<Path>
    where
        S::Action: PartialEq,
    {
        let mut path = Path(vec![init]);
        let mut state = system.init().into_iter().nth(init as usize)?;
        for action in wanted {
            let mut actions = Vec::new();
            system.actions(&state, &mut actions);
            path.0.push(actions.iter().position(|possible| possible == action)? as u32);
            state = system.retrace(&state, action)?;
        }
        Some(path)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (step, choice) in self.0.iter().enumerate() {
            write!(f, "{}{choice}", if step == 0 { "" } else { "/" })?;
        }
        Ok(())
    }
}

impl FromStr for Path {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Path, ParseIntError> {
        text.split('/').map(str::parse).collect::<Result<_, _>>().map(Path)
    }
}

/// A path with its actions and states.
#[derive(Clone, Debug)]
pub struct Trace<S: System> {
    /// The initial state.
    pub start: S::State,
    /// Each action with the state after it.
    pub steps: Vec<(S::Action, S::State)>,
}

impl<S: System> Trace<S> {
    /// The last state.
    pub fn end(&self) -> &S::State {
        self.steps.last().map_or(&self.start, |(_, state)| state)
    }

    /// The actions.
    pub fn actions(&self) -> impl Iterator<Item = &S::Action> {
        self.steps.iter().map(|(action, _)| action)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let path = Path(vec![0, 12, 3]);
        assert_eq!(path.to_string(), "0/12/3");
        assert_eq!("0/12/3".parse(), Ok(path));
        assert!("0//3".parse::<Path>().is_err());
    }
}
