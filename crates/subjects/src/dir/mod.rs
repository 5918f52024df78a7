//! [`DirSubject`]: any directory of the host as a subject, without root.
//!
//! Operations run in a fresh subdirectory `fathom-XXXXXX` of the given directory, which is removed
//! with everything in it when the subject is dropped. Only a `SIGKILL` leaves it behind; it can then
//! be deleted by hand. Nothing outside of it is ever touched.

mod environment;
pub(crate) mod scratch;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use fathom_core::{Capability, HarnessFault};
use fathom_model::{Feature, Quirks};

use crate::error::SubjectError;
use crate::host::{Backend, HostSubject};
use crate::sys::View;
use scratch::Scratch;

pub(crate) use environment::protected;
pub use environment::{Environment, detect_profile};

/// A directory of the host as a subject; see the module documentation.
pub type DirSubject = HostSubject<DirBackend>;

/// The directory that was given, and the fresh one in it.
pub struct DirBackend {
    given: PathBuf,
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
        let capabilities = scratch::capabilities_of(&root);
        let backend = DirBackend { given, scratch, capabilities };
        Ok(HostSubject::with_root(backend, root, view)?)
    }

    /// What decides how the directory behaves, beyond the file system itself.
    ///
    /// # Errors
    /// If the host does not tell.
    pub fn environment(&self) -> Result<Environment, SubjectError> {
        Environment::of(self.path())
    }

    /// Finds out what the file system lacks, in the fresh subdirectory.
    ///
    /// # Errors
    /// If nothing can be tried.
    pub(crate) fn probe(
        &self,
        quirks: &mut Quirks,
        required: &[Feature],
    ) -> Result<Vec<String>, SubjectError> {
        crate::probe::probe(&self.backend.scratch.open()?, quirks, required)
            .map_err(SubjectError::io("try things in", self.backend.scratch.path()))
    }

    /// The fresh subdirectory.
    pub fn path(&self) -> &Path {
        self.backend.scratch.path()
    }
}

impl Backend for DirBackend {
    fn name(&self) -> String {
        format!("dir:{}", self.given.display())
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        self.capabilities.clone()
    }

    fn reset(&mut self) -> Result<OwnedFd, HarnessFault> {
        self.scratch.remove()?;
        self.scratch = Scratch::create(&self.given)?;
        Ok(self.scratch.open()?)
    }
}
