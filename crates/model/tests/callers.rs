//! Several callers on one volume: what is each one's own, and what they share.

use fathom_core::flags::{OpenFlags, RenameFlags, Whence};
use fathom_core::{Caller, Errno, FsPath, Mode, Op, Outcome, Pattern, Subject, Target};
use fathom_model::{Config, Model, ModelSubject, TreeOptions};
use proptest::collection::vec;
use proptest::prelude::*;

const CREATE: OpenFlags = OpenFlags::O_RDWR.union(OpenFlags::O_CREAT);

fn model() -> Model {
    let config = Config { root_mode: Mode(0o777), blocks: 1 << 20, ..Config::default() };
    Model::new(config).unwrap()
}

fn open(slot: u8, path: &str, flags: OpenFlags) -> Op {
    Op::Open { slot, path: path.into(), flags, mode: Mode(0o666) }
}

fn write(slot: u8, seed: u64, len: u64) -> Op {
    Op::Write { slot, data: Pattern { seed, len } }
}

fn at_position(slot: u8) -> Op {
    Op::Lseek { slot, offset: 0, whence: Whence::Cur }
}

fn mkdir(path: &str, mode: u32) -> Op {
    Op::Mkdir { path: path.into(), mode: Mode(mode) }
}

fn stat(path: &str) -> Op {
    Op::Stat { target: Target::Path(path.into()) }
}

fn unlink(path: &str) -> Op {
    Op::Unlink { path: path.into() }
}

fn become_user(uid: u32) -> Op {
    Op::Identity { uid, gid: uid, groups: Vec::new() }
}

#[track_caller]
fn check(model: &mut Model, table: &[(Caller, Op, Result<u64, Errno>)]) {
    for (row, (caller, op, expected)) in table.iter().enumerate() {
        let outcome = model.execute_as(*caller, op);
        assert_eq!(outcome.result, *expected, "row {row}: caller {caller}, {op}");
        model.volume().check_invariants().unwrap();
    }
}

#[test]
fn slots_and_positions_are_each_ones_own() {
    let mut m = model();
    check(
        &mut m,
        &[
            (0, open(0, "f", CREATE), Ok(0)),
            (1, write(0, 1, 5), Err(Errno::EBADF)),
            (1, open(0, "f", OpenFlags::O_RDWR), Ok(0)),
            (0, write(0, 1, 10), Ok(10)),
            (0, at_position(0), Ok(10)),
            (1, at_position(0), Ok(0)),
            (1, Op::Read { slot: 0, len: 4 }, Ok(4)),
            (1, at_position(0), Ok(4)),
            (0, at_position(0), Ok(10)),
            (1, Op::Close { slot: 0 }, Ok(0)),
            (1, at_position(0), Err(Errno::EBADF)),
            (0, at_position(0), Ok(10)),
            (7, at_position(0), Err(Errno::EBADF)),
        ],
    );
}

#[test]
fn appending_always_finds_the_common_end() {
    let mut m = model();
    let append = OpenFlags::O_WRONLY | OpenFlags::O_APPEND | OpenFlags::O_CREAT;
    check(
        &mut m,
        &[
            (0, open(0, "f", append), Ok(0)),
            (1, open(0, "f", append), Ok(0)),
            (0, write(0, 1, 3), Ok(3)),
            (1, write(0, 2, 4), Ok(4)),
            (0, write(0, 1, 3), Ok(3)),
            (1, at_position(0), Ok(7)),
            (0, at_position(0), Ok(10)),
        ],
    );
    let (one, two) = (Pattern { seed: 1, len: 3 }.to_vec(), Pattern { seed: 2, len: 4 }.to_vec());
    m.execute(&open(1, "f", OpenFlags::empty()));
    let all = m.execute(&Op::Read { slot: 1, len: 99 });
    assert_eq!(all, Outcome::data(&[&one[..], &two, &one].concat()));
}

#[test]
fn mask_and_identity_are_each_ones_own() {
    let mut m = model();
    check(
        &mut m,
        &[
            (0, Op::Umask { mask: Mode(0o077) }, Ok(0o022)),
            (1, Op::Umask { mask: Mode(0o002) }, Ok(0o022)),
            (1, become_user(1000), Ok(0)),
            (0, mkdir("private", 0o777), Ok(0)),
            (1, mkdir("shared", 0o777), Ok(0)),
            (1, mkdir("private/x", 0o777), Err(Errno::EACCES)),
            (2, mkdir("private/x", 0o777), Ok(0)),
            (
                1,
                Op::Chmod { target: Target::Path("private".into()), mode: Mode(0) },
                Err(Errno::EPERM),
            ),
            (0, open(0, "private/f", CREATE), Ok(0)),
            (1, open(0, "private/f", CREATE), Err(Errno::EACCES)),
            (0, Op::Umask { mask: Mode(0) }, Ok(0o077)),
        ],
    );
    let attr = |path: &str| {
        let volume = m.volume();
        volume.attr(volume.find(&FsPath::from(path), true).unwrap()).unwrap()
    };
    let [private, shared] = ["private", "shared"].map(attr);
    assert_eq!((private.mode.perm(), private.uid), (0o700, 0));
    assert_eq!((shared.mode.perm(), shared.uid), (0o775, 1000));
}

#[test]
fn an_unlinked_file_stays_while_anybody_holds_it() {
    let mut m = model();
    let free = m.volume().statfs();
    check(
        &mut m,
        &[
            (0, open(0, "f", CREATE), Ok(0)),
            (0, write(0, 1, 10), Ok(10)),
            (1, open(3, "f", OpenFlags::empty()), Ok(0)),
            (0, unlink("f"), Ok(0)),
            (0, Op::Close { slot: 0 }, Ok(0)),
            (1, Op::Read { slot: 3, len: 99 }, Ok(10)),
        ],
    );
    assert!(m.has_open_files());
    assert_ne!(m.volume().statfs(), free);
    check(&mut m, &[(1, Op::Close { slot: 3 }, Ok(0))]);
    assert!(!m.has_open_files());
    assert_eq!(m.volume().statfs(), free);
}

#[test]
fn remounting_closes_the_files_of_everybody() {
    let mut m = model();
    let free = m.volume().statfs();
    check(
        &mut m,
        &[
            (1, open(0, "f", CREATE), Ok(0)),
            (2, open(0, "f", CREATE), Ok(0)),
            (2, Op::Umask { mask: Mode(0o007) }, Ok(0o022)),
            (0, unlink("f"), Ok(0)),
        ],
    );
    m.chdir(1, &".".into()).unwrap();
    check(
        &mut m,
        &[
            (2, Op::Remount, Ok(0)),
            (1, Op::Close { slot: 0 }, Err(Errno::EBADF)),
            (2, Op::Close { slot: 0 }, Err(Errno::EBADF)),
            (2, Op::Umask { mask: Mode(0) }, Ok(0o007)),
        ],
    );
    assert!(!m.has_open_files());
    assert_eq!(m.volume().statfs(), free);
}

#[test]
fn a_fifo_has_its_peer_in_another_caller() {
    let mut m = model();
    let fifo = Op::Mknod { path: "p".into(), mode: Mode(Mode::S_IFIFO | 0o666), dev: (0, 0) };
    let (reads, writes) = (open(0, "p", OpenFlags::empty()), open(0, "p", OpenFlags::O_WRONLY));
    check(&mut m, &[(0, fifo, Ok(0))]);
    assert!(m.would_block(&writes) && m.unspecified_as(1, &writes).is_some());
    let nonblock = open(0, "p", OpenFlags::O_NONBLOCK);
    check(&mut m, &[(0, nonblock, Ok(0))]);
    assert_eq!(m.unspecified_as(1, &writes), None, "caller 0 reads");
    check(&mut m, &[(1, writes, Ok(0)), (2, reads, Ok(0))]);
}

#[test]
fn working_directories_are_each_ones_own() {
    let mut m = model();
    check(&mut m, &[(0, mkdir("a", 0o777), Ok(0)), (0, mkdir("a/b", 0o777), Ok(0))]);
    m.chdir(1, &"a".into()).unwrap();
    check(
        &mut m,
        &[
            (0, stat("b"), Err(Errno::ENOENT)),
            (1, stat("b"), Ok(0)),
            (1, mkdir("c", 0o777), Ok(0)),
            (0, stat("a/c"), Ok(0)),
            (1, stat("a/c"), Err(Errno::ENOENT)),
            (
                0,
                Op::Rename { from: "a".into(), to: "z".into(), flags: RenameFlags::empty() },
                Ok(0),
            ),
            (1, stat("c"), Ok(0)),
            (1, stat("../z/c"), Ok(0)),
        ],
    );
}

#[test]
fn the_state_digest_knows_every_caller() {
    let base = {
        let mut m = model();
        check(&mut m, &[(0, open(0, "f", CREATE), Ok(0)), (0, mkdir("d", 0o777), Ok(0))]);
        m
    };
    let after = |change: &dyn Fn(&mut Model)| {
        let mut m = base.clone();
        change(&mut m);
        m.state_digest()
    };
    let acting = |caller: Caller, op: Op| move |m: &mut Model| drop(m.execute_as(caller, &op));
    assert_eq!(after(&acting(1, stat("f"))), base.state_digest(), "it left nothing behind");
    let digests = [
        base.state_digest(),
        after(&acting(1, open(0, "f", OpenFlags::O_RDWR))),
        after(&acting(2, open(0, "f", OpenFlags::O_RDWR))),
        after(&acting(0, open(1, "f", OpenFlags::O_RDWR))),
        after(&acting(1, Op::Umask { mask: Mode(0) })),
        after(&acting(0, Op::Umask { mask: Mode(0) })),
        after(&acting(1, become_user(7))),
        after(&|m| m.chdir(0, &"d".into()).unwrap()),
        after(&|m| m.chdir(1, &"d".into()).unwrap()),
    ];
    for (n, digest) in digests.iter().enumerate() {
        assert!(!digests[..n].contains(digest), "digest {n}");
    }
    // Two callers with orphans of the same contents: the same file, or two.
    let orphans = |second: &str| {
        let mut m = model();
        let all =
            [(0, open(0, "a", CREATE)), (0, open(1, "b", CREATE)), (1, open(0, second, CREATE))];
        all.iter().for_each(|(caller, op)| drop(m.execute_as(*caller, op)));
        ["a", "b"].iter().for_each(|path| drop(m.execute(&unlink(path))));
        m.state_digest()
    };
    assert_ne!(orphans("a"), orphans("b"));
}

#[test]
fn subjects_know_their_callers() {
    let mut subject = ModelSubject::new(Config::default()).unwrap();
    assert_eq!(subject.apply_as(1, &open(0, "f", CREATE)).unwrap(), Outcome::ok(0));
    let bad = Outcome::err(Errno::EBADF);
    assert_eq!(subject.apply(&at_position(0)).unwrap(), bad);
    assert_eq!(subject.apply_as(0, &at_position(0)).unwrap(), bad);
    assert_eq!(subject.apply_as(1, &at_position(0)).unwrap(), Outcome::ok(0));
    let saved =
        fathom_core::Testbed::save(&mut subject, fathom_core::RestoreMethod::Clone).unwrap();
    fathom_core::Testbed::restore(&mut subject, saved).unwrap();
    assert_eq!(subject.apply_as(1, &at_position(0)).unwrap(), bad, "everybody starts again");
    assert!(!subject.model().has_open_files());
}

/// An operation below `dir`, or on the process itself.
fn op_below(dir: &'static str) -> impl Strategy<Value = Op> {
    let path = prop::sample::select(vec!["x", "y", "x/x", "x/y", "y/x"])
        .prop_map(move |name| FsPath::from(format!("{dir}/{name}").as_str()));
    let target = prop_oneof![path.clone().prop_map(Target::Path), (0..3_u8).prop_map(Target::Slot)];
    let (slot, len) = (0..3_u8, 0..5000_u64);
    let flags = prop::sample::select(vec![
        CREATE,
        CREATE | OpenFlags::O_APPEND,
        CREATE | OpenFlags::O_TRUNC,
        OpenFlags::empty(),
    ]);
    prop_oneof![
        3 => (slot.clone(), path.clone(), flags)
            .prop_map(|(slot, path, flags)| Op::Open { slot, path, flags, mode: Mode(0o666) }),
        1 => slot.clone().prop_map(|slot| Op::Close { slot }),
        2 => (slot.clone(), len.clone())
            .prop_map(|(slot, len)| Op::Write { slot, data: Pattern { seed: len, len } }),
        1 => (slot.clone(), len.clone()).prop_map(|(slot, len)| Op::Read { slot, len }),
        1 => (slot, 0..3000_i64)
            .prop_map(|(slot, offset)| Op::Lseek { slot, offset, whence: Whence::End }),
        1 => (target.clone(), 0..9000_i64).prop_map(|(target, len)| Op::Truncate { target, len }),
        1 => target.prop_map(|target| Op::Stat { target }),
        2 => path.clone().prop_map(|path| Op::Mkdir { path, mode: Mode(0o777) }),
        1 => path.clone().prop_map(|path| Op::Rmdir { path }),
        1 => path.clone().prop_map(|path| Op::Unlink { path }),
        1 => (path.clone(), path.clone()).prop_map(|(from, to)| {
            Op::Rename { from, to, flags: RenameFlags::empty() }
        }),
        1 => (path.clone(), path).prop_map(|(from, to)| Op::Link { from, to, follow: false }),
        1 => (0..0o777_u32).prop_map(|mask| Op::Umask { mask: Mode(mask) }),
        1 => prop::sample::select(vec![0, 1000, 2000]).prop_map(become_user),
    ]
}

/// Both subtrees; everybody may write in them.
fn two_subtrees() -> Model {
    let mut m = model();
    for caller in [0, 1] {
        m.execute_as(caller, &Op::Umask { mask: Mode(0) });
    }
    check(&mut m, &[(0, mkdir("a", 0o777), Ok(0)), (0, mkdir("b", 0o777), Ok(0))]);
    m
}

proptest! {
    #[test]
    fn callers_in_disjoint_subtrees_do_not_notice_each_other(
        ops in vec((any::<bool>(), op_below("a"), op_below("b")), 1..60),
    ) {
        let steps: Vec<(Caller, Op)> = ops
            .into_iter()
            .map(|(second, a, b)| if second { (1, b) } else { (0, a) })
            .collect();
        let mut mixed = two_subtrees();
        let mixed_outcomes: Vec<Outcome> =
            steps.iter().map(|(caller, op)| mixed.execute_as(*caller, op)).collect();
        let mut apart = two_subtrees();
        for wanted in [1, 0] {
            for (n, (caller, op)) in steps.iter().enumerate().filter(|(_, step)| step.0 == wanted) {
                prop_assert_eq!(&apart.execute_as(*caller, op), &mixed_outcomes[n], "step {}", n);
            }
        }
        let tree = |m: &Model| m.volume().tree(TreeOptions { segments: true, times: false });
        prop_assert_eq!(tree(&mixed), tree(&apart));
        prop_assert_eq!(mixed.digest(), apart.digest());
        prop_assert_eq!(mixed.state_digest(), apart.state_digest());
        mixed.volume().check_invariants().unwrap();
    }

    #[test]
    fn which_number_the_only_caller_has_makes_no_difference(
        ops in vec(op_below("a"), 1..60),
    ) {
        let (mut first, mut fifth) = (two_subtrees(), two_subtrees());
        fifth.execute_as(5, &Op::Umask { mask: Mode(0) });
        for op in &ops {
            prop_assert_eq!(first.execute(op), fifth.execute_as(5, op));
        }
        prop_assert_eq!(first.digest(), fifth.digest());
    }
}
