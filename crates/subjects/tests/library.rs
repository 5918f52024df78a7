//! Library file systems on devices in memory: they do what they are asked, they can be cut off at any
//! write, and a known bug is where it should be.

use fathom_block::{BlockBacked, Mounted, Recorder, Window};
use fathom_core::flags::{OpenFlags, RenameFlags};
use fathom_core::{Mode, Op, Outcome, Pattern, Subject, Target, Tree};
use fathom_model::{Config, Model};
use fathom_subjects::library;

fn mkdir(path: &str) -> Op {
    Op::Mkdir { path: path.into(), mode: Mode(0o755) }
}

fn put(path: &str, len: u64) -> [Op; 3] {
    let flags = OpenFlags::O_WRONLY | OpenFlags::O_CREAT | OpenFlags::O_TRUNC;
    [
        Op::Open { slot: 0, path: path.into(), flags, mode: Mode(0o644) },
        Op::Pwrite { slot: 0, offset: 0, data: Pattern { seed: len, len } },
        Op::Close { slot: 0 },
    ]
}

fn rename(from: &str, to: &str) -> Op {
    Op::Rename { from: from.into(), to: to.into(), flags: RenameFlags::empty() }
}

/// Those that are built in and can be formatted here.
fn built_in() -> Vec<Box<dyn BlockBacked>> {
    let built_in = library::all().into_iter().filter(|known| known.is_built_in());
    let subjects = built_in.map(|known| known.open(None).unwrap());
    subjects.filter(|subject| can_be_formatted(&**subject)).collect()
}

/// Only a program that is not installed is an excuse.
fn can_be_formatted(subject: &dyn BlockBacked) -> bool {
    match subject.format() {
        Err(fault) if fault.message.contains("is not installed") => {
            println!("SKIP {}: {}", subject.name(), fault.message);
            false
        }
        _ => true,
    }
}

fn mount(subject: &dyn BlockBacked) -> Box<dyn Mounted> {
    let device = Recorder::new(subject.format().unwrap(), subject.geometry()).unwrap();
    subject.mount(device).map_err(|failure| failure.errno).unwrap()
}

/// Every subject agrees with the reference on a workload of everything, before and after a remount.
#[test]
fn without_power_failures_all_behave_like_the_reference() {
    let mut ops = vec![mkdir("d"), mkdir("d/e")];
    ops.extend(put("a", 40));
    ops.extend(put("d/b", 300));
    ops.extend(put("a", 100));
    ops.extend([rename("a", "d/e/c"), rename("d/b", "b"), rename("d/e", "e")]);
    ops.extend(put("x", 10));
    ops.extend([Op::Unlink { path: "x".into() }, Op::Rmdir { path: "d".into() }, Op::Sync]);
    for subject in built_in() {
        let mut model = Model::new(Config::default()).unwrap();
        let mut mounted = mount(&*subject);
        for op in &ops {
            let outcome = mounted.apply(op);
            assert_eq!(outcome, model.execute(op), "{}: {op}", subject.name());
            // While a file is open, what was written to it need not be visible by its name.
            if !matches!(op, Op::Open { .. } | Op::Pwrite { .. }) {
                let differences = model.observe().unwrap().differences(&mounted.observe());
                assert_eq!(differences, [], "{}: {op}", subject.name());
            }
        }
        let (outcome, device) = mounted.unmount();
        assert_eq!(outcome, Outcome::ok(0), "{}", subject.name());
        let mut again = subject.mount(device).map_err(|failure| failure.errno).unwrap();
        let expected = model.observe().unwrap();
        assert_eq!(expected.differences(&again.observe()), [], "{}", subject.name());
        assert_eq!(expected.digest(), again.observe().digest(), "{}", subject.name());
    }
}

/// What does not exist is an error, not a crash of the harness.
#[test]
fn errors_are_outcomes() {
    for subject in built_in() {
        let mut mounted = mount(&*subject);
        for op in [
            Op::Close { slot: 3 },
            Op::Unlink { path: "nothing".into() },
            Op::Rmdir { path: "nothing".into() },
            rename("nothing", "else"),
            mkdir("no/where"),
            Op::Remount,
        ] {
            let outcome = mounted.apply(&op);
            assert!(outcome.result.is_err(), "{}: {op}: {outcome:?}", subject.name());
        }
    }
}

/// Looking changes nothing on the device, and what is written beyond the end of a file, appended or cut
/// off is what the reference says.
#[test]
fn offsets_and_sizes_are_those_of_the_reference() {
    let open = |flags| Op::Open {
        slot: 0,
        path: "a".into(),
        flags: OpenFlags::O_RDWR | flags,
        mode: Mode(0o644),
    };
    let pwrite = |offset, len| Op::Pwrite { slot: 0, offset, data: Pattern { seed: 5, len } };
    let truncate = |len| Op::Truncate { target: Target::Slot(0), len };
    let ops = [
        open(OpenFlags::O_CREAT | OpenFlags::O_EXCL),
        pwrite(700, 100),
        truncate(750),
        truncate(900),
        Op::Pread { slot: 0, offset: 600, len: 4096 },
        Op::Fsync { slot: 0 },
        Op::Close { slot: 0 },
        open(OpenFlags::O_APPEND),
        pwrite(3, 30),
        Op::Close { slot: 0 },
        open(OpenFlags::O_CREAT | OpenFlags::O_EXCL),
    ];
    for subject in built_in() {
        let mut model = Model::new(Config::default()).unwrap();
        let mut mounted = mount(&*subject);
        for op in &ops {
            assert_eq!(mounted.apply(op), model.execute(op), "{}: {op}", subject.name());
        }
        let position = mounted.position();
        let differences = model.observe().unwrap().differences(&mounted.observe());
        assert_eq!(differences, [], "{}", subject.name());
        assert_eq!(mounted.position(), position, "{}: looking wrote", subject.name());
        let mut seen = None;
        mounted.look_at_device(&mut |device| seen = Some(device.position()));
        assert_eq!(seen, Some(position), "{}", subject.name());
    }
}

/// Names are shown as they were given: longer than FAT's eight letters, in capitals and small letters.
#[test]
fn names_are_kept_as_written() {
    let mut ops = vec![mkdir("Directory aB")];
    ops.extend(put("Directory aB/A Long Name.Text", 5));
    for subject in built_in() {
        let mut mounted = mount(&*subject);
        for op in &ops {
            assert!(mounted.apply(op).result.is_ok(), "{}: {op}", subject.name());
        }
        let tree = mounted.observe();
        let names: Vec<String> = tree.entries.keys().map(ToString::to_string).collect();
        let expected = [".", "Directory aB", "Directory aB/A Long Name.Text"];
        assert_eq!(names, expected, "{}", subject.name());
    }
}

/// The same operations make the same log: nothing depends on a clock or on chance.
#[test]
fn runs_are_alike() {
    let mut ops = vec![mkdir("d")];
    ops.extend(put("d/a", 300));
    ops.extend([rename("d/a", "b"), Op::Sync, Op::Unlink { path: "b".into() }]);
    for subject in built_in() {
        let run = || {
            let mut mounted = mount(&*subject);
            ops.iter().for_each(|op| drop(mounted.apply(op)));
            mounted.unmount().1.into_parts()
        };
        assert_eq!(run(), run(), "{}", subject.name());
    }
}

/// Cut off after any write, every subject mounts again and lists its root directory.
#[test]
fn every_prefix_of_the_writes_mounts() {
    let mut ops = vec![mkdir("d")];
    ops.extend(put("d/a", 300));
    ops.extend([Op::Sync, Op::Unlink { path: "d/a".into() }]);
    for subject in built_in() {
        let mut mounted = mount(&*subject);
        ops.iter().for_each(|op| drop(mounted.apply(op)));
        let device = mounted.power_off();
        assert!(device.position() > 0, "{}", subject.name());
        let base = subject.format().unwrap();
        let window = Window::new(&base, device.log(), subject.geometry().atomic_bytes);
        for position in 0..=device.position() {
            let device = Recorder::new(window.image_at(position), subject.geometry()).unwrap();
            let again = subject.mount(device).map_err(|failure| failure.errno);
            let tree = again.map(|mut mounted| mounted.observe());
            let root = tree.as_ref().map(|tree| tree.entries[b".".as_slice()].broken.clone());
            assert_eq!(root, Ok(None), "{} at {position}", subject.name());
        }
    }
}

/// littlefs 2.9.1 to 2.11.2 and the port: cut the power between the two commits of a rename into
/// another directory, and the entry after the moved one is not visible.
#[test]
fn littlefs_hides_the_entry_after_a_moved_one() {
    for subject in built_in() {
        if subject.name().starts_with("littlefs") {
            hides_the_entry_after_a_moved_one(&*subject);
        }
    }
}

fn hides_the_entry_after_a_moved_one(subject: &dyn BlockBacked) {
    let mut mounted = mount(subject);
    let mut ops = vec![mkdir("src"), mkdir("dst")];
    for name in ["src/a", "src/b", "src/c"] {
        ops.extend(put(name, 10));
    }
    for op in &ops {
        assert!(mounted.apply(op).result.is_ok(), "{op}");
    }
    let before = mounted.position();
    assert_eq!(mounted.apply(&rename("src/a", "dst/a")), Outcome::ok(0));
    let after = mounted.position();
    let device = mounted.power_off();
    let base = subject.format().unwrap();
    let window = Window::new(&base, device.log(), subject.geometry().atomic_bytes);
    let names = |position: usize| {
        let device = Recorder::new(window.image_at(position), subject.geometry()).unwrap();
        let tree: Tree = subject.mount(device).map_err(|f| f.errno).unwrap().observe();
        tree.entries.keys().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(names(before), ". dst src src/a src/b src/c");
    assert_eq!(names(after), ". dst dst/a src src/b src/c");
    let hidden = (before..after).filter(|&at| names(at) == ". dst dst/a src src/c").count();
    assert!(hidden > 0, "{}: src/b is always visible", subject.name());
}

/// rsext4 0.9.2: mkdir, sync, unmount. While the unmount writes the journal back, there are moments from
/// which its own recovery makes what it then refuses to mount, and others that e2fsck rejects.
#[cfg(feature = "rsext4")]
#[test]
fn rsext4_does_not_survive_an_interrupted_checkpoint() {
    let Some(subject) = built_in().into_iter().find(|subject| subject.name() == "rsext4") else {
        return; // built_in said why
    };
    let base = subject.format().unwrap();
    let mut mounted = mount(&*subject);
    assert_eq!(mounted.apply(&mkdir("d")), Outcome::ok(0));
    assert_eq!(mounted.apply(&Op::Sync), Outcome::ok(0));
    let synced = mounted.position();
    let (outcome, device) = mounted.unmount();
    assert_eq!(outcome, Outcome::ok(0));
    assert_eq!(subject.fsck(device.image()).unwrap(), None);
    let window = Window::new(&base, device.log(), subject.geometry().atomic_bytes);
    let (mut refused, mut rejected) = (0, 0);
    for position in synced..device.position() {
        let device = Recorder::new(window.image_at(position), subject.geometry()).unwrap();
        match subject.mount(device) {
            Err(_) => refused += 1,
            Ok(mounted) => {
                let (_, device) = mounted.unmount();
                rejected += usize::from(subject.fsck(device.image()).unwrap().is_some());
            }
        }
    }
    assert!(refused > 0 && rejected > 0, "refused {refused}, rejected {rejected}");
}
