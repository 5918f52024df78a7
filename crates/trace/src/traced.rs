//! The result of a tracer, whichever it is.

pub use fathom_record::coverage::Ended;

use crate::sample::Samples;

/// Reads the status of `waitpid`.
pub(crate) fn ended(status: i32) -> Ended {
    if libc::WIFSIGNALED(status) {
        Ended::Signal(libc::WTERMSIG(status))
    } else {
        Ended::Exit(libc::WEXITSTATUS(status))
    }
}

/// The counts of a run.
#[derive(Debug, Default)]
pub struct Traced {
    /// All calls that could concern the watched file systems.
    pub samples: Samples,
    /// The name of the tracer.
    pub tracer: String,
    /// Limits of that tracer in this run: what it cannot see, and what happened on the way.
    pub limits: Vec<String>,
    /// The end of the command; `None` if there was none.
    pub ended: Option<Ended>,
    /// Calls that were made and could not be counted.
    pub lost: u64,
    /// Calls whose file system was inferred from the last directory that was known.
    pub guessed: u64,
}
