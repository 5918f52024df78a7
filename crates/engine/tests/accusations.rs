//! Correct file systems that were accused once, and must not be again; each beside a wrong one that
//! must still be found.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;

use fathom_core::flags::{OpenFlags, Whence};
use fathom_core::{
    Caller, Capability, FsPath, HarnessFault, Kind, Mode, Op, Outcome, PathState, Pattern, Subject,
    Target, Testbed, Tree, Verdict, Violation, Wrapper,
};
use fathom_engine::check::oracle::{Oracle, Signature};
use fathom_engine::check::side_by_side::{Inspection, SideBySide};
use fathom_engine::{Plan, check};
use fathom_generate::Config as Workload;
use fathom_model::{Config, ModelSubject, Mutant, Quirks};
use fathom_record::{Finding, Observer, Progress};

/// A model behind something that changes what is seen of it.
struct Seen {
    model: ModelSubject,
    /// Changes one entry on its way out; told whether the caches are passed.
    change: fn(&FsPath, &mut fathom_core::Entry, past_caches: bool),
    past_caches: bool,
}

impl Seen {
    fn new(config: Config, change: fn(&FsPath, &mut fathom_core::Entry, bool)) -> Seen {
        Seen { model: ModelSubject::new(config).unwrap(), change, past_caches: false }
    }
}

impl Subject for Seen {
    fn name(&self) -> String {
        "seen".to_owned()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        BTreeSet::new()
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        self.model.apply(op)
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        let mut tree = self.model.observe()?;
        for (path, entry) in &mut tree.entries {
            (self.change)(path, entry, self.past_caches);
        }
        Ok(tree)
    }
}

impl Testbed for Seen {
    fn reset(&mut self) -> Result<(), HarnessFault> {
        self.model.reset()
    }

    fn observe_paths(&mut self, paths: &[FsPath]) -> Result<Vec<PathState>, HarnessFault> {
        let mut states = self.model.observe_paths(paths)?;
        for state in &mut states {
            if let Some(entry) = &mut state.entry {
                (self.change)(&state.path, entry, self.past_caches);
            }
        }
        Ok(states)
    }

    fn ask_past_caches(&mut self, ask: bool) {
        self.past_caches = ask;
    }
}

fn unchanged(_: &FsPath, _: &mut fathom_core::Entry, _: bool) {}

fn open(slot: u8, path: &str) -> Op {
    let flags = OpenFlags::O_RDWR | OpenFlags::O_CREAT;
    Op::Open { slot, path: path.into(), flags, mode: Mode(0o644) }
}

fn link(from: &str, to: &str) -> Op {
    Op::Link { from: from.into(), to: to.into(), follow: false }
}

/// The last verdict on `ops`; all before it must be fine.
fn last_verdict(subject: &mut Seen, reference: &Config, ops: &[Op]) -> Verdict {
    let oracle = Oracle::new(reference, false);
    let mut pair = SideBySide::start(subject, reference, &oracle, None).unwrap();
    let (last, before) = ops.split_last().unwrap();
    for op in before {
        let judged = pair.step(op, Inspection::Whole).unwrap();
        assert_eq!(judged.verdict, Verdict::Ok, "{op}");
    }
    pair.step(last, Inspection::Whole).unwrap().verdict
}

#[test]
fn an_opening_that_finds_no_space_has_closed_what_the_slot_held() {
    // The root directory and two files: the third opening fails.
    let small = Config { inodes: 3, ..Config::default() };
    let reference = Config::default();
    let write = Op::Write { slot: 0, data: Pattern { seed: 1, len: 4 } };
    let ops = [open(0, "a"), open(0, "b"), write.clone(), open(0, "c"), write];
    let verdict = last_verdict(&mut Seen::new(small, unchanged), &reference, &ops);
    assert_eq!(verdict, Verdict::Ok, "both answer EBADF");
}

/// Reference of a file system whose answers are kept for a second.
fn cached(quirks: Quirks) -> Config {
    Config { quirks: Quirks { cache_seconds: 1, ..quirks }, ..Config::default() }
}

fn old_nlink(path: &FsPath, entry: &mut fathom_core::Entry, past_caches: bool) {
    if path.as_bytes() == b"a" && !past_caches {
        entry.nlink = 1;
    }
}

fn wrong_nlink(path: &FsPath, entry: &mut fathom_core::Entry, _: bool) {
    if path.as_bytes() == b"a" {
        entry.nlink = 1;
    }
}

#[test]
fn what_is_old_is_told_from_what_is_wrong() {
    let ops = [open(0, "a"), link("a", "b")];
    let reference = cached(Quirks::default());
    let old = last_verdict(&mut Seen::new(Config::default(), old_nlink), &reference, &ops);
    let Verdict::Violation(violation @ Violation::Stale { .. }) = old else { panic!("{old:?}") };
    assert_eq!(Signature::of(&ops[1], &violation).to_string(), "stale link nlink");
    let wrong = last_verdict(&mut Seen::new(Config::default(), wrong_nlink), &reference, &ops);
    assert!(matches!(wrong, Verdict::Violation(Violation::Tree { .. })), "{wrong:?}");
    // Where nothing is kept, nothing is old.
    let strict = Config::default();
    let old = last_verdict(&mut Seen::new(Config::default(), old_nlink), &strict, &ops);
    assert!(matches!(old, Verdict::Violation(Violation::Tree { .. })), "{old:?}");
    // A profile may allow what is old, and only that.
    let allowed = cached(Quirks { stale_allowed: true, ..Quirks::default() });
    let old = last_verdict(&mut Seen::new(Config::default(), old_nlink), &allowed, &ops);
    assert_eq!(old, Verdict::Ok);
    let wrong = last_verdict(&mut Seen::new(Config::default(), wrong_nlink), &allowed, &ops);
    assert!(matches!(wrong, Verdict::Violation(_)), "{wrong:?}");
}

fn old_size(path: &FsPath, entry: &mut fathom_core::Entry, past_caches: bool) {
    if path.as_bytes() == b"a" && !past_caches {
        entry.size = 5;
    }
}

#[test]
fn contents_of_what_was_closed_are_never_only_old() {
    let strict = cached(Quirks { close_to_open: true, ..Quirks::default() });
    let ops = [open(0, "a"), link("a", "b")];
    let verdict = |change, reference: &Config, ops: &[Op]| {
        last_verdict(&mut Seen::new(Config::default(), change), reference, ops)
    };
    let size = verdict(old_size, &cached(Quirks::default()), &ops[..1]);
    assert!(matches!(size, Verdict::Violation(Violation::Stale { .. })), "{size:?}");
    let size = verdict(old_size, &strict, &ops[..1]);
    assert!(matches!(size, Verdict::Violation(Violation::Tree { .. })), "{size:?}");
    let nlink = verdict(old_nlink, &strict, &ops);
    assert!(matches!(nlink, Verdict::Violation(Violation::Stale { .. })), "{nlink:?}");
}

fn without_device_number(_: &FsPath, entry: &mut fathom_core::Entry, _: bool) {
    entry.rdev = (0, 0);
}

fn without_device_number_and_mode(path: &FsPath, entry: &mut fathom_core::Entry, _: bool) {
    entry.rdev = (0, 0);
    if path.as_bytes() == b"n" {
        entry.mode = Mode(0o020000);
    }
}

#[test]
fn numbers_of_devices_that_are_lost_hide_nothing_else() {
    let ops = [Op::Mknod { path: "n".into(), mode: Mode(0o020644), dev: (254, 255) }];
    let lost = Quirks { device_numbers_lost: true, ..Quirks::default() };
    let lost = Config { quirks: lost, ..Config::default() };
    let new = |change| Seen::new(Config::default(), change);
    let verdict = last_verdict(&mut new(without_device_number), &lost, &ops);
    assert_eq!(verdict, Verdict::Ok);
    let verdict = last_verdict(&mut new(without_device_number), &Config::default(), &ops);
    assert!(matches!(verdict, Verdict::Violation(Violation::Tree { .. })), "{verdict:?}");
    let verdict = last_verdict(&mut new(without_device_number_and_mode), &lost, &ops);
    assert!(matches!(verdict, Verdict::Violation(Violation::Tree { .. })), "{verdict:?}");
}

#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn progress(&mut self, _: &Progress) -> std::ops::ControlFlow<()> {
        std::ops::ControlFlow::Continue(())
    }

    fn note(&mut self, note: &str) {
        self.0.push(note.to_owned());
    }

    fn seen(&mut self, _: &Finding) -> bool {
        true
    }

    fn finding(&mut self, _: &Finding, _: Option<&str>) {}
}

fn root_nlink_one(path: &FsPath, entry: &mut fathom_core::Entry, _: bool) {
    if path.as_bytes() == b"." {
        entry.nlink = 1;
    }
}

fn every_dir_nlink_one(_: &FsPath, entry: &mut fathom_core::Entry, _: bool) {
    if entry.kind == Kind::Dir {
        entry.nlink = 1;
    }
}

fn campaign(subject: &mut Seen) -> (Vec<String>, usize) {
    let mut plan = Plan::new(1, Workload::default(), Config::default());
    plan.ops_max = Some(600);
    plan.config.check.shrink_seconds = 1;
    let mut notes = Notes::default();
    let report = check(subject, &plan, &mut notes).unwrap();
    (notes.0, report.findings.len())
}

#[test]
fn what_differs_on_the_empty_file_system_is_said_once_and_left_out() {
    let (notes, findings) = campaign(&mut Seen::new(Config::default(), root_nlink_one));
    assert_eq!((notes.len(), findings), (1, 0), "{notes:?}");
    assert!(notes[0].contains("nlink") && notes[0].contains("not compared"), "{notes:?}");
    // Of other directories the empty file system says nothing.
    let (notes, findings) = campaign(&mut Seen::new(Config::default(), every_dir_nlink_one));
    assert_eq!(notes.len(), 1);
    assert!(findings > 0);
}

#[test]
fn holes_may_be_anywhere_but_data_is_not_skipped() {
    let data = Pattern { seed: 1, len: 10 };
    let seek = Op::Lseek { slot: 0, offset: 0, whence: Whence::Data };
    let read = Op::Read { slot: 0, len: 20 };
    let ops = [open(0, "f"), Op::Pwrite { slot: 0, offset: 65536, data }, seek.clone()];
    // Blocks of 512 bytes: another answer than the reference's, and right.
    let truncate = Op::Truncate { target: Target::Slot(0), len: 1 << 20 };
    let small = Config { block_bytes: 512, ..Config::default() };
    let mut all = ops.to_vec();
    all.extend([truncate, Op::Lseek { slot: 0, offset: 65536, whence: Whence::Hole }, read]);
    let verdict = last_verdict(&mut Seen::new(small, unchanged), &Config::default(), &all);
    assert_eq!(verdict, Verdict::Ok, "the reference has the same position");
    let blind = Config { mutant: Some(Mutant::SeekDataBlind), ..Config::default() };
    let verdict = last_verdict(&mut Seen::new(blind, unchanged), &Config::default(), &ops);
    assert!(matches!(verdict, Verdict::Violation(Violation::Outcome { .. })), "{verdict:?}");
}

/// A server that ends at its second operation.
struct Mortal {
    model: ModelSubject,
    ops: u32,
    last_words: Option<String>,
    /// It answers all the same: its end shows only to who asks for it.
    unnoticed: bool,
}

impl Subject for Mortal {
    fn name(&self) -> String {
        "mortal".to_owned()
    }

    fn capabilities(&self) -> BTreeSet<Capability> {
        BTreeSet::new()
    }

    fn apply(&mut self, op: &Op) -> Result<Outcome, HarnessFault> {
        self.ops += 1;
        match self.ops {
            _ if self.unnoticed => self.model.apply(op),
            1 => self.model.apply(op),
            _ => Ok(Outcome::err(fathom_core::Errno::ENOTCONN)),
        }
    }

    fn observe(&mut self) -> Result<Tree, HarnessFault> {
        self.model.observe()
    }
}

impl Testbed for Mortal {
    fn reset(&mut self) -> Result<(), HarnessFault> {
        self.ops = 0;
        self.model.reset()
    }

    fn has_ended(&mut self) -> bool {
        self.ops > 1 && self.last_words.is_some()
    }

    fn last_words(&mut self) -> Option<String> {
        self.last_words.clone()
    }
}

/// A server may end when nobody asks it anything: after the last operation, or before it would have
/// been started again.
#[test]
fn a_server_that_ended_between_operations_is_told() {
    for (last_words, found) in [(None, 0), (Some("it ended".to_owned()), 1)] {
        let model = ModelSubject::new(Config::default()).unwrap();
        let mut subject = Mortal { model, ops: 0, last_words, unnoticed: true };
        let mut plan = Plan::new(1, Workload::default(), Config::default());
        plan.ops_max = Some(20);
        plan.config.check.shrink_seconds = 0;
        let report = check(&mut subject, &plan, &mut fathom_engine::Silent).unwrap();
        let classes: Vec<&str> =
            report.findings.iter().map(|finding| finding.violation.class()).collect();
        assert_eq!(classes, vec!["server_died"; found]);
    }
}

#[test]
fn a_server_that_ended_is_told_from_one_that_answers_enotconn() {
    let reference = Config::default();
    let oracle = Oracle::new(&reference, false);
    for last_words in [None, Some("it ended; it printed: out of luck".to_owned())] {
        let model = ModelSubject::new(reference.clone()).unwrap();
        let mut subject =
            Mortal { model, ops: 0, last_words: last_words.clone(), unnoticed: false };
        let mut pair = SideBySide::start(&mut subject, &reference, &oracle, None).unwrap();
        pair.step(&open(0, "a"), Inspection::Whole).unwrap();
        let verdict = pair.step(&link("a", "b"), Inspection::Whole).unwrap().verdict;
        match (&last_words, verdict) {
            (None, Verdict::Violation(Violation::Outcome { .. })) => {}
            (Some(words), Verdict::Violation(Violation::ServerDied { last_words })) => {
                assert_eq!(*words, last_words);
            }
            (_, other) => panic!("{other:?}"),
        }
    }
}

/// A subject whose operations run as somebody else, until it is told to step aside.
struct Acting {
    inner: ModelSubject,
    acts: Rc<Cell<bool>>,
}

impl Wrapper for Acting {
    type Inner = ModelSubject;

    fn inner(&self) -> &ModelSubject {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut ModelSubject {
        &mut self.inner
    }

    fn execute(&mut self, caller: Caller, op: &Op) -> Result<Outcome, HarnessFault> {
        self.acts.set(true);
        self.inner.apply_as(caller, op)
    }

    fn give_way(&mut self) {
        self.acts.set(false);
        self.inner.step_aside();
    }
}

/// Writes records, which must not happen as the user that operations run as.
struct Writes(Rc<Cell<bool>>, u32);

impl Observer for Writes {
    fn progress(&mut self, _: &Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn seen(&mut self, _: &Finding) -> bool {
        assert!(!self.0.get(), "it is written as somebody else");
        self.1 += 1;
        true
    }

    fn finding(&mut self, _: &Finding, _: Option<&str>) {
        assert!(!self.0.get(), "it is written as somebody else");
        self.1 += 1;
    }
}

#[test]
fn a_finding_is_recorded_as_the_user_who_runs_the_program() {
    let config = Config { mutant: Some(Mutant::ALL[0]), ..Config::default() };
    let acts = Rc::new(Cell::new(false));
    let mut subject = Acting { inner: ModelSubject::new(config).unwrap(), acts: Rc::clone(&acts) };
    let mut plan = Plan::new(1, Workload::default(), Config::default());
    plan.ops_max = Some(20_000);
    plan.config.check.shrink_seconds = 1;
    let mut observer = Writes(acts, 0);
    let report = check(&mut subject, &plan, &mut observer).unwrap();
    assert!(!report.findings.is_empty() && observer.1 >= 2, "{} records", observer.1);
}
