//! A finding as a directory of readable files, named by its id, so that collections merge with `cp`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use fathom_core::{Trace, TraceError, Violation};
use serde::{Deserialize, Serialize};

use super::reproducers::reproducers;
use super::{Disk, Finding, RunRecord};
use crate::check::oracle::Signature;

/// `finding.toml`: what a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    /// Names it.
    pub id: String,
    /// `outcome`, `tree`, `non_deterministic`, `checker`, `kernel_log`, `hang`, `died`, `oops` or
    /// `out_of_memory`.
    pub class: String,
    /// Class, operation and what differs.
    pub signature: Signature,
    /// As on the command line.
    pub subject: String,
    /// What it was compared with.
    pub reference: String,
    /// Seed of the campaign.
    pub seed: u64,
    /// Which fresh file system of the campaign.
    pub episode: u64,
    /// Operations of the minimal run.
    pub ops_minimal: usize,
    /// Operations of the run that found it.
    pub ops: usize,
    /// Further runs of the trace.
    pub runs: usize,
    /// How many of them showed the same.
    pub runs_reproduced: usize,
    /// Program and version.
    pub program: String,
    /// What people read.
    pub story: String,
    /// Kernel version, profile, ….
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Why a finding cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A trace is damaged.
    #[error("{}: {source}", path.display())]
    Trace {
        /// Which.
        path: PathBuf,
        /// Why.
        source: TraceError,
    },
    /// A trace has several callers.
    #[error("{}: the trace has several callers, which cannot be replayed", path.display())]
    Callers {
        /// Which.
        path: PathBuf,
    },
    /// Another file is damaged.
    #[error("{}: {message}", path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// Why.
        message: String,
    },
}

impl Finding {
    /// What `finding.toml` says.
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
            story: self.to_string(),
            labels: self.labels.clone(),
        }
    }

    /// Writes the directory `out/ID` and returns its path. What exists is overwritten: the same id
    /// is the same finding.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, out: &Path) -> Result<PathBuf, RecordError> {
        let dir = out.join(&self.id);
        fs::create_dir_all(&dir).map_err(|source| io_error(&dir, source))?;
        let toml = toml::to_string(&self.recorded()).expect("a finding is plain data");
        let mut runs = String::new();
        for run in &self.runs {
            runs.push_str(&serde_json::to_string(run).expect("a run is plain data"));
            runs.push('\n');
        }
        for (name, text) in [
            ("finding.toml", toml),
            ("before.tree", self.trees.before.to_string()),
            ("expected.tree", self.trees.expected.to_string()),
            ("after.tree", self.trees.after.to_string()),
            ("diff.txt", self.diff()),
            ("runs.jsonl", runs),
        ] {
            write_file(&dir.join(name), text.as_bytes())?;
        }
        for (name, text) in reproducers(&self.minimal) {
            write_file(&dir.join(name), text.as_bytes())?;
        }
        write_trace(&dir.join("trace.jsonl"), &self.trace)?;
        write_trace(&dir.join("minimal.jsonl"), &self.minimal)?;
        self.disks.iter().try_for_each(|disk| disk.write(&dir))?;
        Ok(dir)
    }

    /// What differs, one thing per line.
    fn diff(&self) -> String {
        match &self.violation {
            Violation::Outcome { expected, found } => {
                let details = self.answer_details().join("\n");
                let details = if details.is_empty() { details } else { details + "\n" };
                format!("answer: expected {expected}, found {found}\n{details}")
            }
            Violation::NonDeterministic { first, second } => {
                format!("answer: first {first}, then {second}\n")
            }
            Violation::Tree { differences } => {
                differences.iter().map(|difference| format!("{difference}\n")).collect()
            }
            Violation::Checker { command, output, .. } => format!("{command}\n{output}\n"),
            Violation::KernelLog { lines } => {
                lines.iter().map(|line| format!("{line}\n")).collect()
            }
            Violation::Hang { seconds } => format!("answer: none in {seconds} s\n"),
            Violation::Died { how } => format!("answer: none, the process died ({how})\n"),
            Violation::Oops { lines } => lines.iter().map(|line| format!("{line}\n")).collect(),
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
        let path = dir.join("finding.toml");
        let text = fs::read_to_string(&path).map_err(|source| io_error(&path, source))?;
        toml::from_str(&text)
            .map_err(|error| RecordError::Damaged { path, message: error.to_string() })
    }
}

/// Reads a trace file of one caller.
///
/// # Errors
/// If it cannot be read, is damaged, from a newer version or of several callers.
pub fn read_trace(path: &Path) -> Result<Trace, RecordError> {
    let file = File::open(path).map_err(|source| io_error(path, source))?;
    let trace = Trace::read(BufReader::new(file))
        .map_err(|source| RecordError::Trace { path: path.to_owned(), source })?;
    match trace.is_sequential() {
        true => Ok(trace),
        false => Err(RecordError::Callers { path: path.to_owned() }),
    }
}

/// Writes a trace file.
///
/// # Errors
/// If it cannot be written.
pub(crate) fn write_trace(path: &Path, trace: &Trace) -> Result<(), RecordError> {
    let file = File::create(path).map_err(|source| io_error(path, source))?;
    trace
        .write(BufWriter::new(file))
        .map_err(|source| RecordError::Trace { path: path.to_owned(), source })
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<(), RecordError> {
    File::create(path)
        .and_then(|mut file| file.write_all(bytes))
        .map_err(|source| io_error(path, source))
}

fn io_error(path: &Path, source: std::io::Error) -> RecordError {
    RecordError::Io { path: path.to_owned(), source }
}
