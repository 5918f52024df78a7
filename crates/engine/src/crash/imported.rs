//! A log that somebody else has recorded: writes and flushes, without the operations behind them.
//!
//! Nobody knows what was promised, so only what no power failure may cause is a violation: a disk that
//! does not mount, that cannot be read, that its checker rejects, that shows something else when it is
//! mounted again, that cannot be used, of which the kernel complains. If the one who recorded says that
//! everything was durable at the marks of the log, each disk that a power failure at a mark leaves must
//! also show the tree that all writes up to it show.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use fathom_block::disks::{Facts, Memo, Questions, SubjectFailure};
use fathom_block::{CrashPoint, DiskFileSystem, Distinct, Event, Image, Level, Window, WriteLog};
use fathom_core::{Digest, HarnessFault};
use fathom_record::{Evidence, Finding, Observer, Progress};

use super::config::CrashConfig;
use super::finding::{KIND, disk};
use super::judge::{Class, anonymous};
use super::recovery::{Defect, Recovered, questions};

/// Domain of the digest that names a finding.
const DOMAIN_IMPORTED: u64 = 32;

/// A log, and the disk before it.
#[derive(Clone, Debug)]
pub struct ImportedLog {
    /// The disk before the log.
    pub base: Image,
    /// What it was told.
    pub log: WriteLog,
    /// The mark after which the power may fail; from the beginning if there is none.
    pub from_mark: Option<String>,
    /// Everything is durable at every mark.
    pub durable_at_marks: bool,
    /// Stop after this time.
    pub time_max: Option<Duration>,
}

/// What came of judging a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImportCounts {
    /// Crash states, equal ones included.
    pub states: u64,
    /// Different disks, all of which were examined.
    pub disks: u64,
    /// Marks at which everything was durable.
    pub marks: u64,
    /// Whether the time was over before the end.
    pub stopped: bool,
}

/// Why a log could not be judged.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The log writes beyond the disk.
    #[error(
        "the log writes up to byte {log_bytes}, the image has {image_bytes}: the log belongs to another image"
    )]
    TooLong {
        /// The end of its last write.
        log_bytes: usize,
        /// The size of the image.
        image_bytes: usize,
    },
    /// There is no such mark.
    #[error("the log has no mark {mark:?}: it has {known}")]
    NoMark {
        /// The mark.
        mark: String,
        /// Those that it has.
        known: String,
    },
    /// The disk before the log is none of this file system.
    #[error(
        "{when} the image does not mount ({why}): give the image that the log was recorded on, or --from MARK if the file system was made while it was recorded"
    )]
    NotThis {
        /// Before or after the log.
        when: &'static str,
        /// What the kernel said.
        why: String,
    },
    /// The harness failed.
    #[error(transparent)]
    Harness(#[from] HarnessFault),
}

/// The mark that the kernel itself makes when the device goes away: nothing is durable because of it.
const KERNEL_MARK: &[u8] = b"dm-log-writes-end";

/// The marks of a log that somebody made, with their positions.
pub fn marks(log: &WriteLog) -> Vec<(usize, String)> {
    let mark = |index: usize| match log.event(index) {
        Event::Mark(mark) if *mark != *KERNEL_MARK => {
            Some((index, String::from_utf8_lossy(mark).into_owned()))
        }
        _ => None,
    };
    (0..log.len()).filter_map(mark).collect()
}

/// One thing that is wrong, and the first disk that shows it.
struct Sighting {
    defect: Defect,
    point: CrashPoint,
    image: Image,
    count: u64,
}

struct Judging<'a> {
    subject: &'a dyn DiskFileSystem,
    questions: Questions,
    known: Distinct,
    facts: BTreeMap<Digest, Recovered>,
    found: BTreeMap<(Class, String), Sighting>,
    counts: ImportCounts,
    deadline: Option<Instant>,
}

/// Judges a log: cuts the power everywhere in it.
///
/// # Errors
/// If the log does not belong to the disk, or the harness fails.
pub fn judge_log(
    subject: &dyn DiskFileSystem,
    config: &CrashConfig,
    imported: &ImportedLog,
    observer: &mut dyn Observer,
) -> Result<ImportCounts, ImportError> {
    let ImportedLog { base, log, .. } = imported;
    let (log_bytes, image_bytes) = (log.extent_bytes(), base.size());
    if log_bytes > image_bytes {
        return Err(ImportError::TooLong { log_bytes, image_bytes });
    }
    let from = start(imported)?;
    let levels = match config.levels.as_slice() {
        [] => subject.guarantee().survives.is.clone(),
        levels => levels.to_vec(),
    };
    let whole = Window::new(base, log, subject.geometry().atomic_bytes);
    for (when, position) in [("before the log", from), ("after the log", log.len())] {
        must_mount(subject, when, &whole.image_at(position))?;
    }
    let started = Instant::now();
    let mut judging = Judging {
        subject,
        questions: questions(config, &levels, true),
        known: Distinct::default(),
        facts: BTreeMap::new(),
        found: BTreeMap::new(),
        counts: ImportCounts::default(),
        deadline: imported.time_max.map(|max| started + max),
    };
    for level in &levels {
        let window = whole.clone().between(from, log.len());
        judging.judge(*level, config, &window, None)?;
        let _ = observer.progress(&judging.progress(started));
    }
    if imported.durable_at_marks {
        for (position, _) in marks(log).into_iter().filter(|(position, _)| *position >= from) {
            let window = whole.clone().between(position, position);
            let tree = judging.tree_at(&window)?;
            judging.counts.marks += 1;
            for level in &levels {
                judging.judge(*level, config, &window, Some(tree))?;
            }
        }
    }
    for sighting in judging.found.values() {
        let finding = tell(subject, &whole, sighting);
        observer.seen(&finding);
        observer.finding(&finding, Some(&finding.id));
    }
    Ok(judging.counts)
}

/// The position from which on the power may fail.
fn start(imported: &ImportedLog) -> Result<usize, ImportError> {
    let Some(mark) = &imported.from_mark else { return Ok(0) };
    let all = marks(&imported.log);
    let found = all.iter().find(|(_, name)| name == mark).map(|(position, _)| *position);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(_, name)| name.as_str()).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        ImportError::NoMark { mark: mark.clone(), known }
    })
}

/// A disk whose power did not fail must mount.
fn must_mount(
    subject: &dyn DiskFileSystem,
    when: &'static str,
    image: &Image,
) -> Result<(), ImportError> {
    let facts = subject.examine(std::slice::from_ref(image), &Questions::VIEW)?;
    match facts.first().map(|facts| &facts.view) {
        Some(Err(SubjectFailure::Mount(errno))) => {
            Err(ImportError::NotThis { when, why: errno.to_string() })
        }
        Some(Err(SubjectFailure::Panic(message))) => {
            Err(ImportError::NotThis { when, why: message.clone() })
        }
        _ => Ok(()),
    }
}

impl Judging<'_> {
    fn progress(&self, started: Instant) -> Progress {
        Progress {
            elapsed: started.elapsed(),
            counts: vec![("crash_images", self.counts.disks), ("states", self.counts.states)],
            share: None,
            findings: self.found.len() as u64,
        }
    }

    /// What all writes up to the position of a window show.
    fn tree_at(&mut self, window: &Window<'_>) -> Result<Digest, HarnessFault> {
        let image = window.image_at(window.from());
        self.examine(std::slice::from_ref(&image))?;
        Ok(self.facts.get(&image.digest()).map(|known| known.tree).unwrap_or_default())
    }

    /// Judges the disks of a window; `tree`: what each must show.
    fn judge(
        &mut self,
        level: Level,
        config: &CrashConfig,
        window: &Window<'_>,
        tree: Option<Digest>,
    ) -> Result<(), HarnessFault> {
        let mut batch: Vec<(CrashPoint, Image)> = Vec::new();
        let mut fault = None;
        let batch_disks = self.subject.batch_disks().max(1);
        let _ = level.enumerator(&config.bounds).visit(window, &mut |point, image| {
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.counts.stopped = true;
                return ControlFlow::Break(());
            }
            batch.push((point.clone(), image.clone()));
            if batch.len() < batch_disks {
                return ControlFlow::Continue(());
            }
            match self.judge_batch(&mut batch, tree) {
                Ok(()) => ControlFlow::Continue(()),
                Err(failed) => {
                    fault = Some(failed);
                    ControlFlow::Break(())
                }
            }
        });
        match fault {
            Some(fault) => Err(fault),
            None => self.judge_batch(&mut batch, tree),
        }
    }

    fn judge_batch(
        &mut self,
        batch: &mut Vec<(CrashPoint, Image)>,
        tree: Option<Digest>,
    ) -> Result<(), HarnessFault> {
        let mut new = Vec::new();
        for (_, image) in batch.iter() {
            if self.known.insert(image) {
                new.push(image.clone());
            }
        }
        self.examine(&new)?;
        for (point, image) in batch.drain(..) {
            self.counts.states += 1;
            let Some(known) = self.facts.get(&image.digest()) else { continue };
            let defect = match (&known.defect, tree) {
                (Some(defect), _) => Some(defect.clone()),
                (None, Some(tree)) if known.tree != tree => Some(Defect {
                    class: Class::LostEntry,
                    what: "at a mark, another tree than all writes up to it show".to_owned(),
                }),
                _ => None,
            };
            if let Some(defect) = defect {
                self.add(defect, point, image);
            }
        }
        Ok(())
    }

    fn add(&mut self, defect: Defect, point: CrashPoint, image: Image) {
        let key = (defect.class, anonymous(&defect.what));
        let new = || Sighting { defect, point, image, count: 0 };
        self.found.entry(key).or_insert_with(new).count += 1;
    }

    fn examine(&mut self, images: &[Image]) -> Result<(), HarnessFault> {
        let unknown = |image: &&Image| !self.facts.contains_key(&image.digest());
        let images: Vec<Image> = images.iter().filter(unknown).cloned().collect();
        if images.is_empty() {
            return Ok(());
        }
        let facts = Memo::default().examine(self.subject, &images, &self.questions)?;
        for (image, facts) in images.iter().zip(facts) {
            self.counts.disks += 1;
            self.facts.insert(image.digest(), Recovered::from(&*facts as &Facts));
        }
        Ok(())
    }
}

/// A violation as it is recorded.
fn tell(subject: &dyn DiskFileSystem, window: &Window<'_>, sighting: &Sighting) -> Finding {
    let Sighting { defect, point, image, count } = sighting;
    let signature = format!("{} in an imported log: {}", defect.class, anonymous(&defect.what));
    let text = format!("{} {signature} {point} {}", subject.name(), image.digest());
    let id = Digest::of(DOMAIN_IMPORTED, text.as_bytes()).to_string()[..12].to_owned();
    let mut finding = Finding::new(KIND, &id, &signature);
    finding.class = defect.class.name();
    finding.title = format!("{signature} on {}", subject.name());
    finding.subject = subject.name().to_owned();
    finding.sightings = *count;
    finding.complete = true;
    let marks = marks(window.log());
    let before = marks.iter().rfind(|(at, _)| *at <= point.position()).map(|(_, name)| name);
    let mark = before.map_or_else(String::new, |name| format!(", after the mark {name:?}"));
    finding.story = format!(
        "finding {id}: {}\n\nThe power fails at {point} of {} events{mark}.\n\n  {}\n\n\
         seen in {count} crash states; the disk is crash.img\n",
        finding.title,
        window.log().len(),
        defect.what.replace('\n', "\n  "),
    );
    finding.evidence =
        vec![Evidence::text("story.txt", finding.story.clone()), disk("crash.img", image)];
    finding
}
