//! Plays a script so that it is recorded, and plays it again from the recording.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use fathom_block::DiskFileSystem;
use fathom_block::disks::{Capture, Playback, StoredRecording};
use fathom_core::HarnessFault;
use serde::Serialize;

use super::config::CrashConfig;
use super::judge::Cause;
use super::script::{Event, Script};
use super::system::{CrashSystem, ExecutedScript};

/// How often a run is recorded until it shows what it should: what is not deterministic may need more
/// than one.
const ATTEMPTS: usize = 3;

/// A script that was played, and what it told its disks.
pub(super) struct RecordedPlay {
    /// `None` if the script could not be followed.
    pub(super) played: Option<ExecutedScript>,
    pub(super) recording: StoredRecording,
}

impl RecordedPlay {
    fn shows(&self, cause: &Cause) -> bool {
        let wrong = self.played.as_ref().and_then(|played| played.wrong.as_ref());
        wrong.is_some_and(|(seen, _)| seen.is_same(cause))
    }
}

/// Plays a script and records it.
pub(super) fn play(
    subject: &dyn DiskFileSystem,
    config: &CrashConfig,
    script: &Script,
) -> Result<RecordedPlay, HarnessFault> {
    let kept = Arc::<Mutex<StoredRecording>>::default();
    let capture = Capture::new(subject, Arc::clone(&kept));
    let played = CrashSystem::on(Box::new(capture), config)?.play(script)?;
    let recording = std::mem::take(&mut *kept.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(RecordedPlay { played, recording })
}

/// Judges the disks of a recording with the subject as it is now.
pub(super) fn play_back(
    subject: &dyn DiskFileSystem,
    config: &CrashConfig,
    script: &Script,
    recording: &StoredRecording,
) -> Result<Option<ExecutedScript>, HarnessFault> {
    CrashSystem::on(Box::new(Playback::new(subject, recording)), config)?.play(script)
}

/// Plays a script until it shows `cause`; returns the recording only if it shows the same when it is
/// played back.
pub(super) fn record(
    subject: &dyn DiskFileSystem,
    config: &CrashConfig,
    script: &Script,
    cause: &Cause,
) -> Result<(Option<ExecutedScript>, Option<StoredRecording>), HarnessFault> {
    let mut run = play(subject, config, script)?;
    for _ in 1..ATTEMPTS {
        if run.shows(cause) {
            break;
        }
        run = play(subject, config, script)?;
    }
    let RecordedPlay { played, recording } = run;
    // A run that the subject does not survive leaves no recording of its end: then this is a fault.
    let back = play_back(subject, config, script, &recording).unwrap_or_default();
    let proves = back.is_some_and(|back| back.wrong.is_some_and(|(seen, _)| seen.is_same(cause)));
    Ok((played, proves.then_some(recording)))
}

/// A run whose recording shows a cause.
pub(super) struct ProvenRun {
    pub(super) script: Script,
    pub(super) played: ExecutedScript,
    pub(super) recording: StoredRecording,
}

/// Records the operations of a script and looks for a power failure in or after the last one that
/// shows `cause`: for subjects whose log is different each time.
pub(super) fn record_anywhere(
    subject: &dyn DiskFileSystem,
    config: &CrashConfig,
    script: &Script,
    cause: &Cause,
) -> Result<Option<ProvenRun>, HarnessFault> {
    let mut body = script.clone();
    if matches!(body.0.last(), Some(Event::PowerCut(_))) {
        body.0.pop();
    }
    for _ in 0..ATTEMPTS {
        let recording = play(subject, config, &body)?.recording;
        let mut cut = None;
        let playback = Playback::new(subject, &recording);
        // What cannot be followed in the recording shows nothing.
        let _ = CrashSystem::on(Box::new(playback), config)?.cuts(&body, cause, &mut |point| {
            cut = Some(point);
            ControlFlow::Break(())
        });
        let Some(point) = cut else { continue };
        let script = Script(body.0.iter().cloned().chain([Event::PowerCut(point)]).collect());
        let played = play_back(subject, config, &script, &recording)?;
        let shows = |played: &ExecutedScript| {
            played.wrong.as_ref().is_some_and(|(seen, _)| seen.is_same(cause))
        };
        if let Some(played) = played.filter(shows) {
            return Ok(Some(ProvenRun { script, played, recording }));
        }
    }
    Ok(None)
}

/// The result of running the workload of a recording again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunAgain {
    /// The same answers and the same log.
    SameLog,
    /// Another log, the same each time: the subject is not the one that was recorded.
    OtherLog,
    /// Another log: the subject is not deterministic, the recorded disk is judged.
    EachTimeAnother,
}

impl RunAgain {
    /// Explains the result in words.
    pub fn explain(self) -> &'static str {
        match self {
            RunAgain::SameLog => "running it again writes the same log",
            RunAgain::OtherLog => {
                "running it again writes another log than was recorded: this is what was judged"
            }
            RunAgain::EachTimeAnother => {
                "running it again writes another log, as this subject may: the recorded disk was judged"
            }
        }
    }
}

/// Plays a recorded finding: the recorded disk is judged, unless the subject is deterministic and now
/// writes something else. (Two logs of a kernel file system that are written within one tick of its
/// clock can be equal, and different from all later ones: that proves nothing.)
pub(super) fn replay(
    subject: &dyn DiskFileSystem,
    config: &CrashConfig,
    script: &Script,
    recording: &StoredRecording,
) -> Result<(Option<ExecutedScript>, RunAgain), HarnessFault> {
    let first = play(subject, config, script)?;
    if first.recording == *recording {
        return Ok((play_back(subject, config, script, recording)?, RunAgain::SameLog));
    }
    if subject.is_deterministic() {
        let second = play(subject, config, script)?;
        if first.recording == second.recording {
            return Ok((first.played, RunAgain::OtherLog));
        }
    }
    Ok((play_back(subject, config, script, recording)?, RunAgain::EachTimeAnother))
}
