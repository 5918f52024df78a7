//! What a run leaves for the reports: `run.json`.
//!
//! The file holds the facts, already in words (operations, trees and writes as text): the reports
//! need none of the crates that made them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::file::replace_file;

/// The version of the file format. It grows with every change that an older program would misread.
pub const FORMAT: u32 = 4;

/// The oldest version that can still be read.
const FORMAT_MIN: u64 = 1;

/// The name of the file in a run directory.
pub const FILE: &str = "run.json";

/// Which command made a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `fathom crash`: the power was cut.
    Crash,
    /// `fathom check`: the answers were compared with a reference.
    Check,
    /// `fathom design`: a model was explored.
    Design,
    /// `fathom cover`: the system calls of a test tool were counted.
    Cover,
    /// `fathom fsck`: a checker was run on corrupted disks.
    Fsck,
    /// `fathom replay`: a finding or a trace was repeated.
    Replay,
    /// `fathom shrink`: a shorter way to a finding was looked for.
    Shrink,
    /// `fathom swarm`: the results of many runs, united.
    Swarm,
}

impl Kind {
    /// The name of the command.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Crash => "crash",
            Kind::Check => "check",
            Kind::Design => "design",
            Kind::Cover => "cover",
            Kind::Fsck => "fsck",
            Kind::Replay => "replay",
            Kind::Shrink => "shrink",
            Kind::Swarm => "swarm",
        }
    }
}

/// One run: what was tested, how far, and what came out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// [`FORMAT`].
    pub format: u32,
    /// Which command it was.
    pub kind: Kind,
    /// The command line as typed.
    pub command: String,
    /// The seed of all random choices, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Whether the run came to its end. While it goes on, and if it was interrupted, it is not.
    #[serde(default = "complete")]
    pub complete: bool,
    /// The file system, as named on the command line.
    pub subject: String,
    /// What exactly was tested: the crate or library with its version.
    pub version: String,
    /// The shape of its device, in words.
    pub geometry: String,
    /// What the file system promises, by its own documentation. Empty if the run did not ask.
    pub guarantee: Vec<Promise>,
    /// The program that tested: name and version.
    pub program: String,
    /// How long the run took.
    pub seconds: f64,
    /// Why it ended, in words: "every state within the depth bound was visited".
    pub stop: String,
    /// How many threads worked.
    pub threads: usize,
    /// What was counted, the most telling first. Reports know the names `states`, `transitions`,
    /// `crash_images`, `crash_points` and `recoveries`, and show all others as they are.
    pub counts: Vec<Count>,
    /// How many states were first reached with 0, 1, 2, … operations.
    pub by_depth: Vec<u64>,
    /// The course of the run, in order of time. May be empty.
    pub samples: Vec<Sample>,
    /// Interesting things that the run was meant to reach and did not.
    pub goals_missed: Vec<String>,
    /// What a reader should know, and what is no finding: features that the subject lacks, ….
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What broke, the most serious first; one for each cause.
    pub findings: Vec<FindingPage>,
    /// What was found and is known already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known: Vec<KnownSeen>,
    /// What is known, could have been found, and was not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub no_longer_seen: Vec<String>,
    /// What was measured besides, as curves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plots: Vec<Plot>,
}

/// Runs of format 1 were written at their end only.
fn complete() -> bool {
    true
}

/// A known finding that was found again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownSeen {
    /// Its signature.
    pub signature: String,
    /// Why it need not be reported.
    pub because: String,
    /// How often it was seen.
    pub sightings: u64,
}

/// Curves over the same whole numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// What it shows, as a heading.
    pub title: String,
    /// What to see in it.
    pub about: String,
    /// What the horizontal axis counts.
    pub x: String,
    /// What the vertical axis counts.
    pub y: String,
    /// Whether every line of the vertical axis is ten times the one below it.
    pub logarithmic: bool,
    /// The curves.
    pub series: Vec<Series>,
}

/// A curve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// What it is.
    pub name: String,
    /// Its points, from left to right.
    pub points: Vec<(u64, u64)>,
}

/// A promise of the file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// What it is about: "names are durable".
    pub what: String,
    /// What is promised: "when the operation has returned".
    pub is: String,
    /// Where the file system says so.
    pub cite: String,
}

/// A number of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// What was counted, as a machine would call it: `crash_images`.
    pub name: String,
    /// How many.
    pub value: u64,
    /// What that means, in a few words.
    pub about: String,
}

/// The run at one moment. The numbers never shrink.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Time since the start.
    pub seconds: f64,
    /// States reached so far.
    pub states: u64,
    /// Crash images judged so far.
    pub crash_images: u64,
    /// Findings so far: one for each cause, as in [`Run::findings`].
    pub findings: u64,
    /// Kinds of inputs and outputs of calls exercised so far; 0 where they are not counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub coverage: u64,
    /// Operations so far; 0 where they are not counted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub operations: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A finding, ready to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FindingPage {
    /// The copyable id.
    pub id: String,
    /// The class of violation: `lost_entry`.
    pub class: String,
    /// One line that says what is wrong.
    pub title: String,
    /// How often this cause was met.
    pub count: u64,
    /// Whether it was run again and shrunk; otherwise it is told as it was first seen.
    #[serde(default = "complete")]
    pub complete: bool,
    /// Other signatures of the same cause, with how often each was met.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<String>,
    /// The crash levels at which it was met: `linear`, `torn`, ….
    pub levels: Vec<String>,
    /// The minimal workload, one operation per line.
    pub ops: Vec<String>,
    /// The index in `ops` of the operation during which the power failed (or, for `check`, that was
    /// answered wrongly). `ops.len()`: after all of them, or while the file system recovered.
    pub in_flight: usize,
    /// Where in that operation, as the rest of "the power fails …": "after 2 of its 5 writes". Empty
    /// if it did not fail.
    pub cut: String,
    /// The device's log of the operation in flight.
    pub writes: Vec<WriteLine>,
    /// The tree before the operation in flight, in order of path.
    pub before: Vec<TreeLine>,
    /// The legal trees, in order of path each. One that equals `before` is named so in the reports.
    pub promised: Vec<Vec<TreeLine>>,
    /// The tree that was found, in order of path. Empty if there was none to look at: a tree has at
    /// least its root.
    pub found: Vec<TreeLine>,
    /// The tree once the file system has repaired itself, if that is another one than `found`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repaired: Vec<TreeLine>,
    /// What differs from the nearest legal tree, one line each.
    pub differences: Vec<String>,
    /// What was asked in the end, with what the reference and the subject answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimLine>,
    /// The command line that shows it again.
    pub replay: String,
    /// The directory with everything that was recorded.
    pub directory: String,
    /// What happened, told to a person, in prose; may be empty. The workload, the writes, the trees
    /// and the replay line are told by the reports. Paragraphs are separated by empty lines.
    pub story: String,
    /// A counterexample of a design, step by step. Then `ops` and `writes` are empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepLine>,
    /// The blocks that these steps are about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<BlockLine>,
}

/// A question to which the subject answers otherwise than the reference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimLine {
    /// What is asked: "size of "a"", "4 bytes at offset 0 of "a"" (then the answers are hexadecimal).
    pub what: String,
    /// What the reference answers.
    pub expected: String,
    /// What the subject answered.
    pub found: String,
}

/// A step of a counterexample.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepLine {
    /// The operation; empty if there is nothing but the power failure.
    pub what: String,
    /// What the device was told, in order.
    pub writes: Vec<Command>,
    /// How the power failed, as the rest of "the power fails …"; empty if it did not.
    pub crash: String,
    /// What recovery told the device.
    pub recovery: Vec<Command>,
    /// What recovery made of it; empty if the power did not fail.
    pub recovered: String,
}

/// A command to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// A block that is there after the power failure.
    Written(usize),
    /// A block that is not.
    Lost(usize),
    /// Everything before it is durable.
    Flush,
}

/// A block of the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockLine {
    /// Its number.
    pub number: usize,
    /// What it is for.
    pub label: String,
    /// What it held before the last step.
    pub before: String,
    /// What the power failure left in it.
    pub left: String,
    /// What recovery made of that.
    pub after: String,
}

/// A write of the operation in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteLine {
    /// Its number in the log of the device.
    pub index: usize,
    /// What it was: "program block 3, 16 bytes at 48".
    pub text: String,
    /// Whether it is on the device after the power failure.
    pub arrived: bool,
}

/// An entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeLine {
    /// The path from the root, without a slash before it, of a directory with a slash behind it; the
    /// root itself is `.`.
    pub path: String,
    /// What is there, in words, contents included. Entries are the same if the texts are.
    pub text: String,
}

/// A run that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is no run.
    #[error("{}: there is no run", path.display())]
    Missing {
        /// The file that was looked for.
        path: PathBuf,
    },
    /// The system refused.
    #[error("{}: cannot {what}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The file is no run.
    #[error("{}: is no run or is damaged: {reason}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        reason: String,
    },
    /// The file was written by another version of the program.
    #[error("{}: has format {found}, this program reads up to format {FORMAT}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
    },
}

impl Run {
    /// A run that has just been started.
    pub fn start(kind: Kind, command: &str, subject: &str) -> Run {
        Run {
            format: FORMAT,
            kind,
            command: command.to_owned(),
            seed: None,
            complete: false,
            subject: subject.to_owned(),
            version: String::new(),
            geometry: String::new(),
            guarantee: Vec::new(),
            program: concat!("fathom ", env!("CARGO_PKG_VERSION")).to_owned(),
            seconds: 0.0,
            stop: "it goes on, or was ended from outside".to_owned(),
            threads: 1,
            counts: Vec::new(),
            by_depth: Vec::new(),
            samples: Vec::new(),
            goals_missed: Vec::new(),
            notes: Vec::new(),
            findings: Vec::new(),
            known: Vec::new(),
            no_longer_seen: Vec::new(),
            plots: Vec::new(),
        }
    }

    /// Reads a run: its file, or the directory that holds it.
    ///
    /// # Errors
    /// If there is none, or it is damaged, or of another version.
    pub fn read(path: &Path) -> Result<Run, RunError> {
        let path = file_in(path);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => return Err(unreadable(path, error)),
        };
        Run::parse(&text).map_err(|problem| match problem {
            Problem::Version(found) => RunError::Version { path, found },
            Problem::Corrupt(reason) => RunError::Corrupt { path, reason },
        })
    }

    /// Writes the run into a file, or as [`FILE`] into a directory. Whoever reads meanwhile sees the
    /// old file or the new one.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), RunError> {
        let path = file_in(path);
        let text = serde_json::to_string_pretty(self).expect("a run has only strings as keys");
        replace_file(&path, (text + "\n").as_bytes()).map_err(|source| RunError::Io {
            path,
            what: "write it",
            source,
        })
    }

    /// The value of a count, if the run has it.
    pub fn count(&self, name: &str) -> Option<u64> {
        self.counts.iter().find(|count| count.name == name).map(|count| count.value)
    }

    /// Reads a run from the text of its file.
    ///
    /// # Errors
    /// In words, if it is damaged or of another version.
    pub fn from_text(text: &str) -> Result<Run, String> {
        Run::parse(text).map_err(|problem| match problem {
            Problem::Version(found) => {
                format!("has format {found}, this program reads up to format {FORMAT}")
            }
            Problem::Corrupt(reason) => format!("is no run or is damaged: {reason}"),
        })
    }

    fn parse(text: &str) -> Result<Run, Problem> {
        /// What every version has.
        #[derive(Deserialize)]
        struct Head {
            format: u64,
        }
        let corrupt = |error: serde_json::Error| Problem::Corrupt(error.to_string());
        // The version first: what an unknown field means depends on it.
        let head: Head = serde_json::from_str(text).map_err(corrupt)?;
        if !(FORMAT_MIN..=u64::from(FORMAT)).contains(&head.format) {
            return Err(Problem::Version(head.format));
        }
        serde_json::from_str(text).map_err(corrupt)
    }
}

enum Problem {
    Version(u64),
    Corrupt(String),
}

fn file_in(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(FILE) } else { path.to_owned() }
}

fn unreadable(path: PathBuf, error: io::Error) -> RunError {
    match error.kind() {
        io::ErrorKind::NotFound => RunError::Missing { path },
        io::ErrorKind::InvalidData => RunError::Corrupt { path, reason: "it is not text".into() },
        _ => RunError::Io { path, what: "read it", source: error },
    }
}
