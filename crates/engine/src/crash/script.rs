//! A workload with its power failures: everything that is needed to see a finding again.

use std::fmt;
use std::io::Write as _;

use fathom_block::CrashPoint;
use fathom_core::Op;
use serde::{Deserialize, Serialize};

/// One thing that happens. A run starts with a freshly formatted, mounted file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// An operation; [`Op::Remount`] unmounts and mounts.
    Op(Op),
    /// The power fails. The position of the point counts the events of the device since the last
    /// mount began. Then the device is mounted again, with whatever recovery that includes.
    PowerCut(CrashPoint),
}

/// The first byte of a packed power cut; an operation begins with another one.
const POWER_CUT: u8 = u8::MAX;

impl Event {
    /// Appends the event to `to` as a record of a [`Journal`](fathom_core::Journal).
    pub(super) fn pack(&self, to: &mut Vec<u8>) {
        match self {
            Event::Op(op) => op.pack(to),
            Event::PowerCut(point) => pack_power_cut(point, to),
        }
    }

    /// Reads a packed event; `None` if `bytes` are anything else.
    pub fn unpack(bytes: &[u8]) -> Option<Event> {
        match bytes.split_first()? {
            (&POWER_CUT, text) => std::str::from_utf8(text).ok()?.parse().ok().map(Event::PowerCut),
            _ => Op::unpack(bytes).map(Event::Op),
        }
    }
}

/// As [`Event::pack`] of a power cut at this point.
pub(super) fn pack_power_cut(point: &CrashPoint, to: &mut Vec<u8>) {
    to.push(POWER_CUT);
    write!(to, "{point}").expect("a vector takes everything");
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Op(op) => op.fmt(f),
            Event::PowerCut(point) => write!(f, "power cut ({point})"),
        }
    }
}

/// A list of events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Script(pub Vec<Event>);

impl Script {
    /// The operations.
    pub fn ops(&self) -> impl Iterator<Item = &Op> {
        self.0.iter().filter_map(|event| match event {
            Event::Op(op) => Some(op),
            Event::PowerCut(_) => None,
        })
    }

    /// Returns the number of operations.
    pub fn ops_len(&self) -> usize {
        self.ops().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_events_come_back() {
        let points = ["linear:17", "epoch:17:3f", "lost:17:4", "torn:9:head3", "erase:9:noise"];
        let cuts = points.map(|text| Event::PowerCut(text.parse().unwrap()));
        for event in cuts.into_iter().chain([Event::Op(Op::Remount), Event::Op(Op::Sync)]) {
            let mut bytes = Vec::new();
            event.pack(&mut bytes);
            assert_eq!(Event::unpack(&bytes).as_ref(), Some(&event));
            bytes.push(b'!');
            assert_eq!(Event::unpack(&bytes), None, "{event} and something else");
        }
        assert_eq!(Event::unpack(&[]), None);
    }
}
