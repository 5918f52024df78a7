//! The seam to what executes operations. What a campaign needs beyond it is [`crate::Testbed`].

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::op::{Caller, Op};
use crate::outcome::Outcome;
use crate::tree::Tree;

/// What a subject can do beyond the calls every file system has. A workload generator only uses
/// what is here; everything else (an xattr that is not supported, say) is an errno to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// [`Op::Identity`]: operations can run as different users.
    Identity,
    /// [`Op::Remount`].
    Remount,
    /// Device nodes can be made.
    Devices,
    /// [`Op::Server`].
    Server,
}

/// The harness itself failed: never a finding about the subject.
#[derive(Debug, thiserror::Error)]
#[error("{context}: {message}")]
pub struct HarnessFault {
    /// What was being done.
    pub context: String,
    /// What went wrong, and what to do about it if that is known.
    pub message: String,
}

impl HarnessFault {
    /// A fault while doing `context`.
    pub fn new(context: impl Into<String>, message: impl ToString) -> HarnessFault {
        HarnessFault { context: context.into(), message: message.to_string() }
    }
}

/// Something that executes operations and can be looked at: a directory, a mounted kernel file
/// system, a library, the model. Whatever a file system does wrong is in the [`Outcome`] or the
/// [`Tree`]; an `Err` is the harness's own failure.
pub trait Subject {
    /// How the subject is named on the command line.
    fn name(&self) -> String;

    /// What it can do.
    fn capabilities(&self) -> BTreeSet<Capability>;

    /// Executes one operation of caller 0.
    ///
    /// # Errors
    /// Only if the harness could not even ask the file system.
    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault>;

    /// Executes one operation of a caller. A subject with one process refuses all but caller 0.
    ///
    /// # Errors
    /// If there is no such caller, or the harness could not even ask the file system.
    fn apply_as(&mut self, caller: Caller, op: &Op) -> Result<Outcome, HarnessFault> {
        match caller {
            0 => self.apply(op),
            _ => Err(HarnessFault::new(
                format!("executing {} as caller {caller}", op.name()),
                format!("{} has one caller, number 0", self.name()),
            )),
        }
    }

    /// Walks the whole visible state.
    ///
    /// # Errors
    /// Only if the harness could not even ask the file system.
    fn observe(&mut self) -> Result<Tree, HarnessFault>;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers everything with 7.
    struct Alone;

    impl Subject for Alone {
        fn name(&self) -> String {
            "alone".to_owned()
        }

        fn capabilities(&self) -> BTreeSet<Capability> {
            BTreeSet::new()
        }

        fn apply(&mut self, _op: &Op) -> Result<Outcome, HarnessFault> {
            Ok(Outcome::ok(7))
        }

        fn observe(&mut self) -> Result<Tree, HarnessFault> {
            Ok(Tree::default())
        }
    }

    #[test]
    fn a_subject_with_one_process_refuses_other_callers() {
        assert_eq!(Alone.apply_as(0, &Op::Sync).unwrap(), Outcome::ok(7));
        assert_eq!(
            Alone.apply_as(2, &Op::Sync).unwrap_err().to_string(),
            "executing sync as caller 2: alone has one caller, number 0"
        );
    }
}
