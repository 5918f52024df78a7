//! Functions fit a screen; those that do not are listed and may only shrink.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Source;

/// Lines that a function may have, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Compares the long functions that exist with the list.
pub(super) fn check(sources: &[Source], list: &Path, tighten: bool) -> Result<Vec<String>> {
    let mut long = BTreeMap::new();
    for source in sources {
        for (name, lines) in functions(&source.code) {
            if lines > FUNCTION_LINES_MAX {
                let length = long.entry(format!("{} {name}", source.path)).or_insert(0);
                *length = lines.max(*length);
            }
        }
    }
    if tighten {
        let text: String = long.iter().map(|(name, lines)| format!("{lines} {name}\n")).collect();
        fs::write(list, text).with_context(|| format!("cannot write {}", list.display()))?;
        return Ok(Vec::new());
    }
    let known = parse(&fs::read_to_string(list).unwrap_or_default());
    Ok(compare(&long, &known))
}

fn parse(text: &str) -> BTreeMap<String, usize> {
    let line = |line: &str| {
        let (lines, name) = line.split_once(' ')?;
        Some((name.to_owned(), lines.parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

fn compare(long: &BTreeMap<String, usize>, known: &BTreeMap<String, usize>) -> Vec<String> {
    let mut out = Vec::new();
    for (name, lines) in long {
        let allowed = known.get(name).copied().unwrap_or(FUNCTION_LINES_MAX);
        if *lines > allowed {
            out.push(format!("{name}: {lines} lines, at most {allowed} allowed: split it"));
        }
    }
    for (name, lines) in known {
        if long.get(name).is_none_or(|now| now < lines) {
            out.push(format!("{name} became shorter: run `cargo xtask tidy --tighten`"));
        }
    }
    out
}

/// Name and length in lines of every function with a body, in blanked code.
fn functions(code: &str) -> Vec<(String, usize)> {
    let bytes = code.as_bytes();
    let mut out = Vec::new();
    for (at, _) in code.match_indices("fn ") {
        if at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_') {
            continue;
        }
        let name: String =
            code[at + 3..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        if let Some(end) = body_end(bytes, at).filter(|_| !name.is_empty()) {
            out.push((name, code[at..end].matches('\n').count() + 1));
        }
    }
    out
}

/// The end of the body of the function that starts at `at`; `None` for a declaration.
fn body_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut brackets = 0_usize;
    for (index, byte) in bytes.iter().enumerate().skip(at) {
        match byte {
            // `;` inside `[u8; 4]` of a signature ends nothing.
            b'[' | b'(' => brackets += 1,
            b']' | b')' => brackets = brackets.saturating_sub(1),
            b';' if depth == 0 && brackets == 0 => return None,
            b'{' => depth += 1,
            b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(index + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_counted_from_fn_to_brace() {
        let code = "trait T { fn d(&self, x: [u8; 4]); }\nfn a() {\n  if x { y }\n}\nfn b() {}\n";
        let lengths = functions(code);
        assert_eq!(lengths, [("a".to_owned(), 3), ("b".to_owned(), 1)]);
    }

    #[test]
    fn the_ratchet_only_turns_one_way() {
        let map = |pairs: &[(&str, usize)]| -> BTreeMap<String, usize> {
            pairs.iter().map(|(name, lines)| ((*name).to_owned(), *lines)).collect()
        };
        let known = map(&[("f", 90)]);
        assert!(compare(&map(&[("f", 90)]), &known).is_empty());
        assert_eq!(compare(&map(&[("f", 91)]), &known).len(), 1);
        assert_eq!(compare(&map(&[("f", 80)]), &known).len(), 1);
        assert_eq!(compare(&map(&[]), &known).len(), 1);
        assert_eq!(compare(&map(&[("f", 90), ("g", 71)]), &known).len(), 1);
    }
}
