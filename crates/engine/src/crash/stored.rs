//! A finding of an earlier run: read back, and played again.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use fathom_block::DiskFileSystem;
use fathom_block::disks::StoredRecording;
use fathom_core::HarnessFault;
use fathom_record::RecordError;
use serde::Serialize;

use super::finding::{CrashFinding, CrashRecord, KIND, RECORDING};
use super::judge::Cause;
use super::replay::{self, RunAgain};
use super::script::Script;
use super::system::CrashSystem;

/// A recorded finding, read back.
#[derive(Clone, Debug)]
pub struct StoredCrash {
    /// `finding.toml`
    pub record: CrashRecord,
    /// `minimal.jsonl`
    pub minimal: Script,
    /// `script.jsonl`
    pub script: Script,
    /// `recording.bin`, which belongs to `minimal`; older findings have none.
    pub recording: Option<StoredRecording>,
}

impl StoredCrash {
    /// Whether a directory holds a crash finding (rather than one of `fathom check`).
    pub fn is_in(dir: &Path) -> bool {
        fathom_record::Finding::read(dir).is_ok_and(|finding| finding.kind == KIND)
    }

    /// Reads the directory of a finding.
    ///
    /// # Errors
    /// If a file cannot be read or is damaged.
    pub fn read(dir: &Path) -> Result<StoredCrash, RecordError> {
        let text = |name: &str| {
            let path = dir.join(name);
            let text = fs::read_to_string(&path)
                .map_err(|source| RecordError::Io { path: path.clone(), source })?;
            Ok::<_, RecordError>((path, text))
        };
        let damaged = |path: PathBuf, message: String| RecordError::Damaged { path, message };
        let record = fathom_record::Finding::read(dir)?.record(dir)?;
        let script = |name| {
            let (path, lines) = text(name)?;
            let events = lines.lines().map(serde_json::from_str).collect::<Result<_, _>>();
            events.map(Script).map_err(|error| damaged(path, error.to_string()))
        };
        Ok(StoredCrash {
            record,
            minimal: script("minimal.jsonl")?,
            script: script("script.jsonl")?,
            recording: read_recording(&dir.join(RECORDING))?,
        })
    }
}

/// Reads the recording of a finding, if it has one.
fn read_recording(path: &Path) -> Result<Option<StoredRecording>, RecordError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(RecordError::Io { path: path.to_owned(), source }),
    };
    let recording = StoredRecording::from_bytes(&bytes);
    recording
        .map(Some)
        .map_err(|error| RecordError::Damaged { path: path.to_owned(), message: error.to_string() })
}

/// The verdict of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CrashVerdict {
    /// The same image, the same violation.
    Reproduced,
    /// A violation, but another image or another cause.
    Different,
    /// Nothing is wrong, or the run cannot be followed.
    NotReproduced,
}

impl fmt::Display for CrashVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CrashVerdict::Reproduced => "reproduced",
            CrashVerdict::Different => "different",
            CrashVerdict::NotReproduced => "not reproduced",
        })
    }
}

/// A finding played again.
#[derive(Clone, Debug)]
pub struct CrashReplay {
    /// The verdict.
    pub verdict: CrashVerdict,
    /// The cause of what is wrong now.
    pub cause: Option<Cause>,
    /// The finding as it is now.
    pub finding: CrashFinding,
    /// The result of running the workload again, if the finding has a recording to compare with.
    pub run_again: Option<RunAgain>,
}

impl CrashReplay {
    /// Plays a recorded finding, exactly: the same operations, the same crash point. With a recording,
    /// the recorded disk is judged unless the subject reliably writes something else now.
    ///
    /// # Errors
    /// If the harness fails.
    pub fn play(
        subject: &dyn DiskFileSystem,
        stored: &StoredCrash,
    ) -> Result<CrashReplay, HarnessFault> {
        let config = &stored.record.config;
        let (played, run_again) = match &stored.recording {
            Some(recording) => {
                let (played, again) = replay::replay(subject, config, &stored.minimal, recording)?;
                (played, Some(again))
            }
            None => (CrashSystem::on(Box::new(subject), config)?.play(&stored.minimal)?, None),
        };
        let wrong = played.as_ref().and_then(|played| played.wrong.clone());
        let same_image =
            played.as_ref().is_some_and(|played| played.image.digest() == stored.record.image);
        let cause = wrong.as_ref().map(|(cause, _)| cause.clone());
        let verdict = match &cause {
            Some(cause) if cause.is_same(&stored.record.cause) && same_image => {
                CrashVerdict::Reproduced
            }
            Some(_) => CrashVerdict::Different,
            None => CrashVerdict::NotReproduced,
        };
        let mut record = stored.record.clone();
        record.complete = true;
        if let Some((_, what)) = wrong {
            record.what = what;
        }
        let (script, minimal) = (stored.script.clone(), stored.minimal.clone());
        Ok(CrashReplay {
            verdict,
            cause,
            finding: CrashFinding::new(record, script, minimal, played),
            run_again,
        })
    }
}
