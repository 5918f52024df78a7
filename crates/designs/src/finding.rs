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
use fathom_engine::search::Trace;
use serde::{Deserialize, Serialize};

use crate::catalog::Spec;
use crate::shrink::{play, shrink};
use crate::story::{ExplainedSystem, Story};

/// Domain of the digest that names a finding.
const DOMAIN_FINDING: u64 = 20;

/// The value of `kind` in `finding.toml`.
pub const KIND: &str = "design";

/// `finding.toml`: everything that a replay needs, and what people want to know first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Always [`KIND`].
    pub kind: String,
    /// Names it.
    pub id: String,
    /// The property that is violated.
    pub property: String,
    /// How many states violated it, as far as the search went.
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

/// A finding that could not be written, read or understood.
#[derive(Debug, thiserror::Error)]
pub enum FindingError {
    /// The system refused.
    #[error("{}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("{}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
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

    /// Writes the directory `out/ID` and returns its path.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, out: &Path) -> Result<PathBuf, FindingError> {
        let dir = out.join(&self.record.id);
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| FindingError::Io { path, source }
        };
        fs::create_dir_all(&dir).map_err(io(&dir))?;
        let joined = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect();
        for (name, text) in [
            ("finding.toml", toml::to_string(&self.record).expect("plain data")),
            ("trace.jsonl", joined(&self.trace)),
            ("minimal.jsonl", joined(&self.minimal)),
            ("story.txt", self.story.to_string()),
            ("blocks.txt", self.story.drawing()),
        ] {
            let path = dir.join(name);
            fs::write(&path, text).map_err(io(&path))?;
        }
        Ok(dir)
    }
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
        let text = fs::read_to_string(dir.join("finding.toml")).unwrap_or_default();
        let kind = text.parse::<toml::Table>().ok().and_then(|mut table| table.remove("kind"));
        kind.is_some_and(|kind| kind.as_str() == Some(KIND))
    }

    /// Reads the directory of a finding.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged.
    pub fn read(dir: &Path) -> Result<Stored, FindingError> {
        let text = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).map_err(|source| FindingError::Io { path, source })
        };
        let record = toml::from_str(&text("finding.toml")?).map_err(|error| {
            FindingError::Damaged { path: dir.join("finding.toml"), what: error.to_string() }
        })?;
        let lines = |name| Ok(text(name)?.lines().map(str::to_owned).collect());
        let (trace, minimal) = (lines("trace.jsonl")?, lines("minimal.jsonl")?);
        Ok(Stored { record, trace, minimal, dir: dir.to_owned() })
    }

    fn actions<S: ExplainedSystem>(
        &self,
        name: &str,
        lines: &[String],
    ) -> Result<Vec<S::Action>, FindingError> {
        let parse = |line: &String| serde_json::from_str(line);
        lines.iter().map(parse).collect::<Result<_, _>>().map_err(|error| FindingError::Damaged {
            path: self.dir.join(name),
            what: error.to_string(),
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
    ) -> Result<Option<Story>, FindingError> {
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
    ) -> Result<Option<Finding>, FindingError> {
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
