//! Traces as programs that stand alone: what a file-system developer runs to see a finding.
//!
//! [`c`] is exact: the same system calls, every outcome compared. [`shell`] is for reading: one
//! command per step, with common tools, where those can express it.

pub mod c;
pub mod shell;

use crate::op::{Op, Target};
use crate::outcome::Outcome;
use crate::trace::{Header, Step, Trace};

/// Which outcomes an exported program compares with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Assert {
    /// What the subject answered: the program succeeds where the finding is reproduced.
    #[default]
    Recorded,
    /// What the reference answered: the program succeeds where the bug is fixed.
    Expected,
}

impl Assert {
    /// The outcome to compare with.
    pub fn outcome(self, step: &Step) -> &Outcome {
        match self {
            Assert::Recorded => &step.outcome,
            Assert::Expected => step.expected.as_ref().unwrap_or(&step.outcome),
        }
    }
}

/// Why a trace cannot become a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// No program can hand such a name to the kernel.
    #[error("step {step}: {op} has a name with a NUL byte")]
    Nul {
        /// Its number.
        step: u64,
        /// Its name.
        op: &'static str,
    },
}

/// Refuses names that end early on their way to the kernel.
fn check_names(trace: &Trace) -> Result<(), ExportError> {
    match trace.steps.iter().find(|step| names(&step.op).iter().any(|name| name.contains(&0))) {
        Some(step) => Err(ExportError::Nul { step: step.n, op: step.op.name() }),
        None => Ok(()),
    }
}

/// Every byte string of an operation that goes to the kernel.
fn names(op: &Op) -> Vec<&[u8]> {
    use crate::operand::Operand;

    let mut names = Vec::new();
    op.operands(|operand| {
        if let Operand::Path(name, ..)
        | Operand::Target(Target::Path(name) | Target::Link(name), ..)
        | Operand::Text(name, _)
        | Operand::XattrName(name, _) = operand
        {
            names.push(name.as_bytes());
        }
    });
    names
}

/// Where a program comes from, for its first comment.
fn origin(trace: &Trace) -> String {
    let Header { program, subject, reference, seed, .. } = &trace.header;
    let seed = seed.map_or(String::new(), |seed| format!(", seed {seed}"));
    let steps = trace.steps.len();
    ascii(&format!(
        "Written by {program}: {steps} steps on {subject}, compared with {reference}{seed}."
    ))
}

/// Text for one line of a comment: what is not printable ASCII is escaped.
fn ascii(text: &str) -> String {
    text.chars()
        .map(|c| {
            if c == ' ' || c.is_ascii_graphic() {
                c.to_string()
            } else {
                c.escape_default().to_string()
            }
        })
        .collect()
}
