//! Several callers on the subjects of the host's kernel: a sequential history goes as in the model.

mod common;

use std::path::Path;

use common::*;
use fathom_core::flags::{OpenFlags, Whence};
use fathom_core::{Caller, Capability, Mode, Op, Pattern, Subject, Target, Testbed};
use fathom_model::{Config, ModelSubject};
use fathom_subjects::DirSubject;
use fathom_subjects::fuse::ReffsSubject;
use fathom_subjects::sys::View;
use fathom_subjects::{KernelSubject, Recipe};

fn write(slot: u8, seed: u64, len: u64) -> Op {
    Op::Write { slot, data: Pattern { seed, len } }
}

fn position(slot: u8) -> Op {
    Op::Lseek { slot, offset: 0, whence: Whence::Cur }
}

fn user(uid: u32) -> Op {
    Op::Identity { uid, gid: uid, groups: Vec::new() }
}

/// Everything that is each caller's own (slots, positions, masks), and what they share.
fn history() -> Vec<(Caller, Op)> {
    vec![
        (0, create(0, "f")),
        (1, write(0, 1, 5)),
        (1, open(0, "f", OpenFlags::O_RDWR)),
        (0, write(0, 1, 5)),
        (1, position(0)),
        (1, write(0, 2, 3)),
        (0, position(0)),
        (2, Op::Umask { mask: Mode(0o077) }),
        (2, mkdir("mine", 0o777)),
        (0, mkdir("ours", 0o777)),
        (1, Op::Unlink { path: "f".into() }),
        (0, write(0, 3, 10)),
        (1, Op::Stat { target: Target::Slot(0) }),
        (2, symlink("..", "up")),
        (1, Op::Stat { target: link_itself("up") }),
        (3, create(7, "late")),
        (0, Op::Close { slot: 7 }),
        (3, Op::Close { slot: 7 }),
    ]
}

/// What only root can do: each caller is somebody else.
fn history_of_users() -> Vec<(Caller, Op)> {
    vec![
        (1, user(1000)),
        (0, mkdir("closed", 0o700)),
        (1, mkdir("closed/no", 0o755)),
        (2, mkdir("closed/yes", 0o755)),
        (2, user(2000)),
        (2, Op::Rmdir { path: "closed/yes".into() }),
        (0, Op::Chmod { target: path("."), mode: Mode(0o777) }),
        (1, mkdir("of-1000", 0o755)),
        (2, mkdir("of-2000", 0o755)),
        (3, mkdir("of-root", 0o755)),
    ]
}

/// Plays a history on the subject and on the reference.
fn play(subject: &mut dyn Testbed, model: &mut ModelSubject, history: &[(Caller, Op)]) {
    for (caller, op) in history {
        let expected = model.apply_as(*caller, op).unwrap();
        let found = subject.apply_as(*caller, op).unwrap();
        assert_eq!(found.result, expected.result, "{}: caller {caller}, {op}", subject.name());
    }
    let (expected, found) = (model.observe().unwrap(), subject.observe().unwrap());
    let names = |tree: &fathom_core::Tree| {
        let entry = |(path, entry): (&fathom_core::FsPath, &fathom_core::Entry)| {
            (path.clone(), entry.kind, entry.mode, entry.uid)
        };
        tree.entries.iter().map(entry).collect::<Vec<_>>()
    };
    assert_eq!(names(&found), names(&expected), "{}", subject.name());
}

fn as_in_the_model(subject: &mut dyn Testbed) {
    let mut model = ModelSubject::new(Config::default()).unwrap();
    play(subject, &mut model, &history());
    let capabilities = subject.capabilities();
    if capabilities.contains(&Capability::Identity) {
        play(subject, &mut model, &history_of_users());
    }
    if capabilities.contains(&Capability::Remount) {
        // Whoever remounts closes the files of all; masks and identities stay.
        let remount = [(1, Op::Remount), (1, Op::Close { slot: 0 }), (3, mkdir("after", 0o777))];
        play(subject, &mut model, &remount);
        assert!(subject.apply_as(1, &symlink("/", "root")).is_ok());
    }
    subject.reset().unwrap();
    model.reset().unwrap();
    play(subject, &mut model, &history());
}

#[test]
fn callers_on_a_directory() {
    as_in_the_model(&mut DirSubject::create(Path::new("/dev/shm"), View::default()).unwrap());
}

#[test]
fn callers_on_kernel_file_systems() {
    if !is_root() {
        return skip("callers_on_kernel_file_systems", "needs root");
    }
    for name in ["tmpfs", "ext4"] {
        let recipe = Recipe::named(name).unwrap();
        as_in_the_model(&mut KernelSubject::new(recipe, View::default()).unwrap());
    }
}

#[test]
fn callers_through_fuse() {
    if !is_root() {
        return skip("callers_through_fuse", "needs root");
    }
    as_in_the_model(&mut ReffsSubject::new(Config::default(), View::default()).unwrap());
}

/// What one caller makes, another must not fall into.
#[test]
fn a_link_of_one_caller_is_minded_by_all() {
    let mut subject = DirSubject::create(Path::new("/dev/shm"), View::default()).unwrap();
    assert_eq!(subject.apply_as(1, &symlink("/etc", "out")).unwrap(), ok(0));
    for caller in [0, 2] {
        let refused = subject.apply_as(caller, &mkdir("out/x", 0o755)).unwrap_err().to_string();
        assert!(refused.contains("leaves the directory"), "{refused}");
    }
}

/// A state cannot be saved while any caller has something open, and restoring ends all others.
#[test]
fn going_back_minds_every_caller() {
    if !is_root() {
        return skip("going_back_minds_every_caller", "needs root");
    }
    let recipe = Recipe::named("ext4").unwrap();
    let mut subject = KernelSubject::new(recipe, View::default()).unwrap();
    for method in subject.restore_methods() {
        subject.apply_as(2, &create(4, "f")).unwrap();
        assert!(subject.save(method).unwrap_err().to_string().contains("a slot is open"));
        subject.apply_as(2, &Op::Close { slot: 4 }).unwrap();
        let saved = subject.save(method).unwrap();
        subject.apply_as(2, &open(4, "f", OpenFlags::O_RDWR)).unwrap();
        subject.apply_as(1, &Op::Unlink { path: "f".into() }).unwrap();
        subject.restore(saved).unwrap();
        assert_eq!(
            subject.apply_as(2, &Op::Close { slot: 4 }).unwrap(),
            err(fathom_core::Errno::EBADF)
        );
        assert_eq!(subject.observe().unwrap().entries.len(), 2);
        subject.reset().unwrap();
    }
}

/// Between two operations somebody may write a record: not as the user that operations run as.
#[test]
fn who_steps_aside_is_the_user_who_runs_the_program_again() {
    if !is_root() {
        return skip("who_steps_aside_is_the_user_who_runs_the_program_again", "needs root");
    }
    let place = tempfile::tempdir().unwrap();
    let records = tempfile::tempdir().unwrap();
    let record = |name: &str| std::fs::write(records.path().join(name), "what was found");
    let mut subject = DirSubject::create(place.path(), View::default()).unwrap();
    subject.apply(&user(1000)).unwrap();
    let refused = subject.apply(&mkdir("d", 0o755)).unwrap();
    assert!(record("too early").is_err(), "the thread acts for the user");
    subject.step_aside();
    record("in time").unwrap();
    assert_eq!(subject.apply(&mkdir("d", 0o755)).unwrap(), refused, "the user again");
    assert!(record("too late").is_err());
}
