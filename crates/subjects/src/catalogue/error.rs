//! Why a subject is not to be had.

use std::path::PathBuf;

use fathom_core::HarnessFault;
use fathom_model::ConfigError;

use crate::error::SubjectError;

/// Why a subject is not to be had. Each says what to do about it, where that is known.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// No subject is called like that.
    #[error(
        "unknown subject {text:?}{hint}; `fathom list subjects` shows all, dir:PATH is any directory, \
         'fuse:COMMAND {{mnt}}' any FUSE daemon"
    )]
    Unknown {
        /// What was typed.
        text: String,
        /// `; did you mean …?`, or nothing.
        hint: String,
    },
    /// The name is known, what belongs to it is wrong or means nothing to this subject.
    #[error("{0}")]
    Refused(String),
    /// The subject is known, but does not offer what a command needs.
    #[error("{subject} is known, but `fathom {command}` needs {needs}")]
    NotOffered {
        /// What was typed.
        subject: String,
        /// Who asks.
        command: &'static str,
        /// What is missing.
        needs: String,
    },
    /// No profile is called like that.
    #[error("unknown profile {name:?}{hint}; `fathom list profiles` shows all, a file is fine too")]
    UnknownProfile {
        /// What was typed.
        name: String,
        /// `; did you mean …?`, or nothing.
        hint: String,
    },
    /// A file with a profile or a recipe.
    #[error("{file}: {message}", file = .file.display())]
    File {
        /// Where.
        file: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// It cannot be set up.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// The harness failed.
    #[error(transparent)]
    Fault(#[from] HarnessFault),
    /// The reference cannot be set up for it.
    #[error(transparent)]
    Reference(#[from] ConfigError),
}
