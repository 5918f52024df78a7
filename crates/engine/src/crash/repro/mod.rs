//! Reproducers that stand alone: without Fathom, with nothing but the file system itself.
//!
//! Each ends by asserting what diverged: exit code 1 where it is as it was found, 0 where it is as it
//! was promised. A program for a library formats a device in memory, executes the operations, stops
//! writing where the power failed, mounts again and compares what is there with the states that were
//! promised; findings that need more than one power failure, or writes that arrive out of order, have
//! no such program (`fathom replay` shows them). A script for a kernel file system judges the recorded
//! disk.

mod kernel;
pub(super) mod listing;
mod littlefs;
mod xfstests;

use fathom_block::CrashPoint;
use fathom_core::Op;

use super::finding::CrashRecord;
use super::script::{Event, Script};

pub(super) use kernel::SCRIPT as KERNEL_SCRIPT;

/// What a reproducer is made from.
struct Case<'a> {
    record: &'a CrashRecord,
    ops: &'a [&'a Op],
    point: &'a CrashPoint,
    /// The legal states, object by object.
    legal: &'a [Vec<String>],
    /// What was found, object by object, if that is known.
    found: Option<&'a [String]>,
}

/// Files to write beside a finding: path and contents.
pub(super) fn files(
    record: &CrashRecord,
    minimal: &Script,
    legal: &[Vec<String>],
    found: Option<&[String]>,
) -> Vec<(&'static str, String)> {
    let Some((Event::PowerCut(point), before)) = minimal.0.split_last() else {
        return Vec::new();
    };
    let ops: Option<Vec<&Op>> = before
        .iter()
        .map(|event| match event {
            Event::Op(op) => Some(op),
            Event::PowerCut(_) => None,
        })
        .collect();
    let Some(ops) = ops else { return Vec::new() };
    let case = Case { record, ops: &ops, point, legal, found };
    let for_kernels = kernel::files(&case);
    if for_kernels.is_empty() { littlefs::files(&case) } else { for_kernels }
}

fn comment(mark: &str, text: &str) -> String {
    text.lines().map(|line| format!("{mark}{line}").trim_end().to_owned() + "\n").collect()
}
