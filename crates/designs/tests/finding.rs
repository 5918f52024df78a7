//! Violations are kept: recorded, played again, shrunk; and a record that is no longer true is told
//! from one that is.

use std::time::Duration;

use fathom_designs::catalog::{Spec, SpecError, Visitor, names, switches};
use fathom_designs::finding::{Finding, Stored};
use fathom_designs::journal::{Journal, Switch};
use fathom_designs::shrink::{follow, play, shrink};
use fathom_designs::story::ExplainedSystem;
use fathom_designs::volume::{Action, Call, Explorer, Limits, Path};
use fathom_engine::search::{Plan, Strategy, Unobserved, search};

const KEEPS: &str = "keeps what it promised";
const TIME: Duration = Duration::from_secs(60);

fn journal(without: &[Switch]) -> Explorer<Journal> {
    let design = Journal { without: without.to_vec(), ..Journal::default() };
    Explorer::new(design, Limits::default()).expect("a sound design")
}

fn path(text: &str) -> Path {
    text.bytes().fold(Path::ROOT, |path, name| path.join(name).expect("not deep"))
}

/// A long way to what two operations show: a commit whose copies did not arrive.
fn long_way() -> Vec<Action> {
    let write = |place| Call::Write { path: path("c"), place, blocks: 1 };
    [
        Call::Mkdir(path("A")),
        Call::Create(path("b")),
        Call::Move { from: path("b"), to: path("c") },
        write(0),
        write(1),
        Call::Truncate(path("c")),
        Call::Remove(path("c")),
        Call::Rmdir(path("A")),
        Call::Create(path("a")),
        Call::Fsync(path("a")),
    ]
    .map(Action::Call)
    .to_vec()
}

#[test]
fn what_is_not_needed_is_left_out() {
    let design = journal(&[Switch::NoChecksum]);
    let found = long_way();
    assert!(play(&design, KEEPS, &found).is_some(), "the long way shows it");
    let minimal = shrink(&design, KEEPS, &found, TIME);
    let [create, fsync] = &found[8..] else { panic!("ten actions") };
    assert_eq!(minimal, [create.clone(), fsync.clone()]);
    // Without time nothing is tried.
    assert_eq!(shrink(&design, KEEPS, &found, Duration::ZERO), found);
}

#[test]
fn a_sound_design_shows_nothing_and_nonsense_is_not_played() {
    let sound = journal(&[]);
    assert!(follow(&sound, &long_way()).is_some(), "it can be followed");
    assert!(play(&sound, KEEPS, &long_way()).is_none(), "and nothing is wrong");
    for nonsense in [
        Call::Remove(path("a")),
        Call::Fsync(path("a")),
        Call::Create(path("Aa")),
        Call::Rmdir(path("A")),
        Call::Write { path: path("a"), place: 0, blocks: 1 },
        Call::Move { from: path("a"), to: path("b") },
    ] {
        assert!(follow(&sound, &[Action::Call(nonsense)]).is_none(), "{nonsense}");
    }
}

/// Explores, records each violation, reads it back and plays it.
struct RoundTrip<'a> {
    spec: &'a Spec,
    depth: u32,
}

impl Visitor for RoundTrip<'_> {
    type Out = Vec<(String, usize)>;

    fn visit<S: ExplainedSystem>(self, system: &S) -> Self::Out {
        let deadlock = system.has_deadlocks();
        let plan = Plan { depth_max: Some(self.depth), deadlock, ..Plan::default() };
        let report = search(system, &Strategy::Bfs, &plan, &mut Unobserved).expect("a sound plan");
        let out = tempfile::tempdir().expect("a directory for the test");
        let keep = |discovery: &fathom_engine::search::Discovery| {
            let trace = discovery.path.trace(system).expect("its own path");
            let (property, count) = (&discovery.property, discovery.count);
            let finding = Finding::investigate(system, self.spec, property, count, &trace, TIME);
            let finding = finding.expect("it is deterministic");
            let stored = Stored::read(&finding.write(out.path()).expect("written")).expect("read");
            assert_eq!(stored.record, finding.record);
            let played = stored.play(system, false).expect("its own actions");
            assert_eq!(played.as_ref(), Some(&finding.story), "{}", finding.text());
            assert!(stored.play(system, true).expect("its own actions").is_some());
            let again = stored.shrink(system, TIME).expect("its own actions").expect("it shows");
            assert_eq!(again.record.id, finding.record.id, "nothing shorter is found");
            (property.clone(), finding.record.steps)
        };
        report.violations().map(keep).collect()
    }
}

#[test]
fn every_kind_of_design_is_recorded_and_played_again() {
    let spec = |name: &str, switches: &[&str]| Spec {
        switches: switches.iter().map(|name| (*name).to_owned()).collect(),
        ..Spec::new(name)
    };
    let small = |spec: Spec| Spec { files: Some(2), blocks: Some(3), ..spec };
    for (spec, depth, expected) in [
        (small(spec("link", &[])), 4, &[("no lost block", 3)][..]),
        (
            Spec { cache: true, threads: Some(2), ..small(spec("index", &[])) },
            8,
            &[("no dead block", 6)],
        ),
        (spec("journal", &["no-barrier"]), 3, &[(KEEPS, 3)]),
        (Spec { size: Some(4), ..spec("philosophers", &[]) }, 9, &[("deadlock", 4)]),
        (Spec { size: Some(2), ..spec("two-phase", &["fallible"]) }, 9, &[("deadlock", 3)]),
    ] {
        let found = spec.open(RoundTrip { spec: &spec, depth }).expect("a known design");
        let found: Vec<_> = found.iter().map(|(name, steps)| (name.as_str(), *steps)).collect();
        assert_eq!(found, expected, "{spec}");
    }
}

#[test]
fn what_there_is_not_is_refused_by_name() {
    struct Nothing;
    impl Visitor for Nothing {
        type Out = ();
        fn visit<S: ExplainedSystem>(self, _: &S) {}
    }
    for name in names() {
        assert_eq!(Spec::new(name).open(Nothing), Ok(()), "{name}");
        let switches: Vec<String> =
            switches(name).expect("known").into_iter().map(str::to_owned).collect();
        assert_eq!(Spec { switches, ..Spec::new(name) }.open(Nothing), Ok(()), "{name}");
    }
    let wrong = Spec::new("zfs").open(Nothing).unwrap_err();
    assert_eq!(wrong, SpecError::Name { name: "zfs".to_owned() });
    let wrong = Spec { switches: vec!["x".to_owned()], ..Spec::new("journal") };
    assert_eq!(
        wrong.open(Nothing).unwrap_err().to_string(),
        "journal has no switch \"x\": no-barrier, no-checksum, no-revoke"
    );
    let wrong = Spec { cache: true, ..Spec::new("log") }.open(Nothing).unwrap_err();
    assert_eq!(wrong.to_string(), "log has no cache: that is for link and index");
}

#[test]
fn blocks_are_told_in_the_words_of_the_design() {
    use fathom_designs::logfs::Logfs;
    use fathom_designs::volume::Design;
    fn words<D: Design>(design: &D) -> Vec<String> {
        let geometry = design.geometry();
        let mut disk =
            fathom_block::Recorder::new(geometry.blank_image(), geometry).expect("its geometry");
        design.mkfs(&mut disk);
        let bytes = geometry.write_bytes;
        let word = |block: usize| {
            let mut held = vec![0; bytes];
            disk.image().read(block * bytes, &mut held);
            format!("{}: {}", design.label(block), design.holds(block, &held))
        };
        (0..geometry.size_bytes / bytes).map(word).collect()
    }
    let journal = words(&Journal::default());
    for expected in [
        "superblock: journal from transaction 1 on",
        "journal 0: zeros",
        "bitmap: in use: 0",
        "inodes 0-1: 0 directory, data 0; 1 free",
        "data 15: zeros",
    ] {
        assert!(journal.iter().any(|word| word == expected), "{expected}: {journal:?}");
    }
    let log = words(&Logfs::default());
    assert!(log[0].starts_with("checkpoint 0, part 0: version "), "{log:?}");
    assert_eq!(log.iter().filter(|word| word.starts_with("main ")).count(), 64);
    assert!(log.iter().any(|word| word.ends_with("node 1 (dir, 0 blocks)")), "{log:?}");
    for block in ["NAT copy 1, 12-15", "SIT copy 0, 0-3", "SSA 15"] {
        assert!(log.iter().any(|word| word.starts_with(block)), "{block}: {log:?}");
    }
}
