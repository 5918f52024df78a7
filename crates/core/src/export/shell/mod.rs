//! A trace as a bash script for people: one command per step, with the tools that everybody knows.
//!
//! What tools cannot express is done by a helper in Python, which is part of the script and then has
//! all open files. Of a command only its success is compared, of a step by the helper the whole
//! answer. The script of a finding ends by checking what its subject got wrong.

mod command;
mod ending;
mod python;

use std::fmt::Write as _;

use super::{Assert, Compared, ExportError, ascii, check_names, exit_codes, has_ending, origin};
use crate::op::Op;
use crate::trace::{Step, Trace};
use command::{Script, quote};

const RUNTIME: &str = include_str!("runtime.sh");
const SLOTS: &str = include_str!("slots.sh");
const HELPER: &str = include_str!("helper.sh");
const CLAIMS: &str = include_str!("claims.sh");
const WATCH: &str = include_str!("watch.sh");
const TRY: &str = include_str!("try.sh");
const CHECKER: &str = include_str!("checker.sh");

/// The script.
///
/// # Errors
/// If a name cannot be handed to the kernel.
pub fn script(trace: &Trace, assert: Assert) -> Result<String, ExportError> {
    check_names(trace)?;
    let steps = steps_by_tools(trace, assert);
    let ending = if has_ending(trace, assert) { ending::of(&trace.header.claims) } else { None };
    let ending_asks = ending.as_ref().is_some_and(|text| text.contains(" told "));
    let helper = steps.is_none() || ending_asks;
    let mut body = match steps {
        Some(steps) if !helper => steps,
        _ => steps_by_both(trace, assert),
    };
    if let Some(ending) = &ending {
        body.push_str("\n# ---- The end.\n");
        body.push_str(ending);
    }
    let mut text = head(trace, assert);
    text.push_str(&needs(trace, assert, &body));
    if helper {
        let program = super::c::program(trace, assert)?;
        text.push_str(&PYTHON_OR_C.replace("@PROGRAM@", &program));
        let helper = python::helper(&body_calls(trace, assert, &body));
        let _ = write!(text, "helper=$(cat <<'PYTHON'\n{helper}PYTHON\n)\n\n");
    }
    let watched = super::watched(trace, assert);
    if let Some((tries, seconds)) = watched {
        let _ = write!(text, "tries={tries} seconds={seconds}\n{WATCH}");
    }
    text.push_str(RUNTIME);
    text.push_str(if watched.is_some_and(|(tries, _)| tries > 1) { TRY } else { "" });
    text.push_str(if helper { HELPER } else { SLOTS });
    if has_ending(trace, assert) {
        text.push_str(CLAIMS);
        text.push_str(if super::checker(trace, assert).is_some() { CHECKER } else { "" });
    }
    if body.contains("told 'kernel_log(") {
        text.push_str("told 'remember_log()' >/dev/null\n");
    }
    if body.contains("told 'space(") {
        text.push_str("told 'remember_space()' >/dev/null\n");
    }
    text.push_str(&body);
    text.push_str(if has_ending(trace, assert) { SUMMARY_OF_CLAIMS } else { SUMMARY_OF_STEPS });
    Ok(text)
}

/// What the helper is asked for, also by the functions of the script.
fn body_calls(trace: &Trace, assert: Assert, body: &str) -> String {
    let remounts = trace.steps.iter().any(|step| step.op == Op::Remount)
        || super::checker(trace, assert).is_some();
    let more = if remounts { "leave() come_back()" } else { "" };
    let log = if body.contains("kernel_log(") { "remember_log()" } else { "" };
    let space = if body.contains("space(") { "remember_space()" } else { "" };
    format!("{body} {more} {log} {space}")
}

/// The steps, if tools can express each of them and their success is all that is asked for.
fn steps_by_tools(trace: &Trace, assert: Assert) -> Option<String> {
    let mut script = Script::default();
    let mut body = String::new();
    for step in &trace.steps {
        let compared = Compared::of(step, trace, assert);
        let command = script.command(&step.op, step.outcome.result.is_ok())?;
        if matches!(compared, Compared::Claim(_)) {
            return None;
        }
        body.push_str(&remarks(step));
        body.push_str(&by_tool(step, compared, &command));
    }
    Some(body)
}

/// The steps, where tools cannot by the helper.
fn steps_by_both(trace: &Trace, assert: Assert) -> String {
    let mut script = Script::with_helper();
    let mut body = String::new();
    for step in &trace.steps {
        let compared = Compared::of(step, trace, assert);
        let command = script.command(&step.op, step.outcome.result.is_ok());
        body.push_str(&remarks(step));
        body.push_str(&match (&step.op, command) {
            // Both have a mask and an identity of their own.
            (Op::Umask { .. } | Op::Identity { .. }, Some(command)) => {
                format!("{command}\n{}", by_helper(step, compared))
            }
            (_, Some(command)) if !matches!(compared, Compared::Claim(_)) => {
                by_tool(step, compared, &command)
            }
            _ => by_helper(step, compared),
        });
    }
    body
}

fn remarks(step: &Step) -> String {
    let Some(expected) = &step.expected else { return String::new() };
    let (found, expected) = (step.outcome.to_string(), expected.to_string());
    format!(
        "# The subject answered:   {}\n# The reference expected: {}\n",
        ascii(&found),
        ascii(&expected)
    )
}

fn by_tool(step: &Step, compared: Compared<'_>, command: &str) -> String {
    let class = match compared {
        Compared::Not => "any",
        Compared::With(outcome) | Compared::Claim(outcome) if outcome.result.is_ok() => "ok",
        Compared::With(_) | Compared::Claim(_) => "failed",
    };
    format!("step {} {class} {} {command}\n", step.n, call(step))
}

fn by_helper(step: &Step, compared: Compared<'_>) -> String {
    let expression = quote(python::expression(&step.op).as_bytes());
    let answer = |outcome| quote(super::answer(&step.op, outcome).as_bytes());
    match compared {
        Compared::Not => format!("exact {} '' {} {expression}\n", step.n, call(step)),
        Compared::With(outcome) => {
            format!("exact {} {} {} {expression}\n", step.n, answer(outcome), call(step))
        }
        Compared::Claim(outcome) => {
            let what = quote(format!("{} {}", step.n, step.op).as_bytes());
            format!("must_be {what} {} told {expression}\n", answer(outcome))
        }
    }
}

fn call(step: &Step) -> String {
    quote(step.op.to_string().as_bytes())
}

fn head(trace: &Trace, assert: Assert) -> String {
    let mut text = format!(
        "#!/bin/bash
# {}
#
# Run: bash repro.sh [DIRECTORY]   (an empty directory of the file system to test)
",
        origin(trace),
    );
    for line in exit_codes(trace, assert) {
        let _ = writeln!(text, "# {line}");
    }
    text.push('\n');
    text
}

/// What is looked for before anything is done.
fn needs(trace: &Trace, assert: Assert, body: &str) -> String {
    let attr = body.lines().any(|line| {
        line.starts_with("step ") && (line.contains("fattr ") || line.contains("set_xattr "))
    });
    let remount = trace.steps.iter().any(|step| step.op == Op::Remount);
    let check = super::checker(trace, assert).is_some();
    [
        if attr { NEEDS_ATTR } else { "" },
        if remount { NEEDS_REMOUNT } else { "" },
        if check { NEEDS_CHECK } else { "" },
    ]
    .concat()
}

const NEEDS_ATTR: &str = "\
command -v setfattr >/dev/null || {
    echo 'setfattr and getfattr are missing: install the package attr' >&2
    exit 2
}

";

const NEEDS_REMOUNT: &str = "\
[ -n \"${REMOUNT-}\" ] || {
    echo 'a step remounts the file system: set REMOUNT to a command that does it' >&2
    exit 2
}

";

const NEEDS_CHECK: &str = "\
[ -n \"${CHECK-}\" ] || {
    echo 'the disk is checked in the end: set CHECK to a command that unmounts, checks and mounts' >&2
    exit 2
}

";

/// What common tools cannot do is done in Python; where there is none, the same program in C does all.
const PYTHON_OR_C: &str = "\
command -v python3 >/dev/null || {
    command -v cc >/dev/null || {
        echo 'python3 and cc are missing: one of them must do what common tools cannot' >&2
        exit 2
    }
    echo 'python3 is missing: the same program in C'
    built=$(mktemp -d) || exit 2
    trap 'rm -rf \"$built\"' EXIT
    cat >\"$built/repro.c\" <<'PROGRAM_IN_C'
@PROGRAM@PROGRAM_IN_C
    cc -o \"$built/repro\" \"$built/repro.c\" || exit 2
    \"$built/repro\" \"$@\"
    exit
}

";

const SUMMARY_OF_STEPS: &str = "
echo \"$different steps are DIFFERENT\"
[ \"$different\" -eq 0 ]
";

const SUMMARY_OF_CLAIMS: &str = "
echo \"$different steps are DIFFERENT\"
if [ \"$different\" -ne 0 ]; then
    echo 'The way to the end was another one: nothing is proved.'
    exit 2
fi
if [ \"$wrong\" -ne 0 ]; then
    echo \"$wrong of $claims claims are WRONG: the bug is there\"
    exit 1
fi
echo \"0 of $claims claims are WRONG: the bug is not there\"
";
