//! What the VFS adds to a volume: one file per system call.

use std::collections::BTreeSet;

use fathom_core::{Capability, Digest, HarnessFault, Op, Outcome, Subject, Tree};

use crate::config::{Config, ConfigError};
use crate::volume::Volume;

/// A volume with a process that uses it: executes operations.
#[derive(Clone, Debug)]
pub struct Model {}

#[allow(missing_docs)]
impl Model {
    pub fn new(_config: Config) -> Result<Model, ConfigError> { todo!() }
    pub fn volume(&self) -> &Volume { todo!() }
    /// Digest of the visible tree.
    pub fn digest(&self) -> Digest { todo!() }
    /// Digest of everything that decides the future: tree, open slots, caller, umask, orphans.
    pub fn state_digest(&self) -> Digest { todo!() }
    /// Whether the call would not return (opening a FIFO without a peer): must not be executed.
    pub fn would_block(&self, _op: &Op) -> bool { todo!() }
    pub fn execute(&mut self, _op: &Op) -> Outcome { todo!() }
}

impl Subject for Model {
    fn name(&self) -> String { todo!() }
    fn capabilities(&self) -> BTreeSet<Capability> { todo!() }
    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> { Ok(self.execute(op)) }
    fn observe(&mut self) -> Result<Tree, HarnessFault> { todo!() }
}
