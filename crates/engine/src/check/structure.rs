//! How large the structures are that a campaign has made: depth, fan-out, links, size, open files.

use std::collections::BTreeMap;

use fathom_core::Slot;
use fathom_model::{Model, TreeOptions};
use fathom_record::pace::Moment;
use serde::Serialize;

/// Larger trees are not measured: that would take longer than what is measured.
const ENTRIES_MAX: u64 = 20_000;

/// The largest structures so far, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Structure {
    /// Since the start, for whoever waits outside of a guest.
    pub seconds: f64,
    /// Operations until then.
    pub ops: u64,
    /// Levels of directories.
    pub depth: u64,
    /// Entries of one directory.
    pub fan_out: u64,
    /// Names of one inode that is no directory.
    pub links: u64,
    /// Bytes of one file.
    pub size: u64,
    /// Open files at once.
    pub opens: u64,
    /// Entries of the tree.
    pub entries: u64,
}

impl Structure {
    /// What a model shows now, as far as it is not too large to be looked at.
    fn of(model: &Model) -> Structure {
        let counts = model.volume().statfs();
        let entries = counts.files.saturating_sub(counts.files_free);
        let opens = (0..=Slot::MAX).filter(|slot| model.slot_ino(*slot).is_some()).count() as u64;
        let mut found = Structure { opens, entries, ..Structure::default() };
        if entries > ENTRIES_MAX {
            return found;
        }
        let tree = model.volume().tree(TreeOptions::default());
        let mut children: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for (path, entry) in &tree.entries {
            let depth = path.as_bytes().iter().filter(|byte| **byte == b'/').count() as u64 + 1;
            found.depth = found.depth.max(depth);
            let parent = path.parent().map(|parent| parent.as_bytes().to_vec());
            *children.entry(parent.unwrap_or_default()).or_default() += 1;
            if entry.kind != fathom_core::Kind::Dir {
                found.links = found.links.max(u64::from(entry.nlink));
                found.size = found.size.max(entry.size);
            }
        }
        found.fan_out = children.values().copied().max().unwrap_or(0);
        found
    }

    /// The larger of both, at the time of the later one.
    fn or_larger(self, before: &Structure) -> Structure {
        Structure {
            seconds: self.seconds,
            ops: self.ops,
            depth: self.depth.max(before.depth),
            fan_out: self.fan_out.max(before.fan_out),
            links: self.links.max(before.links),
            size: self.size.max(before.size),
            opens: self.opens.max(before.opens),
            entries: self.entries.max(before.entries),
        }
    }
}

/// Operations between two samples at first.
const SAMPLE_EVERY: u64 = 1000;

/// With so many samples every second one is dropped, and from then on half as many are taken.
const SAMPLES_MAX: usize = 256;

/// Operations for each entry of the tree between two samples, so that measuring costs little.
const OPS_PER_ENTRY: u64 = 16;

/// The largest structures over time. They are measured by operations: the clock of a guest may stand still.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    taken: Vec<Structure>,
    every: u64,
    next: u64,
    began: Moment,
}

impl Samples {
    pub(super) fn start() -> Samples {
        Samples { taken: Vec::new(), every: SAMPLE_EVERY, next: SAMPLE_EVERY, began: Moment::now() }
    }

    /// Whether it is time for another one.
    pub(super) fn are_due(&self, ops: u64) -> bool {
        ops >= self.next
    }

    /// Measures what a model shows after so many operations.
    pub(super) fn take(&mut self, model: &Model, ops: u64) {
        let seconds = self.began.elapsed().as_secs_f64();
        let now = Structure { seconds, ops, ..Structure::of(model) };
        let entries = now.entries;
        let before = self.taken.last().copied().unwrap_or_default();
        self.taken.push(now.or_larger(&before));
        if self.taken.len() >= SAMPLES_MAX {
            let mut at = 0;
            self.taken.retain(|_| {
                at += 1;
                at % 2 == 0
            });
            self.every *= 2;
        }
        self.next = ops + self.every.max(entries * OPS_PER_ENTRY);
    }

    pub(super) fn into_taken(self) -> Vec<Structure> {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use fathom_core::{Mode, Op, Subject};

    use super::*;

    #[test]
    fn samples_come_by_operations_and_stay_few() {
        let mut model = Model::new(fathom_model::Config::default()).unwrap();
        let mut samples = Samples::start();
        for ops in 1..=1_000_000 {
            if ops == 500_000 {
                for path in ["d", "d/e"] {
                    model.apply(&Op::Mkdir { path: path.into(), mode: Mode(0o755) }).unwrap();
                }
            }
            if samples.are_due(ops) {
                samples.take(&model, ops);
            }
        }
        let taken = samples.into_taken();
        assert!((SAMPLES_MAX / 4..SAMPLES_MAX).contains(&taken.len()), "{}", taken.len());
        assert!(taken.windows(2).all(|two| two[0].ops < two[1].ops));
        assert!(taken.iter().all(|one| (one.depth == 2) == (one.ops >= 500_000)));
        let steps = taken.windows(2).map(|two| two[1].ops - two[0].ops);
        assert!(steps.min() >= Some(SAMPLE_EVERY));
    }

    #[test]
    fn a_large_tree_is_measured_less_often() {
        let mut model = Model::new(fathom_model::Config::default()).unwrap();
        for n in 0..500 {
            let path = format!("d{n}").as_str().into();
            model.apply(&Op::Mkdir { path, mode: Mode(0o755) }).unwrap();
        }
        let mut samples = Samples::start();
        samples.take(&model, 1000);
        assert!(!samples.are_due(1000 + 500 * OPS_PER_ENTRY - 1));
        assert!(samples.are_due(1000 + 502 * OPS_PER_ENTRY));
    }
}
