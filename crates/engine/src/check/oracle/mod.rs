//! Judges an answer and a tree against the reference.
//!
//! What two correct file systems may answer differently is left out of the comparison here and
//! nowhere else. It is data: the quirks of the profile in use.

mod signature;
pub(crate) mod space;
mod touched;

use fathom_core::flags::Whence;
use fathom_core::{Errno, Op, Outcome, PathState, Payload, Tree, Verdict, Violation};
use fathom_model::{Config, Model, Quirks, TreeOptions};

pub use signature::Signature;
pub use touched::touched;

/// Compares a subject with the reference.
#[derive(Clone, Debug)]
pub struct Oracle {
    quirks: Quirks,
    /// Whether the order of timestamps is compared.
    times: bool,
}

impl Oracle {
    /// A judge for subjects with the quirks of `reference`; `times` compares the order of
    /// timestamps too.
    pub fn new(reference: &Config, times: bool) -> Oracle {
        Oracle { quirks: reference.quirks.clone(), times }
    }

    /// The known harmless differences.
    pub(crate) fn quirks(&self) -> &Quirks {
        &self.quirks
    }

    /// Judges an answer.
    pub fn outcome(&self, op: &Op, expected: &Outcome, found: &Outcome) -> Verdict {
        if self.same_answer(op, expected, found) {
            return Verdict::Ok;
        }
        Verdict::Violation(Violation::Outcome { expected: expected.clone(), found: found.clone() })
    }

    /// Whether both answers mean the same.
    pub(crate) fn same_answer(&self, op: &Op, expected: &Outcome, found: &Outcome) -> bool {
        if expected == found {
            return true;
        }
        match op {
            Op::Lseek { whence: Whence::Data | Whence::Hole, .. } => {
                !self.quirks.segments_comparable
            }
            Op::Listxattr { len, .. } if self.quirks.listxattr_counts_hidden => {
                match (&expected.result, &found.result) {
                    (Ok(_), Err(Errno::ERANGE)) => *len > 0,
                    (Ok(want), Ok(have)) => *len == 0 && have >= want,
                    _ => false,
                }
            }
            Op::Statfs { .. } if !self.quirks.statfs_comparable => same_statfs(expected, found),
            _ => false,
        }
    }

    /// copy_file_range(2) may copy less than it was asked for. Where the profile allows that and the
    /// subject did so, this is what the reference has to do to stay in step.
    pub(crate) fn short_copy(&self, op: &Op, expected: &Outcome, found: &Outcome) -> Option<Op> {
        let (
            &Op::CopyFileRange { from, from_offset, to, to_offset, flags, .. },
            Ok(want),
            Ok(have),
        ) = (op, &expected.result, &found.result)
        else {
            return None;
        };
        let short = self.quirks.copy_may_be_short && 0 < *have && have < want;
        short.then_some(Op::CopyFileRange { from, from_offset, to, to_offset, len: *have, flags })
    }

    /// Judges the tree of the subject; `model` is the reference after the same operations.
    pub fn tree(&self, model: &Model, found: &Tree) -> Verdict {
        let mut differences = Vec::new();
        if model.digest() != found.digest() {
            differences = self.expected_tree(model).differences(found);
        }
        if self.times && differences.is_empty() {
            differences = self.expected_tree(model).time_differences(found);
        }
        if differences.is_empty() {
            return Verdict::Ok;
        }
        Verdict::Violation(Violation::Tree { differences })
    }

    /// Judges some paths of the subject; `model` is the reference after the same operations. Times
    /// are left to the comparison of whole trees.
    pub fn path_states(&self, model: &Model, found: &[PathState]) -> Verdict {
        let mut differences = Vec::new();
        for path_state in found {
            let options = TreeOptions::default();
            differences.extend(
                model.volume().path_state(&path_state.path, options).differences(path_state),
            );
        }
        if differences.is_empty() {
            return Verdict::Ok;
        }
        Verdict::Violation(Violation::Tree { differences })
    }

    /// The tree that the subject should show.
    pub(crate) fn expected_tree(&self, model: &Model) -> Tree {
        model.volume().tree(TreeOptions { segments: false, times: self.times })
    }
}

/// Counts of blocks and inodes are the file system's own business; the limit of names is not.
fn same_statfs(expected: &Outcome, found: &Outcome) -> bool {
    match (&expected.payload, &found.payload) {
        (Payload::Statfs(want), Payload::Statfs(have)) => {
            want.name_bytes_max == have.name_bytes_max
        }
        _ => false,
    }
}
