//! Exploration by path: which values of a field make an instrumented checker take another way.
//!
//! Values that take the same sequence of branches are one class. New values come from comparisons: where
//! one operand was the value of the field, the other is worth trying, and its neighbours. A field is
//! *closed* when every value that was asked for has been tried; then nothing new can be asked.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use fathom_record::pace::Moment;
use serde::Serialize;

use crate::case::Case;
use crate::cover::{Comparison, Record};
use crate::map::{Field, MapError};
use crate::run::{DiskDelta, Outcome, RunError};
use crate::runner::CaseRunner;
use crate::subject::{REPAIR, Subject};
use crate::values::{Values, values};

/// Comparisons of one site that are followed: a loop over a table asks too many questions.
const PER_SITE_MAX: usize = 24;
/// Times that a field is explored anew if the surroundings changed.
const RESTARTS_MAX: usize = 2;

/// What the exploration of one field came to.
#[derive(Clone, Debug, Serialize)]
pub struct Explored {
    /// The field.
    pub field: String,
    /// Its bytes.
    pub width: u8,
    /// Values that were tried.
    pub values: u64,
    /// Distinct sequences of branches.
    pub paths: u64,
    /// Whether every value that was asked for has been tried.
    pub closed: bool,
    /// Whether the healthy disk takes the same path before and after.
    pub steady: bool,
    /// For each distinct sequence: how the run ended, and the smallest value that takes it.
    pub classes: Vec<(String, u64)>,
    /// Branches taken by any of the runs.
    #[serde(skip)]
    pub edges: BTreeSet<u32>,
    /// Branches that the program has.
    pub edges_total: u64,
}

/// Why a field cannot be explored.
#[derive(Debug, thiserror::Error)]
pub enum ExploreError {
    /// There is no such field.
    #[error(transparent)]
    Field(#[from] MapError),
    /// The harness failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The program has no hooks.
    #[error("{program} is not instrumented: build one with `fathom fsck build e2fsprogs`")]
    NotInstrumented {
        /// The program.
        program: String,
    },
}

/// A field while it is explored.
struct Exploration<'a> {
    subject: &'a Subject,
    runner: CaseRunner<'a>,
    field: &'a Field,
    queue: VecDeque<u64>,
    asked: BTreeSet<u64>,
    /// The largest number of a block or inode: smaller values are compared everywhere, only a site that
    /// was seen with a larger one tells of the field.
    plausible: u64,
    /// Such sites, with how many questions came from each.
    sites: HashMap<u64, usize>,
    paths: BTreeMap<u64, (String, u64)>,
    edges: BTreeSet<u32>,
    edges_total: u64,
}

/// Explores one field of a disk within a budget of time.
///
/// # Errors
/// If there is no such field, or the program is not instrumented.
pub fn explore(subject: &Subject, name: &str, budget: Duration) -> Result<Explored, ExploreError> {
    let field = subject.map.find(name)?;
    let mut found = explore_once(subject, field, budget)?;
    // What the checker reads besides its disk (the list of mounts) may change meanwhile: then every path
    // differs, and the count would be of that.
    for _ in 0..RESTARTS_MAX {
        if found.steady {
            break;
        }
        found = explore_once(subject, field, budget)?;
    }
    Ok(found)
}

fn explore_once(
    subject: &Subject,
    field: &Field,
    budget: Duration,
) -> Result<Explored, ExploreError> {
    let mut exploration = Exploration {
        subject,
        runner: CaseRunner::new(subject)?,
        field,
        plausible: plausible(subject, field),
        queue: VecDeque::new(),
        asked: BTreeSet::new(),
        sites: HashMap::new(),
        paths: BTreeMap::new(),
        edges: BTreeSet::new(),
        edges_total: 0,
    };
    let present = field.read(subject.base());
    let before = exploration.run(present)?.1.path;
    exploration.ask(present);
    match values(&subject.map, subject.base(), field, false) {
        Values::All { max, .. } => (0..=max).for_each(|value| exploration.ask(value)),
        Values::Some(list) => list.into_iter().for_each(|value| exploration.ask(value)),
    }
    let deadline = Moment::now() + budget;
    let mut tried = 0;
    while let Some(value) = exploration.queue.pop_front() {
        if Moment::now() >= deadline {
            exploration.queue.push_front(value);
            break;
        }
        exploration.try_value(value)?;
        tried += 1;
    }
    let steady = exploration.run(present)?.1.path == before;
    let mut classes: Vec<(String, u64)> = exploration.paths.values().cloned().collect();
    classes.sort_by_key(|(_, value)| *value);
    Ok(Explored {
        field: field.to_string(),
        width: field.width,
        values: tried,
        paths: exploration.paths.len() as u64,
        closed: exploration.queue.is_empty(),
        steady,
        classes,
        edges: exploration.edges,
        edges_total: exploration.edges_total,
    })
}

/// The largest number that a disk has a meaning for, within half of what the field can hold.
fn plausible(subject: &Subject, field: &Field) -> u64 {
    let largest = subject.map.targets.iter().map(|target| target.number).max().unwrap_or(16);
    largest.min(field.max() / 2)
}

impl Exploration<'_> {
    fn ask(&mut self, value: u64) {
        if value <= self.field.max() && self.asked.insert(value) {
            self.queue.push_back(value);
        }
    }

    /// Runs the checker on the disk with a value.
    fn run(&mut self, value: u64) -> Result<(Outcome, Record), ExploreError> {
        let mut scratch = (**self.subject.base()).clone();
        let case = Case::new(&self.subject.map, &mut scratch, self.field, value, true);
        let corrupt = DiskDelta::written(self.subject.base(), &case.writes);
        let (outcome, record) = self.runner.record(REPAIR, &corrupt)?;
        match record {
            Some(record) => Ok((outcome, record)),
            None => {
                let program = self.subject.program.display().to_string();
                Err(ExploreError::NotInstrumented { program })
            }
        }
    }

    fn try_value(&mut self, value: u64) -> Result<(), ExploreError> {
        let (mut outcome, mut record) = self.run(value)?;
        if !self.paths.contains_key(&record.path) {
            // A new path counts if it is taken again.
            let path = record.path;
            (outcome, record) = self.run(value)?;
            if record.path != path && !self.paths.contains_key(&record.path) {
                self.questions(value, &record.comparisons);
                return Ok(());
            }
        }
        let Record { path, edges, edges_total, comparisons } = record;
        let class = self.paths.entry(path).or_insert((outcome.end.to_string(), value));
        class.1 = class.1.min(value);
        self.edges.extend(edges);
        self.edges_total = self.edges_total.max(edges_total);
        self.questions(value, &comparisons);
        Ok(())
    }

    /// Asks what the run compared the field with.
    fn questions(&mut self, value: u64, comparisons: &[Comparison]) {
        for comparison in comparisons {
            let other = match (comparison.one == value, comparison.other == value) {
                (true, false) => comparison.other,
                (false, true) => comparison.one,
                _ => continue,
            };
            if value > self.plausible {
                self.sites.entry(comparison.site).or_insert(0);
            }
            let Some(questions) = self.sites.get_mut(&comparison.site) else { continue };
            if other > self.field.max() || *questions >= PER_SITE_MAX {
                continue;
            }
            *questions += 1;
            for question in [other, other.wrapping_add(1), other.wrapping_sub(1)] {
                self.ask(question);
            }
        }
    }
}
