//! Other subjects behind the seams than a library that examines one disk after the other and writes
//! the same each time: one that likes its disks in batches, and one that is not deterministic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use fathom_block::backed::{BlockBacked, Durable, Guarantee};
use fathom_block::disks::{
    End, Examine, Facts, Memo, Questions, Record, Recording, SubjectFailure, Workload,
};
use fathom_block::{DiskFileSystem, Event, Geometry, Image, InProcess, Level, WriteLog};
use fathom_core::{HarnessFault, Mode, Op};
use fathom_engine::Silent;
use fathom_engine::crash::sequences::crash_sequences;
use fathom_engine::crash::stored::{CrashVerdict, StoredCrash};
use fathom_engine::crash::{Class, CrashConfig, CrashPlan, CrashReplay, CrashReport, crash};
use fathom_engine::search::Stop;

use super::bug::Bug;
use super::toy::Toy;
use super::{base, find, plan};

const SECTOR_BYTES: usize = 512;
const AREA_BYTES: usize = 8 * SECTOR_BYTES;

/// A toy behind the seams in another way.
struct Seam {
    toy: Toy,
    batch: usize,
    /// The largest batch that was examined.
    largest: AtomicUsize,
    /// How many facts are withheld from each batch.
    withheld: usize,
    /// Each commit writes the next of these to a sector that nobody reads.
    stamps: Option<AtomicU64>,
    /// How long each batch takes.
    slow: Duration,
}

impl Seam {
    fn new(bug: Option<Bug>, batch: usize) -> Seam {
        let toy = bug.into_iter().fold(Toy::new(Durable::Operation), Toy::with);
        let slow = Duration::ZERO;
        Seam { toy, batch, largest: AtomicUsize::new(0), withheld: 0, stamps: None, slow }
    }

    /// The log with a stamp after the header of every snapshot, and the marks in it.
    fn stamped(recording: Recording, stamps: &AtomicU64) -> Recording {
        let (mut log, mut positions) = (WriteLog::new(), vec![0]);
        for event in recording.log.events() {
            log.push(event);
            if let Event::Write { at, .. } = event
                && at.is_multiple_of(AREA_BYTES)
            {
                let stamp = stamps.fetch_add(1, Ordering::Relaxed).to_le_bytes();
                let data = stamp.repeat(SECTOR_BYTES / stamp.len());
                let at = at + AREA_BYTES - SECTOR_BYTES;
                log.push(Event::Write { at, data: &data, fua: false, metadata: false });
            }
            positions.push(log.len());
        }
        let marks = recording.marks.iter().map(|mark| positions[*mark]).collect();
        Recording { marks, log, ..recording }
    }
}

impl Record for Seam {
    fn record(
        &self,
        base: &Image,
        workload: &Workload<'_>,
    ) -> Result<Result<Recording, SubjectFailure>, HarnessFault> {
        let recorded = InProcess::new(&self.toy).record(base, workload)?;
        Ok(recorded.map(|recording| match &self.stamps {
            Some(stamps) => Seam::stamped(recording, stamps),
            None => recording,
        }))
    }
}

impl Examine for Seam {
    fn examine(
        &self,
        disks: &[Image],
        questions: &Questions,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        assert!(disks.len() <= self.batch, "{} disks at once", disks.len());
        self.largest.fetch_max(disks.len(), Ordering::Relaxed);
        std::thread::sleep(self.slow);
        let mut facts = InProcess::new(&self.toy).examine(disks, questions)?;
        facts.truncate(disks.len() - self.withheld.min(disks.len()));
        Ok(facts)
    }

    fn batch_disks(&self) -> usize {
        self.batch
    }
}

impl DiskFileSystem for Seam {
    fn name(&self) -> &str {
        self.toy.name()
    }

    fn version(&self) -> &str {
        self.toy.version()
    }

    fn geometry(&self) -> Geometry {
        self.toy.geometry()
    }

    fn guarantee(&self) -> &Guarantee {
        self.toy.guarantee()
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        self.toy.format()
    }

    fn is_deterministic(&self) -> bool {
        self.stamps.is_none()
    }
}

fn config(levels: &[Level]) -> CrashConfig {
    // Capacities are compared with those of disks that were examined before: not in batches.
    let levels = levels.to_vec();
    CrashConfig { depth: 3, sizes: vec![10], levels, probe: false, fsck: false, ..base() }
}

fn run(seam: &Seam, config: &CrashConfig) -> CrashReport {
    crash(seam, &plan(config), &mut Silent).expect("a sound plan")
}

/// Everything that must not depend on how many disks are examined at once.
#[derive(Debug, PartialEq)]
struct Results {
    states: u64,
    transitions: u64,
    images: u64,
    enumerated: u64,
    /// The id, the number of images and the violation of each finding.
    findings: Vec<(String, u64, String)>,
}

fn results(seam: &Seam) -> Results {
    let report = run(seam, &config(&[Level::Linear, Level::Epoch, Level::Torn]));
    let told = report.findings.iter().map(|finding| {
        (finding.record.id.clone(), finding.record.count, finding.record.what.clone())
    });
    Results {
        states: report.search.states,
        transitions: report.search.transitions,
        images: report.crash_images,
        enumerated: report.enumerated,
        findings: told.collect(),
    }
}

#[test]
fn batches_of_disks_change_nothing() {
    for bug in [None, Some(Bug::ForgetsLast), Some(Bug::NoChecksum), Some(Bug::InPlace)] {
        let alone = results(&Seam::new(bug, 1));
        assert_eq!(alone.findings.is_empty(), bug.is_none(), "{bug:?}: {alone:?}");
        for batch in [2, 7, 64] {
            let seam = Seam::new(bug, batch);
            assert_eq!(results(&seam), alone, "{bug:?} in batches of {batch}");
            let largest = seam.largest.load(Ordering::Relaxed);
            assert!(largest > 1, "{bug:?}: never more than one disk at once");
        }
    }
}

/// The memo answers for some disks of a batch, and the others are examined together.
#[test]
fn a_batch_is_answered_in_its_order() {
    let seam = Seam::new(None, 4);
    let mut disks = vec![seam.format().expect("a toy")];
    for at in [3 * SECTOR_BYTES, AREA_BYTES, 2 * AREA_BYTES - 1] {
        let mut disk = disks[0].clone();
        disk.write(at, b"x");
        disks.push(disk);
    }
    let memo = Memo::default().verified_every(0);
    let ask = |disks: &[Image]| memo.examine(&seam, disks, &Questions::TREE).expect("no fault");
    let one = ask(&disks[..1]);
    let all = ask(&disks);
    assert_eq!(all.len(), disks.len());
    assert!(Arc::ptr_eq(&one[0], &all[0]), "the first one was known");
    for (facts, disk) in all.iter().zip(&disks) {
        let alone = InProcess::new(&seam.toy).examine(std::slice::from_ref(disk), &Questions::TREE);
        assert!(alone.expect("no fault")[0].agree_with(facts));
    }
}

/// A batch that comes back too short is a failure of ours, and never a finding.
#[test]
fn facts_that_are_missing_are_a_fault() {
    let seam = Seam { withheld: 1, ..Seam::new(None, 4) };
    let error = crash(&seam, &plan(&config(&[Level::Linear])), &mut Silent).expect_err("a fault");
    assert!(error.to_string().contains("fewer facts than disks"), "{error}");
}

#[test]
fn what_is_not_deterministic_replays_from_its_recording() {
    let seam = Seam { stamps: Some(AtomicU64::new(1)), ..Seam::new(Some(Bug::ForgetsLast), 1) };
    let format = seam.format().expect("a toy");
    let mkdir = Op::Mkdir { path: "d".into(), mode: fathom_core::Mode(0o755) };
    let workload = Workload { ops: &[&mkdir], end: End::PowerOff, look: false };
    let log = || seam.record(&format, &workload).expect("no fault").expect("it mounts").log;
    assert_ne!(log(), log(), "each run writes another stamp");

    let report = run(&seam, &config(&[Level::Linear, Level::Torn]));
    let finding = find(&report, Class::LostEntry, "mkdir");
    assert_eq!((finding.record.runs, finding.record.runs_reproduced), (2, 2), "{finding}");
    assert!(finding.recording.is_some(), "it is kept");
    let directory = tempfile::tempdir().expect("a directory");
    let stored = StoredCrash::read(&finding.write(directory.path()).expect("written"));
    let stored = stored.expect("as it was written");
    for _ in 0..3 {
        let replay = CrashReplay::play(&seam, &stored).expect("no fault");
        assert_eq!(replay.verdict, CrashVerdict::Reproduced, "{}", replay.finding);
    }
    // Without the recording the same operations leave another disk.
    let forgotten = StoredCrash { recording: None, ..stored.clone() };
    let replay = CrashReplay::play(&seam, &forgotten).expect("no fault");
    assert_eq!(replay.verdict, CrashVerdict::Different, "{}", replay.finding);
    // And on a file system without the bug the recorded disk is fine.
    let mended = Seam { stamps: Some(AtomicU64::new(1)), ..Seam::new(None, 1) };
    let replay = CrashReplay::play(&mended, &stored).expect("no fault");
    assert_eq!(replay.verdict, CrashVerdict::NotReproduced, "{}", replay.finding);
}

/// A workload whose disks take longer than there is time is judged as far as that went, unless somebody is to go
/// on with the check.
#[test]
fn the_time_may_be_over_in_the_middle_of_a_workload() {
    let config = config(&[Level::Linear, Level::Torn]);
    let mkdir = |name: &str| Op::Mkdir { path: name.into(), mode: Mode(0o755) };
    let ops: Vec<Op> = ["a", "b", "c", "d", "e", "f"].map(mkdir).to_vec();
    let run = |time_max: Option<Duration>, checkpoint: Option<&std::path::Path>| {
        let seam = Seam { slow: Duration::from_millis(20), ..Seam::new(None, 2) };
        let checkpoint = checkpoint.map(|path| (path.to_owned(), false));
        let plan = CrashPlan { time_max, checkpoint, ..plan(&config) };
        let mut workloads = std::iter::repeat_n(ops.clone(), 3);
        crash_sequences(&seam, &plan, "mkdir", &mut workloads, &mut Silent).expect("a sound plan")
    };
    let whole = run(None, None);
    let counts = whole.workloads.expect("they are given");
    assert_eq!((counts.workloads, counts.not_followed, counts.cut_short), (3, 0, 0));
    // Longer than a batch, shorter than all of them.
    let short = Some(Duration::from_millis(30));
    let part = run(short, None);
    let counts = part.workloads.expect("they are given");
    assert_eq!((counts.workloads, counts.not_followed, counts.cut_short), (1, 0, 1));
    assert_eq!(part.search.stop, Stop::Time);
    assert!(part.enumerated > 0 && part.enumerated < whole.enumerated, "{}", part.enumerated);
    assert!(part.findings.is_empty());
    let dir = tempfile::tempdir().expect("a directory");
    let kept = run(short, Some(&dir.path().join("checkpoint")));
    let counts = kept.workloads.expect("they are given");
    assert_eq!((counts.workloads, counts.cut_short, kept.search.stop), (1, 0, Stop::Time));
    assert_eq!(kept.crash_images, whole.crash_images);
}
