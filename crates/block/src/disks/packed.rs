//! The file format of recordings: a line with the version, then postcard in zstd. Operations, answers
//! and trees are JSON inside: they are tagged with names, which only a format that describes itself
//! can read back. What was said of files comes last, and is left out if nobody was asked: recordings of
//! earlier versions end before it.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::account::Accounts;
use super::recording::Recording;
use super::stored::{Segment, StoredError, StoredRecording};
use crate::image::{Erased, Image};
use crate::log::{Event, WriteLog};

/// The version of the format.
pub(super) const VERSION: u32 = 1;

/// Bytes of a disk that are stored together, or left out if they are erased.
const CHUNK_BYTES: usize = 512;

#[derive(Serialize, Deserialize)]
struct PackedSegment {
    size_bytes: usize,
    erased: Erased,
    chunks: Vec<(usize, Vec<u8>)>,
    ops: String,
    outcomes: String,
    unmounted: Option<String>,
    tree: Option<String>,
    marks: Vec<usize>,
    events: Vec<PackedEvent>,
}

#[derive(Serialize, Deserialize)]
enum PackedEvent {
    Write { at: usize, data: Vec<u8>, fua: bool, metadata: bool },
    Erase { at: usize, len: usize },
    Flush,
    Mark(Vec<u8>),
}

fn first_line() -> String {
    format!("fathom recording {VERSION}\n")
}

pub(super) fn pack(stored: &StoredRecording) -> Vec<u8> {
    let segments: Vec<PackedSegment> = stored.segments.iter().map(pack_segment).collect();
    let mut plain = postcard::to_stdvec(&segments).expect("plain data");
    let accounts: Vec<_> = stored.segments.iter().map(|it| &it.recording.accounts).collect();
    if accounts.iter().any(|accounts| !accounts.is_empty()) {
        plain.extend(json(&accounts).into_bytes());
    }
    let mut bytes = first_line().into_bytes();
    // Writing to memory does not fail.
    bytes.extend(zstd::encode_all(&*plain, 0).expect("memory takes everything"));
    bytes
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data")
}

fn pack_segment(segment: &Segment) -> PackedSegment {
    let Segment { base, ops, recording } = segment;
    let Recording { outcomes, log, marks, unmounted, tree, accounts: _ } = recording;
    let chunks = (0..base.size()).step_by(CHUNK_BYTES).filter_map(|at| {
        let mut bytes = vec![0; CHUNK_BYTES.min(base.size() - at)];
        base.read(at, &mut bytes);
        bytes.iter().any(|byte| *byte != base.erased().byte()).then_some((at, bytes))
    });
    PackedSegment {
        size_bytes: base.size(),
        erased: base.erased(),
        chunks: chunks.collect(),
        ops: json(ops),
        outcomes: json(outcomes),
        unmounted: unmounted.as_ref().map(json),
        tree: tree.as_ref().map(json),
        marks: marks.clone(),
        events: log.events().map(pack_event).collect(),
    }
}

fn pack_event(event: Event<'_>) -> PackedEvent {
    match event {
        Event::Write { at, data, fua, metadata } => {
            PackedEvent::Write { at, data: data.to_vec(), fua, metadata }
        }
        Event::Erase { at, len } => PackedEvent::Erase { at, len },
        Event::Flush => PackedEvent::Flush,
        Event::Mark(name) => PackedEvent::Mark(name.to_vec()),
    }
}

fn damaged(error: impl ToString) -> StoredError {
    StoredError::Damaged(error.to_string())
}

pub(super) fn unpack(bytes: &[u8]) -> Result<StoredRecording, StoredError> {
    let Some(packed) = bytes.strip_prefix(first_line().as_bytes()) else {
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let found = String::from_utf8_lossy(&line[..line.len().min(40)]).into_owned();
        return Err(StoredError::Version { found });
    };
    let plain = zstd::decode_all(packed).map_err(damaged)?;
    let (segments, rest): (Vec<PackedSegment>, _) =
        postcard::take_from_bytes(&plain).map_err(damaged)?;
    let segments = segments.into_iter().map(unpack_segment).collect::<Result<_, _>>()?;
    let mut stored = StoredRecording { segments };
    if !rest.is_empty() {
        let accounts: Vec<Vec<Accounts>> = serde_json::from_slice(rest).map_err(damaged)?;
        for (segment, accounts) in stored.segments.iter_mut().zip(accounts) {
            segment.recording.accounts = accounts;
        }
    }
    Ok(stored)
}

fn from_json<T: DeserializeOwned>(text: &str) -> Result<T, StoredError> {
    serde_json::from_str(text).map_err(damaged)
}

fn unpack_segment(packed: PackedSegment) -> Result<Segment, StoredError> {
    let mut base = Image::new(packed.size_bytes, packed.erased);
    for (at, bytes) in &packed.chunks {
        if at.checked_add(bytes.len()).is_none_or(|end| end > packed.size_bytes) {
            return Err(damaged("a disk is larger than it says"));
        }
        base.write(*at, bytes);
    }
    let log: WriteLog = packed.events.iter().map(event).collect();
    let ops: Vec<_> = from_json(&packed.ops)?;
    let recording = Recording {
        outcomes: from_json(&packed.outcomes)?,
        marks: packed.marks,
        unmounted: packed.unmounted.as_deref().map(from_json).transpose()?,
        tree: packed.tree.as_deref().map(from_json).transpose()?,
        accounts: Vec::new(),
        log,
    };
    let ends = 1 + usize::from(recording.unmounted.is_some());
    if recording.marks.len() != ops.len() + ends || recording.outcomes.len() != ops.len() {
        return Err(damaged("operations, answers and marks do not belong together"));
    }
    if !recording.marks.is_sorted() || recording.marks.last() > Some(&recording.log.len()) {
        return Err(damaged("a mark is outside of the log"));
    }
    if recording.log.extent_bytes() > packed.size_bytes {
        return Err(damaged("the log writes beyond the disk"));
    }
    Ok(Segment { base, ops, recording })
}

fn event(packed: &PackedEvent) -> Event<'_> {
    match packed {
        PackedEvent::Write { at, data, fua, metadata } => {
            Event::Write { at: *at, data, fua: *fua, metadata: *metadata }
        }
        PackedEvent::Erase { at, len } => Event::Erase { at: *at, len: *len },
        PackedEvent::Flush => Event::Flush,
        PackedEvent::Mark(name) => Event::Mark(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::Account;
    use fathom_core::{Op, Outcome};

    fn stored() -> StoredRecording {
        let mut base = Image::new(5000, Erased::Ones);
        base.write(700, b"fathom");
        let events = [
            Event::Mark(b"mount"),
            Event::Write { at: 16, data: b"data", fua: true, metadata: true },
            Event::Flush,
            Event::Erase { at: 4096, len: 256 },
        ];
        let recording = Recording {
            outcomes: vec![Outcome::ok(3)],
            log: events.into_iter().collect(),
            marks: vec![1, 3, 4],
            unmounted: Some(Outcome::ok(0)),
            tree: Some(fathom_core::PlainTree::new().finish()),
            accounts: vec![[("a".into(), Account { blocks_512: 8, mtime: (7, 9) })].into()],
        };
        StoredRecording { segments: vec![Segment { base, ops: vec![Op::Sync], recording }] }
    }

    #[test]
    fn what_is_stored_is_read_back() {
        let bytes = stored().to_bytes();
        assert!(bytes.starts_with(b"fathom recording 1\n"));
        assert_eq!(StoredRecording::from_bytes(&bytes), Ok(stored()));
        assert!(bytes.len() < 700, "{} bytes", bytes.len());
    }

    #[test]
    fn other_versions_and_damage_are_refused() {
        let error = |bytes: &[u8]| StoredRecording::from_bytes(bytes).unwrap_err().to_string();
        let bytes = stored().to_bytes();
        let newer = [b"fathom recording 2\n", &bytes[19..]].concat();
        assert_eq!(
            error(&newer),
            "not a recording of version 1: it begins with \"fathom recording 2\""
        );
        assert!(error(&bytes[..bytes.len() - 9]).starts_with("the recording is damaged"));
        let mut wrong = [stored(), stored(), stored()];
        wrong[0].segments[0].recording.marks = vec![1, 3, 5];
        wrong[1].segments[0].recording.outcomes.clear();
        wrong[2].segments[0].base = Image::new(4100, Erased::Ones);
        for (wrong, what) in wrong.iter().zip(["a mark is", "do not belong", "beyond the disk"]) {
            let error = error(&wrong.to_bytes());
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn a_prefix_is_as_if_the_power_had_failed() {
        let recording = &stored().segments[0].recording;
        let prefix = recording.prefix(1).unwrap();
        assert_eq!((prefix.log.len(), prefix.marks, prefix.unmounted), (3, vec![1, 3], None));
        assert_eq!(recording.prefix(0).unwrap().log.len(), 1);
        assert_eq!(recording.prefix(3), None);
    }
}
