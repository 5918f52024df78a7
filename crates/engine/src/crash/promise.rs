//! What a power failure may leave: the trees that the subject's guarantee allows.
//!
//! The reference file system executes the workload too. A *candidate* is a state of it that may be
//! found after a power failure now. Depending on the guarantee there is one (everything that returned
//! is durable), several (anything since the last sync, in order), or one with *loose* paths (what was
//! touched since the last sync may be anything, the rest is as it was).

use std::collections::{BTreeMap, BTreeSet};

use fathom_block::Guarantee;
use fathom_block::backed::{Durable, Order};
use fathom_core::flags::OpenFlags;
use fathom_core::{Digest, FsPath, Mode, Op, Slot, Subject, Target, Tree};
use fathom_model::Model;

/// A state that may be found.
#[derive(Clone, Debug)]
pub struct Candidate {
    model: Model,
    digest: Digest,
}

impl Candidate {
    fn new(model: Model) -> Candidate {
        Candidate { digest: model.digest(), model }
    }

    /// The tree.
    pub fn tree(&self) -> Tree {
        self.model.clone().observe().expect("the model can always be observed")
    }

    /// The state itself.
    pub fn model(&self) -> &Model {
        &self.model
    }
}

/// The legal states of a moment.
#[derive(Clone, Debug)]
pub struct Promise {
    /// Oldest first; the last one is what would be there without a failure.
    candidates: Vec<Candidate>,
    /// Paths that may be anything, with everything below.
    loose: BTreeSet<FsPath>,
    /// Operations on open files that are not durable yet: replayed when they are.
    pending: BTreeMap<Slot, Vec<Op>>,
}

impl Promise {
    /// An intact file system in a known state, without open files.
    pub fn new(model: Model) -> Promise {
        let candidates = vec![Candidate::new(model)];
        Promise { candidates, loose: BTreeSet::new(), pending: BTreeMap::new() }
    }

    /// The legal states, oldest first.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// Whether the oracle has a say about everything.
    pub fn is_exact(&self) -> bool {
        self.loose.is_empty()
    }

    /// The candidate that a tree shows, if any: the newest. Only an exact match names one.
    pub fn matching(&self, digest: Digest) -> Option<&Candidate> {
        self.candidates.iter().rev().find(|candidate| candidate.digest == digest)
    }

    /// Whether a tree is legal.
    pub fn allows(&self, digest: Digest, tree: impl FnOnce() -> Tree) -> bool {
        if self.matching(digest).is_some() {
            return true;
        }
        if self.loose.is_empty() {
            return false;
        }
        let found = self.firm(tree());
        self.candidates.iter().any(|candidate| self.firm(candidate.tree()) == found)
    }

    /// The part of a tree about which something is promised. Link counts of directories count
    /// sub-directories, which may be loose: not part of it.
    pub fn firm(&self, mut tree: Tree) -> Tree {
        if self.loose.is_empty() {
            return tree;
        }
        let path_is_loose = |path: &FsPath| {
            let mut at = Some(path.clone());
            while let Some(above) = at {
                if self.loose.contains(&above) {
                    return true;
                }
                at = above.parent();
            }
            false
        };
        tree.entries.retain(|path, _| !path_is_loose(path));
        for entry in tree.entries.values_mut() {
            entry.nlink = 0;
        }
        tree
    }

    /// What is legal while `op` runs; `self` becomes what is legal once it has returned. `visible` is
    /// the reference after the operation.
    pub fn step(&mut self, guarantee: &Guarantee, op: &Op, visible: &Model) -> Promise {
        match (guarantee.names.is, guarantee.order.is) {
            (_, Order::None) => self.step_loose(op, visible),
            (Durable::Sync, Order::Prefix) => self.step_history(op, visible),
            (Durable::Operation | Durable::Close, Order::Prefix) => {
                self.step_durable(guarantee.data.is, op)
            }
        }
    }

    fn newest(&self) -> &Model {
        &self.candidates.last().expect("there is always one").model
    }

    /// Names are durable when an operation returns, data when the guarantee says so.
    fn step_durable(&mut self, data: Durable, op: &Op) -> Promise {
        let mut durable = self.newest().clone();
        let mut between = Vec::new();
        match op {
            Op::Open { slot, path, flags, mode } => {
                self.open(&mut durable, *slot, path, *flags, *mode);
                if data == Durable::Operation {
                    self.settle(*slot, &mut durable);
                }
            }
            Op::Pwrite { slot, .. } | Op::Truncate { target: Target::Slot(slot), .. } => {
                self.pending.entry(*slot).or_default().push(op.clone());
                if data == Durable::Operation {
                    self.settle(*slot, &mut durable);
                }
            }
            Op::Fsync { slot } | Op::Fdatasync { slot } => self.settle(*slot, &mut durable),
            Op::Close { slot } => {
                if data != Durable::Sync {
                    self.settle(*slot, &mut durable);
                }
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
    fn step_history(&mut self, op: &Op, visible: &Model) -> Promise {
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
    fn step_loose(&mut self, op: &Op, visible: &Model) -> Promise {
        let after = Candidate::new(visible.clone());
        match op {
            Op::Sync | Op::Remount => {
                let mut during = self.clone();
                during.candidates.push(after.clone());
                *self = Promise {
                    candidates: vec![after],
                    loose: BTreeSet::new(),
                    pending: std::mem::take(&mut self.pending),
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
            _ => {}
        }
        self.candidates = vec![after];
        self.clone()
    }
}
