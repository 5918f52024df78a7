//! A finding as a directory of readable files, named by its id, so that collections merge with `cp`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use fathom_core::{Trace, Violation};
use fathom_record::{Evidence, RecordError};
use serde::{Deserialize, Serialize};

use super::reproducers::reproducers;
use super::{Disk, Finding, RunRecord};
use crate::check::oracle::Signature;

/// The kind of these findings.
pub const KIND: &str = "check";

/// `finding.toml`: what a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// Names it.
    pub id: String,
    /// `outcome`, `tree`, `non_deterministic`, `checker`, `kernel_log`, `locks`, `hang`, `died`, `oops`
    /// or `out_of_memory`.
    pub class: String,
    /// Class, operation and what differs.
    pub signature: Signature,
    /// The subject, as the user typed it.
    pub subject: String,
    /// The reference that it was compared with.
    pub reference: String,
    /// Seed of the campaign.
    pub seed: u64,
    /// The number of the fresh file system in the campaign.
    pub episode: u64,
    /// Operations of the minimal run.
    pub ops_minimal: usize,
    /// Operations of the run that found it.
    pub ops: usize,
    /// Further runs of the trace.
    pub runs: usize,
    /// The number of them that showed the same.
    pub runs_reproduced: usize,
    /// Program and version.
    pub program: String,
    /// The number of times that the campaign came across it.
    #[serde(default = "once")]
    pub sightings: u64,
    /// Whether it was run again and shrunk.
    #[serde(default = "yes")]
    pub complete: bool,
    /// The story that people read.
    pub story: String,
    /// Kernel version, profile, ….
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Findings of format 1 do not say how often they were seen.
fn once() -> u64 {
    1
}

/// Findings of format 1 were written when they were complete.
fn yes() -> bool {
    true
}

impl Finding {
    /// The contents of `finding.toml`.
    pub fn recorded(&self) -> Recorded {
        let header = &self.trace.header;
        let (runs_reproduced, runs) = self.reproduced();
        Recorded {
            id: self.id.clone(),
            class: self.violation.class().to_owned(),
            signature: self.signature.clone(),
            subject: header.subject.clone(),
            reference: header.reference.clone(),
            seed: header.seed.unwrap_or_default(),
            episode: self.episode,
            ops_minimal: self.minimal.steps.len(),
            ops: self.trace.steps.len(),
            runs,
            runs_reproduced,
            program: header.program.clone(),
            sightings: self.sightings,
            complete: self.complete,
            story: self.to_string(),
            labels: self.labels.clone(),
        }
    }

    /// The finding with all its files, as every command records it.
    pub fn record(&self) -> fathom_record::Finding {
        let recorded = self.recorded();
        let signature = self.signature.to_string();
        let mut record = fathom_record::Finding::new(KIND, &self.id, &signature);
        record.details = fathom_record::Finding::details_of(&recorded);
        record.title = format!("{signature} on {}", recorded.subject);
        record.class = recorded.class;
        record.subject = recorded.subject;
        record.program = recorded.program;
        record.complete = recorded.complete;
        record.sightings = recorded.sightings;
        (record.runs, record.runs_reproduced) = (recorded.runs, recorded.runs_reproduced);
        record.story = recorded.story;
        record.labels = recorded.labels;
        record.evidence = self.evidence();
        record.page = self.page();
        record
    }

    fn evidence(&self) -> Vec<Evidence> {
        let mut files = vec![
            Evidence::text("before.tree", self.trees.before.to_string()),
            Evidence::text("expected.tree", self.trees.expected.to_string()),
            Evidence::text("after.tree", self.trees.after.to_string()),
            Evidence::text("diff.txt", self.diff()),
            Evidence::lines("runs.jsonl", &self.runs),
            Evidence::bytes("trace.jsonl", trace_bytes(&self.trace)),
            Evidence::bytes("minimal.jsonl", trace_bytes(&self.minimal)),
        ];
        files.extend(self.reproducers());
        files.extend(self.disks.iter().map(Disk::evidence));
        files
    }

    /// Programs that show the finding without Fathom.
    fn reproducers(&self) -> [Evidence; 2] {
        reproducers(&self.minimal).map(|(name, text)| Evidence::text(name, text))
    }

    /// Writes the directory `out/ID` and returns its path. What exists is replaced: the same id is
    /// the same finding.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, out: &Path) -> Result<PathBuf, RecordError> {
        self.record().write(out)
    }

    /// Describes what differs, one thing per line.
    pub(super) fn diff(&self) -> String {
        match &self.violation {
            Violation::Outcome { expected, found } => {
                let details = self.answer_details().join("\n");
                let details = if details.is_empty() { details } else { details + "\n" };
                format!("answer: expected {expected}, found {found}\n{details}")
            }
            Violation::NonDeterministic { first, second } => {
                format!("answer: first {first}, then {second}\n")
            }
            Violation::Tree { differences } | Violation::Stale { differences } => {
                differences.iter().map(|difference| format!("{difference}\n")).collect()
            }
            Violation::Checker { command, output, .. } => format!("{command}\n{output}\n"),
            Violation::KernelLog { lines } | Violation::Locks { lines } => {
                lines.iter().map(|line| format!("{line}\n")).collect()
            }
            Violation::Hang { seconds } => format!("answer: none in {seconds} s\n"),
            Violation::ServerDied { last_words } => format!("{last_words}\n"),
            Violation::Died { how } => format!("answer: none, the process died ({how})\n"),
            Violation::Oops { lines } => lines.iter().map(|line| format!("{line}\n")).collect(),
            Violation::KernelReport { title, lines, .. } => {
                let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
                format!("{title}\n\n{lines}")
            }
            Violation::OutOfMemory { mib } => format!("answer: none, {mib} MiB were used up\n"),
        }
    }
}

/// The directory of a finding, read back.
#[derive(Clone, Debug)]
pub struct Stored {
    /// `finding.toml`
    pub recorded: Recorded,
    /// `trace.jsonl`
    pub trace: Trace,
    /// `minimal.jsonl`
    pub minimal: Trace,
    /// `runs.jsonl`
    pub runs: Vec<RunRecord>,
    /// `disks/`
    pub disks: Vec<Disk>,
}

impl Stored {
    /// Reads what is needed to go on with a finding.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged.
    pub fn read(dir: &Path) -> Result<Stored, RecordError> {
        let path = dir.join("runs.jsonl");
        let text = fs::read_to_string(&path).map_err(|source| io_error(&path, source))?;
        let runs = text.lines().map(serde_json::from_str).collect::<Result<_, _>>();
        Ok(Stored {
            recorded: Recorded::read(dir)?,
            trace: read_trace(&dir.join("trace.jsonl"))?,
            minimal: read_trace(&dir.join("minimal.jsonl"))?,
            disks: Disk::read_all(dir)?,
            runs: runs
                .map_err(|error| RecordError::Damaged { path, message: error.to_string() })?,
        })
    }
}

impl Recorded {
    /// Reads `finding.toml` of a finding's directory.
    ///
    /// # Errors
    /// If it cannot be read or is damaged.
    pub fn read(dir: &Path) -> Result<Recorded, RecordError> {
        fathom_record::Finding::read(dir)?.record(dir)
    }
}

/// Reads a trace file of one caller.
///
/// # Errors
/// If it cannot be read, is damaged, from a newer version or of several callers.
pub fn read_trace(path: &Path) -> Result<Trace, RecordError> {
    let file = File::open(path).map_err(|source| io_error(path, source))?;
    let damaged = |message: String| RecordError::Damaged { path: path.to_owned(), message };
    let trace = Trace::read(BufReader::new(file)).map_err(|error| damaged(error.to_string()))?;
    match trace.is_sequential() {
        true => Ok(trace),
        false => Err(damaged("the trace has several callers, which cannot be replayed".to_owned())),
    }
}

fn trace_bytes(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    trace.write(&mut bytes).expect("memory takes every trace");
    bytes
}

fn io_error(path: &Path, source: std::io::Error) -> RecordError {
    RecordError::Io { path: path.to_owned(), source }
}
