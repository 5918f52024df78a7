//! [`DirSubject`]: any directory of the host as a subject, without root.
//!
//! Operations run in a fresh subdirectory `fathom-XXXXXX` of the given directory, which is removed
//! with everything in it when the subject is dropped. Only a `SIGKILL` leaves it behind; it can then
//! be deleted by hand. Nothing outside of it is ever touched.

mod environment;
pub(crate) mod scratch;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fathom_core::{
    Capability, FsBytes, FsPath, HarnessFault, Op, Outcome, PathState, Subject, Testbed, Tree,
};

use crate::error::SubjectError;
use crate::sys::{Executor, View};
use scratch::Scratch;

pub(crate) use environment::protected;
pub use environment::{Environment, detect_profile};

/// See the module documentation. Takes over its thread: see [`crate::sys`].
pub struct DirSubject {
    given: PathBuf,
    /// Dropped before the scratch directory, so that the thread has left it.
    executor: Executor,
    scratch: Scratch,
    capabilities: BTreeSet<Capability>,
}

impl DirSubject {
    /// A subject in a fresh subdirectory of `path`.
    ///
    /// # Errors
    /// If `path` is not a directory in which one can be made, or the thread cannot be taken over.
    pub fn create(path: &Path, view: View) -> Result<DirSubject, SubjectError> {
        let given = path.canonicalize().map_err(SubjectError::io("find", path))?;
        if !given.is_dir() {
            return Err(SubjectError::NotADirectory(given));
        }
        let scratch = Scratch::create(&given)?;
        let root = scratch.open()?;
        let mut capabilities = scratch::capabilities_of(&root);
        let executor = Executor::new(root, view)?;
        if executor.can_switch_identity() {
            capabilities.insert(Capability::Identity);
        }
        Ok(DirSubject { given, executor, scratch, capabilities })
    }

    /// What decides how the directory behaves, beyond the file system itself.
    ///
    /// # Errors
    /// If the host does not tell.
    pub fn environment(&self) -> Result<Environment, SubjectError> {
        Environment::of(self.scratch.path())
    }

    /// The fresh subdirectory.
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }
}

impl Subject for DirSubject {
    fn name(&self) -> String {
        format!("dir:{}", self.given.display())
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        self.capabilities.clone()
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        self.executor.apply(op)
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        self.executor.observe()
    }
}

impl Testbed for DirSubject {
    fn reset(&mut self) -> Result<(), HarnessFault> {
        self.executor.release();
        self.scratch.remove()?;
        self.scratch = Scratch::create(&self.given)?;
        self.executor.restart(self.scratch.open()?)
    }

    fn observe_paths(&mut self, paths: &[FsPath]) -> Result<Vec<PathState>, HarnessFault> {
        self.executor.observe_paths(paths)
    }

    fn read_contents(
        &mut self,
        path: &FsPath,
        offset: u64,
        len: usize,
    ) -> Result<Option<Vec<u8>>, HarnessFault> {
        self.executor.read_contents(path, offset, len)
    }

    fn read_xattr(
        &mut self,
        path: &FsPath,
        name: &FsBytes,
    ) -> Result<Option<Vec<u8>>, HarnessFault> {
        self.executor.read_xattr(path, name)
    }
}
