//! A crash finding: verified, shrunk, told, recorded, replayed.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fathom_block::disks::{StoredRecording, SubjectFailure};
use fathom_block::{BlockBacked, Geometry, Level};
use fathom_core::{Digest, HarnessFault, Tree};
use serde::{Deserialize, Serialize};

use super::config::CrashConfig;
use super::judge::Cause;
use super::ledger::Group;
use super::replay::{self, RunAgain};
use super::repro;
use super::run::CrashPlan;
use super::script::{Event, Script};
use super::shrink::shrink;
use super::system::{CrashSystem, ExecutedScript};
use crate::check::finding::RecordError;

/// Domain of the digest that names a finding.
const DOMAIN_FINDING: u64 = 19;

/// How often a finding is played again before it is believed.
const RUNS: usize = 2;

/// The value of `kind` in `finding.toml` of a crash finding.
pub const KIND: &str = "crash";

/// `finding.toml`: everything that a replay needs, and what people want to know first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CrashRecord {
    /// Always [`KIND`].
    pub kind: String,
    /// Names it.
    pub id: String,
    /// As on the command line.
    pub subject: String,
    /// What exactly was tested.
    pub version: String,
    /// How many distinct images showed it.
    pub count: u64,
    /// At which levels.
    pub levels: Vec<Level>,
    /// Operations of the minimal run.
    pub ops: usize,
    /// Operations of the run that found it.
    pub ops_found: usize,
    /// How often it was played again, and how often that showed the same.
    pub runs: usize,
    /// See `runs`.
    pub runs_reproduced: usize,
    /// Digest of the image after the last power failure of the minimal run.
    pub image: Digest,
    /// What was wrong, in words.
    pub what: String,
    /// Program and version.
    pub program: String,
    /// The whole story.
    pub story: String,
    /// What makes it the same as another.
    pub cause: Cause,
    /// The shape of the device.
    pub geometry: Geometry,
    /// How it was judged.
    pub config: CrashConfig,
    /// Kernel version and the like.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// Everything known of one finding.
#[derive(Clone, Debug)]
pub struct CrashFinding {
    /// What is recorded of it.
    pub record: CrashRecord,
    /// The run that found it.
    pub script: Script,
    /// The shortest run that shows it.
    pub minimal: Script,
    /// Visible before the last operation.
    pub before: Tree,
    /// The trees that were legal.
    pub promised: Vec<Tree>,
    /// What was visible, or why nothing was.
    pub found: Result<Tree, String>,
    /// What is visible once the file system has repaired itself, if that is something else.
    pub repaired: Option<Tree>,
    /// What the device was told during the last operation, and whether it arrived.
    pub writes: Vec<(String, bool)>,
    /// The image after the last power failure, if there was one.
    pub image: Option<Vec<u8>>,
    /// Everything that the minimal run told its disks, if that shows the finding by itself.
    pub recording: Option<StoredRecording>,
}

/// The file of [`CrashFinding::recording`].
const RECORDING: &str = "recording.bin";

/// Verifies and shrinks what a search found.
pub(super) fn investigate(
    system: &CrashSystem<'_>,
    subject: &dyn BlockBacked,
    cause: Cause,
    group: &Group,
    plan: &CrashPlan,
) -> Result<CrashFinding, HarnessFault> {
    let script = group.best.script.clone();
    // A fresh system each time: nothing is remembered, everything is done again.
    let mut runs_reproduced = 0;
    for _ in 0..RUNS {
        let fresh = CrashSystem::new(subject, &plan.config)?;
        let seen = fresh.play(&script)?.and_then(|played| played.wrong);
        runs_reproduced += usize::from(seen.is_some_and(|(seen, _)| seen == cause));
    }
    let minimal = match runs_reproduced {
        0 => script.clone(),
        _ => shrink(system, &script, &cause, plan.shrink_budget)?,
    };
    let (played, recording) = replay::record(subject, &plan.config, &minimal, &cause)?;
    let what = played.as_ref().and_then(|played| played.wrong.as_ref());
    let what = what.map_or_else(|| group.best.what.clone(), |(_, what)| what.clone());
    let record = CrashRecord {
        kind: KIND.to_owned(),
        id: id(subject, &cause, &minimal),
        subject: subject.name().to_owned(),
        version: subject.version().to_owned(),
        count: group.images.len() as u64,
        levels: group.levels.clone(),
        ops: minimal.ops_len(),
        ops_found: script.ops_len(),
        runs: RUNS,
        runs_reproduced,
        image: played.as_ref().map_or_else(Digest::default, |played| played.image.digest()),
        what,
        program: concat!("fathom ", env!("CARGO_PKG_VERSION")).to_owned(),
        story: String::new(),
        cause,
        geometry: subject.geometry(),
        config: plan.config.clone(),
        labels: plan.labels.clone(),
    };
    let mut finding = CrashFinding::new(record, script, minimal, played);
    finding.recording = recording;
    finding.record.story = finding.to_string();
    Ok(finding)
}

/// Looks longer for a shorter way to a recorded finding; `None` if it does not show any more.
///
/// # Errors
/// If the harness fails.
pub fn shrink_further(
    subject: &dyn BlockBacked,
    stored: &StoredCrash,
    budget: Duration,
) -> Result<Option<CrashFinding>, HarnessFault> {
    let system = CrashSystem::new(subject, &stored.record.config)?;
    let cause = &stored.record.cause;
    let shows = |script: &Script| -> Result<bool, HarnessFault> {
        let wrong = system.play(script)?.and_then(|played| played.wrong);
        Ok(wrong.is_some_and(|(seen, _)| seen == *cause))
    };
    if !shows(&stored.minimal)? {
        return Ok(None);
    }
    let minimal = shrink(&system, &stored.minimal, cause, budget)?;
    let (played, recording) = replay::record(subject, &stored.record.config, &minimal, cause)?;
    let Some(played) = played else { return Ok(None) };
    let mut record = stored.record.clone();
    record.id = id(subject, cause, &minimal);
    (record.ops, record.image) = (minimal.ops_len(), played.image.digest());
    let mut finding = CrashFinding::new(record, stored.script.clone(), minimal, Some(played));
    finding.recording = recording;
    finding.record.story = finding.to_string();
    Ok(Some(finding))
}

fn id(subject: &dyn BlockBacked, cause: &Cause, minimal: &Script) -> String {
    finding_id(subject.name(), subject.geometry(), cause, minimal)
}

/// The name of a finding.
pub(super) fn finding_id(
    subject: &str,
    geometry: Geometry,
    cause: &Cause,
    minimal: &Script,
) -> String {
    let text = serde_json::to_string(&(subject, geometry, cause, minimal));
    let digest = Digest::of(DOMAIN_FINDING, text.expect("plain data").as_bytes());
    digest.to_string()[..12].to_owned()
}

impl CrashFinding {
    pub(super) fn new(
        record: CrashRecord,
        script: Script,
        minimal: Script,
        played: Option<ExecutedScript>,
    ) -> CrashFinding {
        let mut finding = CrashFinding {
            record,
            script,
            minimal,
            before: Tree::default(),
            promised: Vec::new(),
            found: Err("not reproduced".to_owned()),
            repaired: None,
            writes: Vec::new(),
            image: None,
            recording: None,
        };
        if let Some(played) = played {
            finding.before = played.before;
            finding.promised = played.promised;
            finding.found = played.found.map_err(|broke| match broke {
                SubjectFailure::Mount(errno) => format!("mount fails with {errno}"),
                SubjectFailure::Panic(message) => format!("panics: {message}"),
            });
            finding.repaired = played.repaired;
            finding.writes = played.writes;
            let cut = matches!(finding.minimal.0.last(), Some(Event::PowerCut(_)));
            finding.image = cut.then(|| played.image.to_vec());
        }
        finding
    }

    /// Where the power failed, in words.
    pub fn cut(&self) -> String {
        let Some(Event::PowerCut(point)) = self.minimal.0.last() else {
            return "no power failure is needed".to_owned();
        };
        let is_write = |text: &&(String, bool)| !text.0.starts_with("flush");
        let writes = self.writes.iter().filter(is_write).count();
        let arrived = self.writes.iter().filter(is_write).filter(|(_, arrived)| *arrived).count();
        match point.level() {
            Level::Linear if arrived == writes => {
                format!("right after it, with all {writes} of its writes done")
            }
            Level::Linear => format!("after {arrived} of its {writes} writes"),
            Level::Torn => format!("in the middle of write {} of {writes}", arrived + 1),
            Level::Erase => format!("in the middle of erase {} of {writes}", arrived + 1),
            Level::Epoch | Level::Lost => {
                format!("with {arrived} of its {writes} writes done, not in order ({point})")
            }
        }
    }

    /// Writes the directory `out/ID` and returns its path.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, out: &Path) -> Result<PathBuf, RecordError> {
        let dir = out.join(&self.record.id);
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| RecordError::Io { path, source }
        };
        fs::create_dir_all(&dir).map_err(io(&dir))?;
        let lines = |script: &Script| {
            script.0.iter().fold(String::new(), |mut text, event| {
                text.push_str(&serde_json::to_string(event).expect("plain data"));
                text.push('\n');
                text
            })
        };
        let promised: Vec<String> = self.promised.iter().map(ToString::to_string).collect();
        let mut files = vec![
            ("finding.toml", toml::to_string(&self.record).expect("plain data").into_bytes()),
            ("script.jsonl", lines(&self.script).into_bytes()),
            ("minimal.jsonl", lines(&self.minimal).into_bytes()),
            ("before.tree", self.before.to_string().into_bytes()),
            ("promised.tree", promised.join("\nor\n\n").into_bytes()),
            ("found.tree", self.found_text().into_bytes()),
            ("diff.txt", format!("{}\n", self.record.what).into_bytes()),
            ("story.txt", self.record.story.clone().into_bytes()),
        ];
        files.extend(self.image.clone().map(|image| ("crash.img", image)));
        files.extend(self.recording.as_ref().map(|recording| (RECORDING, recording.to_bytes())));
        let repro = repro::files(&self.record, &self.minimal).into_iter();
        files.extend(repro.map(|(name, text)| (name, text.into_bytes())));
        for (name, bytes) in files {
            let path = dir.join(name);
            if let Some(above) = path.parent() {
                fs::create_dir_all(above).map_err(io(above))?;
            }
            fs::write(&path, bytes).map_err(io(&path))?;
        }
        Ok(dir)
    }

    fn found_text(&self) -> String {
        match &self.found {
            Ok(tree) => tree.to_string(),
            Err(why) => format!("{why}\n"),
        }
    }
}

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
        let text = fs::read_to_string(dir.join("finding.toml")).unwrap_or_default();
        let kind = text.parse::<toml::Table>().ok().and_then(|mut table| table.remove("kind"));
        kind.is_some_and(|kind| kind.as_str() == Some(KIND))
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
        let (path, toml) = text("finding.toml")?;
        let record = toml::from_str(&toml).map_err(|error| damaged(path, error.to_string()))?;
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

/// How a replay went.
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
    /// How it went.
    pub verdict: CrashVerdict,
    /// What is wrong now.
    pub cause: Option<Cause>,
    /// The finding as it is now.
    pub finding: CrashFinding,
    /// What running the workload again gives, if the finding has a recording to compare with.
    pub run_again: Option<RunAgain>,
}

impl CrashReplay {
    /// Plays a recorded finding, exactly: the same operations, the same crash point. With a recording,
    /// the recorded disk is judged unless the subject reliably writes something else now.
    ///
    /// # Errors
    /// If the harness fails.
    pub fn play(
        subject: &dyn BlockBacked,
        stored: &StoredCrash,
    ) -> Result<CrashReplay, HarnessFault> {
        let config = &stored.record.config;
        let (played, run_again) = match &stored.recording {
            Some(recording) => {
                let (played, again) = replay::replay(subject, config, &stored.minimal, recording)?;
                (played, Some(again))
            }
            None => (CrashSystem::new(subject, config)?.play(&stored.minimal)?, None),
        };
        let wrong = played.as_ref().and_then(|played| played.wrong.clone());
        let same_image =
            played.as_ref().is_some_and(|played| played.image.digest() == stored.record.image);
        let cause = wrong.as_ref().map(|(cause, _)| cause.clone());
        let verdict = match &cause {
            Some(cause) if *cause == stored.record.cause && same_image => CrashVerdict::Reproduced,
            Some(_) => CrashVerdict::Different,
            None => CrashVerdict::NotReproduced,
        };
        let mut record = stored.record.clone();
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

impl fmt::Display for CrashFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let record = &self.record;
        writeln!(f, "finding {}: {} on {}\n", record.id, record.cause, record.subject)?;
        let last = self.minimal.ops_len();
        let mut number = 0;
        let is_cut = matches!(self.minimal.0.last(), Some(Event::PowerCut(_)));
        for event in &self.minimal.0 {
            match event {
                Event::Op(op) => {
                    number += 1;
                    let mark = if number == last && is_cut { "⚡" } else { " " };
                    writeln!(f, "  {number:>3} {mark} {op}")?;
                }
                Event::PowerCut(_) if number == last => {}
                Event::PowerCut(point) => writeln!(f, "      ⚡ power cut ({point}), recovery")?,
            }
        }
        f.write_char('\n')?;
        if is_cut {
            writeln!(f, "The power fails in operation {last}, {}.", self.cut())?;
        }
        self.write_trees(f)?;
        writeln!(
            f,
            "\nseen in {} crash images; played again {} times, {} of them the same",
            record.count, record.runs, record.runs_reproduced
        )?;
        if record.ops < record.ops_found {
            writeln!(f, "shrunk from {} operations to {}", record.ops_found, record.ops)?;
        }
        writeln!(f, "replay: fathom replay {}", record.id)
    }
}

impl CrashFinding {
    fn write_trees(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.promised.is_empty() {
            return writeln!(f, "{}", self.record.what);
        }
        let list = |tree: &Tree| {
            let paths: Vec<String> = tree
                .entries
                .iter()
                .filter(|(path, _)| path.as_bytes() != b".")
                .map(|(path, entry)| match entry.kind {
                    fathom_core::Kind::Dir => format!("{path}/"),
                    _ => format!("{path} ({} bytes)", entry.size),
                })
                .collect();
            if paths.is_empty() { "nothing".to_owned() } else { paths.join("  ") }
        };
        let mut promised: Vec<String> = self.promised.iter().map(list).collect();
        promised.dedup();
        for (index, tree) in promised.iter().enumerate() {
            let label = if index == 0 { "promised" } else { "or" };
            writeln!(f, "  {label:9} {tree}")?;
        }
        match &self.found {
            Ok(tree) => writeln!(f, "  found     {}", list(tree))?,
            Err(why) => writeln!(f, "  found     {why}")?,
        }
        if let Some(tree) = &self.repaired {
            writeln!(f, "  later     {}   (once it has repaired itself)", list(tree))?;
        }
        f.write_char('\n')?;
        for line in self.record.what.lines() {
            writeln!(f, "  {line}")?;
        }
        Ok(())
    }
}
