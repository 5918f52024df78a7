//! What a judge says of a step.

use serde::{Deserialize, Serialize};

use crate::outcome::Outcome;
use crate::tree::Difference;

/// What is wrong. Every finding has one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "class")]
pub enum Violation {
    /// The subject answered something else than the reference.
    Outcome {
        /// The reference's answer.
        expected: Outcome,
        /// The subject's answer.
        found: Outcome,
    },
    /// The answers agree, the trees do not.
    Tree {
        /// What differs.
        differences: Vec<Difference>,
    },
    /// What is shown is old: the file system itself knows better, or shows it a little later.
    Stale {
        /// What differed at first.
        differences: Vec<Difference>,
    },
    /// The same operations gave different answers in two runs of the same subject.
    NonDeterministic {
        /// First answer.
        first: Outcome,
        /// Second answer.
        second: Outcome,
    },
    /// The file system's own checker is not content with the unmounted disk.
    Checker {
        /// The command, as it can be typed.
        command: String,
        /// Its exit code; `None` if a signal ended it.
        code: Option<i32>,
        /// What it printed.
        output: String,
    },
    /// The kernel complained about the file system.
    KernelLog {
        /// What it logged.
        lines: Vec<String>,
    },
    /// Clients of a server got a lock that another one holds, or lost one.
    Locks {
        /// What was tried, and what was answered.
        lines: Vec<String>,
    },
    /// A call did not return in time.
    Hang {
        /// How long it was waited for.
        seconds: u64,
    },
    /// The process that executed the operation died of it.
    Died {
        /// The signal by its name, or the exit code.
        how: String,
    },
    /// The program that serves the file system ended.
    ServerDied {
        /// How, and the last lines that it printed.
        last_words: String,
    },
    /// The kernel oopsed: it killed the thread that executed the operation, or logged a bug of its
    /// own.
    Oops {
        /// What it logged; empty if its log cannot be read.
        lines: Vec<String>,
    },
    /// The kernel of a guest reported a fault of its own, and the guest ended with it.
    KernelReport {
        /// What kind of report it is.
        kind: ReportKind,
        /// The report in one line, without addresses: what makes two of them the same.
        title: String,
        /// The functions that led to it, the innermost first.
        stack: Vec<String>,
        /// What the kernel printed.
        lines: Vec<String>,
    },
    /// The process that executed the operation used up the memory that it was given.
    OutOfMemory {
        /// What it was given.
        mib: u64,
    },
}

impl Violation {
    /// The class by name.
    pub fn class(&self) -> &'static str {
        match self {
            Violation::Outcome { .. } => "outcome",
            Violation::Tree { .. } => "tree",
            Violation::Stale { .. } => "stale",
            Violation::NonDeterministic { .. } => "non_deterministic",
            Violation::Checker { .. } => "checker",
            Violation::KernelLog { .. } => "kernel_log",
            Violation::Locks { .. } => "locks",
            Violation::Hang { .. } => "hang",
            Violation::Died { .. } => "died",
            Violation::ServerDied { .. } => "server_died",
            Violation::Oops { .. } => "oops",
            Violation::KernelReport { kind, .. } => kind.class(),
            Violation::OutOfMemory { .. } => "out_of_memory",
        }
    }

    /// Whether the process that executed the last operation could not go on: then nothing can be
    /// run again in it, and its answer is not known.
    pub fn is_death(&self) -> bool {
        matches!(
            self,
            Violation::Died { .. }
                | Violation::Oops { .. }
                | Violation::KernelReport { .. }
                | Violation::OutOfMemory { .. }
        )
    }
}

/// The kinds of reports with which a kernel tells that something is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportKind {
    /// It gave up.
    Panic,
    /// It accessed memory that is not there.
    Oops,
    /// One of its assertions does not hold (`BUG_ON`).
    Bug,
    /// One of its expectations does not hold (`WARN_ON`).
    Warning,
    /// It accessed memory that is not its own.
    Kasan,
    /// It did something that C does not define.
    Ubsan,
    /// Its locks can wait for each other for ever.
    Lockdep,
    /// A task waits and never runs.
    HungTask,
}

impl ReportKind {
    /// The class of findings.
    pub fn class(self) -> &'static str {
        match self {
            ReportKind::Panic => "kernel_panic",
            ReportKind::Oops => "kernel_oops",
            ReportKind::Bug => "kernel_bug",
            ReportKind::Warning => "kernel_warning",
            ReportKind::Kasan => "kasan",
            ReportKind::Ubsan => "ubsan",
            ReportKind::Lockdep => "lockdep",
            ReportKind::HungTask => "hung_task",
        }
    }
}

/// The four possible judgements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As expected.
    Ok,
    /// The subject did something wrong.
    Violation(Violation),
    /// It cannot be told (for example: the reference knows that the call would block).
    Inconclusive(String),
    /// The harness failed; says nothing about the subject.
    HarnessFault(String),
}
