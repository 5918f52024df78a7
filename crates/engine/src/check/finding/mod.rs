//! What is wrong with a subject: verified, shrunk, told and recorded.

mod evidence;
pub mod images;
pub mod investigate;
mod page;
mod rebuild;
pub mod record;
mod reproducers;
mod shorten_paths;
pub(crate) mod shrink;
mod slice;
mod smaller;
mod story;

use std::collections::BTreeMap;

use fathom_core::{Digest, Op, Trace, Violation};
use serde::{Deserialize, Serialize};

pub use images::Disk;
pub(crate) use images::Disks;
pub use record::{Recorded, Stored};

use crate::check::oracle::Signature;
use crate::check::rerun::Trees;

/// Domain of the digest that names a finding.
const DOMAIN_FINDING: u64 = 16;

/// Everything known of one finding.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Names it: the first digits of a digest of subject, signature and minimal operations.
    pub id: String,
    /// The class of the violation.
    pub violation: Violation,
    /// The cause, by which it is the same as another.
    pub signature: Signature,
    /// The episode in the seed's stream of choices.
    pub episode: u64,
    /// The run up to the violation.
    pub trace: Trace,
    /// The shortest run that still shows it.
    pub minimal: Trace,
    /// The trees around the last operation of the minimal run.
    pub trees: Trees,
    /// Every complete run of the trace, the first included.
    pub runs: Vec<RunRecord>,
    /// Labels for the reader: kernel version, profile, ….
    pub labels: BTreeMap<String, String>,
    /// The disk at some points of the trace, the newest first.
    pub disks: Vec<Disk>,
    /// The number of times that the campaign came across it.
    pub sightings: u64,
    /// Whether it was run again and shrunk, as far as that is possible.
    pub complete: bool,
}

/// The end of one run of a finding's trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The number of the run.
    pub run: String,
    /// Operations executed.
    pub ops: usize,
    /// The signature of what was seen, or that nothing was.
    pub seen: String,
}

/// The configuration of the reference and the judge: the `config` of a trace's header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceConfig {
    /// The reference.
    pub reference: fathom_model::Config,
    /// Whether the order of timestamps was compared.
    #[serde(default)]
    pub times: bool,
    /// The violation of the last step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<Signature>,
    /// How many operations the run was to have, if it ended earlier: a long one is looked at more closely
    /// towards its end, and a replay looks where the run did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops_planned: Option<usize>,
}

impl Finding {
    /// Runs after the first that showed the same violation, of how many.
    pub fn reproduced(&self) -> (usize, usize) {
        let again = self.runs.get(1..).unwrap_or_default();
        let signature = self.signature.to_string();
        (again.iter().filter(|run| run.seen == signature).count(), again.len())
    }
}

/// The name of a finding.
pub(crate) fn finding_id<'a>(
    subject: &str,
    signature: &Signature,
    ops: impl Iterator<Item = &'a Op>,
) -> String {
    let mut text = format!("{subject}\n{signature}\n");
    for op in ops {
        text.push_str(&serde_json::to_string(op).expect("an operation is plain data"));
        text.push('\n');
    }
    Digest::of(DOMAIN_FINDING, text.as_bytes()).to_string()[..12].to_owned()
}
