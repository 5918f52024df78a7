//! What a power failure may leave: the trees that the subject's guarantee allows.
//!
//! The reference file system executes the workload too, with the subject's quirks. A *candidate* is a
//! state of it that may be found after a power failure now. Depending on the guarantee:
//!
//! * trees are judged *whole* ([`whole`]): there is one candidate (everything that returned is durable),
//!   several (anything since the last sync, in order), or one with *loose* paths (what was touched since
//!   the last sync may be anything, the rest is as it was);
//! * or *per object* ([`history`], [`rules`], [`contents`], [`decide`]): each file and each name has its
//!   versions since it was durable, and the order that the file system promises says which versions go
//!   together. Candidates are then the states that are legal as a whole; others may be legal too.
//!
//! The digest of a candidate is looked up first: most images show a whole state.

mod accounts;
mod contents;
mod decide;
mod history;
mod rules;
mod whole;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fathom_block::Guarantee;
use fathom_block::backed::Judging;
use fathom_block::disks::Accounts;
use fathom_core::{Digest, FsPath, Op, Slot, Subject, Tree};
use fathom_model::Model;

use self::history::History;

pub use self::contents::Contents;
pub(super) use self::contents::{DiskContents, Sums};
pub use self::decide::BrokenPromise;
pub use self::rules::Rule;

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
    /// The versions of every object, if trees are judged by them.
    history: Option<Arc<History>>,
}

impl Promise {
    /// An intact file system in a known state, without open files.
    pub fn new(model: Model) -> Promise {
        let candidates = vec![Candidate::new(model)];
        Promise { candidates, loose: BTreeSet::new(), pending: BTreeMap::new(), history: None }
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

    /// Whether a tree is legal, judged whole: see [`Promise::is_per_object`].
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
        let left: BTreeSet<FsPath> = tree.entries.keys().cloned().collect();
        for entry in tree.entries.values_mut() {
            entry.nlink = 0;
            // Nothing is said of another name that is loose.
            entry.same_as = entry.same_as.take().filter(|other| left.contains(other));
        }
        tree
    }

    /// What is legal while `op` runs; `self` becomes what is legal once it has returned. `visible` is
    /// the reference after the operation.
    pub fn step(&mut self, guarantee: &Guarantee, op: &Op, visible: &Model) -> Promise {
        match guarantee.judging() {
            Judging::Operations { held } => self.step_durable(held, op),
            Judging::Syncs => self.step_history(op, visible),
            Judging::Touched => self.step_touched(op, visible),
            Judging::Objects => self.step_objects(guarantee, op, visible),
        }
    }

    /// Notes the versions that an operation makes and what it makes durable.
    fn step_objects(&mut self, guarantee: &Guarantee, op: &Op, visible: &Model) -> Promise {
        let known = self.history.take();
        let mut history = known.unwrap_or_else(|| Arc::new(History::new(guarantee, self.newest())));
        Arc::make_mut(&mut history).push(op, visible);
        let mut during = history.clone();
        Arc::make_mut(&mut history).returned(op);
        // What is being made durable by itself may be so already.
        if history.logs(during.last()) {
            Arc::make_mut(&mut during).log_newest();
        }
        let promise = |history: Arc<History>| Promise {
            candidates: history.whole().map(|model| Candidate::new(model.clone())).collect(),
            loose: BTreeSet::new(),
            pending: BTreeMap::new(),
            history: Some(history),
        };
        *self = promise(history);
        promise(during)
    }

    /// Whether objects are judged by their own versions: then [`Promise::violation`] decides about trees
    /// that no candidate shows, since it also needs the contents of files.
    pub fn is_per_object(&self) -> bool {
        self.history.is_some()
    }

    /// The rule that a tree breaks, if objects are judged by their own versions.
    pub fn violation(&self, found: &Tree, contents: &mut dyn Contents) -> Option<BrokenPromise> {
        if self.matching(found.digest()).is_some() {
            return None;
        }
        self.history.as_ref()?.violation(found, contents)
    }

    /// What is lost of what trees do not show, if objects are judged by their own versions and the tree
    /// is legal. `noted` is what was said of files after each operation since the mount, `found` what is
    /// said of them now.
    pub fn lost_account(&self, found: &Accounts, noted: &[Accounts]) -> Option<BrokenPromise> {
        let history = self.history.as_ref()?;
        history.lost_account(found, noted).map(|broken| history.tell(broken, Vec::new()))
    }

    fn newest(&self) -> &Model {
        &self.candidates.last().expect("there is always one").model
    }
}

#[cfg(test)]
mod tests;
