//! The programs that build a kernel: whether they are there, and what matters of what they print.

use std::path::PathBuf;

use super::error::BuildError;

/// Programs and their Debian packages.
pub(super) const COMPILE: [(&str, &str); 6] = [
    ("make", "make"),
    ("gcc", "gcc"),
    ("ld", "binutils"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
];

/// What Debian's sources need beyond that.
pub(super) const UNPACK: [(&str, &str); 4] =
    [("dpkg-deb", "dpkg"), ("tar", "tar"), ("xz", "xz-utils"), ("patch", "patch")];

/// Names every missing program and its package.
pub(super) fn demand(programs: &[(&str, &str)]) -> Result<(), BuildError> {
    let missing: Vec<_> = programs.iter().filter(|(program, _)| !is_there(program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let join = |part: fn(&(&str, &str)) -> String, with: &str| {
        missing.iter().map(|one| part(one)).collect::<Vec<_>>().join(with)
    };
    Err(BuildError::Tools {
        programs: join(|(program, _)| (*program).to_owned(), ", "),
        packages: join(|(_, package)| (*package).to_owned(), " "),
    })
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).any(|dir| dir.join(program).is_file())
}

/// Lines to show of a failure, at most.
const LINES_MAX: usize = 24;

/// The lines that matter of what a failed make printed: compiler errors with the lines that belong to
/// them, or else the last words.
pub(super) fn errors(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    let is_error = |line: &str| {
        let cause = [": error:", ": fatal error:", "undefined reference", "No space left"];
        cause.iter().any(|cause| line.contains(cause))
    };
    // A source line and its marker begin with a space.
    let belongs = |line: &&&str| line.starts_with(' ') && line.contains('|');
    let mut shown: Vec<&str> = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| is_error(line)) {
        shown.push(line);
        shown.extend(lines[at + 1..].iter().take_while(belongs).take(3));
    }
    if shown.is_empty() {
        shown.extend(lines.iter().filter(|line| line.contains("***")));
    }
    if shown.is_empty() {
        shown.extend(&lines[lines.len().saturating_sub(5)..]);
    }
    let more = shown.len().saturating_sub(LINES_MAX);
    shown.truncate(LINES_MAX);
    let mut text = shown.join("\n");
    if more > 0 {
        text.push_str(&format!("\n… and {more} more lines"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_programs_are_named_with_their_packages() {
        assert!(demand(&[("sh", "dash")]).is_ok());
        let error =
            demand(&[("sh", "dash"), ("no-such-a", "pa"), ("no-such-b", "pb")]).unwrap_err();
        let text = "building a kernel needs no-such-a, no-such-b: apt-get install pa pb";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn the_errors_are_shown_and_not_the_rest() {
        let log = "  CC      fs/ext4/inode.o\n  CC      fs/ext4/super.o\n\
                   fs/ext4/inode.c: In function 'ext4_x':\n\
                   fs/ext4/inode.c:7:9: error: 'nope' undeclared\n\x20   7 |  nope();\n\
                   \x20     |  ^~~~\n  CC      fs/xfs/a.o\n\
                   make[4]: *** [scripts/Makefile.build:229: fs/ext4/inode.o] Error 1\n";
        let shown = errors(log);
        assert_eq!(
            shown,
            "fs/ext4/inode.c:7:9: error: 'nope' undeclared\n    7 |  nope();\n      |  ^~~~"
        );
        assert_eq!(errors("a\nmake: *** no rule\nb\n"), "make: *** no rule");
        assert_eq!(errors("1\n2\n3\n4\n5\n6\n"), "2\n3\n4\n5\n6");
        assert_eq!(errors(""), "");
        let many = "x.c:1: error: y\n".repeat(40);
        assert!(errors(&many).ends_with("… and 16 more lines"));
    }
}
