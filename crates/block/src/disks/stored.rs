//! Recordings as evidence: everything that a run told its disks, in one file.
//!
//! A file system that is not deterministic writes something else each time; what it wrote when it was
//! found is judged again from here. [`Capture`] keeps what is recorded, [`Playback`] answers from it:
//! both stand where the file system itself would stand.

use std::sync::{Arc, Mutex, PoisonError};

use fathom_core::{HarnessFault, Op};

use super::packed;
use super::{DiskFileSystem, DiskWrapper, End, Recording, SubjectFailure, Workload};
use crate::image::Image;

/// One mount of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The disk that was mounted.
    pub base: Image,
    /// The operations.
    pub ops: Vec<Op>,
    /// What happened.
    pub recording: Recording,
}

impl Segment {
    /// Whether the recording answers for a workload on a disk.
    fn answers(&self, base: &Image, workload: &Workload<'_>) -> bool {
        let same = |(mine, other): (&Op, &&Op)| mine == *other;
        let is_prefix = workload.ops.len() <= self.ops.len()
            && self.ops.iter().zip(workload.ops).all(same)
            && self.base.digest() == base.digest();
        let is_whole = workload.ops.len() == self.ops.len();
        let unmounts = self.recording.unmounted.is_some();
        is_prefix
            && match workload.end {
                End::Unmount => is_whole && unmounts,
                End::PowerOff => !workload.look || (is_whole && !unmounts),
            }
            && (!workload.look || self.recording.tree.is_some())
    }

    fn recording(&self, workload: &Workload<'_>) -> Option<Recording> {
        match workload.end {
            End::PowerOff if !workload.look => self.recording.prefix(workload.ops.len()),
            _ => Some(self.recording.clone()),
        }
    }
}

/// All mounts of a run, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredRecording {
    /// The mounts.
    pub segments: Vec<Segment>,
}

/// Bytes that are no recording of this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredError {
    /// Another version, or another kind of file.
    #[error("not a recording of version {version}: it begins with {found:?}", version = packed::VERSION)]
    Version {
        /// The first line.
        found: String,
    },
    /// The contents do not make sense.
    #[error("the recording is damaged: {0}")]
    Damaged(String),
}

impl StoredRecording {
    /// The file.
    pub fn to_bytes(&self) -> Vec<u8> {
        packed::pack(self)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// If it is of another version or damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<StoredRecording, StoredError> {
        packed::unpack(bytes)
    }

    /// What was recorded of a workload on a disk.
    fn find(&self, base: &Image, workload: &Workload<'_>) -> Option<Recording> {
        let found = self.segments.iter().rev().find(|segment| segment.answers(base, workload));
        found.and_then(|segment| segment.recording(workload))
    }
}

/// A file system whose recordings are kept.
pub struct Capture<'a> {
    inner: &'a dyn DiskFileSystem,
    kept: Arc<Mutex<StoredRecording>>,
}

impl<'a> Capture<'a> {
    /// Keeps what is recorded of `inner` in `kept`.
    pub fn new(inner: &'a dyn DiskFileSystem, kept: Arc<Mutex<StoredRecording>>) -> Capture<'a> {
        Capture { inner, kept }
    }
}

impl<'a> DiskWrapper for Capture<'a> {
    type Inner = dyn DiskFileSystem + 'a;

    fn inner(&self) -> &Self::Inner {
        self.inner
    }

    fn record_wrapped(
        &self,
        base: &Image,
        workload: &Workload<'_>,
    ) -> Result<Result<Recording, SubjectFailure>, HarnessFault> {
        let recorded = self.inner.record(base, workload)?;
        if let Ok(recording) = &recorded {
            let ops = workload.ops.iter().map(|op| (*op).clone()).collect();
            let segment = Segment { base: base.clone(), ops, recording: recording.clone() };
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            // A run is repeated from its last mount for each operation: the longest one counts.
            kept.segments.retain(|shorter| {
                let ended = shorter.recording.unmounted.is_some();
                ended || shorter.base != segment.base || !segment.ops.starts_with(&shorter.ops)
            });
            kept.segments.push(segment);
        }
        Ok(recorded)
    }
}

/// A file system that writes what it wrote when it was recorded, and is examined as it is now.
pub struct Playback<'a> {
    inner: &'a dyn DiskFileSystem,
    stored: &'a StoredRecording,
}

impl<'a> Playback<'a> {
    /// Answers from `stored` instead of recording `inner`.
    pub fn new(inner: &'a dyn DiskFileSystem, stored: &'a StoredRecording) -> Playback<'a> {
        Playback { inner, stored }
    }
}

impl<'a> DiskWrapper for Playback<'a> {
    type Inner = dyn DiskFileSystem + 'a;

    fn inner(&self) -> &Self::Inner {
        self.inner
    }

    fn make(&self) -> Result<Image, HarnessFault> {
        match self.stored.segments.first() {
            Some(first) => Ok(first.base.clone()),
            None => self.inner.format(),
        }
    }

    fn repeats_itself(&self) -> bool {
        true
    }

    fn record_wrapped(
        &self,
        base: &Image,
        workload: &Workload<'_>,
    ) -> Result<Result<Recording, SubjectFailure>, HarnessFault> {
        let missing = || {
            let what = format!("it has no mount with these {} operations", workload.ops.len());
            HarnessFault::new("playing a recording", what)
        };
        match self.stored.find(base, workload) {
            Some(recording) => Ok(Ok(recording)),
            // What is in the files of a disk that is judged is no part of the recording.
            None if only_reads(workload) => self.inner.record(base, workload),
            None => Err(missing()),
        }
    }
}

/// Whether a workload only looks at contents.
fn only_reads(workload: &Workload<'_>) -> bool {
    let reads = |op: &&Op| match op {
        Op::Open { flags, .. } => flags.is_empty(),
        Op::Pread { .. } => true,
        _ => false,
    };
    !workload.ops.is_empty() && workload.ops.iter().all(reads)
}
