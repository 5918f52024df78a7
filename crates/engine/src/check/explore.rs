//! How the states of a file system are explored: [`Exploration`], and the words for it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use fathom_core::RestoreMethod;

/// The strategy that chooses the next state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Walks from wherever it is to the nearest state in which something is untried; goes back only
    /// if that is cheaper.
    #[default]
    Tour,
    /// Depth first; goes back after every operation that leads to a known state.
    Dfs,
    /// A random walk of single calls that holds files open, from an empty file system again and
    /// again. Remembers no states.
    Walk,
}

/// The policy for going back to an earlier state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestorePolicy {
    /// The cheapest that the subject offers.
    #[default]
    Cheapest,
    /// A way of the subject.
    By(RestoreMethod),
    /// Start again and repeat the operations.
    Replay,
}

/// The schedule of remounts. Files that are open then are closed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Remounts {
    /// Never by itself.
    #[default]
    Never,
    /// After so many operations.
    Every(u64),
    /// After every meta-operation.
    EveryOp,
    /// After a meta-operation with this probability.
    Chance(f64),
}

/// The bounds and the strategy of an exploration.
#[derive(Clone, Debug, PartialEq)]
pub struct Exploration {
    /// The strategy that chooses the next state.
    pub strategy: Strategy,
    /// Meta-operations from the empty file system to the farthest states.
    pub depth_max: u32,
    /// Meta-operations tried in every state.
    pub moves: u16,
    /// The policy for going back to an earlier state.
    pub back: RestorePolicy,
    /// When to remount; `None` leaves it to the strategy: a walk draws it like other operations,
    /// the others do it now and then.
    pub remounts: Option<Remounts>,
    /// The file system's checker looks at the unmounted disk after so many operations.
    pub fsck_every: Option<u64>,
    /// Ends when so many states are known.
    pub states_max: Option<usize>,
    /// A call that takes longer is a finding.
    pub deadline: Duration,
    /// The number of last disks that are kept for a finding.
    pub images: usize,
    /// Whether a tour leaves files open between meta-operations and fills directories now and then.
    /// What is open is not part of a state, so a tour that does it reaches more than the bounds say.
    pub hold_files: bool,
}

impl Default for Exploration {
    fn default() -> Self {
        Exploration {
            strategy: Strategy::Tour,
            depth_max: 10_000,
            moves: 12,
            back: RestorePolicy::Cheapest,
            remounts: None,
            fsck_every: None,
            states_max: None,
            deadline: Duration::from_secs(30),
            images: 10,
            hold_files: true,
        }
    }
}

/// The defaults of a tour and of a depth-first search.
pub(super) const REMOUNT_EVERY: u64 = 2_000;

/// Different contents of writes where states are remembered, unless told otherwise.
pub(super) const PATTERNS: u64 = 3;

/// A word that is none of those that are known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is none of {known}")]
pub struct UnknownWord {
    word: String,
    known: &'static str,
}

fn unknown(word: &str, known: &'static str) -> UnknownWord {
    UnknownWord { word: word.to_owned(), known }
}

impl FromStr for Strategy {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Strategy, UnknownWord> {
        match word {
            "tour" => Ok(Strategy::Tour),
            "dfs" => Ok(Strategy::Dfs),
            "walk" => Ok(Strategy::Walk),
            _ => Err(unknown(word, "tour, dfs, walk")),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Strategy::Tour => "tour",
            Strategy::Dfs => "dfs",
            Strategy::Walk => "walk",
        })
    }
}

impl FromStr for RestorePolicy {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<RestorePolicy, UnknownWord> {
        match word {
            "cheapest" => Ok(RestorePolicy::Cheapest),
            "replay" => Ok(RestorePolicy::Replay),
            _ => match RestoreMethod::ALL.iter().find(|method| method.name() == word) {
                Some(method) => Ok(RestorePolicy::By(*method)),
                None => Err(unknown(word, "cheapest, clone, ioctl, freeze, remount, replay")),
            },
        }
    }
}

impl fmt::Display for RestorePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestorePolicy::Cheapest => f.write_str("cheapest"),
            RestorePolicy::By(method) => method.fmt(f),
            RestorePolicy::Replay => f.write_str("replay"),
        }
    }
}

impl FromStr for Remounts {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Remounts, UnknownWord> {
        let known = "never, every-op, N, every N, p=0.01";
        let count = |text: &str| text.trim().parse().ok().filter(|&n: &u64| n > 0);
        match text.trim() {
            "never" => Ok(Remounts::Never),
            "every-op" => Ok(Remounts::EveryOp),
            text => match text.strip_prefix("p=") {
                Some(chance) => chance.parse().ok().filter(|p| (0.0..=1.0).contains(p)),
                None => None,
            }
            .map(Remounts::Chance)
            .or_else(|| count(text.strip_prefix("every ").unwrap_or(text)).map(Remounts::Every))
            .ok_or_else(|| unknown(text, known)),
        }
    }
}

impl fmt::Display for Remounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Remounts::Never => f.write_str("never"),
            Remounts::Every(count) => write!(f, "every {count}"),
            Remounts::EveryOp => f.write_str("every-op"),
            Remounts::Chance(chance) => write!(f, "p={chance}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_understood_and_shown_as_they_are_typed() {
        for word in ["never", "every 20", "every-op", "p=0.01"] {
            assert_eq!(word.parse::<Remounts>().unwrap().to_string(), word);
        }
        assert_eq!("20".parse::<Remounts>().unwrap(), Remounts::Every(20));
        for word in ["tour", "dfs", "walk"] {
            assert_eq!(word.parse::<Strategy>().unwrap().to_string(), word);
        }
        for word in ["cheapest", "replay", "freeze", "remount", "ioctl", "clone"] {
            assert_eq!(word.parse::<RestorePolicy>().unwrap().to_string(), word);
        }
        for word in ["", "often", "every 0", "p=2", "every -1"] {
            let error = word.parse::<Remounts>().unwrap_err().to_string();
            assert!(error.contains("p=0.01"), "{error}");
        }
        assert!("bfs".parse::<Strategy>().is_err() && "tape".parse::<RestorePolicy>().is_err());
    }
}
