//! Questions about disks and their answers as files, for a worker in another place: a guest whose kernel
//! may die of them.
//!
//! All questions of a batch are one file ([`write_questions`]); each answer is a file of its own, so that
//! those from before a death are there ([`Answer::to_bytes`]). Disks are stored as what differs from the
//! first one. Nothing is versioned: both sides are the same build of the same program.

use fathom_core::{HarnessFault, Op};
use serde::{Deserialize, Serialize};

use super::facts::{Facts, Questions, SubjectFailure};
use super::recording::{End, Recording, Workload};
use super::stored::{Segment, StoredRecording};
use super::{DiskFileSystem, borrow_all};
use crate::backed::Guarantee;
use crate::geometry::Geometry;
use crate::image::{Erased, Image};

/// Bytes of a disk that are stored together, or left out if they are as on the first disk.
const CHUNK_BYTES: usize = 512;

/// Something that a worker is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Which file system it is, and what a new disk looks like.
    Describe,
    /// See [`super::Record`].
    Record {
        /// The disk that is mounted.
        base: Image,
        /// What is executed on it.
        ops: Vec<Op>,
        /// What comes after that.
        end: End,
        /// Whether the tree is looked at before the end.
        look: bool,
    },
    /// See [`super::Examine`]: one disk, so that a worker that dies of it accuses no other.
    Examine {
        /// The disk.
        disk: Image,
        /// What is asked about it.
        questions: Questions,
    },
}

/// What a worker answers.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To [`Question::Describe`].
    Described(Box<Description>),
    /// To [`Question::Record`].
    Recorded(Result<Box<Recording>, SubjectFailure>),
    /// To [`Question::Examine`].
    Examined(Box<Facts>),
    /// The harness failed in the worker.
    Failed(String),
}

/// A file system as a worker describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// What exactly is tested, with its version.
    pub version: String,
    /// The shape of its disk.
    pub geometry: Geometry,
    /// What it promises.
    pub guarantee: Guarantee,
    /// A new disk.
    pub blank: Image,
}

/// Bytes that are no questions or no answer of this build.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a batch for a worker is damaged: {0}")]
pub struct BatchError(String);

fn damaged(error: impl ToString) -> BatchError {
    BatchError(error.to_string())
}

/// A disk as what differs from another, or from an erased one.
#[derive(Serialize, Deserialize)]
struct PackedDisk {
    size_bytes: usize,
    erased: Erased,
    chunks: Vec<(usize, Vec<u8>)>,
}

#[derive(Serialize, Deserialize)]
enum PackedQuestion {
    Describe,
    Record { base: PackedDisk, ops: String, end: End, look: bool },
    Examine { disk: PackedDisk, questions: Questions },
}

#[derive(Serialize, Deserialize)]
enum PackedAnswer {
    Described {
        version: String,
        geometry: Geometry,
        guarantee: String,
        blank: PackedDisk,
    },
    /// A stored recording without its disk.
    Recorded(Vec<u8>),
    NotRecorded(SubjectFailure),
    /// Facts as JSON: trees are tagged with names.
    Examined(String),
    Failed(String),
}

/// The disk that others are compared with: an erased one if there is none of the same shape.
fn compared_with(first: Option<&Image>, size_bytes: usize, erased: Erased) -> Image {
    match first {
        Some(first) if (first.size(), first.erased()) == (size_bytes, erased) => first.clone(),
        _ => Image::new(size_bytes, erased),
    }
}

fn pack_disk(disk: &Image, first: Option<&Image>) -> PackedDisk {
    let (size_bytes, erased) = (disk.size(), disk.erased());
    let other = compared_with(first, size_bytes, erased);
    let (mut mine, mut others) = ([0; CHUNK_BYTES], [0; CHUNK_BYTES]);
    let mut chunks = Vec::new();
    for at in (0..size_bytes).step_by(CHUNK_BYTES) {
        let len = CHUNK_BYTES.min(size_bytes - at);
        disk.read(at, &mut mine[..len]);
        other.read(at, &mut others[..len]);
        if mine[..len] != others[..len] {
            chunks.push((at, mine[..len].to_vec()));
        }
    }
    PackedDisk { size_bytes, erased, chunks }
}

fn unpack_disk(packed: &PackedDisk, first: Option<&Image>) -> Result<Image, BatchError> {
    let mut disk = compared_with(first, packed.size_bytes, packed.erased);
    for (at, bytes) in &packed.chunks {
        if at.checked_add(bytes.len()).is_none_or(|end| end > packed.size_bytes) {
            return Err(damaged("a disk is larger than it says"));
        }
        disk.write(*at, bytes);
    }
    Ok(disk)
}

fn squeeze(value: &impl Serialize) -> Result<Vec<u8>, BatchError> {
    let plain = postcard::to_stdvec(value).map_err(damaged)?;
    zstd::encode_all(&*plain, 0).map_err(damaged)
}

fn unsqueeze<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, BatchError> {
    let plain = zstd::decode_all(bytes).map_err(damaged)?;
    postcard::from_bytes(&plain).map_err(damaged)
}

impl Question {
    fn disk(&self) -> Option<&Image> {
        match self {
            Question::Describe => None,
            Question::Record { base: disk, .. } | Question::Examine { disk, .. } => Some(disk),
        }
    }

    /// Asks a file system in this process.
    pub fn ask(&self, subject: &dyn DiskFileSystem) -> Answer {
        self.try_ask(subject).unwrap_or_else(|fault| Answer::Failed(fault.to_string()))
    }

    fn try_ask(&self, subject: &dyn DiskFileSystem) -> Result<Answer, HarnessFault> {
        Ok(match self {
            Question::Describe => Answer::Described(Box::new(Description {
                version: subject.version().to_owned(),
                geometry: subject.geometry(),
                guarantee: subject.guarantee().clone(),
                blank: subject.format()?,
            })),
            Question::Record { base, ops, end, look } => {
                let ops = borrow_all(ops);
                let workload = Workload { ops: &ops, end: *end, look: *look };
                Answer::Recorded(subject.record(base, &workload)?.map(Box::new))
            }
            Question::Examine { disk, questions } => {
                let facts = subject.examine(std::slice::from_ref(disk), questions)?;
                let facts = facts.first().ok_or_else(|| HarnessFault::new("a disk", "no facts"))?;
                Answer::Examined(Box::new((**facts).clone()))
            }
        })
    }
}

/// The file of a batch of questions.
///
/// # Errors
/// If an operation cannot be written, which none can be the cause of.
pub fn write_questions(questions: &[Question]) -> Result<Vec<u8>, BatchError> {
    let mut first = None;
    let mut packed = Vec::new();
    for question in questions {
        packed.push(match question {
            Question::Describe => PackedQuestion::Describe,
            Question::Record { base, ops, end, look } => PackedQuestion::Record {
                base: pack_disk(base, first),
                ops: serde_json::to_string(ops).map_err(damaged)?,
                end: *end,
                look: *look,
            },
            Question::Examine { disk, questions } => {
                PackedQuestion::Examine { disk: pack_disk(disk, first), questions: *questions }
            }
        });
        first = first.or(question.disk());
    }
    squeeze(&packed)
}

/// The questions in a file.
///
/// # Errors
/// If it is damaged.
pub fn read_questions(bytes: &[u8]) -> Result<Vec<Question>, BatchError> {
    let packed: Vec<PackedQuestion> = unsqueeze(bytes)?;
    let mut first: Option<Image> = None;
    let mut questions = Vec::new();
    for packed in packed {
        let question = match packed {
            PackedQuestion::Describe => Question::Describe,
            PackedQuestion::Record { base, ops, end, look } => Question::Record {
                base: unpack_disk(&base, first.as_ref())?,
                ops: serde_json::from_str(&ops).map_err(damaged)?,
                end,
                look,
            },
            PackedQuestion::Examine { disk, questions } => {
                Question::Examine { disk: unpack_disk(&disk, first.as_ref())?, questions }
            }
        };
        first = first.or_else(|| question.disk().cloned());
        questions.push(question);
    }
    Ok(questions)
}

impl Answer {
    /// The file of an answer to `question`.
    ///
    /// # Errors
    /// If it cannot be written, which none can be the cause of.
    pub fn to_bytes(&self, question: &Question) -> Result<Vec<u8>, BatchError> {
        squeeze(&match (self, question) {
            (Answer::Described(described), _) => PackedAnswer::Described {
                version: described.version.clone(),
                geometry: described.geometry,
                guarantee: serde_json::to_string(&described.guarantee).map_err(damaged)?,
                blank: pack_disk(&described.blank, None),
            },
            (Answer::Recorded(Ok(recording)), Question::Record { base, ops, .. }) => {
                // Whoever asked has the disk.
                let base = Image::new(base.size(), base.erased());
                let recording = Recording::clone(recording);
                let segment = Segment { base, ops: ops.clone(), recording };
                PackedAnswer::Recorded(StoredRecording { segments: vec![segment] }.to_bytes())
            }
            (Answer::Recorded(Ok(_)), _) => return Err(damaged("nobody asked for a recording")),
            (Answer::Recorded(Err(failure)), _) => PackedAnswer::NotRecorded(failure.clone()),
            (Answer::Examined(facts), _) => {
                PackedAnswer::Examined(serde_json::to_string(facts).map_err(damaged)?)
            }
            (Answer::Failed(why), _) => PackedAnswer::Failed(why.clone()),
        })
    }

    /// The answer in a file.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn from_bytes(bytes: &[u8]) -> Result<Answer, BatchError> {
        Ok(match unsqueeze::<PackedAnswer>(bytes)? {
            PackedAnswer::Described { version, geometry, guarantee, blank } => {
                Answer::Described(Box::new(Description {
                    version,
                    geometry,
                    guarantee: serde_json::from_str(&guarantee).map_err(damaged)?,
                    blank: unpack_disk(&blank, None)?,
                }))
            }
            PackedAnswer::Recorded(bytes) => {
                let stored = StoredRecording::from_bytes(&bytes).map_err(damaged)?;
                let segment = stored.segments.into_iter().next();
                let segment = segment.ok_or_else(|| damaged("no recording"))?;
                Answer::Recorded(Ok(Box::new(segment.recording)))
            }
            PackedAnswer::NotRecorded(failure) => Answer::Recorded(Err(failure)),
            PackedAnswer::Examined(facts) => {
                Answer::Examined(Box::new(serde_json::from_str(&facts).map_err(damaged)?))
            }
            PackedAnswer::Failed(why) => Answer::Failed(why),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::{Account, Trouble, View};
    use fathom_core::{Errno, Outcome, PlainTree};
    use std::sync::Arc;

    fn disks() -> [Image; 3] {
        let mut one = Image::new(9000, Erased::Zeros);
        one.write(700, b"fathom");
        let mut two = one.clone();
        two.write(701, &[0; 3]);
        two.write(8999, b"x");
        [one, two, Image::new(600, Erased::Ones)]
    }

    #[test]
    fn questions_are_read_as_they_were_asked() {
        let [one, two, other] = disks();
        let asked = vec![
            Question::Describe,
            Question::Record { base: one, ops: vec![Op::Sync], end: End::Unmount, look: true },
            Question::Examine { disk: two, questions: Questions::TREE },
            Question::Examine { disk: other, questions: Questions::VIEW },
        ];
        let bytes = write_questions(&asked).unwrap();
        assert_eq!(read_questions(&bytes), Ok(asked));
        assert!(bytes.len() < 300, "{} bytes", bytes.len());
        assert!(read_questions(&bytes[..bytes.len() - 5]).is_err());
    }

    #[test]
    fn answers_are_read_as_they_were_given() {
        let [base, ..] = disks();
        let tree = Arc::new(PlainTree::new().finish());
        let mut facts = Facts::new(Ok(View::new(&tree, true)));
        facts.trouble = Some(Trouble::Recovery(Errno::EIO));
        facts.kernel_lines = vec!["it says something".to_owned()];
        let question =
            Question::Record { base, ops: vec![Op::Sync], end: End::Unmount, look: false };
        let account = Account { blocks_512: 8, mtime: (7, 9) };
        facts.accounts = Arc::new([("a".into(), account)].into());
        let recording = Recording {
            outcomes: vec![Outcome::ok(0)],
            log: [crate::Event::Flush].into_iter().collect(),
            marks: vec![0, 1, 1],
            unmounted: Some(Outcome::ok(0)),
            tree: None,
            accounts: vec![[("a".into(), account)].into()],
        };
        let passed =
            |answer: Answer| Answer::from_bytes(&answer.to_bytes(&question).unwrap()).unwrap();
        match passed(Answer::Recorded(Ok(Box::new(recording.clone())))) {
            Answer::Recorded(Ok(read)) => assert_eq!(*read, recording),
            other => panic!("{other:?}"),
        }
        match passed(Answer::Examined(Box::new(facts.clone()))) {
            Answer::Examined(read) => {
                assert!(read.agree_with(&facts) && read.kernel_lines == facts.kernel_lines);
            }
            other => panic!("{other:?}"),
        }
        let failure = SubjectFailure::Panic("KASAN".to_owned());
        match passed(Answer::Recorded(Err(failure.clone()))) {
            Answer::Recorded(Err(read)) => assert_eq!(read, failure),
            other => panic!("{other:?}"),
        }
        assert!(matches!(passed(Answer::Failed("no".to_owned())), Answer::Failed(_)));
    }
}
