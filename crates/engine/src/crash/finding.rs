//! A crash finding: verified, shrunk, told, recorded, replayed.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fathom_block::disks::{StoredRecording, SubjectFailure};
use fathom_block::{DiskFileSystem, Erased, Geometry, Image, Level, dm_log_writes};
use fathom_core::{Digest, Entry, FsPath, HarnessFault, Kind, Tree};
use fathom_record::run::{FindingPage, TreeLine, WriteLine};
use fathom_record::{Evidence, RecordError, Variant};
use serde::{Deserialize, Serialize};

use super::config::CrashConfig;
use super::judge::Cause;
use super::ledger::Group;
use super::replay;
use super::repro;
use super::run::CrashPlan;
use super::script::{Event, Script};
use super::shrink::shrink;
use super::stored::StoredCrash;
use super::system::{CrashSystem, ExecutedScript};

/// Domain of the digest that names a finding.
const DOMAIN_FINDING: u64 = 19;

/// More variants than this are counted in a story, not shown.
const VARIANTS_SHOWN_MAX: usize = 8;

/// The number of times that a finding is played again before it is believed.
const RUNS: usize = 2;

/// The value of `kind` in `finding.toml` of a crash finding.
pub const KIND: &str = "crash";

/// `finding.toml`: everything that a replay needs, and what people want to know first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashRecord {
    /// Always [`KIND`].
    pub kind: String,
    /// Names it.
    pub id: String,
    /// The subject, as the user typed it.
    pub subject: String,
    /// The tested library or kernel with its version.
    pub version: String,
    /// The number of distinct images that showed it.
    #[serde(rename = "sightings", alias = "count")]
    pub count: u64,
    /// The levels of power failures at which it shows.
    pub levels: Vec<Level>,
    /// Operations of the minimal run.
    pub ops: usize,
    /// Operations of the run that found it.
    pub ops_found: usize,
    /// The number of times that it was played again.
    pub runs: usize,
    /// The number of those that showed the same.
    pub runs_reproduced: usize,
    /// Digest of the image after the last power failure of the minimal run.
    pub image: Digest,
    /// The violation in words.
    pub what: String,
    /// Program and version.
    pub program: String,
    /// The whole story.
    pub story: String,
    /// The cause, by which it is the same as another.
    pub cause: Cause,
    /// The shape of the device.
    pub geometry: Geometry,
    /// The configuration under which it was judged.
    pub config: CrashConfig,
    /// Kernel version and the like.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Other ways in which the same cause was seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
    /// Whether it was played again and shrunk.
    #[serde(default = "yes")]
    pub complete: bool,
}

/// Findings of format 1 were written when they were complete.
fn yes() -> bool {
    true
}

/// Everything known of one finding.
#[derive(Clone, Debug)]
pub struct CrashFinding {
    /// The contents of `finding.toml`.
    pub record: CrashRecord,
    /// The run that found it.
    pub script: Script,
    /// The shortest run that shows it.
    pub minimal: Script,
    /// Visible before the last operation.
    pub before: Tree,
    /// The trees that were legal.
    pub promised: Vec<Tree>,
    /// The legal states for reproducers, object by object.
    legal: Vec<Vec<String>>,
    /// The state that was found, in the same way, where not all legal states are whole ones.
    shown: Option<Vec<String>>,
    /// The tree that was visible, or why none was.
    pub found: Result<Tree, String>,
    /// The tree once the file system has repaired itself, if it is another one.
    pub repaired: Option<Tree>,
    /// The writes, erases and flushes of the last operation, each with whether it arrived.
    pub writes: Vec<(String, bool)>,
    /// The image after the last power failure, if there was one; it shares what it has in common with
    /// others, since the disks of kernel file systems are large.
    pub image: Option<Image>,
    /// Everything that the minimal run told its disks, if that shows the finding by itself.
    pub recording: Option<StoredRecording>,
}

/// The file of [`CrashFinding::recording`].
pub(super) const RECORDING: &str = "recording.bin";

/// A finding as it was first seen: nothing was played again, nothing is shorter.
pub(super) fn first_seen(
    subject: &dyn DiskFileSystem,
    cause: Cause,
    group: &Group,
    plan: &CrashPlan,
) -> CrashFinding {
    let script = group.best.script.clone();
    let record = CrashRecord {
        kind: KIND.to_owned(),
        id: id(subject, &cause, &script),
        subject: subject.name().to_owned(),
        version: subject.version().to_owned(),
        count: group.images.len() as u64,
        levels: group.levels.clone(),
        ops: script.ops_len(),
        ops_found: script.ops_len(),
        runs: 0,
        runs_reproduced: 0,
        image: Digest::default(),
        what: group.best.what.clone(),
        program: concat!("fathom ", env!("CARGO_PKG_VERSION")).to_owned(),
        story: String::new(),
        cause,
        geometry: subject.geometry(),
        config: plan.config.clone(),
        labels: plan.labels.clone(),
        variants: Vec::new(),
        complete: false,
    };
    let finding = CrashFinding::new(record, script.clone(), script, None);
    CrashFinding { recording: group.best.recording.as_deref().cloned(), ..finding }
}

/// Verifies and shrinks what a search found. `variants` are other ways to see the same.
pub(super) fn investigate(
    system: &CrashSystem<'_>,
    subject: &dyn DiskFileSystem,
    cause: Cause,
    group: &Group,
    variants: Vec<Variant>,
    plan: &CrashPlan,
) -> Result<CrashFinding, HarnessFault> {
    let CrashFinding { mut record, script, .. } = first_seen(subject, cause, group, plan);
    if let Some(stored) = &group.best.recording {
        record.variants = variants;
        return investigate_recorded(system, subject, record, script, stored, plan);
    }
    // A fresh system each time: nothing is remembered, everything is done again.
    for _ in 0..RUNS {
        let fresh = CrashSystem::on(Box::new(subject), &plan.config)?;
        let seen = fresh.play(&script)?.and_then(|played| played.wrong);
        record.runs += 1;
        record.runs_reproduced +=
            usize::from(seen.is_some_and(|(seen, _)| seen.is_same(&record.cause)));
    }
    let minimal = match record.runs_reproduced {
        0 => script.clone(),
        _ => shrink(system, &script, &record.cause, plan.shrink_budget)?,
    };
    let (played, recording) = replay::record(subject, &plan.config, &minimal, &record.cause)?;
    if let Some((_, what)) = played.as_ref().and_then(|played| played.wrong.as_ref()) {
        record.what = what.clone();
    }
    record.id = id(subject, &record.cause, &minimal);
    record.ops = minimal.ops_len();
    record.image = played.as_ref().map_or_else(Digest::default, |played| played.image.digest());
    (record.variants, record.complete) = (variants, true);
    Ok(CrashFinding { recording, ..CrashFinding::new(record, script, minimal, played) })
}

/// Verifies what was found on a subject that writes another log each time: the recorded disk is judged
/// again, and a shorter run counts if its own recording shows the same.
fn investigate_recorded(
    system: &CrashSystem<'_>,
    subject: &dyn DiskFileSystem,
    mut record: CrashRecord,
    script: Script,
    stored: &StoredRecording,
    plan: &CrashPlan,
) -> Result<CrashFinding, HarnessFault> {
    let shows = |played: &ExecutedScript| {
        played.wrong.as_ref().is_some_and(|(seen, _)| seen.is_same(&record.cause))
    };
    let mut played = None;
    for _ in 0..RUNS {
        let again = replay::play_back(subject, &plan.config, &script, stored)?;
        record.runs += 1;
        record.runs_reproduced += usize::from(again.as_ref().is_some_and(shows));
        played = again.filter(shows).or(played);
    }
    let (mut minimal, mut recording) = (script.clone(), stored.clone());
    if record.runs_reproduced > 0 && !plan.shrink_budget.is_zero() {
        let shorter = shrink(system, &script, &record.cause, plan.shrink_budget)?;
        let proven = match shorter == script {
            true => None,
            false => replay::record_anywhere(subject, &plan.config, &shorter, &record.cause)?,
        };
        if let Some(proven) = proven {
            (minimal, recording) = (proven.script, proven.recording);
            played = Some(proven.played);
        }
    }
    if let Some((_, what)) = played.as_ref().and_then(|played| played.wrong.as_ref()) {
        record.what = what.clone();
    }
    record.id = id(subject, &record.cause, &minimal);
    record.ops = minimal.ops_len();
    record.image = played.as_ref().map_or_else(Digest::default, |played| played.image.digest());
    record.complete = true;
    let finding = CrashFinding::new(record, script, minimal, played);
    Ok(CrashFinding { recording: Some(recording), ..finding })
}

/// Looks longer for a shorter way to a recorded finding; `None` if it does not show any more.
///
/// # Errors
/// If the harness fails.
pub fn shrink_further(
    subject: &dyn DiskFileSystem,
    stored: &StoredCrash,
    budget: Duration,
) -> Result<Option<CrashFinding>, HarnessFault> {
    let system = CrashSystem::on(Box::new(subject), &stored.record.config)?;
    let cause = &stored.record.cause;
    let shows = |script: &Script| -> Result<bool, HarnessFault> {
        let wrong = system.play(script)?.and_then(|played| played.wrong);
        Ok(wrong.is_some_and(|(seen, _)| seen.is_same(cause)))
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
    let finding = CrashFinding::new(record, stored.script.clone(), minimal, Some(played));
    Ok(Some(CrashFinding { recording, ..finding }))
}

fn id(subject: &dyn DiskFileSystem, cause: &Cause, minimal: &Script) -> String {
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
            legal: Vec::new(),
            shown: None,
            found: Err("not reproduced".to_owned()),
            repaired: None,
            writes: Vec::new(),
            image: None,
            recording: None,
        };
        if let Some(played) = played {
            finding.before = played.before;
            finding.promised = played.promised;
            (finding.legal, finding.shown) = (played.legal, played.shown);
            finding.found = played.found.map_err(|broke| match broke {
                SubjectFailure::Mount(errno) => format!("mount fails with {errno}"),
                SubjectFailure::Panic(message) => format!("panics: {message}"),
            });
            finding.repaired = played.repaired;
            finding.writes = played.writes;
            let cut = matches!(finding.minimal.0.last(), Some(Event::PowerCut(_)));
            finding.image = cut.then(|| played.image.clone());
        }
        finding.record.story = finding.to_string();
        finding
    }

    /// Describes where the power failed.
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

    /// The finding with all its files, as every command records it.
    pub fn record(&self) -> fathom_record::Finding {
        let own = &self.record;
        let signature = own.cause.to_string();
        let mut record = fathom_record::Finding::new(KIND, &own.id, &signature);
        record.details = fathom_record::Finding::details_of(own);
        record.title = signature;
        record.class = own.cause.class.name();
        record.subject = own.subject.clone();
        record.program = own.program.clone();
        record.complete = own.complete;
        record.sightings = own.count;
        (record.runs, record.runs_reproduced) = (own.runs, own.runs_reproduced);
        record.story = own.story.clone();
        record.variants = own.variants.clone();
        record.labels = own.labels.clone();
        record.evidence = self.evidence();
        record.page = self.page();
        record
    }

    fn evidence(&self) -> Vec<Evidence> {
        let promised: Vec<String> = self.promised.iter().map(ToString::to_string).collect();
        let mut files = vec![
            Evidence::lines("script.jsonl", &self.script.0),
            Evidence::lines("minimal.jsonl", &self.minimal.0),
            Evidence::text("before.tree", self.before.to_string()),
            Evidence::text("promised.tree", promised.join("\nor\n\n")),
            Evidence::text("found.tree", self.found_text()),
            Evidence::text("diff.txt", format!("{}\n", self.record.what)),
            Evidence::text("story.txt", self.record.story.clone()),
        ];
        files.extend(self.image.as_ref().map(|image| disk("crash.img", image)));
        let recording = self.recording.as_ref();
        files.extend(recording.map(|recording| Evidence::bytes(RECORDING, recording.to_bytes())));
        let (legal, shown) = (&self.legal, self.shown.as_deref());
        let repro = repro::files(&self.record, &self.minimal, legal, shown).into_iter();
        if repro.as_slice().iter().any(|(name, _)| *name == repro::KERNEL_SCRIPT) {
            files.extend(self.log_writes());
        }
        files.extend(repro.map(|(name, text)| Evidence::text(name, text)));
        files
    }

    /// The last mount of the recording as the kernel's dm-log-writes would have it, with the disk that
    /// it starts from: for `replay-log`.
    fn log_writes(&self) -> Vec<Evidence> {
        let last = self.recording.as_ref().and_then(|recording| recording.segments.last());
        let Some(last) = last else { return Vec::new() };
        let mut log = Vec::new();
        let sector_bytes = self.record.geometry.write_bytes;
        match dm_log_writes::write(&last.recording.log, sector_bytes, &mut log) {
            Ok(()) => {
                let base = disk("base.img", &last.base);
                vec![base, Evidence::bytes("log-writes.bin", log)]
            }
            Err(_) => Vec::new(),
        }
    }

    /// Writes the directory `out/ID` and returns its path.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, out: &Path) -> Result<PathBuf, RecordError> {
        self.record().write(out)
    }

    /// The parts of the story, for reports.
    fn page(&self) -> FindingPage {
        let writes = self.writes.iter().enumerate().map(|(index, (text, arrived))| WriteLine {
            index,
            text: text.clone(),
            arrived: *arrived,
        });
        let events = match self.minimal.0.split_last() {
            Some((Event::PowerCut(_), before)) => before,
            _ => &self.minimal.0,
        };
        FindingPage {
            levels: self.record.levels.iter().map(ToString::to_string).collect(),
            ops: events.iter().map(ToString::to_string).collect(),
            in_flight: events.len().saturating_sub(1),
            cut: self.cut(),
            writes: writes.collect(),
            before: tree_lines(&self.before),
            promised: self.promised.iter().map(tree_lines).collect(),
            found: self.found.as_ref().map(tree_lines).unwrap_or_default(),
            repaired: self.repaired.as_ref().map(tree_lines).unwrap_or_default(),
            differences: self.record.what.lines().map(str::to_owned).collect(),
            ..FindingPage::default()
        }
    }

    fn found_text(&self) -> String {
        match &self.found {
            Ok(tree) => tree.to_string(),
            Err(why) => format!("{why}\n"),
        }
    }
}

/// A disk as a file. What is zero on it takes no memory: a guest has little, and the disks of kernel file
/// systems are mostly empty.
pub(super) fn disk(name: &str, image: &Image) -> Evidence {
    if image.erased() != Erased::Zeros {
        return Evidence::bytes(name, image.to_vec());
    }
    let part = |part: Range<usize>| {
        let mut bytes = vec![0; part.len()];
        image.read(part.start, &mut bytes);
        (part.start as u64, bytes)
    };
    let parts = image.occupied().into_iter().map(part).collect();
    Evidence::sparse(name, image.size() as u64, parts)
}

/// A tree, entry by entry, in words.
fn tree_lines(tree: &Tree) -> Vec<TreeLine> {
    let line = |(path, entry): (&FsPath, &Entry)| {
        let text = match (&entry.broken, entry.kind) {
            (Some(broken), _) => format!("{} fails with {}", broken.call, broken.errno),
            (None, Kind::Dir) => "directory".to_owned(),
            (None, _) if entry.size == 0 => "file, empty".to_owned(),
            (None, _) => {
                format!("file, {} bytes, contents {}", entry.size, &entry.content.to_string()[..8])
            }
        };
        TreeLine { path: path.to_string(), text }
    };
    tree.entries.iter().map(line).collect()
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
        self.write_variants(f)?;
        write!(f, "\nseen in {} crash images; ", record.count)?;
        match record.complete {
            true => writeln!(
                f,
                "played again {} times, {} of them the same",
                record.runs, record.runs_reproduced
            )?,
            false => writeln!(f, "as it was first seen: not yet played again")?,
        }
        if record.ops < record.ops_found {
            writeln!(f, "shrunk from {} operations to {}", record.ops_found, record.ops)?;
        }
        writeln!(f, "replay: fathom replay {}", record.id)
    }
}

impl CrashFinding {
    fn write_variants(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let variants = &self.record.variants;
        if variants.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nthe same cause shows as:")?;
        for variant in variants.iter().take(VARIANTS_SHOWN_MAX) {
            writeln!(f, "  {} ({} images)", variant.signature, variant.sightings)?;
        }
        match variants.len().saturating_sub(VARIANTS_SHOWN_MAX) {
            0 => Ok(()),
            more => writeln!(f, "  … and {more} more: see finding.toml"),
        }
    }

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
                    Kind::Dir => format!("{path}/"),
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
