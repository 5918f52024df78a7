//! A trace as one C file: C11, Linux, no library but libc.
//!
//! The program executes every step by the same system call, prints `n call(arguments) = result` and
//! compares with the trace. Answers are compared as text in the form of [`Outcome`]'s `Display`, so
//! that a difference is readable. Only the helpers that the steps need are part of the program.
//!
//! The program of a finding ends by checking what its subject got wrong.

mod ending;
mod literal;
mod runtime;
mod statement;

use std::fmt::Write as _;

use super::{
    Assert, Compared, ExportError, answer, ascii, check_names, exit_codes, has_ending, origin,
};
use crate::op::Op;
use crate::outcome::Outcome;
use crate::trace::{Step, Trace};
use runtime::{Helper, Runtime};

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
            body.push_str(&step_text(step, Compared::of(step, trace, assert), &mut runtime));
        }
        body.push_str("}\n");
        let _ = writeln!(calls, "    steps_{number}();");
    }
    if has_ending(trace, assert) {
        let ending = ending::of(&trace.header.claims, &mut runtime);
        calls.push_str(if ending.is_empty() { "" } else { "    check_the_end();\n" });
        body.push_str(&ending);
    }
    let watched = super::watched(trace, assert);
    if let Some((tries, _)) = watched {
        runtime.need(if tries > 1 { Helper::Try } else { Helper::Watch });
    }
    let main = main(&runtime, &calls, watched);
    Ok([&comment(trace, assert), INCLUDES, &runtime.text(), &body, &main].concat())
}

fn comment(trace: &Trace, assert: Assert) -> String {
    let mut text = format!(
        "// {}
//
// Build: cc -Wall -Wextra -o repro repro.c
// Run:   ./repro [DIRECTORY]
//
// DIRECTORY is an empty directory (mode 0755) of the file system to test; without it the program
// makes one in $TMPDIR.
",
        origin(trace)
    );
    for line in exit_codes(trace, assert) {
        let _ = writeln!(text, "// {}", line.replace('?', "\\x3f"));
    }
    text
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
#include <sys/wait.h>
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

fn step_text(step: &Step, compared: Compared<'_>, runtime: &mut Runtime) -> String {
    let mut text = String::new();
    if let Some(expected) = &step.expected {
        let _ =
            writeln!(text, "    // The subject answered:   {}", remark(&step.op, &step.outcome));
        let _ = writeln!(text, "    // The reference expected: {}", remark(&step.op, expected));
    }
    let call = literal::string(step.op.to_string().as_bytes());
    let literal = |outcome| literal::string(answer(&step.op, outcome).as_bytes());
    let statement = statement::of(&step.op, runtime);
    let _ = writeln!(text, "    begin({}, {call});", step.n);
    let _ = match compared {
        Compared::Not => {
            text.push_str("    // Not compared: correct file systems differ here.\n");
            writeln!(text, "    end({statement}, NULL);")
        }
        Compared::With(outcome) => writeln!(text, "    end({statement}, {});", literal(outcome)),
        Compared::Claim(outcome) => {
            runtime.need(Helper::AnswerClaim);
            writeln!(text, "    answer_must_be({statement}, {});", literal(outcome))
        }
    };
    text
}

/// An outcome for a line comment, which must not end in a backslash.
fn remark(op: &Op, outcome: &Outcome) -> String {
    ascii(&answer(op, outcome)).replace('?', "\\x3f") + "."
}

fn main(runtime: &Runtime, calls: &str, watched: Option<(u32, u64)>) -> String {
    let slots = if runtime.has(Helper::Slots) { "    no_open_files();\n" } else { "" };
    let space = if runtime.has(Helper::ProbeSpace) { "    remember_space();\n" } else { "" };
    let log = if runtime.has(Helper::ProbeLog) { "    remember_log();\n" } else { "" };
    let remount = if runtime.has(Helper::Remount) { NEEDS_REMOUNT } else { "" };
    let check = if runtime.has(Helper::ProbeChecker) { NEEDS_CHECK } else { "" };
    let watch = watched.map_or(String::new(), |(tries, seconds)| match tries {
        0 | 1 => format!("    watch_over(1, {seconds}u);\n"),
        _ => format!("    own_directory(watch_over({tries}u, {seconds}u));\n"),
    });
    let summary = if runtime.has(Helper::Claims) { SUMMARY_OF_CLAIMS } else { SUMMARY_OF_STEPS };
    format!(
        "
int main(int argc, char **argv)
{{
    char fresh[PATH_MAX];
    if (argc > 2) {{
        fprintf(stderr, \"usage: %s [DIRECTORY]\\n\", argv[0]);
        return 2;
    }}
{remount}{check}    if (argc < 2) {{
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
{watch}{slots}{space}{log}{calls}    printf(\"%lu of %u steps are DIFFERENT\\n\", steps_different, {steps}u);
{summary}}}
",
        steps = runtime.steps(),
    )
}

const NEEDS_REMOUNT: &str = "    if (!getenv(\"REMOUNT\")) {
        fputs(\"a step remounts the file system: set REMOUNT to a command that does it\\n\", stderr);
        return 2;
    }
";

const NEEDS_CHECK: &str = "    if (!getenv(\"CHECK\")) {
        fputs(\"the disk is checked in the end: set CHECK to a command that unmounts, checks and mounts\\n\",
              stderr);
        return 2;
    }
";

const SUMMARY_OF_STEPS: &str = "    return steps_different ? 1 : 0;\n";

const SUMMARY_OF_CLAIMS: &str = "    if (steps_different) {
        puts(\"The way to the end was another one: nothing is proved.\");
        return 2;
    }
    printf(\"%lu of %lu claims are WRONG: %s\\n\", claims_wrong, claims,
           claims_wrong ? \"the bug is there\" : \"the bug is not there\");
    return claims_wrong ? 1 : 0;
";
