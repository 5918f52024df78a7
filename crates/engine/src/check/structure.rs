//! How large the structures are that a campaign has made: depth, fan-out, links, size, open files.

use std::collections::BTreeMap;

use fathom_core::Slot;
use fathom_model::{Model, TreeOptions};
use serde::Serialize;

/// Larger trees are not measured: that would take longer than what is measured.
const ENTRIES_MAX: u64 = 20_000;

/// The largest structures so far, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Structure {
    /// Since the start.
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
    pub(super) fn of(model: &Model) -> Structure {
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
    pub(super) fn or_larger(self, before: &Structure) -> Structure {
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
