//! The identity of a crash state: a short text that builds the same image again.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Level, Part, Subset};

/// The state that a power failure left. As text: the level, the position, and what the level adds:
/// `linear:17`, `epoch:17:3f`, `lost:17:4`, `torn:17:head3`, `erase:17:noise`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CrashPoint {
    /// The events before `position`, and nothing else.
    Linear {
        /// Number of events that were issued.
        position: usize,
    },
    /// The events before `position`, without some that were in flight.
    Epoch {
        /// Number of events that were issued.
        position: usize,
        /// The missing events: number `n` is the `n`-th volatile event since the last flush before
        /// `position`, counted from 0.
        lost: Subset,
    },
    /// The events before `position`, without one that was in flight.
    Lost {
        /// Number of events that were issued.
        position: usize,
        /// The index of the missing event in the log.
        event: usize,
    },
    /// The events before `position`, and part of the write that is number `position`.
    Torn {
        /// The index of the torn write in the log.
        position: usize,
        /// The part of it that arrived.
        arrived: Part,
    },
    /// The events before `position`, and part of the erase that is number `position`.
    Erase {
        /// The index of the interrupted erase in the log.
        position: usize,
        /// The part of it that happened.
        arrived: Part,
    },
}

impl CrashPoint {
    /// The level that finds this state.
    pub fn level(&self) -> Level {
        match self {
            CrashPoint::Linear { .. } => Level::Linear,
            CrashPoint::Epoch { .. } => Level::Epoch,
            CrashPoint::Lost { .. } => Level::Lost,
            CrashPoint::Torn { .. } => Level::Torn,
            CrashPoint::Erase { .. } => Level::Erase,
        }
    }

    /// Number of events that were complete or in flight when the power failed.
    pub fn position(&self) -> usize {
        match *self {
            CrashPoint::Linear { position }
            | CrashPoint::Epoch { position, .. }
            | CrashPoint::Lost { position, .. }
            | CrashPoint::Torn { position, .. }
            | CrashPoint::Erase { position, .. } => position,
        }
    }
}

impl fmt::Display for CrashPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.level(), self.position())?;
        match self {
            CrashPoint::Linear { .. } => Ok(()),
            CrashPoint::Epoch { lost, .. } => write!(f, ":{lost}"),
            CrashPoint::Lost { event, .. } => write!(f, ":{event}"),
            CrashPoint::Torn { arrived, .. } | CrashPoint::Erase { arrived, .. } => {
                write!(f, ":{arrived}")
            }
        }
    }
}

/// A text that is not a crash point.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a crash point: write linear:17, epoch:17:3f, lost:17:4, torn:17:head3, \
     torn:17:tail3 or erase:17:noise"
)]
pub struct PointSyntax(String);

/// Reads a decimal number in its only spelling (`from_str` would also take `+1` and `01`).
pub(super) fn number(text: &str) -> Option<usize> {
    text.parse().ok().filter(|number: &usize| number.to_string() == text)
}

impl FromStr for CrashPoint {
    type Err = PointSyntax;

    fn from_str(text: &str) -> Result<CrashPoint, PointSyntax> {
        parse(text).ok_or_else(|| PointSyntax(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<CrashPoint> {
    let (level, rest) = text.split_once(':')?;
    let level = level.parse().ok()?;
    if level == Level::Linear {
        return Some(CrashPoint::Linear { position: number(rest)? });
    }
    let (position, detail) = rest.split_once(':')?;
    let position = number(position)?;
    Some(match level {
        Level::Linear => unreachable!("returned above"),
        Level::Epoch => CrashPoint::Epoch { position, lost: Subset::from_text(detail)? },
        Level::Lost => CrashPoint::Lost { position, event: number(detail)? },
        Level::Torn => CrashPoint::Torn { position, arrived: detail.parse().ok()? },
        Level::Erase => CrashPoint::Erase { position, arrived: detail.parse().ok()? },
    })
}

impl Serialize for CrashPoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CrashPoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip() {
        for text in
            ["linear:17", "epoch:0:0", "epoch:17:3f", "lost:17:4", "torn:9:head3", "erase:9:noise"]
        {
            let point: CrashPoint = text.parse().unwrap();
            assert_eq!(point.to_string(), text);
            let json = serde_json::to_string(&point).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<CrashPoint>(&json).unwrap(), point);
        }
    }

    #[test]
    fn other_texts_are_refused_with_examples() {
        for text in [
            "",
            "linear",
            "linear:",
            "linear:x",
            "linear:+1",
            "linear:01",
            "linear:1:2",
            "epoch:1",
            "epoch:1:",
            "epoch:1:zz",
            "lost:1:-1",
            "torn:1:head",
            "torn:1:3",
            "torn:1:head+3",
            "crash:1",
        ] {
            let error = text.parse::<CrashPoint>().unwrap_err().to_string();
            assert!(error.contains("is not a crash point: write linear:17"), "{text}: {error}");
        }
    }
}
