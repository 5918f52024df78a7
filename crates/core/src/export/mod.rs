//! Traces as programs that stand alone: what a file-system developer runs to see a finding.
//!
//! [`c`] is exact: the same system calls, every outcome compared. [`shell`] is for reading: one
//! command per step, with common tools where those can express it, by a helper in Python elsewhere.
//!
//! The program of a finding asserts what the reference expects ([`Assert::Expected`]): it ends by
//! checking the [claims](crate::Claim) of the trace, and its exit code is 1 where the bug is, 0 where
//! it is not, 2 where that cannot be told.

pub mod c;
pub mod shell;

use crate::bytes::FsBytes;
use crate::claim::{Probe, ascii_name};
use crate::op::{Op, Target};
use crate::outcome::{Outcome, Payload};
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

/// Whether a program ends by checking claims.
fn has_ending(trace: &Trace, assert: Assert) -> bool {
    assert == Assert::Expected && !trace.header.claims.is_empty()
}

/// What the answer of a step is compared with.
#[derive(Clone, Copy)]
enum Compared<'a> {
    /// Nothing: the reference answered something else and that was accepted.
    Not,
    /// An answer on the way to what the program is about.
    With(&'a Outcome),
    /// The answer that the program is about.
    Claim(&'a Outcome),
}

impl<'a> Compared<'a> {
    fn of(step: &'a Step, trace: &Trace, assert: Assert) -> Compared<'a> {
        let outcome = assert.outcome(step);
        if !has_ending(trace, assert) {
            return Compared::With(outcome);
        }
        let is_last = trace.steps.last().is_some_and(|last| last.n == step.n);
        let is_claim = trace
            .header
            .claims
            .iter()
            .any(|claim| matches!(claim.probe, Probe::Answer | Probe::Always { .. }));
        match (&step.expected, is_last && is_claim) {
            (_, true) => Compared::Claim(outcome),
            (Some(_), false) => Compared::Not,
            (None, false) => Compared::With(outcome),
        }
    }
}

/// How a program must be watched: tries and seconds for each, if it must be.
fn watched(trace: &Trace, assert: Assert) -> Option<(u32, u64)> {
    /// A program that does not end within a minute does not end.
    const SECONDS: u64 = 60;
    if !has_ending(trace, assert) {
        return None;
    }
    trace.header.claims.iter().find_map(|claim| match claim.probe {
        Probe::Returns { seconds } => Some((1, seconds)),
        Probe::Always { tries } => Some((tries, SECONDS)),
        _ => None,
    })
}

/// The command of the checker that a program ends with, if it does.
fn checker(trace: &Trace, assert: Assert) -> Option<&str> {
    if !has_ending(trace, assert) {
        return None;
    }
    trace.header.claims.iter().find_map(|claim| match &claim.probe {
        Probe::Checker { command } => Some(command.as_str()),
        _ => None,
    })
}

/// What a program checks and how it ends, for its first comment.
fn exit_codes(trace: &Trace, assert: Assert) -> Vec<String> {
    let mut lines = Vec::new();
    if trace.steps.iter().any(|step| step.op == Op::Remount) {
        lines
            .push("REMOUNT is a command that unmounts the file system and mounts it again.".into());
    }
    if let Some(command) = checker(trace, assert) {
        lines.push(format!(
            "CHECK is a command that unmounts the file system, checks its disk (it was: {}),",
            ascii(command)
        ));
        lines.push("mounts it again, and exits as the checker did: 0 if all is well.".to_owned());
    }
    if has_ending(trace, assert)
        && trace.header.claims.iter().any(|claim| claim.probe == Probe::KernelLog)
    {
        lines.push("KMSG is the log of the kernel, if it is not /dev/kmsg.".to_owned());
    }
    if !has_ending(trace, assert) {
        let compared = match assert {
            Assert::Recorded => "what the subject answered when the trace was recorded",
            Assert::Expected => "what the reference answers",
        };
        lines.push(format!("Every step is compared with {compared}."));
        lines.push(
            "Exit code: 0 all alike, 1 some DIFFERENT, 2 the program itself failed.".to_owned(),
        );
        return lines;
    }
    lines.push("In the end this is checked:".to_owned());
    for claim in &trace.header.claims {
        let (expected, found) = (ascii(&claim.expected), ascii(&claim.found));
        lines.push(format!(
            "  {}: must be {expected}; was {found}.",
            ascii(&claim.probe.to_string())
        ));
    }
    lines.push("Exit code: 0 the bug is not there, 1 it is, 2 it cannot be told here.".to_owned());
    lines
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

/// What a program prints for an outcome; names in ASCII, since C does not know Unicode.
fn answer(op: &Op, outcome: &Outcome) -> String {
    let value = match outcome.result {
        Ok(value) => value.to_string(),
        Err(errno) => errno.to_string(),
    };
    let payload = match (&outcome.payload, op) {
        // Asked for a size, nothing was copied.
        (_, Op::Getxattr { len: 0, .. } | Op::Listxattr { len: 0, .. }) => String::new(),
        // Shown, not compared: the counts depend on the device and on its other users.
        (Payload::Statfs(_), _) => String::new(),
        (Payload::Entries(entries), _) => {
            let entry =
                |(name, kind): &(FsBytes, char)| format!(" {kind}:{}", ascii_name(name.as_bytes()));
            " entries".to_owned() + &entries.iter().map(entry).collect::<String>()
        }
        (Payload::Names(names), _) => {
            let name = |name: &FsBytes| format!(" {}", ascii_name(name.as_bytes()));
            " names".to_owned() + &names.iter().map(name).collect::<String>()
        }
        (payload, _) => Outcome::with(payload.clone()).to_string()[1..].to_owned(),
    };
    value + &payload
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
