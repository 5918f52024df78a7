//! What several callers have found: the history that no order explains, drawn, with the round that led to it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fathom_core::{Digest, Header, Outcome, Payload, Trace};
use fathom_record::{Evidence, RecordError};
use serde::{Deserialize, Serialize};

use super::CallersPlan;
use super::round::{Round, Seen};
use crate::check::SeenFirst;
use crate::linear::timeline::draw;
use crate::linear::{Conflict, History};

/// The kind of these findings.
pub const KIND: &str = "callers";

/// The file that has what is run again.
const ROUND_FILE: &str = "round.json";

/// Domain of the digest that names a finding.
const DOMAIN_CALLERS: u64 = 17;

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// No order of the calls explains all answers and the last tree.
    NoOrder(Conflict),
    /// The kernel complained.
    KernelLog {
        /// What it logged.
        lines: Vec<String>,
    },
    /// The checker is not content with the disk.
    Checker {
        /// The command.
        command: String,
        /// Its exit code.
        code: Option<i32>,
        /// What it printed.
        output: String,
    },
}

impl Wrong {
    /// The class of what the checker says.
    pub(super) const CHECKER: &str = "checker";

    /// What a smaller round has to show as well: an answer without an order may be another one, what the kernel
    /// or the checker says may not.
    pub(super) fn sameness(&self, signature: &str) -> String {
        match self {
            Wrong::NoOrder(_) => self.class().to_owned(),
            Wrong::KernelLog { .. } | Wrong::Checker { .. } => signature.to_owned(),
        }
    }

    /// The class of the finding.
    pub fn class(&self) -> &'static str {
        match self {
            Wrong::NoOrder(_) => "no_order",
            Wrong::KernelLog { .. } => "kernel_log",
            Wrong::Checker { .. } => Wrong::CHECKER,
        }
    }

    /// Class, operation and kinds of answers: what makes it the same as another.
    pub(super) fn signature(&self, history: &History) -> String {
        match self {
            Wrong::NoOrder(Conflict { step: None, .. }) => "no_order tree".to_owned(),
            Wrong::NoOrder(Conflict { step: Some(step), possible, .. }) => {
                let step = &history.steps[*step];
                let mut kinds: Vec<String> = possible.iter().map(kind).collect();
                kinds.sort();
                kinds.dedup();
                let found = kind(&step.outcome);
                format!("no_order {} {}/{found}", step.op.name(), kinds.join("|"))
            }
            Wrong::KernelLog { lines } => {
                let first = lines.first().map(String::as_str).unwrap_or_default();
                let words =
                    first.split_whitespace().filter(|word| word.chars().all(char::is_alphabetic));
                format!("kernel_log {}", words.take(8).collect::<Vec<_>>().join(" "))
            }
            Wrong::Checker { code, .. } => {
                format!("checker {}", code.map_or("signal".to_owned(), |code| code.to_string()))
            }
        }
    }
}

/// An answer without its numbers.
fn kind(outcome: &Outcome) -> String {
    match (&outcome.result, &outcome.payload) {
        (Err(errno), _) => errno.to_string(),
        (Ok(_), Payload::Data(_)) => "data".to_owned(),
        (Ok(_), Payload::Stat(_)) => "attributes".to_owned(),
        (Ok(_), Payload::Entries(_) | Payload::Names(_)) => "names".to_owned(),
        (Ok(_), Payload::Statfs(_)) => "counts".to_owned(),
        (Ok(_), Payload::None) => "ok".to_owned(),
    }
}

/// Everything known of one finding.
#[derive(Clone, Debug)]
pub struct CallersFinding {
    /// Names it.
    pub id: String,
    /// What makes it the same as another.
    pub signature: String,
    /// What is wrong with `seen`.
    pub wrong: Wrong,
    /// As on the command line.
    pub subject: String,
    /// The seed of the campaign.
    pub seed: u64,
    /// What was done, made as small as it could be.
    pub round: Round,
    /// Calls of the round before that.
    pub calls_first: usize,
    /// Calls with a delay before that.
    pub delays_first: usize,
    /// What was seen of it.
    pub seen: Seen,
    /// When it was seen first.
    pub seen_first: SeenFirst,
    /// Further runs of the round as it was found.
    pub runs: usize,
    /// How many of them showed something wrong.
    pub runs_reproduced: usize,
    /// How often it was met.
    pub sightings: u64,
    /// Whether it was run again.
    pub complete: bool,
    /// The reference.
    pub reference: fathom_model::Config,
    /// Kernel version, profile, ….
    pub labels: BTreeMap<String, String>,
}

/// What a replay needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRound {
    /// The subject, as it can be typed.
    pub subject: String,
    /// The profile whose relaxations hold.
    pub profile: String,
    /// The signature.
    pub signature: String,
    /// The reference.
    pub reference: fathom_model::Config,
    /// What is done.
    pub round: Round,
}

impl StoredRound {
    /// Reads it from the directory of a finding.
    ///
    /// # Errors
    /// If it cannot be read or is damaged.
    pub fn read(dir: &Path) -> Result<StoredRound, RecordError> {
        let path = dir.join(ROUND_FILE);
        let text = fs::read_to_string(&path)
            .map_err(|source| RecordError::Io { path: path.clone(), source })?;
        serde_json::from_str(&text)
            .map_err(|error| RecordError::Damaged { path, message: error.to_string() })
    }

    /// Whether a directory has a finding of this kind.
    pub fn is_in(dir: &Path) -> bool {
        fathom_record::Finding::read(dir).is_ok_and(|finding| finding.kind == KIND)
    }
}

impl CallersFinding {
    pub(super) fn new(
        subject: &str,
        plan: &CallersPlan,
        round: &Round,
        seen: Seen,
        wrong: Wrong,
    ) -> CallersFinding {
        let signature = wrong.signature(&seen.history);
        let text = format!("{subject}\n{signature}\n{}\n{}", plan.seed, round.number);
        CallersFinding {
            id: Digest::of(DOMAIN_CALLERS, text.as_bytes()).to_string()[..12].to_owned(),
            signature,
            wrong,
            subject: subject.to_owned(),
            seed: plan.seed,
            round: round.clone(),
            calls_first: round.schedule.len(),
            delays_first: round.schedule.delays(),
            seen,
            seen_first: SeenFirst::default(),
            runs: 0,
            runs_reproduced: 0,
            sightings: 1,
            complete: false,
            reference: plan.reference.clone(),
            labels: plan.labels.clone(),
        }
    }

    /// What people read.
    pub fn story(&self) -> String {
        let mut story = format!(
            "{} on {}: {}\n\nround {} of seed {} ({}), schedule {}: {} calls at once of {} before shrinking, \
             delays before {} of {}",
            self.signature,
            self.subject,
            self.claim(),
            self.round.number,
            self.seed,
            self.round.theme,
            self.round.attempt,
            self.round.schedule.len(),
            self.calls_first,
            self.round.schedule.delays(),
            self.delays_first,
        );
        if self.runs > 0 {
            story.push_str(&format!(
                "; the round as it was found showed something wrong in {} of {} further runs",
                self.runs_reproduced, self.runs
            ));
        }
        story.push_str("\n\n");
        story.push_str(&self.details());
        story
    }

    fn claim(&self) -> &'static str {
        match &self.wrong {
            Wrong::NoOrder(Conflict { step: Some(_), .. }) => {
                "no order of the overlapping calls explains this answer"
            }
            Wrong::NoOrder(_) => "no order of the overlapping calls explains the tree at the end",
            Wrong::KernelLog { .. } => "the kernel complained",
            Wrong::Checker { .. } => "the checker found something",
        }
    }

    fn details(&self) -> String {
        match &self.wrong {
            Wrong::NoOrder(conflict) => {
                let mut text = self.timeline(conflict);
                if let Some(step) = conflict.step {
                    let step = &self.seen.history.steps[step];
                    text.push_str(&format!(
                        "\ncaller {}: {} = {}\n",
                        step.caller, step.op, step.outcome
                    ));
                    for answer in &conflict.possible {
                        text.push_str(&format!("could have been: {answer}\n"));
                    }
                }
                text
            }
            Wrong::KernelLog { lines } => lines.join("\n") + "\n",
            Wrong::Checker { command, output, .. } => format!("{command}\n{output}\n"),
        }
    }

    /// The calls that contradict each other, drawn.
    pub fn timeline(&self, conflict: &Conflict) -> String {
        let mark =
            conflict.step.and_then(|step| conflict.needed.iter().position(|one| *one == step));
        draw(&self.seen.history.of(&conflict.needed), mark)
    }

    /// The finding with all its files, as every command records it.
    pub fn record(&self) -> fathom_record::Finding {
        let mut record = fathom_record::Finding::new(KIND, &self.id, &self.signature);
        record.title = format!("{} on {}", self.signature, self.subject);
        record.class = self.wrong.class().to_owned();
        record.subject = self.subject.clone();
        record.complete = self.complete;
        record.sightings = self.sightings;
        (record.runs, record.runs_reproduced) = (self.runs, self.runs_reproduced);
        record.story = self.story();
        record.labels = self.labels.clone();
        record.labels.insert("seed".to_owned(), self.seed.to_string());
        record.details.insert("round".to_owned(), (self.round.number as i64).into());
        record.details.insert("schedule".to_owned(), (self.round.attempt as i64).into());
        record.details.insert("calls".to_owned(), (self.round.schedule.len() as i64).into());
        record.evidence = self.evidence();
        let lanes = self.round.schedule.lanes.iter().enumerate();
        record.page.ops = lanes
            .flat_map(|(caller, lane)| {
                lane.iter().map(move |planned| format!("caller {caller}: {}", planned.op))
            })
            .collect();
        record.page.in_flight = record.page.ops.len();
        record.page.differences = self.details().lines().map(str::to_owned).collect();
        record
    }

    fn evidence(&self) -> Vec<Evidence> {
        let stored = StoredRound {
            subject: self.subject.clone(),
            profile: self.labels.get("profile").cloned().unwrap_or_default(),
            signature: self.signature.clone(),
            reference: self.reference.clone(),
            round: self.round.clone(),
        };
        let round = serde_json::to_string_pretty(&stored).expect("a round is plain data");
        let mut header = Header::new(&*self.subject, "model").with_callers();
        header.seed = Some(self.seed);
        let trace = Trace { header, steps: self.seen.history.steps.clone() };
        let mut bytes = Vec::new();
        trace.write(&mut bytes).expect("memory takes every trace");
        let mut files = vec![
            Evidence::text(ROUND_FILE, round + "\n"),
            Evidence::bytes("history.jsonl", bytes),
            Evidence::text("history.txt", draw(&self.seen.history, None)),
        ];
        if let Some(last) = &self.seen.history.last {
            files.push(Evidence::text("last.tree", last.to_string()));
        }
        if let Wrong::NoOrder(conflict) = &self.wrong {
            files.push(Evidence::text("timeline.txt", self.timeline(conflict)));
        }
        files
    }
}
