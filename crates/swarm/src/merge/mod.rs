//! Unites the results of many runs.
//!
//! What is read was written by machines that may have died, by disks that may be full, or by somebody who
//! means harm. So every entry is judged for itself: a file that is damaged, cut off, too large, no file at
//! all or named like a way out of its directory is refused with its reason, and the rest is united.
//!
//! The same result comes out whatever the order, however often a directory is named, and at any moment
//! while the runs go on. Numbers that are added are taken once per run: copies and repetitions of a run
//! have the same [`Identity`], and the one that came furthest speaks for all. States are united by
//! sketches, findings by their cause. Memory holds one small record per run, whatever the runs contain.

mod coverage;
mod findings;
mod input;
mod series;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fathom_record::coverage::Report;
use fathom_record::states::Estimate;
use fathom_record::{Run, Sketch};
use twox_hash::XxHash3_128;

pub use findings::MergedFinding;
use findings::{Findings, Sighting};
use input::{COVERAGE_BYTES_MAX, STATES_BYTES_MAX};
pub(crate) use input::{is_plain_name, read_run, read_small};
use series::Series;
pub(crate) use write::replace;

/// Reasons of refusals that are kept; the others are counted.
const REFUSED_MAX: usize = 1000;

/// Kinds of states that are kept apart.
const SPACES_MAX: usize = 1000;

/// The name of the file with the coverage of a run.
const COVERAGE_FILE: &str = "coverage.json";

/// What a run is, wherever it was made and copied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Identity(u128);

/// How far a run came: of several runs of one identity the greatest speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    complete: bool,
    operations: u64,
    states: u64,
    /// Of everything in it: whoever is asked twice answers the same.
    digest: u128,
}

/// An entry that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

/// The united result.
#[derive(Clone, Debug, Default)]
pub struct Merged {
    /// Different runs.
    pub runs: u64,
    /// Those of them that came to their end.
    pub complete: u64,
    /// Sums of the counts of all runs, by name.
    pub counts: BTreeMap<String, u64>,
    /// Time of all runs together, in milliseconds.
    pub run_milliseconds: u64,
    /// The visited states, by their kind.
    pub states: BTreeMap<String, Sketch>,
    /// What was found, by cause.
    pub findings: Vec<MergedFinding>,
    /// The inputs and outputs that were exercised, added.
    pub coverage: Option<Report>,
    /// The course of all runs, as if they had started together.
    series: Series,
    /// Programs that made the runs.
    pub programs: BTreeSet<String>,
    /// Subjects of the runs.
    pub subjects: BTreeSet<String>,
    /// What was not taken, and why; the first of them.
    pub refused: Vec<Refused>,
    /// How much was not taken.
    pub refused_total: u64,
}

/// A directory that may hold a run.
struct Candidate {
    path: PathBuf,
    rank: Rank,
}

/// Unites the runs in these directories: a directory with a `run.json`, a directory of such directories,
/// or one that `fathom swarm` has made.
pub fn merge(directories: &[PathBuf]) -> Merged {
    let mut merged = Merger::default();
    let mut best: BTreeMap<Identity, Candidate> = BTreeMap::new();
    // All attempts and copies say what they found and where they were; one of them says how much.
    input::each_run(directories, &mut |found| match found {
        Err(refused) => merged.refuse(refused),
        Ok(path) => match read_run(&path) {
            Err(refused) => merged.refuse(refused),
            Ok((run, digest)) => {
                let (identity, rank) = (Identity::of(&run), Rank::of(&run, digest));
                merged.unite_states(&path);
                let silent = match best.get_mut(&identity) {
                    None => {
                        best.insert(identity, Candidate { path, rank });
                        return;
                    }
                    Some(other) if other.rank < rank => {
                        std::mem::replace(other, Candidate { path, rank }).path
                    }
                    Some(_) => path,
                };
                merged.sight(&silent, false);
            }
        },
    });
    for Candidate { path, .. } in best.values() {
        // It may have gone on since, or have gone away.
        match read_run(path) {
            Ok((run, _)) => {
                merged.add(&run);
                merged.sight_run(path, &run, true);
                merged.add_coverage(path);
            }
            Err(refused) => merged.refuse(refused),
        }
    }
    merged.finish()
}

/// A result while it is made.
#[derive(Default)]
struct Merger {
    result: Merged,
    findings: Findings,
    coverage: coverage::Sum,
    refused: BTreeSet<Refused>,
}

impl Merger {
    fn refuse(&mut self, refused: Refused) {
        self.refused.insert(refused);
        if self.refused.len() > REFUSED_MAX {
            self.refused.pop_last();
        }
        self.result.refused_total += 1;
    }

    /// Adds the numbers of a run.
    fn add(&mut self, run: &Run) {
        let result = &mut self.result;
        result.runs += 1;
        result.complete += u64::from(run.complete);
        for count in run.counts.iter().take(input::COUNTS_MAX) {
            let sum = result.counts.entry(count.name.chars().take(60).collect()).or_default();
            *sum = sum.saturating_add(count.value);
        }
        while result.counts.len() > input::COUNTS_MAX {
            result.counts.pop_last();
        }
        let milliseconds = series::milliseconds(run.seconds);
        result.run_milliseconds = result.run_milliseconds.saturating_add(milliseconds);
        result.series.add(run);
        input::remember(&mut result.programs, &run.program);
        input::remember(&mut result.subjects, &run.subject);
    }

    fn add_coverage(&mut self, path: &Path) {
        let file = path.join(COVERAGE_FILE);
        match read_small(&file, COVERAGE_BYTES_MAX) {
            Ok(None) => {}
            Ok(Some(bytes)) => {
                if let Err(reason) = self.coverage.add(&bytes) {
                    self.refuse(Refused { path: file, reason });
                }
            }
            Err(refused) => self.refuse(refused),
        }
    }

    fn unite_states(&mut self, path: &Path) {
        let file = path.join(fathom_record::STATES_FILE);
        let bytes = match read_small(&file, STATES_BYTES_MAX) {
            Ok(None) => return,
            Ok(Some(bytes)) => bytes,
            Err(refused) => return self.refuse(refused),
        };
        match Sketch::decode(&bytes) {
            Ok((space, sketch)) => {
                self.result.states.entry(space).or_default().unite(&sketch);
                if self.result.states.len() > SPACES_MAX {
                    self.result.states.pop_last();
                }
            }
            Err(reason) => self.refuse(Refused { path: file, reason }),
        }
    }

    /// Takes the findings of a run that somebody else speaks for.
    fn sight(&mut self, path: &Path, counts: bool) {
        if let Ok((run, _)) = read_run(path) {
            self.sight_run(path, &run, counts);
        }
    }

    fn sight_run(&mut self, path: &Path, run: &Run, counts: bool) {
        for page in run.findings.iter().take(input::FINDINGS_MAX) {
            match Sighting::read(path, page, counts) {
                Ok(sighting) => self.findings.add(sighting),
                Err(refused) => self.refuse(refused),
            }
        }
    }

    fn finish(self) -> Merged {
        Merged {
            findings: self.findings.finish(),
            coverage: self.coverage.finish(),
            refused: self.refused.into_iter().collect(),
            ..self.result
        }
    }
}

impl Merged {
    /// The number of different states of all kinds, with the error of the estimate.
    pub fn states_total(&self) -> Estimate {
        let estimates = self.states.values().map(Sketch::estimate);
        estimates.fold(Estimate::default(), |sum, one| {
            let states = sum.states + one.states;
            let error = sum.error * sum.states as f64 + one.error * one.states as f64;
            Estimate { states, error: if states == 0 { 0.0 } else { error / states as f64 } }
        })
    }

    /// A count, 0 if no run has it.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }
}

impl Identity {
    /// Whatever decides what a run does, and nothing that depends on where its results go.
    fn of(run: &Run) -> Identity {
        let mut words: Vec<&str> = Vec::new();
        let mut typed = run.command.split(' ').skip(1);
        while let Some(word) = typed.next() {
            match word {
                "--out" => drop(typed.next()),
                "--json" => {}
                word if word.starts_with("--out=") => {}
                word => words.push(word),
            }
        }
        let text = serde_json::json!([run.kind, run.subject, run.version, run.seed, words]);
        Identity(XxHash3_128::oneshot(text.to_string().as_bytes()))
    }
}

impl Rank {
    fn of(run: &Run, digest: u128) -> Rank {
        let count = |name| run.count(name).unwrap_or(0);
        Rank {
            complete: run.complete,
            operations: count("operations"),
            states: count("states"),
            digest,
        }
    }
}
