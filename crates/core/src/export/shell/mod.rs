//! A trace as a bash script for people: one command per step, with the tools that everybody knows.
//!
//! Only whether a call succeeds is compared; data, attributes and listings are not. A step that
//! tools cannot express is left out with a comment, and the head of the script counts those: the
//! [C program](super::c) is exact.

mod command;

use std::fmt::Write as _;

use super::{Assert, ExportError, ascii, check_names, origin};
use crate::trace::{Step, Trace};
use command::Script;

const RUNTIME: &str = include_str!("runtime.sh");

/// The script.
///
/// # Errors
/// If a name cannot be handed to the kernel.
pub fn script(trace: &Trace, assert: Assert) -> Result<String, ExportError> {
    check_names(trace)?;
    let mut script = Script::default();
    let mut exact = 0;
    let mut body = String::new();
    for step in &trace.steps {
        if let Some(expected) = &step.expected {
            let (found, expected) = (step.outcome.to_string(), expected.to_string());
            let _ = writeln!(body, "# The subject answered:   {}", ascii(&found));
            let _ = writeln!(body, "# The reference expected: {}", ascii(&expected));
        }
        let command = script.command(&step.op, step.outcome.result.is_ok());
        exact += usize::from(command.is_some());
        body.push_str(&line(step, assert, command));
    }
    let attr = if body.contains("fattr ") || body.contains("set_xattr ") { NEEDS_ATTR } else { "" };
    Ok(format!("{}{attr}{RUNTIME}{body}{TAIL}", head(trace, exact)))
}

fn line(step: &Step, assert: Assert, command: Option<String>) -> String {
    let (n, outcome) = (step.n, assert.outcome(step));
    let call = step.op.to_string();
    match command {
        Some(command) => {
            let class = if outcome.result.is_ok() { "ok" } else { "failed" };
            format!("step {n} {class} {} {command}\n", command::quote(call.as_bytes()))
        }
        None => {
            let outcome = outcome.to_string();
            format!(
                "# step {n} not expressible in shell: {} = {}; see the C program\n",
                ascii(&call),
                ascii(&outcome)
            )
        }
    }
}

fn head(trace: &Trace, exact: usize) -> String {
    format!(
        "#!/bin/bash
# {}
#
# {exact} of {} steps are exact; the others are left out, and what comes after them may answer
# differently for that reason. The C program of the same trace has all steps.
#
# Run: bash repro.sh [DIRECTORY]   (an empty directory of the file system to test)
# Exit code: 0 all steps ok or failed as in the trace, 1 some DIFFERENT, 2 the script itself failed.
# Needs coreutils and util-linux, for extended attributes the package attr.

",
        origin(trace),
        trace.steps.len(),
    )
}

const NEEDS_ATTR: &str = "
command -v setfattr >/dev/null || {
    echo 'setfattr and getfattr are missing: install the package attr' >&2
    exit 2
}
";

const TAIL: &str = "
echo \"$different steps are DIFFERENT\"
[ \"$different\" -eq 0 ]
";
