//! Calls that have a better replacement here.

use super::Source;

/// Where a rule applies.
enum Scope {
    Everywhere,
    /// Libraries, without their tests and benches.
    Libraries,
    /// Only these crates.
    Crates(&'static [&'static str]),
}

/// (text, scope, what to do instead)
const RULES: &[(&str, Scope, &str)] = &[
    ("dbg!(", Scope::Everywhere, "remove it"),
    ("todo!(", Scope::Everywhere, "write it"),
    ("unimplemented!(", Scope::Everywhere, "write it"),
    ("println!(", Scope::Libraries, "libraries do not print: use a Reporter, or return the text"),
    ("eprintln!(", Scope::Libraries, "libraries do not print: use a Reporter, or return the text"),
    ("process::exit(", Scope::Libraries, "return an error: only the binary ends the process"),
    ("Instant::now(", Scope::Crates(&["core", "model"]), "no clock here: pass the time in"),
    ("SystemTime::now(", Scope::Crates(&["core", "model"]), "no clock here: pass the time in"),
    ("std::fs::", Scope::Crates(&["model"]), "the model is pure: no I/O"),
    ("thread_rng(", Scope::Everywhere, "one seeded choice stream: take it as an argument"),
    ("rand::rng(", Scope::Everywhere, "one seeded choice stream: take it as an argument"),
];

/// Texts that must not appear even in strings and comments: they would touch what is not ours.
const NEVER: &[(&str, &str)] = &[
    ("losetup -D", "detaches every loop device of the machine: use auto-clearing ones"),
    ("umount -a", "unmounts what is not ours"),
    ("pkill ", "kills what is not ours: keep the child's handle"),
];

/// Problems in one file.
pub(super) fn check(source: &Source) -> Vec<String> {
    // This file has to name what it bans.
    if source.path.ends_with("tidy/banned.rs") {
        return Vec::new();
    }
    let mut out = Vec::new();
    let tests_from = source.code.find("#[cfg(test)]").unwrap_or(source.code.len());
    for (text, scope, instead) in RULES.iter().filter(|(_, scope, _)| applies(scope, &source.path))
    {
        let end = if matches!(scope, Scope::Everywhere) { source.code.len() } else { tests_from };
        for (at, _) in source.code[..end].match_indices(text) {
            // `eprintln!(` contains `println!(`: only whole words count.
            if !source.code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                out.push(problem(source, at, text, instead));
            }
        }
    }
    for (text, instead) in NEVER {
        out.extend(
            source.text.match_indices(text).map(|(at, _)| problem(source, at, text, instead)),
        );
    }
    out
}

fn problem(source: &Source, at: usize, text: &str, instead: &str) -> String {
    let line = source.text[..at].matches('\n').count() + 1;
    format!("{}:{line}: {text}: {instead}", source.path)
}

fn applies(scope: &Scope, path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    let (name, in_src) = match parts[..] {
        ["crates", name, "src", ..] => (name, true),
        _ => ("", false),
    };
    match scope {
        Scope::Everywhere => true,
        Scope::Libraries => in_src && !["cli", "xtask"].contains(&name),
        Scope::Crates(names) => in_src && names.contains(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::super::lexer;
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(&Source { path: path.into(), text: text.into(), code: lexer::blank(text) })
    }

    #[test]
    fn rules_know_their_scope() {
        let print = "fn a() { println!(\"x\"); }";
        assert_eq!(found("crates/engine/src/a.rs", print).len(), 1);
        assert_eq!(found("crates/cli/src/a.rs", print).len(), 0);
        assert_eq!(found("crates/engine/tests/a.rs", print).len(), 0);
        let tested = format!("#[cfg(test)]\nmod tests {{ {print} }}");
        assert_eq!(found("crates/engine/src/a.rs", &tested).len(), 0);
        assert_eq!(found("crates/engine/src/a.rs", "// println!(").len(), 0);
        assert_eq!(found("crates/model/src/a.rs", "let t = Instant::now();").len(), 1);
        assert_eq!(found("crates/cli/src/a.rs", "let t = Instant::now();").len(), 0);
    }

    #[test]
    fn dangerous_texts_are_found_even_in_strings() {
        let danger = format!("sh(\"{} {}\")", "losetup", "-D");
        let problems = found("crates/cli/src/a.rs", &format!("\n{danger}"));
        assert_eq!(problems.len(), 1);
        assert!(problems[0].starts_with("crates/cli/src/a.rs:2:"), "{problems:?}");
    }
}
