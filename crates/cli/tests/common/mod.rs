//! The program in a directory of its own, asked as a person or a machine would.
#![allow(dead_code, reason = "every test file uses some of these")]

pub(crate) mod running;
pub(crate) mod swarm;

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What the program said.
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The program with arguments, not yet started.
pub(crate) fn command(args: &[&str], dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fathom"));
    command.args(args).current_dir(dir).env("NO_COLOR", "1");
    command
}

pub(crate) fn ask(args: &[&str], dir: &Path) -> Answer {
    let output = command(args, dir).output().expect("the program starts");
    Answer {
        code: output.status.code().expect("the program ends by itself"),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

/// What the program said: exit code, output, errors.
pub(crate) fn fathom(args: &[&str], dir: &Path) -> (i32, String, String) {
    let answer = ask(args, dir);
    (answer.code, answer.out, answer.err)
}

/// The last line of what it printed.
pub(crate) fn json(args: &[&str], dir: &Path) -> (i32, Value) {
    let answer = ask(args, dir);
    let line = answer.out.lines().last().unwrap_or_default();
    let value = serde_json::from_str(line)
        .unwrap_or_else(|error| panic!("{args:?}: {error}: {line:?} {}", answer.err));
    (answer.code, value)
}

pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory for the test")
}

/// Copies a program that is then executed. Another process copies it: were it open for writing here, a
/// process that another thread starts at that moment would have it open too, and a file that is open
/// for writing cannot be executed.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status().expect("cp starts");
    assert!(status.success(), "cannot copy {}", from.display());
}
