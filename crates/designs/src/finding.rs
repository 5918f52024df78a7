//! A violation that is kept: a directory of readable files, named by its content, as the findings of
//! the other checkers.
//!
//! | file | what it is |
//! |---|---|
//! | `finding.toml` | which design with which switches and sizes, which property, what is wrong |
//! | `trace.jsonl` | the actions that found it, one per line |
//! | `minimal.jsonl` | the fewest and simplest actions that show it |
//! | `story.txt` | these, told step by step |
//! | `blocks.txt` | the blocks involved, drawn |

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fathom_block::Geometry;
use fathom_core::Digest;
use fathom_engine::search::{Discovery, Trace};
use fathom_record::run::{BlockLine, Command, FindingPage, StepLine};
use fathom_record::{Evidence, RecordError};
use serde::{Deserialize, Serialize};

use crate::catalog::Spec;
use crate::shrink::{play, shrink};
use crate::story::{Block, ExplainedSystem, Step, Story, Write};

/// Domain of the digest that names a finding.
const DOMAIN_FINDING: u64 = 20;

/// The value of `kind` in `finding.toml`.
pub const KIND: &str = "design";

/// `finding.toml`: everything that a replay needs, and what people want to know first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Always [`KIND`].
    pub kind: String,
    /// Names it.
    pub id: String,
    /// The property that is violated.
    pub property: String,
    /// How many states violated it, as far as the search went.
    #[serde(rename = "sightings", alias = "count")]
    pub count: u64,
    /// Actions of the minimal trace.
    pub steps: usize,
    /// Actions of the trace that found it.
    pub steps_found: usize,
    /// What is wrong, in words.
    pub what: String,
    /// Program and version.
    pub program: String,
    /// The design: name, switches, sizes.
    pub design: Spec,
    /// The shape of its device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub geometry: Option<Geometry>,
}

/// A finding with its traces, which are lines of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// `finding.toml`
    pub record: Record,
    /// `trace.jsonl`
    pub trace: Vec<String>,
    /// `minimal.jsonl`
    pub minimal: Vec<String>,
    /// What the minimal trace shows.
    pub story: Story,
}

impl Finding {
    /// Shrinks what a search found. None if it cannot be played again: the search counts on
    /// determinism, so that is a mistake of the design's author.
    pub fn investigate<S: ExplainedSystem>(
        system: &S,
        spec: &Spec,
        property: &str,
        count: u64,
        found: &Trace<S>,
        budget: Duration,
    ) -> Option<Finding> {
        let actions: Vec<S::Action> = found.actions().cloned().collect();
        play(system, property, &actions)?;
        Finding::shrunk(system, spec, property, count, &actions, &actions, budget)
    }

    fn shrunk<S: ExplainedSystem>(
        system: &S,
        spec: &Spec,
        property: &str,
        count: u64,
        found: &[S::Action],
        from: &[S::Action],
        budget: Duration,
    ) -> Option<Finding> {
        let minimal = shrink(system, property, from, budget);
        let played = play(system, property, &minimal)?;
        let story = system.story(&played, property);
        let (trace, minimal) = (lines(found), lines(&minimal));
        let record = Record {
            kind: KIND.to_owned(),
            id: id(spec, property, &minimal),
            property: property.to_owned(),
            count,
            steps: minimal.len(),
            steps_found: trace.len(),
            what: story.what.clone(),
            program: concat!("fathom ", env!("CARGO_PKG_VERSION")).to_owned(),
            design: spec.clone(),
            geometry: system.device(),
        };
        Some(Finding { record, trace, minimal, story })
    }

    /// The finding for people: what, the steps, the blocks.
    pub fn text(&self) -> String {
        let Record { id, property, design, .. } = &self.record;
        let mut text =
            format!("finding {id}: {property} is violated on {design}\n\n{}", self.story);
        let drawing = self.story.drawing();
        if !drawing.is_empty() {
            text.push_str(&format!("\n{drawing}"));
        }
        text + &format!("\nreplay: fathom replay {id}\n")
    }

    /// The finding with all its files, as every command records it.
    pub fn record(&self) -> fathom_record::Finding {
        let own = &self.record;
        let mut record = new_record(&own.design, &own.property, &own.id);
        record.details = fathom_record::Finding::details_of(own);
        record.program = own.program.clone();
        record.complete = true;
        record.sightings = own.count;
        record.story = self.text();
        let joined = |name: &str, lines: &[String]| {
            let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
            Evidence::text(name, text)
        };
        record.evidence = vec![
            joined("trace.jsonl", &self.trace),
            joined("minimal.jsonl", &self.minimal),
            Evidence::text("story.txt", self.story.to_string()),
            Evidence::text("blocks.txt", self.story.drawing()),
        ];
        record.page = FindingPage {
            differences: self.story.what.lines().map(str::to_owned).collect(),
            steps: self.story.steps.iter().map(step_line).collect(),
            blocks: self.story.blocks.iter().map(block_line).collect(),
            ..FindingPage::default()
        };
        record
    }

    /// Writes the directory `out/ID` and returns its path.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, out: &Path) -> Result<PathBuf, RecordError> {
        self.record().write(out)
    }
}

/// A finding as the search has just seen it: the way to it is known, but was not yet played.
pub fn first_seen(spec: &Spec, discovery: &Discovery) -> fathom_record::Finding {
    let path = discovery.path.to_string();
    let id = id(spec, &discovery.property, std::slice::from_ref(&path));
    let mut record = new_record(spec, &discovery.property, &id);
    record.sightings = discovery.count;
    record.story = format!(
        "finding {id}: {} is violated on {spec}\n\nas it was first seen: path {path}\n",
        discovery.property
    );
    record.evidence = vec![Evidence::text("path.txt", format!("{path}\n"))];
    record
}

fn new_record(spec: &Spec, property: &str, id: &str) -> fathom_record::Finding {
    let mut record = fathom_record::Finding::new(KIND, id, property);
    record.class = property.to_owned();
    record.title = format!("“{property}” does not hold");
    record.subject = spec.to_string();
    record
}

fn step_line(step: &Step) -> StepLine {
    StepLine {
        what: step.what.clone(),
        writes: step.writes.iter().map(command).collect(),
        crash: step.crash.clone().unwrap_or_default(),
        recovery: step.recovery.iter().map(command).collect(),
        recovered: step.recovered.clone(),
    }
}

fn command(write: &Write) -> Command {
    match write {
        Write::Block { block, arrived: true } => Command::Written(*block),
        Write::Block { block, arrived: false } => Command::Lost(*block),
        Write::Flush => Command::Flush,
    }
}

fn block_line(block: &Block) -> BlockLine {
    let Block { number, label, before, left, after } = block.clone();
    BlockLine { number, label, before, left, after }
}

/// A recorded finding, read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// `finding.toml`
    pub record: Record,
    /// `trace.jsonl`
    pub trace: Vec<String>,
    /// `minimal.jsonl`
    pub minimal: Vec<String>,
    dir: PathBuf,
}

impl Stored {
    /// Whether a directory holds a finding on a design.
    pub fn is_in(dir: &Path) -> bool {
        fathom_record::Finding::read(dir).is_ok_and(|finding| finding.kind == KIND)
    }

    /// Reads the directory of a finding.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged.
    pub fn read(dir: &Path) -> Result<Stored, RecordError> {
        let text = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).map_err(|source| RecordError::Io { path, source })
        };
        let record = fathom_record::Finding::read(dir)?.record(dir)?;
        let lines = |name| Ok(text(name)?.lines().map(str::to_owned).collect());
        let (trace, minimal) = (lines("trace.jsonl")?, lines("minimal.jsonl")?);
        Ok(Stored { record, trace, minimal, dir: dir.to_owned() })
    }

    fn actions<S: ExplainedSystem>(
        &self,
        name: &str,
        lines: &[String],
    ) -> Result<Vec<S::Action>, RecordError> {
        let parse = |line: &String| serde_json::from_str(line);
        lines.iter().map(parse).collect::<Result<_, _>>().map_err(|error| RecordError::Damaged {
            path: self.dir.join(name),
            message: error.to_string(),
        })
    }

    /// Plays the minimal trace (or, if `full`, the one that found it): the story, if the property is
    /// violated at its end again.
    ///
    /// # Errors
    /// If the trace is not one of this system.
    pub fn play<S: ExplainedSystem>(
        &self,
        system: &S,
        full: bool,
    ) -> Result<Option<Story>, RecordError> {
        let (name, lines) = match full {
            true => ("trace.jsonl", &self.trace),
            false => ("minimal.jsonl", &self.minimal),
        };
        let actions = self.actions::<S>(name, lines)?;
        let property = &self.record.property;
        Ok(play(system, property, &actions).map(|trace| system.story(&trace, property)))
    }

    /// Looks longer for a shorter way, from the trace that found it. None if neither trace shows the
    /// finding any more.
    ///
    /// # Errors
    /// If a trace is not one of this system.
    pub fn shrink<S: ExplainedSystem>(
        &self,
        system: &S,
        budget: Duration,
    ) -> Result<Option<Finding>, RecordError> {
        let found = self.actions::<S>("trace.jsonl", &self.trace)?;
        let minimal = self.actions::<S>("minimal.jsonl", &self.minimal)?;
        let Record { property, count, design, .. } = &self.record;
        let shows = |actions: &[S::Action]| play(system, property, actions).is_some();
        let from = [&minimal, &found].into_iter().find(|actions| shows(actions));
        Ok(from.and_then(|from| {
            Finding::shrunk(system, design, property, *count, &found, from, budget)
        }))
    }
}

fn lines<A: Serialize>(actions: &[A]) -> Vec<String> {
    actions.iter().map(|action| serde_json::to_string(action).expect("plain data")).collect()
}

fn id(spec: &Spec, property: &str, minimal: &[String]) -> String {
    let text = serde_json::to_string(&(spec, property, minimal)).expect("plain data");
    Digest::of(DOMAIN_FINDING, text.as_bytes()).to_string()[..12].to_owned()
}
