//! A trace as one C file: C11, Linux, no library but libc.
//!
//! The program executes every step by the same system call, prints `n call(arguments) = result` and
//! compares with the trace. Answers are compared as text in the form of [`Outcome`]'s `Display`, so
//! that a difference is readable. Only the helpers that the steps need are part of the program.
//!
//! Exit codes: 0 every outcome as in the trace, 1 some differ, 2 the program could not do its work.

mod literal;
mod runtime;
mod statement;

use std::fmt::Write as _;

use super::{Assert, ExportError, ascii, check_names, origin};
use crate::op::Op;
use crate::outcome::{Outcome, Payload};
use crate::trace::{Step, Trace};
use runtime::Runtime;

/// Steps per C function: compilers take long over very long functions.
const STEPS_PER_FUNCTION: usize = 500;

/// The mask that subjects start with.
const UMASK: &str = "0022";

/// The program.
///
/// # Errors
/// If a name cannot be handed to the kernel.
pub fn program(trace: &Trace, assert: Assert) -> Result<String, ExportError> {
    check_names(trace)?;
    let mut runtime = Runtime::default();
    let mut body = String::new();
    let mut calls = String::new();
    for (number, steps) in trace.steps.chunks(STEPS_PER_FUNCTION).enumerate() {
        let _ = write!(body, "\nstatic void steps_{number}(void)\n{{\n");
        for step in steps {
            body.push_str(&step_text(step, assert, &mut runtime));
        }
        body.push_str("}\n");
        let _ = writeln!(calls, "    steps_{number}();");
    }
    Ok([&comment(trace, assert), INCLUDES, &runtime.text(), &body, &main(&runtime, &calls)]
        .concat())
}

fn comment(trace: &Trace, assert: Assert) -> String {
    let compared = match assert {
        Assert::Recorded => "what the subject answered when the trace was recorded",
        Assert::Expected => "what the reference answers",
    };
    format!(
        "// {}
//
// Build: cc -Wall -Wextra -o repro repro.c
// Run:   ./repro [DIRECTORY]
//
// DIRECTORY is an empty directory (mode 0755) of the file system to test; without it the program
// makes one in $TMPDIR. Every step is compared with
// {compared}.
// Exit code: 0 all alike, 1 some DIFFERENT, 2 the program itself failed.
",
        origin(trace)
    )
}

const INCLUDES: &str = "
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

// Newer than some C libraries; these numbers are the same on every architecture but alpha.
#ifndef SYS_faccessat2
#define SYS_faccessat2 439
#endif
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef FALLOC_FL_WRITE_ZEROES
#define FALLOC_FL_WRITE_ZEROES 0x80
#endif
#ifndef XATTR_LIST_MAX
#define XATTR_LIST_MAX 65536
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
";

fn step_text(step: &Step, assert: Assert, runtime: &mut Runtime) -> String {
    let mut text = String::new();
    if let Some(expected) = &step.expected {
        let _ =
            writeln!(text, "    // The subject answered:   {}", remark(&step.op, &step.outcome));
        let _ = writeln!(text, "    // The reference expected: {}", remark(&step.op, expected));
    }
    let call = literal::string(step.op.to_string().as_bytes());
    let answer = literal::string(answer(&step.op, assert.outcome(step)).as_bytes());
    let statement = statement::of(&step.op, runtime);
    let _ = writeln!(text, "    begin({}, {call});", step.n);
    let _ = writeln!(text, "    end({statement}, {answer});");
    text
}

/// An outcome for a line comment, which must not end in a backslash.
fn remark(op: &Op, outcome: &Outcome) -> String {
    ascii(&answer(op, outcome)).replace('?', "\\x3f") + "."
}

/// What the program prints for an outcome; names in ASCII, since C does not know Unicode.
fn answer(op: &Op, outcome: &Outcome) -> String {
    let value = match outcome.result {
        Ok(value) => value.to_string(),
        Err(errno) => errno.to_string(),
    };
    let payload = match (&outcome.payload, op) {
        // Asked for a size, nothing was copied.
        (_, Op::Getxattr { len: 0, .. } | Op::Listxattr { len: 0, .. }) => String::new(),
        // Shown, not compared: see runtime/statfs.c.
        (Payload::Statfs(_), _) => String::new(),
        (Payload::Entries(entries), _) => {
            let entry = |(name, kind): &(crate::FsBytes, char)| {
                format!(" {kind}:{}", literal::name(name.as_bytes()))
            };
            " entries".to_owned() + &entries.iter().map(entry).collect::<String>()
        }
        (Payload::Names(names), _) => {
            let name = |name: &crate::FsBytes| format!(" {}", literal::name(name.as_bytes()));
            " names".to_owned() + &names.iter().map(name).collect::<String>()
        }
        (payload, _) => Outcome::with(payload.clone()).to_string()[1..].to_owned(),
    };
    value + &payload
}

fn main(runtime: &Runtime, calls: &str) -> String {
    let slots = if runtime.has_slots() { "    no_open_files();\n" } else { "" };
    format!(
        "
int main(int argc, char **argv)
{{
    char fresh[PATH_MAX];
    if (argc > 2) {{
        fprintf(stderr, \"usage: %s [DIRECTORY]\\n\", argv[0]);
        return 2;
    }}
    if (argc < 2) {{
        const char *parent = getenv(\"TMPDIR\");
        snprintf(fresh, sizeof fresh, \"%s/fathom-XXXXXX\", parent ? parent : \"/tmp\");
        if (!mkdtemp(fresh) || chmod(fresh, 0755) != 0)
            harness_failed(fresh);
        printf(\"in %s\\n\", fresh);
    }}
    directory = realpath(argc < 2 ? fresh : argv[1], NULL);
    if (!directory || chdir(directory) != 0)
        harness_failed(argc < 2 ? fresh : argv[1]);
    signal(SIGPIPE, SIG_IGN); // a FIFO without readers shall answer EPIPE
    umask({UMASK});
{slots}{calls}    printf(\"%lu of %u steps are DIFFERENT\\n\", steps_different, {steps}u);
    return steps_different ? 1 : 0;
}}
",
        steps = runtime.steps(),
    )
}
