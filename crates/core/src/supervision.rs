//! What a campaign leaves for the process that supervises it: what is being done, and the operations
//! that led there, kept where they outlive the process that executes them.
//!
//! The engine only knows these traits. In the program they are memory that two processes share; in a
//! test nobody supervises.

use std::fmt;
use std::sync::Arc;

/// What a thread that works on a subject is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// Nothing that could hang: the harness thinks.
    Idle,
    /// The subject is being made: formatted, mounted, started.
    SettingUp,
    /// An operation is being executed: the last one of the journal.
    Operation,
    /// What the subject shows is being looked at.
    Looking,
    /// The subject is being made empty, or brought back to an earlier state.
    Restoring,
    /// The state of the subject is being saved.
    Saving,
    /// The file system's checker is running.
    Checking,
    /// A crash image is being examined: mounted, read and used.
    Examining,
    /// The subject is being unmounted and taken down.
    Closing,
}

impl Activity {
    /// Every activity; the place of each is its number.
    pub const ALL: [Activity; 9] = [
        Activity::Idle,
        Activity::SettingUp,
        Activity::Operation,
        Activity::Looking,
        Activity::Restoring,
        Activity::Saving,
        Activity::Checking,
        Activity::Examining,
        Activity::Closing,
    ];

    /// In words that go after "while it was".
    pub fn words(self) -> &'static str {
        match self {
            Activity::Idle => "idle",
            Activity::SettingUp => "being set up",
            Activity::Operation => "executing an operation",
            Activity::Looking => "being looked at",
            Activity::Restoring => "being brought back to an earlier state",
            Activity::Saving => "being saved",
            Activity::Checking => "being checked by its own checker",
            Activity::Examining => "being examined after a power failure",
            Activity::Closing => "being unmounted",
        }
    }
}

impl fmt::Display for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words())
    }
}

/// The journal of one thread: records of what it has executed since the subject was empty. A record
/// is written before what it says is executed. One thread writes.
pub trait Journal: Send + Sync {
    /// The subject is empty: nothing has been executed.
    fn clear(&self);

    /// Keeps only the first `records`: the subject went back.
    fn truncate(&self, records: usize);

    /// Adds a record.
    fn append(&self, record: &[u8]);

    /// The calling thread begins something that may not return.
    fn begin(&self, activity: Activity);

    /// What began has ended.
    fn end(&self);
}

/// Whoever supervises a campaign.
pub trait Supervisor: Send + Sync {
    /// A journal for the calling thread, for the subject of this number.
    fn journal(&self, subject: usize) -> Arc<dyn Journal>;

    /// Whether the campaign should end at the next opportunity.
    fn wants_the_end(&self) -> bool;
}

impl fmt::Debug for dyn Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Supervisor")
    }
}

/// A supervisor, if there is one.
pub type Supervision = Option<Arc<dyn Supervisor>>;
