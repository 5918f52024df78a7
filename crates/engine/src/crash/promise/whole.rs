//! Promises about whole trees: of file systems that make every operation durable, or every sync, or
//! that only promise not to touch bystanders.

use std::collections::BTreeSet;

use fathom_core::flags::OpenFlags;
use fathom_core::{FsPath, Kind, Mode, Op, Slot, Target};
use fathom_model::{Ino, Model, TreeOptions};

use super::{Candidate, Promise};
use crate::check::oracle::touched;

impl Promise {
    /// Names are durable when an operation returns, data when the guarantee says so.
    pub(super) fn step_durable(&mut self, held: bool, op: &Op) -> Promise {
        let mut durable = self.newest().clone();
        let mut between = Vec::new();
        match op {
            Op::Open { slot, path, flags, mode } => {
                self.open(&mut durable, *slot, path, *flags, *mode);
                if !held {
                    self.settle(*slot, &mut durable);
                }
            }
            Op::Pwrite { slot, .. } | Op::Truncate { target: Target::Slot(slot), .. } => {
                self.pending.entry(*slot).or_default().push(op.clone());
                if !held {
                    self.settle(*slot, &mut durable);
                }
            }
            Op::Fsync { slot } | Op::Fdatasync { slot } => self.settle(*slot, &mut durable),
            Op::Close { slot } => {
                self.settle(*slot, &mut durable);
                self.pending.remove(slot);
            }
            Op::Sync | Op::Remount => {
                for slot in self.pending.keys().copied().collect::<Vec<_>>() {
                    self.settle(slot, &mut durable);
                    between.push(Candidate::new(durable.clone()));
                }
                if matches!(op, Op::Remount) {
                    self.pending.clear();
                }
            }
            other => {
                durable.execute(other);
                self.follow_rename(other);
            }
        }
        self.advance(between, Candidate::new(durable))
    }

    /// Replaces the candidates by the newest; returns what is legal on the way.
    fn advance(&mut self, between: Vec<Candidate>, after: Candidate) -> Promise {
        let mut during = self.clone();
        for candidate in between.into_iter().chain([after.clone()]) {
            if during.matching(candidate.digest).is_none() {
                during.candidates.push(candidate);
            }
        }
        self.candidates = vec![after];
        during
    }

    /// A new name is durable at once; truncation is data, and may have to wait.
    fn open(
        &mut self,
        durable: &mut Model,
        slot: Slot,
        path: &FsPath,
        flags: OpenFlags,
        mode: Mode,
    ) {
        let name = flags.difference(OpenFlags::O_TRUNC);
        durable.execute(&Op::Open { slot, path: path.clone(), flags: name, mode });
        durable.execute(&Op::Close { slot });
        let data = flags.difference(OpenFlags::O_CREAT | OpenFlags::O_EXCL);
        self.pending.insert(slot, vec![Op::Open { slot, path: path.clone(), flags: data, mode }]);
    }

    /// What was written to an open file becomes durable.
    fn settle(&mut self, slot: Slot, durable: &mut Model) {
        let Some(pending) = self.pending.get_mut(&slot) else { return };
        for op in pending.iter() {
            durable.execute(op);
        }
        durable.execute(&Op::Close { slot });
        pending.truncate(1);
        if let Some(Op::Open { flags, .. }) = pending.first_mut() {
            flags.remove(OpenFlags::O_TRUNC);
        }
    }

    /// Open files go with their names.
    fn follow_rename(&mut self, op: &Op) {
        let Op::Rename { from, to, .. } = op else { return };
        for op in self.pending.values_mut().filter_map(|pending| pending.first_mut()) {
            let Op::Open { path, .. } = op else { continue };
            if let Some(rest) = path.as_bytes().strip_prefix(from.as_bytes()) {
                match rest {
                    [] => *path = to.clone(),
                    [b'/', name @ ..] => *path = to.join(name),
                    _ => {}
                }
            }
        }
    }

    /// Everything since the last sync, in order.
    pub(super) fn step_history(&mut self, op: &Op, visible: &Model) -> Promise {
        let after = Candidate::new(visible.clone());
        let syncs = matches!(op, Op::Fsync { .. } | Op::Fdatasync { .. } | Op::Sync | Op::Remount);
        if syncs {
            return self.advance(Vec::new(), after);
        }
        self.candidates.retain(|candidate| candidate.digest != after.digest);
        self.candidates.push(after);
        self.clone()
    }

    /// What was touched since the last sync is anybody's guess.
    pub(super) fn step_touched(&mut self, op: &Op, visible: &Model) -> Promise {
        let after = Candidate::new(visible.clone());
        match op {
            Op::Sync | Op::Remount => {
                let mut during = self.clone();
                during.candidates.push(after.clone());
                *self = Promise {
                    candidates: vec![after],
                    loose: BTreeSet::new(),
                    pending: std::mem::take(&mut self.pending),
                    history: None,
                };
                if matches!(op, Op::Remount) {
                    self.pending.clear();
                }
                return during;
            }
            Op::Open { slot, path, .. } => {
                self.pending.insert(*slot, vec![op.clone()]);
                self.loose.insert(path.clone());
            }
            Op::Close { slot } => drop(self.pending.remove(slot)),
            Op::Pwrite { slot, .. } | Op::Truncate { target: Target::Slot(slot), .. } => {
                if let Some(Op::Open { path, .. }) = self.pending.get(slot).and_then(|p| p.first())
                {
                    self.loose.insert(path.clone());
                }
            }
            Op::Mkdir { path, .. } | Op::Rmdir { path } | Op::Unlink { path } => {
                self.loose.insert(path.clone());
            }
            Op::Rename { from, to, .. } => {
                self.loose.extend([from.clone(), to.clone()]);
                self.follow_rename(op);
            }
            other => self.loose.extend(touched(other, visible, false)),
        }
        self.loosen_other_names(visible);
        self.candidates = vec![after];
        self.clone()
    }

    /// A file that was touched under one name was touched under all.
    fn loosen_other_names(&mut self, visible: &Model) {
        let volume = visible.volume();
        let has_others = |path: &FsPath| {
            let ino = volume.find(path, false)?;
            let attr = volume.attr(ino).ok()?;
            (attr.kind == Kind::File && attr.nlink > 1).then_some(ino)
        };
        let several: BTreeSet<Ino> = self.loose.iter().filter_map(has_others).collect();
        if several.is_empty() {
            return;
        }
        let tree = volume.tree(TreeOptions::default());
        let is_one =
            |path: &&FsPath| volume.find(path, false).is_some_and(|at| several.contains(&at));
        self.loose.extend(tree.entries.keys().filter(is_one).cloned());
    }
}
