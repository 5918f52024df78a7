//! Findings of many runs by their cause.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fathom_record::Finding;
use fathom_record::run::FindingPage;

use super::Refused;
use super::input::{FINDING_BYTES_MAX, is_plain_name, read_small, refused};

/// Causes that are kept; a swarm that finds more finds always the same.
const CAUSES_MAX: usize = 10_000;

/// The name of the record in the directory of a finding.
const RECORD: &str = "finding.toml";

/// What makes two findings the same: what was run, on what, and what went wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Cause {
    kind: String,
    subject: String,
    signature: String,
}

/// A cause, with the best of the findings that show it.
#[derive(Clone, Debug)]
pub struct MergedFinding {
    /// What reports show of the best one: complete and short.
    pub page: FindingPage,
    /// The command that finds it.
    pub kind: String,
    /// The subject.
    pub subject: String,
    /// The signature.
    pub signature: String,
    /// Where the best one lies.
    pub directory: PathBuf,
    /// Runs that show it.
    pub runs: u64,
    /// How often it was seen in all of them.
    pub sightings: u64,
}

/// A finding of one run.
pub(super) struct Sighting {
    cause: Cause,
    page: FindingPage,
    directory: PathBuf,
    /// Whether the run speaks for itself.
    counts: bool,
}

impl Sighting {
    /// Reads a finding of a run. The record lies beside the run; what the run says of where it lies is
    /// not followed.
    pub(super) fn read(run: &Path, page: &FindingPage, counts: bool) -> Result<Sighting, Refused> {
        if !is_plain_name(&page.id) {
            let name: String = page.id.chars().take(80).collect();
            return Err(refused(run, &format!("a finding is called {name:?}")));
        }
        let directory = run.join(&page.id);
        let is_directory = std::fs::symlink_metadata(&directory).is_ok_and(|meta| meta.is_dir());
        if !is_directory {
            return Err(refused(&directory, "there is no record of this finding"));
        }
        let path = directory.join(RECORD);
        let bytes = read_small(&path, FINDING_BYTES_MAX)?
            .ok_or_else(|| refused(&path, "there is no record of this finding"))?;
        let text = std::str::from_utf8(&bytes).map_err(|_| refused(&path, "it is no text"))?;
        let finding = Finding::parse(text).map_err(|reason| refused(&path, &reason))?;
        let cut = |text: &str| text.chars().take(1000).collect::<String>();
        let cause = Cause {
            kind: cut(&finding.kind),
            subject: cut(&finding.subject),
            signature: cut(&finding.signature),
        };
        Ok(Sighting { cause, page: page.clone(), directory, counts })
    }

    /// The smallest is the best: complete, short, then by name.
    fn rank(&self) -> (bool, usize, &str, &Path) {
        let steps = self.page.ops.len() + self.page.steps.len();
        (!self.page.complete, steps, &self.page.id, &self.directory)
    }
}

/// Findings while they are collected.
#[derive(Default)]
pub(super) struct Findings(BTreeMap<Cause, Group>);

#[derive(Default)]
struct Group {
    best: Option<Sighting>,
    runs: u64,
    sightings: u64,
    /// Ids: only so many that a page can name them.
    ids: BTreeSet<String>,
}

impl Findings {
    pub(super) fn add(&mut self, sighting: Sighting) {
        let group = self.0.entry(sighting.cause.clone()).or_default();
        if sighting.counts {
            group.runs += 1;
            group.sightings = group.sightings.saturating_add(sighting.page.count);
        }
        group.ids.insert(sighting.page.id.clone());
        if group.ids.len() > 20 {
            group.ids.pop_last();
        }
        if group.best.as_ref().is_none_or(|best| sighting.rank() < best.rank()) {
            group.best = Some(sighting);
        }
        if self.0.len() > CAUSES_MAX {
            self.0.pop_last();
        }
    }

    /// The causes, those that most runs show first.
    pub(super) fn finish(self) -> Vec<MergedFinding> {
        let merged = |(cause, group): (Cause, Group)| {
            let best = group.best?;
            let mut page = best.page;
            page.count = group.sightings.max(1);
            let others = group.ids.iter().filter(|id| **id != page.id);
            let others: Vec<String> = others.map(|id| format!("also recorded as {id}")).collect();
            page.variants.extend(others);
            Some(MergedFinding {
                page,
                kind: cause.kind,
                subject: cause.subject,
                signature: cause.signature,
                directory: best.directory,
                runs: group.runs,
                sightings: group.sightings,
            })
        };
        let mut merged: Vec<MergedFinding> = self.0.into_iter().filter_map(merged).collect();
        merged.sort_by_key(|finding| std::cmp::Reverse(finding.runs));
        merged
    }
}
