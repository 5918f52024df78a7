//! Gives a subject a name of the command line and a way to start again.

use std::collections::BTreeSet;

use fathom_core::{Capability, HarnessFault, Op, Outcome, Subject, Tree};

use fathom_core::Territory;

/// A subject, how it is named, and what empties it.
pub struct Restart<S, F> {
    name: String,
    subject: S,
    restart: F,
}

impl<S: Subject, F: FnMut(&mut S) -> Result<(), HarnessFault>> Restart<S, F> {
    /// `restart` makes `subject` an empty file system again.
    pub fn new(name: impl Into<String>, subject: S, restart: F) -> Self {
        Restart { name: name.into(), subject, restart }
    }
}

impl<S: Subject, F: FnMut(&mut S) -> Result<(), HarnessFault>> Subject for Restart<S, F> {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        self.subject.capabilities()
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        self.subject.apply(op)
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        self.subject.observe()
    }
}

impl<S: Subject, F: FnMut(&mut S) -> Result<(), HarnessFault>> Territory for Restart<S, F> {
    fn reset(&mut self) -> Result<(), HarnessFault> {
        (self.restart)(&mut self.subject)
    }
}
