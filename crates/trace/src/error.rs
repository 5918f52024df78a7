//! Errors of tracing.

use std::io;
use std::path::PathBuf;

/// An error of the tracer itself, never of the program that is traced.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A system call of the tracer failed.
    #[error("{doing}: {source}")]
    System {
        /// The purpose of the call.
        doing: String,
        /// The reason from the operating system.
        source: io::Error,
    },
    /// The mount to be watched cannot be used.
    #[error("cannot watch {}: {reason}", path.display())]
    Target {
        /// The path that was asked for.
        path: PathBuf,
        /// The reason why it cannot be watched.
        reason: String,
    },
    /// The command could not be executed.
    #[error("cannot execute {command}: {source}")]
    Command {
        /// The command that was asked for.
        command: String,
        /// The reason from the operating system.
        source: io::Error,
    },
    /// The tracer in the kernel cannot be used here.
    #[error("the tracer in the kernel cannot be used: {0}")]
    Bpf(String),
    /// The tracer in the kernel works, but it does not find the file systems of paths here.
    #[error("the tracer in the kernel cannot be used as it is: {0}")]
    Unproven(String),
    /// A log cannot be understood.
    #[error("{}: line {line}: {reason}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: u64,
        /// The reason why the line cannot be understood.
        reason: String,
    },
    /// A data file of ours or of the user is wrong.
    #[error("{0}")]
    Data(String),
}

impl TraceError {
    /// The present `errno` with what was tried.
    pub(crate) fn last(doing: impl Into<String>) -> TraceError {
        TraceError::System { doing: doing.into(), source: io::Error::last_os_error() }
    }
}

/// A result of this crate.
pub type Result<T> = std::result::Result<T, TraceError>;
