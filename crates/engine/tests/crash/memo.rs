//! The memo of examinations: the same findings and counts with it as without it, exact numbers of
//! hits, and what refutes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fathom_block::backed::{BlockBacked, Durable, Guarantee, MountFailure, Mounted};
use fathom_block::disks::{Facts, Memo, MemoCounts, Questions, ReadSet, View};
use fathom_block::{Examine, Geometry, Image, InProcess, Recorder};
use fathom_core::{Errno, FsPath, HarnessFault, Op, Outcome, PlainTree, Tree};

use fathom_engine::crash::{CrashConfig, CrashSystem};
use fathom_engine::search::{Plan, Strategy, search};

use super::base;
use super::bug::Bug;
use super::toy::Toy;

const SECTOR_BYTES: usize = 512;

/// What a [`Pointer`] does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    /// Another sector counts too, seen without reading: a second device on the same contents.
    SeesMore,
    /// Every look shows something else.
    Chance,
}

/// A read-only file system of one file: the first byte of sector 0 says in which sector its contents
/// are.
struct Pointer {
    guarantee: Guarantee,
    wrong: Wrong,
    looks: AtomicU64,
}

const SECTORS: usize = 4;

impl Pointer {
    fn new(wrong: Wrong) -> Pointer {
        let guarantee = Toy::new(Durable::Operation).guarantee().clone();
        Pointer { guarantee, wrong, looks: AtomicU64::new(0) }
    }
}

fn disk(sectors: [u8; SECTORS]) -> Image {
    let bytes: Vec<u8> = sectors.iter().flat_map(|byte| [*byte; SECTOR_BYTES]).collect();
    Image::from_bytes(&bytes, fathom_block::Erased::Zeros)
}

impl BlockBacked for Pointer {
    fn name(&self) -> &str {
        "pointer"
    }

    fn version(&self) -> &str {
        "pointer 1"
    }

    fn geometry(&self) -> Geometry {
        Geometry::disk(SECTORS * SECTOR_BYTES)
    }

    fn guarantee(&self) -> &Guarantee {
        &self.guarantee
    }

    fn format(&self) -> Result<Image, HarnessFault> {
        Ok(disk([1, 0, 0, 0]))
    }

    fn mount(&self, mut device: Recorder) -> Result<Box<dyn Mounted>, Box<MountFailure>> {
        let mut sector = [0; SECTOR_BYTES];
        let mut read = |at: usize| device.read(at * SECTOR_BYTES, &mut sector).map(|()| sector[0]);
        let at = read(0).unwrap_or_default() as usize;
        let Ok(mut holds) = read(at) else {
            return Err(Box::new(MountFailure { errno: Errno::EIO, device }));
        };
        match self.wrong {
            Wrong::Nothing => {}
            Wrong::SeesMore => {
                let reads = device.take_noted();
                let last = device.image().slice((SECTORS - 1) * SECTOR_BYTES, 1);
                holds ^= last.map_or(0, |bytes| bytes[0]);
                device = match reads {
                    Some(reads) => device.noting(reads),
                    None => device,
                };
            }
            Wrong::Chance => holds ^= self.looks.fetch_add(1, Ordering::Relaxed) as u8,
        }
        Ok(Box::new(PointerMount { device, holds }))
    }
}

struct PointerMount {
    device: Recorder,
    holds: u8,
}

impl Mounted for PointerMount {
    fn apply(&mut self, _: &Op) -> Outcome {
        Outcome::err(Errno::EROFS)
    }

    fn observe(&mut self) -> Tree {
        let mut tree = PlainTree::new();
        tree.file(FsPath::from("a"), &[self.holds]);
        tree.finish()
    }

    fn position(&self) -> usize {
        self.device.position()
    }

    fn unmount(self: Box<Self>) -> (Outcome, Recorder) {
        (Outcome::ok(0), self.device)
    }

    fn power_off(self: Box<Self>) -> Recorder {
        self.device
    }
}

/// All disks whose pointer is 1, 2 or 3 and whose other sectors hold 0 to `values - 1`.
fn all_disks(values: u8) -> Vec<Image> {
    let mut disks = Vec::new();
    for pointer in 1..=3 {
        for one in 0..values {
            for two in 0..values {
                for three in 0..values {
                    disks.push(disk([pointer, one, two, three]));
                }
            }
        }
    }
    disks
}

/// Examines disks one after the other; returns how often the memo answered what an examination does
/// not say.
fn wrong_answers(memo: &Memo, subject: &dyn BlockBacked, disks: &[Image]) -> usize {
    let examiner = InProcess::new(subject);
    let differs = |disk: &&Image| {
        let disk = std::slice::from_ref(*disk);
        let said = memo.examine(&examiner, disk, &Questions::TREE).expect("no fault");
        let true_facts = examiner.examine(disk, &Questions::TREE).expect("no fault");
        !said[0].agree_with(&true_facts[0])
    };
    disks.iter().filter(differs).count()
}

/// With `v` values there are 3·v³ disks. What is read is the pointer and where it points: 3·v
/// combinations are examined, the rest is answered.
#[test]
fn hits_and_misses_in_closed_form() {
    for values in 1..=5 {
        let (subject, memo) = (Pointer::new(Wrong::Nothing), Memo::default());
        let disks = all_disks(values);
        assert_eq!(wrong_answers(&memo, &subject, &disks), 0);
        let (all, examined) = (3 * u64::from(values).pow(3), 3 * u64::from(values));
        let verified = u64::from(all > examined);
        let answered = all - examined;
        assert_eq!(memo.counts(), MemoCounts { examined, answered, verified, refuted: 0 });
    }
}

#[test]
fn a_full_memo_starts_anew_and_a_disabled_one_knows_nothing() {
    let disks = all_disks(3);
    let subject = Pointer::new(Wrong::Nothing);
    let small = Memo::default().units_max(0);
    assert_eq!(wrong_answers(&small, &subject, &disks), 0);
    // Of what was examined last, 9 disks in a row differ only elsewhere if the pointer is 1.
    assert!(small.counts().answered > 0 && small.counts().examined > 9, "{:?}", small.counts());
    let off = Memo::default().disabled();
    assert_eq!(wrong_answers(&off, &subject, &disks), 0);
    assert_eq!(off.counts(), MemoCounts { examined: 81, ..MemoCounts::default() });
}

/// Different questions have different answers.
#[test]
fn questions_are_kept_apart() {
    let (subject, memo) = (Pointer::new(Wrong::Nothing), Memo::default());
    let ask = |questions: &Questions| {
        let facts = memo.examine(&InProcess::new(&subject), &[disk([1, 2, 3, 4])], questions);
        let view = facts.expect("no fault")[0].view.clone().expect("it mounts");
        view.tree.is_some()
    };
    assert!(ask(&Questions::TREE) && !ask(&Questions::default()) && ask(&Questions::TREE));
    assert_eq!((memo.counts().examined, memo.counts().answered), (2, 1));
}

/// A subject that sees what it does not tell: the answers are wrong, and a memo that verifies its
/// answers notices.
#[test]
fn a_subject_that_does_not_tell_what_it_reads_is_noticed() {
    let disks = all_disks(3);
    let careless = Memo::default().verified_every(0);
    assert!(wrong_answers(&careless, &Pointer::new(Wrong::SeesMore), &disks) > 0);
    let careful = Memo::default().verified_every(1);
    assert_eq!(wrong_answers(&careful, &Pointer::new(Wrong::SeesMore), &disks), 0);
    assert_eq!(careful.counts().refuted, 1);
    // From then on everything is examined.
    let before = careful.counts().answered;
    assert_eq!(wrong_answers(&careful, &Pointer::new(Wrong::SeesMore), &disks), 0);
    assert_eq!(careful.counts().answered, before);
}

#[test]
fn chance_refutes_the_memo() {
    let (subject, memo) = (Pointer::new(Wrong::Chance), Memo::default().verified_every(1));
    let ask = || memo.examine(&InProcess::new(&subject), &[disk([1, 0, 0, 0])], &Questions::TREE);
    ask().and_then(|_| ask()).expect("no fault");
    assert_eq!((memo.counts().verified, memo.counts().refuted), (1, 1));
}

/// An examination that leaves one block out of what it read.
struct Forgets(Pointer);

impl Examine for Forgets {
    fn examine(
        &self,
        disks: &[Image],
        questions: &Questions,
    ) -> Result<Vec<Arc<Facts>>, HarnessFault> {
        let forget = |facts: Arc<Facts>| {
            let mut facts = (*facts).clone();
            let first = facts.read.units().expect("it tells what it reads").next();
            facts.read = ReadSet::of_units(facts.read.unit_bytes(), first);
            Arc::new(facts)
        };
        let facts = InProcess::new(&self.0).examine(disks, questions)?;
        Ok(facts.into_iter().map(forget).collect())
    }
}

#[test]
fn a_block_that_is_left_out_gives_a_wrong_answer_which_is_noticed() {
    let examiner = Forgets(Pointer::new(Wrong::Nothing));
    let shown = |memo: &Memo, holds: u8| -> View {
        let facts = memo.examine(&examiner, &[disk([1, holds, 0, 0])], &Questions::TREE);
        facts.expect("no fault")[0].view.clone().expect("it mounts")
    };
    let careless = Memo::default().verified_every(0);
    assert_eq!(shown(&careless, 1), shown(&careless, 2));
    let careful = Memo::default().verified_every(1);
    assert_ne!(shown(&careful, 1), shown(&careful, 2));
    assert_eq!(careful.counts().refuted, 1);
}

/// Counts and findings of a whole check, with the memo and without.
#[test]
fn a_check_comes_to_the_same_with_and_without() {
    for bug in [None, Some(Bug::ForgetsLast), Some(Bug::RecoveryLeaks), Some(Bug::NoChecksum)] {
        let config = CrashConfig { depth: 3, fsck: false, ..base() };
        let run = |memo: Memo| {
            let toy = Toy::new(Durable::Close);
            let toy = bug.map_or(Toy::new(Durable::Close), |bug| toy.with(bug));
            let mut system = CrashSystem::new(&toy, &config).expect("it can be formatted");
            system.memo = memo;
            let plan = Plan { threads: 1, depth_max: Some(config.depth), ..Plan::default() };
            let report = search(&system, &Strategy::Bfs, &plan, &mut Nobody).expect("it runs");
            let (groups, images) = (system.found(), system.images());
            (report.states, report.transitions, images, groups, system.memo.counts())
        };
        let (with, without) = (run(Memo::default()), run(Memo::default().disabled()));
        assert_eq!(
            (with.0, with.1, with.2, &with.3),
            (without.0, without.1, without.2, &without.3)
        );
        assert_eq!(with.4.examined + with.4.answered, with.2, "{bug:?}");
        assert_eq!((without.4.examined, without.4.answered), (without.2, 0));
        assert_eq!((with.4.refuted, bug.is_none() || !with.3.is_empty()), (0, true), "{bug:?}");
    }
}

struct Nobody;

impl fathom_engine::search::Observer for Nobody {
    fn progress(&mut self, _: &fathom_engine::search::Progress) -> std::ops::ControlFlow<()> {
        std::ops::ControlFlow::Continue(())
    }

    fn discovery(&mut self, _: &fathom_engine::search::Discovery) {}
}
