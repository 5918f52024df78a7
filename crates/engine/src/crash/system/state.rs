//! A state of the search: a disk, the operations since it was mounted, and what should be there.

use std::collections::BTreeMap;
use std::sync::Arc;

use fathom_block::Image;
use fathom_block::disks::Segment;
use fathom_core::{Digest, FsPath, Op, Slot, Subject, Tree};
use fathom_model::Model;

use crate::crash::promise::Promise;
use crate::crash::script::{Event, Script};
use crate::crash::workload::StepKind;

/// Everything that led to a state, newest first.
pub(super) struct History {
    pub(super) before: Option<Arc<History>>,
    pub(super) events: Vec<Event>,
}

/// A file system in use, between two steps.
#[derive(Clone)]
pub struct State {
    /// The disk that was mounted last.
    pub(super) base: Image,
    /// The operations since then.
    pub(super) since: Arc<[Op]>,
    /// Everything that led here.
    pub(super) trail: Option<Arc<History>>,
    /// The reference, as a program sees it.
    pub(super) model: Model,
    /// The open files.
    pub(super) open: BTreeMap<Slot, FsPath>,
    /// The states that a power failure may leave now.
    pub(super) promise: Promise,
    /// The kinds of the last steps, newest last.
    pub(super) recent: Vec<StepKind>,
    /// Power failures so far.
    pub(super) crashes: u32,
    /// Seed of the next written data.
    pub(super) seed: u64,
    /// Digest of the device, if states are identified by it.
    pub(super) image: Digest,
    /// The recordings of earlier mounts, if they may be different the next time.
    pub(super) earlier: Vec<Arc<Segment>>,
}

impl State {
    /// The script that leads here, and goes on with `more`.
    pub(super) fn script(&self, more: impl IntoIterator<Item = Event>) -> Script {
        let mut parts = Vec::new();
        let mut at = self.trail.as_deref();
        while let Some(trail) = at {
            parts.push(&trail.events);
            at = trail.before.as_deref();
        }
        let events = parts.into_iter().rev().flatten().cloned();
        Script(events.chain(more).collect())
    }

    /// Returns the tree that the reference shows.
    pub(super) fn tree(&self) -> Tree {
        self.model.clone().observe().expect("the model can always be observed")
    }
}
