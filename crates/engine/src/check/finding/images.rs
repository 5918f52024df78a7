//! The disk at some points of a run: a finding can be shown again without its whole history.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;

use fathom_core::{HarnessFault, Op, Saved, Testbed, Trace};
use fathom_record::{Evidence, RecordError};
use serde::Serialize;

use super::{Signature, TraceConfig};
use crate::check::oracle::Oracle;
use crate::check::replay::trace_config;
use crate::check::rerun::Runner;

/// Fast, and a formatted disk is mostly empty anyway.
const LEVEL: i32 = 3;

/// The directory of a finding in which they are.
const DIR: &str = "disks";

/// Larger disks are not believed.
const BYTES_MAX: usize = 1 << 32;

/// A disk, compressed, as it was before operation number `ops` (from 0) of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// Operations executed before.
    pub ops: usize,
    /// zstd
    pub packed: Vec<u8>,
}

/// The last few saved states of a run, by the number of operations before.
#[derive(Debug, Default)]
pub(crate) struct Disks {
    ring: VecDeque<(usize, Saved)>,
}

/// The start from which the finding showed again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reproduction {
    /// Operations of the trace before the disk was taken.
    pub ops_before: usize,
    /// Operations executed on it.
    pub ops: usize,
    /// Disks that were tried before this one.
    pub tried: usize,
}

impl Disks {
    /// Keeps one more state, and lets go of the oldest if there are more than `max`.
    pub(crate) fn push(&mut self, subject: &mut dyn Testbed, ops: usize, saved: Saved, max: usize) {
        self.ring.push_front((ops, saved));
        while self.ring.len() > max {
            if let Some((_, oldest)) = self.ring.pop_back() {
                subject.forget(oldest);
            }
        }
    }

    /// Lets go of all.
    pub(crate) fn clear(&mut self, subject: &mut dyn Testbed) {
        for (_, saved) in self.ring.drain(..) {
            subject.forget(saved);
        }
    }

    /// The disks, the newest first.
    ///
    /// # Errors
    /// If one cannot be read.
    pub(crate) fn read(&self, subject: &mut dyn Testbed) -> Result<Vec<Disk>, HarnessFault> {
        let mut disks = Vec::new();
        for (ops, saved) in &self.ring {
            if let Some(bytes) = subject.image(*saved)? {
                let packed = zstd::encode_all(bytes.as_slice(), LEVEL)
                    .map_err(|error| HarnessFault::new("compressing a disk", error))?;
                disks.push(Disk { ops: *ops, packed });
            }
        }
        Ok(disks)
    }
}

impl Disk {
    /// The file in the directory of a finding.
    pub(super) fn evidence(&self) -> Evidence {
        Evidence::bytes(format!("{DIR}/before-{}.img.zst", self.ops), self.packed.clone())
    }

    /// All disks of a finding, the newest first.
    ///
    /// # Errors
    /// If one cannot be read.
    pub(crate) fn read_all(dir: &Path) -> Result<Vec<Disk>, RecordError> {
        let mut disks = Vec::new();
        for entry in fs::read_dir(dir.join(DIR)).into_iter().flatten() {
            let path =
                entry.map_err(|source| RecordError::Io { path: dir.join(DIR), source })?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let number = name.strip_prefix("before-").and_then(|n| n.strip_suffix(".img.zst"));
            if let Some(ops) = number.and_then(|number| number.parse().ok()) {
                let packed = fs::read(&path).map_err(|source| RecordError::Io { path, source })?;
                disks.push(Disk { ops, packed });
            }
        }
        disks.sort_by_key(|disk| std::cmp::Reverse(disk.ops));
        Ok(disks)
    }

    fn bytes(&self) -> Result<Vec<u8>, HarnessFault> {
        zstd::bulk::decompress(&self.packed, BYTES_MAX)
            .map_err(|error| HarnessFault::new("unpacking a disk of the finding", error))
    }
}

/// Tries the newest disk with the operations that come after it, then the one before, and so on.
/// `trace` is the whole trace of the finding.
///
/// # Errors
/// If the harness fails.
pub fn replay_from_disks(
    subject: &mut dyn Testbed,
    trace: &Trace,
    disks: &[Disk],
) -> Result<Option<Reproduction>, HarnessFault> {
    let TraceConfig { reference, times, signature, .. } = trace_config(trace)?;
    let Some(signature) = signature else { return Ok(None) };
    let oracle = Oracle::new(&reference, times);
    let fsck = Signature::is_checker(&signature);
    let ops: Vec<Op> = trace.ops().cloned().collect();
    let mut runner = Runner {
        subject,
        reference: &reference,
        oracle: &oracle,
        monitor: None,
        fsck,
        patient: true,
    };
    for (tried, disk) in disks.iter().enumerate().filter(|(_, disk)| disk.ops < ops.len()) {
        let (before, after) = ops.split_at(disk.ops);
        let run = runner.run_from(&disk.bytes()?, before, after)?;
        if run.signature() == Some(signature.clone()) {
            return Ok(Some(Reproduction { ops_before: disk.ops, ops: after.len(), tried }));
        }
    }
    Ok(None)
}
