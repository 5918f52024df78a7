//! An excuse is as narrow as its reason: for each of the broad ones an answer that it covers, which is an
//! accusation without it, and answers just outside of it, which stay accusations.

use fathom_core::flags::OpenFlags;
use fathom_core::{Errno, Kind, Mode, Op, Outcome, Payload, Target, Verdict};
use fathom_engine::check::oracle::Oracle;
use fathom_model::{Config, Model, Quirks};

/// Whether an answer is accepted under these quirks.
fn accepts(quirks: Quirks, op: &Op, expected: &Outcome, found: &Outcome) -> bool {
    let oracle = Oracle::new(&Config { quirks, ..Config::default() }, false);
    oracle.outcome(op, expected, found) == Verdict::Ok
}

/// Checks that a quirk covers `inside`, that nothing does without it, and that it does not cover `outside`.
fn is_narrow(quirk: Quirks, op: &Op, expected: &Outcome, inside: &[Outcome], outside: &[Outcome]) {
    for found in inside {
        assert!(accepts(quirk.clone(), op, expected, found), "{op}: {found} is covered");
        assert!(!accepts(Quirks::default(), op, expected, found), "{op}: {found} without it");
    }
    for found in outside {
        assert!(!accepts(quirk.clone(), op, expected, found), "{op}: {found} is outside");
    }
}

fn listing(entries: &[(&str, char)]) -> Outcome {
    let entries = entries.iter().map(|(name, kind)| ((*name).into(), *kind)).collect::<Vec<_>>();
    Outcome { result: Ok(entries.len() as u64), payload: Payload::Entries(entries) }
}

#[test]
fn varying_refusals_are_refusals_of_who_may_not() {
    let quirk = Quirks { refusals_vary: true, ..Quirks::default() };
    let op = Op::Rmdir { path: "d".into() };
    let err = Outcome::err;
    is_narrow(
        quirk.clone(),
        &op,
        &err(Errno::EACCES),
        &[err(Errno::ENOTEMPTY), err(Errno::EPERM)],
        &[Outcome::ok(0)],
    );
    // The other way round it is a refusal too; two refusals for other reasons are not excused, nor a failure
    // of what should succeed.
    is_narrow(
        quirk.clone(),
        &op,
        &err(Errno::ENOTEMPTY),
        &[err(Errno::EACCES)],
        &[err(Errno::EEXIST), err(Errno::EIO), Outcome::ok(0)],
    );
    is_narrow(quirk, &op, &Outcome::ok(0), &[], &[err(Errno::EACCES), err(Errno::EPERM)]);
}

#[test]
fn hidden_names_make_lists_longer_and_never_shorter() {
    let quirk = Quirks { listxattr_counts_hidden: true, ..Quirks::default() };
    let target = || Target::Path("f".into());
    let size = Op::Listxattr { target: target(), len: 0 };
    is_narrow(
        quirk.clone(),
        &size,
        &Outcome::ok(7),
        &[Outcome::ok(30)],
        &[Outcome::ok(6), Outcome::err(Errno::ERANGE)],
    );
    let names = Op::Listxattr { target: target(), len: 10 };
    is_narrow(
        quirk,
        &names,
        &Outcome::ok(7),
        &[Outcome::err(Errno::ERANGE)],
        &[Outcome::ok(30), Outcome::err(Errno::ENODATA)],
    );
}

#[test]
fn the_longest_name_is_the_one_that_is_told() {
    let quirk = Quirks { statfs_name_bytes: 60, ..Quirks::default() };
    let op = Op::Statfs { target: Target::Path(".".into()) };
    let answer = |quirks: &Quirks| {
        let config = Config { quirks: quirks.clone(), ..Config::default() };
        Model::new(config).unwrap().execute(&op)
    };
    let (short, long) = (answer(&quirk), answer(&Quirks::default()));
    assert!(accepts(quirk.clone(), &op, &short, &short));
    assert!(!accepts(quirk, &op, &short, &long));
    assert!(!accepts(Quirks::default(), &op, &long, &short));
}

/// Opening one reaches its driver where it is not refused, so campaigns leave it out.
#[test]
fn devices_and_nothing_else_are_refused_without_devices() {
    let device = Op::Mknod { path: "c".into(), mode: Mode(Mode::S_IFCHR | 0o600), dev: (240, 1) };
    let open = |path: &str, flags| Op::Open { slot: 0, path: path.into(), flags, mode: Mode(0) };
    let new = OpenFlags::O_CREAT | OpenFlags::O_RDWR;
    for nodev in [true, false] {
        let quirks = Quirks { nodev, ..Quirks::default() };
        let mut model = Model::new(Config { quirks, ..Config::default() }).unwrap();
        model.execute(&device);
        let device = open("c", OpenFlags::O_RDWR);
        assert!(model.unspecified(&device).is_some());
        if nodev {
            assert_eq!(model.execute(&device), Outcome::err(Errno::EACCES));
        }
        assert_eq!(model.execute(&open("c", OpenFlags::O_PATH)), Outcome::ok(0));
        assert_eq!(model.execute(&open("f", new)), Outcome::ok(0));
    }
}

#[test]
fn types_may_be_unknown_but_not_wrong() {
    let quirk = Quirks { entry_types_may_be_unknown: true, ..Quirks::default() };
    let expected = listing(&[(".", 'd'), ("f", '-')]);
    is_narrow(
        quirk,
        &Op::Getdents { slot: 0 },
        &expected,
        &[listing(&[(".", 'd'), ("f", '?')])],
        &[
            listing(&[(".", 'd'), ("f", 'd')]),
            listing(&[(".", 'd'), ("g", '?')]),
            listing(&[(".", 'd')]),
            listing(&[(".", 'd'), ("f", '?'), ("f", '?')]),
        ],
    );
}

/// The tree that a model shows after some operations.
fn made(ops: &[Op]) -> Model {
    let mut model = Model::new(Config::default()).expect("the default works");
    for op in ops {
        assert!(model.execute(op).result.is_ok(), "{op}");
    }
    model
}

/// Whether a tree that was changed so is accepted.
fn accepts_tree(quirks: Quirks, change: fn(&mut fathom_core::Entry)) -> bool {
    let flags = OpenFlags::O_CREAT | OpenFlags::O_RDWR;
    let device = Op::Mknod { path: "c".into(), mode: Mode(Mode::S_IFCHR | 0o600), dev: (240, 1) };
    let file = Op::Open { slot: 0, path: "f".into(), flags, mode: Mode(0o644) };
    let model = made(&[device, file]);
    let mut tree = model.volume().tree(fathom_model::TreeOptions::default());
    tree.entries.values_mut().for_each(change);
    let oracle = Oracle::new(&Config { quirks, ..Config::default() }, false);
    oracle.tree(&model, &tree) == Verdict::Ok
}

#[test]
fn sizes_of_devices_excuse_neither_files_nor_other_attributes() {
    let quirk = Quirks { device_sizes: true, ..Quirks::default() };
    fn device_size(entry: &mut fathom_core::Entry) {
        if entry.kind == Kind::Char {
            entry.size = 4;
        }
    }
    fn file_size(entry: &mut fathom_core::Entry) {
        if entry.kind == Kind::File {
            entry.size = 4;
        }
    }
    fn device_mode(entry: &mut fathom_core::Entry) {
        if entry.kind == Kind::Char {
            (entry.size, entry.mode) = (4, Mode(0o644));
        }
    }
    assert!(accepts_tree(quirk.clone(), device_size));
    assert!(!accepts_tree(Quirks::default(), device_size));
    assert!(!accepts_tree(quirk.clone(), file_size));
    assert!(!accepts_tree(quirk, device_mode));
}

#[test]
fn what_is_not_compared_is_one_attribute_of_one_path() {
    let not_compared = vec![("f".into(), "mode".to_owned())];
    let quirk = Quirks { not_compared, ..Quirks::default() };
    fn file_mode(entry: &mut fathom_core::Entry) {
        if entry.kind == Kind::File {
            entry.mode = Mode(0o600);
        }
    }
    fn file_owner(entry: &mut fathom_core::Entry) {
        if entry.kind == Kind::File {
            (entry.mode, entry.uid) = (Mode(0o600), 7);
        }
    }
    fn every_mode(entry: &mut fathom_core::Entry) {
        entry.mode = Mode(0o640);
    }
    assert!(accepts_tree(quirk.clone(), file_mode));
    assert!(!accepts_tree(Quirks::default(), file_mode));
    assert!(!accepts_tree(quirk.clone(), file_owner));
    assert!(!accepts_tree(quirk, every_mode));
}
