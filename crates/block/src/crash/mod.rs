//! Enumerates the images that a power failure can leave behind.
//!
//! # The fault model
//!
//! The device has a volatile write cache. A *position* `p` in the log says which events had been
//! issued (`0..p`) when the power failed. A flush ends an *epoch*. At position `p`:
//!
//! | may happen | level |
//! |---|---|
//! | the cache was written back at once: exactly the events `0..p` are there | [`Level::Linear`] |
//! | any writes and erases since the last flush are missing, in any combination | [`Level::Epoch`] |
//! | exactly one of those is missing: the linear-sized part of the above | [`Level::Lost`] |
//! | the write in progress arrived only up to, or only from, some atomic unit | [`Level::Torn`] |
//! | the erase in progress stopped: up to, or only from, some atomic unit, or with each bit of the region either old or erased | [`Level::Erase`] |
//!
//! What may **not** happen:
//!
//! * nothing from before the last flush is missing, torn or changed;
//! * a write with forced unit access (FUA) that was issued before `p` is there, whole. It makes no
//!   *other* write durable: a file system that takes FUA for a flush is caught;
//! * an atomic unit is old or new, never a mixture;
//! * of two writes to the same bytes that both arrive, the later one wins: a cache keeps one copy;
//! * nothing outside the regions that were written or erased changes.
//!
//! Not modelled: devices that lie about flushes, misdirected writes, bit rot, and combinations of
//! levels (a torn write *and* an earlier one missing).
//!
//! # Counts
//!
//! Each level yields only what is its own and yields it once (but different states can have equal
//! bytes: see [`Distinct`]). With `E` the writes and erases in the window `from..to`, and `v(i)` the
//! volatile ones between the last flush before position `i` and `i`:
//!
//! | level | states |
//! |---|---|
//! | linear | `1 + E`: the start of the window and the position after each effect |
//! | epoch | `2^v(from) + Σ 2^v(i)` over the effects `i`: the subsets that event `i` adds. For `m` epochs of `k` writes from a flush on that is `1 + m·(2^k − 1)`. Each power is bounded by [`Bounds::subsets_max`] |
//! | lost | `v(from) + Σ v(i)` over the effects `i` |
//! | torn | `Σ 2·c(i)` over the writes `i`, `c(i)` = inner boundaries of atomic units, at most [`Bounds::cuts_max`] |
//! | erase | `Σ (2·c(i) + 1)` over the erases `i`, `c` as for torn |

mod distinct;
mod epoch;
mod erase;
mod linear;
mod lost;
mod part;
mod point;
mod subset;
mod torn;
mod window;

use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::image::Image;

pub use distinct::Distinct;
pub use epoch::Epoch;
pub use erase::Erase;
pub use linear::Linear;
pub use lost::Lost;
pub use part::Part;
pub use point::{CrashPoint, PointSyntax};
pub use subset::Subset;
pub use torn::Torn;
pub use window::{PointError, Window};

/// Takes a crash state; may stop the enumeration.
pub type Visitor<'v> = dyn FnMut(&CrashPoint, &Image) -> ControlFlow<()> + 'v;

/// Finds the states of one level.
pub trait Enumerator {
    /// The level whose states it finds.
    fn level(&self) -> Level;

    /// Number of states, by formula (see the [module documentation](self)).
    fn count(&self, window: &Window<'_>) -> u128;

    /// Shows every state once, in a fixed order. The image is borrowed: clone it (O(1)) to keep it.
    ///
    /// # Errors
    /// Breaks when the visitor does.
    fn visit(&self, window: &Window<'_>, visitor: &mut Visitor<'_>) -> ControlFlow<()>;
}

/// The levels of the fault model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Every prefix of the log.
    Linear,
    /// Every subset of the epoch in flight.
    Epoch,
    /// Every prefix without one write of the epoch in flight.
    Lost,
    /// Every write torn between atomic units.
    Torn,
    /// Every erase stopped half-way.
    Erase,
}

/// The limits above which enumeration turns into sampling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bounds {
    /// Greatest number of subsets per position, at least 1. If there are more, the sample holds the
    /// prefix, the state with nothing, each single loss, and then pseudo-random ones: the same in
    /// every run.
    pub subsets_max: u64,
    /// Greatest number of cuts per torn write or half-done erase. If there are more, the first, the
    /// last, and evenly spaced ones between.
    pub cuts_max: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        // Ten writes in flight exactly; a 4 KiB block of 512-byte sectors at every sector.
        Bounds { subsets_max: 1024, cuts_max: 8 }
    }
}

impl Level {
    /// All levels.
    pub const ALL: [Level; 5] =
        [Level::Linear, Level::Epoch, Level::Lost, Level::Torn, Level::Erase];

    /// Makes the enumerator of the states of this level.
    pub fn enumerator(self, bounds: &Bounds) -> Box<dyn Enumerator> {
        match self {
            Level::Linear => Box::new(Linear),
            Level::Epoch => Box::new(Epoch { subsets_max: bounds.subsets_max }),
            Level::Lost => Box::new(Lost),
            Level::Torn => Box::new(Torn { cuts_max: bounds.cuts_max }),
            Level::Erase => Box::new(Erase { cuts_max: bounds.cuts_max }),
        }
    }

    /// The name on the command line and in crash points.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Linear => "linear",
            Level::Epoch => "epoch",
            Level::Lost => "lost",
            Level::Torn => "torn",
            Level::Erase => "erase",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that no level has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no crash level is called {0:?}: use linear, epoch, lost, torn or erase")]
pub struct UnknownLevel(String);

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Level, UnknownLevel> {
        let found = Level::ALL.into_iter().find(|level| level.name() == text);
        found.ok_or_else(|| UnknownLevel(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_known_by_their_names() {
        for level in Level::ALL {
            assert_eq!(level.name().parse(), Ok(level));
            assert_eq!(serde_json::to_value(level).unwrap(), level.name());
            assert_eq!(level.enumerator(&Bounds::default()).level(), level);
        }
        let error = "exhaustive".parse::<Level>().unwrap_err().to_string();
        assert!(error.ends_with("use linear, epoch, lost, torn or erase"), "{error}");
    }
}
