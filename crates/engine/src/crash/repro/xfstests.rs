//! A finding as a case of xfstests, which cuts the power with dm-flakey: the operations as commands, and
//! what must be there afterwards as the expected output.
//!
//! What no command does is said, and then there is no case: a case with other operations than those of the
//! finding would decide about something else.

mod commands;

use fathom_core::Op;

use super::kernel::{Kernel, differences};
use super::{Case, comment};
use crate::crash::judge::Class;

use commands::{Commands, quote};

/// The names of the case and of its expected output.
pub(super) const SCRIPT: &str = "xfstests.sh";
const EXPECTED: &str = "xfstests.out";

const TEMPLATE: &str = include_str!("xfstests.sh.in");

/// The case and its expected output; or a script that says why there is none.
pub(super) fn files(case: &Case<'_>, kernel: &Kernel) -> Vec<(&'static str, String)> {
    match whole(case, kernel) {
        Ok((script, expected)) => vec![(SCRIPT, script), (EXPECTED, expected)],
        Err(why) => {
            let why = why.replace('\'', "'\\''");
            let text = format!("cannot be expressed as a case of xfstests: {why}");
            vec![(SCRIPT, format!("#! /bin/bash\necho '{text}' >&2\nexit 2\n"))]
        }
    }
}

/// The case and its expected output.
fn whole(case: &Case<'_>, kernel: &Kernel) -> Result<(String, String), String> {
    let commands = Commands::of(case.ops)?;
    let (questions, answers) = questions(case, &commands)?;
    let mount = match kernel.options.strip_prefix(',') {
        Some(options) => format!("export MOUNT_OPTIONS=\"$MOUNT_OPTIONS -o {options}\"\n"),
        None => String::new(),
    };
    let script = TEMPLATE
        .replace("@STORY@", &comment("# ", &case.record.story))
        .replace("@REQUIRE@", &commands.requirements())
        .replace("@MOUNT@", &mount)
        .replace("@OPS@", commands.lines.trim_end())
        .replace("@HELD@", &commands.released())
        .replace("@NOTES@", &questions.notes)
        .replace("@SHOWS@", questions.shows.trim_end());
    let expected = format!("QA output created by NNN\nafter the power failure:\n{answers}");
    Ok((script, expected))
}

/// Commands that ask what is there, before and after the power failure.
#[derive(Default)]
struct Questions {
    notes: String,
    shows: String,
}

/// Asks about everything in which the state that was found differs from the legal one that it resembles
/// most, with the answers of the legal one.
fn questions(case: &Case<'_>, commands: &Commands) -> Result<(Questions, String), String> {
    let (shown, missing) = differences(case);
    let (mut questions, mut answers) = (Questions::default(), String::new());
    let lines = shown.iter().chain(&missing);
    let mut asked: Vec<&str> = lines.filter_map(|line| path(line)).collect();
    asked.sort_unstable();
    asked.dedup();
    let mounts = matches!(
        case.record.cause.class,
        Class::Unmountable | Class::Rejected | Class::KernelComplains
    );
    if asked.is_empty() && !mounts {
        return Err("what is wrong is not a name, a kind, a mode, a size or contents".to_owned());
    }
    let decided = asked.iter().filter_map(|path| Some((*path, decide(case, commands, path)?)));
    let decided: Vec<(&str, Option<&String>)> = decided.collect();
    if decided.is_empty() && !mounts {
        return Err("more than one state is legal there, and a case expects one".to_owned());
    }
    // What the reference shows in the end is what was written last.
    let is_last = |line: &&String| case.legal.last().is_some_and(|lines| lines.contains(line));
    for (path, legal) in decided {
        let word = quote(path.as_bytes());
        questions.shows.push_str(&format!("show {word}\n"));
        let says = legal.map_or_else(|| "not there".to_owned(), |line| shows(line));
        answers.push_str(&format!("{path}: {says}\n"));
        if legal.filter(is_last).is_some_and(|line| line.starts_with("f ")) {
            questions.notes.push_str(&format!("note {word}\n"));
            questions.shows.push_str(&format!("contents {word}\n"));
            answers.push_str(&format!("{path}: contents as before\n"));
        }
    }
    Ok((questions, answers))
}

/// The line that every legal state has for a path, perhaps none; or the last state's, if the case ends with
/// making just that durable: it cuts the power after the last operation, wherever that was in the finding.
fn decide<'a>(case: &Case<'a>, commands: &Commands, asked: &str) -> Option<Option<&'a String>> {
    let of = |lines: &'a Vec<String>| lines.iter().find(|line| path(line) == Some(asked));
    let last = of(case.legal.last()?);
    let agreed = case.legal.iter().all(|lines| of(lines) == last);
    let durable = match case.ops.last()? {
        Op::Sync | Op::Syncfs { .. } => true,
        Op::Fsync { slot } => commands.is_open_as(*slot, asked),
        _ => false,
    };
    (agreed || durable).then_some(last)
}

/// The fields of a line of a listing before its path: see [`super::listing`].
fn fields(line: &str) -> usize {
    match line.as_bytes().first() {
        Some(b'f') => 5,
        Some(b'o') => 3,
        _ => 2,
    }
}

/// The path of a line of a listing.
fn path(line: &str) -> Option<&str> {
    line.splitn(fields(line) + 1, ' ').last()
}

/// What `show` says of what a line of a listing has.
fn shows(line: &str) -> String {
    let field: Vec<&str> = line.splitn(fields(line) + 1, ' ').collect();
    match field[0] {
        "d" => format!("directory, mode {}", field[1]),
        "l" => format!("symbolic link to {}", field[1]),
        "f" => format!("file, mode {}, links {}, size {}", field[1], field[2], field[3]),
        _ => format!("special file, mode {}, links {}", field[1], field[2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_asked_about_line_by_line() {
        let table = [
            ("d 755 A", "A", "directory, mode 755"),
            ("l foo A/a link", "A/a link", "symbolic link to foo"),
            ("f 644 2 4096 0123456789abcdef A/b", "A/b", "file, mode 644, links 2, size 4096"),
            ("o 600 1 pipe", "pipe", "special file, mode 600, links 1"),
        ];
        for (line, name, said) in table {
            assert_eq!((path(line), shows(line).as_str()), (Some(name), said));
        }
    }
}
