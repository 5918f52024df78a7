//! Every path that a document names exists.
//!
//! A path is the target of a link to a file, or text in backticks that starts with `crates/` or
//! `docs/` or ends with `.rs`; in the documents about the code also what ends with a slash. A path
//! that does not start at the root is found if some path of the repository ends with it. The records
//! of decisions and the list of changes tell of the past: their names may be gone.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Documents at the root; those about the code first.
const ABOUT_CODE: &[&str] = &["ARCHITECTURE.md", "CONTRIBUTING.md"];
const OTHERS: &[&str] = &["README.md"];

/// Compares the paths in all documents with the files of the repository.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let known = Repository::read(root)?;
    let mut problems = Vec::new();
    let mut look_at = |path: PathBuf, about_code: bool| -> Result<()> {
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.strip_prefix(root)?.to_string_lossy().into_owned();
        problems.extend(known.problems(&name, &text, about_code));
        Ok(())
    };
    for name in ABOUT_CODE {
        look_at(root.join(name), true)?;
    }
    for name in OTHERS {
        look_at(root.join(name), false)?;
    }
    for path in &known.paths {
        let in_docs = path.strip_prefix("docs/").is_some_and(|rest| !rest.contains('/'));
        let of_crate = path.starts_with("crates/") && path.ends_with("/README.md");
        if in_docs && path.ends_with(".md") || of_crate {
            look_at(root.join(path), false)?;
        }
    }
    Ok(problems)
}

/// Every path of the repository, relative to its root; directories end with a slash.
struct Repository {
    paths: Vec<String>,
}

impl Repository {
    fn read(root: &Path) -> Result<Repository> {
        let mut paths = Vec::new();
        let mut todo = vec![root.to_owned()];
        while let Some(dir) = todo.pop() {
            let entries =
                fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
            for entry in entries {
                let entry = entry?;
                let name = entry.file_name();
                if name == "target" || name == ".git" {
                    continue;
                }
                let path = entry.path();
                let relative = path.strip_prefix(root)?.to_string_lossy().replace('\\', "/");
                if entry.file_type()?.is_dir() {
                    paths.push(format!("{relative}/"));
                    todo.push(path);
                } else {
                    paths.push(relative);
                }
            }
        }
        paths.sort();
        Ok(Repository { paths })
    }

    fn problems(&self, document: &str, text: &str, about_code: bool) -> Vec<String> {
        let dir = document.rfind('/').map_or("", |at| &document[..=at]);
        let mut out = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let links = links(line).filter(|link| !self.has(&join(dir, link), true));
            let spans = spans(line).filter(|span| names_path(span, about_code)).filter(|span| {
                !self.has(span, span.starts_with("crates/") || span.starts_with("docs/"))
            });
            let missing = links.chain(spans);
            out.extend(
                missing.map(|path| format!("{document}:{}: there is no {path}", number + 1)),
            );
        }
        out
    }

    /// Whether a path exists, from the root or somewhere; a `*` stands for anything in one component.
    fn has(&self, wanted: &str, from_root: bool) -> bool {
        let wanted: Vec<&str> = wanted.trim_end_matches('/').split('/').collect();
        self.paths.iter().any(|path| {
            let parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
            let start = parts.len().checked_sub(wanted.len());
            start.is_some_and(|start| {
                (start == 0 || !from_root)
                    && parts[start..].iter().zip(&wanted).all(|(part, want)| matches(part, want))
            })
        })
    }
}

fn matches(part: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => part == pattern,
        Some((before, after)) => {
            part.len() >= before.len() + after.len()
                && part.starts_with(before)
                && part.ends_with(after)
        }
    }
}

/// The targets of links to files, without the part after `#`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, _)| {
        let (target, _) = line[at + 2..].split_once(')')?;
        let target = target.split('#').next().unwrap_or_default();
        (!target.is_empty() && !target.contains("://") && !target.contains(' ')).then_some(target)
    })
}

/// The texts in backticks.
fn spans(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

fn names_path(span: &str, about_code: bool) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./*".contains(&byte);
    let plain = span.len() > 3 && span.bytes().all(is_part) && !span.starts_with(['/', '.']);
    let ours = span.starts_with("crates/") || span.starts_with("docs/");
    plain && (ours || span.ends_with(".rs") || about_code && span.ends_with('/'))
}

/// A link in a document of `dir`, from the root.
fn join(dir: &str, link: &str) -> String {
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        let paths = ["README.md", "docs/", "docs/CHECK.md", "crates/", "crates/a/src/op.rs"];
        let repository = Repository { paths: paths.map(str::to_owned).to_vec() };
        repository.problems("docs/CHECK.md", text, true)
    }

    #[test]
    fn what_exists_is_fine() {
        for text in [
            "`crates/a/src/op.rs` `op.rs` `src/op.rs` `crates/*/src/*.rs` `docs/`",
            "[a](../README.md) [b](CHECK.md#part) [c](https://example.org/x) [d](#here)",
            "`finding.toml` `d0/f1` `/dev/shm` `a b/` `x.rs y`",
        ] {
            assert_eq!(problems(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn what_does_not_is_found_with_its_line() {
        for (text, missing) in [
            ("`crates/b`", "crates/b"),
            ("`crates/src/op.rs`", "crates/src/op.rs"),
            ("`old.rs`", "old.rs"),
            ("`gone/`", "gone/"),
            ("[a](README.md)", "README.md"),
            ("`crates/a/src/*.toml`", "crates/a/src/*.toml"),
        ] {
            let expected = format!("docs/CHECK.md:2: there is no {missing}");
            assert_eq!(problems(&format!("\n{text}")), [expected]);
        }
    }
}
