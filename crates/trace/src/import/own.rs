//! Reads Fathom's own records and traces.

use std::io::BufReader;
use std::path::Path;

use fathom_core::TraceReader;
use fathom_core::partition::{Coverage, Granularity};

use super::{Found, Reader};
use crate::error::{Result, TraceError};
use crate::record::Line;
use crate::sample::Samples;

/// Reads calls recorded by `fathom cover --record`.
#[derive(Default)]
pub(super) struct Record {
    samples: Samples,
}

impl Reader for Record {
    fn line(&mut self, line: &[u8]) -> bool {
        let line: Option<Line> = serde_json::from_slice(line).ok();
        let Some(sample) = line.and_then(|line| line.sample()) else { return false };
        self.samples.add(sample, 1);
        true
    }

    fn finish(self: Box<Self>) -> Found {
        Found { samples: self.samples, has_outputs: true, limits: Vec::new() }
    }
}

/// Counts the operations of a trace (`trace.jsonl` of a finding).
pub(super) fn trace(path: &Path, how: Granularity) -> Result<Coverage> {
    let failed = |reason: String| TraceError::Log { path: path.to_owned(), line: 1, reason };
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let reader =
        TraceReader::new(BufReader::new(file)).map_err(|error| failed(error.to_string()))?;
    let mut coverage = Coverage::new(how);
    for step in reader {
        let step = step.map_err(|error| failed(error.to_string()))?;
        coverage.add(&step.op, &step.outcome);
    }
    Ok(coverage)
}
