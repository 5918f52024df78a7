//! The whole-tree promises: what is legal during and after each operation.

use fathom_block::backed::Durable;
use fathom_core::flags::{OpenFlags, RenameFlags};
use fathom_core::plain::{DIR_MODE, FILE_MODE};
use fathom_core::{FsPath, Kind, Op, Pattern, PlainTree, Slot, Target, Tree};
use fathom_model::{Config, Model};

use super::*;

const NEW: OpenFlags = OpenFlags::O_RDWR.union(OpenFlags::O_CREAT);
const OLD: OpenFlags = OpenFlags::O_RDWR;
const TRUNC: OpenFlags = OpenFlags::O_RDWR.union(OpenFlags::O_TRUNC);

fn open(slot: Slot, path: &str, flags: OpenFlags) -> Op {
    Op::Open { slot, path: path.into(), flags, mode: FILE_MODE }
}

fn write(slot: Slot, len: u64) -> Op {
    Op::Pwrite { slot, offset: 0, data: Pattern { seed: 1, len } }
}

fn truncate(slot: Slot, len: i64) -> Op {
    Op::Truncate { target: Target::Slot(slot), len }
}

fn rename(from: &str, to: &str) -> Op {
    Op::Rename { from: from.into(), to: to.into(), flags: RenameFlags::empty() }
}

fn mkdir(path: &str) -> Op {
    Op::Mkdir { path: path.into(), mode: DIR_MODE }
}

fn close(slot: Slot) -> Op {
    Op::Close { slot }
}

fn fsync(slot: Slot) -> Op {
    Op::Fsync { slot }
}

fn guarantee(names: Durable, data: Durable, order: &str) -> Guarantee {
    let text = format!(
        r#"
        names = {{ is = "{names}", cite = "test" }}
        data = {{ is = "{data}", cite = "test" }}
        order = {{ is = "{order}", cite = "test" }}
        survives = {{ is = ["linear"], cite = "test" }}
        recovers = {{ is = true, cite = "test" }}
        capacity_slack_bytes = {{ is = 0, cite = "test" }}
        "#
    );
    Guarantee::parse(&text).expect("a sensible promise")
}

/// The legal trees, oldest first: directories with a slash, files with their sizes.
fn trees(promise: &Promise) -> String {
    let entry = |(path, entry): (&FsPath, &fathom_core::Entry)| match entry.kind {
        Kind::Dir if path.as_bytes() == b"." => None,
        Kind::Dir => Some(format!("{path}/")),
        _ => Some(format!("{path}:{}", entry.size)),
    };
    let tree = |candidate: &Candidate| {
        candidate.tree().entries.iter().filter_map(entry).collect::<Vec<_>>().join(" ")
    };
    promise.candidates().iter().map(tree).collect::<Vec<_>>().join(" | ")
}

/// Executes operations; each comes with what is legal while it runs and what is legal after it.
fn follow(guarantee: &Guarantee, steps: &[(Op, &str, &str)]) -> Promise {
    let mut visible = Model::new(Config::default()).expect("the default works");
    let mut promise = Promise::new(visible.clone());
    for (op, during_trees, after_trees) in steps {
        let answer = visible.execute(op);
        assert!(answer.result.is_ok(), "{op}: {answer}");
        let during = promise.step(guarantee, op, &visible);
        assert_eq!(trees(&during), *during_trees, "during {op}");
        assert_eq!(trees(&promise), *after_trees, "after {op}");
    }
    promise
}

#[test]
fn durable_by_operation() {
    let promise = follow(
        &guarantee(Durable::Operation, Durable::Operation, "prefix"),
        &[
            (mkdir("d"), " | d/", "d/"),
            (open(1, "a", NEW), "d/ | a:0 d/", "a:0 d/"),
            (write(1, 4), "a:0 d/ | a:4 d/", "a:4 d/"),
            (truncate(1, 2), "a:4 d/ | a:2 d/", "a:2 d/"),
            (fsync(1), "a:2 d/", "a:2 d/"),
            (close(1), "a:2 d/", "a:2 d/"),
            // Truncation is an operation like any other.
            (open(1, "a", TRUNC), "a:2 d/ | a:0 d/", "a:0 d/"),
            (write(1, 3), "a:0 d/ | a:3 d/", "a:3 d/"),
            (rename("a", "d/b"), "a:3 d/ | d/ d/b:3", "d/ d/b:3"),
            (write(1, 5), "d/ d/b:3 | d/ d/b:5", "d/ d/b:5"),
            (Op::Remount, "d/ d/b:5", "d/ d/b:5"),
            (Op::Unlink { path: "d/b".into() }, "d/ d/b:5 | d/", "d/"),
            (Op::Rmdir { path: "d".into() }, "d/ | ", ""),
        ],
    );
    assert!(promise.is_exact());
}

#[test]
fn durable_by_close() {
    follow(
        &guarantee(Durable::Operation, Durable::Close, "prefix"),
        &[
            (open(1, "a", NEW), " | a:0", "a:0"),
            (write(1, 4), "a:0", "a:0"),
            (fsync(1), "a:0 | a:4", "a:4"),
            (write(1, 6), "a:4", "a:4"),
            // An open file goes with its name; its data is still not there.
            (rename("a", "b"), "a:4 | b:4", "b:4"),
            (close(1), "b:4 | b:6", "b:6"),
            // Truncated, but the power may fail before the close.
            (open(1, "b", TRUNC), "b:6", "b:6"),
            (write(1, 1), "b:6", "b:6"),
            (close(1), "b:6 | b:1", "b:1"),
            (open(1, "b", TRUNC), "b:1", "b:1"),
            (close(1), "b:1 | b:0", "b:0"),
        ],
    );
}

#[test]
fn open_files_become_durable_one_after_the_other() {
    follow(
        &guarantee(Durable::Operation, Durable::Close, "prefix"),
        &[
            (mkdir("d"), " | d/", "d/"),
            (open(1, "d/a", NEW), "d/ | d/ d/a:0", "d/ d/a:0"),
            (open(2, "d/b", NEW), "d/ d/a:0 | d/ d/a:0 d/b:0", "d/ d/a:0 d/b:0"),
            (write(1, 1), "d/ d/a:0 d/b:0", "d/ d/a:0 d/b:0"),
            (write(2, 2), "d/ d/a:0 d/b:0", "d/ d/a:0 d/b:0"),
            // Both go with their directory.
            (rename("d", "e"), "d/ d/a:0 d/b:0 | e/ e/a:0 e/b:0", "e/ e/a:0 e/b:0"),
            (Op::Sync, "e/ e/a:0 e/b:0 | e/ e/a:1 e/b:0 | e/ e/a:1 e/b:2", "e/ e/a:1 e/b:2"),
            (write(1, 3), "e/ e/a:1 e/b:2", "e/ e/a:1 e/b:2"),
            (write(2, 4), "e/ e/a:1 e/b:2", "e/ e/a:1 e/b:2"),
            (fsync(2), "e/ e/a:1 e/b:2 | e/ e/a:1 e/b:4", "e/ e/a:1 e/b:4"),
            // An unmount closes what is open.
            (Op::Remount, "e/ e/a:1 e/b:4 | e/ e/a:3 e/b:4", "e/ e/a:3 e/b:4"),
            (Op::Sync, "e/ e/a:3 e/b:4", "e/ e/a:3 e/b:4"),
        ],
    );
}

#[test]
fn durable_by_sync_in_order() {
    let promise = follow(
        &guarantee(Durable::Sync, Durable::Sync, "prefix"),
        &[
            (mkdir("d"), " | d/", " | d/"),
            (open(1, "a", NEW), " | d/ | a:0 d/", " | d/ | a:0 d/"),
            (write(1, 4), " | d/ | a:0 d/ | a:4 d/", " | d/ | a:0 d/ | a:4 d/"),
            // What came before it is durable too.
            (fsync(1), " | d/ | a:0 d/ | a:4 d/", "a:4 d/"),
            (close(1), "a:4 d/", "a:4 d/"),
            (open(1, "a", TRUNC), "a:4 d/ | a:0 d/", "a:4 d/ | a:0 d/"),
            (close(1), "a:4 d/ | a:0 d/", "a:4 d/ | a:0 d/"),
            (Op::Sync, "a:4 d/ | a:0 d/", "a:0 d/"),
            (rename("a", "b"), "a:0 d/ | b:0 d/", "a:0 d/ | b:0 d/"),
            // Back again: one tree, the newest.
            (rename("b", "a"), "b:0 d/ | a:0 d/", "b:0 d/ | a:0 d/"),
            (Op::Remount, "b:0 d/ | a:0 d/", "a:0 d/"),
        ],
    );
    assert!(promise.is_exact());
}

fn plain(files: &[(&str, usize)]) -> Tree {
    let mut plain = PlainTree::new();
    for (path, size) in files {
        plain.file((*path).into(), &Pattern { seed: 1, len: *size as u64 }.to_vec());
    }
    plain.finish()
}

#[test]
fn without_order_what_was_touched_is_loose() {
    let guarantee = guarantee(Durable::Sync, Durable::Sync, "none");
    let mut visible = Model::new(Config::default()).expect("the default works");
    let mut promise = Promise::new(visible.clone());
    let mut step = |promise: &mut Promise, op: Op| {
        assert!(visible.execute(&op).result.is_ok(), "{op}");
        promise.step(&guarantee, &op, &visible)
    };
    let allows = |promise: &Promise, files: &[(&str, usize)]| {
        let tree = plain(files);
        promise.allows(tree.digest(), || tree.clone())
    };
    for (slot, path) in [(1, "a"), (2, "b")] {
        step(&mut promise, open(slot, path, NEW));
        step(&mut promise, write(slot, 2));
        step(&mut promise, close(slot));
    }
    for anything in [&[][..], &[("a", 2)], &[("a", 1), ("b", 7)]] {
        assert!(allows(&promise, anything), "{anything:?}");
    }
    // A half-written entry may have any name.
    assert!(allows(&promise, &[("c", 0)]) && !promise.is_exact());
    let during = step(&mut promise, Op::Sync);
    assert!(allows(&during, &[("a", 2)]) && promise.is_exact());
    assert!(allows(&promise, &[("a", 2), ("b", 2)]) && !allows(&promise, &[("a", 2)]));
    // A rename touches both names, and an open file is touched under its new one.
    step(&mut promise, open(1, "a", OLD));
    step(&mut promise, rename("a", "c"));
    step(&mut promise, Op::Sync);
    assert!(promise.is_exact());
    step(&mut promise, write(1, 1));
    assert!(allows(&promise, &[("c", 1), ("b", 2)]) && allows(&promise, &[("b", 2)]));
    assert!(!allows(&promise, &[("c", 2)]) && allows(&promise, &[("a", 2), ("b", 2)]));
    // But not in a directory that was not touched.
    step(&mut promise, Op::Mkdir { path: "d".into(), mode: DIR_MODE });
    step(&mut promise, Op::Sync);
    step(&mut promise, write(1, 2));
    for (stray, legal) in [("x", true), ("d/x", false)] {
        let mut found = PlainTree::new();
        found.dir("d".into());
        found.file("b".into(), &Pattern { seed: 1, len: 2 }.to_vec());
        found.file(stray.into(), b"");
        let found = found.finish();
        assert_eq!(promise.allows(found.digest(), || found), legal, "{stray}");
    }
}

/// Every call that changes something touches it, under each name that it has; what it only reads is firm.
#[test]
fn without_order_any_change_touches_all_names() {
    let guarantee = guarantee(Durable::Sync, Durable::Sync, "none");
    let mut visible = Model::new(Config::default()).expect("the default works");
    let mut promise = Promise::new(visible.clone());
    let mut step = |promise: &mut Promise, op: Op| {
        assert!(visible.execute(&op).result.is_ok(), "{op}");
        promise.step(&guarantee, &op, &visible);
    };
    let allows = |promise: &Promise, files: &[(&str, usize)]| {
        let tree = plain(files);
        promise.allows(tree.digest(), || tree.clone())
    };
    for (slot, path) in [(1, "a"), (2, "b")] {
        step(&mut promise, open(slot, path, NEW));
        step(&mut promise, write(slot, 2));
        step(&mut promise, close(slot));
    }
    step(&mut promise, Op::Sync);
    step(&mut promise, Op::Stat { target: Target::Path("a".into()) });
    assert!(promise.is_exact(), "nothing was touched");
    step(&mut promise, Op::Link { from: "a".into(), to: "c".into(), follow: false });
    assert!(allows(&promise, &[("a", 2), ("b", 2)]) && allows(&promise, &[("b", 2)]));
    assert!(!allows(&promise, &[("a", 2)]), "nobody has touched b");
    step(&mut promise, Op::Sync);
    step(&mut promise, Op::Chmod { target: Target::Path("a".into()), mode: DIR_MODE });
    assert!(allows(&promise, &[("b", 2)]), "c is another name of a");
    step(&mut promise, Op::Sync);
    step(&mut promise, Op::Truncate { target: Target::Path("b".into()), len: 0 });
    assert!(!allows(&promise, &[]), "nobody has touched a and c");
}
