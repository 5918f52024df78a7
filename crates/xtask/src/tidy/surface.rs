//! What each crate shows to the others: the number of its public types and functions may only shrink.
//!
//! Counted are `pub struct`, `enum`, `trait`, `type`, `union` and `pub fn`, without tests. The lint
//! `unreachable_pub` sees to it that what is `pub` can be reached from outside.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Source;

/// Public items of a crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Surface {
    types: usize,
    functions: usize,
}

/// Compares the surface of every crate with the list.
pub(super) fn check(sources: &[Source], list: &Path, tighten: bool) -> Result<Vec<String>> {
    let mut found: BTreeMap<String, Surface> = BTreeMap::new();
    for source in sources {
        let mut parts = source.path.split('/');
        if let (Some("crates"), Some(name), Some("src")) =
            (parts.next(), parts.next(), parts.next())
        {
            let surface = found.entry(name.to_owned()).or_default();
            let here = count(&source.code);
            surface.types += here.types;
            surface.functions += here.functions;
        }
    }
    if tighten {
        let line = |(name, surface): (&String, &Surface)| {
            format!("{name} {} types {} functions\n", surface.types, surface.functions)
        };
        let text: String = found.iter().map(line).collect();
        fs::write(list, text).with_context(|| format!("cannot write {}", list.display()))?;
        return Ok(Vec::new());
    }
    Ok(compare(&found, &parse(&fs::read_to_string(list).unwrap_or_default())))
}

fn count(code: &str) -> Surface {
    let code = &code[..code.find("#[cfg(test)]").unwrap_or(code.len())];
    let mut surface = Surface::default();
    for line in code.lines() {
        let Some(item) = line.trim_start().strip_prefix("pub ") else { continue };
        let mut words = item.split(|c: char| !c.is_alphanumeric() && c != '_');
        match words.find(|word| !["const", "async", "unsafe", "extern"].contains(word)) {
            Some("struct" | "enum" | "trait" | "type" | "union") => surface.types += 1,
            Some("fn") => surface.functions += 1,
            _ => {}
        }
    }
    surface
}

fn parse(text: &str) -> BTreeMap<String, Surface> {
    let line = |line: &str| match line.split(' ').collect::<Vec<_>>()[..] {
        [name, types, "types", functions, "functions"] => {
            let surface =
                Surface { types: types.parse().ok()?, functions: functions.parse().ok()? };
            Some((name.to_owned(), surface))
        }
        _ => None,
    };
    text.lines().filter_map(line).collect()
}

fn compare(found: &BTreeMap<String, Surface>, known: &BTreeMap<String, Surface>) -> Vec<String> {
    let mut out = Vec::new();
    for (name, now) in found {
        let allowed = known.get(name).copied().unwrap_or_default();
        let kinds =
            [("types", now.types, allowed.types), ("functions", now.functions, allowed.functions)];
        for (kind, now, allowed) in kinds {
            if now > allowed {
                out.push(format!(
                    "crates/{name} shows {now} public {kind}, {allowed} are allowed: use pub(crate)"
                ));
            } else if now < allowed {
                out.push(format!(
                    "crates/{name} shows fewer {kind}: run `cargo xtask tidy --tighten`"
                ));
            }
        }
    }
    let gone = known.keys().filter(|name| !found.contains_key(*name));
    out.extend(gone.map(|name| format!("crates/{name} is gone: run `cargo xtask tidy --tighten`")));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_items_are_counted() {
        let code = "pub struct A;\npub(crate) struct B;\n    pub const fn c() {}\npub fn d() {}\n\
                    pub const E: u8 = 1;\npub mod f;\npub use g::H;\nstruct I { pub j: u8 }\n\
                    pub unsafe fn k() {}\npub trait L {}\n#[cfg(test)]\npub fn m() {}\n";
        assert_eq!(count(code), Surface { types: 2, functions: 3 });
    }

    #[test]
    fn the_ratchet_only_turns_one_way() {
        let list = "a 2 types 3 functions\n";
        let known = parse(list);
        let now =
            |types, functions| BTreeMap::from([("a".to_owned(), Surface { types, functions })]);
        assert_eq!(compare(&now(2, 3), &known), [""; 0]);
        assert_eq!(compare(&now(3, 3), &known).len(), 1);
        assert_eq!(compare(&now(2, 4), &known).len(), 1);
        assert_eq!(compare(&now(1, 2), &known).len(), 2);
        assert_eq!(compare(&now(1, 0), &BTreeMap::new()).len(), 1);
        assert_eq!(compare(&BTreeMap::new(), &known).len(), 1);
    }
}
