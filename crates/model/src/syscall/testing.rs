//! Tables of operations with their exact answers, for the tests of every system call.

use fathom_core::flags::OpenFlags;
use fathom_core::{Errno, FsBytes, FsPath, Mode, Op, Outcome, Pattern, Slot, Target};

use super::Model;
use crate::config::Config;
use crate::quirks::Quirks;

pub(super) use fathom_core::Errno as E;

/// The two users that most tests need, and one who has nothing to do with them.
pub(super) const ALICE: u32 = 1000;
pub(super) const BOB: u32 = 2000;

/// A model with the default configuration; root calls, and everybody may write to the root.
pub(super) fn model() -> Model {
    model_with(Quirks::default())
}

pub(super) fn model_with(quirks: Quirks) -> Model {
    let config = Config {
        root_mode: Mode(0o777),
        umask: Mode(0),
        blocks: 4096,
        quirks,
        ..Config::default()
    };
    Model::new(config).expect("the configuration is good")
}

/// Executes operations that must succeed.
#[track_caller]
pub(super) fn given(model: &mut Model, ops: &[Op]) {
    for op in ops {
        let outcome = model.execute(op);
        assert!(outcome.result.is_ok(), "{op:?} gave {outcome}");
    }
}

/// Executes operations and compares every return value.
#[track_caller]
pub(super) fn check(model: &mut Model, table: &[(Op, Result<u64, Errno>)]) {
    for (row, (op, expected)) in table.iter().enumerate() {
        let outcome = model.execute(op);
        assert_eq!(outcome.result, *expected, "row {row}: {op:?}");
        model.volume().check_invariants().expect("the volume stays sound");
    }
}

/// Each operation on its own, on a copy of the same state.
#[track_caller]
pub(super) fn check_each(model: &Model, table: &[(Op, Result<u64, Errno>)]) {
    for (row, (op, expected)) in table.iter().enumerate() {
        let outcome = model.clone().execute(op);
        assert_eq!(outcome.result, *expected, "row {row}: {op:?}");
    }
}

/// The permission bits that `stat` shows.
#[track_caller]
pub(super) fn mode_of(model: &Model, path: &str) -> u32 {
    attr(model, path).mode.perm()
}

#[track_caller]
pub(super) fn attr(model: &Model, path: &str) -> crate::volume::Attr {
    let ino = model.resolve(&FsPath::from(path), super::resolve::Follow::No).expect("it exists");
    model.volume().attr(ino).expect("it exists")
}

#[track_caller]
pub(super) fn data_of(outcome: Outcome, expected: &[u8]) {
    assert_eq!(outcome, Outcome::data(expected));
}

pub(super) fn path(text: &str) -> FsPath {
    FsPath::from(text)
}

pub(super) fn at(text: &str) -> Target {
    Target::Path(path(text))
}

pub(super) fn at_link(text: &str) -> Target {
    Target::Link(path(text))
}

pub(super) fn open(slot: Slot, name: &str, flags: OpenFlags) -> Op {
    open_mode(slot, name, flags, 0o644)
}

pub(super) fn open_mode(slot: Slot, name: &str, flags: OpenFlags, mode: u32) -> Op {
    Op::Open { slot, path: path(name), flags, mode: Mode(mode) }
}

/// An empty file.
pub(super) fn file(name: &str, mode: u32) -> Op {
    mknod(name, Mode::S_IFREG | mode)
}

pub(super) fn mknod(name: &str, mode: u32) -> Op {
    Op::Mknod { path: path(name), mode: Mode(mode), dev: (0, 0) }
}

pub(super) fn mkdir(name: &str, mode: u32) -> Op {
    Op::Mkdir { path: path(name), mode: Mode(mode) }
}

pub(super) fn rmdir(name: &str) -> Op {
    Op::Rmdir { path: path(name) }
}

pub(super) fn unlink(name: &str) -> Op {
    Op::Unlink { path: path(name) }
}

pub(super) fn symlink(target: &str, name: &str) -> Op {
    Op::Symlink { target: FsBytes::from(target), path: path(name) }
}

pub(super) fn link(from: &str, to: &str) -> Op {
    Op::Link { from: path(from), to: path(to), follow: false }
}

pub(super) fn chmod(name: &str, mode: u32) -> Op {
    Op::Chmod { target: at(name), mode: Mode(mode) }
}

pub(super) fn chown(name: &str, uid: u32, gid: u32) -> Op {
    Op::Chown { target: at_link(name), uid: Some(uid), gid: Some(gid) }
}

pub(super) fn stat(name: &str) -> Op {
    Op::Stat { target: at(name) }
}

pub(super) fn write(slot: Slot, seed: u64, len: u64) -> Op {
    Op::Write { slot, data: Pattern { seed, len } }
}

pub(super) fn close(slot: Slot) -> Op {
    Op::Close { slot }
}

/// The caller becomes this user, with a group of the same number.
pub(super) fn become_user(uid: u32) -> Op {
    Op::Identity { uid, gid: uid, groups: Vec::new() }
}
