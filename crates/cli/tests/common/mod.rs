//! The program in a directory of its own, asked as a person or a machine would.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// What the program said.
pub(crate) struct Answer {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

pub(crate) fn ask(args: &[&str], dir: &Path) -> Answer {
    let output = Command::new(env!("CARGO_BIN_EXE_fathom"))
        .args(args)
        .current_dir(dir)
        .env("NO_COLOR", "1")
        .output()
        .expect("the program starts");
    Answer {
        code: output.status.code().expect("the program ends by itself"),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
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
