//! What reports show of a finding.

use fathom_core::{Claim, Entry, FsPath, Kind, Tree};
use fathom_record::run::{ClaimLine, FindingPage, TreeLine};

use super::Finding;

impl Finding {
    /// The parts of the story, for reports.
    pub(super) fn page(&self) -> FindingPage {
        let steps = &self.minimal.steps;
        let line = |step: &fathom_core::Step| format!("{} = {}", step.op, step.outcome);
        FindingPage {
            ops: steps.iter().map(line).collect(),
            in_flight: steps.len().saturating_sub(1),
            before: tree_lines(&self.trees.before),
            promised: vec![tree_lines(&self.trees.expected)],
            found: tree_lines(&self.trees.after),
            differences: self.diff().lines().map(str::to_owned).collect(),
            claims: self.minimal.header.claims.iter().map(claim_line).collect(),
            story: self.reproduction(),
            ..FindingPage::default()
        }
    }

    /// A sentence on how often it was seen again.
    fn reproduction(&self) -> String {
        let (again, runs) = self.reproduced();
        match (self.complete, again) {
            (false, _) => "As it was first seen: not yet run again.".to_owned(),
            (true, 0) => {
                format!("Not reproduced: {runs} more runs of the same operations were fine.")
            }
            (true, again) => format!("Seen again in {again} of {runs} runs."),
        }
    }
}

fn claim_line(claim: &Claim) -> ClaimLine {
    ClaimLine {
        what: claim.probe.to_string(),
        expected: claim.expected.clone(),
        found: claim.found.clone(),
    }
}

/// A tree, entry by entry, in words.
pub(crate) fn tree_lines(tree: &Tree) -> Vec<TreeLine> {
    let line = |(path, entry): (&FsPath, &Entry)| TreeLine {
        path: path.to_string(),
        text: entry_text(entry),
    };
    tree.entries.iter().map(line).collect()
}

/// Everything in which two entries may differ.
fn entry_text(entry: &Entry) -> String {
    if let Some(broken) = &entry.broken {
        return format!("{} fails with {}", broken.call, broken.errno);
    }
    let mut text = match entry.kind {
        Kind::Dir => "directory".to_owned(),
        Kind::File if entry.size == 0 => "file, empty".to_owned(),
        Kind::File => {
            format!("file, {} bytes, contents {}", entry.size, &entry.content.to_string()[..8])
        }
        other => format!("{other:?}").to_lowercase(),
    };
    text.push_str(&format!(", mode {}, owner {}:{}", entry.mode, entry.uid, entry.gid));
    text.push_str(&format!(", {} links", entry.nlink));
    if !entry.target.as_bytes().is_empty() {
        text.push_str(&format!(", to {}", entry.target));
    }
    if !entry.xattrs.is_empty() {
        text.push_str(&format!(", {} xattrs", entry.xattrs.len()));
    }
    text
}
