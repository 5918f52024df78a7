//! Checkpoints: a search on disk.
//!
//! A file is one line of magic and version, one line of JSON with everything that is small, the
//! system's own records with their length, the [links](super::links) as written in memory, and the
//! checksum (XXH3, 128 bits) of all that. It is written beside its place, synced and renamed, so
//! there is always a complete one. States are not in it: they are made again by following the links.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fathom_core::Digest;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::search::visited::Visited;

use super::judge::{Judge, Tallies, Tally};
use super::ledger::Ledger;
use super::links::{Links, Segment, put, take};
use super::open::Span;
use super::piece::Setting;
use super::plan::Checkpoints;
use super::system::System;

/// The first line; the number is the version of the format.
const MAGIC: &[u8] = b"fathom search checkpoint 2\n";

/// Bytes of the checksum.
const SUM_BYTES: usize = 16;

/// The reason why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The operating system refused a call.
    #[error("cannot {doing} the checkpoint {}: {error}", path.display())]
    Io {
        /// The purpose of the call.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason from the operating system.
        error: io::Error,
    },
    /// The file is not a checkpoint, one of another version, or a damaged one.
    #[error("{} is not a complete search checkpoint of this version", .0.display())]
    Damaged(PathBuf),
    /// The checkpoint is of another search.
    #[error("{} belongs to another search: {found}, not {expected}", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// The search that it is of.
        found: String,
        /// The search that was to be resumed.
        expected: String,
    },
    /// [`System::load`] refused what [`System::save`] once gave.
    #[error("the records of the system in {} are not of this version", .0.display())]
    Records(PathBuf),
    /// Following the links gave other states than before.
    #[error("the system has changed since {} was written; start again without it", .0.display())]
    Changed(PathBuf),
}

/// The properties that a search must have in common with its checkpoint. Bounds and threads may
/// differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity {
    label: String,
    strategy: String,
    memory: String,
    keeps_depths: bool,
    deadlock: bool,
    properties: Vec<String>,
}

impl Identity {
    pub(super) fn new<S: System, V: Visited>(
        label: &str,
        strategy: &str,
        setting: &Setting<'_, S, V>,
    ) -> Identity {
        Identity {
            label: label.to_owned(),
            strategy: strategy.to_owned(),
            memory: setting.plan.memory.name(),
            keeps_depths: setting.visited.view().keeps_depths(),
            deadlock: setting.plan.deadlock,
            properties: setting.judge.names().map(str::to_owned).collect(),
        }
    }
}

/// The part of a checkpoint that is small.
#[derive(Serialize, Deserialize)]
struct Header {
    identity: Identity,
    states: u64,
    transitions: u64,
    states_by_depth: Vec<u64>,
    key_sum: Digest,
    waiting: Vec<Span>,
    beyond: Vec<Span>,
    unfinished: Vec<Span>,
    /// First node and count of each property.
    found: Vec<(Option<u64>, u64)>,
    segments: usize,
}

/// Writes checkpoints of one search now and then.
pub(super) struct Saver<'a> {
    checkpoints: &'a Checkpoints,
    identity: Identity,
    last: Instant,
    took: Duration,
}

impl<'a> Saver<'a> {
    pub(super) fn new(checkpoints: &'a Checkpoints, identity: Identity) -> Saver<'a> {
        Saver { checkpoints, identity, last: Instant::now(), took: Duration::ZERO }
    }

    pub(super) fn resumes(&self) -> bool {
        self.checkpoints.resume
    }

    /// Whether it is time for another checkpoint.
    pub(super) fn is_due(&self) -> bool {
        self.last.elapsed() >= self.checkpoints.every.max(self.took * 9)
    }

    /// Writes a checkpoint. Between two batches, so that no thread is inside the system.
    pub(super) fn save<S: System>(
        &mut self,
        system: &S,
        ledger: &Ledger,
        waiting: impl Iterator<Item = Span>,
    ) -> Result<(), CheckpointError> {
        let started = Instant::now();
        let header = Header {
            identity: self.identity.clone(),
            states: ledger.states,
            transitions: ledger.transitions,
            states_by_depth: ledger.states_by_depth.clone(),
            key_sum: Digest(ledger.key_sum),
            waiting: waiting.collect(),
            beyond: ledger.beyond.clone(),
            unfinished: ledger.unfinished.clone(),
            found: ledger.found.0.iter().map(|tally| (tally.first, tally.count)).collect(),
            segments: ledger.links.segments().len(),
        };
        let path = &self.checkpoints.path;
        write(path, &header, &system.save(), &ledger.links)
            .map_err(|error| CheckpointError::Io { doing: "write", path: path.clone(), error })?;
        (self.last, self.took) = (Instant::now(), started.elapsed());
        Ok(())
    }

    /// Reads the checkpoint: the ledger, and the nodes that wait. The system gets its records.
    pub(super) fn load<S: System>(
        &self,
        system: &S,
        judge: &Judge<'_, S>,
    ) -> Result<(Ledger, Vec<Span>), CheckpointError> {
        let path = &self.checkpoints.path;
        let bytes = fs::read(path).map_err(|error| CheckpointError::Io {
            doing: "read",
            path: path.clone(),
            error,
        })?;
        let (header, records, links) =
            parse(&bytes).ok_or_else(|| CheckpointError::Damaged(path.clone()))?;
        if header.identity != self.identity {
            let (found, expected) =
                (format!("{:?}", header.identity), format!("{:?}", self.identity));
            return Err(CheckpointError::Other { path: path.clone(), found, expected });
        }
        if !system.load(records) {
            return Err(CheckpointError::Records(path.clone()));
        }
        let tally = |(first, count)| Tally { first, count };
        let ledger = Ledger {
            links,
            states: header.states,
            transitions: header.transitions,
            states_by_depth: header.states_by_depth,
            key_sum: header.key_sum.0,
            beyond: header.beyond,
            unfinished: header.unfinished,
            found: Tallies(header.found.into_iter().map(tally).collect()),
        };
        judge.settle(&ledger.found);
        Ok((ledger, header.waiting))
    }

    /// The error for a system that no longer does what it did.
    pub(super) fn changed(&self) -> CheckpointError {
        CheckpointError::Changed(self.checkpoints.path.clone())
    }
}

fn write(path: &Path, header: &Header, records: &[u8], links: &Links) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = Summed { file: BufWriter::new(File::create(&beside)?), sum: XxHash3_128::new() };
    file.write_all(MAGIC)?;
    serde_json::to_writer(&mut file, header)?;
    file.write_all(b"\n")?;
    let mut numbers = Vec::new();
    put(&mut numbers, records.len() as u64);
    file.write_all(&numbers)?;
    file.write_all(records)?;
    for segment in links.segments() {
        numbers.clear();
        put(&mut numbers, segment.first_parent);
        put(&mut numbers, segment.nodes);
        put(&mut numbers, segment.bytes.len() as u64);
        file.write_all(&numbers)?;
        file.write_all(&segment.bytes)?;
    }
    let Summed { mut file, sum } = file;
    file.write_all(&sum.finish_128().to_le_bytes())?;
    file.into_inner()?.sync_all()?;
    fs::rename(&beside, path)?;
    // The rename itself is durable only once its directory is (fsync(2)).
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

/// A writer that computes the checksum of what it writes.
struct Summed {
    file: BufWriter<File>,
    sum: XxHash3_128,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all(bytes)?;
        self.sum.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Parses a checkpoint; none if anything is not as written.
fn parse(bytes: &[u8]) -> Option<(Header, &[u8], Links)> {
    let (body, sum) = bytes.split_last_chunk::<SUM_BYTES>()?;
    if XxHash3_128::oneshot(body).to_le_bytes() != *sum {
        return None;
    }
    let body = body.strip_prefix(MAGIC)?;
    let line = body.iter().position(|byte| *byte == b'\n')?;
    let header: Header = serde_json::from_slice(&body[..line]).ok()?;
    let mut rest = &body[line + 1..];
    let records = take_bytes(&mut rest)?;
    let mut links = Links::default();
    for _ in 0..header.segments {
        let (first_parent, nodes) = (take(&mut rest)?, take(&mut rest)?);
        let segment = take_bytes(&mut rest)?;
        links.append(Segment::decode(first_parent, nodes, segment.to_vec())?);
    }
    rest.is_empty().then_some((header, records, links))
}

/// Reads a length and so many bytes.
fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take(rest)?).ok()?;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}
