//! Findings on disk, replayed and shrunk.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use fathom_block::backed::Durable;
use fathom_block::{InProcess, Level};
use fathom_core::Op;
use fathom_engine::crash::finding::shrink_further;
use fathom_engine::crash::stored::{CrashVerdict, StoredCrash};
use fathom_engine::crash::{
    Class, CrashConfig, CrashFinding, CrashReplay, CrashSystem, Event, Script,
};

use super::bug::Bug;
use super::toy::Toy;
use super::{base, check, find};

fn config() -> CrashConfig {
    let levels = vec![Level::Linear, Level::Torn];
    CrashConfig { depth: 3, levels, ..base() }
}

fn bad() -> Toy {
    Toy::new(Durable::Operation).with(Bug::ForgetsLast)
}

fn finding() -> CrashFinding {
    find(&check(&bad(), &config()), Class::LostEntry, "rename into another directory")
}

/// Whether some power failure in or after the last operation of `ops` shows the cause.
fn shows(toy: &Toy, ops: &[Event], finding: &CrashFinding) -> bool {
    let config = config();
    let system = CrashSystem::new(toy, &config).expect("it can be formatted");
    let mut shows = false;
    system
        .cuts(&Script(ops.to_vec()), &finding.record.cause, &mut |_| {
            shows = true;
            ControlFlow::Break(())
        })
        .expect("no fault");
    shows
}

#[test]
fn nothing_can_be_left_out_of_a_minimal_run() {
    let (finding, again) = (finding(), self::finding());
    assert_eq!(finding.minimal, again.minimal);
    assert_eq!(finding.to_string(), again.to_string());
    let (last, ops) = finding.minimal.0.split_last().expect("events");
    assert!(matches!(last, Event::PowerCut(_)), "{finding}");
    assert!(shows(&bad(), ops, &finding));
    assert_eq!(ops.len(), 4, "{finding}");
    for (index, event) in ops.iter().enumerate() {
        // Leaving a file open is not simpler than closing it.
        if matches!(event, Event::Op(Op::Close { .. })) {
            continue;
        }
        let mut fewer = ops.to_vec();
        fewer.remove(index);
        assert!(!shows(&bad(), &fewer, &finding), "without operation {index}: {finding}");
    }
}

#[test]
fn a_long_run_shrinks_to_the_same() {
    let finding = finding();
    let directory = tempfile::tempdir().expect("a directory");
    let stored = StoredCrash::read(&finding.write(directory.path()).expect("written"));
    let mut stored = stored.expect("as it was written");
    // As it was found, before it was shrunk.
    stored.minimal = finding.script.clone();
    assert!(stored.minimal.ops_len() > finding.minimal.ops_len());
    let shrunk = shrink_further(&InProcess::new(&bad()), &stored, Duration::from_secs(10))
        .expect("no fault");
    let shrunk = shrunk.expect("it still shows");
    assert_eq!(shrunk.minimal, finding.minimal);
    assert_eq!(shrunk.record.id, finding.record.id);
    let fixed = Toy::new(Durable::Operation);
    let none = shrink_further(&InProcess::new(&fixed), &stored, Duration::from_secs(10))
        .expect("no fault");
    assert!(none.is_none());
}

#[test]
fn replays_say_what_they_see() {
    let finding = finding();
    let directory = tempfile::tempdir().expect("a directory");
    let path = finding.write(directory.path()).expect("written");
    assert!(path.ends_with(&finding.record.id) && StoredCrash::is_in(&path));
    let stored = StoredCrash::read(&path).expect("as it was written");
    assert_eq!((&stored.record, &stored.minimal), (&finding.record, &finding.minimal));
    assert_eq!(stored.script, finding.script);

    let replay = CrashReplay::play(&InProcess::new(&bad()), &stored).expect("no fault");
    assert_eq!(replay.verdict, CrashVerdict::Reproduced);
    assert_eq!(replay.cause.as_ref(), Some(&finding.record.cause));
    assert_eq!(replay.finding.to_string(), finding.to_string());

    let fixed = CrashReplay::play(&InProcess::new(&Toy::new(Durable::Operation)), &stored)
        .expect("no fault");
    assert_eq!((fixed.verdict, fixed.cause), (CrashVerdict::NotReproduced, None));
    let panics = Toy::new(Durable::Operation).with(Bug::RecoveryPanics);
    let other = CrashReplay::play(&InProcess::new(&panics), &stored);
    let other = other.expect("no fault");
    assert_eq!(other.verdict, CrashVerdict::Different);
    assert_eq!(other.cause.expect("something else").class, Class::Unmountable);
    // The operation that was interrupted does not exist any more.
    let refusing = Toy::new(Durable::Operation).with(Bug::RenamePanics);
    let refusing = CrashReplay::play(&InProcess::new(&refusing), &stored).expect("no fault");
    assert_eq!(refusing.verdict, CrashVerdict::NotReproduced);

    let toml = fs::read_to_string(path.join("finding.toml")).expect("readable");
    let digest = stored.record.image.to_string();
    assert!(toml.contains(&digest), "{toml}");
    let changed = toml.replace(&digest, &digest.chars().rev().collect::<String>());
    fs::write(path.join("finding.toml"), changed).expect("written");
    let stored = StoredCrash::read(&path).expect("still a finding");
    let replay = CrashReplay::play(&InProcess::new(&bad()), &stored).expect("no fault");
    assert_eq!(replay.verdict, CrashVerdict::Different);
}

#[test]
fn the_directory_tells_everything() {
    let finding = finding();
    let directory = tempfile::tempdir().expect("a directory");
    let path = finding.write(directory.path()).expect("written");
    let text = |name: &str| fs::read_to_string(path.join(name)).expect("readable");
    assert_eq!(text("story.txt"), finding.to_string());
    assert_eq!(text("diff.txt"), format!("{}\n", finding.record.what));
    assert_eq!(text("before.tree"), finding.before.to_string());
    assert!(text("promised.tree").contains("\nor\n"));
    assert_eq!(text("found.tree"), finding.found.as_ref().expect("it mounts").to_string());
    assert_eq!(text("minimal.jsonl").lines().count(), finding.minimal.0.len());
    assert_eq!(
        fs::read(path.join("crash.img")).ok(),
        finding.image.as_ref().map(fathom_block::Image::to_vec)
    );
}

#[test]
fn damage_is_told_with_the_file() {
    let finding = finding();
    let directory = tempfile::tempdir().expect("a directory");
    let error = |path: &Path| StoredCrash::read(path).expect_err("damaged").to_string();
    let nowhere = directory.path().join("nowhere");
    assert!(error(&nowhere).contains("finding.toml"), "{}", error(&nowhere));
    assert!(!StoredCrash::is_in(&nowhere));
    for (name, damage) in [
        ("finding.toml", "kind = "),
        ("finding.toml", "kind = \"crash\"\n"),
        ("minimal.jsonl", "{\"op\":{\"op\":\"shred\"}}\n"),
        ("minimal.jsonl", "{\"power_cut\":"),
        ("script.jsonl", "\u{0}"),
    ] {
        let path = finding.write(directory.path()).expect("written");
        assert!(StoredCrash::read(&path).is_ok());
        fs::write(path.join(name), damage).expect("written");
        let error = error(&path);
        assert!(error.contains(name), "{error}");
        fs::remove_file(path.join(name)).expect("removed");
        let error = StoredCrash::read(&path).expect_err("missing").to_string();
        assert!(error.contains(name), "{error}");
    }
    let error = finding.write(Path::new("/dev/null")).expect_err("not a directory").to_string();
    assert!(error.contains("/dev/null"), "{error}");
}
