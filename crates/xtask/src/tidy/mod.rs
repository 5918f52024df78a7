//! `cargo xtask tidy`: the rules of the code base that the compiler does not know.
//!
//! * the dependency arrows of `ARCHITECTURE.md`, from `cargo metadata`;
//! * a module documentation at the top of every source file;
//! * `#![forbid(unsafe_code)]` in every crate but those that must talk to the kernel;
//! * no banned call (each with its replacement);
//! * functions of at most 70 lines, as a ratchet: `tidy-ratchet.txt` lists the longer ones that
//!   exist; a new or longer one fails, a shorter one asks to tighten the list;
//! * the public types and functions of each crate, as a ratchet too: `tidy-surface.txt`;
//! * every path that a document names exists.

mod arrows;
mod banned;
mod documents;
mod lexer;
mod ratchet;
mod surface;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::shell;

/// Crates whose roots need not forbid `unsafe`: they make system calls.
const UNSAFE_CRATES: &[&str] = &["subjects", "trace", "guest", "fsck"];

/// A source file of the workspace.
struct Source {
    /// Relative to the root, with forward slashes.
    path: String,
    /// As it is.
    text: String,
    /// The same with comments and the contents of literals blanked out, line by line.
    code: String,
}

/// Checks everything; prints each problem and fails if there is one.
pub(crate) fn run(tighten: bool) -> Result<()> {
    let root = shell::root();
    let sources = sources(&root)?;
    let mut problems = arrows::check()?;
    for source in &sources {
        problems.extend(module_docs(source));
        problems.extend(forbids_unsafe(source));
        problems.extend(banned::check(source));
    }
    problems.extend(ratchet::check(&sources, &root.join("tidy-ratchet.txt"), tighten)?);
    problems.extend(surface::check(&sources, &root.join("tidy-surface.txt"), tighten)?);
    problems.extend(documents::check(&root)?);
    for problem in &problems {
        println!("tidy: {problem}");
    }
    if !problems.is_empty() {
        bail!("tidy found {} problem(s)", problems.len());
    }
    println!("tidy: {} source files are in order", sources.len());
    Ok(())
}

/// All Rust files below `crates/` (and `examples/`), sorted by path.
fn sources(root: &Path) -> Result<Vec<Source>> {
    let mut found = Vec::new();
    let mut todo: Vec<PathBuf> = vec![root.join("crates")];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("target") {
                todo.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                let relative = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
                let code = lexer::blank(&text);
                found.push(Source { path: relative, text, code });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn module_docs(source: &Source) -> Option<String> {
    let documented = source.text.starts_with("//!");
    (!documented).then(|| format!("{}: starts without module documentation (//!)", source.path))
}

fn forbids_unsafe(source: &Source) -> Option<String> {
    let parts: Vec<&str> = source.path.split('/').collect();
    let ["crates", name, "src", "lib.rs" | "main.rs"] = parts[..] else { return None };
    let fine = UNSAFE_CRATES.contains(&name) || source.code.contains("#![forbid(unsafe_code)]");
    (!fine).then(|| format!("{}: add #![forbid(unsafe_code)]", source.path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.into(), text: text.into(), code: lexer::blank(text) }
    }

    #[test]
    fn missing_module_docs_are_found() {
        assert!(module_docs(&source("a.rs", "fn a() {}")).is_some());
        assert!(module_docs(&source("a.rs", "//! Docs.\nfn a() {}")).is_none());
    }

    #[test]
    fn a_crate_root_must_forbid_unsafe() {
        let bare = "//! Docs.";
        assert!(forbids_unsafe(&source("crates/core/src/lib.rs", bare)).is_some());
        assert!(forbids_unsafe(&source("crates/core/src/op.rs", bare)).is_none());
        assert!(forbids_unsafe(&source("crates/subjects/src/lib.rs", bare)).is_none());
        let commented = "// #![forbid(unsafe_code)]";
        assert!(forbids_unsafe(&source("crates/core/src/lib.rs", commented)).is_some());
    }
}
