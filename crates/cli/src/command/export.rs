//! `fathom export`: a trace as a program that stands alone.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use fathom_core::export::{self, Assert};
use fathom_core::operand::Operand;
use fathom_core::{Op, Target};

use super::Ending;
use crate::args::ExportArgs;
use crate::locate::locate;
use crate::text::{print, print_json};

pub(crate) fn run(args: &ExportArgs, out: &Path, json: bool) -> Result<Ending> {
    let trace = locate(&args.what, out, false)?;
    for step in &trace.steps {
        if let Some(path) = leaving(&step.op) {
            bail!(
                "operation {} leaves the directory under test ({path}): a program that does it \
                 could harm whoever runs it; `fathom replay` refuses such an operation",
                step.n + 1
            );
        }
    }
    let assert = if args.recorded { Assert::Recorded } else { Assert::Expected };
    let (language, program) = if args.language.c {
        ("c", export::c::program(&trace, assert)?)
    } else {
        ("shell", export::shell::script(&trace, assert)?)
    };
    match &args.output {
        Some(path) => {
            fs::write(path, &program)
                .with_context(|| format!("cannot write {}", path.display()))?;
            if json {
                print_json(&serde_json::json!({
                    "file": path, "language": language, "ops": trace.steps.len()
                }))?;
            }
        }
        None if json => print_json(&serde_json::json!({
            "program": program, "language": language, "ops": trace.steps.len()
        }))?,
        None => print(&program)?,
    }
    Ok(Ending::Clean)
}

/// A path of an operation that leaves the directory under test: absolute, or with more `..` than
/// directories before them, or a symbolic link that leads up. The generator makes none; a trace may come
/// from elsewhere.
fn leaving(op: &Op) -> Option<String> {
    let mut found = None;
    op.operands(|operand| {
        let (bytes, is_link) = match operand {
            Operand::Path(path, ..) => (path.as_bytes(), false),
            Operand::Target(Target::Path(path) | Target::Link(path), ..) => {
                (path.as_bytes(), false)
            }
            Operand::Text(text, _) => (text.as_bytes(), true),
            _ => return,
        };
        let mut depth = 0i64;
        let mut leaves = bytes.starts_with(b"/");
        for name in bytes.split(|byte| *byte == b'/') {
            match name {
                b"" | b"." => {}
                b".." => depth -= 1,
                _ => depth += 1,
            }
            leaves |= depth < 0 || (is_link && name == b"..");
        }
        if leaves {
            found = Some(String::from_utf8_lossy(bytes).into_owned());
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_are_found() {
        let unlink = |path: &str| Op::Unlink { path: path.into() };
        assert_eq!(leaving(&unlink("d/../f")), None);
        assert_eq!(leaving(&unlink("/etc/passwd")), Some("/etc/passwd".to_owned()));
        assert_eq!(leaving(&unlink("d/../../f")), Some("d/../../f".to_owned()));
        let link = |target: &str| Op::Symlink { target: target.into(), path: "l".into() };
        assert_eq!(leaving(&link("f")), None);
        assert_eq!(leaving(&link("d/..")), Some("d/..".to_owned()));
        assert_eq!(leaving(&link("/")), Some("/".to_owned()));
    }
}
