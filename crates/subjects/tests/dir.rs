//! `DirSubject` on the file systems that every host has.

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use common::*;
use fathom_core::flags::OpenFlags;
use fathom_core::{Capability, Errno, FsBytes, Kind, Mode, Op, Outcome, Subject, Target, Testbed};
use fathom_subjects::dir::{DirSubject, detect_profile};
use fathom_subjects::sys::View;

fn places() -> Vec<PathBuf> {
    let shm = PathBuf::from("/dev/shm");
    std::iter::once(std::env::temp_dir()).chain(shm.is_dir().then_some(shm)).collect()
}

fn subject() -> DirSubject {
    DirSubject::create(&std::env::temp_dir(), View::default()).unwrap()
}

fn entry_count(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}

#[test]
fn every_operation_answers_as_linux_promises() {
    for place in places() {
        let mut subject = DirSubject::create(&place, View::default()).unwrap();
        every_operation(&mut subject, true);
        beyond_the_reference(&mut subject);
        let tree = subject.observe().unwrap();
        assert!(tree.entries.values().all(|entry| entry.broken.is_none()), "{tree}");
        assert_eq!(tree.entries[&FsBytes::from("mapped")].xattrs.len(), 1, "security.x is hidden");
    }
}

#[test]
fn the_tree_shows_what_was_made() {
    let view = View { segments: true, times: true, ..View::default() };
    let mut subject = DirSubject::create(Path::new("/dev/shm"), view).unwrap();
    let op_ok = [
        create(0, "z"),
        pwrite(0, 8192, 1, 5000),
        Op::Link { from: "z".into(), to: "b".into(), follow: false },
        mkdir("d", 0o1770),
        symlink("nowhere", "d/s"),
        mknod("d/f", 0o010640, (0, 0)),
    ];
    for op in op_ok {
        subject.apply(&op).unwrap().result.unwrap();
    }
    let tree = subject.observe().unwrap();
    let paths: Vec<String> = tree.entries.keys().map(FsBytes::to_string).collect();
    assert_eq!(paths, [".", "b", "d", "d/f", "d/s", "z"]);
    let at = |path: &str| &tree.entries[&FsBytes::from(path)];
    let content = [vec![0; 8192], bytes(1, 5000)].concat();
    assert_eq!(at("b").content, fathom_core::digest::content_digest(&content));
    assert_eq!((at("b").size, at("b").nlink, at("b").mode), (13192, 2, Mode(0o644)));
    assert_eq!((&at("b").same_as, &at("z").same_as), (&None, &Some("b".into())));
    assert_eq!(at("z").segments, Some(vec![(8192, 13192)]));
    assert!(at("z").times.is_some());
    assert_eq!((at("d").kind, at("d").mode, at("d").nlink), (Kind::Dir, Mode(0o1750), 2));
    assert_eq!((at("d/s").kind, at("d/s").target.to_string()), (Kind::Symlink, "nowhere".into()));
    assert_eq!((at("d/f").kind, at("d/f").mode), (Kind::Fifo, Mode(0o640)));
    assert_eq!((at(".").kind, at(".").nlink), (Kind::Dir, 3));
}

#[test]
fn a_huge_sparse_file_does_not_hang_the_walk() {
    let mut subject = DirSubject::create(Path::new("/dev/shm"), View::default()).unwrap();
    let far = 1 << 60;
    for op in [create(0, "huge"), pwrite(0, far + 77, 9, 3)] {
        subject.apply(&op).unwrap().result.unwrap();
    }
    let started = std::time::Instant::now();
    let tree = subject.observe().unwrap();
    assert!(started.elapsed().as_secs() < 60);
    let mut page = vec![0; 80];
    page[77..].copy_from_slice(&bytes(9, 3));
    let entry = &tree.entries[&FsBytes::from("huge")];
    assert_eq!(entry.size, far as u64 + 80);
    assert_eq!(entry.content, fathom_core::digest::content_term(far as u64 / 4096, &page));
}

#[test]
fn a_tree_that_is_too_deep_is_our_limit_and_not_a_finding() {
    let mut subject = subject();
    let mut path = String::from("d");
    for _ in 0..300 {
        expect(&mut subject, mkdir(&path, 0o755), ok(0));
        path.push_str("/d");
    }
    let fault = subject.observe().unwrap_err().to_string();
    assert!(fault.contains("deeper than 256 directories"), "{fault}");
    // The walk came back, and so will the removal.
    expect(
        &mut subject,
        Op::Stat { target: Target::Path(path.as_str().into()) },
        err(Errno::ENOENT),
    );
    expect(&mut subject, mkdir("here", 0o755), ok(0));
    assert!(subject.path().join("here").is_dir());
}

#[test]
fn no_operation_leaves_the_directory() {
    let above = tempfile::tempdir().unwrap();
    let mut subject = DirSubject::create(above.path(), View::default()).unwrap();
    for op in [
        mkdir("d", 0o777),
        symlink("/etc", "abs"),
        symlink("../..", "d/up"),
        symlink("../x", "new"),
    ] {
        subject.apply(&op).unwrap().result.unwrap();
    }
    let rd = OpenFlags::empty();
    let refused = [
        open(0, "/etc/passwd", rd),
        open(0, "../x", OpenFlags::O_CREAT | OpenFlags::O_WRONLY),
        open(0, "abs", rd),
        open(0, "abs/passwd", rd),
        open(0, "new", OpenFlags::O_CREAT | OpenFlags::O_WRONLY),
        mkdir("d/up/evil", 0o777),
        mkdir("d/../../evil", 0o777),
        Op::Rmdir { path: "..".into() },
        Op::Unlink { path: "abs/passwd".into() },
        Op::Rename { from: "abs/passwd".into(), to: "mine".into(), flags: Default::default() },
        Op::Rename { from: "d".into(), to: "../d".into(), flags: Default::default() },
        Op::Link { from: "abs/passwd".into(), to: "mine".into(), follow: false },
        Op::Link { from: "abs".into(), to: "mine".into(), follow: true },
        symlink("x", "/tmp/evil"),
        Op::Readlink { path: "abs/mtab".into(), len: 100 },
        mknod("../evil", 0o100600, (0, 0)),
        Op::Truncate { target: path("abs/passwd"), len: 0 },
        Op::Truncate { target: link_itself("new"), len: 0 },
        Op::Chmod { target: path("d/up"), mode: Mode(0) },
        Op::Chown { target: path("d/up"), uid: Some(1), gid: None },
        Op::Stat { target: path("abs") },
        Op::Statfs { target: path("abs") },
        Op::Listxattr { target: path("abs"), len: 0 },
    ];
    for op in refused {
        let fault = subject.apply(&op).expect_err("must be refused");
        let text = fault.to_string();
        assert!(text.contains("leaves the directory of the subject"), "{text}");
        assert!(text.contains(&format!("{op:?}")), "the fault names the operation: {text}");
    }
    // A link that leads out is itself inside, and so is a path that climbs no further than the root.
    for op in [
        Op::Stat { target: link_itself("abs") },
        Op::Readlink { path: "abs".into(), len: 100 },
        Op::Chown { target: link_itself("abs"), uid: None, gid: None },
        open(0, "d/..", rd),
        mkdir("d/../fine", 0o777),
        Op::Unlink { path: "abs".into() },
    ] {
        subject.apply(&op).unwrap().result.unwrap();
    }
    expect(
        &mut subject,
        open(0, "new", OpenFlags::O_CREAT | OpenFlags::O_EXCL),
        err(Errno::EEXIST),
    );
    expect(&mut subject, open(0, "new", OpenFlags::O_NOFOLLOW), err(Errno::ELOOP));
    assert_eq!(entry_count(above.path()), 1, "nothing beside the directory of the subject");
}

#[test]
fn nothing_that_could_block_is_executed() {
    let mut subject = subject();
    subject.apply(&mknod("f", 0o010600, (0, 0))).unwrap().result.unwrap();
    for flags in [OpenFlags::empty(), OpenFlags::O_WRONLY] {
        let fault = subject.apply(&open(0, "f", flags)).unwrap_err();
        assert!(fault.to_string().contains("wait for ever"), "{fault}");
    }
    subject.apply(&open(0, "f", OpenFlags::O_RDWR)).unwrap().result.unwrap();
    assert!(subject.apply(&Op::Read { slot: 0, len: 1 }).is_err(), "the FIFO is empty");
    let long = fathom_core::Pattern { seed: 1, len: 1 << 20 };
    assert!(subject.apply(&Op::Write { slot: 0, data: long }).is_err(), "longer than the FIFO");
}

#[test]
fn what_cannot_be_executed_is_refused_by_name() {
    let mut subject = subject();
    let fault = subject.apply(&Op::Remount).unwrap_err().to_string();
    assert!(fault.contains("Remount"), "{fault}");
    let fault = subject.apply(&mkdir("a\0b", 0o700)).unwrap_err().to_string();
    assert!(fault.contains("NUL"), "{fault}");
    subject.apply(&create(0, "a")).unwrap().result.unwrap();
    let fault = subject.apply(&pwrite(0, 0, 1, 1 << 40)).unwrap_err().to_string();
    assert!(fault.contains("too many"), "{fault}");
}

#[test]
fn identities_decide_what_is_allowed() {
    if !is_root() {
        return skip("identities_decide_what_is_allowed", "needs root");
    }
    for place in places() {
        identities(&mut DirSubject::create(&place, View::default()).unwrap());
    }
}

#[test]
fn devices_are_nodes_without_drivers() {
    if !is_root() {
        return skip("devices_are_nodes_without_drivers", "needs root");
    }
    devices(&mut subject());
}

#[test]
fn subjects_on_one_thread_take_turns() {
    let before = std::env::current_dir().unwrap();
    {
        let (mut one, mut two) = (subject(), subject());
        let umask = |mask| Op::Umask { mask: Mode(mask) };
        expect(&mut one, umask(0o077), ok(0o022));
        expect(&mut two, mkdir("only_two", 0o777), ok(0));
        expect(&mut one, mkdir("only_one", 0o777), ok(0));
        let (tree_one, tree_two) = (one.observe().unwrap(), two.observe().unwrap());
        assert_eq!(tree_one.entries[&FsBytes::from("only_one")].mode, Mode(0o700));
        assert_eq!(tree_two.entries[&FsBytes::from("only_two")].mode, Mode(0o755));
        expect(&mut one, umask(0), ok(0o077));
    }
    assert_eq!(std::env::current_dir().unwrap(), before);
}

#[test]
fn other_threads_keep_their_directory() {
    let (here, created, done) =
        (std::env::current_dir().unwrap(), Barrier::new(2), Barrier::new(2));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let subject = subject();
            assert_eq!(std::env::current_dir().unwrap(), subject.path());
            created.wait();
            done.wait();
        });
        created.wait();
        assert_eq!(std::env::current_dir().unwrap(), here);
        done.wait();
    });
}

#[test]
fn reset_and_drop_remove_everything_even_with_odd_permissions() {
    let home = tempfile::tempdir().unwrap();
    let mut subject = DirSubject::create(home.path(), View::default()).unwrap();
    let meta = subject.path().metadata().unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o755, rustix::process::geteuid().as_raw()));
    for round in 0..2 {
        let made = [
            mkdir("d", 0o777),
            mkdir("d/e", 0o777),
            create(0, "d/e/f"),
            Op::Umask { mask: Mode(0o777) },
            Op::Chmod { target: path("d/e"), mode: Mode(0) },
            Op::Chmod { target: path("d"), mode: Mode(0) },
            Op::Chmod { target: path("."), mode: Mode(0o500) },
        ];
        for op in made {
            subject.apply(&op).unwrap().result.unwrap_or_else(|e| panic!("{op:?} {round}: {e}"));
        }
        subject.reset().unwrap();
        assert_eq!(subject.observe().unwrap().entries.len(), 1);
        assert_eq!(entry_count(home.path()), 1);
        expect(&mut subject, Op::Close { slot: 0 }, err(Errno::EBADF));
        expect(&mut subject, Op::Umask { mask: Mode(0o022) }, Outcome::ok(0o022));
    }
    subject.apply(&mkdir("last", 0)).unwrap().result.unwrap();
    drop(subject);
    assert_eq!(entry_count(home.path()), 0);
}

#[test]
fn a_panic_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().to_owned();
    let panicked = std::thread::spawn(move || {
        let _subject = DirSubject::create(&path, View::default()).unwrap();
        assert_eq!(entry_count(&path), 1);
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    assert_eq!(entry_count(home.path()), 0);
}

#[test]
fn bad_directories_get_clear_errors() {
    let missing = DirSubject::create(Path::new("/no/such/dir"), View::default()).err().unwrap();
    assert!(missing.to_string().starts_with("cannot find /no/such/dir: No such file"), "{missing}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let not_dir = DirSubject::create(file.path(), View::default()).err().unwrap();
    assert!(not_dir.to_string().ends_with(": not a directory"), "{not_dir}");
}

#[test]
fn the_environment_is_the_directory_s() {
    let subject = DirSubject::create(Path::new("/dev/shm"), View::default()).unwrap();
    let environment = subject.environment().unwrap();
    assert_eq!(environment.profile, "tmpfs");
    assert_eq!(environment.block_bytes, 4096);
    assert_eq!(environment.root_mode, Mode(0o755));
    assert_eq!(environment.identity.uid, rustix::process::geteuid().as_raw());
    assert_eq!(environment.root_gid, environment.identity.gid);
    assert_eq!(detect_profile(Path::new("/proc")).unwrap(), "generic");
}

/// What a caller who is not root can do is a part of the promise. Tests usually run as root here, so
/// this one becomes somebody else on its own thread before the subject is made.
#[test]
fn works_without_root() {
    let home = tempfile::tempdir().unwrap();
    std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o777)).unwrap();
    if is_root() {
        let nobody = rustix::thread::Uid::from_raw(65534);
        rustix::thread::set_thread_uid(nobody).unwrap();
    }
    {
        let mut subject = DirSubject::create(home.path(), View::default()).unwrap();
        assert!(!subject.capabilities().contains(&Capability::Identity));
        every_operation(&mut subject, true);
        beyond_the_reference(&mut subject);
        let hidden = [create(0, "hidden"), Op::Chmod { target: path("hidden"), mode: Mode(0) }];
        for op in hidden {
            subject.apply(&op).unwrap().result.unwrap();
        }
        let tree = subject.observe().unwrap();
        let broken = tree.entries[&FsBytes::from("hidden")].broken.as_ref().unwrap();
        assert_eq!((broken.call.as_str(), broken.errno), ("open", Errno::EACCES));
        let fault = subject.apply(&Op::Identity { uid: 0, gid: 0, groups: vec![] }).unwrap_err();
        assert!(fault.to_string().contains("Identity"), "{fault}");
        expect(&mut subject, Op::Stat { target: Target::Slot(77) }, err(Errno::EBADF));
    }
    assert_eq!(entry_count(home.path()), 0);
    // The directory belongs to root: only a thread that is still root can remove it.
    std::thread::spawn(move || drop(home)).join().unwrap();
}
