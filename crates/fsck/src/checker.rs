//! Checkers as data: how each is called, and what its exit codes say.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What an exit code says about the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Says {
    /// Nothing is wrong.
    Clean,
    /// Everything that was wrong is repaired.
    Repaired,
    /// One of the two, without a difference.
    CleanOrRepaired,
    /// Something was wrong; whether all of it is repaired is not said.
    RepairedOrLeft,
    /// Something is still wrong.
    Left,
    /// Some of it is repaired, and something is still wrong.
    RepairedAndLeft,
    /// The checker gave up, and asks to be run again.
    RunAgain,
    /// The checker could not work.
    Failed,
    /// It was called in a wrong way, or stopped.
    Refused,
    /// A code that its documentation does not have.
    Unknown(i32),
}

impl fmt::Display for Says {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Says::Clean => f.write_str("clean"),
            Says::Repaired => f.write_str("repaired"),
            Says::CleanOrRepaired => f.write_str("clean or repaired"),
            Says::RepairedOrLeft => f.write_str("repaired or errors left"),
            Says::RunAgain => f.write_str("to be run again"),
            Says::Left => f.write_str("errors left"),
            Says::RepairedAndLeft => f.write_str("repaired, errors left"),
            Says::Failed => f.write_str("failed"),
            Says::Refused => f.write_str("refused"),
            Says::Unknown(code) => write!(f, "unknown exit code {code}"),
        }
    }
}

/// What a second run must say after a first one: SWIFT's table 1, and what follows for checkers whose codes do
/// not tell clean from repaired, or repaired from not repaired.
const TABLE: &[(Says, &[Says])] = &[
    (Says::Clean, &[Says::Clean, Says::CleanOrRepaired]),
    (Says::Left, &[Says::Left]),
    (Says::RepairedAndLeft, &[Says::Left]),
    (Says::Repaired, &[Says::Clean, Says::CleanOrRepaired]),
    (Says::CleanOrRepaired, &[Says::CleanOrRepaired, Says::Clean]),
    (Says::RepairedOrLeft, &[Says::Clean, Says::Left]),
    (
        Says::RunAgain,
        &[
            Says::Clean,
            Says::Repaired,
            Says::CleanOrRepaired,
            Says::Left,
            Says::RunAgain,
            Says::Failed,
        ],
    ),
    (Says::Failed, &[Says::Failed]),
    (Says::Refused, &[Says::Refused]),
];

/// Whether the table allows a second run to say this.
pub(crate) fn allowed(first: Says, second: Says) -> bool {
    let row = TABLE.iter().find(|(known, _)| *known == first);
    row.is_some_and(|(_, seconds)| seconds.contains(&second))
}

/// A checker.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checker {
    /// The name on the command line: that of its file.
    #[serde(skip)]
    pub name: String,
    /// The program.
    pub program: String,
    /// The Debian package that has it.
    pub package: String,
    /// The file systems that it checks.
    pub file_systems: Vec<String>,
    /// The disks of ours that it is tried on.
    pub disks: Vec<String>,
    /// Arguments that only look; `{}` is the disk.
    pub(crate) check: Vec<String>,
    /// Arguments that repair everything without asking.
    pub(crate) repair: Vec<String>,
    /// Whether exit codes are sums of those in the list.
    #[serde(default)]
    sum: bool,
    /// What it reads from its standard input: answers that no argument gives.
    #[serde(default)]
    pub(crate) input: String,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// Whether it can write a log of problem codes.
    #[serde(default)]
    pub(crate) problem_log: bool,
    /// Fields and areas that a run may write although nothing was wrong; a `*` at the end stands for
    /// anything.
    #[serde(default)]
    pub(crate) writes_anyway: Vec<String>,
    /// Fields that a run that only looks may write on a disk with errors: to remember that there are some.
    #[serde(default)]
    pub(crate) check_writes: Vec<String>,
    /// For checkers whose manual says that a run that only looks replays the journal, too: the words that follow
    /// the number of transactions. A run that does not print them, or counts none, must not write.
    #[serde(default)]
    pub(crate) looking_replays: Option<String>,
    /// Arguments that print the version.
    #[serde(default)]
    version: Vec<String>,
    /// Time of a run at most.
    #[serde(default)]
    pub(crate) seconds_max: Option<u64>,
    /// Address space of a run at most.
    #[serde(default)]
    pub(crate) memory_mib: Option<u64>,
    /// Whether it insists on writing files of any size; its disk cannot grow all the same.
    #[serde(default)]
    pub(crate) any_file_size: bool,
    exit: BTreeMap<String, String>,
    #[serde(default)]
    check_exit: BTreeMap<String, String>,
}

/// Why a checker cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckerError {
    /// There is none of that name.
    #[error("there is no checker {name:?}: there are {}", known.join(", "))]
    Unknown {
        /// What was typed.
        name: String,
        /// The checkers.
        known: Vec<String>,
    },
    /// The program is not installed.
    #[error(
        "{program} is not installed: it is in the Debian package {package} (or give --program PATH)"
    )]
    Missing {
        /// The program.
        program: String,
        /// The package.
        package: String,
    },
    /// A file that describes a checker is wrong.
    #[error("{}: {message}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
}

/// The checkers that are built in: name and description.
const BUILT_IN: &[(&str, &str)] = &[
    ("e2fsck", include_str!("../checkers/e2fsck.toml")),
    ("fsck.fat", include_str!("../checkers/fsck.fat.toml")),
    ("fsck.minix", include_str!("../checkers/fsck.minix.toml")),
    ("fsck.exfat", include_str!("../checkers/fsck.exfat.toml")),
    ("jfs_fsck", include_str!("../checkers/jfs_fsck.toml")),
    ("xfs_repair", include_str!("../checkers/xfs_repair.toml")),
    ("btrfs", include_str!("../checkers/btrfs.toml")),
    ("fsck.f2fs", include_str!("../checkers/fsck.f2fs.toml")),
    ("reiserfsck", include_str!("../checkers/reiserfsck.toml")),
];

impl Checker {
    /// A checker by name, or from a file of one's own (`.toml`).
    ///
    /// # Errors
    /// If there is none, or the file is wrong.
    pub fn named(name: &str) -> Result<Checker, CheckerError> {
        if name.ends_with(".toml") {
            let path = PathBuf::from(name);
            let damaged = |message| CheckerError::Damaged { path: path.clone(), message };
            let text =
                std::fs::read_to_string(&path).map_err(|error| damaged(error.to_string()))?;
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            return Checker::parse(&stem, &text).map_err(damaged);
        }
        let known = BUILT_IN.iter().find(|(known, _)| *known == name);
        let Some((known, text)) = known else {
            let known = BUILT_IN.iter().map(|(known, _)| (*known).to_owned()).collect();
            return Err(CheckerError::Unknown { name: name.to_owned(), known });
        };
        Checker::parse(known, text)
            .map_err(|message| CheckerError::Damaged { path: PathBuf::from(known), message })
    }

    /// Every checker that is built in.
    pub fn all() -> Vec<Checker> {
        BUILT_IN.iter().filter_map(|(name, text)| Checker::parse(name, text).ok()).collect()
    }

    fn parse(name: &str, text: &str) -> Result<Checker, String> {
        let checker: Checker = toml::from_str(text).map_err(|error| error.to_string())?;
        for (code, words) in checker.exit.iter().chain(&checker.check_exit) {
            code.parse::<i32>().map_err(|_| format!("the exit code {code:?} is no number"))?;
            if words.split(' ').any(|word| word_says(word).is_none()) {
                return Err(format!("exit code {code} says {words:?}: not known"));
            }
        }
        Ok(Checker { name: name.to_owned(), ..checker })
    }

    /// What an exit code says; `repairing` or only looking.
    pub fn says(&self, code: i32, repairing: bool) -> Says {
        let list =
            if repairing || self.check_exit.is_empty() { &self.exit } else { &self.check_exit };
        if let Some(words) = list.get(&code.to_string()) {
            return together(words.split(' ').filter_map(word_says));
        }
        if !self.sum || code < 0 {
            return Says::Unknown(code);
        }
        let mut rest = code;
        let mut words = Vec::new();
        for (part, word) in
            list.iter().filter_map(|(part, word)| Some((part.parse::<i32>().ok()?, word)))
        {
            if part != 0 && code & part == part {
                rest &= !part;
                words.extend(word.split(' ').filter_map(word_says));
            }
        }
        if rest != 0 { Says::Unknown(code) } else { together(words.into_iter()) }
    }

    /// Whether a run that only looks says that it has replayed something of a journal, as its manual allows: a
    /// line that counts so ("3 transactions replayed"), and not to zero.
    pub(crate) fn has_replayed(&self, output: &[u8]) -> bool {
        let Some(counted) = &self.looking_replays else { return false };
        let text = String::from_utf8_lossy(output);
        text.match_indices(counted.as_str()).any(|(at, _)| {
            let number = text[..at].split_whitespace().next_back().unwrap_or_default();
            number.parse::<u64>().is_ok_and(|count| count > 0)
        })
    }

    /// The path of the program: as given, or as the search path has it.
    ///
    /// # Errors
    /// If there is none: with the package that has it.
    pub fn path(&self) -> Result<PathBuf, CheckerError> {
        let found = find_program(&self.program);
        found.ok_or_else(|| CheckerError::Missing {
            program: self.program.clone(),
            package: self.package.clone(),
        })
    }

    /// The same checker, called in another way when it repairs; `{}` is the disk.
    pub fn repairing_with(mut self, words: &[&str]) -> Checker {
        self.repair = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// The variables of its environment.
    pub fn environment(&self) -> impl Iterator<Item = (&str, &str)> {
        self.env.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The first line with a version that the program prints.
    pub fn version_line(&self) -> String {
        let Ok(path) = self.path() else { return "not installed".to_owned() };
        let output = std::process::Command::new(path)
            .args(&self.version)
            .stdin(std::process::Stdio::null())
            .output();
        let text = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let line = text.lines().find(|line| line.bytes().any(|byte| byte.is_ascii_digit()));
        line.unwrap_or("version not known").trim().to_owned()
    }
}

/// A program by path or in the search path; administrators' directories are searched too.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(more)
        .map(|dir| dir.join(name))
        .find(|path| Path::is_file(path))
}

fn word_says(word: &str) -> Option<Says> {
    Some(match word {
        "clean" => Says::Clean,
        "repaired" => Says::Repaired,
        "clean_or_repaired" => Says::CleanOrRepaired,
        "repaired_or_left" => Says::RepairedOrLeft,
        "run_again" => Says::RunAgain,
        "left" => Says::Left,
        "failed" => Says::Failed,
        "usage" | "cancelled" => Says::Refused,
        _ => return None,
    })
}

/// What several words say together: the worst counts.
fn together(words: impl Iterator<Item = Says>) -> Says {
    let words: Vec<Says> = words.collect();
    let has = |word| words.contains(&word);
    if has(Says::Refused) {
        Says::Refused
    } else if has(Says::Failed) {
        Says::Failed
    } else if has(Says::Left) && has(Says::Repaired) {
        Says::RepairedAndLeft
    } else {
        words.first().copied().unwrap_or(Says::Clean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_description_is_valid() {
        assert_eq!(Checker::all().len(), BUILT_IN.len());
    }

    #[test]
    fn exit_codes_say_what_the_manual_pages_say() {
        let e2fsck = Checker::named("e2fsck").unwrap();
        for (code, says) in [
            (0, Says::Clean),
            (1, Says::Repaired),
            (4, Says::Left),
            (5, Says::RepairedAndLeft),
            (8, Says::Failed),
            (9, Says::Failed),
            (12, Says::Failed),
            (64, Says::Unknown(64)),
            (130, Says::Unknown(130)),
        ] {
            assert_eq!(e2fsck.says(code, true), says, "{code}");
        }
        let fat = Checker::named("fsck.fat").unwrap();
        assert_eq!((fat.says(1, true), fat.says(1, false)), (Says::RepairedOrLeft, Says::Left));
        let xfs = Checker::named("xfs_repair").unwrap();
        assert_eq!((xfs.says(1, true), xfs.says(1, false)), (Says::RunAgain, Says::Left));
        let f2fs = Checker::named("fsck.f2fs").unwrap();
        assert_eq!((f2fs.says(0, true), f2fs.says(0, false)), (Says::CleanOrRepaired, Says::Clean));
        let minix = Checker::named("fsck.minix").unwrap();
        assert_eq!(minix.says(7, true), Says::RepairedAndLeft);
        assert_eq!(minix.says(5, true), Says::Unknown(5));
    }

    #[test]
    fn a_replay_is_one_only_if_something_was_replayed_and_the_manual_allows_it() {
        let reiserfsck = Checker::named("reiserfsck").unwrap();
        let line = |count: &str| format!("in blocks [18..8211]: {count} transactions replayed\n");
        for (count, replayed) in [("0", false), ("3", true), ("10", true)] {
            assert_eq!(reiserfsck.has_replayed(line(count).as_bytes()), replayed, "{count}");
        }
        assert!(!reiserfsck.has_replayed(b"nothing"));
        assert!(!Checker::named("e2fsck").unwrap().has_replayed(line("3").as_bytes()));
    }

    #[test]
    fn the_table_is_the_papers() {
        let fine = [
            (Says::Clean, Says::Clean),
            (Says::Left, Says::Left),
            (Says::RepairedAndLeft, Says::Left),
            (Says::Repaired, Says::Clean),
            (Says::Failed, Says::Failed),
        ];
        let all = [Says::Clean, Says::Repaired, Says::Left, Says::RepairedAndLeft, Says::Failed];
        for first in all {
            for second in all {
                assert_eq!(
                    allowed(first, second),
                    fine.contains(&(first, second)),
                    "{first} {second}"
                );
            }
        }
    }

    #[test]
    fn an_unknown_checker_is_told_the_known_ones() {
        let error = Checker::named("e3fsck").unwrap_err().to_string();
        assert!(error.contains("e2fsck, fsck.fat"), "{error}");
    }
}
