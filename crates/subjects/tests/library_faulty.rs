//! Seeded crash bugs: each does what it says, and the wrapper alone does nothing.

#![cfg(feature = "littlefs")]

use std::collections::BTreeSet;

use fathom_block::{BlockBacked, Mounted, Recorder, WriteLog};
use fathom_core::flags::{OpenFlags, RenameFlags};
use fathom_core::{Errno, Mode, Op, Pattern, Tree};
use fathom_subjects::library::faulty::{self, CORRECT, Mutant};
use fathom_subjects::library::{self, Known};

fn open(path: &str, flags: OpenFlags) -> Op {
    Op::Open { slot: 0, path: path.into(), flags: flags | OpenFlags::O_WRONLY, mode: Mode(0o644) }
}

fn write(len: u64) -> Op {
    Op::Pwrite { slot: 0, offset: 0, data: Pattern { seed: len, len } }
}

const CLOSE: Op = Op::Close { slot: 0 };

fn rename(from: &str, to: &str) -> Op {
    Op::Rename { from: from.into(), to: to.into(), flags: RenameFlags::empty() }
}

/// Files and directories come, change and go, in the root directory.
fn workload() -> Vec<Op> {
    let create = OpenFlags::O_CREAT;
    vec![
        Op::Mkdir { path: "d".into(), mode: Mode(0o755) },
        open("a", create),
        write(300),
        CLOSE,
        open("b", create),
        write(10),
        CLOSE,
        rename("a", "c"),
        Op::Unlink { path: "b".into() },
        open("c", OpenFlags::O_TRUNC),
        write(20),
        CLOSE,
        open("e", create),
        CLOSE,
        Op::Rmdir { path: "d".into() },
    ]
}

fn known() -> impl Iterator<Item = Known> {
    library::all().into_iter().filter(Known::is_built_in)
}

fn mount(subject: &dyn BlockBacked) -> Box<dyn Mounted> {
    let device = Recorder::new(subject.format().unwrap(), subject.geometry()).unwrap();
    subject.mount(device).map_err(|failure| failure.errno).unwrap()
}

/// What the workload leaves: the position after each operation with the log, the tree, and the tree
/// after a clean remount.
fn run(subject: &dyn BlockBacked) -> ((Vec<usize>, WriteLog), Tree, Result<Tree, Errno>) {
    let mut mounted = mount(subject);
    let mut positions = Vec::new();
    for op in workload() {
        assert!(mounted.apply(&op).result.is_ok(), "{}: {op}", subject.name());
        positions.push(mounted.position());
    }
    let tree = mounted.observe();
    let (outcome, device) = mounted.unmount();
    assert!(outcome.result.is_ok(), "{}", subject.name());
    let log = device.log().clone();
    let again = subject.mount(device).map(|mut mounted| mounted.observe());
    ((positions, log), tree, again.map_err(|failure| failure.errno))
}

fn littlefs(mutant: &Mutant) -> Box<dyn BlockBacked> {
    let known = known().find(|known| known.name == "littlefs").expect("a default feature");
    faulty::wrap(known.open(None).unwrap(), mutant)
}

#[test]
fn the_wrapper_alone_changes_nothing() {
    for known in known() {
        let subject = known.open(None).unwrap();
        if let Err(fault) = subject.format() {
            assert!(fault.message.contains("is not installed"), "{fault}");
            println!("SKIP {}: {}", known.name, fault.message);
            continue;
        }
        let bare = run(&*subject);
        let wrapped = run(&*faulty::wrap(known.open(None).unwrap(), &CORRECT));
        assert_eq!(wrapped, bare, "{}", known.name);
    }
}

#[test]
fn mutants_have_names_and_a_class_of_their_own_words() {
    let names: BTreeSet<&str> = faulty::all().iter().map(|mutant| mutant.name).collect();
    assert_eq!(names.len(), faulty::all().len());
    assert!(names.len() >= 12);
    assert_eq!(littlefs(&faulty::all()[0]).name(), "littlefs+drop-flush");
}

/// Faults of the device and of the way operations are done are in the log; the others are in what is
/// seen: see below.
#[test]
fn every_fault_leaves_another_log_or_is_in_what_is_seen() {
    let (right, ..) = run(&*littlefs(&CORRECT));
    let mut only_seen = Vec::new();
    for mutant in faulty::all() {
        if run(&*littlefs(mutant)).0 == right {
            only_seen.push(mutant.name);
        }
    }
    let expected = [
        // No file is replaced in this workload.
        "replace-in-two-steps",
        "recovery-removes",
        "recovery-rewrites",
        "nondeterministic",
    ];
    assert_eq!(only_seen, expected);
}

/// Most faults need a power failure to be seen: what was unmounted is right.
#[test]
fn after_a_clean_unmount_only_what_was_never_written_is_missing() {
    let (_, right, again) = run(&*littlefs(&CORRECT));
    assert_eq!(again.as_ref(), Ok(&right));
    let mut wrong = Vec::new();
    for mutant in faulty::all() {
        let (_, tree, again) = run(&*littlefs(mutant));
        assert_eq!(tree, right, "{}", mutant.name);
        if again != Ok(tree) {
            wrong.push(mutant.name);
        }
    }
    // Some writes of lost-write are missing too, but later ones have made up for them.
    assert_eq!(wrong, ["skip-erase"]);
}

fn mutant(name: &str) -> &'static Mutant {
    faulty::all().iter().find(|mutant| mutant.name == name).unwrap()
}

/// One file, and the power fails: the image.
fn cut_off(subject: &dyn BlockBacked) -> Recorder {
    let mut mounted = mount(subject);
    for op in [open("a", OpenFlags::O_CREAT), write(10), CLOSE] {
        assert!(mounted.apply(&op).result.is_ok());
    }
    let image = mounted.power_off().image().clone();
    Recorder::new(image, subject.geometry()).unwrap()
}

fn names(tree: &Tree) -> String {
    tree.entries.keys().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

#[test]
fn faults_of_recovery_come_with_recovery() {
    let subject = littlefs(mutant("recovery-removes"));
    let device = cut_off(&*subject);
    let mut mounted = subject.mount(device).map_err(|failure| failure.errno).unwrap();
    assert_eq!(names(&mounted.observe()), ". a");
    mounted.recover().unwrap();
    assert_eq!(names(&mounted.observe()), ".");

    let subject = littlefs(mutant("recovery-rewrites"));
    let device = cut_off(&*subject);
    let before = device.image().clone();
    let mut mounted = subject.mount(device).map_err(|failure| failure.errno).unwrap();
    mounted.recover().unwrap();
    let device = mounted.power_off();
    let log = format!("{:?}", device.log());
    assert_eq!(log, "[erase 4096 bytes at 0x0, write 4096 bytes at 0x0]");
    assert_eq!(*device.image(), before);
}

#[test]
fn an_image_mounted_twice_differs_until_it_is_used() {
    let subject = littlefs(mutant("nondeterministic"));
    let device = cut_off(&*subject);
    let mount = || subject.mount(device.clone()).map_err(|failure| failure.errno).unwrap();
    assert_eq!(names(&mount().observe()), ". a");
    let mut second = mount();
    assert_eq!(names(&second.observe()), ".");
    second.apply(&Op::Sync);
    assert_eq!(names(&second.observe()), ". a");
}

#[test]
fn what_was_not_unmounted_is_known_by_its_hidden_file() {
    for (name, errno) in
        [("read-only-after-crash", Some(Errno::EROFS)), ("read-error-after-crash", None)]
    {
        let subject = littlefs(mutant(name));
        let device = cut_off(&*subject);
        let mut mounted = subject.mount(device).map_err(|failure| failure.errno).unwrap();
        let tree = mounted.observe();
        assert_eq!(names(&tree), ". a", "{name}");
        assert_eq!(tree.entries[b"a".as_slice()].broken.is_some(), errno.is_none(), "{name}");
        assert_eq!(mounted.apply(&open("b", OpenFlags::O_CREAT)).result.err(), errno, "{name}");
    }
}

#[test]
fn a_replaced_file_is_unlinked_first() {
    let two_files = |mutant: &Mutant| {
        let mut mounted = mount(&*littlefs(mutant));
        for op in [open("a", OpenFlags::O_CREAT), CLOSE, open("b", OpenFlags::O_CREAT), CLOSE] {
            assert!(mounted.apply(&op).result.is_ok());
        }
        let before = mounted.position();
        assert!(mounted.apply(&rename("a", "b")).result.is_ok());
        assert_eq!(names(&mounted.observe()), ". b");
        mounted.position() - before
    };
    assert!(two_files(mutant("replace-in-two-steps")) > two_files(&CORRECT));
}
