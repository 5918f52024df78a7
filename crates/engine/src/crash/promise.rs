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
        // Not equality: the reference also shows times, which nobody promises.
        let same =
            |candidate: &Candidate| self.firm(candidate.tree()).differences(&found).is_empty();
        self.candidates.iter().any(same)
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
        // A half-written directory entry has any name: where names were touched, unknown ones are loose
        // too, with everything below.
        let touched: BTreeSet<FsPath> = self.loose.iter().filter_map(FsPath::parent).collect();
        let known: Vec<Tree> = self.candidates.iter().map(Candidate::tree).collect();
        let mut stray: BTreeSet<FsPath> = BTreeSet::new();
        tree.entries.retain(|path, _| {
            let above = path.parent();
            let is_known = known.iter().any(|tree| tree.entries.contains_key(path));
            let is_stray = above.is_some_and(|above| {
                stray.contains(&above) || (!is_known && touched.contains(&above))
            });
            if is_stray {
                stray.insert(path.clone());
            }
            !is_stray && !path_is_loose(path)
        });
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

#[cfg(test)]
mod tests {
    use fathom_core::flags::RenameFlags;
    use fathom_core::plain::{DIR_MODE, FILE_MODE};
    use fathom_core::{Kind, Pattern, PlainTree};
    use fathom_model::Config;

    use super::*;

    const NEW: OpenFlags = OpenFlags::O_RDWR.union(OpenFlags::O_CREAT);
    const OLD: OpenFlags = OpenFlags::O_RDWR;
    const TRUNC: OpenFlags = OpenFlags::O_RDWR.union(OpenFlags::O_TRUNC);

    fn open(slot: Slot, path: &str, flags: OpenFlags) -> Op {
        Op::Open { slot, path: path.into(), flags, mode: FILE_MODE }
    }

    fn write(slot: Slot, len: u64) -> Op {
        Op::Pwrite { slot, offset: 0, data: Pattern { seed: 1, len } }
    }

    fn truncate(slot: Slot, len: i64) -> Op {
        Op::Truncate { target: Target::Slot(slot), len }
    }

    fn rename(from: &str, to: &str) -> Op {
        Op::Rename { from: from.into(), to: to.into(), flags: RenameFlags::empty() }
    }

    fn mkdir(path: &str) -> Op {
        Op::Mkdir { path: path.into(), mode: DIR_MODE }
    }

    fn close(slot: Slot) -> Op {
        Op::Close { slot }
    }

    fn fsync(slot: Slot) -> Op {
        Op::Fsync { slot }
    }

    fn guarantee(names: Durable, data: Durable, order: &str) -> Guarantee {
        let text = format!(
            r#"
            names = {{ is = "{names}", cite = "test" }}
            data = {{ is = "{data}", cite = "test" }}
            order = {{ is = "{order}", cite = "test" }}
            survives = {{ is = ["linear"], cite = "test" }}
            recovers = {{ is = true, cite = "test" }}
            capacity_slack_bytes = {{ is = 0, cite = "test" }}
            "#
        );
        Guarantee::parse(&text).expect("a sensible promise")
    }

    /// The legal trees, oldest first: directories with a slash, files with their sizes.
    fn trees(promise: &Promise) -> String {
        let entry = |(path, entry): (&FsPath, &fathom_core::Entry)| match entry.kind {
            Kind::Dir if path.as_bytes() == b"." => None,
            Kind::Dir => Some(format!("{path}/")),
            _ => Some(format!("{path}:{}", entry.size)),
        };
        let tree = |candidate: &Candidate| {
            candidate.tree().entries.iter().filter_map(entry).collect::<Vec<_>>().join(" ")
        };
        promise.candidates().iter().map(tree).collect::<Vec<_>>().join(" | ")
    }

    /// Executes operations; each comes with what is legal while it runs and what is legal after it.
    fn follow(guarantee: &Guarantee, steps: &[(Op, &str, &str)]) -> Promise {
        let mut visible = Model::new(Config::default()).expect("the default works");
        let mut promise = Promise::new(visible.clone());
        for (op, during_trees, after_trees) in steps {
            let answer = visible.execute(op);
            assert!(answer.result.is_ok(), "{op}: {answer}");
            let during = promise.step(guarantee, op, &visible);
            assert_eq!(trees(&during), *during_trees, "during {op}");
            assert_eq!(trees(&promise), *after_trees, "after {op}");
        }
        promise
    }

    #[test]
    fn durable_by_operation() {
        let promise = follow(
            &guarantee(Durable::Operation, Durable::Operation, "prefix"),
            &[
                (mkdir("d"), " | d/", "d/"),
                (open(1, "a", NEW), "d/ | a:0 d/", "a:0 d/"),
                (write(1, 4), "a:0 d/ | a:4 d/", "a:4 d/"),
                (truncate(1, 2), "a:4 d/ | a:2 d/", "a:2 d/"),
                (fsync(1), "a:2 d/", "a:2 d/"),
                (close(1), "a:2 d/", "a:2 d/"),
                // Truncation is an operation like any other.
                (open(1, "a", TRUNC), "a:2 d/ | a:0 d/", "a:0 d/"),
                (write(1, 3), "a:0 d/ | a:3 d/", "a:3 d/"),
                (rename("a", "d/b"), "a:3 d/ | d/ d/b:3", "d/ d/b:3"),
                (write(1, 5), "d/ d/b:3 | d/ d/b:5", "d/ d/b:5"),
                (Op::Remount, "d/ d/b:5", "d/ d/b:5"),
                (Op::Unlink { path: "d/b".into() }, "d/ d/b:5 | d/", "d/"),
                (Op::Rmdir { path: "d".into() }, "d/ | ", ""),
            ],
        );
        assert!(promise.is_exact());
    }

    #[test]
    fn durable_by_close() {
        follow(
            &guarantee(Durable::Operation, Durable::Close, "prefix"),
            &[
                (open(1, "a", NEW), " | a:0", "a:0"),
                (write(1, 4), "a:0", "a:0"),
                (fsync(1), "a:0 | a:4", "a:4"),
                (write(1, 6), "a:4", "a:4"),
                // An open file goes with its name; its data is still not there.
                (rename("a", "b"), "a:4 | b:4", "b:4"),
                (close(1), "b:4 | b:6", "b:6"),
                // Truncated, but the power may fail before the close.
                (open(1, "b", TRUNC), "b:6", "b:6"),
                (write(1, 1), "b:6", "b:6"),
                (close(1), "b:6 | b:1", "b:1"),
                (open(1, "b", TRUNC), "b:1", "b:1"),
                (close(1), "b:1 | b:0", "b:0"),
            ],
        );
    }

    #[test]
    fn open_files_become_durable_one_after_the_other() {
        follow(
            &guarantee(Durable::Operation, Durable::Close, "prefix"),
            &[
                (mkdir("d"), " | d/", "d/"),
                (open(1, "d/a", NEW), "d/ | d/ d/a:0", "d/ d/a:0"),
                (open(2, "d/b", NEW), "d/ d/a:0 | d/ d/a:0 d/b:0", "d/ d/a:0 d/b:0"),
                (write(1, 1), "d/ d/a:0 d/b:0", "d/ d/a:0 d/b:0"),
                (write(2, 2), "d/ d/a:0 d/b:0", "d/ d/a:0 d/b:0"),
                // Both go with their directory.
                (rename("d", "e"), "d/ d/a:0 d/b:0 | e/ e/a:0 e/b:0", "e/ e/a:0 e/b:0"),
                (Op::Sync, "e/ e/a:0 e/b:0 | e/ e/a:1 e/b:0 | e/ e/a:1 e/b:2", "e/ e/a:1 e/b:2"),
                (write(1, 3), "e/ e/a:1 e/b:2", "e/ e/a:1 e/b:2"),
                (write(2, 4), "e/ e/a:1 e/b:2", "e/ e/a:1 e/b:2"),
                (fsync(2), "e/ e/a:1 e/b:2 | e/ e/a:1 e/b:4", "e/ e/a:1 e/b:4"),
                // An unmount closes what is open.
                (Op::Remount, "e/ e/a:1 e/b:4 | e/ e/a:3 e/b:4", "e/ e/a:3 e/b:4"),
                (Op::Sync, "e/ e/a:3 e/b:4", "e/ e/a:3 e/b:4"),
            ],
        );
    }

    #[test]
    fn durable_by_sync_in_order() {
        let promise = follow(
            &guarantee(Durable::Sync, Durable::Sync, "prefix"),
            &[
                (mkdir("d"), " | d/", " | d/"),
                (open(1, "a", NEW), " | d/ | a:0 d/", " | d/ | a:0 d/"),
                (write(1, 4), " | d/ | a:0 d/ | a:4 d/", " | d/ | a:0 d/ | a:4 d/"),
                // What came before it is durable too.
                (fsync(1), " | d/ | a:0 d/ | a:4 d/", "a:4 d/"),
                (close(1), "a:4 d/", "a:4 d/"),
                (open(1, "a", TRUNC), "a:4 d/ | a:0 d/", "a:4 d/ | a:0 d/"),
                (close(1), "a:4 d/ | a:0 d/", "a:4 d/ | a:0 d/"),
                (Op::Sync, "a:4 d/ | a:0 d/", "a:0 d/"),
                (rename("a", "b"), "a:0 d/ | b:0 d/", "a:0 d/ | b:0 d/"),
                // Back again: one tree, the newest.
                (rename("b", "a"), "b:0 d/ | a:0 d/", "b:0 d/ | a:0 d/"),
                (Op::Remount, "b:0 d/ | a:0 d/", "a:0 d/"),
            ],
        );
        assert!(promise.is_exact());
    }

    fn plain(files: &[(&str, usize)]) -> Tree {
        let mut plain = PlainTree::new();
        for (path, size) in files {
            plain.file((*path).into(), &Pattern { seed: 1, len: *size as u64 }.to_vec());
        }
        plain.finish()
    }

    #[test]
    fn without_order_what_was_touched_is_loose() {
        let guarantee = guarantee(Durable::Sync, Durable::Sync, "none");
        let mut visible = Model::new(Config::default()).expect("the default works");
        let mut promise = Promise::new(visible.clone());
        let mut step = |promise: &mut Promise, op: Op| {
            assert!(visible.execute(&op).result.is_ok(), "{op}");
            promise.step(&guarantee, &op, &visible)
        };
        let allows = |promise: &Promise, files: &[(&str, usize)]| {
            let tree = plain(files);
            promise.allows(tree.digest(), || tree.clone())
        };
        for (slot, path) in [(1, "a"), (2, "b")] {
            step(&mut promise, open(slot, path, NEW));
            step(&mut promise, write(slot, 2));
            step(&mut promise, close(slot));
        }
        for anything in [&[][..], &[("a", 2)], &[("a", 1), ("b", 7)]] {
            assert!(allows(&promise, anything), "{anything:?}");
        }
        // A half-written entry may have any name.
        assert!(allows(&promise, &[("c", 0)]) && !promise.is_exact());
        let during = step(&mut promise, Op::Sync);
        assert!(allows(&during, &[("a", 2)]) && promise.is_exact());
        assert!(allows(&promise, &[("a", 2), ("b", 2)]) && !allows(&promise, &[("a", 2)]));
        // A rename touches both names, and an open file is touched under its new one.
        step(&mut promise, open(1, "a", OLD));
        step(&mut promise, rename("a", "c"));
        step(&mut promise, Op::Sync);
        assert!(promise.is_exact());
        step(&mut promise, write(1, 1));
        assert!(allows(&promise, &[("c", 1), ("b", 2)]) && allows(&promise, &[("b", 2)]));
        assert!(!allows(&promise, &[("c", 2)]) && allows(&promise, &[("a", 2), ("b", 2)]));
        // But not in a directory that was not touched.
        step(&mut promise, Op::Mkdir { path: "d".into(), mode: DIR_MODE });
        step(&mut promise, Op::Sync);
        step(&mut promise, write(1, 2));
        for (stray, legal) in [("x", true), ("d/x", false)] {
            let mut found = PlainTree::new();
            found.dir("d".into());
            found.file("b".into(), &Pattern { seed: 1, len: 2 }.to_vec());
            found.file(stray.into(), b"");
            let found = found.finish();
            assert_eq!(promise.allows(found.digest(), || found), legal, "{stray}");
        }
    }
}
