//! The largest holes in words, and what to add to a test to fill them.

use super::{CallReport, Hole, PlaceReport, Report};

/// Number of holes in a report.
const HOLES_MAX: usize = 10;

/// Phrases for a call and an argument: (call, argument, "no test ever …", example).
const PHRASES: &[(&str, &str, &str, &str)] = &[
    ("truncate", "length", "truncates to a size", "ftruncate(fd, {})"),
    ("write", "count", "writes a number of bytes", "write(fd, buffer, {})"),
    ("write", "offset", "writes at an offset", "pwrite(fd, buffer, n, {})"),
    ("read", "count", "reads a number of bytes", "read(fd, buffer, {})"),
    ("read", "offset", "reads at an offset", "pread(fd, buffer, n, {})"),
    ("lseek", "offset", "seeks to an offset", "lseek(fd, {}, SEEK_SET)"),
    ("fallocate", "offset", "allocates from an offset", "fallocate(fd, 0, {}, n)"),
    ("fallocate", "len", "allocates a length", "fallocate(fd, 0, 0, {})"),
    ("copy_file_range", "size", "copies a size", "copy_file_range(a, NULL, b, NULL, {}, 0)"),
    ("setxattr", "size", "sets an attribute of a size", "setxattr(path, name, value, {}, 0)"),
    ("mmap", "length", "maps a length", "mmap(NULL, {}, PROT_READ, MAP_SHARED, fd, 0)"),
    ("mmap", "offset", "maps from an offset", "mmap(NULL, n, PROT_READ, MAP_SHARED, fd, {})"),
    ("open", "flags", "opens with", "open(path, {})"),
    ("open", "mode", "creates a file with", "open(path, O_CREAT|O_RDWR, {})"),
    ("mkdir", "mode", "makes a directory with", "mkdir(path, {})"),
    ("chmod", "mode", "changes a mode to have", "chmod(path, {})"),
    ("fallocate", "mode", "allocates with", "fallocate(fd, {}, offset, len)"),
    ("rename", "flags", "renames with", "renameat2(AT_FDCWD, a, AT_FDCWD, b, {})"),
    ("lseek", "whence", "seeks with", "lseek(fd, 0, {})"),
    ("mmap", "flags", "maps with", "mmap(NULL, n, PROT_READ, {}, fd, 0)"),
];

/// The calls that every tester wants tested first, most wanted first.
const WANTED: &[&str] = &[
    "open",
    "write",
    "read",
    "rename",
    "unlink",
    "fsync",
    "truncate",
    "mkdir",
    "link",
    "rmdir",
    "fallocate",
    "symlink",
    "lseek",
    "mmap",
    "setxattr",
    "chmod",
    "chown",
    "stat",
    "getdents",
];

/// Errors that a test can provoke on every file system, and should.
const EASY_ERRORS: &[&str] = &[
    "ENOSPC",
    "ENOENT",
    "EEXIST",
    "EACCES",
    "ENOTDIR",
    "EISDIR",
    "ENOTEMPTY",
    "ELOOP",
    "ENAMETOOLONG",
    "EROFS",
    "EFBIG",
    "EBADF",
];

/// Arguments that are lists of commands, most of which are not about files.
const COMMANDS: &[(&str, &str)] = &[("fcntl", "cmd"), ("fcntl", "arg"), ("fadvise", "advice")];

/// Powers of amounts from here on do not make a hole larger: files end before (ext4: 2⁴⁴ bytes).
const POWER_OF_INTEREST_MAX: u32 = 44;

/// How much a tester wants a hole filled; smaller is more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    /// Errors and flags that never occurred, of a call that is used.
    ErrorsAndFlags,
    /// A call that was never made.
    NeverCalled,
    /// Other classes of arguments: whence, kinds of paths, users.
    Classes,
    /// Amounts between two powers.
    Amounts,
    /// Commands, and arguments that were never given: the tool may not be about them.
    Exotic,
}

/// The holes that a tester would fill first: errors and flags of the common calls, then calls that were
/// never made, then other classes, amounts and exotic commands. Neighbouring partitions are one hole.
pub fn holes(report: &Report) -> Vec<Hole> {
    let mut found: Vec<(Wish, usize, usize, Hole)> = Vec::new();
    for (base, call) in &report.bases {
        // Others are missing in most tools, and rightly.
        if call.scope != "core" {
            continue;
        }
        let rank = WANTED.iter().position(|name| name == base).unwrap_or(WANTED.len());
        let mut add = |wish, hole: Hole| found.push((wish, rank, weight(&hole), hole));
        if call.calls == 0 {
            add(Wish::NeverCalled, never_called(base, call));
            continue;
        }
        for (arg, place) in &call.args {
            for hole in in_argument(base, arg, place) {
                add(wish(base, arg, place), hole);
            }
        }
        in_output(base, &call.output).for_each(|hole| add(Wish::ErrorsAndFlags, hole));
    }
    found.sort_by(|a, b| {
        let (left, right) = ((a.0, a.1, usize::MAX - a.2), (b.0, b.1, usize::MAX - b.2));
        left.cmp(&right).then_with(|| a.3.words.cmp(&b.3.words))
    });
    found.into_iter().take(HOLES_MAX).map(|(.., hole)| hole).collect()
}

fn wish(base: &str, arg: &str, place: &PlaceReport) -> Wish {
    match place.kind.as_str() {
        _ if place.tally.hit == 0 || COMMANDS.contains(&(base, arg)) => Wish::Exotic,
        "bitmask" => Wish::ErrorsAndFlags,
        "numeric" => Wish::Amounts,
        _ => Wish::Classes,
    }
}

fn weight(hole: &Hole) -> usize {
    let of_interest = |id: &&String| {
        let name = id.splitn(3, '.').nth(2).unwrap_or_default();
        power(name).is_none_or(|power| power < POWER_OF_INTEREST_MAX)
    };
    hole.partitions.iter().filter(of_interest).count()
}

fn never_called(base: &str, call: &CallReport) -> Hole {
    let named = |arg: &str, place: &PlaceReport| {
        let counted = place.partitions.iter().filter(|bucket| bucket.counts());
        counted.map(|bucket| format!("{base}.{arg}.{}", bucket.name)).collect::<Vec<_>>()
    };
    let mut partitions: Vec<String> =
        call.args.iter().flat_map(|(arg, place)| named(arg, place)).collect();
    partitions.extend(named("output", &call.output));
    Hole {
        words: format!("no test ever calls {base}"),
        add: format!("any call of {base}(2)"),
        partitions,
    }
}

fn in_argument(base: &str, arg: &str, place: &PlaceReport) -> impl Iterator<Item = Hole> {
    let missing = |index: usize| {
        let bucket = &place.partitions[index];
        bucket.count == 0 && bucket.counts()
    };
    let all = 0..place.partitions.len();
    let mut runs: Vec<Vec<usize>> = Vec::new();
    for index in all.filter(|index| missing(*index)) {
        let name = |index: usize| place.partitions[index].name.as_str();
        let joins = runs.last().and_then(|run| run.last()).is_some_and(|last| {
            match (power(name(*last)), power(name(index))) {
                (Some(a), Some(b)) => a + 1 == b,
                (None, None) => place.kind != "numeric",
                _ => false,
            }
        });
        match runs.last_mut() {
            Some(run) if joins => run.push(index),
            _ => runs.push(vec![index]),
        }
    }
    let hole = |run: Vec<usize>| {
        let names: Vec<&str> = run.iter().map(|i| place.partitions[*i].name.as_str()).collect();
        argument_hole(base, arg, place, &names)
    };
    runs.into_iter().map(hole).collect::<Vec<_>>().into_iter()
}

fn argument_hole(base: &str, arg: &str, place: &PlaceReport, names: &[&str]) -> Hole {
    let phrase = PHRASES.iter().find(|(call, name, ..)| *call == base && *name == arg);
    let general = format!("calls {base} with {arg}");
    let verb = phrase.map_or(general.as_str(), |phrase| phrase.2);
    let (first, last) = (names.first().copied(), names.last().copied());
    let (what, example) = match (first.and_then(power), last.and_then(power)) {
        (Some(low), Some(high)) => {
            let range = format!("between {} and {}", superscript(low), superscript(high + 1));
            (range, format!("{}", 1u64.checked_shl(low).unwrap_or(u64::MAX)))
        }
        _ if names == ["0"] && place.kind == "numeric" => ("of 0".to_owned(), "0".to_owned()),
        _ if names == ["<0"] => ("below 0".to_owned(), "-1".to_owned()),
        _ => (names.join(", "), names[0].to_owned()),
    };
    let add = match phrase {
        Some((.., example_call)) => example_call.replace("{}", &example),
        None => format!("{base}(2) with {arg} {example}"),
    };
    Hole {
        words: format!("no test ever {verb} {what}"),
        add,
        partitions: names.iter().map(|name| format!("{base}.{arg}.{name}")).collect(),
    }
}

fn in_output(base: &str, output: &PlaceReport) -> impl Iterator<Item = Hole> {
    let missing = output.partitions.iter().filter(|bucket| bucket.count == 0 && bucket.counts());
    let errors: Vec<&str> =
        missing.map(|b| b.name.as_str()).filter(|name| name.starts_with('E')).collect();
    let first = EASY_ERRORS.iter().find(|error| errors.contains(error)).or(errors.first());
    let hole = first.map(|first| Hole {
        words: format!("no {base} ever failed with {}", errors.join(", ")),
        add: format!("a call of {base} that must fail with {first}"),
        partitions: errors.iter().map(|name| format!("{base}.output.{name}")).collect(),
    });
    hole.into_iter()
}

/// The power of an interval's name: `[2^17,2^18)` → 17.
fn power(name: &str) -> Option<u32> {
    name.strip_prefix("[2^")?.split_once(',')?.0.parse().ok()
}

fn superscript(power: u32) -> String {
    let digit = |c: char| "⁰¹²³⁴⁵⁶⁷⁸⁹".chars().nth(c.to_digit(10).unwrap_or(0) as usize);
    format!("2{}", power.to_string().chars().filter_map(digit).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::super::{Bucket, Tally};
    use super::*;

    fn place(kind: &str, counts: &[(&str, u64)]) -> PlaceReport {
        let bucket = |(name, count): &(&str, u64)| Bucket {
            name: (*name).to_owned(),
            count: *count,
            unreachable: None,
            undocumented: false,
        };
        PlaceReport {
            kind: kind.to_owned(),
            tally: Tally::default(),
            variation: None,
            partitions: counts.iter().map(bucket).collect(),
            pairs: None,
        }
    }

    #[test]
    fn neighbouring_intervals_are_one_hole_in_words() {
        let place = place(
            "numeric",
            &[("0", 1), ("<0", 0), ("[2^0,2^1)", 1), ("[2^1,2^2)", 0), ("[2^2,2^3)", 0)],
        );
        let holes: Vec<Hole> = in_argument("truncate", "length", &place).collect();
        let words: Vec<&str> = holes.iter().map(|hole| hole.words.as_str()).collect();
        assert_eq!(
            words,
            [
                "no test ever truncates to a size below 0",
                "no test ever truncates to a size between 2¹ and 2³"
            ]
        );
        assert_eq!(holes[1].add, "ftruncate(fd, 2)");
        assert_eq!(holes[1].partitions.len(), 2);
        let whole = place_without_holes();
        assert_eq!(in_argument("truncate", "length", &whole).count(), 0);
    }

    fn place_without_holes() -> PlaceReport {
        place("numeric", &[("0", 1), ("[2^0,2^1)", 1)])
    }

    #[test]
    fn what_a_tester_wants_comes_first() {
        let flags = place("bitmask", &[("O_RDONLY", 1), ("O_DIRECT", 0)]);
        let amounts: Vec<(String, u64)> =
            (0..30).map(|n| (format!("[2^{n},2^{})", n + 1), 0)).collect();
        let amounts: Vec<(&str, u64)> = amounts.iter().map(|(n, c)| (n.as_str(), *c)).collect();
        let mut counts = place("numeric", &amounts);
        counts.tally.hit = 1;
        let mut used = flags.clone();
        used.tally.hit = 1;
        assert_eq!(wish("open", "flags", &used), Wish::ErrorsAndFlags);
        assert_eq!(wish("open", "flags", &flags), Wish::Exotic, "never given");
        assert_eq!(wish("write", "count", &counts), Wish::Amounts);
        assert!(Wish::ErrorsAndFlags < Wish::NeverCalled && Wish::Amounts < Wish::Exotic);
    }

    #[test]
    fn flags_and_errors_are_listed() {
        let flags = place("bitmask", &[("O_RDONLY", 1), ("O_DIRECT", 0), ("O_SYNC", 0)]);
        let hole = in_argument("open", "flags", &flags).next().unwrap();
        assert_eq!(hole.words, "no test ever opens with O_DIRECT, O_SYNC");
        let output = place("output", &[("success", 0), ("EIO", 0), ("ENOSPC", 3)]);
        let hole = in_output("write", &output).next().unwrap();
        assert_eq!(hole.words, "no write ever failed with EIO");
    }
}
